//! Seeds of `roce_packet`: a packet of each opcode, and a message of each kind.

use backend_roce::proto::Psn;
use backend_roce::proto::connection::{MAD_LENGTH, Mad, encode_packet};
use backend_roce::proto::memory::{AtomicOperation, RemoteAddress};
use backend_roce::proto::packet::{
    Aeth, AtomicEth, Bth, Deth, Extensions, Header, OVERHEAD_MAX, Opcode, Reth, RnrTimer, Syndrome,
};
use dat_fuzz::roce_session::messages;

use super::Seed;

/// Returns the seeds.
pub(super) fn seeds() -> Vec<Seed> {
    let opcodes = (0..=u8::MAX).filter_map(Opcode::from_code);
    let packets = opcodes.map(|opcode| (format!("{opcode:?}").to_lowercase(), packet(opcode)));
    let messages = messages().into_iter();
    let messages = messages.map(|(name, mad)| (name.to_owned(), carry(&mad)));
    packets.chain(messages).collect()
}

fn packet(opcode: Opcode) -> Vec<u8> {
    let remote = RemoteAddress {
        key: 0x0102_0304,
        address: 0x7000_0000_0010,
    };
    let operation = match opcode {
        Opcode::FetchAdd => AtomicOperation::FetchAdd(5),
        _ => AtomicOperation::CompareSwap {
            compare: 6,
            swap: 7,
        },
    };
    let extensions = Extensions {
        deth: Some(Deth {
            queue_key: 0x8001_0000,
            source: 1,
        }),
        reth: Some(Reth { remote, length: 13 }),
        atomic: Some(AtomicEth { remote, operation }),
        aeth: Some(Aeth {
            syndrome: Syndrome::ReceiverNotReady(RnrTimer::from_code(20)),
            msn: 9,
        }),
        original: Some(11),
        immediate: Some([1, 2, 3, 4]),
        invalidate: Some(12),
    };
    let bth = Bth {
        opcode,
        solicited: true,
        destination: 0x22,
        acknowledge: true,
        psn: Psn::new(0xFF_FFFF),
    };
    let payload: &[u8] = if opcode.has_payload() { &[5; 13] } else { &[] };
    let mut buffer = vec![0; payload.len() + 3 + OVERHEAD_MAX];
    let written = Header { bth, extensions }.encode_with(payload, &mut buffer);
    buffer.truncate(written.expect("every header is there"));
    buffer
}

/// Returns the packet of a message.
fn carry(mad: &Mad) -> Vec<u8> {
    let mut buffer = vec![0; MAD_LENGTH + OVERHEAD_MAX];
    let written = encode_packet(&mad.encode(), Psn::new(0), &mut buffer);
    buffer.truncate(written.expect("room"));
    buffer
}
