//! The operations of a run.

use crate::script::operations;

operations! {
    /// The next operation; numbers select an object modulo their count.
    enum Operation % 19, 6 bytes {
        /// Sends a message of the intruder.
        0 => SendMessage {
            /// The kind; the upper bits select the number of slots that the message returns.
            kind,
            /// The intruder's name of the connection; the upper bits select qualifier and address.
            from,
            /// The victim's name: a received one, newest first; the upper bits falsify it.
            to,
            /// The queue pair.
            pair,
            /// The bytes of private data.
            data,
        }
        /// Changes the intruder's next message.
        1 => Alter {
            /// The kind of change.
            how,
            /// The offset, or the number of bytes.
            offset,
            /// The new byte.
            value,
        }
        /// Sends noise.
        2 => Noise {
            /// The number of bytes.
            length,
            /// The seed of the noise.
            seed,
            /// Selects a start like that of a message.
            head,
        }
        /// Sends an earlier message again, counted from the newest.
        3 => Repeat {
            /// The message.
            which,
        }
        /// Posts receives for the victim's messages, or stops doing so.
        4 => Listen {
            /// Set to stop.
            deaf,
        }
        /// Connects one of the intruder's queue pairs to one of the victim's.
        5 => Join {
            /// The intruder's queue pair.
            pair,
            /// The received number of the victim's queue pair, newest first.
            to,
        }
        /// Transfers data of the intruder.
        6 => Transfer {
            /// The queue pair; one number past the last selects the channel's.
            pair,
            /// The kind: Send, RDMA Write, RDMA Read.
            kind,
            /// The address in the victim's memory.
            target,
            /// The key.
            key,
            /// The length, in units of 8 bytes.
            length,
        }
        /// Connects the victim to the intruder.
        7 => Connect {
            /// The endpoint.
            ep,
            /// The bytes of private data.
            data,
            /// The timeout in tenths of a second; 0 for none.
            timeout,
        }
        /// Answers a request of the intruder.
        8 => Answer {
            /// The request, oldest first.
            which,
            /// The kind of answer.
            how,
            /// The endpoint.
            ep,
            /// The bytes of private data.
            data,
        }
        /// Ends a connection or an attempt of the victim.
        9 => Disconnect {
            /// The endpoint.
            ep,
            /// The kind of end.
            how,
        }
        /// Resets an endpoint of the victim.
        10 => Reset {
            /// The endpoint.
            ep,
        }
        /// Frees an endpoint of the victim, and creates another one.
        11 => Replace {
            /// The endpoint.
            ep,
        }
        /// Posts something on the victim.
        12 => Post {
            /// The endpoint.
            ep,
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
        /// Dequeues events of the victim.
        13 => Take {
            /// The dispatcher, in the lowest bits.
            dispatcher,
        }
        /// Starts or stops listening on a second qualifier of the victim.
        14 => Service
        /// Advances all sides.
        15 => Advance {
            /// The number of rounds; the highest bit makes the victim sleep.
            steps,
        }
        /// Advances the time.
        16 => AdvanceTime {
            /// The number of seconds.
            seconds,
        }
        /// Exchanges messages between the victim and its friend.
        17 => Exchange
        /// Connects the friend again.
        18 => Reconnect
    }
}
