//! Texts of numbers, rates, and files of the system.

use core::ffi::{CStr, c_char, c_int, c_uint};

use crate::c;
use crate::layout::*;

/// Returns the text at a number, or `unknown`.
fn text(texts: &[&'static CStr], number: usize) -> *const c_char {
    texts.get(number).copied().unwrap_or(c"unknown").as_ptr()
}

pub(crate) extern "C" fn node_type_str(kind: c_int) -> *const c_char {
    let texts = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    text(&texts, usize::try_from(kind).unwrap_or(0))
}

pub(crate) extern "C" fn port_state_str(state: c_uint) -> *const c_char {
    let texts = [
        c"no state change (NOP)",
        c"down",
        c"init",
        c"armed",
        c"active",
        c"active defer",
    ];
    text(&texts, state as usize)
}

pub(crate) extern "C" fn event_type_str(kind: c_uint) -> *const c_char {
    let texts = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
    ];
    text(&texts, kind as usize)
}

pub(crate) extern "C" fn wc_status_str(status: c_uint) -> *const c_char {
    let texts = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    text(&texts, status as usize)
}

/// Rates with the multiple of 2.5 Gb/s, if it is one, and in Mb/s.
const RATES: [(ibv_rate, c_int, c_int); 23] = [
    (IBV_RATE_2_5_GBPS, 1, 2500),
    (IBV_RATE_5_GBPS, 2, 5000),
    (IBV_RATE_10_GBPS, 4, 10_000),
    (IBV_RATE_20_GBPS, 8, 20_000),
    (IBV_RATE_30_GBPS, 12, 30_000),
    (IBV_RATE_40_GBPS, 16, 40_000),
    (IBV_RATE_60_GBPS, 24, 60_000),
    (IBV_RATE_80_GBPS, 32, 80_000),
    (IBV_RATE_120_GBPS, 48, 120_000),
    (IBV_RATE_14_GBPS, -1, 14_062),
    (IBV_RATE_56_GBPS, -1, 56_250),
    (IBV_RATE_112_GBPS, -1, 112_500),
    (IBV_RATE_168_GBPS, -1, 168_750),
    (IBV_RATE_25_GBPS, -1, 25_781),
    (IBV_RATE_100_GBPS, -1, 103_125),
    (IBV_RATE_200_GBPS, -1, 206_250),
    (IBV_RATE_300_GBPS, -1, 309_375),
    (IBV_RATE_28_GBPS, -1, 28_125),
    (IBV_RATE_50_GBPS, -1, 53_125),
    (IBV_RATE_400_GBPS, -1, 425_000),
    (IBV_RATE_600_GBPS, -1, 637_500),
    (IBV_RATE_800_GBPS, -1, 850_000),
    (IBV_RATE_1200_GBPS, -1, 1_275_000),
];

pub(crate) extern "C" fn rate_to_mult(rate: ibv_rate) -> c_int {
    let found = RATES.iter().find(|one| one.0 == rate);
    found.map_or(-1, |one| one.1)
}

pub(crate) extern "C" fn mult_to_rate(multiple: c_int) -> ibv_rate {
    let found = RATES.iter().find(|one| one.1 == multiple && multiple > 0);
    found.map_or(IBV_RATE_MAX, |one| one.0)
}

pub(crate) extern "C" fn rate_to_mbps(rate: ibv_rate) -> c_int {
    let found = RATES.iter().find(|one| one.0 == rate);
    found.map_or(-1, |one| one.2)
}

pub(crate) extern "C" fn mbps_to_rate(mbps: c_int) -> ibv_rate {
    let found = RATES.iter().find(|one| one.2 == mbps);
    found.map_or(IBV_RATE_MAX, |one| one.0)
}

pub(crate) extern "C" fn get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads a file of a folder without its last line break.
pub(crate) extern "C" fn read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    out: *mut c_char,
    size: usize,
) -> c_int {
    let (Some(folder), Some(file)) = (c::text(folder), c::text(file)) else {
        return -1;
    };
    let names = [folder, file].map(|name| name.to_string_lossy());
    let Ok(text) = std::fs::read(names.join("/")) else {
        return -1;
    };
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let out = c::bytes_mut(out, size);
    let length = text.len().min(out.len());
    for (place, byte) in out.iter_mut().zip(text.iter().chain(&[0])) {
        *place = *byte;
    }
    c_int::try_from(length).unwrap_or(c_int::MAX)
}
