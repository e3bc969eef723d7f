//! Lines for the host, without the formatting of the language.

use cortex_m_semihosting::hio;

/// Digits of the largest number.
const DIGITS: usize = 10;

/// Prints a kind, a name and a number. A host that does not listen loses the line, which it will notice.
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
