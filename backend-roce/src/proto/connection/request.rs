//! REQ: the request to connect.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::private_data::PrivateData;
use crate::proto::bytes::{Reader, Writer};
use crate::proto::{PathMtu, Psn};

/// Private data of the consumer in a REQ: what rdma_cm leaves (ROCE-149).
pub const REQUEST_PRIVATE: usize = 56;

/// The service ids of connection qualifiers: this, and the qualifier (ROCE-150).
const SERVICE: u64 = 0x0106_0000;

const PARTITION: u16 = 0xFFFF;
const NO_LID: u16 = 0xFFFF;
const HOP_LIMIT: u8 = 64;

/// The mark of our own ends, in place of an alternate path (ROCE-47).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// UDP port of the active side.
    pub port: u16,
    /// UDP port that was dialled.
    pub dialled: u16,
    /// Flags: [`Mark::REVISION_2`], or 0.
    pub flags: u8,
    /// Length of private data that the room of rdma_cm cannot hold, plus one; else 0.
    pub private_length: u8,
    /// A random value of the attempt.
    pub nonce: [u8; 8],
    /// The cookie of the passive side; 0 for none (ROCE-194). Revision 1 has another random value.
    pub cookie: u64,
    /// Private data beyond the room of rdma_cm.
    pub private_tail: [u8; PRIVATE_TAIL],
}

impl Mark {
    /// Flag of an active side that repeats its REQ with a cookie.
    pub const REVISION_2: u8 = 1;

    /// Returns true if the active side repeats its REQ with a cookie (ROCE-194).
    pub const fn takes_cookie(&self) -> bool {
        self.flags & Self::REVISION_2 != 0
    }
}

/// Bytes of private data that the mark can hold.
pub const PRIVATE_TAIL: usize = 8;

const MAGIC: [u8; 8] = *b"DAT-RoCE";
const MARK_VERSION: u8 = 1;

/// A request to connect (ROCE-144).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Communication id of the active side; not 0.
    pub local_id: u32,
    /// Service id, which names the listener.
    pub service: u64,
    /// GUID of the active side's adapter.
    pub guid: u64,
    /// QPN of the active side.
    pub qpn: u32,
    /// Reads and Atomics that the active side can answer.
    pub responder_resources: u8,
    /// Reads and Atomics that the active side will have under way.
    pub initiator_depth: u8,
    /// Code of the time in which the passive side answers.
    pub remote_response_timeout: u8,
    /// Set if the transport is the reliable connection, without end-to-end flow control.
    pub is_reliable: bool,
    /// PSN at which the active side receives.
    pub starting_psn: Psn,
    /// Code of the time in which the active side answers.
    pub local_response_timeout: u8,
    /// Time-outs that the active side asks the passive side to accept.
    pub retry_count: u8,
    /// RNR NAKs that the active side asks the passive side to accept.
    pub rnr_retry_count: u8,
    /// Path MTU; `None` if the code is unknown.
    pub mtu: Option<PathMtu>,
    /// Repetitions of messages of connection management.
    pub max_retries: u8,
    /// Set if the active side has a shared receive queue.
    pub shared_receive_queue: bool,
    /// Address of the active side.
    pub source: IpAddr,
    /// Address of the passive side.
    pub destination: IpAddr,
    /// Port of the active side, for rdma_cm; it has no meaning here.
    pub source_port: u16,
    /// Code of the time-out of the active side's requests.
    pub ack_timeout: u8,
    /// The mark, if both ends are ours.
    pub mark: Option<Mark>,
    /// Private data of the consumer.
    pub private_data: PrivateData<REQUEST_PRIVATE>,
}

/// Returns the service id of a connection qualifier.
pub const fn service_of(qualifier: u16) -> u64 {
    SERVICE | qualifier as u64
}

/// Returns the connection qualifier of a service id; `None` if it is none of rdma_cm's for TCP.
pub fn qualifier_of(service: u64) -> Option<u16> {
    u16::try_from(service.checked_sub(SERVICE)?).ok()
}

