//! Commands and their answers.

use core::fmt;
use core::marker::PhantomData;

use dat_core::backend::BackendError;
use dat_core::sync::{Mutex, RawLock};

use super::defs::{ANSWER, AT, COMMAND, Command, GREETING, LENGTH, NOTICE, Record, UNITS, VERSION};
use crate::hal::{DeviceUnit, DeviceWord, Hal};

/// The program at the other end, as the platform reaches it.
///
/// # Safety
/// [`Control`](crate::mlx5::Control) asks it of what stands for a device, which has it from here:
/// - The other end touches consumer memory only inside of what commands registered with it, as far as their rights and those of windows that
///   were bound allow, and writes to memory of the driver only what completions are.
/// - It does neither any more when it answered the command that ends that; nor when `cut_off` has returned, after which it is never asked again.
///   Or consumer memory is of a kind that it may write at any moment without harm to anybody: a window that is used for nothing else.
#[expect(unsafe_code)]
// UNSAFETY: what a program does to memory that it shares is beyond the compiler.
pub unsafe trait OtherEnd {
    /// Tells it to look at the mailbox and at the records of all queues.
    fn ring(&self);

    /// Whether it left. From then on it never comes back.
    fn is_gone(&self) -> bool;

    /// Lets some time pass for an answer that was looked for so often in vain; false if it has been long enough.
    fn awaits(&self, looks: u32) -> bool;

    /// It left, did not answer or lied.
    fn cut_off(&self);
}

/// What is known of the exchange.
struct Desk {
    /// The number of the last command.
    serial: u32,
    /// Whether the other end is asked no more.
    is_closed: bool,
}

/// Memory for one command and its answer, and who answers.
///
/// One command goes on at a time, behind a lock of the kind `L`, which is taken under those of the core.
pub struct Mailbox<'s, L, E, H> {
    desk: Mutex<L, Desk>,
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
    /// Takes memory that the other end sees as well.
    ///
    /// # Safety
    /// - Nobody but this mailbox and the other end writes the memory, until the other end was cut off.
    /// - The memory stays until then. A mailbox that is forgotten cuts nobody off: memory of which the lifetime `'s` may end
    ///   before the other end leaves has to be `'static`.
    #[expect(unsafe_code)]
    // UNSAFETY: how long a program writes to memory that it shares cannot be checked here.
    pub unsafe fn new(units: &'s [DeviceUnit; UNITS], other: E) -> Self {
        let mailbox = Self {
            desk: Mutex::new(Desk {
                serial: 0,
                is_closed: false,
            }),
            units,
            other,
            hal: PhantomData,
        };
        // Nobody finds a driver here while half of it is somebody before.
        mailbox.store(GREETING, 0);
        H::to_device();
        // The command that is there is of somebody before, and so is its answer, which may not have come yet.
        let serial = mailbox.load(COMMAND);
        mailbox.desk.with(|desk| desk.serial = serial);
        let at = units.as_ptr().expose_provenance() as u64;
        mailbox.store(AT, (at >> 32) as u32);
        mailbox.store(AT + 1, at as u32);
        H::to_device();
        mailbox.store(GREETING, VERSION);
        mailbox
    }

    fn word(&self, place: usize) -> Option<&DeviceWord> {
        self.units.get(place / 4)?.get(place % 4)
    }

    fn load(&self, place: usize) -> u32 {
        self.word(place).map_or(0, DeviceWord::load)
    }

    fn store(&self, place: usize, value: u32) {
        if let Some(word) = self.word(place) {
            word.store(value);
        }
    }

    /// Has the other end look at records.
    pub(super) fn ring(&self) {
        H::to_register();
        self.other.ring();
    }

    /// Changes when there may be events.
    pub(super) fn notice(&self) -> u32 {
        let notice = self.load(NOTICE);
        H::from_device();
        notice
    }

    /// Whether the other end is of no use any more.
    pub(super) fn is_closed(&self) -> bool {
        self.desk.with(|desk| self.closed(desk))
    }

    fn closed(&self, desk: &mut Desk) -> bool {
        if !desk.is_closed && self.other.is_gone() {
            self.close(desk);
        }
        desk.is_closed
    }

    /// The other end makes no sense.
    pub(super) fn give_up(&self) {
        self.desk.with(|desk| {
            if !desk.is_closed {
                self.close(desk);
            }
        });
    }

    fn close(&self, desk: &mut Desk) {
        desk.is_closed = true;
        self.other.cut_off();
    }

    /// Has a command done.
    ///
    /// # Errors
    /// What the other end says; `Device` if it says nothing, or nothing that makes sense.
    pub(super) fn ask<T: Record>(&self, command: &Command) -> Result<T, BackendError> {
        self.desk.with(|desk| {
            if self.closed(desk) {
                return Err(BackendError::Device);
            }
            let serial = desk.serial.wrapping_add(1);
            desk.serial = serial;
            let mut place = COMMAND;
            command.put(&mut |word| {
                place += 1;
                self.store(place, word);
            });
            H::to_device();
            self.store(COMMAND, serial);
            self.ring();
            let mut looks = 0_u32;
            while self.load(ANSWER) != serial {
                if self.other.is_gone() || !self.other.awaits(looks) {
                    self.close(desk);
                    return Err(BackendError::Device);
                }
                looks = looks.saturating_add(1);
            }
            H::from_device();
            let mut place = ANSWER;
            let answer = Result::<T, BackendError>::take(&mut || {
                place += 1;
                // What would lie beyond an answer is none of it.
                if place < ANSWER + LENGTH {
                    self.load(place)
                } else {
                    u32::MAX
                }
            });
            match answer {
                Some(answer) => answer,
                None => {
                    self.close(desk);
                    Err(BackendError::Device)
                }
            }
        })
    }
}
