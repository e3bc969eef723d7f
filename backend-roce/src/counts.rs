//! Counts of an adapter and of its connections.

use core::net::SocketAddr;

use dat_core::backend::Count;

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
    /// Packets that no decoder takes, or that name no queue pair, and datagrams without a way.
    pub dropped: u64,
    /// Congestion notifications (ROCE-25).
    pub congestion: u64,
    /// Connections that a peer refused because it has no room for another request.
    pub without_room: u64,
    /// Connections made.
    pub connections: u64,
    /// The local way. Its connections and packets count above, too.
    pub local: LocalCounts,
    /// Sum over all connections, also over those that ended.
    pub requester: RequesterCounts,
    /// Sum over all connections, also over those that ended.
    pub responder: ResponderCounts,
}

/// Counts of the queues in memory to adapters of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalCounts {
    /// Connections made on this way.
    pub connections: u64,
    /// Pairs of queues that are open now.
    pub pairs: u64,
    /// Packets taken from queues.
    pub packets: u64,
    /// Bytes of the packets taken from queues.
    pub bytes: u64,
    /// Packets put into queues.
    pub packets_sent: u64,
    /// Bytes of the packets put into queues.
    pub bytes_sent: u64,
    /// Times that a queue had no room for the next packet.
    pub full: u64,
    /// Doorbells rung, for packets and for room.
    pub doorbells: u64,
}

impl AdapterCounts {
    /// Reports each count with its name.
    pub(crate) fn report(&self, report: &mut dyn FnMut(Count, u64)) {
        let (requester, responder, local) = (&self.requester, &self.responder, &self.local);
        for (count, value) in [
            (Count::PacketsReceived, self.packets),
            (Count::BytesReceived, self.bytes),
            (Count::PacketsSent, self.packets_sent),
            (Count::BytesSent, self.bytes_sent),
            (Count::WrongIcrc, self.bad_icrc),
            (Count::Dropped, self.dropped),
            (Count::CongestionNotifications, self.congestion),
            (Count::RefusedWithoutRoom, self.without_room),
            (Count::Posts, requester.posts),
            (Count::PostedBytes, requester.bytes),
            (Count::RequestPackets, requester.packets),
            (Count::Retransmits, requester.retransmits),
            (Count::Timeouts, requester.timeouts),
            (Count::Losses, requester.losses),
            (Count::RnrNaksReceived, requester.not_ready),
            (Count::Executed, responder.executed),
            (Count::Duplicates, responder.duplicates),
            (Count::OutOfOrder, responder.ahead),
            (Count::RnrNaksSent, responder.not_ready),
            (Count::Connections, self.connections),
            (Count::LocalConnections, local.connections),
            (Count::LocalPairs, local.pairs),
            (Count::LocalPacketsReceived, local.packets),
            (Count::LocalBytesReceived, local.bytes),
            (Count::LocalPacketsSent, local.packets_sent),
            (Count::LocalBytesSent, local.bytes_sent),
            (Count::LocalFull, local.full),
            (Count::Doorbells, local.doorbells),
        ] {
            report(count, value);
        }
    }
}

/// Counts of a connection since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Address that packets to the peer are sent to.
    pub peer: SocketAddr,
    /// Set if its packets go through queues in memory.
    pub is_local: bool,
    /// Requests of this side.
    pub requester: RequesterCounts,
    /// Requests of the peer.
    pub responder: ResponderCounts,
}
