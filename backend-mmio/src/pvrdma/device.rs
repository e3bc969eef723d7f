//! A device from discovery to reset: shared region, commands, events.

use core::marker::PhantomData;

use super::command_channel::{CommandChannel, Failure};
use super::interrupts::{Message, MessageWords};
use super::pages::{Pages, View};
use crate::cm::Peer;
use crate::defs::pvrdma::{
    AddressVector, Capabilities, CreateBind, CreateContext, Handle, ModifyQueuePair, NO_NETWORK,
    Notice, PAGE, RingPages, SharedRegion, Words, access, attribute, command, register, ring_state,
    state,
};
use crate::platform::{Hal, RegisterWords};

/// The reason why a device could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenFailure {
    /// The device has an unsupported interface version, or did not respond.
    Version(u32),
    /// The device did not accept the shared region, or did not start.
    NotReady,
    /// The capabilities are invalid or insufficient.
    ///
    /// Either a required count is missing, the mode is not RoCE, or the port supports no kind of
    /// address.
    Capabilities,
    /// The memory shared with the device is too small.
    Memory,
    /// A command during start-up failed; the number is that of the command.
    Command(u32),
}

/// Largest packet (MTU): in bytes, and as its attribute encodes it.
const PACKET_BYTES: u32 = 1024;
const PACKET: u32 = 3;
/// First packet sequence number, of both sides.
const FIRST_PACKET: u32 = 0;
/// Attribute bytes: the port; RNR timer, port, timeout and retries; RNR retries.
const PORT: u32 = 1;
const TIMES: u32 = 12 | PORT << 8 | 14 << 16 | 7 << 24;
const NOT_READY: u32 = 7;
/// Path flag for a global address; hop limit of a path.
const HAS_ADDRESS: u32 = 1 << 24;
const HOPS: u32 = 64 << 8;

/// A ring of events that the device writes.
#[derive(Debug)]
struct Notices<'s> {
    state: View<'s>,
    entries: View<'s>,
    /// Words per entry; `count` entries, a power of two; `next` index.
    words: u32,
    count: u32,
    next: u32,
}

impl<'s> Notices<'s> {
    const fn new(ring: View<'s>, entries: View<'s>, words: u32) -> Self {
        Self {
            state: ring,
            entries,
            words,
            count: PAGE as u32 / 4 / words,
            next: 0,
        }
    }

    /// Takes the oldest entry; fails if the device's index is invalid.
    fn take<T: Words, H: Hal>(&mut self) -> Result<Option<T>, Failure> {
        let twice = self.count.wrapping_mul(2).wrapping_sub(1);
        let producer = self.state.load(ring_state::RECEIVE);
        let waiting = producer.wrapping_sub(self.next) & twice;
        if producer > twice || waiting > self.count {
            return Err(Failure::Silent);
        }
        if waiting == 0 {
            return Ok(None);
        }
        H::from_device();
        let index = self.next & self.count.wrapping_sub(1);
        let entry = self
            .entries
            .get(index.wrapping_mul(self.words).wrapping_mul(4));
        self.next = self.next.wrapping_add(1);
        let consumer = ring_state::RECEIVE.wrapping_add(ring_state::CONSUMER);
        self.state.store(consumer, self.next & twice);
        Ok(Some(entry))
    }
}

/// A report of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// An armed completion queue received the completion it was armed for.
    Completions(u32),
    /// An event of an object.
    Object(Notice),
}

/// A running device.
///
/// Dropping it resets the device, which then accesses none of the lent memory.
#[derive(Debug)]
pub(crate) struct PvrdmaDevice<'s, W: RegisterWords, H> {
    pub(crate) channel: CommandChannel<'s, W>,
    hal: PhantomData<fn() -> H>,
    pub(crate) capabilities: Capabilities,
    pub(crate) context: u32,
    events: Notices<'s>,
    notices: Notices<'s>,
    /// Set while reports that a message announced are not all taken.
    ///
    /// `calls` counts the calls of `heard` while messages are in use.
    announced: bool,
    calls: u32,
    /// Set once the device was reset for good.
    ///
    /// The device then accesses no memory and gets no command.
    halted: bool,
}

/// Calls between two polls of the rings that no message requested.
///
/// A device may have lost the message.
const CALLS_PER_POLL: u32 = 64;

