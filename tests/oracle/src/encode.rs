//! Encoding of a run as fuzzer input, from which [`Arbitrary`](arbitrary::Arbitrary) restores the
//! run.

use backend_mock::{Fault, RemoteError};

use crate::input::Input;
use crate::op::{
    AdapterOp, Batched, ConnectionOp, EndpointOp, EventOp, FabricOp, MemoryOp, Op, Pick, PostOp,
    Remote, SegmentChoice, SharedReceiveOp, Side,
};
use crate::runner::Setup;
use crate::scenario::Prologue;

/// Types that encode to the bytes they are made from.
pub(crate) trait Encode {
    /// Appends the encoding.
    fn encode(&self, bytes: &mut Vec<u8>);
}

impl Input {
    /// Returns the bytes that this input is made from.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.setup.encode(&mut bytes);
        for op in &self.ops {
            bytes.push(1);
            op.encode(&mut bytes);
        }
        bytes
    }
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Encode for $number {
            fn encode(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
        }
    )+};
}

numbers! { u8 i8 u16 u32 u64 }

impl Encode for bool {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(*self));
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.is_some().encode(bytes);
        if let Some(value) = self {
            value.encode(bytes);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        for value in self {
            bytes.push(1);
            value.encode(bytes);
        }
        bytes.push(0);
    }
}

/// Returns the smallest number that chooses variant `index` of `count`.
fn choice(index: u64, count: u64) -> u32 {
    u32::try_from((index << 32).div_ceil(count)).unwrap_or(u32::MAX)
}

/// Lists the variants in order, each with its fields in order.
macro_rules! variants {
    ($($name:ident { $($variant:ident $({ $($field:ident)+ })?)+ })+) => {$(
        impl Encode for $name {
            fn encode(&self, bytes: &mut Vec<u8>) {
                let names = [$(stringify!($variant)),+];
                let chosen = match self {
                    $(Self::$variant { .. } => stringify!($variant),)+
                };
                let index = names.iter().take_while(|name| **name != chosen).count();
                choice(index as u64, names.len() as u64).encode(bytes);
                match self {
                    $(Self::$variant $({ $($field),+ })? => { $($($field.encode(bytes);)+)? })+
                }
            }
        }
    )+};
}

variants! {
    Prologue { Empty Pair Shared }
    RemoteError { Access Responder BadResponse Silence }
    Fault {
        DropCompletion { adapter queue nth }
        DelayCompletion { adapter queue nth by }
        DuplicateCompletion { adapter queue nth }
        ReorderCompletion { adapter queue nth }
        OverrunQueue { adapter queue nth }
        LoseNotification { adapter queue nth }
        LinkDown { a b at duration }
        AllocationFailure { adapter nth }
        RefusePost { adapter nth }
        RemoteError { adapter nth error }
        ReceiverNotReady { adapter nth attempts }
        FailSharedReceive { adapter nth }
        Crash { adapter at }
    }
    MemoryOp {
        PzCreate
        PzQuery { pz unknown_mask }
        PzFree { pz }
        LmrCreate { pz start length privileges }
        LmrCreateFrom { pz source privileges }
        LmrCreateShared { pz start length cookie privileges }
        LmrQuery { lmr unknown_mask }
        LmrFree { lmr }
        SyncRead { segments }
        SyncWrite { segments }
        RmrCreate { pz }
        RmrQuery { rmr unknown_mask }
        RmrFree { rmr }
        Store { at value count }
    }
    EventOp {
        EvdCreate { length cno flags }
        EvdQuery { evd unknown_mask }
        EvdModifyCno { evd cno }
        EvdResize { evd length }
        EvdEnable { evd }
        EvdDisable { evd }
        EvdSetUnwaitable { evd }
        EvdClearUnwaitable { evd }
        EvdFree { evd }
        EvdDequeue { evd }
        EvdPostSe { evd pointer }
        EvdWait { evd threshold }
        EvdWaitUntil { evd threshold limit }
        EvdWaitNow { evd threshold }
        EvdWaitMeanwhile { evd threshold call }
        Drain
        CnoCreate
        CnoQuery { cno unknown_mask }
        CnoCreateWithAgent
        CnoModifyAgent { cno agent }
        CnoWait { cno }
        CnoWaitUntil { cno limit }
        CnoWaits { cno waits }
        CnoFree { cno }
        Context { kind object value }
    }
    EndpointOp {
        Create { pz receive request connect shape }
        CreateWithSrq { pz receive request connect srq shape }
        Query { ep unknown_mask }
        ModifyPz { ep pz }
        ModifyEvds { ep receive request connect }
        ModifyState { ep }
        Modify { ep fields shape }
        GetStatus { ep }
        RecvQuery { ep }
        SetWatermark { ep soft hard }
        Reset { ep }
        Free { ep }
        Disconnect { ep graceful }
    }
    ConnectionOp {
        Connect { ep qualifier timeout private_data address }
        DupConnect { ep model timeout private_data }
        PspCreate { qualifier evd by_provider }
        PspCreateAny { evd by_provider }
        PspQuery { psp unknown_mask }
        PspFree { psp }
        RspCreate { qualifier ep evd }
        RspQuery { rsp unknown_mask }
        RspFree { rsp }
        CrQuery { cr unknown_mask }
        CrAccept { cr ep private_data }
        CrReject { cr }
        CrHandoff { cr qualifier }
    }
    PostOp {
        Send { ep segments flags }
        Receive { ep segments flags }
        RdmaWrite { ep segments remote flags }
        RdmaRead { ep segments remote flags }
        Bind { rmr segment privileges ep flags }
        Batch { ep requests }
        ReceiveBatch { ep receives }
        Extended { ep operation operand segments remote flags }
    }
    AdapterOp {
        Query { unknown_mask unknown_provider_mask }
        Extensions
        Context { value }
        DirectAccess
        Interrupt { times waker }
        Strerror { kind subtype cause other_abi }
        Address { octets port scope }
        StrerrorOf { code other_abi }
        Cramped
    }
    SharedReceiveOp {
        Create { pz length segments low_watermark }
        Post { srq segments }
        Query { srq unknown_mask }
        Resize { srq length }
        SetLowWatermark { srq mark }
        Free { srq }
    }
}

