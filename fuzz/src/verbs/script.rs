//! The operations of a run.

use crate::script::operations;

/// The bytes before the operations: the device's oddities, and three numbers for them.
pub const SETUP_SIZE: usize = 4;

/// The device has only windows of type 2.
pub const SECOND_WINDOWS: u8 = 1;
/// The device misreports an attribute.
pub const FALSE_ATTRIBUTE: u8 = 2;
/// The device numbers queue pairs unusually.
pub const ODD_NUMBERS: u8 = 4;

operations! {
    /// The next operation; numbers select an object modulo their count.
    enum Operation % 15, 8 bytes {
        /// Posts something.
        0 => Post {
            /// The endpoint, above the lowest bit.
            at,
            /// The kind of post.
            ///
            /// Send, RDMA Write, RDMA Read, receive, shared receive, bind, a batch of RDMA Writes,
            /// a batch of receives.
            kind,
            /// The offset in the page, in units of 16 bytes.
            offset,
            /// The length, in units of 8 bytes.
            length,
            /// The flags; the upper bits select no, one or two segments.
            flags,
        }
        /// Dequeues events.
        1 => Take {
            /// The dispatcher, in the lowest bits.
            from,
        }
        /// Starts a wait and polls it once.
        2 => Wait {
            /// The dispatcher.
            from,
            /// The number of events; the upper two bits select `evd_wait_now`, a future, or a poll.
            threshold,
        }
        /// Advances the adapter.
        3 => Advance {
            /// The number of rounds.
            rounds,
        }
        /// Completes posted requests as carried out.
        4 => CarryOut {
            /// The queue pair; the lowest bit selects receives.
            pair,
            /// The number of requests.
            count,
            /// The most bytes of each, in units of 8.
            length,
        }
        /// Forges a completion.
        5 => Forge {
            /// The completion queue.
            queue,
            /// The request.
            which,
            /// The false part of the token, if any.
            how,
            /// The status.
            status,
            /// The operation code.
            opcode,
            /// The length.
            length,
            /// The number of the queue pair.
            pair,
        }
        /// Answers the next poll with nonsense.
        6 => Answer {
            /// The completion queue.
            queue,
            /// The kind of nonsense.
            number,
        }
        /// Delivers the event that follows from the calls on an identifier.
        7 => Follow {
            /// The identifier.
            which,
            /// The private data of the event.
            data,
        }
        /// Delivers a false event on an identifier.
        8 => FalseCmEvent {
            /// The identifier.
            which,
            /// The kind of event.
            kind,
            /// The status.
            status,
            /// The private data of the event.
            data,
            /// The length of the private data.
            length,
            /// The RDMA Reads that the peer requests and grants.
            depths,
            /// The address of the peer.
            peer,
        }
        /// Delivers a false asynchronous event of the device.
        9 => FalseEvent {
            /// The kind of event.
            kind,
            /// The object.
            which,
        }
        /// Refuses the next calls.
        10 => Refuse {
            /// The number of calls.
            count,
            /// The error.
            error,
        }
        /// Starts, ends or answers a connection.
        11 => Connection {
            /// The endpoint.
            pair,
            /// The kind of change.
            how,
            /// The connection request; also selects the length of private data.
            which,
        }
        /// Creates and frees an object.
        12 => Make {
            /// The kind of object.
            kind,
        }
        /// Notifies without a completion.
        13 => Notify {
            /// The completion queue.
            queue,
        }
        /// Stops flushing from here on.
        14 => Keep
    }
}
