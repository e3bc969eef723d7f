//! The user at the other end of a Unix socket (ROCE-218).

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::process::geteuid;

use super::{Refusal, failed};

/// User that stands for all that a user namespace does not map, if the system does not tell.
const UNMAPPED: u32 = 65_534;

/// Fails unless the process that connected, or listens, has the user of this one.
///
/// Users without a number in this namespace share one. It never proves that two are the same.
pub(super) fn check(socket: &impl AsFd) -> Result<(), Refusal> {
    // Not the call of `rustix`, which takes no process of another namespace.
    let peer = getsockopt(socket, sockopt::PeerCredentials).map_err(failed("SO_PEERCRED"))?;
    match is_same(peer.uid(), geteuid().as_raw(), unmapped()) {
        true => Ok(()),
        false => Err(Refusal::User(peer.uid())),
    }
}

fn is_same(peer: u32, own: u32, unmapped: u32) -> bool {
    peer == own && peer != unmapped && peer != UNMAPPED
}

/// Returns the number that stands for users without one. Takes no memory of the heap (ROCE-199).
fn unmapped() -> u32 {
    let mut bytes = [0; 16];
    let read =
        File::open("/proc/sys/kernel/overflowuid").and_then(|mut file| file.read(&mut bytes));
    let text = read.ok().and_then(|length| bytes.get(..length));
    text.and_then(|text| str::from_utf8(text).ok()?.trim().parse().ok())
        .unwrap_or(UNMAPPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: ROCE-218
    #[test]
    fn an_unmapped_user_is_no_one_else() {
        assert!(is_same(1000, 1000, UNMAPPED));
        assert!(is_same(0, 0, UNMAPPED));
        assert!(!is_same(0, 1000, UNMAPPED));
        assert!(!is_same(UNMAPPED, UNMAPPED, UNMAPPED));
        assert!(!is_same(UNMAPPED, UNMAPPED, 7));
        assert!(!is_same(7, 7, 7));
    }
}
