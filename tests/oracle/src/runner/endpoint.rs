//! Endpoint calls.

use dat_core::attributes::EpAttributes;
use dat_core::error::ErrorKind;
use dat_core::flags::{
    CloseFlags, CompletionFlags, EndpointState, EpFields, HandleKind, QualityOfService,
};

use super::{Outcome, Runner};
use crate::op::{EndpointOp, Pick, Side};
use crate::world::{Key, MOST_BYTES, MOST_SEGMENTS, Shape};

/// Chooses attributes, mostly the same legal ones; `None` stands for the defaults.
fn attributes(choice: u8) -> Option<EpAttributes> {
    let standard = EpAttributes {
        max_message_size: 64,
        max_rdma_size: 96,
        max_recv_dtos: 4,
        max_request_dtos: 4,
        max_recv_iov: 3,
        max_request_iov: 3,
        max_rdma_read_in: 4,
        max_rdma_read_out: 4,
        max_rdma_read_iov: 2,
        max_rdma_write_iov: 3,
        ..EpAttributes::DEFAULT
    };
    let flags = |receive, request| EpAttributes {
        recv_completion_flags: receive,
        request_completion_flags: request,
        ..standard
    };
    let plain = CompletionFlags::empty();
    Some(match choice {
        0..=159 => standard,
        160..=172 => flags(CompletionFlags::UNSIGNALLED, CompletionFlags::UNSIGNALLED),
        173 => EpAttributes {
            max_message_size: MOST_BYTES + 1,
            ..standard
        },
        174 => EpAttributes {
            max_rdma_size: MOST_BYTES + 1,
            ..standard
        },
        175 => EpAttributes {
            srq_soft_hw: -2,
            ..standard
        },
        176..=183 => flags(CompletionFlags::SOLICITED_WAIT, plain),
        184..=191 => flags(
            CompletionFlags::EVD_THRESHOLD,
            CompletionFlags::EVD_THRESHOLD,
        ),
        192..=199 => flags(plain, CompletionFlags::UNSIGNALLED),
        200..=207 => EpAttributes {
            max_recv_dtos: 1,
            max_request_dtos: 1,
            ..standard
        },
        208..=211 => EpAttributes {
            max_recv_dtos: -1,
            ..standard
        },
        212..=215 => EpAttributes {
            max_rdma_write_iov: MOST_SEGMENTS + 1,
            ..standard
        },
        216..=219 => EpAttributes {
            max_request_dtos: i32::MAX,
            ..standard
        },
        220..=223 => EpAttributes {
            max_recv_dtos: 0,
            ..standard
        },
        224..=227 => EpAttributes {
            max_request_dtos: 0,
            ..standard
        },
        228..=231 => flags(CompletionFlags::SUPPRESS, plain),
        232..=235 => flags(plain, CompletionFlags::SOLICITED_WAIT),
        236..=239 => EpAttributes {
            qos: QualityOfService::PREMIUM,
            ..standard
        },
        240..=243 => EpAttributes {
            qos: QualityOfService::BEST_EFFORT | QualityOfService::LOW_LATENCY,
            ..standard
        },
        244..=246 => EpAttributes {
            srq_soft_hw: 100,
            max_message_size: 48,
            max_rdma_size: 80,
            ..standard
        },
        247 => EpAttributes {
            max_rdma_read_out: 0,
            ..standard
        },
        _ => return None,
    })
}

