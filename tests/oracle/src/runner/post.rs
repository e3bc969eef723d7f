//! Posts.

use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, HandleKind};
use dat_core::memory::RmrTriplet;

use super::memory::{privileges, triplet, triplets};
use super::{Outcome, Runner};
use crate::op::{Pick, PostOp, Remote, SegmentChoice, Side};
use crate::world::{Ep, Key, Receive, RemoteContext, Request, Segment, Work};

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

/// Returns the remote length of a write: the local one and some slack, or one byte less.
pub(super) fn write_length(local: u64, slack: u8) -> u64 {
    match slack {
        255 => local.saturating_sub(1),
        slack => local.saturating_add(u64::from(slack)),
    }
}

/// Returns the remote length of a read: the local one less some slack, or one byte more.
pub(super) fn read_length(local: u64, slack: u8) -> u64 {
    match slack {
        255 => local.saturating_add(1),
        slack => local.saturating_sub(u64::from(slack & 7)),
    }
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
                self.request(side, key, segments, Work::Send, u64::MAX, flags(*choice))
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
                let length = write_length(total(&segments), remote.slack);
                self.request(side, key, segments, work, length, flags(*choice))
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
                let length = read_length(total(&segments), remote.slack);
                let work = Work::Read {
                    number,
                    address,
                    length,
                };
                self.request(side, key, segments, work, length, flags(*choice))
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

    /// Returns the endpoint that an endpoint is connected to.
    pub(super) fn peer(&self, key: Option<Key>) -> Option<&Ep> {
        let peer = self.world.eps.get(&key?)?.peer?;
        self.world.eps.get(&peer)
    }

    /// Returns the side that an endpoint is connected to.
    pub(super) fn far(&self, side: Side, key: Option<Key>) -> Side {
        self.peer(key).map_or(side.other(), |peer| peer.side)
    }

    /// Returns the context and address of a remote range choice.
    pub(super) fn remote(&self, side: Side, ep: Option<Key>, remote: &Remote) -> (u32, u64) {
        let far = self.far(side, ep);
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
        let mut both = [connected, self.peer(key)].into_iter().flatten();
        both.any(|ep| ep.has_defaults)
    }

    /// Makes a request with the next cookie.
    pub(super) fn new_request(
        &mut self,
        segments: Vec<Segment>,
        work: Work,
        flags: CompletionFlags,
    ) -> Request {
        let post = self.next_post();
        Request {
            post,
            cookie: post,
            segments,
            work,
            suppressed: flags.contains(CompletionFlags::SUPPRESS),
            fenced: flags.contains(CompletionFlags::BARRIER_FENCE),
        }
    }

    /// Posts a request; `length` is that of the remote range.
    fn request(
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
        let operation = match work {
            Work::Write { .. } => DtoOperation::RdmaWrite,
            Work::Read { .. } => DtoOperation::RdmaRead,
            _ => DtoOperation::Send,
        };
        let request = self.new_request(segments, work, flags);
        let post = request.post;
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
        let remote = |context, address| RmrTriplet {
            context,
            address,
            length,
        };
        let outcome = match request.work {
            Work::Write { number, address } => {
                let remote = remote(number, address);
                self.with(side, |ia| {
                    ia.post_rdma_write(id, &list, post, &remote, flags)
                })
            }
            Work::Read {
                number, address, ..
            } => {
                let remote = remote(number, address);
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

    pub(super) fn record_receive(&mut self, key: Key, receive: Receive) {
        self.record_post(key, receive.post, false);
        if self.is_exact() {
            self.world.post_receive(key, receive);
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
            self.record_receive(key, Receive::new(post, segments));
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
        let work = Work::Bind {
            rmr: rmr.unwrap_or_default(),
            context: None,
        };
        let mut request = self.new_request(Vec::new(), work, flags);
        let post = request.post;
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
