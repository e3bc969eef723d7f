//! The two state machines of connection management.

use std::collections::VecDeque;

use backend_roce::proto::connection::{
    Answered, ConnectReply, ConnectRequest, Connection, ConnectionEvent, ConnectionOptions, Ids,
    Information, Mad, Message, PrivateData, Reason, Receipt, Reject, State, service_of,
};
use backend_roce::proto::{PathMtu, Psn};
use dat_core::time::Instant;

use super::OPERATION;

const TIMES: ConnectionOptions = ConnectionOptions {
    response_timeout: 8,
    max_retries: 3,
    ack_timeout: 8,
};

/// Most messages that the network holds in a direction.
const HELD: usize = 32;
/// Most messages that a side sends before it waits for something.
const BURST: usize = 8;
/// Deadlines after which a side must have come to rest, with nobody to answer it.
const DEADLINES: usize = 64;

/// A side of the connection, and what it has told its consumer.
struct Side {
    connection: Connection,
    events: Vec<ConnectionEvent>,
}

/// Both sides, and the messages between them.
struct Handshake {
    sides: [Side; 2],
    /// Messages to each side.
    under_way: [VecDeque<Mad>; 2],
    now: u64,
    transactions: u64,
}

pub(super) fn run(setup: u8, operations: &[[u8; OPERATION]]) {
    let mut handshake = Handshake::new(setup);
    for operation in operations {
        handshake.operate(operation);
        handshake.sides.iter().for_each(Side::check);
    }
    handshake.rest();
}

fn request() -> ConnectRequest {
    ConnectRequest {
        local_id: 0xA0,
        service: service_of(7174),
        guid: 1,
        qpn: 0x11,
        responder_resources: 3,
        initiator_depth: 8,
        remote_response_timeout: 8,
        is_reliable: true,
        starting_psn: Psn::new(0xFF_FFF0),
        local_response_timeout: 8,
        retry_count: 7,
        rnr_retry_count: 7,
        mtu: Some(PathMtu::Bytes512),
        max_retries: 3,
        shared_receive_queue: false,
        source: [10, 9, 1, 2].into(),
        destination: [10, 9, 1, 1].into(),
        source_port: 1,
        ack_timeout: 8,
        mark: None,
        private_data: PrivateData::NONE,
    }
}

fn reply(ids: Ids) -> ConnectReply {
    ConnectReply {
        ids,
        qpn: 0x22,
        starting_psn: Psn::new(1234),
        responder_resources: 2,
        initiator_depth: 9,
        rnr_retry_count: 6,
        shared_receive_queue: false,
        guid: 2,
        private_data: PrivateData::NONE,
    }
}

fn reject(ids: Ids, answered: Answered) -> Reject {
    Reject {
        ids,
        answered,
        reason: Reason::INVALID_SERVICE,
        information: Information::None,
        private_data: PrivateData::NONE,
    }
}

/// Returns a message of each kind, with its name.
#[must_use]
pub fn messages() -> [(&'static str, Mad); 7] {
    let ids = Ids {
        local: 0xA0,
        remote: 0xB0,
    };
    let receipt = Receipt {
        ids,
        answered: Answered::Request,
        service_timeout: 20,
    };
    let disconnect = Message::DisconnectRequest {
        ids,
        qpn: 0x11,
        broken: true,
    };
    let refusal = reject(ids, Answered::Reply);
    [
        ("req", Message::Request(request())),
        ("mra", Message::Receipt(receipt)),
        ("rej", Message::Reject(refusal)),
        ("rep", Message::Reply(reply(ids))),
        ("rtu", Message::Ready(ids)),
        ("dreq", disconnect),
        ("drep", Message::DisconnectReply(ids)),
    ]
    .map(|(name, message)| {
        let mad = Mad {
            transaction: 5,
            message,
        };
        (name, mad)
    })
}

impl Side {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            events: Vec::new(),
        }
    }

    /// Checks the order of the events: established, over and released, each at most once.
    fn check(&self) {
        let phase = |event: &ConnectionEvent| match event {
            ConnectionEvent::Accepted(_) | ConnectionEvent::Established => 0,
            ConnectionEvent::Rejected(_)
            | ConnectionEvent::Unreachable
            | ConnectionEvent::Disconnected { .. }
            | ConnectionEvent::DisconnectDone => 1,
            ConnectionEvent::Released => 2,
        };
        let phases: Vec<_> = self.events.iter().map(phase).collect();
        let rises = phases.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(rises, "{:?}", self.events);
    }
}

impl Handshake {
    fn new(setup: u8) -> Self {
        let now = Instant::ZERO;
        let (transaction, request) = (5, request());
        let active = Connection::connect(TIMES, transaction, request, now);
        let mut passive = Connection::incoming(TIMES, transaction, &request, 0xB0);
        if setup & 2 == 0 {
            passive.prove();
        }
        let mut handshake = Self {
            sides: [Side::new(active), Side::new(passive)],
            under_way: Default::default(),
            now: 0,
            transactions: 100,
        };
        if setup & 1 != 0 {
            // Most inputs would not get this far.
            handshake.decide(true);
            for side in [0, 1, 0, 1] {
                handshake.transmit(side);
                while handshake.deliver(1 - side, 0) {}
            }
            let states = handshake
                .sides
                .each_ref()
                .map(|side| side.connection.state());
            assert_eq!(states, [State::Established; 2]);
        }
        handshake
    }

