//! Problems of the file `rsm.nodes`, or of its environment variables.

use std::fmt;
use std::path::Path;

/// The reason of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The file cannot be read; has the system's message.
    Unreadable(String),
    /// The line has neither three nor four words; has their number.
    Words(usize),
    /// The word is not the number of a node.
    Node(String),
    /// The word is not the name of a controller.
    Controller(String),
    /// `loopback` exists without a line.
    Loopback,
    /// The word is not an address.
    Address(String),
    /// The address belongs to an interface, which differs between hosts.
    LinkLocal(String),
    /// The word is not a port.
    Port(String),
    /// An earlier line has the same controller of this node; has that line.
    Repeated(usize),
    /// No line has the node that this process is to be.
    NoSuchNode(u32),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(text) => write!(f, "it cannot be read: {text}"),
            Self::Words(1) => f.write_str("1 word instead of 3 or 4"),
            Self::Words(count) => write!(f, "{count} words instead of 3 or 4"),
            Self::Node(text) => write!(f, "`{text}` is not a node number such as 2 or 0x2"),
            Self::Controller(text) => {
                write!(f, "`{text}` is not a controller name such as verbs0")
            }
            Self::Loopback => f.write_str("loopback is predefined and cannot have a line"),
            Self::Address(text) => write!(f, "`{text}` is not an IP address such as 10.9.0.1"),
            Self::LinkLocal(text) => write!(
                f,
                "`{text}` is a link-local address, which each host reaches by an interface of its \
                own; use an address without an interface"
            ),
            Self::Port(text) => write!(f, "`{text}` is not a port from 1 to 65535"),
            Self::Repeated(line) => write!(
                f,
                "line {line} already defines this controller of this node"
            ),
            Self::NoSuchNode(node) => {
                write!(f, "no line defines node {node}, the node of this process")
            }
        }
    }
}

/// A problem and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The file, or an environment variable.
    location: String,
    /// The line, from 1.
    line: Option<usize>,
    /// The reason.
    pub(super) reason: Reason,
}

impl Problem {
    /// Makes a problem of a whole file.
    pub(super) fn of_file(file: &Path, reason: Reason) -> Self {
        Self {
            location: file.display().to_string(),
            line: None,
            reason,
        }
    }

    /// Makes a problem of a line.
    pub(super) fn of_line(file: &Path, line: usize, reason: Reason) -> Self {
        Self {
            line: Some(line),
            ..Self::of_file(file, reason)
        }
    }

    /// Makes a problem of an environment variable.
    pub(super) fn of_variable(name: &str, reason: Reason) -> Self {
        Self {
            location: name.to_owned(),
            line: None,
            reason,
        }
    }
}

/// Prints `FILE:LINE: REASON`, as for `dat.conf`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.reason)
    }
}
