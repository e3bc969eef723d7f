//! A queue pair that carries messages, with flow control by slots.

use core::sync::atomic::{AtomicU8, Ordering};

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Completion, ReceiveRequest, Segment, SendFlags, SendOperation, SendRequest, WorkQueue,
};
use dat_core::flags::DtoStatus;

use super::connection_manager::Peer;
use super::message::{Kind, MESSAGE, Message};

/// Most messages under way in one direction.
pub const DEPTH: u32 = 8;
/// Most connection requests that the other end has not answered.
pub(super) const REQUESTS: u32 = 4;
/// Bytes of a message slot.
const SLOT_BYTES: usize = MESSAGE.next_multiple_of(64);
/// Bytes of memory of a channel.
pub const CHANNEL_BYTES: usize = 2 * DEPTH as usize * SLOT_BYTES;

/// Marks the tokens of a channel's Sends.
const SENT: u64 = 1 << 32;

/// State of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The host at the other end is not known.
    Waiting,
    /// The host is known, and the queue pair is not ready.
    Resolved,
    /// The channel carries messages.
    Up,
    /// The channel failed.
    Down,
}

/// A reply that belongs to no connection here.
pub(super) type Reply = (Kind, u32);

/// Slot for one channel.
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
    /// Messages sent; `completed` and `received` count completed Sends and messages received.
    ///
    /// The counts wrap at 2^32.
    sent: u32,
    completed: u32,
    received: u32,
    /// Free slots at the other end; `unreported` counts unreported free slots here.
    credits: u32,
    unreported: u32,
    /// Requests that the other end has not answered.
    pub(super) unanswered: u32,
    /// Pending replies, oldest first: as many as the other end may have requests.
    replies: [Option<Reply>; REQUESTS as usize],
}

/// Returns a slot of a channel's memory.
fn slot(memory: &'static [AtomicU8], number: u32) -> &'static [AtomicU8] {
    let first = (number as usize).saturating_mul(SLOT_BYTES);
    memory
        .get(first..first.saturating_add(SLOT_BYTES))
        .unwrap_or_default()
}

impl<S, R> Channel<S, R>
where
    S: WorkQueue<Request = SendRequest>,
    R: WorkQueue<Request = ReceiveRequest>,
{
    /// Creates the channel of a queue pair, in memory registered under `key`.
    ///
    /// Returns `None` if the queue pair does not accept the receives.
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
            credits: DEPTH,
            unreported: 0,
            unanswered: 0,
            replies: [None; REQUESTS as usize],
        };
        for number in 0..DEPTH {
            channel.post_receive(number)?;
        }
        channel.receive.ring().ok()?;
        Some(channel)
    }

    fn segment(&self, slot: &'static [AtomicU8], length: usize) -> Segment {
        Segment {
            address: slot.as_ptr().addr() as u64,
            length: length as u32,
            key: self.key,
        }
    }

    fn post_receive(&mut self, number: u32) -> Option<()> {
        let slot = slot(self.memory, number % DEPTH);
        let segment = self.segment(slot, slot.len());
        let token = u64::from(number);
        let posted = self.receive.post(&ReceiveRequest { token }, &[segment]);
        posted.ok()
    }

    /// Returns true if a message can be sent.
    ///
    /// The last slot at the other end is reserved for messages that return slots.
    pub(super) fn has_room(&self) -> bool {
        let under_way = self.sent.wrapping_sub(self.completed);
        self.state == State::Up && under_way < DEPTH && (self.credits > 1 || self.may_be_last())
    }

    fn may_be_last(&self) -> bool {
        self.credits == 1 && self.unreported != 0
    }

    /// Sends a message, for which there is room; closes the channel on failure.
    pub(super) fn send(&mut self, message: Message) {
        let message = Message {
            credits: self.unreported,
            ..message
        };
        if self.put(&message).is_none() {
            self.state = State::Down;
        }
    }

    fn put(&mut self, message: &Message) -> Option<()> {
        let slot = slot(self.memory, DEPTH + self.sent % DEPTH);
        for (to, byte) in slot.iter().zip(message.bytes()) {
            to.store(byte, Ordering::Relaxed);
        }
        let segment = self.segment(slot, message.length());
        let request = SendRequest {
            token: SENT | u64::from(self.sent),
            operation: SendOperation::Send,
            flags: SendFlags::empty(),
        };
        self.send.post(&request, &[segment]).ok()?;
        self.sent = self.sent.wrapping_add(1);
        self.credits = self.credits.saturating_sub(1);
        self.unreported = 0;
        Some(())
    }

    /// Closes the channel; no further message is read.
    pub(super) fn close(&mut self) {
        self.state = State::Down;
    }

    /// Keeps a reply until there is room.
    ///
    /// Closes the channel if the peer causes more replies than it may.
    pub(super) fn reply(&mut self, reply: Reply) {
        match self.replies.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(reply),
            None => self.close(),
        }
    }

    /// Sends replies, and returns free slots if the other end may run short of them.
    pub(super) fn send_pending(&mut self) {
        while self.has_room() {
            let [first, ..] = &mut self.replies;
            let Some((kind, to)) = first.take() else {
                break;
            };
            self.replies.rotate_left(1);
            self.send(Message::new(kind, 0, to));
        }
        if self.unreported >= DEPTH / 2 && self.has_room() {
            self.send(Message::new(Kind::Credits, 0, 0));
        }
    }

    /// Handles a completion of the queue pair; returns the message received, if any.
    ///
    /// Closes the channel if the message is invalid or was sent without a free slot.
    pub(super) fn completed(&mut self, completion: &Completion) -> Option<Message> {
        let message = self.take_completion(completion);
        match message {
            Ok(message) => message,
            Err(()) => {
                self.state = State::Down;
                None
            }
        }
    }

    fn take_completion(&mut self, completion: &Completion) -> Result<Option<Message>, ()> {
        if completion.status != DtoStatus::Success {
            return Err(());
        }
        if completion.token & SENT != 0 {
            self.completed = self.completed.wrapping_add(1);
            return Ok(None);
        }
        let slot = slot(self.memory, self.received % DEPTH);
        let bytes = slot.get(..completion.length as usize).ok_or(())?;
        let bytes = bytes.iter().map(|byte| byte.load(Ordering::Relaxed));
        let message = Message::read(bytes).ok_or(())?;
        // The peer cannot have more free slots than exist.
        let under_way = self.sent.wrapping_sub(self.completed);
        let credits = self.credits.checked_add(message.credits).ok_or(())?;
        if credits > DEPTH || under_way > DEPTH {
            return Err(());
        }
        self.credits = credits;
        let number = self.received.wrapping_add(DEPTH);
        self.received = self.received.wrapping_add(1);
        self.post_receive(number).ok_or(())?;
        self.receive.ring().map_err(drop)?;
        // A peer that sends only with a free slot never exceeds this count.
        self.unreported = self.unreported.saturating_add(1);
        if self.unreported > DEPTH {
            return Err(());
        }
        Ok(Some(message))
    }
}
