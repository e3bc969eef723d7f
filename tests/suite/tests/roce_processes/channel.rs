//! The channel between the runner and a side: lines of text over a pair of sockets.

use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;

/// Numbers that one side tells another, with the name under which the other awaits them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The side at the other end.
    pub(crate) peer: usize,
    pub(crate) numbers: Vec<u64>,
    pub(crate) name: String,
}

impl Word {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let peer = parts.next()?.parse().ok()?;
        let numbers = parts.next()?.split_terminator(',');
        Some(Self {
            peer,
            numbers: numbers
                .map(|number| number.parse().ok())
                .collect::<Option<_>>()?,
            name: parts.next()?.to_owned(),
        })
    }
}

impl fmt::Display for Word {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ", self.peer)?;
        for number in &self.numbers {
            write!(formatter, "{number},")?;
        }
        write!(formatter, " {}", self.name)
    }
}

/// Signal that the runner sends to the process of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessControl {
    /// Ends it, as `kill -9` does.
    Kill,
    /// Stops all of its threads.
    Pause,
    /// Lets it go on.
    Resume,
}

impl ProcessControl {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "kill" => Some(Self::Kill),
            "pause" => Some(Self::Pause),
            "resume" => Some(Self::Resume),
            _ => None,
        }
    }

    /// Returns the control and the side of a text.
    fn parse_of_side(text: &str) -> Option<(Self, usize)> {
        let (word, side) = text.split_once(' ')?;
        Some((Self::parse(word)?, side.parse().ok()?))
    }
}

impl fmt::Display for ProcessControl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Resume => "resume",
        })
    }
}

/// A line from a side to the runner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The side is ready to begin.
    Ready,
    /// The side begins a step.
    Step(String),
    /// A word for another side.
    Tell(Word),
    /// The side asks the runner to do something to another one.
    Ask(ProcessControl, usize),
    /// The side found a fault.
    Failed(String),
    /// The side has done everything.
    Ended,
}

impl Report {
    /// Returns the report in a line; `None` for text that no side sends.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        match head {
            "ready" => Some(Self::Ready),
            "step" => Some(Self::Step(rest.to_owned())),
            "tell" => Word::parse(rest).map(Self::Tell),
            "ask" => {
                ProcessControl::parse_of_side(rest).map(|(control, side)| Self::Ask(control, side))
            }
            "failed" => Some(Self::Failed(rest.to_owned())),
            "ended" => Some(Self::Ended),
            _ => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(formatter, "ready"),
            Self::Step(step) => write!(formatter, "step {step}"),
            Self::Tell(word) => write!(formatter, "tell {word}"),
            Self::Ask(control, side) => write!(formatter, "ask {control} {side}"),
            Self::Failed(text) => write!(formatter, "failed {text}"),
            Self::Ended => write!(formatter, "ended"),
        }
    }
}

/// A line from the runner to a side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// All sides are ready.
    Begin,
    /// A word of another side.
    Told(Word),
    /// Something was done to another side; the system has nothing left to do.
    Done(ProcessControl, usize),
}

impl Order {
    /// Returns the order in a line; `None` for text that the runner does not send.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        match head {
            "begin" => Some(Self::Begin),
            "told" => Word::parse(rest).map(Self::Told),
            "done" => {
                ProcessControl::parse_of_side(rest).map(|(control, side)| Self::Done(control, side))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => write!(formatter, "begin"),
            Self::Told(word) => write!(formatter, "told {word}"),
            Self::Done(control, side) => write!(formatter, "done {control} {side}"),
        }
    }
}

/// Writes a line, in one call.
///
/// # Errors
/// The other end is gone.
pub(crate) fn write(mut stream: &UnixStream, line: &impl fmt::Display) -> io::Result<()> {
    let line = line.to_string().replace('\n', " | ");
    stream.write_all((line + "\n").as_bytes())
}

#[test]
fn lines_say_what_was_written() {
    let word = |numbers: &[u64]| Word {
        peer: 2,
        numbers: numbers.to_vec(),
        name: "the window of round 3".into(),
    };
    for report in [
        Report::Ready,
        Report::Step("writes, then reads".into()),
        Report::Tell(word(&[])),
        Report::Tell(word(&[0, u64::MAX])),
        Report::Ask(ProcessControl::Kill, 1),
        Report::Ask(ProcessControl::Pause, 0),
        Report::Failed("left: 1, right: 2".into()),
        Report::Ended,
    ] {
        assert_eq!(Report::parse(&report.to_string()), Some(report));
    }
    for order in [
        Order::Begin,
        Order::Told(word(&[7])),
        Order::Done(ProcessControl::Resume, 0),
    ] {
        assert_eq!(Order::parse(&order.to_string()), Some(order));
    }
    for bad in [
        "",
        "running 1 test",
        "tell",
        "tell 1",
        "tell 1 2,x, y",
        "ask",
        "done kill",
        "ask stop 1",
    ] {
        assert_eq!(Report::parse(bad), None, "{bad}");
        assert_eq!(Order::parse(bad), None, "{bad}");
    }
}