    fn now(&self) -> Instant {
        Instant::from_micros(self.now)
    }

    fn operate(&mut self, operation: &[u8; OPERATION]) {
        let [kind, a, b, high, low, c, d, _] = *operation;
        let wide = u16::from_be_bytes([high, low]);
        let side = usize::from(a & 1);
        match kind % 12 {
            0 => self.decide(true),
            1 => self.decide(false),
            2 | 3 => self.transmit(side),
            4 | 5 => {
                self.deliver(side, b);
            }
            6 => {
                let index = self.index(side, b);
                self.under_way[side].remove(index);
            }
            7 => {
                let index = self.index(side, b);
                let copy = self.under_way[side].get(index).copied();
                self.under_way[side].extend(copy);
            }
            8 => self.disconnect(side, b & 1 != 0),
            9 => self.now += u64::from(wide),
            10 => self.expire(side),
            _ => self.inject(side, b, wide, [c, d]),
        }
    }

    fn index(&self, side: usize, choice: u8) -> usize {
        usize::from(choice) % self.under_way[side].len().max(1)
    }

    /// Lets the consumer of the passive side accept or reject.
    fn decide(&mut self, accepts: bool) {
        let now = self.now();
        let side = &mut self.sides[1];
        let waits = side.connection.state() == State::RequestReceived;
        let done = if accepts {
            side.connection.accept(reply(Ids::default()), now)
        } else {
            let refusal = reject(Ids::default(), Answered::Request);
            side.connection.reject(refusal, now)
        };
        assert_eq!(done, waits);
    }

    fn disconnect(&mut self, side: usize, broken: bool) {
        let now = self.now();
        self.transactions += 1;
        let transaction = self.transactions;
        let connection = &mut self.sides[side].connection;
        let before = connection.state();
        let ends = connection.disconnect(transaction, broken, now);
        let live = [
            State::RequestSent,
            State::RequestReceived,
            State::ReplySent,
            State::Established,
        ];
        assert_eq!(ends, live.contains(&before), "{before:?}");
        let after = connection.state();
        assert_eq!(after != before, ends, "{before:?} to {after:?}");
        if before == State::RequestReceived {
            // The peer has begun again, and waits for no answer (ROCE-180).
            assert_eq!(connection.transmit(), None);
        }
    }

    fn transmit(&mut self, side: usize) {
        for _ in 0..BURST {
            let Some(mad) = self.sides[side].connection.transmit() else {
                return;
            };
            assert_eq!(Mad::decode(&mad.encode()), Some(mad));
            if self.under_way[1 - side].len() < HELD {
                self.under_way[1 - side].push_back(mad);
            }
        }
        panic!("a side sends for ever");
    }

    fn deliver(&mut self, side: usize, choice: u8) -> bool {
        let index = self.index(side, choice);
        let Some(mad) = self.under_way[side].remove(index) else {
            return false;
        };
        let now = self.now();
        let side = &mut self.sides[side];
        side.events.extend(side.connection.receive(&mad, now));
        true
    }

    /// Advances the time to the deadline of a side, which has then work to do.
    fn expire(&mut self, side: usize) {
        let Some(deadline) = self.sides[side].connection.deadline() else {
            return;
        };
        self.now = self.now.max(deadline.as_micros());
        let now = self.now();
        let side = &mut self.sides[side];
        side.events.extend(side.connection.expire(now));
        let next = side.connection.deadline();
        assert!(next.is_none_or(|next| next > now), "{next:?} at {now:?}");
    }

    /// Sends a message that no side made, with ids that are right or close to it.
    fn inject(&mut self, side: usize, kind: u8, wide: u16, [first, second]: [u8; 2]) {
        let ids = Ids {
            local: 0xA0 ^ u32::from(first),
            remote: 0xB0 ^ u32::from(second),
        };
        let ids = if wide & 1 == 0 {
            ids
        } else {
            Ids {
                local: ids.remote,
                remote: ids.local,
            }
        };
        let answered = [Answered::Request, Answered::Reply, Answered::Other];
        let answered = answered[usize::from(wide >> 1) % 3];
        let message = match kind % 7 {
            0 => Message::Request(request()),
            1 => Message::Reply(reply(ids)),
            2 => Message::Ready(ids),
            3 => Message::Reject(reject(ids, answered)),
            4 => Message::DisconnectRequest {
                ids,
                qpn: if wide & 2 == 0 { 0x11 } else { 0x22 },
                broken: wide & 4 != 0,
            },
            5 => Message::DisconnectReply(ids),
            _ => Message::Receipt(Receipt {
                ids,
                answered,
                service_timeout: (wide >> 8) as u8,
            }),
        };
        if self.under_way[side].len() < HELD {
            self.under_way[side].push_back(Mad {
                transaction: if wide & 8 == 0 { 5 } else { wide.into() },
                message,
            });
        }
    }

    /// Lets the time pass without an answer: each side gives up, or stays as it is for good.
    fn rest(&mut self) {
        for side in 0..2 {
            for _ in 0..DEADLINES {
                self.transmit(side);
                self.expire(side);
                self.sides[side].check();
            }
            let Side { connection, events } = &self.sides[side];
            let state = connection.state();
            let rests = [State::RequestReceived, State::Established, State::Closed];
            assert!(rests.contains(&state), "{state:?} for ever");
            assert_eq!(connection.deadline(), None, "{events:?}");
        }
    }
}
