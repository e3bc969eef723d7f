//! Counts of an adapter and of its connections.

use core::net::SocketAddr;

use crate::proto::requester::RequesterCounts;
use crate::proto::responder::ResponderCounts;

/// Counts of an adapter since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterCounts {
    /// Packets received.
    pub packets: u64,
    /// Bytes of the packets received.
    pub bytes: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes of the packets sent.
    pub bytes_sent: u64,
    /// Packets with a wrong ICRC.
    pub bad_icrc: u64,
    /// Packets that no decoder takes, or that name no queue pair.
    pub dropped: u64,
    /// Congestion notifications (ROCE-25).
    pub congestion: u64,
    /// Connections that a peer refused because it has no room for another request.
    pub without_room: u64,
    /// Sum over all connections, also over those that ended.
    pub requester: RequesterCounts,
    /// Sum over all connections, also over those that ended.
    pub responder: ResponderCounts,
}

impl AdapterCounts {
    /// Returns all counts with names for reports.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 19] {
        let (requester, responder) = (&self.requester, &self.responder);
        [
            ("packets_received", self.packets),
            ("bytes_received", self.bytes),
            ("packets_sent", self.packets_sent),
            ("bytes_sent", self.bytes_sent),
            ("wrong_icrc", self.bad_icrc),
            ("dropped", self.dropped),
            ("congestion_notifications", self.congestion),
            ("refused_without_room", self.without_room),
            ("posts", requester.posts),
            ("posted_bytes", requester.bytes),
            ("request_packets", requester.packets),
            ("retransmits", requester.retransmits),
            ("timeouts", requester.timeouts),
            ("losses", requester.losses),
            ("rnr_naks_received", requester.not_ready),
            ("executed", responder.executed),
            ("duplicates", responder.duplicates),
            ("out_of_order", responder.ahead),
            ("rnr_naks_sent", responder.not_ready),
        ]
    }
}

/// Counts of a connection since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Address that packets to the peer are sent to.
    pub peer: SocketAddr,
    /// Requests of this side.
    pub requester: RequesterCounts,
    /// Requests of the peer.
    pub responder: ResponderCounts,
}
