//! Messages of a set-up (ROCE-219): the dialler's question, which brings the memory, and the
//! answer.

use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};

use super::super::pair::Known;
use super::super::queue::{PAYLOAD_MAX, QUEUE_BYTES};
use super::{Refusal, failed};
use crate::proto::bytes::{Reader, Writer};

/// First bytes of both messages.
const MARK: u64 = u64::from_be_bytes(*b"DATlocal");

/// Version of the messages, of the memory and of the records.
const VERSION: u32 = 1;

const HELLO: usize = 84;
const ANSWER: usize = 36;

/// Files that are taken off a socket at once; one is right.
const FILES: usize = 4;

/// The question of a dialler: its name and addresses, and the number of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) number: u32,
    pub(super) adapter: [u8; 16],
    pub(super) own: SocketAddr,
    pub(super) target: SocketAddr,
}

/// A listener's decision on a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The listener has mapped the memory.
    Taken,
    /// The adapters have a pair already.
    Known,
    /// The listener takes no pair.
    Refused,
    /// It takes a pair once the question brings its memory.
    Wanted,
}

/// The answer of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) number: u32,
    pub(super) adapter: [u8; 16],
}

fn put_address(to: &mut Writer<'_>, address: SocketAddr) -> Option<()> {
    let (ip, scope) = match address {
        SocketAddr::V4(address) => (address.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(address) => (*address.ip(), address.scope_id()),
    };
    to.put(&ip.octets())?;
    to.u16(address.port())?;
    to.u32(scope)
}

fn address(from: &mut Reader<'_>) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from(from.array::<16>()?);
    let (port, scope) = (from.u16()?, from.u32()?);
    Some(match IpAddr::V6(ip).to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(_) => SocketAddrV6::new(ip, port, 0, scope).into(),
    })
}

impl Hello {
    /// Returns the adapter that asks, of some process.
    pub(super) fn of(&self, process: i32) -> Known {
        let name = self.adapter;
        Known { name, process }
    }

    pub(super) fn encode(&self) -> Option<[u8; HELLO]> {
        let mut bytes = [0; HELLO];
        let mut to = Writer::new(&mut bytes);
        to.u64(MARK)?;
        to.u32(VERSION)?;
        to.u32(QUEUE_BYTES as u32)?;
        to.u32(PAYLOAD_MAX as u32)?;
        to.u32(self.number)?;
        to.put(&self.adapter)?;
        put_address(&mut to, self.own)?;
        put_address(&mut to, self.target)?;
        Some(bytes)
    }

    fn decode(bytes: &[u8; HELLO]) -> Result<Self, Refusal> {
        let mut from = Reader::new(bytes);
        check_version(&mut from)?;
        let sizes = (from.u32(), from.u32());
        if sizes != (Some(QUEUE_BYTES as u32), Some(PAYLOAD_MAX as u32)) {
            return Err(Refusal::Message("other sizes"));
        }
        let mut hello = || {
            Some(Self {
                number: from.u32().filter(|number| *number != 0)?,
                adapter: from.array()?,
                own: address(&mut from)?,
                target: address(&mut from)?,
            })
        };
        hello().ok_or(Refusal::Message("no number"))
    }

    /// Sends the question, with the memory if there is one.
    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        memory: Option<&OwnedFd>,
    ) -> Result<(), Refusal> {
        let bytes = self.encode().ok_or(Refusal::Message("no room"))?;
        let files = memory.map(|memory| [memory.as_fd()]);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(files) = &files {
            let _ = control.push(SendAncillaryMessage::ScmRights(files));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags);
        match sent.map_err(unsent("sendmsg"))? {
            HELLO => Ok(()),
            _ => Err(Refusal::Message("been cut")),
        }
    }

    /// Receives a question, and its memory if it brings one; `None` if none has come yet.
    ///
    /// A question that comes in pieces, or with several files, is refused. Its files are closed.
    pub(super) fn receive(
        socket: BorrowedFd<'_>,
    ) -> Result<Option<(Self, Option<OwnedFd>)>, Refusal> {
        let mut bytes = [0; HELLO];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = match recvmsg(socket, &mut parts, &mut control, flags) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            received => received.map_err(failed("recvmsg"))?,
        };
        let (mut memory, mut count) = (None, 0);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                for file in files {
                    memory = Some(file);
                    count += 1;
                }
            }
        }
        match received.bytes {
            0 => return Err(Refusal::Closed),
            HELLO => {}
            _ => return Err(Refusal::Message("another length")),
        }
        let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
        if count > 1 || is_cut {
            return Err(Refusal::Message("several files"));
        }
        Ok(Some((Self::decode(&bytes)?, memory)))
    }
}

/// Returns the reason why a message was not sent.
fn unsent(call: &'static str) -> impl FnOnce(Errno) -> Refusal {
    move |error| match error {
        Errno::PIPE | Errno::CONNRESET => Refusal::Closed,
        error => failed(call)(error),
    }
}

fn check_version(from: &mut Reader<'_>) -> Result<(), Refusal> {
    match (from.u64(), from.u32()) {
        (Some(MARK), Some(VERSION)) => Ok(()),
        (Some(MARK), _) => Err(Refusal::Message("another version")),
        _ => Err(Refusal::Message("another mark")),
    }
}

impl Answer {
    /// Returns the adapter that answers, of some process.
    pub(super) fn of(&self, process: i32) -> Known {
        let name = self.adapter;
        Known { name, process }
    }

    pub(super) fn encode(&self) -> Option<[u8; ANSWER]> {
        let mut bytes = [0; ANSWER];
        let mut to = Writer::new(&mut bytes);
        to.u64(MARK)?;
        to.u32(VERSION)?;
        to.u32(match self.verdict {
            Verdict::Taken => 1,
            Verdict::Known => 2,
            Verdict::Refused => 3,
            Verdict::Wanted => 4,
        })?;
        to.u32(self.number)?;
        to.put(&self.adapter)?;
        Some(bytes)
    }

    fn decode(bytes: &[u8; ANSWER]) -> Result<Self, Refusal> {
        let mut from = Reader::new(bytes);
        check_version(&mut from)?;
        let verdict = match from.u32() {
            Some(1) => Verdict::Taken,
            Some(2) => Verdict::Known,
            Some(3) => Verdict::Refused,
            Some(4) => Verdict::Wanted,
            _ => return Err(Refusal::Message("another verdict")),
        };
        let numbers = (from.u32(), from.array());
        match numbers {
            (Some(number), Some(adapter)) if number != 0 || verdict != Verdict::Taken => Ok(Self {
                verdict,
                number,
                adapter,
            }),
            _ => Err(Refusal::Message("no number")),
        }
    }

    /// Sends the answer; a peer that is gone does not need it.
    pub(super) fn send(&self, socket: BorrowedFd<'_>) -> Result<(), Refusal> {
        let bytes = self.encode().ok_or(Refusal::Message("no room"))?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(socket, &bytes, flags).map_err(unsent("send"))? {
            ANSWER => Ok(()),
            _ => Err(Refusal::Message("been cut")),
        }
    }

    /// Receives an answer; `None` if none has come yet. Files that come with it are closed.
    pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Self>, Refusal> {
        let mut bytes = [0; ANSWER];
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::CONNRESET) | Ok((_, 0)) => Err(Refusal::Closed),
            Err(error) => Err(failed("recv")(error)),
            Ok((_, ANSWER)) => Self::decode(&bytes).map(Some),
            Ok(_) => Err(Refusal::Message("another length")),
        }
    }
}
