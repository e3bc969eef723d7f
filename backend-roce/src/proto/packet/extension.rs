//! The extension headers that follow a BTH.

use super::aeth::Aeth;
use super::opcode::Opcode;
use crate::proto::bytes::{Reader, Writer};
use crate::proto::memory::{AtomicOperation, RemoteAddress};

/// RDMA extended transport header (ROCE-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Address of the first byte.
    pub remote: RemoteAddress,
    /// Length of the whole message.
    pub length: u32,
}

/// Atomic extended transport header, with the operation of its opcode (ROCE-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address of the 8 bytes.
    pub remote: RemoteAddress,
    /// Operation on the eight bytes.
    pub operation: AtomicOperation,
}

/// Datagram extended transport header (ROCE-16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Key of the receiving queue pair.
    pub queue_key: u32,
    /// QPN of the sender, 24 bits.
    pub source: u32,
}

/// The extension headers of a packet; its opcode says which are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extensions {
    /// DETH.
    pub deth: Option<Deth>,
    /// RETH.
    pub reth: Option<Reth>,
    /// AtomicETH.
    pub atomic: Option<AtomicEth>,
    /// AETH.
    pub aeth: Option<Aeth>,
    /// AtomicAckETH: the value before the operation (ROCE-14).
    pub original: Option<u64>,
    /// ImmDt (ROCE-15).
    pub immediate: Option<[u8; 4]>,
    /// IETH: the key to invalidate (ROCE-17).
    pub invalidate: Option<u32>,
}

impl Extensions {
    /// Writes the headers that `opcode` has; `None` if one is missing or room is short.
    pub(crate) fn encode(&self, opcode: Opcode, writer: &mut Writer<'_>) -> Option<()> {
        if opcode.has_deth() {
            let deth = self.deth?;
            writer.u32(deth.queue_key)?;
            writer.u8(0)?;
            writer.u24(deth.source)?;
        }
        if opcode.has_reth() {
            let reth = self.reth?;
            put_remote(reth.remote, writer)?;
            writer.u32(reth.length)?;
        }
        if opcode.has_atomic_eth() {
            let atomic = self.atomic?;
            put_remote(atomic.remote, writer)?;
            let (operand, compare) = match (opcode, atomic.operation) {
                (Opcode::CompareSwap, AtomicOperation::CompareSwap { compare, swap }) => {
                    (swap, compare)
                }
                (Opcode::FetchAdd, AtomicOperation::FetchAdd(operand)) => (operand, 0),
                _ => return None,
            };
            writer.u64(operand)?;
            writer.u64(compare)?;
        }
        if opcode.has_aeth() {
            writer.put(&self.aeth?.encode())?;
        }
        if opcode.has_atomic_ack_eth() {
            writer.u64(self.original?)?;
        }
        if opcode.has_immediate() {
            writer.put(&self.immediate?)?;
        }
        if opcode.has_ieth() {
            writer.u32(self.invalidate?)?;
        }
        Some(())
    }

    /// Reads the headers that `opcode` has; `None` if the packet is too short for them.
    pub(crate) fn decode(opcode: Opcode, reader: &mut Reader<'_>) -> Option<Self> {
        let mut extensions = Self::default();
        if opcode.has_deth() {
            let queue_key = reader.u32()?;
            reader.skip(1)?;
            let source = reader.u24()?;
            extensions.deth = Some(Deth { queue_key, source });
        }
        if opcode.has_reth() {
            let remote = get_remote(reader)?;
            let length = reader.u32()?;
            extensions.reth = Some(Reth { remote, length });
        }
        if opcode.has_atomic_eth() {
            let remote = get_remote(reader)?;
            let (operand, compare) = (reader.u64()?, reader.u64()?);
            let operation = match opcode {
                Opcode::FetchAdd => AtomicOperation::FetchAdd(operand),
                _ => AtomicOperation::CompareSwap {
                    compare,
                    swap: operand,
                },
            };
            extensions.atomic = Some(AtomicEth { remote, operation });
        }
        if opcode.has_aeth() {
            extensions.aeth = Some(Aeth::decode(reader.array()?));
        }
        if opcode.has_atomic_ack_eth() {
            extensions.original = Some(reader.u64()?);
        }
        if opcode.has_immediate() {
            extensions.immediate = Some(reader.array()?);
        }
        if opcode.has_ieth() {
            extensions.invalidate = Some(reader.u32()?);
        }
        Some(extensions)
    }
}

fn put_remote(remote: RemoteAddress, writer: &mut Writer<'_>) -> Option<()> {
    writer.u64(remote.address)?;
    writer.u32(remote.key)
}

fn get_remote(reader: &mut Reader<'_>) -> Option<RemoteAddress> {
    let address = reader.u64()?;
    let key = reader.u32()?;
    Some(RemoteAddress { key, address })
}
