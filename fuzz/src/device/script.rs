//! The operations of a run.

use crate::script::operations;

operations! {
    /// The next operation; numbers select an object modulo their count.
    enum Operation % 11, 6 bytes {
        /// Posts something.
        0 => Post {
            /// The device in the lowest bit, the endpoint in the next one.
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
            /// The device, in the lowest bit.
            at,
            /// The dispatcher.
            dispatcher,
        }
        /// Starts a wait and polls it once.
        2 => Wait {
            /// The device.
            at,
            /// The dispatcher.
            dispatcher,
            /// The number of events; the upper two bits select `evd_wait_now`, a future, or a poll.
            threshold,
        }
        /// Advances the fabric and the adapters.
        3 => Advance {
            /// The number of steps.
            steps,
        }
        /// Changes a word that the suspect device shares with its driver.
        4 => Corrupt {
            /// The memory area.
            area,
            /// The index of the word, its low byte.
            low,
            /// The high byte.
            high,
            /// The kind of change.
            how,
            /// The operand of the change.
            value,
        }
        /// Forges the next completion of the suspect device.
        5 => BadCqe {
            /// The false field.
            kind,
            /// The bit to flip, or the seed of noise.
            bit,
        }
        /// Reports a false event of the suspect device.
        6 => FalseEvent {
            /// The kind of event.
            kind,
            /// The number of the object.
            number,
        }
        /// Falsifies the suspect device's next answer to a command.
        7 => FalseAnswer {
            /// The word of the answer.
            word,
            /// The bit; a value above 31 selects all bits.
            bit,
        }
        /// Removes the suspect device from its bus.
        8 => Unplug
        /// Ends a connection, or makes it again.
        9 => Connection {
            /// The device in the lowest bit, the connection above it.
            at,
            /// The kind of change.
            how,
        }
        /// Creates and frees an object.
        10 => Make {
            /// The device.
            at,
            /// The kind of object.
            kind,
        }
    }
}

/// The bytes before the operations.
///
/// They are: the seed of the fabric; the layout, odd for the paravirtual one, with the device's
/// quirks above the lowest bit; and two numbers for the quirks.
pub const SETUP_SIZE: usize = 4;
