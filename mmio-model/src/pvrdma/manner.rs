//! In what devices differ.

use backend_mmio::pvrdma::Message;
use backend_mmio::pvrdma::defs::command;

/// In what a device is not as the others are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PvrdmaManner {
    /// The command that it refuses.
    pub refuses: Refusal,
    /// It completes nothing that is posted on a queue pair in error, and the driver is told so.
    pub keeps: bool,
    /// What it calls queue pairs.
    pub numbers: Numbers,
    /// What is in a word of what it says that it has, counted modulo how many there are, in the place of what is so.
    pub claims: Option<(u32, u32)>,
    /// How it tells that there is something to look at.
    pub messages: Messages,
    /// The version of its interface, if not that of the others.
    pub version: Option<u32>,
    /// It writes completions only when a completion queue is polled.
    pub polled: bool,
}

/// How a device tells that there is something to look at: an answer, events, completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// Its interrupts write into words of memory.
    #[default]
    Sent,
    /// Its driver gives it no words.
    Unwanted,
    /// It writes none, although it was told to.
    Lost,
    /// Each of its interrupts is sent in the place of another.
    Crossed,
    /// All of them are sent in the place of the first.
    First,
}

impl Messages {
    /// Which interrupt is sent in the place of one.
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

/// What a device calls its queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// A new one has the number of the one that was destroyed last, if there is one.
    #[default]
    Again,
    /// It says this of each, whatever it is.
    Always(u32),
}

/// What a device refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing that makes sense.
    #[default]
    Nothing,
    /// To make a context.
    Context,
    /// An address for its port.
    Bind,
    /// To make completion queues.
    CompletionQueue,
    /// To take a queue pair into error.
    Error,
}

impl Refusal {
    /// Whether it is of a command.
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
