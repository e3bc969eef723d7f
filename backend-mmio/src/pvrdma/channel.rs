//! The command channel: a command in its page, a register that has it carried out, an answer in another page.

use dat_core::backend::BackendError;

use super::defs::{AnswerHeader, RequestHeader, Words, command, register};
use super::messages::{Message, MessageWords};
use super::pages::View;
use crate::fault::DeviceFault;
use crate::hal::Hal;
use crate::words::RegisterWords;

/// How often the answer is looked at before the device counts as gone.
const LOOKS: u32 = 10_000_000;
/// How often the word that an answer is told by is looked at before the answer is, whether or not it is told; of a device that is gone
/// only until all that is as often as the answer is looked at, so that giving it up takes no multiple of the time.
const PATIENCE: u32 = 64;

/// The command channel of a device.
#[derive(Debug)]
pub(crate) struct Channel<'s, W> {
    pub(crate) registers: W,
    pub(crate) command: View<'s>,
    pub(crate) answer: View<'s>,
    pub(crate) messages: Option<&'s MessageWords>,
    /// Whether a message was taken here: a device may mistake one for another, so that it may tell of reports.
    pub(crate) heard: bool,
    key: u64,
}

/// How a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The device says that it cannot do it.
    Refused,
    /// The device is gone, or answers something else.
    Silent,
    /// It sends messages that nobody asked it for.
    Senseless,
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused => Self::Resources,
            Failure::Silent | Failure::Senseless => Self::Device,
        }
    }
}

/// What a device is given up for that fails so.
impl From<Failure> for DeviceFault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused | Failure::Silent => Self::Silent,
            Failure::Senseless => Self::WrongMessage,
        }
    }
}

impl<'s, W: RegisterWords> Channel<'s, W> {
    pub(crate) const fn new(
        registers: W,
        command: View<'s>,
        answer: View<'s>,
        messages: Option<&'s MessageWords>,
    ) -> Self {
        Self {
            registers,
            command,
            answer,
            messages,
            heard: false,
            key: 0,
        }
    }

    /// Has a command carried out, and waits for its answer.
    pub(crate) fn ask<Q: Words, A: Words, H: Hal>(
        &mut self,
        number: u32,
        question: &Q,
    ) -> Result<A, Failure> {
        self.key = self.key.wrapping_add(1);
        let header = RequestHeader {
            key: self.key,
            command: number,
            reserved: 0,
        };
        let behind = (RequestHeader::WORDS * 4) as u32;
        self.command.put(0, &header);
        self.command.put(behind, question);
        // An answer of before is none.
        self.answer.put(0, &0_u64);
        H::to_register();
        self.registers.write(register::REQUEST, 0);
        for round in 0..LOOKS {
            let patience = if round < LOOKS / PATIENCE {
                PATIENCE
            } else {
                1
            };
            self.listen::<H>(patience)?;
            match self.registers.read(register::ERROR) {
                0 => {}
                u32::MAX => return Err(Failure::Silent),
                _ => return Err(Failure::Refused),
            }
            if self.answer.get::<u64>(0) == self.key {
                H::from_device();
                let header: AnswerHeader = self.answer.get(0);
                if header.key != self.key || header.acknowledges != number | command::ANSWER {
                    return Err(Failure::Silent);
                }
                if header.error & 0xFF != 0 {
                    return Err(Failure::Refused);
                }
                return Ok(self.answer.get((AnswerHeader::WORDS * 4) as u32));
            }
            core::hint::spin_loop();
        }
        Err(Failure::Silent)
    }

    /// Waits for the message that there is an answer, if it is told by one, for a while.
    fn listen<H: Hal>(&mut self, patience: u32) -> Result<(), Failure> {
        if let Some(messages) = self.messages {
            for _ in 0..patience {
                let told = messages.take::<H>(Message::Answer);
                if told.map_err(|_| Failure::Senseless)? {
                    self.heard = true;
                    break;
                }
                core::hint::spin_loop();
            }
        }
        Ok(())
    }
}
