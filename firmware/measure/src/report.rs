//! Lines for the host, without `core::fmt`.

use cortex_m_semihosting::hio;

/// Digits of the largest number.
const DIGITS: usize = 10;

/// Prints a kind, a name and a number.
///
/// A failed write loses the line; the host notices.
pub(crate) fn line(kind: &str, name: &str, number: u32) {
    let mut digits = [b' '; DIGITS];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' | (rest % 10) as u8;
        rest /= 10;
    }
    if let Ok(mut host) = hio::hstdout() {
        for part in [kind.as_bytes(), b" ", name.as_bytes(), b" ", &digits, b"\n"] {
            let _heard = host.write_all(part);
        }
    }
}
