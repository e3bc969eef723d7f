//! Why a connection could not stay on its host.

use core::fmt;

/// The reason why there is no way through memory of the host, where there may be no other.
///
/// Prints as the reason alone; [`remedy`](Self::remedy) says what to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLocal {
    /// The address is not one of this host and network namespace.
    OtherHost,
    /// No adapter of this host listens there, or it has no queues.
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
    /// The peer takes connections through queues only, and this one came without.
    Required,
    /// Another process has the name by which peers of this host find the port.
    Taken,
}

impl NotLocal {
    /// Returns what to try.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::OtherHost => {
                "run both ends on one host and in one network namespace, or use the path `any`"
            }
            Self::Nobody => {
                "start the other end, from this version and without the path `packets`, and check \
                its port; or use the path `any`"
            }
            Self::OtherUser => "run both ends as one user, or use the path `any`",
            Self::Silent => "check that the peer is not stopped, and try again",
            Self::Refused => {
                "run both ends from one version, and check the limits of the peer's memory and \
                open files; or use the path `any`"
            }
            Self::Descriptors => {
                "end other programs, or raise the limit of open files (`ulimit -n`)"
            }
            Self::Memory => {
                "free some memory, or raise its limits (that of the container, `ulimit -f`)"
            }
            Self::Full => "connect to fewer processes at a time, or use the path `any`",
            Self::System => {
                "allow memfd_create, its seals and Unix sockets in the filter of system calls \
                (seccomp), or use the path `any`"
            }
            Self::Required => {
                "run both ends on one host, as one user and without the path `packets`; or start \
                the other end with the path `any`"
            }
            Self::Taken => "stop that process, or use another port",
        }
    }
}

impl fmt::Display for NotLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OtherHost => "the address is of another host, or of another network namespace",
            Self::Nobody => "no process listens at that address and port for peers of this host",
            Self::OtherUser => "the peer is a process of another user",
            Self::Silent => "the peer is there and has not answered in time",
            Self::Refused => "the peer did not take the shared memory",
            Self::Descriptors => "the process or the host has no file descriptor left",
            Self::Memory => "there is no memory to share",
            Self::Full => "the adapter shares memory with as many others as it can",
            Self::System => "the system refuses a call that shared memory needs",
            Self::Required => {
                "the peer takes processes of its user and host only, through shared memory"
            }
            Self::Taken => "another process has the name of this port for shared memory",
        })
    }
}
