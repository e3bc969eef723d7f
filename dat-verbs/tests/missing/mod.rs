//! Programs that are not installed here.

use std::env;
use std::io::Write as _;

/// Variable that `cargo xtask test --all` sets: it has installed all programs.
const ALL: &str = "DAT_TEST_ALL_PROGRAMS";

/// Says past the capture of the test harness what does not run here.
///
/// # Panics
/// All programs have been installed.
pub(crate) fn report_missing(what: &str) {
    assert!(
        env::var_os(ALL).is_none(),
        "{what} is not installed, but {ALL} is set"
    );
    let told = format!("skipped: {what} is not installed\n");
    let _ = std::io::stderr().write_all(told.as_bytes());
}