impl<'s, W: RegisterWords, H: Hal> PvrdmaDevice<'s, W, H> {
    /// Starts a device.
    pub(crate) fn open(
        registers: W,
        doorbell_page: u64,
        address: [u32; 4],
        pages: &mut Pages<'s>,
        messages: Option<&'s MessageWords>,
    ) -> Result<Self, OpenFailure> {
        let version = registers.read(register::VERSION);
        if !register::VERSIONS.contains(&version) {
            return Err(OpenFailure::Version(version));
        }
        registers.write(register::CONTROL, register::RESET);
        if let Some(messages) = messages {
            messages.clear();
        }
        let mut page = || pages.take(1).map(|(view, _)| view);
        let slots = [page(), page(), page()];
        let [Ok(region), Ok(command_slot), Ok(answer_slot)] = slots else {
            return Err(OpenFailure::Memory);
        };
        let rings = [pages.take_ring(2), pages.take_ring(2)];
        let [Ok((events_at, events, _)), Ok((notices_at, notices, _))] = rings else {
            return Err(OpenFailure::Memory);
        };
        let ring = |directory| RingPages {
            pages: 2,
            reserved: 0,
            directory,
        };
        // The device writes its capabilities itself.
        let nothing = Capabilities::take(&mut || 0);
        region.put(
            0,
            &SharedRegion {
                driver_version: version,
                reserved: 0,
                guest: 0,
                command_slot: command_slot.bus(),
                answer_slot: answer_slot.bus(),
                events: ring(events_at),
                notices: ring(notices_at),
                doorbell_page,
                capabilities: nothing,
            },
        );
        H::to_register();
        registers.write(register::SHARED_LOW, region.bus() as u32);
        registers.write(register::SHARED_HIGH, (region.bus() >> 32) as u32);
        H::from_device();
        let shared: SharedRegion = region.get(0);
        let capabilities = shared.capabilities;
        // The device knows the region from here on, so every failure must reset it.
        let mut device = Self {
            channel: CommandChannel::new(registers, command_slot, answer_slot, messages),
            hal: PhantomData,
            capabilities,
            context: 0,
            events: Notices::new(events, events.at_page(1), Notice::WORDS as u32),
            notices: Notices::new(notices, notices.at_page(1), 1),
            announced: false,
            calls: 0,
            halted: false,
        };
        let kind = Self::address_kind(&capabilities, version);
        let kind = kind.ok_or(OpenFailure::Capabilities)?;
        let registers = &device.channel.registers;
        registers.write(register::MASK, 0);
        registers.write(register::CONTROL, register::ACTIVATE);
        if registers.read(register::ERROR) != 0 {
            return Err(OpenFailure::NotReady);
        }
        let context = CreateContext { doorbell_page };
        let context = device.create(command::CREATE_CONTEXT, &context);
        device.context = context.map_err(|_| OpenFailure::Command(command::CREATE_CONTEXT))?;
        let bind = CreateBind {
            packet: PACKET_BYTES,
            network: NO_NETWORK,
            index: 0,
            address,
            kind,
        };
        let bound = device.execute_void(command::CREATE_BIND, &bind);
        bound.map_err(|_| OpenFailure::Command(command::CREATE_BIND))?;
        Ok(device)
    }

    /// Returns the kind of addresses; `None` if the device lacks something that the driver needs.
    fn address_kind(capabilities: &Capabilities, version: u32) -> Option<u32> {
        let needed = [
            capabilities.queue_pairs,
            capabilities.work_requests,
            capabilities.segments,
            capabilities.completion_queues,
            capabilities.completions,
            capabilities.regions,
            capabilities.domains,
        ];
        if needed.iter().any(|count| matches!(*count, 0 | u32::MAX)) {
            return None;
        }
        capabilities.address_kind(version)
    }

    /// Executes a command and returns its answer.
    ///
    /// Halts a device that does not answer, so that later commands fail at once: each would wait as
    /// long as the first.
    pub(crate) fn execute<Q: Words, A: Words>(
        &mut self,
        number: u32,
        command: &Q,
    ) -> Result<A, Failure> {
        if self.halted {
            return Err(Failure::Silent);
        }
        let answer = self.channel.execute::<Q, A, H>(number, command);
        if let Err(Failure::Silent | Failure::InvalidMessage) = answer {
            self.halt();
        }
        answer
    }

    /// Executes a command without answer.
    pub(crate) fn execute_void<Q: Words>(
        &mut self,
        number: u32,
        command: &Q,
    ) -> Result<(), Failure> {
        let [] = self.execute::<Q, [u32; 0]>(number, command)?;
        Ok(())
    }

    /// Creates an object and returns its handle.
    pub(crate) fn create<Q: Words>(&mut self, number: u32, command: &Q) -> Result<u32, Failure> {
        let created: Handle = self.execute(number, command)?;
        Ok(created.handle)
    }

