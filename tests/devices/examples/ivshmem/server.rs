//! Server of QEMU's shared memory; it detects that a peer closed and tells the others.

use std::collections::BTreeMap;
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::peers::{INTERRUPTS, LEFT, LENGTH, MEMORY, VERSION, ring, send};

/// A connected peer.
struct Peer {
    socket: UnixStream,
    interrupts: Vec<OwnedFd>,
}

/// Serves until all peers have left.
pub(crate) fn serve(path: &str) -> Result<(), Box<dyn Error>> {
    let memory = memfd_create("ivshmem", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, LENGTH as u64)?;
    let listener = UnixListener::bind(path)?;
    println!("serves");
    let mut peers = BTreeMap::new();
    for number in 0.. {
        // Until a new peer connects, existing peers may leave.
        while number != 0 && !wait_for_peer(&listener, &mut peers)? {
            if peers.is_empty() {
                return Ok(());
            }
        }
        let (socket, _) = listener.accept()?;
        // The next poll detects a peer that left at once.
        let _gone = connect_peer(number, socket, &memory, &mut peers)?;
    }
    Ok(())
}

/// Waits for an event; returns true if a new peer connects.
///
/// Removes the peers that left and tells the others.
fn wait_for_peer(
    listener: &UnixListener,
    peers: &mut BTreeMap<i64, Peer>,
) -> Result<bool, Box<dyn Error>> {
    let mut watched = vec![PollFd::new(listener, PollFlags::IN)];
    watched.extend(
        peers
            .values()
            .map(|peer| PollFd::new(&peer.socket, PollFlags::IN)),
    );
    poll(&mut watched, None)?;
    let mut spoke = watched.iter().map(|watched| !watched.revents().is_empty());
    let new = spoke.next() == Some(true);
    // A peer never sends, so a readable socket means that it left.
    let gone: Vec<i64> = peers
        .keys()
        .zip(spoke)
        .filter(|(_, spoke)| *spoke)
        .map(|(number, _)| *number)
        .collect();
    for number in gone {
        peers.remove(&number);
        for other in peers.values() {
            // The next poll detects a peer that left as well.
            let _gone = send(&other.socket, number, None);
            ring(&other.interrupts[LEFT])?;
        }
    }
    Ok(new)
}

/// Sends a new peer the memory and the peers' interrupts, and announces it to them.
fn connect_peer(
    number: i64,
    socket: UnixStream,
    memory: &OwnedFd,
    peers: &mut BTreeMap<i64, Peer>,
) -> Result<std::io::Result<()>, Box<dyn Error>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let interrupts: Vec<OwnedFd> = (0..INTERRUPTS)
        .map(|_| eventfd(0, flags))
        .collect::<Result<_, _>>()?;
    let greet = || {
        send(&socket, VERSION, None)?;
        send(&socket, number, None)?;
        send(&socket, MEMORY, Some(memory.as_fd()))?;
        for (other, peer) in &*peers {
            for interrupt in &peer.interrupts {
                send(&socket, *other, Some(interrupt.as_fd()))?;
            }
            for interrupt in &interrupts {
                send(&peer.socket, number, Some(interrupt.as_fd()))?;
            }
        }
        for interrupt in &interrupts {
            send(&socket, number, Some(interrupt.as_fd()))?;
        }
        Ok(())
    };
    let greeted = greet();
    peers.insert(number, Peer { socket, interrupts });
    Ok(greeted)
}
