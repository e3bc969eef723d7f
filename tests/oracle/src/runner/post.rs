//! Posts.

use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, HandleKind};
use dat_core::memory::RmrTriplet;

use super::memory::{privileges, triplet, triplets};
use super::{Outcome, Runner};
use crate::op::{Pick, PostOp, Remote, SegmentChoice, Side};
use crate::world::{Key, Receive, RemoteContext, Request, Segment, Work};

/// Chooses flags: mostly none, rarely illegal ones.
pub(super) fn flags(choice: u8) -> CompletionFlags {
    CompletionFlags::from_bits_retain(match choice {
        0..=143 => 0,
        144..=191 => 0x01,
        192..=207 => 0x02,
        208..=223 => 0x08,
        224..=231 => 0x09,
        232..=243 => 0x04,
        244..=249 => 0x10,
        _ => 0x40,
    })
}

pub(super) fn total(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .fold(0, |sum, segment| sum.saturating_add(segment.length))
}

impl Runner {
    pub(super) fn post(&mut self, side: Side, op: &PostOp) -> Outcome {
        match op {
            PostOp::Send {
                ep,
                segments,
                flags: choice,
            } => {
                let segments = self.segments(side, segments);
                let key = self.pick(side, HandleKind::Ep, *ep);
                self.request(side, key, segments, Work::Send, flags(*choice))
            }
            PostOp::RdmaWrite {
                ep,
                segments,
                remote,
                flags: choice,
            } => {
                let segments = self.segments(side, segments);
                let key = self.pick(side, HandleKind::Ep, *ep);
                let (number, address) = self.remote(side, key, remote);
                let work = Work::Write { number, address };
                let length = match remote.slack {
                    255 => total(&segments).saturating_sub(1),
                    slack => total(&segments).saturating_add(u64::from(slack)),
                };
                self.rdma(side, key, segments, work, length, flags(*choice))
            }
            PostOp::RdmaRead {
                ep,
                segments,
                remote,
                flags: choice,
            } => {
                let segments = self.segments(side, segments);
                let key = self.pick(side, HandleKind::Ep, *ep);
                let (number, address) = self.remote(side, key, remote);
                let length = match remote.slack {
                    255 => total(&segments).saturating_add(1),
                    slack => total(&segments).saturating_sub(u64::from(slack & 7)),
                };
                let work = Work::Read {
                    number,
                    address,
                    length,
                };
                self.rdma(side, key, segments, work, length, flags(*choice))
            }
            PostOp::Receive {
                ep,
                segments,
                flags: choice,
            } => self.receive(side, *ep, segments, flags(*choice)),
            PostOp::Bind {
                rmr,
                segment,
                privileges: rights,
                ep,
                flags: choice,
            } => self.bind(side, [*rmr, *ep], segment, *rights, flags(*choice)),
            PostOp::Batch { ep, requests } => self.batch(side, *ep, requests),
            PostOp::ReceiveBatch { ep, receives } => self.receive_batch(side, *ep, receives),
            PostOp::Extended { .. } => self.extended(side, op),
        }
    }

    /// Returns the context and address of a remote range choice.
    pub(super) fn remote(&self, side: Side, ep: Option<Key>, remote: &Remote) -> (u32, u64) {
        let peer = ep.and_then(|key| self.world.eps.get(&key)?.peer);
        let far = peer
            .and_then(|peer| self.world.eps.get(&peer))
            .map_or(side.other(), |peer| peer.side);
        let known: Vec<&RemoteContext> = self
            .world
            .contexts
            .iter()
            .rev()
            .filter(|context| context.side == far)
            .collect();
        let index = usize::from(remote.context).checked_rem(known.len());
        match index.and_then(|index| known.get(index)) {
            Some(context) if remote.context != 255 => {
                let (address, _) = Self::range(context.address, context.length, remote.offset, 0);
                (context.number, address)
            }
            _ => (0xDEAD_BEEF, u64::from(remote.offset)),
        }
    }

    /// Returns true without a read depth: the provider then defines RDMA Reads (EPB-05, EPC-10).
    pub(super) fn has_no_depth(&self, key: Option<Key>) -> bool {
        let connected = key.and_then(|key| self.world.eps.get(&key));
        let peer = connected.and_then(|ep| self.world.eps.get(&ep.peer?));
        let mut both = [connected, peer].into_iter().flatten();
        both.any(|ep| ep.has_defaults)
    }

    fn rdma(
        &mut self,
        side: Side,
        key: Option<Key>,
        segments: Vec<Segment>,
        work: Work,
        length: u64,
        flags: CompletionFlags,
    ) -> Outcome {
        if matches!(work, Work::Read { .. }) && self.has_no_depth(key) && self.is_exact() {
            return Ok(());
        }
        self.request_with(side, key, segments, work, length, flags)
    }

    fn request(
        &mut self,
        side: Side,
        key: Option<Key>,
        segments: Vec<Segment>,
        work: Work,
        flags: CompletionFlags,
    ) -> Outcome {
        self.request_with(side, key, segments, work, u64::MAX, flags)
    }

