//! One side of a connection as a state machine.

use dat_core::time::Instant;

use super::answer::{Answered, ConnectReply, Ids, Information, Reason, Receipt, Reject};
use super::message::{Mad, Message};
use super::private_data::PrivateData;
use super::request::ConnectRequest;
use crate::proto::coded_time;
use crate::proto::time::later;

/// Code of the time that a consumer may take to decide about a request: 69 s.
const DECISION: u8 = 24;

/// Longest response timeout of a peer that counts for a refusal, as a code: 1 s.
const REFUSED_TIMEOUT: u8 = 18;

/// Response timeouts during which a refusal is remembered for repeated REQs.
const REFUSED_TIMES: u64 = 4;

/// Messages to an address that is not proven, beyond those that answer its own (ROCE-195).
const UNPROVEN_RETRIES: u8 = 2;

/// Response timeouts after which an attempt ends whose peer has not proven its address (ROCE-195).
const UNPROVEN_TIMES: u64 = 4;

/// Times and repetitions of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions {
    /// Code of the time after which a message is repeated.
    pub response_timeout: u8,
    /// Repetitions of a message.
    pub max_retries: u8,
    /// Code of the time during which late packets may come after the end (ROCE-171).
    pub ack_timeout: u8,
}

impl ConnectionOptions {
    /// Times between our own ends: 268 ms, 15 repetitions.
    pub const USUAL: Self = Self {
        response_timeout: 16,
        max_retries: 15,
        ack_timeout: 16,
    };
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Active: the REQ has no answer yet.
    RequestSent,
    /// Passive: the consumer decides.
    RequestReceived,
    /// Passive: accepted, and the RTU has not come.
    ReplySent,
    /// Passive: refused; repeated REQs are answered.
    Refused,
    /// Connected.
    Established,
    /// The DREQ has no answer yet.
    DisconnectSent,
    /// Over; repeated DREQs are answered, and the QPN is still in use.
    TimeWait,
    /// Over; nothing is left to be done.
    Closed,
}

/// Event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// Active: accepted; the queue pair must be ready before the next message is sent.
    Accepted(ConnectReply),
    /// Refused by the peer.
    Rejected(Reject),
    /// Active: the REQ was not answered. Passive: the REP was not.
    Unreachable,
    /// Passive: established.
    Established,
    /// Ended by the peer.
    Disconnected {
        /// Set if the peer says that the connection broke there.
        broken: bool,
    },
    /// Ended by this side, with or without an answer.
    DisconnectDone,
    /// The QPN may be used again.
    Released,
}

/// Messages that are to be sent once.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    /// The message that is repeated in this state.
    repeated: bool,
    ready: bool,
    /// A DREP with the transaction id of the DREQ.
    disconnect_reply: Option<u64>,
    /// A REJ that ends an attempt without an answer (ROCE-166, ROCE-176).
    timeout: Option<Answered>,
}

/// One side of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    options: ConnectionOptions,
    is_passive: bool,
    /// Set once the peer is known to receive at its address; always on the active side.
    is_proven: bool,
    state: State,
    /// Transaction id of the REQ, and of the DREQ once one is sent.
    transaction: u64,
    /// Transaction id of the REQ.
    of_request: u64,
    /// Code of the time after which the active side repeats its REQ; 0 on the active side.
    peer_timeout: u8,
    ids: Ids,
    /// GUID of the active side's adapter.
    guid: u64,
    /// QPN of this side; 0 until the passive side accepts.
    qpn: u32,
    peer_qpn: u32,
    /// Message that [`Owed::repeated`] sends.
    repeated: Message,
    owed: Owed,
    retries_left: u8,
    deadline: Option<Instant>,
    /// Passive: end of the attempt if the peer proves nothing, whatever it repeats.
    unproven_end: Option<Instant>,
}

impl Connection {
    /// Begins a connection from the active side by `request` (ROCE-160).
    pub fn connect(
        options: ConnectionOptions,
        transaction: u64,
        request: ConnectRequest,
        now: Instant,
    ) -> Self {
        let mut connection = Self {
            options,
            is_passive: false,
            is_proven: true,
            state: State::RequestSent,
            transaction,
            of_request: transaction,
            peer_timeout: 0,
            ids: Ids {
                local: request.local_id,
                remote: 0,
            },
            guid: request.guid,
            qpn: request.qpn,
            peer_qpn: 0,
            repeated: Message::Request(request),
            owed: Owed::default(),
            retries_left: 0,
            deadline: None,
            unproven_end: None,
        };
        connection.repeat(now);
        connection
    }

