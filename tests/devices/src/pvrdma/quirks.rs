//! Quirks: deviations of a device from the others.

use backend_mmio::defs::pvrdma::command;
use backend_mmio::pvrdma::Message;

/// Quirks of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PvrdmaQuirks {
    /// Command that it refuses.
    pub refuses: Refusal,
    /// Drops the completions of flushed requests; the driver knows it.
    pub drops_flushed: bool,
    /// Numbers of its queue pairs.
    pub numbers: Numbers,
    /// Overrides one capability word with a false value: index, modulo their number, and value.
    pub fake_capability: Option<(u32, u32)>,
    /// Delivery of its interrupts.
    pub messages: Messages,
    /// Interface version, if not the default.
    pub version: Option<u32>,
    /// Writes completions only when a completion queue is polled.
    pub polled: bool,
}

/// Delivery of a device's interrupts: answer, events, completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// Writes each interrupt's value to its word.
    #[default]
    Sent,
    /// Does not configure interrupts: the driver provides no words.
    Unwanted,
    /// Writes none although it is configured.
    Lost,
    /// Sends each interrupt in place of another.
    Crossed,
    /// Sends all of them in place of the first.
    First,
}

impl Messages {
    /// Returns the interrupt that is sent in place of `message`, if any.
    pub(crate) const fn sent_for(self, message: Message) -> Option<Message> {
        match (self, message) {
            (Self::Sent, message) => Some(message),
            (Self::Unwanted | Self::Lost, _) => None,
            (Self::Crossed, Message::Answer) => Some(Message::Events),
            (Self::Crossed, Message::Events) => Some(Message::Completions),
            (Self::Crossed, Message::Completions) | (Self::First, _) => Some(Message::Answer),
        }
    }
}

/// Numbers that a device gives its queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// A new one takes the number of the last destroyed one, if there is one.
    #[default]
    Reuse,
    /// All get this number.
    Always(u32),
}

/// Command that a device refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// No valid command.
    #[default]
    Nothing,
    /// Creation of a context.
    Context,
    /// Binding an address to its port.
    Bind,
    /// Creation of completion queues.
    CompletionQueue,
    /// Transition of a queue pair to the error state.
    Error,
}

impl Refusal {
    /// Returns true if commands of this number are refused; `Error` is checked elsewhere.
    pub(crate) fn is_of(self, number: u32) -> bool {
        let refused = match self {
            Self::Nothing | Self::Error => None,
            Self::Context => Some(command::CREATE_CONTEXT),
            Self::Bind => Some(command::CREATE_BIND),
            Self::CompletionQueue => Some(command::CREATE_COMPLETION_QUEUE),
        };
        refused == Some(number)
    }
}
