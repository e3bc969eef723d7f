//! The command channel: a command page, a request register and an answer page.

use dat_core::backend::BackendError;

use super::interrupts::{Message, MessageWords};
use super::pages::View;
use crate::defs::pvrdma::{AnswerHeader, RequestHeader, Words, command, register};
use crate::fault::DeviceFault;
use crate::platform::{Hal, RegisterWords};

/// Polls of the answer before the device counts as gone.
const MOST_POLLS: u32 = 10_000_000;
/// Polls of the message word before each poll of the answer.
///
/// After `MOST_POLLS` polls of the word in total, the ratio drops to 1, so that giving up on a dead
/// device does not take a multiple of the time.
const MESSAGE_POLLS: u32 = 64;

/// The command channel of a device.
#[derive(Debug)]
pub(crate) struct CommandChannel<'s, W> {
    pub(crate) registers: W,
    pub(crate) command: View<'s>,
    pub(crate) answer: View<'s>,
    pub(crate) messages: Option<&'s MessageWords>,
    /// Set once a message was taken here.
    ///
    /// It may announce reports: a device may mistake one message for another.
    pub(crate) message_taken: bool,
    key: u64,
}

/// Failure of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The device refused the command.
    Refused,
    /// The device is gone, or answered another command.
    Silent,
    /// The device sent an invalid message.
    InvalidMessage,
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused => Self::Resources,
            Failure::Silent | Failure::InvalidMessage => Self::Device,
        }
    }
}

/// Fault that the driver records for a failure.
impl From<Failure> for DeviceFault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused | Failure::Silent => Self::Silent,
            Failure::InvalidMessage => Self::WrongMessage,
        }
    }
}

impl<'s, W: RegisterWords> CommandChannel<'s, W> {
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
            message_taken: false,
            key: 0,
        }
    }

    /// Executes a command and waits for its answer.
    pub(crate) fn execute<Q: Words, A: Words, H: Hal>(
        &mut self,
        number: u32,
        parameters: &Q,
    ) -> Result<A, Failure> {
        self.key = self.key.wrapping_add(1);
        let header = RequestHeader {
            key: self.key,
            command: number,
            reserved: 0,
        };
        let after_header = (RequestHeader::WORDS * 4) as u32;
        self.command.put(0, &header);
        self.command.put(after_header, parameters);
        // Erase the previous answer.
        self.answer.put(0, &0_u64);
        H::to_register();
        self.registers.write(register::REQUEST, 0);
        for round in 0..MOST_POLLS {
            let polls = if round < MOST_POLLS / MESSAGE_POLLS {
                MESSAGE_POLLS
            } else {
                1
            };
            self.await_message::<H>(polls)?;
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

    /// Waits briefly for the message that announces an answer, if messages are in use.
    fn await_message<H: Hal>(&mut self, polls: u32) -> Result<(), Failure> {
        if let Some(messages) = self.messages {
            for _ in 0..polls {
                let taken = messages.take::<H>(Message::Answer);
                if taken.map_err(|_| Failure::InvalidMessage)? {
                    self.message_taken = true;
                    break;
                }
                core::hint::spin_loop();
            }
        }
        Ok(())
    }
}