impl Runner {
    pub(super) fn endpoint(&mut self, side: Side, op: &EndpointOp) -> Outcome {
        match *op {
            EndpointOp::Create {
                pz,
                receive,
                request,
                connect,
                shape,
            } => {
                let evds = [receive, request, connect];
                self.ep_create(side, pz, evds, None, shape)?;
            }
            EndpointOp::CreateWithSrq {
                pz,
                receive,
                request,
                connect,
                srq,
                shape,
            } => {
                let evds = [receive, request, connect];
                self.ep_create(side, pz, evds, Some(srq), shape)?;
            }
            EndpointOp::Query { ep, unknown_mask } => self.ep_query(side, ep, unknown_mask)?,
            EndpointOp::ModifyPz { ep, pz } => self.modify_pz(side, ep, pz)?,
            EndpointOp::ModifyEvds {
                ep,
                receive,
                request,
                connect,
            } => {
                self.modify_evds(side, ep, [receive, request, connect])?;
            }
            EndpointOp::ModifyState { ep } => {
                let key = self.pick(side, HandleKind::Ep, ep);
                let mut checks = self.world.check_handle(side, HandleKind::Ep, key);
                // EPM-01: the state cannot be modified.
                checks.parameter(true, 0);
                let id = self.ep_id(key);
                let outcome = self.with(side, |ia| {
                    let param = ia.ep_query(id, EpFields::all())?;
                    ia.ep_modify(id, EpFields::STATE, &param)
                });
                self.judge(&checks.verdict(), outcome)?;
            }
            EndpointOp::Modify { ep, fields, shape } => self.modify(side, ep, fields, shape)?,
            EndpointOp::GetStatus { ep } => {
                let key = self.pick(side, HandleKind::Ep, ep);
                let verdict = self.world.check_handle(side, HandleKind::Ep, key).verdict();
                let id = self.ep_id(key);
                let outcome = self.with(side, |ia| ia.ep_get_status(id));
                self.judge(&verdict, outcome)?;
            }
            EndpointOp::RecvQuery { ep } => {
                let key = self.pick(side, HandleKind::Ep, ep);
                let mut checks = self.world.check_handle(side, HandleKind::Ep, key);
                // EPY-02: there is nothing to report before the endpoint has a queue pair.
                checks.possible(ErrorKind::ModelNotSupported);
                let id = self.ep_id(key);
                let outcome = self.with(side, |ia| ia.ep_recv_query(id));
                if let Some(query) = self.judge(&checks.verdict(), outcome)? {
                    let known = query.allocated >= 0 && query.span >= 0;
                    self.expect(
                        !known || query.span >= query.allocated,
                        "a span that is not below the count (EPY-02)",
                        query,
                    )?;
                }
            }
            EndpointOp::SetWatermark { ep, soft, hard } => {
                let key = self.pick(side, HandleKind::Ep, ep);
                // Reaching a limit depends on how messages overlap. Other tests, and runs with
                // faults, cover EPH-02 and EPH-03.
                let limit = |mark: i8| match i32::from(mark) {
                    mark if self.is_exact() && mark >= 0 => mark + 64,
                    mark => mark,
                };
                let (soft, hard) = (limit(soft), limit(hard));
                let verdict = self.world.check_watermark(side, key, soft, hard);
                let id = self.ep_id(key);
                let outcome = self.with(side, |ia| ia.ep_set_watermark(id, soft, hard));
                self.judge(&verdict, outcome)?;
            }
            EndpointOp::Reset { ep } => {
                let key = self.pick(side, HandleKind::Ep, ep);
                let verdict = self.world.check_ep_reset(side, key);
                let id = self.ep_id(key);
                let outcome = self.with(side, |ia| ia.ep_reset(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.ep_reset(key);
                    if let Some(ledger) = &mut self.ledger {
                        ledger.reset(key);
                    }
                }
            }
            EndpointOp::Free { ep } => {
                let key = self.pick(side, HandleKind::Ep, ep);
                let verdict = self.world.check_ep_free(side, key);
                let id = self.ep_id(key);
                let outcome = self.with(side, |ia| ia.ep_free(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.ep_free(key);
                    if let Some(ledger) = &mut self.ledger {
                        ledger.reset(key);
                    }
                }
            }
            EndpointOp::Disconnect { ep, graceful } => {
                let key = self.pick(side, HandleKind::Ep, ep);
                let verdict = self.world.check_disconnect(side, key);
                let id = self.ep_id(key);
                let how = if graceful {
                    CloseFlags::Graceful
                } else {
                    CloseFlags::Abrupt
                };
                let outcome = self.with(side, |ia| ia.ep_disconnect(id, how));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key)
                    && self.is_exact()
                {
                    self.world.disconnect(key, graceful);
                }
            }
        }
        Ok(())
    }

    fn ep_create(
        &mut self,
        side: Side,
        pz: Option<Pick>,
        evds: [Option<Pick>; 3],
        srq: Option<Pick>,
        choice: u8,
    ) -> Outcome {
        let pz = self.pick_optional(side, HandleKind::Pz, pz);
        let dispatchers = evds.map(|evd| self.pick_optional(side, HandleKind::Evd, evd));
        let srq = srq.map(|srq| self.pick(side, HandleKind::Srq, srq));
        let given = attributes(choice);
        // EPX-01: a shared receive queue requires attributes.
        let given = if srq.is_some() {
            given.or(attributes(0))
        } else {
            given
        };
        let shape = Shape::of(&given.unwrap_or_default());
        let verdict =
            self.world
                .check_ep_create(side, pz, dispatchers, srq, &shape, given.is_none());
        let pz_id = pz.map(|pz| self.pz_id(pz));
        let [receive, request, connect] = dispatchers.map(|evd| evd.map(|evd| self.evd_id(evd)));
        let outcome = match srq {
            None => self.with(side, |ia| {
                ia.ep_create(pz_id, receive, request, connect, given.as_ref())
            }),
            Some(srq) => {
                let srq = self.srq_id(srq);
                let given = given.unwrap_or_default();
                self.with(side, |ia| {
                    ia.ep_create_with_srq(pz_id, receive, request, connect, srq, &given)
                })
            }
        };
        if let Some(id) = self.judge(&verdict, outcome)? {
            let evds = dispatchers.map(Option::flatten);
            let state = EndpointState::Unconnected;
            let key = self
                .world
                .ep_create(side, pz.flatten(), evds, srq.flatten(), shape, state);
            let param = self.with(side, |ia| ia.ep_query(id, EpFields::all()));
            let Ok(param) = param else {
                return self.mismatch("the parameters of a new endpoint (EPQ-01)", param);
            };
            self.expect(
                given.is_none_or(|given| given == param.attributes),
                "the attributes as they were given (EPC-08)",
                param,
            )?;
            if let Some(ep) = self.world.eps.get_mut(&key) {
                ep.has_defaults = given.is_none();
                ep.attributes = param.attributes;
            }
            self.record_handle(key, id.handle());
        }
        Ok(())
    }

    fn ep_query(&mut self, side: Side, ep: Pick, unknown_mask: bool) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        let id = self.ep_id(key);
        let verdict = self.check_query(side, HandleKind::Ep, key, unknown_mask);
        let bits = EpFields::all().bits() | if unknown_mask { 1 << 60 } else { 0 };
        let mask = EpFields::from_bits_retain(bits);
        let outcome = self.with(side, |ia| ia.ep_query(id, mask));
        if let Some(param) = self.judge(&verdict, outcome)?
            && let Some(ep) = key.and_then(|key| self.world.eps.get(&key))
        {
            let same = |id: Option<dat_core::id::EvdId>, key: Option<Key>| {
                id.map(|id| self.key(id)) == key.map(Some)
            };
            let holds = ep.may_be(param.state)
                && same(param.recv_evd, ep.receive)
                && same(param.request_evd, ep.request)
                && same(param.connect_evd, ep.connect)
                && param.pz.map(|pz| self.key(pz)) == ep.pz.map(Some)
                && param.srq.map(|srq| self.key(srq)) == ep.srq.map(Some);
            self.expect(holds, format_args!("{ep:?} (EPQ-01)"), param)?;
        }
        Ok(())
    }

