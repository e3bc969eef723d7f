//! The suspect device in both layouts: its quirks and its false reports.

use backend_mmio::defs::pvrdma::Notice;
use backend_mmio::mlx5::DeviceEvent;
use backend_mmio::ring::DeviceState;
use backend_mock::NodeOptions;
use dat_core::backend::Backend;
use dat_core::time::Instant;
use mmio_model::pvrdma::{
    LentPvrdma, Numbers, PvrdmaBadCqe, PvrdmaFabric, PvrdmaLent, PvrdmaQuirks, Refusal,
};
use mmio_model::{BadCqe, Lent, LentBackend, ModelFabric};

use super::SUSPECT;
use super::script::SETUP_SIZE;

/// Returns true if the setup's device may refuse the initial objects, or its own start.
///
/// Such a paravirtual device makes no completion queues, gives all queue pairs one number, or
/// misreports its capabilities.
pub(super) const fn may_lack([_, layout, ..]: [u8; SETUP_SIZE]) -> bool {
    layout & 1 != 0 && matches!(layout >> 2 & 7, 2..=5)
}

/// The devices of one layout.
pub(super) trait Layout {
    type Lent;
    type Driver<'s>: Backend;

    /// Returns a device if it starts; a suspect one follows the setup.
    fn device<'s>(
        &self,
        options: NodeOptions,
        suspect: Option<&[u8; SETUP_SIZE]>,
        lent: &'s mut Self::Lent,
    ) -> Option<(Self::Driver<'s>, &'s DeviceState)>;

    fn step(&self) -> bool;

    fn now(&self) -> Instant;

    fn corrupt(&self, area: usize, word: usize, change: impl FnOnce(u32) -> u32);

    fn bad_cqe(&self, kind: u8, bit: u8);

    fn false_event(&self, kind: u8, number: u8);

    fn false_answer(&self, word: u8, bits: u32);

    fn unplug(&self);
}

/// Functions that the fabrics of both layouts have under these names.
macro_rules! same_in_both {
    () => {
        fn step(&self) -> bool {
            self.step()
        }

        fn now(&self) -> Instant {
            self.now()
        }

        fn corrupt(&self, area: usize, word: usize, change: impl FnOnce(u32) -> u32) {
            self.corrupt(SUSPECT, area, word, change);
        }
    };
}

impl Layout for ModelFabric {
    type Lent = Lent;
    type Driver<'s> = LentBackend<'s>;

    fn device<'s>(
        &self,
        options: NodeOptions,
        _suspect: Option<&[u8; SETUP_SIZE]>,
        lent: &'s mut Lent,
    ) -> Option<(LentBackend<'s>, &'s DeviceState)> {
        Some(self.device_on(options, lent))
    }

    same_in_both!();

    fn bad_cqe(&self, kind: u8, bit: u8) {
        let cqe = match kind % 10 {
            0 => BadCqe::Index,
            1 => BadCqe::QueuePair,
            2 => BadCqe::UserIndex,
            3 => BadCqe::Kind,
            4 => BadCqe::Length,
            5 => BadCqe::Syndrome,
            6 => BadCqe::Phase,
            7 => BadCqe::AllOnes,
            8 => BadCqe::Bit(u32::from(bit) % BadCqe::BITS),
            _ => BadCqe::Noise(u64::from(bit)),
        };
        self.forge_completion(SUSPECT, cqe);
    }

    fn false_event(&self, kind: u8, number: u8) {
        // The numbers of the consumer's objects follow those of the adapter's own.
        let number = match number {
            0xFF => u32::MAX,
            number => 0x40 + u32::from(number % 16),
        };
        let event = match kind % 6 {
            0 => DeviceEvent::Completions(number),
            1 => DeviceEvent::SharedReceiveLimit(number),
            2 => DeviceEvent::SharedReceiveFailed(number),
            3 => DeviceEvent::CompletionsLost(number),
            4 => DeviceEvent::QueuePairFailed(number),
            _ => DeviceEvent::Failed,
        };
        self.report_event(SUSPECT, event);
    }

    /// Does nothing: the device's commands are calls.
    fn false_answer(&self, _word: u8, _bits: u32) {}

    /// Does nothing: the driver reads no register of the device.
    fn unplug(&self) {}
}

impl Layout for PvrdmaFabric {
    type Lent = PvrdmaLent;
    type Driver<'s> = LentPvrdma<'s>;

    fn device<'s>(
        &self,
        options: NodeOptions,
        suspect: Option<&[u8; SETUP_SIZE]>,
        lent: &'s mut PvrdmaLent,
    ) -> Option<(LentPvrdma<'s>, &'s DeviceState)> {
        let mut quirks = PvrdmaQuirks::default();
        if let Some([_, layout, which, value]) = suspect {
            quirks.drops_flushed = layout & 2 != 0;
            match layout >> 2 & 7 {
                1 => quirks.refuses = Refusal::Error,
                2 => quirks.refuses = Refusal::CompletionQueue,
                3 => quirks.numbers = Numbers::Always(u32::from(*value)),
                4 | 5 => {
                    let value = [
                        u32::from(*value),
                        u32::from(*value) << 24,
                        u32::MAX >> (value % 32),
                        1 << (value % 32),
                    ];
                    quirks.fake_capability =
                        Some((u32::from(which >> 2), value[usize::from(which % 4)]));
                }
                _ => {}
            }
        }
        self.device_on(options, quirks, lent).ok()
    }

    same_in_both!();

    fn bad_cqe(&self, kind: u8, bit: u8) {
        let cqe = match kind % 6 {
            0 => PvrdmaBadCqe::Token(u32::from(bit) % 64),
            1 => PvrdmaBadCqe::QueuePair,
            2 => PvrdmaBadCqe::Length,
            3 => PvrdmaBadCqe::Status,
            4 => PvrdmaBadCqe::Index,
            _ => PvrdmaBadCqe::AllOnes,
        };
        self.forge_completion(SUSPECT, cqe);
    }

    fn false_event(&self, kind: u8, number: u8) {
        let number = match number {
            0xFF => u32::MAX,
            number => 0x10 + u32::from(number % 16),
        };
        match kind {
            0..20 => self.report_event(
                SUSPECT,
                Notice {
                    kind: u32::from(kind),
                    handle: number,
                },
            ),
            20 => self.report_event(
                SUSPECT,
                Notice {
                    kind: u32::MAX,
                    handle: number,
                },
            ),
            21 => self.corrupt_message(SUSPECT, 1 << (number % 32)),
            _ => self.report_completions(SUSPECT, number),
        }
    }

    fn false_answer(&self, word: u8, bits: u32) {
        self.corrupt_answer(SUSPECT, u32::from(word), bits);
    }

    fn unplug(&self) {
        self.unplug(SUSPECT);
    }
}
