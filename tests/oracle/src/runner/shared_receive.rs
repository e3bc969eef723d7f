//! Shared receive queue calls.

use dat_core::attributes::SrqAttributes;
use dat_core::flags::{HandleKind, SrqFields};

use super::memory::triplets;
use super::{Outcome, Runner};
use crate::op::{SharedReceiveOp, Side};
use crate::world::Receive;

/// Chooses a size: small numbers, and some illegal ones.
fn size(choice: i8, usual: i32) -> i32 {
    match choice {
        1..=96 => 1 + i32::from(choice) % usual,
        97..=111 => 1_000_000,
        112.. => i32::from(choice) - 111,
        _ => i32::from(choice),
    }
}

impl Runner {
    pub(super) fn shared_receive(&mut self, side: Side, op: &SharedReceiveOp) -> Outcome {
        match *op {
            SharedReceiveOp::Create {
                pz,
                length,
                segments,
                low_watermark,
            } => {
                let pz = self.pick(side, HandleKind::Pz, pz);
                let numbers = [
                    size(length, 6),
                    size(segments, 3),
                    i32::from(low_watermark / 100),
                ];
                let verdict = self.world.check_srq_create(side, pz, numbers);
                let [max_recv_dtos, max_recv_iov, low_watermark] = numbers;
                let attributes = SrqAttributes {
                    max_recv_dtos,
                    max_recv_iov,
                    low_watermark,
                };
                let id = self.pz_id(pz);
                let outcome = self.with(side, |ia| ia.srq_create(id, &attributes));
                if let (Some(id), Some(pz)) = (self.judge(&verdict, outcome)?, pz) {
                    let actual = self.with(side, |ia| ia.srq_query(id, SrqFields::all()));
                    let actual =
                        actual.map_or([0; 2], |param| [param.max_recv_dtos, param.max_recv_iov]);
                    let enough = actual[0] >= max_recv_dtos && actual[1] >= max_recv_iov;
                    self.expect(enough, "at least what was requested (SRC-01)", actual)?;
                    let [length, segments] =
                        actual.map(|value| usize::try_from(value).unwrap_or(0));
                    let key = self.world.srq_create(side, pz, length, segments);
                    self.record_handle(key, id.handle());
                }
            }
            SharedReceiveOp::Post { srq, ref segments } => {
                let key = self.pick(side, HandleKind::Srq, srq);
                let segments = self.segments(side, segments);
                let post = self.next_post();
                let verdict = self.world.check_srq_post(side, key, &segments);
                let (id, list) = (self.srq_id(key), triplets(&segments));
                let outcome = self.with(side, |ia| ia.srq_post_recv(id, &list, post));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    let receive = Receive::new(post, segments);
                    self.record_post(key, post, false);
                    if self.is_exact() {
                        self.world.srq_post(key, receive);
                    }
                }
            }
            SharedReceiveOp::Query { srq, unknown_mask } => {
                let key = self.pick(side, HandleKind::Srq, srq);
                let id = self.srq_id(key);
                let verdict = self.check_query(side, HandleKind::Srq, key, unknown_mask);
                let mask =
                    SrqFields::from_bits_retain(super::mask(SrqFields::all().bits(), unknown_mask));
                let outcome = self.with(side, |ia| ia.srq_query(id, mask));
                if let Some(param) = self.judge(&verdict, outcome)?
                    && let Some(srq) = key.and_then(|key| self.world.srqs.get(&key))
                {
                    let holds = self.key(param.pz) == Some(srq.pz)
                        && param.low_watermark == srq.low_watermark
                        && usize::try_from(param.max_recv_dtos) == Ok(srq.length)
                        && usize::try_from(param.max_recv_iov) == Ok(srq.segments);
                    self.expect(holds, format_args!("{srq:?} (SRY-01)"), param)?;
                }
            }
            SharedReceiveOp::Resize { srq, length } => {
                let key = self.pick(side, HandleKind::Srq, srq);
                let (id, length) = (self.srq_id(key), size(length, 8));
                let verdict = self.world.check_srq_resize(side, key, length);
                let outcome = self.with(side, |ia| ia.srq_resize(id, length));
                if self.judge(&verdict, outcome)?.is_some() {
                    let actual = self.with(side, |ia| ia.srq_query(id, SrqFields::all()));
                    let actual = actual.map_or(0, |param| param.max_recv_dtos);
                    // SRZ-03: shrinking is optional.
                    self.expect(
                        actual >= length,
                        "at least what was requested (SRZ-01)",
                        actual,
                    )?;
                    if let Some(srq) = key.and_then(|key| self.world.srqs.get_mut(&key)) {
                        srq.length = usize::try_from(actual).unwrap_or(0);
                    }
                }
            }
            SharedReceiveOp::SetLowWatermark { srq, mark } => {
                let key = self.pick(side, HandleKind::Srq, srq);
                let (id, mark) = (
                    self.srq_id(key),
                    if mark >= 0 {
                        i32::from(mark % 8)
                    } else {
                        i32::from(mark)
                    },
                );
                let verdict = self.world.check_set_low_watermark(side, key, mark);
                let outcome = self.with(side, |ia| ia.srq_set_lw(id, mark));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key)
                    && self.is_exact()
                {
                    self.world.set_low_watermark(key, mark);
                }
            }
            SharedReceiveOp::Free { srq } => {
                let key = self.pick(side, HandleKind::Srq, srq);
                let id = self.srq_id(key);
                let verdict = self.world.check_srq_free(side, key);
                let outcome = self.with(side, |ia| ia.srq_free(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.srq_free(key);
                    if let Some(ledger) = &mut self.ledger {
                        ledger.reset(key);
                    }
                }
            }
        }
        Ok(())
    }
}
