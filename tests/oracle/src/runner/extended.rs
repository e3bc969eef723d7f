//! Posts of extended operations.

use dat_core::backend::Extensions;
use dat_core::endpoint::Extended;
use dat_core::error::ErrorKind;
use dat_core::flags::{CompletionFlags, HandleKind};
use dat_core::memory::RmrTriplet;

use super::memory::triplets;
use super::post::{flags, total, write_length};
use super::{Outcome, Runner};
use crate::expect::Verdict;
use crate::op::{PostOp, Side};
use crate::world::{Change, Key, Request, Work};

/// Returns the extensions of a side's adapter; the second adapter lacks one.
pub(super) const fn extensions(side: Side) -> Extensions {
    match side {
        Side::A => Extensions::all(),
        Side::B => Extensions::WRITE_IMMEDIATE.union(Extensions::FETCH_AND_ADD),
    }
}

impl Runner {
    pub(super) fn extended(&mut self, side: Side, op: &PostOp) -> Outcome {
        let PostOp::Extended {
            ep,
            operation,
            operand,
            segments,
            remote,
            flags: choice,
        } = op
        else {
            return Ok(());
        };
        let (operand, slack) = (*operand, remote.slack);
        let segments = self.segments(side, segments);
        let key = self.pick(side, HandleKind::Ep, *ep);
        let (number, address) = self.remote(side, key, remote);
        let (work, extended, needed) = match operation % 3 {
            0 => {
                let immediate = operand as u32;
                (
                    Work::WriteImmediate {
                        number,
                        address,
                        immediate,
                    },
                    Extended::WriteImmediate { immediate },
                    total(&segments),
                )
            }
            1 => (
                Work::Atomic {
                    number,
                    address,
                    change: Change::Add(operand),
                },
                Extended::FetchAndAdd { add: operand },
                8,
            ),
            _ => {
                let there = self.world.value_at(self.far(side, key), address);
                let compare = there.filter(|_| operand % 2 == 0).unwrap_or(operand);
                let swap = operand.rotate_left(8);
                (
                    Work::Atomic {
                        number,
                        address,
                        change: Change::Swap { compare, swap },
                    },
                    Extended::CompareAndSwap { compare, swap },
                    8,
                )
            }
        };
        if self.is_exact() && self.is_open(key, &work) {
            return Ok(());
        }
        let length = write_length(needed, slack);
        let flags = flags(*choice);
        let request = self.new_request(segments, work, flags);
        let post = request.post;
        let mut verdict = self.check_extended(side, key, &request, extended, length, flags);
        if verdict.may_succeed {
            self.run_to_idle_if_racing(key, &request)?;
            verdict = self.check_extended(side, key, &request, extended, length, flags);
        }
        let remote = RmrTriplet {
            context: number,
            address,
            length,
        };
        let (id, list) = (self.ep_id(key), triplets(&request.segments));
        let outcome = self.with(side, |ia| {
            ia.post_extended(id, extended, &list, post, &remote, flags)
        });
        if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
            self.record_request(key, request);
        }
        Ok(())
    }

    fn check_extended(
        &self,
        side: Side,
        key: Option<Key>,
        request: &Request,
        extended: Extended,
        length: u64,
        flags: CompletionFlags,
    ) -> Verdict {
        let needed = match extended {
            Extended::WriteImmediate { .. } => Extensions::WRITE_IMMEDIATE,
            Extended::FetchAndAdd { .. } => Extensions::FETCH_AND_ADD,
            Extended::CompareAndSwap { .. } => Extensions::COMPARE_AND_SWAP,
        };
        if !extensions(side).contains(needed) {
            return Verdict::refused(ErrorKind::NotImplemented, None);
        }
        self.world.check_extended(side, key, request, length, flags)
    }

    /// Returns true if the provider defines the outcome.
    ///
    /// This holds for atomics without a read depth, as for RDMA Reads. It also holds for immediate
    /// data to a shared receive queue, which the receiver cannot use.
    fn is_open(&self, key: Option<Key>, work: &Work) -> bool {
        match work {
            Work::WriteImmediate { .. } => self.peer(key).is_some_and(|peer| peer.srq.is_some()),
            _ => self.has_no_depth(key),
        }
    }
}