impl Encode for FabricOp {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Step(count) => {
                choice(0, 3).encode(bytes);
                count.encode(bytes);
            }
            Self::RunToIdle => choice(1, 3).encode(bytes),
            Self::Expire => choice(2, 3).encode(bytes),
        }
    }
}

impl Encode for Setup {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.seed.encode(bytes);
        self.non_coherent.encode(bytes);
        self.prologue.encode(bytes);
        self.faults.faults.encode(bytes);
    }
}

impl Encode for Pick {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(match *self {
            Self::Live(number) => number & 7,
            // The ranges begin in the middle of a group of eight.
            Self::Dead(number) => 224 + (number & 7),
            Self::Foreign(number) => match number & 7 {
                number @ 0..=3 => 240 + number,
                number => 232 + number,
            },
            Self::WrongKind(number) => match number & 7 {
                number @ 0..=1 => 248 + number,
                number => 240 + number,
            },
            Self::Null => 255,
        });
    }
}

impl Encode for SegmentChoice {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.region.encode(bytes);
        self.offset.encode(bytes);
        self.length.encode(bytes);
    }
}

impl Encode for Remote {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.context.encode(bytes);
        self.offset.encode(bytes);
        self.slack.encode(bytes);
    }
}

impl Encode for Batched {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.operation.encode(bytes);
        self.segments.encode(bytes);
        self.remote.encode(bytes);
        self.flags.encode(bytes);
    }
}

impl Encode for Op {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let mut tag = |kind: u8, side: Side| bytes.push(kind << 1 | side as u8);
        match self {
            Self::Post(side, op) => {
                tag(0, *side);
                op.encode(bytes);
            }
            Self::Event(side, op) => {
                tag(40, *side);
                op.encode(bytes);
            }
            Self::Fabric(op) => {
                tag(74, Side::A);
                op.encode(bytes);
            }
            Self::Memory(side, op) => {
                tag(80, *side);
                op.encode(bytes);
            }
            Self::Connection(side, op) => {
                tag(94, *side);
                op.encode(bytes);
            }
            Self::Endpoint(side, op) => {
                tag(106, *side);
                op.encode(bytes);
            }
            Self::Adapter(side, op) => {
                tag(117, *side);
                op.encode(bytes);
            }
            Self::SharedReceive(side, op) => {
                tag(118, *side);
                op.encode(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arbitrary::{Arbitrary, Unstructured};

    use super::*;

    #[test]
    fn decoding_an_encoded_run_restores_it() {
        let mut state = 5_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(300_000)
        .collect();
        for bytes in noise.chunks(1500) {
            let input = Input::arbitrary_take_rest(Unstructured::new(bytes));
            let input = input.expect("any bytes make a run");
            let again = Input::arbitrary_take_rest(Unstructured::new(&input.encode()));
            assert_eq!(again, Ok(input));
        }
    }
}
