//! Threads that call one adapter at a time, in an interleaving that the input decides down to single accesses.
//!
//! Three threads do a list of calls each, on the same objects: posts, takes, waits, frees, connections that end. One of them runs at a time; at
//! each access to a word or a lock of the core it may be the next one's turn. Whatever the order, no thread waits for ever, no call finds a fault
//! of the provider's own, and the calls have to look as if they were done one after the other, as far as that can be seen: what is posted
//! completes once, a region that is freed is named by nobody any more, events come once and in their order and are there when they were
//! queued, who waits is woken, and in the end everything can be freed.

#[cfg(feature = "sched")]
mod history;
#[cfg(feature = "sched")]
mod play;
mod script;
#[cfg(feature = "sched")]
mod turns;

#[cfg(feature = "sched")]
pub use self::play::run;
pub use self::script::{
    BUFFERS, IMMEDIATE, MESSAGES, OPERATION_SIZE, OPERATIONS, Operation, POLLS, RECEIVE,
    SCRIPT_SIZE, SETUP_SIZE, SHARED_RECEIVE, THREADS, encode,
};
