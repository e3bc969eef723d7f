//! Packets of a connection of queues that come through another pair, with the same bytes.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant as Time;

use backend_roce::local::{
    Dial, Dialled, FIRST, Identity, Label, Listener, LocalPair, PAYLOAD_MAX, Pairs, SPLIT,
};
use backend_roce::proto::packet::{Bth, ICRC_LENGTH};
use common::end::{End, PATIENCE, QUALIFIER, end_of, is_success, listen, local_end, next, param};
use dat_core::event::{ConnectionEventKind, Event, ThreadWait};
use dat_core::flags::{CloseFlags, CompletionFlags};
use dat_core::time::Instant;

const NONE: CompletionFlags = CompletionFlags::empty();

/// Repeats an attempt until it returns something.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Time::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "nothing happens");
    }
}

#[derive(Default)]
struct Table(Vec<LocalPair>);

impl Pairs for Table {
    fn knows(&mut self, _: &[u8; 16]) -> bool {
        false
    }

    fn add(&mut self, pair: LocalPair) {
        self.0.push(pair);
    }
}

/// Makes a pair with an end, as an adapter of some name and address.
fn pair_with(right: &End, name: u8, own: SocketAddr) -> LocalPair {
    let mut target = right.address.socket_address().expect("an address");
    target.set_port(QUALIFIER as u16);
    let identity = Identity::new([name; 16]);
    let mut dial = Dial::new(&identity, own, target, Instant::ZERO).expect("an adapter");
    until(|| match dial.poll(Instant::ZERO) {
        Dialled::Pending => {
            assert_eq!(right.look(), None);
            None
        }
        Dialled::Made(pair) => Some(pair),
        other => panic!("{other:?}"),
    })
}

/// A record as it was read.
struct Taken(Label, Vec<u8>);

impl Taken {
    fn from(pair: &LocalPair) -> Option<Self> {
        let mut buffer = vec![0; PAYLOAD_MAX];
        let record = pair.read(&mut buffer)?;
        buffer.truncate(record.length);
        Some(Self(record.label, buffer))
    }

    /// Returns the packet with its payload behind the first line; `headers` are their length.
    fn split(&self, headers: usize) -> Self {
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

    fn put(&self, pair: &LocalPair) {
        assert!(pair.write(self.0, &self.1));
        pair.ring();
    }
}

/// Two ends, and what stands between them: a pair with each, and another pair with the second one.
struct Between {
    left: End,
    right: End,
    near: LocalPair,
    far: LocalPair,
    other: LocalPair,
}

impl Between {
    /// Passes the records of the second end on.
    fn back(&self) {
        while let Some(record) = Taken::from(&self.far) {
            record.put(&self.near);
        }
    }

    /// Returns the next record of the first end.
    fn next(&self) -> Taken {
        until(|| {
            assert_eq!(self.left.look(), None);
            Taken::from(&self.near)
        })
    }

    /// Gives a record to the second end through the pair that it is not of: nothing comes of it.
    fn inject(&self, record: &Taken) {
        self.give(record, &self.other);
    }

    /// Gives a record to the second end: nothing comes of it.
    fn give(&self, record: &Taken, pair: &LocalPair) {
        let before = self.right.driver.counts();
        record.put(pair);
        until(|| {
            assert_eq!(self.right.look(), None);
            let counts = self.right.driver.counts();
            (counts.packets > before.packets).then_some(())
        });
        let after = self.right.driver.counts();
        assert_eq!(after.dropped, before.dropped + 1);
        assert_eq!(after.responder, before.responder);
        assert_eq!(after.requester, before.requester);
        assert_eq!(after.packets_sent, before.packets_sent);
        assert!(Taken::from(pair).is_none(), "an answer");
    }
}

/// Packets of a connection reach it through its own pair only, also word for word: messages of
/// connection management, requests and acknowledgements.
///
/// Spec: ROCE-212, ROCE-231
#[test]
fn packets_of_one_pair_do_not_reach_connections_of_another() {
    let (left, right) = (local_end(1, true), local_end(2, true));
    listen(&right, QUALIFIER);
    let [.., high, low] = std::process::id().to_be_bytes();
    let between = SocketAddr::new(Ipv4Addr::new(127, 51, high, low).into(), QUALIFIER as u16);
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
    let far = pair_with(&right, 1, near.naming().peer);
    let other = pair_with(&right, 2, near.naming().peer);
    let between = Between {
        left,
        right,
        near,
        far,
        other,
    };
    let Between { left, right, .. } = &between;

    let request = between.next();
    // A message has no payload behind the first line.
    between.give(&request.split(Bth::LENGTH + 8), &between.far);
    request.put(&between.far);
    let Event::ConnectionRequest { cr, .. } = next(right) else {
        panic!("no request");
    };
    // The same request again is an answer's matter in its own pair only.
    between.inject(&request);
    let accepted = right.ia.cr_accept(cr, Some(right.ep), &[]);
    accepted.expect("an acceptance");
    between.back();
    let mut events = Vec::new();
    until(|| {
        events.extend(left.look());
        between.back();
        (!events.is_empty()).then_some(())
    });
    assert!(
        matches!(events[0], Event::Connection { kind, .. } if kind == ConnectionEventKind::Established)
    );
    let ready = between.next();
    between.inject(&ready);
    ready.put(&between.far);
    assert!(
        matches!(next(right), Event::Connection { kind, .. } if kind == ConnectionEventKind::Established)
    );

    // A request of the first end.
    left.fill(7);
    let (local, remote) = (left.local(0, 100), right.remote(0, 100));
    let posted = left.ia.post_rdma_write(left.ep, &local, 1, &remote, NONE);
    posted.expect("a post");
    let write = between.next();
    let split = write.split(Bth::LENGTH + 16);
    between.inject(&write);
    between.inject(&split);
    assert!(right.holds(1, 100, 1), "nothing is written");
    // It does what the whole one would do.
    split.put(&between.far);
    until(|| {
        assert_eq!(right.look(), None);
        right.holds(1, 100, 7).then_some(())
    });
    until(|| {
        between.back();
        left.look().filter(is_success)
    });

    // The acknowledgement of a request of the second end.
    let (local, remote) = (right.local(1, 100), left.remote(1, 100));
    let posted = right.ia.post_rdma_write(right.ep, &local, 1, &remote, NONE);
    posted.expect("a post");
    until(|| {
        assert_eq!(right.look(), None);
        between.back();
        assert_eq!(left.look(), None);
        left.holds(1, 100, 7).then_some(())
    });
    let acknowledgement = between.next();
    between.inject(&acknowledgement);
    acknowledgement.put(&between.far);
    assert!(is_success(&next(right)));

    // The end of the connection.
    let close = left.ia.ep_disconnect(left.ep, CloseFlags::Abrupt);
    close.expect("a disconnect");
    let end = until(|| {
        let _ = left.look();
        Taken::from(&between.near)
    });
    between.inject(&end);
    end.put(&between.far);
    assert_eq!(end_of(right), ConnectionEventKind::Disconnected);
}
