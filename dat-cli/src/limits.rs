//! System limits that this process has reached, as the reasons of failures.

use std::fs::{self, File};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_core::{Cause, Error, ErrorKind, Subtype};
use libc::{EAFNOSUPPORT, EMFILE, ENFILE, ENOBUFS};

use crate::size::size;

/// Linux files about this process.
///
/// They hold its limits, its state and capabilities, and its user namespace.
const LIMITS: &str = "/proc/self/limits";
const STATUS: &str = "/proc/self/status";
const USERS: &str = "/proc/self/uid_map";
/// Descriptors that opening a device takes.
const NEEDED: usize = 16;
/// Number of CAP_IPC_LOCK, the capability that lifts the limit of locked memory.
const MAY_LOCK: u32 = 14;
/// User map of the first user namespace; a capability of another namespace lifts no limit.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// A reached limit and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) why: String,
    pub(crate) remedy: &'static str,
}

/// Returns the limit that caused an error of the interface, if one did.
///
/// For a device that refused to register memory this is the limit of locked memory, for any other
/// missing resource the limit of descriptors.
pub(crate) fn reached(error: Error) -> Option<Reached> {
    match (error.kind(), error.cause()) {
        // The adapter counts its objects itself; its tables have the sizes it was opened with.
        (_, Cause::TableFull) => None,
        (ErrorKind::InsufficientResources, _)
            if error.subtype() == Subtype::ResourceMemoryRegion =>
        {
            registered(error)
        }
        // A library that cannot open another file finds no device.
        (ErrorKind::InsufficientResources | ErrorKind::InternalError, _) => descriptors(),
        _ => None,
    }
}

/// Returns the limit of locked memory if a device refused a registration.
pub(crate) fn registered(error: Error) -> Option<Reached> {
    let refused = error.kind() == ErrorKind::InsufficientResources
        && error.subtype() == Subtype::ResourceMemoryRegion
        && matches!(error.cause(), Cause::DeviceRefused | Cause::Prohibited);
    refused.then(locked_memory).flatten()
}

/// Returns true if the process, or the host, has no descriptor left.
pub(crate) fn is_for_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Returns true if the host does not support the family of an address.
pub(crate) fn is_of_family(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EAFNOSUPPORT))
}

/// Returns true if the host has no memory for the buffers of a socket.
pub(crate) fn lacks_buffers(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOBUFS))
}

/// Returns the limit of open files if fewer than [`NEEDED`] descriptors are free.
pub(crate) fn descriptors() -> Option<Reached> {
    let mut opened = Vec::with_capacity(NEEDED);
    while opened.len() < NEEDED {
        match File::open("/dev/null") {
            Ok(file) => opened.push(file),
            Err(error) if error.raw_os_error() == Some(EMFILE) => {
                // Reading the limit takes one descriptor.
                opened.pop();
                return Some(Reached {
                    why: match limit("Max open files") {
                        Some(most) => format!(
                            "the limit of {most} open files per process is reached (RLIMIT_NOFILE)"
                        ),
                        None => {
                            "the limit of open files per process is reached (RLIMIT_NOFILE)".into()
                        }
                    },
                    remedy: "raise the limit (`ulimit -n`), or start the program with fewer inherited files",
                });
            }
            // Not this limit: /dev/null is missing, or the whole system has too many open files.
            Err(_) => return None,
        }
    }
    None
}

/// Set once this process opens a device through which memory is registered.
static HAS_DEVICE: AtomicBool = AtomicBool::new(false);

/// Notes that this process opens a device through which memory is registered.
///
/// After a failure, the device may be closed before its cause is looked for.
pub(crate) fn opens_device() {
    HAS_DEVICE.store(true, Ordering::Relaxed);
}

/// Returns the limit of locked memory if it binds a process that has opened a device.
pub(crate) fn locked_memory() -> Option<Reached> {
    if !HAS_DEVICE.load(Ordering::Relaxed) {
        return None;
    }
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    locked_memory_limit(&read(LIMITS), &read(STATUS), &read(USERS))
}

/// Parses the limit of locked memory; returns `None` if none binds the process.
fn locked_memory_limit(limits: &str, status: &str, users: &str) -> Option<Reached> {
    let most = parse(limits, "Max locked memory")?;
    let capabilities = word(status, "CapEff:").map(|word| u64::from_str_radix(word, 16));
    let may_lock = matches!(capabilities, Some(Ok(bits)) if bits >> MAY_LOCK & 1 != 0);
    if may_lock && users.split_whitespace().eq(ALL_USERS) {
        return None;
    }
    let pinned = parse(status, "VmPin:").unwrap_or(0);
    Some(Reached {
        why: format!(
            "the limit of locked memory is {} (RLIMIT_MEMLOCK), and {} are already registered",
            size(most),
            size(pinned.saturating_mul(1024))
        ),
        remedy: "raise the limit (`ulimit -l`, or LimitMEMLOCK= of the service), or use less memory",
    })
}

/// Returns the limit of this name, or `None` if it is unlimited or unknown.
fn limit(name: &str) -> Option<u64> {
    parse(&fs::read_to_string(LIMITS).ok()?, name)
}

fn parse(text: &str, name: &str) -> Option<u64> {
    word(text, name)?.parse().ok()
}

/// Returns the first word after `name` at the start of a line.
fn word<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()
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

    /// The capability lifts the limit of locked memory only in the first user namespace.
    #[test]
    fn a_process_that_may_lock_memory_has_no_limit() {
        let limits =
            "Max locked memory         65536                65536                bytes     \n";
        let status = |capabilities: &str| format!("VmPin:\t      60 kB\nCapEff:\t{capabilities}\n");
        let (plain, all) = (status("0000000000000000"), status("000001ffffffffff"));
        let (first, other) = ("         0          0 4294967295\n", "0 100000 65536\n");
        let reached = locked_memory_limit(limits, &plain, first).expect("a limit");
        assert_eq!(
            reached.why,
            "the limit of locked memory is 64 KiB (RLIMIT_MEMLOCK), and 60 KiB are already registered"
        );
        assert_eq!(locked_memory_limit(limits, &all, first), None);
        assert_eq!(locked_memory_limit(limits, &all, other), Some(reached));
        assert_eq!(
            locked_memory_limit(
                "Max locked memory unlimited unlimited bytes\n",
                &plain,
                first
            ),
            None
        );
    }

    /// No limit is blamed for a full table, or while no device is open.
    #[test]
    fn only_a_reached_limit_is_named() {
        let of_regions =
            |cause| Error::insufficient_resources(Subtype::ResourceMemoryRegion).because(cause);
        // No device of the system is open here.
        for cause in [Cause::TableFull, Cause::DeviceRefused, Cause::None] {
            assert_eq!(reached(of_regions(cause)), None);
            assert_eq!(registered(of_regions(cause)), None);
        }
        let full = Error::insufficient_resources(Subtype::ResourceTep).because(Cause::TableFull);
        assert_eq!(reached(full), None);
        assert_eq!(descriptors(), None);
    }
}