/// Returns an address as a GID (ROCE-151).
fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn address(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// Returns an address as rdma_cm's header holds it: IPv4 in the last 4 bytes.
fn private_address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()).to_be_bytes(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn from_private_address(version: u8, bytes: [u8; 16]) -> Option<IpAddr> {
    match version {
        4 => {
            let [.., a, b, c, d] = bytes;
            Some(Ipv4Addr::new(a, b, c, d).into())
        }
        6 => Some(Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

const fn bit(set: bool, position: u8) -> u8 {
    (set as u8) << position
}

impl ConnectRequest {
    /// Writes the body.
    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local_id)?;
        writer.zeros(4)?;
        writer.u64(self.service)?;
        writer.u64(self.guid)?;
        writer.zeros(8)?;
        writer.u24(self.qpn)?;
        writer.u8(self.responder_resources)?;
        writer.zeros(3)?;
        writer.u8(self.initiator_depth)?;
        writer.zeros(3)?;
        // Any other transport is written as the unreliable connection.
        writer.u8(self.remote_response_timeout.min(31) << 3 | bit(!self.is_reliable, 1))?;
        writer.u24(self.starting_psn.value())?;
        writer.u8(self.local_response_timeout.min(31) << 3 | self.retry_count & 7)?;
        writer.u16(PARTITION)?;
        let mtu = self.mtu.map_or(0, PathMtu::code);
        writer.u8(mtu << 4 | self.rnr_retry_count & 7)?;
        writer.u8(self.max_retries << 4 | bit(self.shared_receive_queue, 3))?;
        writer.u16(NO_LID)?;
        writer.u16(NO_LID)?;
        writer.put(&gid(self.source))?;
        writer.put(&gid(self.destination))?;
        writer.zeros(5)?;
        writer.u8(HOP_LIMIT)?;
        writer.u8(0)?;
        writer.u8(self.ack_timeout << 3)?;
        self.encode_alternate(writer)?;
        let version = if self.source.is_ipv4() { 4 } else { 6 };
        writer.u8(0)?;
        writer.u8(version << 4)?;
        writer.u16(self.source_port)?;
        writer.put(&private_address(self.source))?;
        writer.put(&private_address(self.destination))?;
        writer.put(self.private_data.bytes())
    }

    /// Writes the alternate path: none, or the mark.
    fn encode_alternate(&self, writer: &mut Writer<'_>) -> Option<()> {
        let Some(mark) = self.mark else {
            return writer.zeros(44);
        };
        writer.zeros(4)?;
        writer.put(&MAGIC)?;
        writer.u8(MARK_VERSION)?;
        writer.u8(mark.flags)?;
        writer.u16(mark.port)?;
        writer.u16(mark.dialled)?;
        writer.u8(mark.private_length)?;
        writer.u8(0)?;
        writer.put(&mark.nonce)?;
        writer.u64(mark.cookie)?;
        writer.put(&mark.private_tail)
    }

    /// Reads the body; `None` if rdma_cm's header is not there or contradicts the GIDs.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let local_id = reader.u32()?;
        reader.skip(4)?;
        let service = reader.u64()?;
        let guid = reader.u64()?;
        reader.skip(8)?;
        let qpn = reader.u24()?;
        let responder_resources = reader.u8()?;
        reader.skip(3)?;
        let initiator_depth = reader.u8()?;
        reader.skip(3)?;
        let transport = reader.u8()?;
        let starting_psn = Psn::new(reader.u24()?);
        let retries = reader.u8()?;
        reader.skip(2)?;
        let mtu = reader.u8()?;
        let management = reader.u8()?;
        reader.skip(4)?;
        let (source, destination) = (address(reader.array()?), address(reader.array()?));
        reader.skip(7)?;
        let ack_timeout = reader.u8()? >> 3;
        let mark = Self::decode_alternate(reader)?;
        let version = reader.u16()?;
        let source_port = reader.u16()?;
        // The major version is 0; the rest of the word is the version of IP and reserved bits.
        let version = (version >> 8 == 0).then_some((version >> 4) as u8)?;
        let version = version & 0xF;
        let addresses = [source, destination];
        for address in addresses {
            if from_private_address(version, reader.array()?)? != address {
                return None;
            }
        }
        Some(Self {
            local_id,
            service,
            guid,
            qpn,
            responder_resources,
            initiator_depth,
            remote_response_timeout: transport >> 3,
            is_reliable: transport >> 1 & 3 == 0,
            starting_psn,
            local_response_timeout: retries >> 3,
            retry_count: retries & 7,
            rnr_retry_count: mtu & 7,
            mtu: PathMtu::from_code(mtu >> 4),
            max_retries: management >> 4,
            shared_receive_queue: management & 1 << 3 != 0,
            source,
            destination,
            source_port,
            ack_timeout,
            mark,
            private_data: PrivateData::from_wire(reader.array()?),
        })
    }

    fn decode_alternate(reader: &mut Reader<'_>) -> Option<Option<Mark>> {
        let lids = reader.u32()?;
        let magic: [u8; 8] = reader.array()?;
        let version = reader.u8()?;
        let flags = reader.u8()?;
        let port = reader.u16()?;
        let dialled = reader.u16()?;
        let private_length = reader.u8()?;
        reader.skip(1)?;
        let nonce = reader.array()?;
        let cookie = reader.u64()?;
        let private_tail = reader.array()?;
        let mark = Mark {
            port,
            dialled,
            flags,
            private_length,
            nonce,
            cookie,
            private_tail,
        };
        let is_marked = lids == 0 && magic == MAGIC && version == MARK_VERSION;
        Some(is_marked.then_some(mark))
    }
}