    /// Begins a connection on the passive side, for a REQ that [`is_of`](Self::is_of) none.
    ///
    /// The address of the peer is not proven yet (ROCE-195).
    pub fn incoming(
        options: ConnectionOptions,
        transaction: u64,
        request: &ConnectRequest,
        local_id: u32,
    ) -> Self {
        let ids = Ids {
            local: local_id,
            remote: request.local_id,
        };
        Self {
            options,
            is_passive: true,
            is_proven: false,
            state: State::RequestReceived,
            transaction,
            of_request: transaction,
            peer_timeout: request.remote_response_timeout.min(DECISION),
            ids,
            guid: request.guid,
            qpn: 0,
            peer_qpn: request.qpn,
            // What a repeated REQ is answered by while the consumer decides (ROCE-165).
            repeated: Message::Receipt(Receipt {
                ids,
                answered: Answered::Request,
                service_timeout: DECISION,
            }),
            owed: Owed::default(),
            retries_left: 0,
            deadline: None,
            unproven_end: None,
        }
    }

    /// Notes that the peer has proven its address, such as by a cookie (ROCE-194).
    pub const fn prove(&mut self) {
        self.is_proven = true;
    }

    /// Returns true if the peer has proven its address.
    pub const fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Passive: takes over the transaction id of a REQ of the same attempt to another port.
    ///
    /// False means that the attempt is over.
    pub fn ask_anew(&mut self, transaction: u64) -> bool {
        let is_pending = matches!(
            self.state,
            State::RequestReceived | State::ReplySent | State::Refused
        );
        if is_pending {
            self.transaction = transaction;
            self.of_request = transaction;
        }
        is_pending
    }

    /// Accepts a request; the queue pair must be ready to receive (ROCE-166).
    ///
    /// The communication ids of `reply` are filled in. False means that no request waits.
    pub fn accept(&mut self, reply: ConnectReply, now: Instant) -> bool {
        if self.state != State::RequestReceived {
            return false;
        }
        self.qpn = reply.qpn;
        let ids = self.ids;
        self.repeated = Message::Reply(ConnectReply { ids, ..reply });
        self.state = State::ReplySent;
        if !self.is_proven {
            let time = coded_time(self.options.response_timeout);
            self.unproven_end = Some(later(now, time.saturating_mul(UNPROVEN_TIMES)));
        }
        self.repeat(now);
        true
    }

    /// Refuses a request (ROCE-168); false means that no request waits.
    pub fn reject(&mut self, reject: Reject, now: Instant) -> bool {
        if self.state != State::RequestReceived {
            return false;
        }
        let ids = self.ids;
        let answered = Answered::Request;
        self.repeated = Message::Reject(Reject {
            ids,
            answered,
            ..reject
        });
        self.owed.repeated = true;
        if !self.is_proven {
            // Nothing is kept for an address that anybody may have named (ROCE-195).
            self.state = State::Closed;
            return true;
        }
        self.state = State::Refused;
        let timeout = self.options.response_timeout.max(self.peer_timeout);
        let time = coded_time(timeout.min(REFUSED_TIMEOUT));
        self.deadline = Some(later(now, time.saturating_mul(REFUSED_TIMES)));
        true
    }

    /// Ends a connection by a DREQ (ROCE-169), or an attempt by a REJ (ROCE-176).
    ///
    /// A request that its peer has forgotten ends without a message (ROCE-180).
    ///
    /// With `broken`, the DREQ says that the connection broke (ROCE-181). Returns false if there is
    /// nothing to end.
    pub fn disconnect(&mut self, transaction: u64, broken: bool, now: Instant) -> bool {
        match self.state {
            State::Established => {
                self.transaction = transaction;
                self.repeated = Message::DisconnectRequest {
                    ids: self.ids,
                    qpn: self.peer_qpn,
                    broken,
                };
                self.state = State::DisconnectSent;
                self.repeat(now);
                true
            }
            State::RequestSent => self.give_up(Answered::Request),
            State::ReplySent => self.give_up(Answered::Reply),
            State::RequestReceived => {
                self.close();
                true
            }
            _ => false,
        }
    }

