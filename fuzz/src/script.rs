//! The encoding of operations: targets read it, and seeds are written in it.

/// An operation of a target: a number, its arguments, and zeros, together `SIZE` bytes.
pub trait Script: Copy {
    /// The bytes of one operation in an input.
    const SIZE: usize;

    /// Appends the number and the arguments.
    fn write(self, input: &mut Vec<u8>);

    /// Returns the operation with this number, and arguments from `next`.
    fn read(number: u8, next: impl FnMut() -> u8) -> Self;
}

/// Returns an input: the bytes of its setup, then its operations.
pub fn encode<O: Script>(setup: &[u8], operations: &[O]) -> Vec<u8> {
    let mut input = setup.to_vec();
    for operation in operations {
        let end = input.len() + O::SIZE;
        operation.write(&mut input);
        input.resize(end, 0);
    }
    input
}

/// Returns the operations after the setup of an input, at most `most`.
pub(crate) fn decode<O: Script>(bytes: &[u8], most: usize) -> Vec<O> {
    let each = bytes.chunks_exact(O::SIZE).take(most).map(|operation| {
        let mut rest = operation.iter().copied();
        let mut next = || rest.next().expect("an argument");
        O::read(next(), next)
    });
    each.collect()
}

/// Returns an object by a number that counts modulo the number of objects; `None` if there is none.
pub(crate) fn pick<T: Copy>(objects: &[T], number: usize) -> Option<T> {
    objects.get(number % objects.len().max(1)).copied()
}

/// Defines the operations of a target: their numbers, and their arguments of one byte each.
///
/// A number in an input counts modulo the first figure; several numbers can mean one operation.
macro_rules! operations {
    (
        $(#[$about:meta])*
        enum Operation % $numbers:literal, $size:literal bytes {$(
            $(#[$doc:meta])*
            $number:literal $(| $other:literal)* => $name:ident
            $({ $($(#[$argument_doc:meta])* $argument:ident,)* })?
        )*}
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation {$(
            $(#[$doc])*
            $name $({ $($(#[$argument_doc])* $argument: u8,)* })?,
        )*}

        impl $crate::script::Script for Operation {
            const SIZE: usize = $size;

            fn write(self, input: &mut Vec<u8>) {
                match self {$(
                    Self::$name $({ $($argument),* })? => {
                        input.extend([$number $(, $($argument),*)?]);
                    }
                )*}
            }

            fn read(number: u8, mut _next: impl FnMut() -> u8) -> Self {
                match number % $numbers {
                    $($number $(| $other)* => Self::$name $({ $($argument: _next()),* })?,)*
                    _ => unreachable!("every number has an operation"),
                }
            }
        }
    };
}
pub(crate) use operations;

/// Values of arguments that mean the same in several targets.
pub mod argument {
    /// Kinds of posts.
    pub const SEND: u8 = 0;
    /// An RDMA Write.
    pub const WRITE: u8 = 1;
    /// An RDMA Read.
    pub const READ: u8 = 2;
    /// A receive on an endpoint.
    pub const RECEIVE: u8 = 3;
    /// A receive on the shared receive queue.
    pub const SHARED_RECEIVE: u8 = 4;
    /// A bind of a window.
    pub const BIND: u8 = 5;
    /// A batch of RDMA Writes.
    pub const WRITES: u8 = 6;
    /// A batch of receives.
    pub const RECEIVES_AT_ONCE: u8 = 7;

    /// The dispatcher of receives.
    pub const RECEIVES: u8 = 0;
    /// The dispatcher of requests.
    pub const REQUESTS: u8 = 1;
    /// The dispatcher of connections.
    pub const CONNECTIONS: u8 = 2;
    /// The dispatcher of connection requests.
    pub const ARRIVALS: u8 = 3;

    /// Bit of a dispatcher or device: dequeues into a sink.
    pub const INTO: u8 = 0x80;
    /// Bit of a threshold: waits by `evd_wait_now`.
    pub const NOW: u8 = 0x40;
    /// Bit of a threshold: polls a wait as a future.
    pub const FUTURE: u8 = 0x80;
}
