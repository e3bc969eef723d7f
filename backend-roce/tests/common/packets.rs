//! Packets that tests make, and readings of those that engines send.

use backend_roce::proto::Psn;
use backend_roce::proto::memory::{AtomicOperation, RemoteAddress};
use backend_roce::proto::packet::{
    Aeth, AtomicEth, Bth, Extensions, Header, Opcode, Packet, Reth, Syndrome,
};

/// A packet with the bytes of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub header: Header,
    pub payload: Vec<u8>,
}

impl Made {
    pub fn new(opcode: Opcode, psn: u32, payload: &[u8]) -> Self {
        let bth = Bth {
            opcode,
            solicited: false,
            destination: 0x11,
            acknowledge: false,
            psn: Psn::new(psn),
        };
        let extensions = Extensions::default();
        Self {
            header: Header { bth, extensions },
            payload: payload.to_vec(),
        }
    }

    pub fn asking(mut self) -> Self {
        self.header.bth.acknowledge = true;
        self
    }

    pub fn reth(mut self, key: u32, address: u64, length: u32) -> Self {
        let remote = RemoteAddress { key, address };
        self.header.extensions.reth = Some(Reth { remote, length });
        self
    }

    pub fn immediate(mut self, immediate: [u8; 4]) -> Self {
        self.header.extensions.immediate = Some(immediate);
        self
    }

    pub fn invalidate(mut self, key: u32) -> Self {
        self.header.extensions.invalidate = Some(key);
        self
    }

    pub fn atomic(mut self, key: u32, address: u64, operation: AtomicOperation) -> Self {
        let remote = RemoteAddress { key, address };
        self.header.extensions.atomic = Some(AtomicEth { remote, operation });
        self
    }

    pub fn aeth(mut self, syndrome: Syndrome) -> Self {
        self.header.extensions.aeth = Some(Aeth { syndrome, msn: 0 });
        self
    }

    pub fn original(mut self, original: u64) -> Self {
        self.header.extensions.original = Some(original);
        self
    }

    pub fn packet(&self) -> Packet<'_> {
        Packet {
            header: self.header,
            payload: &self.payload,
        }
    }
}

/// An acknowledgement.
pub fn acknowledge(psn: u32, syndrome: Syndrome) -> Made {
    Made::new(Opcode::Acknowledge, psn, &[]).aeth(syndrome)
}

/// Summary of a packet that an engine sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub opcode: Opcode,
    pub psn: u32,
    pub acknowledge: bool,
    pub solicited: bool,
    pub extensions: Extensions,
    pub payload: Vec<u8>,
}

/// Reads a datagram that an engine wrote.
pub fn sent(datagram: &[u8]) -> Sent {
    let packet = Packet::decode(datagram).expect("packet");
    Sent {
        opcode: packet.header.bth.opcode,
        psn: packet.header.bth.psn.value(),
        acknowledge: packet.header.bth.acknowledge,
        solicited: packet.header.bth.solicited,
        extensions: packet.header.extensions,
        payload: packet.payload.to_vec(),
    }
}
