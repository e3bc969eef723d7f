//! All permitted differences between backends.

/// A restriction that a backend puts on the lists or on the mock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The list binds no windows.
    NoWindows,
    /// Connected endpoints send only messages that fit the peer's oldest receive.
    ///
    /// After a message without a receive, or with a too short one, it differs which end learns of
    /// the failure, and how. No list names memory that is closed to the peer.
    NothingBreaks,
    /// Everything comes to rest before a disconnect.
    ///
    /// It differs how many of the requests posted just before it are carried out.
    EndsAtRest,
    /// Messages take shared buffers in the order of posting; the mock gets the same option.
    BuffersAsPosted,
    /// Binds are posted only on connected endpoints.
    ///
    /// libibverbs counts the key of a window for a flushed bind, too; the device does not.
    BindsConnected,
    /// Reads into the same memory wait for each other.
    ///
    /// It is not specified which of two concurrent reads writes last.
    ReadsApart,
}

/// The differences of each backend from the mock, with the reason.
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
    (
        "roce",
        Difference::NothingBreaks,
        "a fault ends the queue pair that finds it at once, with requests that the peer carried out and whose acknowledgements are on their way; \
         the mock has completed these before",
    ),
    (
        "roce",
        Difference::EndsAtRest,
        "the messages that end a connection overtake requests whose packets are on their way, or wait for an acknowledgement; the mock carries \
         out a request when it takes it",
    ),
    (
        "roce",
        Difference::BuffersAsPosted,
        "which of the shared buffers a message takes is open (SRC-05): the responder takes the oldest, the mock as the seed of its fabric wills",
    ),
    (
        "roce",
        Difference::ReadsApart,
        "in which order reads that are under way write the bytes that they share is open: the requester takes the responses as the reads were \
         posted, the mock as the seed of its fabric wills",
    ),
    (
        "local",
        Difference::NothingBreaks,
        "as on roce: the ends run the same protocol",
    ),
    (
        "local",
        Difference::EndsAtRest,
        "an abrupt end flushes requests that the peer carried out, if their acknowledgements are still in a queue",
    ),
    (
        "local",
        Difference::BuffersAsPosted,
        "which of the shared buffers a message takes is open (SRC-05): the responder takes the oldest, the mock as the seed of its fabric wills",
    ),
    (
        "local",
        Difference::ReadsApart,
        "as on roce: the requester takes the responses as the reads were posted",
    ),
];

/// Returns true if the backend has this difference.
pub(super) fn differs(backend: &str, what: Difference) -> bool {
    DIFFERENCES
        .iter()
        .any(|(name, known, _)| *name == backend && *known == what)
}
