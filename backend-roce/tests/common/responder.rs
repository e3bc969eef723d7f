//! A responder whose packets a test makes and takes.

use super::memory::{BASE, Exposed, Grant, Receives};
use super::packets::{Made, Sent, sent};
use backend_roce::proto::memory::AtomicOperation;
use backend_roce::proto::packet::{NakCode, Opcode, RnrTimer, Syndrome};
use backend_roce::proto::responder::{
    ReceiveCompletion, ResourceSlot, Responder, ResponderOptions,
};
use backend_roce::proto::{PathMtu, Psn};

pub const FIRST: u32 = 0xFF_FFFE;
pub const KEY: u32 = 0x5EC2_E700;
/// A window that covers a part of the region of `KEY`.
pub const NARROW: u32 = 0x5EC2_E701;
pub const READ_ONLY: u32 = 0x5EC2_E702;
pub const SIZE: usize = 4096;
/// The part of the memory that `NARROW` opens.
pub const OPEN: std::ops::Range<usize> = 1000..1400;

pub const OPTIONS: ResponderOptions = ResponderOptions {
    destination: 0x12,
    first: Psn::new(FIRST),
    mtu: PathMtu::Bytes256,
    remote_read: true,
    remote_write: true,
    remote_atomic: true,
    rnr_timer: RnrTimer::from_code(12),
};

pub const INVALID: Syndrome = Syndrome::Negative(NakCode::InvalidRequest);
pub const ACCESS: Syndrome = Syndrome::Negative(NakCode::RemoteAccess);
pub const ACK: Syndrome = Syndrome::Acknowledgement;

pub struct Bench {
    pub responder: Responder<'static>,
    pub exposed: Exposed,
    pub receives: Receives,
    pub done: Vec<ReceiveCompletion>,
}

impl Bench {
    pub fn new(options: ResponderOptions, resources: usize) -> Self {
        let slots = Box::leak(vec![ResourceSlot::EMPTY; resources].into_boxed_slice());
        let grant = |key, range: std::ops::Range<usize>| Grant {
            key,
            address: BASE + range.start as u64,
            length: range.len() as u64,
            read: true,
            write: key != READ_ONLY,
            atomic: key == KEY,
        };
        let exposed = Exposed {
            bytes: (0..SIZE).map(|index| index as u8).collect(),
            grants: vec![
                grant(KEY, 0..SIZE),
                grant(NARROW, OPEN),
                grant(READ_ONLY, 0..SIZE),
            ],
            refused: 0,
        };
        Self {
            responder: Responder::new(options, slots),
            exposed,
            receives: Receives::default(),
            done: Vec::new(),
        }
    }

    pub fn usual() -> Self {
        Self::new(OPTIONS, 2)
    }

    /// Gives packets to the responder, then takes everything that it sends.
    pub fn receive(&mut self, packets: &[Made]) -> Vec<Sent> {
        for made in packets {
            let done =
                self.responder
                    .receive(&made.packet(), &mut self.exposed, &mut self.receives);
            self.done.extend(done);
        }
        self.drain()
    }

    pub fn transmit(&mut self) -> Option<Sent> {
        let mut buffer = [0; 512];
        let length = self.responder.transmit(&mut self.exposed, &mut buffer)?;
        Some(sent(&buffer[..length]))
    }

    pub fn drain(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.transmit()).collect()
    }

    pub fn unchanged(&self) -> bool {
        self.exposed
            .bytes
            .iter()
            .enumerate()
            .all(|(index, byte)| *byte == index as u8)
    }
}

/// PSN number `index` of the requests, from the expected one on.
pub fn psn(index: u32) -> u32 {
    Psn::new(FIRST).plus(index).value()
}

pub fn send(index: u32, payload: &[u8]) -> Made {
    Made::new(Opcode::SendOnly, psn(index), payload).asking()
}

pub fn write(index: u32, key: u32, at: usize, payload: &[u8]) -> Made {
    let made = Made::new(Opcode::WriteOnly, psn(index), payload).asking();
    made.reth(key, BASE.wrapping_add(at as u64), payload.len() as u32)
}

pub fn read(index: u32, key: u32, at: usize, length: u32) -> Made {
    Made::new(Opcode::ReadRequest, psn(index), &[])
        .asking()
        .reth(key, BASE + at as u64, length)
}

pub fn add(index: u32, key: u32, at: usize, operand: u64) -> Made {
    let made = Made::new(Opcode::FetchAdd, psn(index), &[]).asking();
    made.atomic(key, BASE + at as u64, AtomicOperation::FetchAdd(operand))
}

/// Index, syndrome and MSN of an acknowledgement.
pub fn said(sent: &Sent) -> (u32, Syndrome, u32) {
    let aeth = sent.extensions.aeth.expect("AETH");
    (
        Psn::new(sent.psn).since(Psn::new(FIRST)),
        aeth.syndrome,
        aeth.msn,
    )
}

pub fn only(packets: &[Sent]) -> (u32, Syndrome, u32) {
    assert_eq!(
        (packets.len(), packets[0].opcode),
        (1, Opcode::Acknowledge),
        "{packets:?}"
    );
    said(&packets[0])
}

/// Checks that `packets` are refused: the NAK for PSN `index`, and silence afterwards.
pub fn refused(mut bench: Bench, packets: &[Made], index: u32, syndrome: Syndrome) -> Bench {
    let answers = bench.receive(packets);
    let last = answers.last().expect("a NAK");
    let (psn, said, _) = said(last);
    assert_eq!((psn, said), (index, syndrome), "{packets:?}");
    assert!(bench.responder.fault().is_some());
    let executed = bench.responder.counts().executed;
    bench.receives.post(99, 4096);
    assert_eq!(
        bench.receive(&[
            write(index, KEY, 0, &[1]),
            send(index + 1, &[1]),
            read(0, KEY, 0, 8)
        ]),
        []
    );
    assert_eq!(bench.responder.counts().executed, executed);
    bench
}
