//! What a user can be told whose program gets no more than a code.

use std::fmt::Display;

use crate::boundary::say;

/// The variable that says whether it is said.
const VARIABLE: &str = "DAT_DBG_TYPE";

/// Says on the error output what is wrong, and which part of ours found it, if that is wanted: the variable is set and not 0.
pub(crate) fn complain(part: impl Display, what: impl Display) {
    if std::env::var(VARIABLE).is_ok_and(|value| value != "0") {
        say(&format!("{part}: {what}\n"));
    }
}
