//! Why a connection could not stay on its host.

use core::fmt;

/// The reason why a connection has no way through memory of the host, where it may take no other.
///
/// Prints as the reason alone; [`remedy`](Self::remedy) says what to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLocal {
    /// No adapter with queues has the address in the network namespace of this one.
    Nobody,
    /// The peer is a process of another user.
    OtherUser,
    /// The peer has not answered in time.
    Silent,
    /// The peer did not take the queues, or speaks another version.
    Refused,
    /// The process, or the host, has no file descriptor left.
    Descriptors,
    /// There is no memory for the queues.
    Memory,
    /// An adapter has as many pairs of queues as it can have.
    Full,
    /// The system refuses a call that queues need.
    System,
}

impl NotLocal {
    /// Returns what to try.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Nobody => {
                "run both ends on this host, in one network namespace and from one version, the \
                other end without `path=packets`; or leave out `path=local`"
            }
            Self::OtherUser => "run both ends as one user, or leave out `path=local`",
            Self::Silent => "check that the peer is not stopped, and try again",
            Self::Refused => {
                "run both ends from one version, and check the limits of the peer's memory and \
                open files; or leave out `path=local`"
            }
            Self::Descriptors => {
                "end other programs, or raise the limit of open files (`ulimit -n`)"
            }
            Self::Memory => "free some memory, or raise the limit of the container",
            Self::Full => "connect to fewer processes at a time, or leave out `path=local`",
            Self::System => {
                "allow memfd_create, its seals and Unix sockets in the filter of system calls \
                (seccomp), or leave out `path=local`"
            }
        }
    }
}

impl fmt::Display for NotLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nobody => {
                "no process of this host and network namespace has shared memory for that address \
                and port"
            }
            Self::OtherUser => "the peer is a process of another user",
            Self::Silent => "the peer is there and has not answered in time",
            Self::Refused => "the peer did not take the shared memory",
            Self::Descriptors => "the process or the host has no file descriptor left",
            Self::Memory => "there is no memory to share",
            Self::Full => "the adapter shares memory with as many others as it can",
            Self::System => "the system refuses a call that shared memory needs",
        })
    }
}