    /// Ends the connection without a message: nothing reaches the peer any more.
    pub fn abandon(&mut self) {
        self.close();
    }

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the communication ids of this side.
    pub const fn ids(&self) -> Ids {
        self.ids
    }

    /// Returns the transaction id of the REQ.
    pub const fn request_transaction(&self) -> u64 {
        self.of_request
    }

    /// Returns the QPN of the peer; 0 until it is known.
    pub const fn peer_qpn(&self) -> u32 {
        self.peer_qpn
    }

    /// Returns true if a REQ is a repetition of the one of this connection.
    pub const fn is_of(&self, request: &ConnectRequest) -> bool {
        self.is_passive && self.guid == request.guid && self.ids.remote == request.local_id
    }

    /// Returns when [`expire`](Self::expire) has work to do.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the next message to send.
    pub fn transmit(&mut self) -> Option<Mad> {
        let owed = &mut self.owed;
        let ids = self.ids;
        let mut transaction = self.transaction;
        let message = if core::mem::take(&mut owed.ready) {
            transaction = self.of_request;
            Message::Ready(ids)
        } else if core::mem::take(&mut owed.repeated) {
            self.repeated
        } else if let Some(of_request) = owed.disconnect_reply.take() {
            transaction = of_request;
            Message::DisconnectReply(ids)
        } else {
            let answered = owed.timeout.take()?;
            // The passive side is named by its communication id.
            let information = if self.is_passive {
                Information::None
            } else {
                Information::Guid(self.guid)
            };
            Message::Reject(Reject {
                ids,
                answered,
                reason: Reason::TIMEOUT,
                information,
                private_data: PrivateData::NONE,
            })
        };
        Some(Mad {
            transaction,
            message,
        })
    }

    /// Takes a message that names this connection.
    pub fn receive(&mut self, mad: &Mad, now: Instant) -> Option<ConnectionEvent> {
        match mad.message {
            Message::Request(request) if self.is_of(&request) => self.request_again(now),
            Message::Request(_) => None,
            Message::Reply(reply) => self.reply(reply),
            Message::Ready(ids) if self.is_from_peer(ids) => self.establish(),
            Message::Ready(_) => None,
            Message::Receipt(receipt) => self.receipt(receipt, now),
            Message::Reject(reject) => self.rejected(reject, now),
            Message::DisconnectRequest { ids, qpn, broken } => {
                self.disconnect_request(mad.transaction, (ids, qpn), broken, now)
            }
            Message::DisconnectReply(ids) => {
                if self.state != State::DisconnectSent || !self.is_from_peer(ids) {
                    return None;
                }
                self.wait(now);
                Some(ConnectionEvent::DisconnectDone)
            }
        }
    }

    /// Notes a request on the queue pair, which shows that the RTU was sent (ROCE-167).
    pub fn note_request(&mut self) -> Option<ConnectionEvent> {
        self.establish()
    }

