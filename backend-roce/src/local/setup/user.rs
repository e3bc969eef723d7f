//! The user and the process at the other end of a Unix socket (ROCE-218, ROCE-221).

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::process::geteuid;

use super::{Refusal, failed};

/// User that stands for all that a user namespace does not map, if the system does not tell.
const UNMAPPED: u32 = 65_534;

/// Returns the process that connected, or listens; fails unless it has the user of this one.
///
/// Users without a number in this namespace share one, which proves nothing, unless there are none.
pub(super) fn check(socket: &impl AsFd) -> Result<i32, Refusal> {
    // Not the call of `rustix`, which takes no process of another namespace.
    let peer = getsockopt(socket, sockopt::PeerCredentials).map_err(failed("SO_PEERCRED"))?;
    let (process, peer, own) = (peer.pid(), peer.uid(), geteuid().as_raw());
    let is_same = is_mapped(peer, unmapped()) || maps_all();
    match peer == own && is_same {
        true => Ok(process),
        false => Err(Refusal::User(peer)),
    }
}

fn is_mapped(user: u32, unmapped: u32) -> bool {
    user != unmapped && user != UNMAPPED
}

/// Returns the number that stands for users without one.
fn unmapped() -> u32 {
    let parse = |text: &str| text.trim().parse().ok();
    with_text("/proc/sys/kernel/overflowuid", parse).unwrap_or(UNMAPPED)
}

/// Returns true if each user has a number in this namespace.
fn maps_all() -> bool {
    with_text("/proc/self/uid_map", |text| is_whole(text).then_some(())).is_some()
}

/// Returns true for a map with a range of all users.
fn is_whole(map: &str) -> bool {
    map.split_ascii_whitespace().nth(2) == Some("4294967295")
}

/// Gives the beginning of a file to `act`. Takes no memory of the heap (ROCE-199).
fn with_text<T>(path: &str, act: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut bytes = [0; 64];
    let length = File::open(path).and_then(|mut file| file.read(&mut bytes));
    act(str::from_utf8(bytes.get(..length.ok()?)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: ROCE-218
    #[test]
    fn an_unmapped_user_is_no_one_else() {
        assert!(is_mapped(1000, UNMAPPED));
        assert!(is_mapped(0, UNMAPPED));
        assert!(!is_mapped(UNMAPPED, UNMAPPED));
        assert!(!is_mapped(UNMAPPED, 7));
        assert!(!is_mapped(7, 7));
    }

    /// Spec: ROCE-218
    #[test]
    fn only_a_map_of_all_users_leaves_no_one_unmapped() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(is_whole("0 1 4294967295"));
        for part in [
            "",
            "0 1000 1\n",
            "0 1000 1\n1 100000 65536\n",
            "0 0 4294967294\n",
            "0 4294967295 1\n",
            "0 0",
        ] {
            assert!(!is_whole(part), "{part}");
        }
    }
}