    fn request_with(
        &mut self,
        side: Side,
        key: Option<Key>,
        segments: Vec<Segment>,
        work: Work,
        length: u64,
        flags: CompletionFlags,
    ) -> Outcome {
        let post = self.next_post();
        let operation = match work {
            Work::Write { .. } => DtoOperation::RdmaWrite,
            Work::Read { .. } => DtoOperation::RdmaRead,
            _ => DtoOperation::Send,
        };
        let request = Request {
            post,
            cookie: post,
            segments,
            work,
            suppressed: flags.contains(CompletionFlags::SUPPRESS),
            fenced: flags.contains(CompletionFlags::BARRIER_FENCE),
        };
        let segments = &request.segments;
        let mut verdict = self
            .world
            .check_request(side, key, segments, operation, length, flags);
        if verdict.may_succeed {
            self.run_to_idle_if_racing(key, &request)?;
            verdict = self
                .world
                .check_request(side, key, segments, operation, length, flags);
        }
        let (id, list) = (self.ep_id(key), triplets(segments));
        let outcome = match request.work {
            Work::Write { number, address } => {
                let remote = RmrTriplet {
                    context: number,
                    address,
                    length,
                };
                self.with(side, |ia| {
                    ia.post_rdma_write(id, &list, post, &remote, flags)
                })
            }
            Work::Read {
                number,
                address,
                length,
            } => {
                let remote = RmrTriplet {
                    context: number,
                    address,
                    length,
                };
                self.with(side, |ia| {
                    ia.post_rdma_read(id, &list, post, &remote, flags)
                })
            }
            _ => self.with(side, |ia| ia.post_send(id, &list, post, flags)),
        };
        if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
            self.record_request(key, request);
        }
        Ok(())
    }

    pub(super) fn record_request(&mut self, key: Key, request: Request) {
        self.record_post(key, request.cookie, request.suppressed);
        if self.is_exact() {
            self.world.post_request(key, request);
        }
    }

    /// Runs the fabric until it is idle if the outcome would depend on concurrent work.
    pub(super) fn run_to_idle_if_racing(&mut self, key: Option<Key>, request: &Request) -> Outcome {
        if !self.is_exact() || self.world.is_idle() {
            return Ok(());
        }
        let races = match key.filter(|key| self.world.eps.contains_key(key)) {
            Some(key) => self.world.would_race(key, request),
            None => false,
        };
        if races { self.run_to_idle() } else { Ok(()) }
    }

    fn receive(
        &mut self,
        side: Side,
        ep: Pick,
        segments: &[SegmentChoice],
        flags: CompletionFlags,
    ) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        if key
            .and_then(|key| self.world.eps.get(&key))
            .is_some_and(|ep| ep.may_still_be_ending)
        {
            self.run_to_idle()?;
        }
        let segments = self.segments(side, segments);
        let post = self.next_post();
        let verdict = self.world.check_receive(side, key, &segments, flags);
        let (id, list) = (self.ep_id(key), triplets(&segments));
        let outcome = self.with(side, |ia| ia.post_recv(id, &list, post, flags));
        if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
            let receive = Receive {
                post,
                cookie: post,
                segments,
            };
            self.record_post(key, post, false);
            if self.is_exact() {
                self.world.post_receive(key, receive);
            }
        }
        Ok(())
    }

    fn bind(
        &mut self,
        side: Side,
        [rmr, ep]: [Pick; 2],
        segment: &SegmentChoice,
        rights: u8,
        flags: CompletionFlags,
    ) -> Outcome {
        let rmr = self.pick(side, HandleKind::Rmr, rmr);
        let key = self.pick(side, HandleKind::Ep, ep);
        let segment = self.segment(side, segment);
        let privileges = privileges(rights);
        let post = self.next_post();
        let mut request = Request {
            post,
            cookie: post,
            segments: Vec::new(),
            work: Work::Bind {
                rmr: rmr.unwrap_or_default(),
                context: None,
            },
            suppressed: flags.contains(CompletionFlags::SUPPRESS),
            fenced: flags.contains(CompletionFlags::BARRIER_FENCE),
        };
        let mut verdict = self
            .world
            .check_bind(side, rmr, &segment, privileges, key, flags);
        if verdict.may_succeed {
            self.run_to_idle_if_racing(key, &request)?;
            verdict = self
                .world
                .check_bind(side, rmr, &segment, privileges, key, flags);
        }
        let (rmr_id, id, segment_given) = (self.rmr_id(rmr), self.ep_id(key), triplet(&segment));
        let outcome = self.with(side, |ia| {
            ia.rmr_bind(rmr_id, &segment_given, privileges, id, post, flags)
        });
        let Some(number) = self.judge(&verdict, outcome)? else {
            return Ok(());
        };
        let (Some(rmr), Some(key)) = (rmr, key) else {
            return Ok(());
        };
        let region = self
            .world
            .lmr_of(side, segment.context)
            .map(|lmr| lmr.pz)
            .filter(|_| segment.length != 0);
        let context = region.map(|pz| RemoteContext {
            side,
            number,
            alive: false,
            pz,
            address: segment.address,
            length: segment.length,
            privileges,
            lmr: self
                .world
                .lmr_key(side, segment.context)
                .unwrap_or_default(),
        });
        if let Some(context) = &context {
            // RMB-11, RMB-21: a new value that no peer knows.
            self.expect(
                !self.world.was_remote_context(side, context.number),
                "a new remote context (RMB-11)",
                number,
            )?;
        }
        let index = self.world.accept_bind(request.post, rmr, context);
        request.work = Work::Bind {
            rmr,
            context: index,
        };
        self.record_request(key, request);
        Ok(())
    }
}
