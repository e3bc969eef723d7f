//! The time that a responder without a receive asks for.

/// Code of the time after which a request may come again (ROCE-22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimer(u8);

/// Times by code, in microseconds.
const MICROS: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

impl RnrTimer {
    /// Returns the timer of the low 5 bits of `code`.
    pub const fn from_code(code: u8) -> Self {
        Self(code & 0x1F)
    }

    /// Returns the code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the time in microseconds.
    pub fn micros(self) -> u64 {
        let micros = MICROS.get(usize::from(self.0)).copied();
        u64::from(micros.unwrap_or_default())
    }
}
