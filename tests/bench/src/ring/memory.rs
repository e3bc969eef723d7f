//! The device's side of the rings: it fetches descriptors and writes completions.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use dat_core::backend::{RemoteRange, Segment, SendFlags, SendOperation};
use dat_core::flags::DtoStatus;

use super::queues::{
    ARMED_FOR_ALL, ARMED_FOR_SOLICITED, COMPLETIONS, CompletionRing, DESCRIPTORS, DISARMED, Entry,
    NO_LENGTH, READ, Ring, SHARED, SOLICITED, WRITE,
};

/// A work request as the device fetches it.
pub struct Work {
    /// The token of the request.
    pub token: u64,
    /// Length in bytes.
    pub length: u32,
    /// The operation; a send for receives.
    pub operation: SendOperation,
    /// Flags of the request.
    pub flags: SendFlags,
    /// The local segments.
    pub segments: Vec<Segment>,
}

/// The end of a work request, as the device reports it.
pub struct Outcome {
    /// The token of the request.
    pub token: u64,
    /// The token of its queue pair.
    pub queue_pair: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// Bytes received; `None` for requests.
    pub received: Option<u32>,
    /// Set if the buffer came from a shared receive queue.
    pub shared: bool,
    /// Set if the peer asked for a solicited completion.
    pub solicited: bool,
}

impl Entry {
    fn get(&self) -> (u64, u32, u32) {
        let [low, high] = self
            .narrow
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        (self.wide.load(Ordering::Relaxed), low, high)
    }
}

impl Ring {
    /// Fetches the next work request and frees its descriptor.
    pub fn fetch(&self) -> Option<Work> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.posted.load(Ordering::Acquire) {
            return None;
        }
        let descriptor = self.descriptors.get((taken % DESCRIPTORS) as usize)?;
        let [header, to, segments @ ..] = &descriptor.0;
        let (token, length, filled) = header.get();
        let (address, key, kind) = to.get();
        let remote = RemoteRange { address, key };
        let segments = segments.iter().take((filled as usize).saturating_sub(2));
        let work = Work {
            token,
            length,
            operation: match kind & 0xFF {
                WRITE => SendOperation::RdmaWrite(remote),
                READ => SendOperation::RdmaRead(remote),
                _ => SendOperation::Send,
            },
            flags: SendFlags::from_bits_truncate((kind >> 8) as u8),
            segments: segments
                .map(|entry| {
                    let (address, length, key) = entry.get();
                    Segment {
                        address,
                        length,
                        key,
                    }
                })
                .collect(),
        };
        self.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
        Some(work)
    }

    /// Drops all descriptors that are posted.
    pub fn clear(&self) {
        let posted = self.posted.load(Ordering::Relaxed);
        self.taken.store(posted, Ordering::Relaxed);
    }
}

impl CompletionRing {
    /// Writes a completion; returns the number of the queue if it was armed for it.
    pub fn write(&self, outcome: &Outcome) -> Option<u32> {
        let written = self.written.load(Ordering::Relaxed);
        let mut rest = u64::from(outcome.received.unwrap_or(NO_LENGTH));
        rest |= u64::from(outcome.status as u32) << 32;
        rest |= if outcome.shared { SHARED } else { 0 };
        rest |= if outcome.solicited { SOLICITED } else { 0 };
        let [token, second, third] = self.entries.get((written % COMPLETIONS) as usize)?;
        token.store(outcome.token, Ordering::Relaxed);
        second.store(rest, Ordering::Relaxed);
        third.store(outcome.queue_pair, Ordering::Relaxed);
        self.written
            .store(written.wrapping_add(1), Ordering::SeqCst);
        let notifies = match self.armed.load(Ordering::SeqCst) {
            ARMED_FOR_ALL => true,
            ARMED_FOR_SOLICITED => outcome.solicited || outcome.status != DtoStatus::Success,
            _ => false,
        };
        notifies.then(|| {
            self.armed.store(DISARMED, Ordering::SeqCst);
            self.number
        })
    }
}
