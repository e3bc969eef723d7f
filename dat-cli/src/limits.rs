//! Limits of the system that this process has reached, for failures that come of them.

use std::fs::{self, File};

use crate::size::size;

/// What Linux tells of the limits of this process.
const LIMITS: &str = "/proc/self/limits";
/// Descriptors that whoever opens a device needs at once.
const NEEDED: usize = 16;

/// Why something could not be had, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) why: String,
    pub(crate) remedy: &'static str,
}

/// The limit of open files, if there is no room for a few more.
pub(crate) fn descriptors() -> Option<Reached> {
    let free = (0..NEEDED).map_while(|_| File::open("/dev/null").ok());
    let short = free.collect::<Vec<_>>().len() < NEEDED;
    short.then(|| Reached {
        why: match limit("Max open files") {
            Some(most) => format!(
                "this process may have no more than {most} files open (RLIMIT_NOFILE), and that is too few"
            ),
            None => "this process may have no more files open (RLIMIT_NOFILE)".into(),
        },
        remedy: "raise the limit (`ulimit -n`), or close files that it got from whoever started it",
    })
}

/// The limit of memory that devices may reach, if there is one. Whether it was reached only the system knows.
pub(crate) fn locked_memory() -> Option<Reached> {
    limit("Max locked memory").map(|most| Reached {
        why: format!(
            "this process may register no more than {} of memory (RLIMIT_MEMLOCK)",
            size(most)
        ),
        remedy: "raise the limit (`ulimit -l`, or LimitMEMLOCK= of its service), or choose less memory",
    })
}

/// The limit of this name; `None` if there is none.
fn limit(name: &str) -> Option<u64> {
    parse(&fs::read_to_string(LIMITS).ok()?, name)
}

fn parse(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_system_writes_them() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max open files            1024                 524288               files     \n\
             Max locked memory         unlimited            unlimited            bytes     \n";
        assert_eq!(parse(limits, "Max open files"), Some(1024));
        assert_eq!(parse(limits, "Max locked memory"), None);
        assert_eq!(parse(limits, "Max pending signals"), None);
    }
}
