//! Messages for a user whose program gets only a return code.

use std::fmt::Display;

use crate::boundary::say;

/// Environment variable that turns the messages on.
const VARIABLE: &str = "DAT_DBG_TYPE";

/// Writes a message to standard error if `DAT_DBG_TYPE` is set and not 0.
///
/// `part` names the part of the library that found the error.
pub(crate) fn report(part: impl Display, what: impl Display) {
    if std::env::var(VARIABLE).is_ok_and(|value| value != "0") {
        say(&format!("{part}: {what}\n"));
    }
}
