//! In what backends may differ: all of it, and nothing else.

/// What is left out of the lists for a backend, or counts as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Nothing is bound.
    NoWindows,
    /// No message is sent that finds no receive, or one that is too short, and nothing names memory that is not open: which end learns
    /// what of it differs.
    NothingBreaks,
    /// Nothing is posted right before the end of a connection: how far it gets differs.
    EndsAtRest,
    /// Messages take the shared buffers in the order in which these were posted; the mock beside it is told so.
    BuffersAsPosted,
    /// Nothing is bound on an end that is not connected: after a bind that was flushed the window cannot be bound any more.
    BindsConnected,
    /// No read is posted while another one of the endpoint, into the same memory, may be under way: which of them writes last is open.
    ReadsApart,
}

/// The differences of each backend from the mock, and why.
pub const DIFFERENCES: &[(&str, Difference, &str)] = &[
    (
        "pvrdma",
        Difference::NoWindows,
        "the device has no windows, so that there is nothing to bind",
    ),
    (
        "verbs",
        Difference::NothingBreaks,
        "the messages of verbs tell a peer whose own queue pair did not fail of a disconnect, not of a broken connection; soft-RoCE tells of a \
         receive that is too short as a fault of the queue pair",
    ),
    (
        "verbs",
        Difference::EndsAtRest,
        "a device of its own carries out what was posted while the call after it is made",
    ),
    (
        "verbs",
        Difference::BuffersAsPosted,
        "which of the shared buffers a message takes is open (SRC-05): soft-RoCE takes the oldest, the models as the seed of the fabric wills",
    ),
    (
        "verbs",
        Difference::BindsConnected,
        "soft-RoCE's library counts the key of a window on with every post, its kernel with every bind that was carried out, and refuses binds \
         where the two differ",
    ),
    (
        "verbs",
        Difference::ReadsApart,
        "in which order reads that are under way write the bytes that they share is open: soft-RoCE takes them as they were posted, the mock as \
         the seed of its fabric wills",
    ),
];

/// Whether a backend differs in this.
pub(super) fn differs(backend: &str, what: Difference) -> bool {
    DIFFERENCES
        .iter()
        .any(|(name, known, _)| *name == backend && *known == what)
}
