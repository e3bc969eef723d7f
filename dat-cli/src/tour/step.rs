//! Steps of the tour: the call, its specified outcome and its actual outcome.

use std::fmt;

use dat_core::event::{AsyncEventKind, ConnectionEventKind, DtoOperation};
use dat_core::flags::{DtoStatus, HandleKind};
use dat_core::{Error, ErrorKind, Subtype};
use serde::{Serialize, Serializer};

use crate::failure::{Failure, Result};
use crate::names::{constant, return_code, rsm_return_code};

/// An event, without the values that differ between runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// A completed transfer; the length is 0 unless it succeeded.
    Transfer {
        endpoint: &'static str,
        operation: DtoOperation,
        status: DtoStatus,
        length: u64,
        cookie: u64,
    },
    /// A completed bind.
    Bind {
        node: &'static str,
        status: DtoStatus,
        cookie: u64,
    },
    /// A connection event.
    Connection {
        endpoint: &'static str,
        kind: ConnectionEventKind,
    },
    /// An asynchronous event.
    Async {
        node: &'static str,
        kind: AsyncEventKind,
        about: Option<HandleKind>,
        reason: u32,
    },
    /// An event that no step of the tour can cause.
    Other(String),
}

fn status_name(status: DtoStatus) -> String {
    match status {
        DtoStatus::Success => "DAT_DTO_SUCCESS".into(),
        failed => format!("DAT_DTO_ERR_{}", constant(failed)),
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transfer {
                endpoint,
                operation,
                status,
                length,
                cookie,
            } => {
                let operation = match operation {
                    DtoOperation::Send => "Send",
                    DtoOperation::RdmaWrite => "RDMA Write",
                    DtoOperation::RdmaRead => "RDMA Read",
                    DtoOperation::Receive => "Receive",
                };
                write!(
                    formatter,
                    "{endpoint}: {operation} {}",
                    status_name(*status)
                )?;
                if *status == DtoStatus::Success {
                    write!(formatter, ", {length} bytes")?;
                }
                write!(formatter, ", cookie {cookie}")
            }
            Self::Bind {
                node,
                status,
                cookie,
            } => write!(
                formatter,
                "{node}: bind {}, cookie {cookie}",
                status_name(*status)
            ),
            Self::Connection { endpoint, kind } => {
                write!(
                    formatter,
                    "{endpoint}: DAT_CONNECTION_EVENT_{}",
                    constant(kind)
                )
            }
            Self::Async {
                node,
                about: Some(HandleKind::Srq),
                reason: dat_core::event::REASON_LOW_WATERMARK,
                ..
            } => write!(formatter, "{node}: DAT_SRQ_LOW_WATERMARK_EVENT"),
            Self::Async {
                node, kind, reason, ..
            } => write!(
                formatter,
                "{node}: asynchronous event {}, reason {reason}",
                constant(kind)
            ),
            Self::Other(event) => formatter.write_str(event),
        }
    }
}

impl Serialize for Happening {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value that can be read after a call: memory, a state or a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fact {
    pub(crate) about: &'static str,
    pub(crate) value: String,
}

/// The outcome of a call: the return code, all events on all nodes, and facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) returns: String,
    pub(crate) events: Vec<Happening>,
    pub(crate) facts: Vec<Fact>,
}

impl Outcome {
    /// Returns the outcome of a call.
    pub(crate) fn of(result: dat_core::Result<()>) -> Self {
        Self {
            returns: return_code(result),
            events: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// Returns the outcome of a call of remote shared memory.
    pub(crate) fn of_rsm(result: dat_rsm::Result<()>) -> Self {
        Self {
            returns: rsm_return_code(result).into(),
            ..Self::success()
        }
    }

    /// Returns the outcome of a successful call.
    pub(crate) fn success() -> Self {
        Self::of(Ok(()))
    }

    /// Returns the outcome of a refused call without effects.
    pub(crate) fn refused(kind: ErrorKind, subtype: Subtype) -> Self {
        Self::of(Err(Error::new(kind, subtype)))
    }

    /// Adds an event.
    #[must_use]
    pub(crate) fn event(mut self, event: Happening) -> Self {
        self.events.push(event);
        self
    }

    /// Adds events.
    #[must_use]
    pub(crate) fn events(mut self, events: Vec<Happening>) -> Self {
        self.events.extend(events);
        self
    }

    /// Adds a fact.
    #[must_use]
    pub(crate) fn fact(mut self, about: &'static str, value: impl Into<String>) -> Self {
        self.facts.push(Fact {
            about,
            value: value.into(),
        });
        self
    }
}

/// A step of a chapter with scene `S`.
pub(crate) struct Step<S> {
    /// The purpose of the step.
    pub(crate) shows: &'static str,
    /// The call, as source text.
    pub(crate) call: &'static str,
    /// The outcome that the specification requires.
    pub(crate) expected: Outcome,
    /// The requirements that specify the outcome.
    pub(crate) requirements: &'static [&'static str],
    /// Makes the call and collects its outcome.
    pub(crate) run: fn(&mut S) -> Result<Outcome>,
}

/// A chapter of the tour.
pub(crate) struct Chapter<S> {
    pub(crate) title: &'static str,
    pub(crate) introduction: &'static str,
    /// Creates the scene.
    pub(crate) scene: fn() -> Result<S>,
    pub(crate) steps: Vec<Step<S>>,
}

/// The result of a step.
#[derive(Debug, Serialize)]
pub(crate) struct StepReport {
    pub(crate) ok: bool,
    pub(crate) shows: &'static str,
    pub(crate) call: &'static str,
    pub(crate) requirements: &'static [&'static str],
    pub(crate) expected: Outcome,
    /// `None` if the step could not be run.
    pub(crate) actual: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
}

/// The result of a chapter.
#[derive(Debug, Serialize)]
pub(crate) struct ChapterReport {
    pub(crate) ok: bool,
    pub(crate) title: &'static str,
    pub(crate) introduction: &'static str,
    pub(crate) steps: Vec<StepReport>,
}

/// A chapter with any scene.
pub(crate) trait Play {
    /// Runs all steps, even after a failed one.
    ///
    /// # Errors
    /// - The failure of a scene that could not be created.
    fn play(self: Box<Self>) -> Result<ChapterReport>;
}

impl<S> Play for Chapter<S> {
    fn play(self: Box<Self>) -> Result<ChapterReport> {
        let mut scene = (self.scene)()?;
        let steps: Vec<StepReport> = self
            .steps
            .into_iter()
            .map(|step| step.play(&mut scene))
            .collect();
        Ok(ChapterReport {
            ok: steps.iter().all(|step| step.ok),
            title: self.title,
            introduction: self.introduction,
            steps,
        })
    }
}

impl<S> Step<S> {
    fn play(self, scene: &mut S) -> StepReport {
        let (actual, failure) = match (self.run)(scene) {
            Ok(outcome) => (Some(outcome), None),
            Err(failure) => (None, Some(failure)),
        };
        StepReport {
            ok: actual.as_ref() == Some(&self.expected),
            shows: self.shows,
            call: self.call,
            requirements: self.requirements,
            expected: self.expected,
            actual,
            failure,
        }
    }
}
