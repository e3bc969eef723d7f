//! Exchange of commands and answers.

use core::fmt;
use core::marker::PhantomData;

use dat_core::backend::BackendError;
use dat_core::sync::{Mutex, RawLock};

use crate::defs::mailbox::{
    ANSWER, AT, COMMAND, Command, GREETING, LENGTH, NOTICE, Record, UNITS, VERSION,
};
use crate::platform::{DeviceUnit, DeviceWord, Hal};

/// The program at the other end, as the platform reaches it.
///
/// # Safety
/// The implementation of [`Control`](crate::mlx5::Control) relies on these obligations:
/// - The other end accesses consumer memory only within regions that commands registered, as far as
///   their rights and those of bound windows allow. It writes only completions to the driver's
///   memory.
/// - It ends an access before it answers the command that ends it, and makes none after `cut_off`
///   has returned; after that it receives no command. Alternatively, consumer memory is a window
///   without other use, which the other end may write at any time without harm.
#[expect(unsafe_code)]
// UNSAFETY: the compiler cannot check how a program accesses shared memory.
pub unsafe trait OtherEnd {
    /// Notifies the other end to read the mailbox and the doorbell records of all queues.
    ///
    /// The record of a completion queue has its last arm command. A command that differs from the
    /// one read before is new, and so is the first one of a queue. A new command arms the queue, or
    /// raises its event at once if it has completions past the command's consumer index.
    fn ring(&self);

    /// Returns true if the other end left, for good.
    fn is_gone(&self) -> bool;

    /// Waits for an answer after `polls` unsuccessful polls; returns false on timeout.
    fn keep_waiting(&self, polls: u32) -> bool;

    /// Cuts off the other end: it left, did not answer, or answered wrongly.
    ///
    /// Also called when the driver is dropped.
    fn cut_off(&self);
}

/// State of the exchange.
struct Exchange {
    /// Serial number of the last command.
    serial: u32,
    /// Set once no further command is sent.
    is_closed: bool,
}

/// Memory for one command and its answer, and the program that answers.
///
/// A lock of type `L` admits one command at a time. Only control calls give commands, so use the
/// lock that they take in the core ([`RawLock::Control`]). Posting and arming take no lock.
pub struct Mailbox<'s, L, E, H> {
    exchange: Mutex<L, Exchange>,
    units: &'s [DeviceUnit; UNITS],
    other: E,
    hal: PhantomData<H>,
}

impl<L, E, H> fmt::Debug for Mailbox<'_, L, E, H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl<'s, L: RawLock, E: OtherEnd, H: Hal> Mailbox<'s, L, E, H> {
    /// Creates a mailbox in memory that the other end also sees.
    ///
    /// # Safety
    /// - Only this mailbox and the other end write the memory, until the other end was cut off.
    /// - The memory exists until then. A forgotten mailbox cuts off nothing: if the lifetime `'s`
    ///   may end before the other end leaves, the memory must be `'static`.
    #[expect(unsafe_code)]
    // UNSAFETY: the function cannot check how long a program writes to shared memory.
    pub unsafe fn new(units: &'s [DeviceUnit; UNITS], other: E) -> Self {
        let mailbox = Self {
            exchange: Mutex::new(Exchange {
                serial: 0,
                is_closed: false,
            }),
            units,
            other,
            hal: PhantomData,
        };
        // The other end must not find a driver while part of the state is an earlier driver's.
        mailbox.store(GREETING, 0);
        H::to_device();
        // The command in the memory is an earlier driver's. Its answer may still be due.
        let serial = mailbox.load(COMMAND);
        mailbox.exchange.with(|exchange| exchange.serial = serial);
        let at = units.as_ptr().expose_provenance() as u64;
        mailbox.store(AT, (at >> 32) as u32);
        mailbox.store(AT + 1, at as u32);
        H::to_device();
        mailbox.store(GREETING, VERSION);
        mailbox
    }

    fn word(&self, position: usize) -> Option<&DeviceWord> {
        self.units.get(position / 4)?.get(position % 4)
    }

    fn load(&self, position: usize) -> u32 {
        self.word(position).map_or(0, DeviceWord::load)
    }

    fn store(&self, position: usize, value: u32) {
        if let Some(word) = self.word(position) {
            word.store(value);
        }
    }

    /// Notifies the other end to read the doorbell records.
    pub(crate) fn ring(&self) {
        H::to_register();
        self.other.ring();
    }

    /// Returns a number that changes when events may be pending.
    pub(crate) fn notice(&self) -> u32 {
        let notice = self.load(NOTICE);
        H::from_device();
        notice
    }

    /// Returns true if the other end was cut off or is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.exchange.with(|exchange| self.closed(exchange))
    }

    fn closed(&self, exchange: &mut Exchange) -> bool {
        if !exchange.is_closed && self.other.is_gone() {
            self.close(exchange);
        }
        exchange.is_closed
    }

    /// Cuts off a faulty other end.
    pub(crate) fn give_up(&self) {
        self.exchange.with(|exchange| {
            if !exchange.is_closed {
                self.close(exchange);
            }
        });
    }

    fn close(&self, exchange: &mut Exchange) {
        exchange.is_closed = true;
        self.other.cut_off();
    }

    /// Executes a command and returns its answer.
    ///
    /// # Errors
    /// The error that the other end answers; `Device` without a valid answer.
    pub(crate) fn execute<T: Record>(&self, command: &Command) -> Result<T, BackendError> {
        self.exchange.with(|exchange| {
            if self.closed(exchange) {
                return Err(BackendError::Device);
            }
            let serial = exchange.serial.wrapping_add(1);
            exchange.serial = serial;
            let mut position = COMMAND;
            command.put(&mut |word| {
                position += 1;
                self.store(position, word);
            });
            H::to_device();
            self.store(COMMAND, serial);
            self.ring();
            let mut polls = 0_u32;
            while self.load(ANSWER) != serial {
                if self.other.is_gone() || !self.other.keep_waiting(polls) {
                    self.close(exchange);
                    return Err(BackendError::Device);
                }
                polls = polls.saturating_add(1);
            }
            H::from_device();
            let mut position = ANSWER;
            let answer = Result::<T, BackendError>::take(&mut || {
                position += 1;
                // Words past the end of the answer are invalid.
                if position < ANSWER + LENGTH {
                    self.load(position)
                } else {
                    u32::MAX
                }
            });
            match answer {
                Some(answer) => answer,
                None => {
                    self.close(exchange);
                    Err(BackendError::Device)
                }
            }
        })
    }
}
