//! Rates of links, as enumerations of verbs name them.

use core::ffi::c_int;

/// Rates: number, multiple of 2.5 Gb/s if it is a whole one, Mb/s.
const RATES: [(c_int, Option<c_int>, c_int); 23] = [
    (2, Some(1), 2_500),
    (5, Some(2), 5_000),
    (3, Some(4), 10_000),
    (6, Some(8), 20_000),
    (4, Some(12), 30_000),
    (7, Some(16), 40_000),
    (8, Some(24), 60_000),
    (9, Some(32), 80_000),
    (10, Some(48), 120_000),
    (11, None, 14_062),
    (12, None, 56_250),
    (13, None, 112_500),
    (14, None, 168_750),
    (15, None, 25_781),
    (16, None, 103_125),
    (17, None, 206_250),
    (18, None, 309_375),
    (19, Some(11), 28_125),
    (20, Some(20), 53_125),
    (21, Some(160), 425_000),
    (22, Some(240), 637_500),
    (23, Some(320), 850_000),
    (24, Some(480), 1_275_000),
];

/// `IBV_RATE_MAX`.
const MAX: c_int = 0;

fn of_rate(rate: c_int) -> Option<&'static (c_int, Option<c_int>, c_int)> {
    RATES.iter().find(|(number, ..)| *number == rate)
}

pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    of_rate(rate)
        .and_then(|(_, multiple, _)| *multiple)
        .unwrap_or(-1)
}

pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    of_rate(rate).map_or(-1, |(_, _, megabits)| *megabits)
}

pub(crate) extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    let found = RATES.iter().find(|(_, its, _)| *its == Some(multiple));
    found.map_or(MAX, |(number, ..)| *number)
}

pub(crate) extern "C" fn mbps_to_ibv_rate(megabits: c_int) -> c_int {
    let found = RATES.iter().find(|(_, _, its)| *its == megabits);
    found.map_or(MAX, |(number, ..)| *number)
}
