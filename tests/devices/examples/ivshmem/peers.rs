//! Protocol of QEMU's shared memory server and its clients: numbers, some with a file.

use std::io::{IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Protocol version, the first number that the server sends.
pub(crate) const VERSION: i64 = 0;
/// Number that accompanies the file of the shared memory.
pub(crate) const MEMORY: i64 = -1;
/// Length of the shared memory in bytes.
pub(crate) const LENGTH: usize = 1 << 20;
/// Interrupts of each peer: its doorbell, and the notice that another peer left.
pub(crate) const RINGS: usize = 0;
pub(crate) const LEFT: usize = 1;
pub(crate) const INTERRUPTS: usize = 2;

/// Sends a number, with an optional file.
pub(crate) fn send(to: &UnixStream, number: i64, file: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(file) = &file {
        control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(file)));
    }
    let number = number.to_le_bytes();
    let number = [IoSlice::new(&number)];
    sendmsg(to, &number, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Returns the next number with its optional file; `None` if the connection is closed.
pub(crate) fn receive(from: &UnixStream) -> Result<Option<(i64, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut number = [0; 8];
    let mut into = [IoSliceMut::new(&mut number)];
    let received = recvmsg(from, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    match received.bytes {
        0 => Ok(None),
        8 => Ok(Some((i64::from_le_bytes(number), file))),
        _ => Err(std::io::ErrorKind::InvalidData.into()),
    }
}

/// Rings one of a peer's interrupts.
pub(crate) fn ring(interrupt: &OwnedFd) -> Result<()> {
    rustix::io::write(interrupt, &1_u64.to_ne_bytes())?;
    Ok(())
}
