//! A peer between two adapters of queues in memory, which may change all that it passes on.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};

use backend_roce::local::{
    Bell, Dial, Dialled, FIRST, First, Identity, Known, Label, Listener, LocalPair, Memory, Naming,
    PAYLOAD_MAX, QUEUE_BYTES, Role, SPLIT,
};
use backend_roce::proto::packet::ICRC_LENGTH;
use dat_core::event::{ConnectionEventKind, Event, ThreadWait};
use dat_core::time::Instant;
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use super::end::{End, QUALIFIER, is_success, listen, local_end, next, param};
use super::process::until;
use super::table::Table;

/// Returns the address at which an end listens for connections.
pub fn target(end: &End) -> SocketAddr {
    let mut target = end.address.socket_address().expect("an address");
    target.set_port(QUALIFIER as u16);
    target
}

/// Makes a pair with an end, as an adapter of some name and address.
pub fn pair_with(right: &End, name: u8, own: SocketAddr) -> LocalPair {
    let identity = Identity::new([name; 16]);
    let mut dial =
        Dial::new(&identity, own, target(right), First::Offer, Instant::ZERO).expect("an adapter");
    until(|| match dial.poll(Instant::ZERO) {
        Dialled::Pending => {
            assert_eq!(right.look(), None);
            None
        }
        Dialled::Made(pair) => Some(pair),
        other => panic!("{other:?}"),
    })
}

/// As `pair_with`, by messages of its own; keeps the file of the memory, too.
fn open_pair_with(right: &End, name: u8, own: SocketAddr) -> (LocalPair, OwnedFd) {
    let target = target(right);
    let mut question = b"DATlocal".to_vec();
    for word in [1, QUEUE_BYTES as u32, PAYLOAD_MAX as u32, 1] {
        question.extend(word.to_be_bytes());
    }
    question.extend([name; 16]);
    for address in [own, target] {
        let IpAddr::V4(ip) = address.ip() else {
            panic!("{address}");
        };
        question.extend(ip.to_ipv6_mapped().octets());
        question.extend(address.port().to_be_bytes());
        question.extend([0; 4]);
    }
    let (memory, file) = Memory::create().expect("memory");
    let listener = format!("dat-roce/{}/{}", target.ip(), target.port());
    let listener = UnixAddress::from_abstract_name(listener).expect("a name");
    let socket = UnixStream::connect_addr(&listener).expect("an adapter");
    socket.set_nonblocking(true).expect("a socket");
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let bytes = [IoSlice::new(&question)];
    let sent = sendmsg(&socket, &bytes, &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(question.len()));
    let mut answer = [0; 36];
    until(|| {
        assert_eq!(right.look(), None);
        recv(&socket, &mut answer, rustix::net::RecvFlags::empty()).ok()
    });
    assert_eq!(answer[12..16], 1_u32.to_be_bytes(), "it is taken");
    let naming = Naming {
        number: 1,
        peer_number: 1,
        peer_adapter: Known {
            name: [0; 16],
            process: 0,
        },
        own,
        peer: target,
    };
    let bell = Bell::new(socket.into());
    (LocalPair::new(naming, Role::Dialler, memory, bell), file)
}

/// A record as it was read.
#[derive(Clone)]
pub struct Taken(pub Label, pub Vec<u8>);

impl Taken {
    pub fn from(pair: &LocalPair) -> Option<Self> {
        let mut buffer = vec![0; PAYLOAD_MAX];
        let record = pair.read(&mut buffer)?;
        buffer.truncate(record.length);
        if record.label.kind == SPLIT {
            // The payload is in the queue: a reader of its own copies it.
            panic!("a split record");
        }
        Some(Self(record.label, buffer))
    }

    /// Returns the packet with its payload behind the first line; `headers` are their length.
    pub fn split(&self, headers: usize) -> Self {
        let (start, rest) = self.1.split_at(headers);
        let mut bytes = start.to_vec();
        bytes.resize(FIRST, 0);
        bytes.extend(&rest[..rest.len() - ICRC_LENGTH]);
        let label = Label {
            segment: headers,
            kind: SPLIT,
            ..self.0
        };
        Self(label, bytes)
    }

    pub fn put(&self, pair: &LocalPair) {
        assert!(pair.write(self.0, &self.1));
        pair.ring();
    }
}

/// Two ends, and a pair with each.
pub struct Between {
    pub left: End,
    pub right: End,
    pub near: LocalPair,
    pub far: LocalPair,
    /// The memory of the pair with the second end.
    pub file: OwnedFd,
}

impl Between {
    /// Opens two adapters, of which the first one begins a connection to the second one.
    pub fn new(number: u8) -> Self {
        let (left, right) = (local_end(number, true), local_end(number + 1, true));
        listen(&right, QUALIFIER);
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, 50 + number, high, low);
        let between = SocketAddr::new(ip.into(), QUALIFIER as u16);
        let mut listener = Listener::new().expect("memory");
        listener.add(between).expect("a socket");
        let param = param(between, QUALIFIER);
        let begun = left.ia.ep_connect(left.ep, &param, ThreadWait::clock());
        begun.expect("an attempt");
        let mut pairs = Table::default();
        let near = until(|| {
            listener.accept(&Identity::new([1; 16]), Instant::ZERO, &mut pairs);
            pairs.0.pop()
        });
        let (far, file) = open_pair_with(&right, 1, near.naming().peer);
        Self {
            left,
            right,
            near,
            far,
            file,
        }
    }

    /// Passes the records of the second end on.
    pub fn back(&self) {
        while let Some(record) = Taken::from(&self.far) {
            record.put(&self.near);
        }
    }

    /// Returns the next record of the first end.
    pub fn next(&self) -> Taken {
        until(|| {
            assert_eq!(self.left.look(), None);
            Taken::from(&self.near)
        })
    }

    /// Accepts the request of the first end, which has been passed on, once `before` is done;
    /// returns the last message of the first end.
    pub fn accept(&self, before: impl FnOnce()) -> Taken {
        let Event::ConnectionRequest { cr, .. } = next(&self.right) else {
            panic!("no request");
        };
        before();
        let accepted = self.right.ia.cr_accept(cr, Some(self.right.ep), &[]);
        accepted.expect("an acceptance");
        let event = until(|| {
            self.back();
            self.left.look()
        });
        is_established(&event);
        self.next()
    }

    /// Passes all on until there is a connection.
    pub fn connect(&self) {
        self.next().put(&self.far);
        self.accept(|| ()).put(&self.far);
        is_established(&next(&self.right));
    }

    /// Passes the records of the second end on until the first one has completed a request.
    pub fn complete(&self) {
        until(|| {
            self.back();
            self.left.look().filter(is_success)
        });
    }
}

/// Panics unless an event tells of a connection.
pub fn is_established(event: &Event) {
    let is_established = matches!(event, Event::Connection { kind, .. }
        if *kind == ConnectionEventKind::Established);
    assert!(is_established, "{event:?}");
}
