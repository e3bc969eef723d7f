//! A queue pair that carries messages: places for them, and how many the other end has.

use core::sync::atomic::{AtomicU8, Ordering};

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Completion, ReceiveRequest, Segment, SendFlags, SendOperation, SendRequest, WorkQueue, WorkSlot,
};
use dat_core::flags::DtoStatus;

use super::message::{Kind, MESSAGE, Message};
use crate::sideband::Peer;

/// Messages that are under way in one direction.
pub const DEPTH: u32 = 8;
/// Requests for connections that the other end has not answered yet, at most.
pub(super) const REQUESTS: u32 = 4;
/// Bytes of a place for a message.
const PLACE: usize = MESSAGE.next_multiple_of(64);
/// Bytes of memory that a channel takes.
pub const CHANNEL_BYTES: usize = 2 * DEPTH as usize * PLACE;

/// The bit in the tokens of a channel's Sends.
const SENT: u64 = 1 << 32;

/// How far a channel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody knows who is at the other end.
    Waiting,
    /// That is known, and the queue pair is not there yet.
    Met,
    /// It carries messages.
    Up,
    /// It does not any more.
    Down,
}

/// An answer that needs no connection.
pub(super) type Reply = (Kind, u32);

/// Place for one channel.
#[derive(Debug)]
pub struct Channel<S, R> {
    pub(super) state: State,
    pub(super) number: u32,
    pub(super) address: IaAddress,
    pub(super) peer: Peer,
    send: S,
    receive: R,
    memory: &'static [AtomicU8],
    key: u32,
    /// Messages that were sent, and those of them that completed; receives that were posted. They run freely.
    sent: u32,
    completed: u32,
    received: u32,
    /// Places that the other end has, and those here of which it does not know yet.
    there: u32,
    free: u32,
    /// Requests that the other end has not answered.
    pub(super) unanswered: u32,
    /// What is to be answered, the oldest first: as many as the other end may ask at once.
    replies: [Option<Reply>; REQUESTS as usize],
}

/// A part of the memory of a channel.
fn place(memory: &'static [AtomicU8], number: u32) -> &'static [AtomicU8] {
    let first = (number as usize).saturating_mul(PLACE);
    memory
        .get(first..first.saturating_add(PLACE))
        .unwrap_or_default()
}

impl<S, R> Channel<S, R>
where
    S: WorkQueue<Request = SendRequest>,
    R: WorkQueue<Request = ReceiveRequest>,
{
    /// Of a queue pair of this number, in memory that was registered under a key. Nothing if it does not take its receives.
    pub(super) fn new(
        number: u32,
        send: S,
        receive: R,
        memory: &'static [AtomicU8],
        key: u32,
    ) -> Option<Self> {
        let mut channel = Self {
            state: State::Waiting,
            number,
            address: IaAddress::Node(0),
            peer: Peer::default(),
            send,
            receive,
            memory,
            key,
            sent: 0,
            completed: 0,
            received: 0,
            there: DEPTH,
            free: 0,
            unanswered: 0,
            replies: [None; REQUESTS as usize],
        };
        for number in 0..DEPTH {
            channel.post_receive(number)?;
        }
        channel.receive.ring().ok()?;
        Some(channel)
    }

    fn segment(&self, place: &'static [AtomicU8], length: usize) -> Segment {
        Segment {
            address: place.as_ptr().addr() as u64,
            length: length as u32,
            key: self.key,
        }
    }

    fn post_receive(&mut self, number: u32) -> Option<()> {
        let place = place(self.memory, number % DEPTH);
        let segment = self.segment(place, place.len());
        let mut slot = self.receive.reserve(1)?;
        slot.segment(segment);
        let token = u64::from(number);
        slot.commit(&ReceiveRequest { token }).ok()
    }

    /// Whether a message can be sent that tells nothing of free places: the last place of the other end is kept for those.
    pub(super) fn has_room(&self) -> bool {
        let under_way = self.sent.wrapping_sub(self.completed);
        self.state == State::Up && under_way < DEPTH && (self.there > 1 || self.may_be_last())
    }

    fn may_be_last(&self) -> bool {
        self.there == 1 && self.free != 0
    }

    /// Sends a message, for which there is room; the channel is down if it does not go.
    pub(super) fn send(&mut self, message: Message) {
        let message = Message {
            places: self.free,
            ..message
        };
        if self.put(&message).is_none() {
            self.state = State::Down;
        }
    }

    fn put(&mut self, message: &Message) -> Option<()> {
        let place = place(self.memory, DEPTH + self.sent % DEPTH);
        for (to, byte) in place.iter().zip(message.bytes()) {
            to.store(byte, Ordering::Relaxed);
        }
        let segment = self.segment(place, message.length());
        let mut slot = self.send.reserve(1)?;
        slot.segment(segment);
        let request = SendRequest {
            token: SENT | u64::from(self.sent),
            operation: SendOperation::Send,
            length: segment.length,
            flags: SendFlags::empty(),
        };
        slot.commit(&request).ok()?;
        self.send.ring().ok()?;
        self.sent = self.sent.wrapping_add(1);
        self.there = self.there.saturating_sub(1);
        self.free = 0;
        Some(())
    }

    /// No message of it is read any more.
    pub(super) fn give_up(&mut self) {
        self.state = State::Down;
    }

    /// Keeps an answer until there is room. A peer that causes more of them than it may is none.
    pub(super) fn reply(&mut self, reply: Reply) {
        match self.replies.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(reply),
            None => self.give_up(),
        }
    }

    /// Sends answers, and tells of free places where the other end may lack them.
    pub(super) fn flush(&mut self) {
        while self.has_room() {
            let [first, ..] = &mut self.replies;
            let Some((kind, to)) = first.take() else {
                break;
            };
            self.replies.rotate_left(1);
            self.send(Message::new(kind, 0, to));
        }
        if self.free >= DEPTH / 2 && self.has_room() {
            self.send(Message::new(Kind::Places, 0, 0));
        }
    }

    /// A completion of the queue pair: the message that came. The channel is down if it is none, or nobody may have sent it.
    pub(super) fn completed(&mut self, completion: &Completion) -> Option<Message> {
        let message = self.taken(completion);
        match message {
            Ok(message) => message,
            Err(()) => {
                self.state = State::Down;
                None
            }
        }
    }

    fn taken(&mut self, completion: &Completion) -> Result<Option<Message>, ()> {
        if completion.status != DtoStatus::Success {
            return Err(());
        }
        if completion.token & SENT != 0 {
            self.completed = self.completed.wrapping_add(1);
            return Ok(None);
        }
        let place = place(self.memory, self.received % DEPTH);
        let bytes = place.get(..completion.length as usize).ok_or(())?;
        let bytes = bytes.iter().map(|byte| byte.load(Ordering::Relaxed));
        let message = Message::read(bytes).ok_or(())?;
        // It has no more places than there are, whatever it says.
        let under_way = self.sent.wrapping_sub(self.completed);
        let there = self.there.checked_add(message.places).ok_or(())?;
        if there > DEPTH || under_way > DEPTH {
            return Err(());
        }
        self.there = there;
        let number = self.received.wrapping_add(DEPTH);
        self.received = self.received.wrapping_add(1);
        self.post_receive(number).ok_or(())?;
        self.receive.ring().map_err(drop)?;
        // Who has a place for each message that it sends leaves no more of them behind than there are.
        self.free = self.free.saturating_add(1);
        if self.free > DEPTH {
            return Err(());
        }
        Ok(Some(message))
    }
}
