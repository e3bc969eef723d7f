//! Batches: several posts with one doorbell.

use dat_core::endpoint::{BatchOperation, BatchReceive, BatchRefused, BatchRequest};
use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, HandleKind};
use dat_core::memory::{LmrTriplet, RmrTriplet};

use super::memory::triplets;
use super::post::{flags, read_length, total, write_length};
use super::{Outcome, Runner};
use crate::expect::Verdict;
use crate::op::{Batched, Pick, Side};
use crate::world::{Key, Receive, Request, Work};

/// Limit on posts of a batch; more only show again that the queue is full.
const MOST: usize = 12;

/// Post of a batch, as passed to the core and as the oracle has it.
struct Prepared {
    request: Request,
    list: Vec<LmrTriplet>,
    operation: DtoOperation,
    /// Length of the remote range in bytes.
    length: u64,
    flags: CompletionFlags,
}

impl Prepared {
    fn given(&self) -> BatchRequest<'_> {
        let remote = |context, address| RmrTriplet {
            context,
            address,
            length: self.length,
        };
        let operation = match self.request.work {
            Work::Write { number, address } => BatchOperation::RdmaWrite(remote(number, address)),
            Work::Read {
                number, address, ..
            } => BatchOperation::RdmaRead(remote(number, address)),
            _ => BatchOperation::Send,
        };
        BatchRequest {
            operation,
            segments: &self.list,
            cookie: self.request.cookie,
            flags: self.flags,
        }
    }
}

impl Runner {
    /// Posts a batch; each post acts as if posted singly (EPS-01, EPW-01, EPB-01, DTO-10).
    ///
    /// The first refused post ends the batch.
    pub(super) fn batch(&mut self, side: Side, ep: Pick, requests: &[Batched]) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        self.run_to_idle()?;
        let mut prepared: Vec<Prepared> = requests
            .iter()
            .take(MOST)
            .map(|batched| self.prepare(side, key, batched))
            .collect();
        // The outcomes of a post that depends on time, and of those after it, cannot be predicted.
        let end = self.first_racing(side, key, &prepared);
        prepared.truncate(end);
        let id = self.ep_id(key);
        let given: Vec<BatchRequest<'_>> = prepared.iter().map(Prepared::given).collect();
        let outcome = self.with(side, |ia| ia.post_batch(id, &given));
        let posted = outcome.map_or_else(|refused| refused.posted, |()| prepared.len());
        for (at, one) in prepared.into_iter().enumerate() {
            let verdict = self.verdict(side, key, &one);
            let result = match outcome {
                Err(refused) if at == posted => Err(refused.error),
                _ if at < posted => Ok(()),
                _ => break,
            };
            if let (Some(()), Some(key)) = (self.judge(&verdict, result)?, key) {
                self.record_request(key, one.request);
            }
        }
        self.check_batch_refusal(&outcome, posted)
    }

    /// Checks the text of a refused batch: number of accepted posts, and cause.
    fn check_batch_refusal(&self, outcome: &Result<(), BatchRefused>, posted: usize) -> Outcome {
        let Err(refused) = outcome else {
            return Ok(());
        };
        let text = refused.to_string();
        let cause = std::error::Error::source(refused).map(ToString::to_string);
        self.expect(
            text.contains(&posted.to_string()) && cause == Some(refused.error.to_string()),
            "a refusal that says how far the batch came, and why",
            text,
        )
    }

    fn verdict(&self, side: Side, key: Option<Key>, one: &Prepared) -> Verdict {
        let segments = &one.request.segments;
        self.world
            .check_request(side, key, segments, one.operation, one.length, one.flags)
    }

    fn prepare(&mut self, side: Side, key: Option<Key>, batched: &Batched) -> Prepared {
        let segments = self.segments(side, &batched.segments);
        let (number, address) = self.remote(side, key, &batched.remote);
        let bytes = total(&segments);
        let slack = batched.remote.slack;
        let read = !self.has_no_depth(key) || !self.is_exact();
        let (work, operation, length) = match batched.operation % 3 {
            1 => {
                let length = write_length(bytes, slack);
                (
                    Work::Write { number, address },
                    DtoOperation::RdmaWrite,
                    length,
                )
            }
            2 if read => {
                let length = read_length(bytes, slack);
                let work = Work::Read {
                    number,
                    address,
                    length,
                };
                (work, DtoOperation::RdmaRead, length)
            }
            _ => (Work::Send, DtoOperation::Send, u64::MAX),
        };
        let flags = flags(batched.flags);
        let list = triplets(&segments);
        Prepared {
            request: self.new_request(segments, work, flags),
            list,
            operation,
            length,
            flags,
        }
    }

    /// Returns the index of the first post whose outcome depends on earlier ones' progress.
    fn first_racing(&self, side: Side, key: Option<Key>, prepared: &[Prepared]) -> usize {
        let Some(key) = key.filter(|key| self.is_exact() && self.world.eps.contains_key(key))
        else {
            return prepared.len();
        };
        let mut probe = self.world.clone();
        for (at, one) in prepared.iter().enumerate() {
            let segments = &one.request.segments;
            let verdict = probe.check_request(
                side,
                Some(key),
                segments,
                one.operation,
                one.length,
                one.flags,
            );
            if !verdict.may_succeed {
                break;
            }
            if probe.would_race(key, &one.request) {
                return at;
            }
            probe.post_request(key, one.request.clone());
        }
        prepared.len()
    }

    /// Posts a batch of receives (EPV-01 to EPV-05).
    pub(super) fn receive_batch(&mut self, side: Side, ep: Pick, receives: &[Batched]) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        self.run_to_idle()?;
        let mut prepared = Vec::new();
        for batched in receives.iter().take(MOST) {
            let segments = self.segments(side, &batched.segments);
            let post = self.next_post();
            let list = triplets(&segments);
            prepared.push((Receive::new(post, segments), list, flags(batched.flags)));
        }
        let id = self.ep_id(key);
        let given: Vec<BatchReceive<'_>> = prepared
            .iter()
            .map(|(receive, list, flags)| BatchReceive {
                segments: list,
                cookie: receive.cookie,
                flags: *flags,
            })
            .collect();
        let outcome = self.with(side, |ia| ia.post_recv_batch(id, &given));
        let posted = outcome.map_or_else(|refused| refused.posted, |()| prepared.len());
        for (at, (receive, _, flags)) in prepared.into_iter().enumerate() {
            let verdict = self
                .world
                .check_receive(side, key, &receive.segments, flags);
            let result = match outcome {
                Err(refused) if at == posted => Err(refused.error),
                _ if at < posted => Ok(()),
                _ => break,
            };
            if let (Some(()), Some(key)) = (self.judge(&verdict, result)?, key) {
                self.record_receive(key, receive);
            }
        }
        self.check_batch_refusal(&outcome, posted)
    }
}