    fn modify_pz(&mut self, side: Side, ep: Pick, pz: Pick) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        let pz = self.pick(side, HandleKind::Pz, pz);
        // EPM-02: receives of the old zone fail when a message arrives; other tests cover that.
        let busy = key
            .and_then(|key| self.world.eps.get(&key))
            .is_some_and(|ep| !ep.receives.is_empty());
        if busy && self.is_exact() {
            return Ok(());
        }
        let verdict = self.world.check_modify_pz(side, key, pz);
        let (id, pz_id) = (self.ep_id(key), self.pz_id(pz));
        let outcome = self.with(side, |ia| {
            let mut param = ia.ep_query(id, EpFields::all())?;
            param.pz = Some(pz_id);
            ia.ep_modify(id, EpFields::PZ, &param)
        });
        if self.judge(&verdict, outcome)?.is_some()
            && let Some(ep) = key.and_then(|key| self.world.eps.get_mut(&key))
        {
            ep.pz = pz;
        }
        Ok(())
    }

    fn modify_evds(&mut self, side: Side, ep: Pick, evds: [Pick; 3]) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        let evds = evds.map(|evd| self.pick(side, HandleKind::Evd, evd));
        // The effect on posted receives and on completions that were not dequeued is open.
        let busy = key
            .and_then(|key| self.world.eps.get(&key))
            .is_some_and(|ep| ep.receive_slots.occupied() + ep.request_slots.occupied() != 0);
        if busy && self.is_exact() {
            return Ok(());
        }
        let verdict = self.world.check_modify_evds(side, key, evds);
        let id = self.ep_id(key);
        let [receive, request, connect] = evds.map(|evd| self.evd_id(evd));
        let fields = EpFields::RECV_EVD | EpFields::REQUEST_EVD | EpFields::CONNECT_EVD;
        let outcome = self.with(side, |ia| {
            let mut param = ia.ep_query(id, EpFields::all())?;
            param.recv_evd = Some(receive);
            param.request_evd = Some(request);
            param.connect_evd = Some(connect);
            ia.ep_modify(id, fields, &param)
        });
        if self.judge(&verdict, outcome)?.is_some()
            && let Some(ep) = key.and_then(|key| self.world.eps.get_mut(&key))
        {
            [ep.receive, ep.request, ep.connect] = evds;
        }
        Ok(())
    }

    /// Modifies attributes (EPM-01 to EPM-07): all of the fields, or none.
    fn modify(&mut self, side: Side, ep: Pick, fields: u32, shape: u8) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        // The effect on posts and on completions that were not dequeued is open.
        let busy = key
            .and_then(|key| self.world.eps.get(&key))
            .is_some_and(|ep| ep.receive_slots.occupied() + ep.request_slots.occupied() != 0);
        if busy && self.is_exact() {
            return Ok(());
        }
        let others = EpFields::PZ | EpFields::RECV_EVD | EpFields::REQUEST_EVD;
        let others = others | EpFields::CONNECT_EVD | EpFields::STATE;
        let fields = EpFields::from_bits_retain(u64::from(fields)).difference(others);
        let wanted = attributes(shape).unwrap_or_default();
        let merged = key
            .and_then(|key| self.world.eps.get(&key))
            .map_or(wanted, |ep| merge(&ep.attributes, &wanted, fields));
        let verdict = self.world.check_modify(side, key, fields, &merged);
        let id = self.ep_id(key);
        let outcome = self.with(side, |ia| {
            let mut param = ia.ep_query(id, EpFields::all())?;
            param.attributes = wanted;
            ia.ep_modify(id, fields, &param)?;
            ia.ep_query(id, EpFields::all())
        });
        if let Some(param) = self.judge(&verdict, outcome)? {
            self.expect(
                param.attributes == merged,
                format_args!("{merged:?} (EPM-04)"),
                param.attributes,
            )?;
            if let Some(ep) = key.and_then(|key| self.world.eps.get_mut(&key)) {
                ep.attributes = merged;
                ep.shape = Shape::of(&merged);
                let depth = EpFields::MAX_RDMA_READ_IN | EpFields::MAX_RDMA_READ_OUT;
                ep.has_defaults &= !fields.contains(depth);
            }
        }
        Ok(())
    }
}

/// Returns the attributes with the selected fields replaced.
fn merge(old: &EpAttributes, wanted: &EpAttributes, fields: EpFields) -> EpAttributes {
    let mut merged = *old;
    macro_rules! replace {
        ($($field:ident $attribute:ident)*) => {$(
            if fields.contains(EpFields::$field) {
                merged.$attribute = wanted.$attribute;
            }
        )*};
    }
    replace! {
        SERVICE_TYPE service_type
        MAX_MESSAGE_SIZE max_message_size
        MAX_RDMA_SIZE max_rdma_size
        QOS qos
        RECV_COMPLETION_FLAGS recv_completion_flags
        REQUEST_COMPLETION_FLAGS request_completion_flags
        MAX_RECV_DTOS max_recv_dtos
        MAX_REQUEST_DTOS max_request_dtos
        MAX_RECV_IOV max_recv_iov
        MAX_REQUEST_IOV max_request_iov
        MAX_RDMA_READ_IN max_rdma_read_in
        MAX_RDMA_READ_OUT max_rdma_read_out
        SRQ_SOFT_HW srq_soft_hw
        MAX_RDMA_READ_IOV max_rdma_read_iov
        MAX_RDMA_WRITE_IOV max_rdma_write_iov
    }
    merged
}