    /// Destroys an object, which the device does not use after the return.
    ///
    /// Halts a device that does not confirm.
    pub(crate) fn destroy(&mut self, number: u32, handle: u32) -> Result<(), Failure> {
        if self.halted {
            return Ok(());
        }
        let destroyed = self.execute_void(number, &Handle { handle, other: 0 });
        if destroyed.is_err() {
            self.halt();
        }
        destroyed
    }

    /// Moves a queue pair to a state.
    pub(crate) fn modify_pair(
        &mut self,
        handle: u32,
        to: u32,
        peer: Option<Peer>,
    ) -> Result<(), Failure> {
        let mask = attribute::STATE
            | match to {
                state::INITIALISED => attribute::ACCESS | attribute::PARTITION | attribute::PORT,
                state::READY_TO_RECEIVE => {
                    attribute::ADDRESS_VECTOR
                        | attribute::PACKET
                        | attribute::RECEIVE_NUMBER
                        | attribute::NOT_READY_TIMER
                        | attribute::READS_IN
                        | attribute::PEER
                }
                state::READY_TO_SEND => {
                    attribute::TIMEOUT
                        | attribute::RETRIES
                        | attribute::NOT_READY_RETRIES
                        | attribute::READS_OUT
                        | attribute::SEND_NUMBER
                }
                _ => 0,
            };
        let no_address = AddressVector::take(&mut || 0);
        let address_vector = peer.map_or(no_address, |peer| AddressVector {
            address: peer.address,
            route: HOPS,
            service: HAS_ADDRESS,
            port: PORT,
            ..no_address
        });
        self.execute_void(
            command::MODIFY_QUEUE_PAIR,
            &ModifyQueuePair {
                handle,
                mask,
                state: to,
                current: [0, PACKET, 0],
                queue_key: 0,
                receive_number: FIRST_PACKET,
                send_number: FIRST_PACKET,
                peer: peer.map_or(0, |peer| peer.queue_pair),
                access: access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
                details: [0, READS << 16 | READS << 24, TIMES, NOT_READY, 0],
                sizes: [0; 6],
                address_vector,
                alternate: no_address,
            },
        )
    }

    /// Takes the next report; fails if the ring is invalid.
    pub(crate) fn report(&mut self) -> Result<Option<Report>, Failure> {
        if let Some(queue) = self.notices.take::<u32, H>()? {
            return Ok(Some(Report::Completions(queue)));
        }
        Ok(self.events.take::<Notice, H>()?.map(Report::Object))
    }

    /// Takes the next report if one is expected.
    ///
    /// A report is expected if a message announced reports that are not all taken, if messages are
    /// not in use, or if no message came for `CALLS_PER_POLL` calls.
    pub(crate) fn next_announced(&mut self) -> Result<Option<Report>, Failure> {
        if let Some(messages) = self.channel.messages {
            // Each message counts: a device may mistake one for another, and that of an answer may
            // come late.
            for message in [Message::Answer, Message::Events, Message::Completions] {
                let announced = messages.take::<H>(message);
                self.announced |= announced.map_err(|_| Failure::InvalidMessage)?;
            }
            self.announced |= core::mem::take(&mut self.channel.message_taken);
            self.calls = self.calls.wrapping_add(1);
            if !self.announced && !self.calls.is_multiple_of(CALLS_PER_POLL) {
                return Ok(None);
            }
        }
        let report = self.report()?;
        self.announced = report.is_some();
        Ok(report)
    }

    /// Returns true if messages announced reports.
    pub(crate) fn has_announced(&self) -> bool {
        let messages = self.channel.messages;
        let announced = self.announced || self.channel.message_taken;
        messages.is_some_and(|messages| announced || !messages.is_silent())
    }

    /// Returns the capacity of both rings.
    pub(crate) fn most_reports(&self) -> usize {
        self.events.count.saturating_add(self.notices.count) as usize
    }
}

impl<W: RegisterWords, H> PvrdmaDevice<'_, W, H> {
    /// Resets the device for good, unless done; on return the reset is complete.
    pub(crate) fn halt(&mut self) {
        if self.halted {
            return;
        }
        self.halted = true;
        let registers = &self.channel.registers;
        registers.write(register::CONTROL, register::RESET);
        // The write may still be under way; the read returns after it.
        let _arrived = registers.read(register::VERSION);
    }
}

impl<W: RegisterWords, H> Drop for PvrdmaDevice<'_, W, H> {
    fn drop(&mut self) {
        self.halt();
    }
}

/// Most pending RDMA Reads, per queue pair and direction.
pub(crate) const READS: u32 = 4;