    /// Repeats a message, gives up or releases the QPN, if the time has come.
    pub fn expire(&mut self, now: Instant) -> Option<ConnectionEvent> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        if let State::Refused | State::TimeWait = self.state {
            self.close();
            return Some(ConnectionEvent::Released);
        }
        if !self.is_proven && self.unproven_end.is_some_and(|end| end <= now) {
            self.retries_left = 0;
        }
        if let Some(left) = self.retries_left.checked_sub(1) {
            self.retries_left = left;
            self.owed.repeated = true;
            self.start_timer(now);
            return None;
        }
        match self.state {
            // The peer may have the REQ, and no way for its answers.
            State::RequestSent => {
                self.give_up(Answered::Request);
                Some(ConnectionEvent::Unreachable)
            }
            State::ReplySent => {
                self.give_up(Answered::Reply);
                Some(ConnectionEvent::Unreachable)
            }
            State::DisconnectSent => {
                self.wait(now);
                Some(ConnectionEvent::DisconnectDone)
            }
            _ => {
                self.deadline = None;
                None
            }
        }
    }

    /// Gives the peer the whole time for its answer to a REQ or a REP once more.
    pub fn postpone(&mut self, now: Instant) {
        self.start_timer(now);
    }

    fn request_again(&mut self, now: Instant) -> Option<ConnectionEvent> {
        let answers = [State::RequestReceived, State::ReplySent, State::Refused];
        self.owed.repeated |= answers.contains(&self.state);
        if self.state == State::ReplySent && !self.is_proven {
            // Without an end, repeated requests would hold their place for ever (ROCE-196).
            let time = coded_time(self.options.response_timeout);
            let next = self.deadline.max(Some(later(now, time)));
            self.deadline = next.min(self.unproven_end);
        }
        None
    }

    fn reply(&mut self, reply: ConnectReply) -> Option<ConnectionEvent> {
        if reply.ids.remote != self.ids.local {
            return None;
        }
        match self.state {
            State::RequestSent => {
                self.ids.remote = reply.ids.local;
                self.peer_qpn = reply.qpn;
                self.state = State::Established;
                self.deadline = None;
                self.owed.repeated = false;
                self.owed.ready = true;
                Some(ConnectionEvent::Accepted(reply))
            }
            // The RTU was lost (ROCE-162).
            State::Established if self.is_from_peer(reply.ids) => {
                self.owed.ready = true;
                None
            }
            _ => None,
        }
    }

    fn establish(&mut self) -> Option<ConnectionEvent> {
        if self.state != State::ReplySent {
            return None;
        }
        self.is_proven = true;
        self.state = State::Established;
        self.deadline = None;
        self.owed.repeated = false;
        Some(ConnectionEvent::Established)
    }

    fn receipt(&mut self, receipt: Receipt, now: Instant) -> Option<ConnectionEvent> {
        let waits = match receipt.answered {
            Answered::Request => self.state == State::RequestSent,
            Answered::Reply => self.state == State::ReplySent,
            Answered::Other => false,
        };
        if waits && receipt.ids.remote == self.ids.local {
            let time = coded_time(receipt.service_timeout.min(DECISION));
            // Only who has received the REP knows the id.
            self.is_proven = true;
            self.retries_left = self.options.max_retries;
            self.deadline = self.deadline.max(Some(later(now, time)));
        }
        None
    }

    fn rejected(&mut self, reject: Reject, now: Instant) -> Option<ConnectionEvent> {
        // The passive side gave up: the RTU did not reach it (ROCE-179).
        if self.state == State::Established && self.is_from_peer(reject.ids) {
            self.wait(now);
            return Some(ConnectionEvent::Disconnected { broken: false });
        }
        let answers = match self.state {
            State::RequestSent => reject.ids.remote == self.ids.local,
            State::RequestReceived | State::ReplySent => {
                reject.ids.local == self.ids.remote
                    && [0, self.ids.local].contains(&reject.ids.remote)
            }
            _ => false,
        };
        if !answers {
            return None;
        }
        self.close();
        Some(ConnectionEvent::Rejected(reject))
    }

    fn disconnect_request(
        &mut self,
        transaction: u64,
        (ids, qpn): (Ids, u32),
        broken: bool,
        now: Instant,
    ) -> Option<ConnectionEvent> {
        if !self.is_from_peer(ids) || qpn != self.qpn {
            return None;
        }
        self.is_proven = true;
        let event = match self.state {
            // The RTU and all requests may be lost.
            State::Established | State::ReplySent => Some(ConnectionEvent::Disconnected { broken }),
            State::DisconnectSent => Some(ConnectionEvent::DisconnectDone),
            State::TimeWait => None,
            _ => return None,
        };
        if event.is_some() {
            self.wait(now);
        }
        self.owed.disconnect_reply = Some(transaction);
        event
    }

    const fn is_from_peer(&self, ids: Ids) -> bool {
        ids.remote == self.ids.local && ids.local == self.ids.remote
    }

    /// Sends the message of this state, and begins its repetitions.
    fn repeat(&mut self, now: Instant) {
        self.owed.repeated = true;
        self.retries_left = self.options.max_retries;
        if !self.is_proven {
            self.retries_left = self.retries_left.min(UNPROVEN_RETRIES);
        }
        self.start_timer(now);
    }

    fn start_timer(&mut self, now: Instant) {
        let time = coded_time(self.options.response_timeout);
        self.deadline = Some(later(now, time));
    }

    fn give_up(&mut self, answered: Answered) -> bool {
        self.close();
        // To an address that is not proven, this is one of the few messages left.
        if self.is_proven || self.retries_left > 0 {
            self.owed.timeout = Some(answered);
        }
        true
    }

    fn wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.owed = Owed::default();
        self.deadline = Some(later(now, coded_time(self.options.ack_timeout)));
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.owed = Owed::default();
        self.deadline = None;
    }
}
