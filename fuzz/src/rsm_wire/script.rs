//! The operations of an input.

use crate::script::operations;

operations! {
    /// The next operation; numbers select sensible values and some others.
    enum Operation % 6, 6 bytes {
        /// Sends a message of the intruder with these fields.
        0 => SendMessage {
            /// The type, modulo the number of types.
            kind,
            /// The first word.
            word,
            /// The second word.
            other,
            /// The 32-bit fields.
            half,
            /// The position of a changed byte, counted from 1.
            ///
            /// Zero or a position past the end changes none.
            bent,
        }
        /// Sends these bytes of the intruder, repeated.
        1 => Noise {
            /// The first byte.
            first,
            /// The second byte.
            second,
            /// The third byte.
            third,
            /// The fourth byte.
            fourth,
            /// The fifth byte.
            fifth,
        }
        /// Reads or writes through a key.
        2 => Access {
            /// Odd to write, even to read.
            write,
            /// The key.
            key,
            /// The offset.
            offset,
            /// The length.
            length,
            /// The base address: that of the key, or one of the victim's pages.
            target,
        }
        /// Connects the intruder again.
        3 => Greet {
            /// The variant of its greeting.
            variant,
        }
        /// Makes a call of the victim.
        4 => Victim {
            /// The call.
            call,
            /// The segment.
            segment,
        }
        /// Waits until everything is at rest and time has passed.
        5 => RunToIdle {
            /// The number of milliseconds.
            time,
        }
    }
}
