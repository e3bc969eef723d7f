//! Threads that call one adapter, interleaved by the input at single accesses.
//!
//! Three threads perform a list of calls each on the same objects: posts, dequeues, waits, frees,
//! ends of connections. One of them runs at a time; each access to a word or a lock of the core may
//! end its turn. In every order, no thread waits forever and no call returns an internal error. The
//! calls must appear to be performed one after the other. A post completes once, and no post names
//! a freed region. Events come once, in order, and are found once queued. A waiter is woken. At the
//! end everything can be freed.

mod history;
mod play;
mod script;
mod turns;

pub use self::play::run;
pub use self::script::{
    BUFFERS, IMMEDIATE, MESSAGES, OPERATIONS, Operation, POLLS, SETUP_SIZE, THREADS, encode,
};
