//! Connection calls.

use dat_core::attributes::IaAddress;
use dat_core::endpoint::ConnectParam;
use dat_core::flags::{
    ConnectFlags, CrFields, EndpointState, HandleKind, PspFields, PspFlags, QualityOfService,
    RspFields, TIMEOUT_INFINITE,
};

use super::{NODES, Outcome, Runner};
use crate::op::{ConnectionOp, Pick, Side};
use crate::world::{Psp, Rsp};

/// Chooses one of few qualifiers, so that connections meet listeners.
fn qualifier(choice: u8) -> u64 {
    100 + u64::from(choice % 3)
}

/// Chooses a timeout in microseconds: infinite, longer than a run, or 0, which is refused.
fn timeout(choice: u8) -> u32 {
    match choice {
        0..=127 => TIMEOUT_INFINITE,
        128..=247 => 4_000_000_000,
        248..=251 => 0,
        _ => TIMEOUT_INFINITE,
    }
}

/// Returns private data: four bytes that identify the attempt, then filler, sometimes too long.
fn private_data(tag: usize, choice: u8) -> Vec<u8> {
    let length = match choice {
        0..=199 => 4 + usize::from(choice % 16),
        200..=239 => 64,
        _ => 65,
    };
    let mut data = u32::try_from(tag)
        .unwrap_or(u32::MAX)
        .to_le_bytes()
        .to_vec();
    data.resize(length, choice);
    data
}

fn flags(by_provider: bool) -> PspFlags {
    if by_provider {
        PspFlags::Provider
    } else {
        PspFlags::Consumer
    }
}

impl Runner {
    pub(super) fn connection(&mut self, side: Side, op: &ConnectionOp) -> Outcome {
        match *op {
            ConnectionOp::Connect {
                ep,
                qualifier,
                timeout,
                private_data,
                address,
            } => {
                self.connect(side, ep, [qualifier, timeout, private_data, address])?;
            }
            ConnectionOp::DupConnect {
                ep,
                model,
                timeout,
                private_data,
            } => {
                self.dup_connect(side, [ep, model], timeout, private_data)?;
            }
            ConnectionOp::PspCreate {
                qualifier: choice,
                evd,
                by_provider,
            } => {
                let evd = self.pick(side, HandleKind::Evd, evd);
                let (qualifier, id) = (qualifier(choice), self.evd_id(evd));
                let verdict = self.world.check_psp_create(side, Some(qualifier), evd);
                let outcome =
                    self.with(side, |ia| ia.psp_create(qualifier, id, flags(by_provider)));
                if let (Some(id), Some(evd)) = (self.judge(&verdict, outcome)?, evd) {
                    let key = self.world.psp_create(Psp {
                        side,
                        qualifier,
                        evd,
                        by_provider,
                    });
                    self.record_handle(key, id.handle());
                }
            }
            ConnectionOp::PspCreateAny { evd, by_provider } => {
                let evd = self.pick(side, HandleKind::Evd, evd);
                let id = self.evd_id(evd);
                let verdict = self.world.check_psp_create(side, None, evd);
                let outcome = self.with(side, |ia| ia.psp_create_any(id, flags(by_provider)));
                if let (Some((id, qualifier)), Some(evd)) = (self.judge(&verdict, outcome)?, evd) {
                    let used = self
                        .world
                        .psps
                        .values()
                        .any(|psp| psp.side == side && psp.qualifier == qualifier);
                    self.expect(!used, "an unused qualifier (PSA-01)", qualifier)?;
                    let key = self.world.psp_create(Psp {
                        side,
                        qualifier,
                        evd,
                        by_provider,
                    });
                    self.record_handle(key, id.handle());
                }
            }
            ConnectionOp::PspQuery { psp, unknown_mask } => {
                let key = self.pick(side, HandleKind::Psp, psp);
                let id = self.psp_id(key);
                let verdict = self.check_query(side, HandleKind::Psp, key, unknown_mask);
                let mask =
                    PspFields::from_bits_retain(super::mask(PspFields::all().bits(), unknown_mask));
                let outcome = self.with(side, |ia| ia.psp_query(id, mask));
                if let Some(param) = self.judge(&verdict, outcome)?
                    && let Some(psp) = key.and_then(|key| self.world.psps.get(&key))
                {
                    let holds = param.qualifier == psp.qualifier
                        && self.key(param.evd) == Some(psp.evd)
                        && param.flags == flags(psp.by_provider);
                    self.expect(holds, format_args!("{psp:?} (PSQ-01)"), param)?;
                }
            }
            ConnectionOp::PspFree { psp } => {
                let key = self.pick(side, HandleKind::Psp, psp);
                let id = self.psp_id(key);
                let verdict = self.check_query(side, HandleKind::Psp, key, false);
                let outcome = self.with(side, |ia| ia.psp_free(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.psp_free(key);
                }
            }
            ConnectionOp::RspCreate {
                qualifier: choice,
                ep,
                evd,
            } => {
                let ep = self.pick_optional(side, HandleKind::Ep, ep);
                let evd = self.pick(side, HandleKind::Evd, evd);
                let qualifier = qualifier(choice);
                let verdict = self.world.check_rsp_create(side, qualifier, ep, evd);
                let (ep_id, id) = (ep.map(|ep| self.ep_id(ep)), self.evd_id(evd));
                let outcome = self.with(side, |ia| ia.rsp_create(qualifier, ep_id, id));
                if let (Some(id), Some(evd)) = (self.judge(&verdict, outcome)?, evd) {
                    let ep = ep.flatten();
                    let key = self.world.rsp_create(Rsp {
                        side,
                        qualifier,
                        evd,
                        ep,
                    });
                    self.record_handle(key, id.handle());
                }
            }
            ConnectionOp::RspQuery { rsp, unknown_mask } => {
                let key = self.pick(side, HandleKind::Rsp, rsp);
                let id = self.rsp_id(key);
                let verdict = self.check_query(side, HandleKind::Rsp, key, unknown_mask);
                let mask =
                    RspFields::from_bits_retain(super::mask(RspFields::all().bits(), unknown_mask));
                let outcome = self.with(side, |ia| ia.rsp_query(id, mask));
                if let Some(param) = self.judge(&verdict, outcome)?
                    && let Some(rsp) = key.and_then(|key| self.world.rsps.get(&key))
                {
                    let holds = param.qualifier == rsp.qualifier
                        && self.key(param.evd) == Some(rsp.evd)
                        && param.ep.map(|ep| self.key(ep)) == rsp.ep.map(Some);
                    self.expect(holds, format_args!("{rsp:?} (RSQ-01)"), param)?;
                }
            }
            ConnectionOp::RspFree { rsp } => {
                let key = self.pick(side, HandleKind::Rsp, rsp);
                let id = self.rsp_id(key);
                let verdict = self.check_query(side, HandleKind::Rsp, key, false);
                let outcome = self.with(side, |ia| ia.rsp_free(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.rsp_free(key);
                }
            }
            ConnectionOp::CrQuery { cr, unknown_mask } => {
                let key = self.pick(side, HandleKind::Cr, cr);
                let id = self.cr_id(key);
                let verdict = self.check_query(side, HandleKind::Cr, key, unknown_mask);
                let mask =
                    CrFields::from_bits_retain(super::mask(CrFields::all().bits(), unknown_mask));
                let outcome = self.with(side, |ia| ia.cr_query(id, mask));
                if let Some(param) = self.judge(&verdict, outcome)?
                    && let Some(cr) = key.and_then(|key| self.world.crs.get(&key))
                {
                    let holds = param.local_ep.map(|ep| self.key(ep)) == cr.ep.map(Some);
                    self.expect(holds, format_args!("{cr:?} (CRQ-01)"), param)?;
                }
            }
            ConnectionOp::CrAccept {
                cr,
                ep,
                private_data: choice,
            } => {
                let key = self.pick(side, HandleKind::Cr, cr);
                let ep = self.pick_optional(side, HandleKind::Ep, ep);
                let data = private_data(0xACCE, choice);
                let verdict = self.world.check_accept(side, key, ep, data.len());
                let (id, ep_id) = (self.cr_id(key), ep.map(|ep| self.ep_id(ep)));
                let outcome = self.with(side, |ia| ia.cr_accept(id, ep_id, &data));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.accept(key, ep.flatten(), data);
                }
            }
            ConnectionOp::CrReject { cr } => {
                let key = self.pick(side, HandleKind::Cr, cr);
                let id = self.cr_id(key);
                let verdict = self.world.check_handle(side, HandleKind::Cr, key).verdict();
                let outcome = self.with(side, |ia| ia.cr_reject(id, &[]));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.reject(key);
                }
            }
            ConnectionOp::CrHandoff {
                cr,
                qualifier: choice,
            } => {
                let key = self.pick(side, HandleKind::Cr, cr);
                let qualifier = qualifier(choice);
                let verdict = self.world.check_handoff(side, key, qualifier);
                // CRH-01 does not define the effect of a service point without room.
                if verdict.may_succeed && !self.world.can_take(side, qualifier) && self.is_exact() {
                    return Ok(());
                }
                let id = self.cr_id(key);
                let outcome = self.with(side, |ia| ia.cr_handoff(id, qualifier));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    if self.is_exact() {
                        self.world.handoff(side, key, qualifier);
                    } else {
                        self.world.remove_request(key);
                    }
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self, side: Side, ep: Pick, [which, limit, data, address]: [u8; 4]) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        let data = private_data(self.world.attempts.len(), data);
        let (qualifier, timeout) = (qualifier(which), timeout(limit));
        let target = match address {
            0..=223 => Some(side.other()),
            224..=247 => Some(side),
            _ => None,
        };
        // The last choices of timeout and address make another argument wrong.
        let unknown = [252, 254, 255].contains(&limit);
        let unsupported = limit == 253;
        let elsewhere = address == 248;
        let odd = [unknown, unsupported, elsewhere];
        let verdict = self
            .world
            .check_connect(side, key, timeout, data.len(), odd);
        let number = target.map_or(99, |side| NODES[side.index()].1);
        let param = ConnectParam {
            address: if elsewhere {
                IaAddress::V4([10, 0, 0, 1], 1)
            } else {
                IaAddress::Node(number)
            },
            qualifier,
            timeout,
            private_data: &data,
            quality: match limit {
                254 => QualityOfService::from_bits_retain(0x100),
                255 => QualityOfService::LOW_LATENCY | QualityOfService::PREMIUM,
                _ => QualityOfService::BEST_EFFORT,
            },
            flags: match limit {
                252 => ConnectFlags::from_bits_retain(0x80),
                253 => ConnectFlags::MULTIPATH,
                _ => ConnectFlags::empty(),
            },
        };
        let (id, now) = (self.ep_id(key), self.fabric.now());
        let outcome = self.with(side, |ia| ia.ep_connect(id, &param, now));
        if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
            self.world
                .connect(key, target, qualifier, timeout != TIMEOUT_INFINITE);
        }
        Ok(())
    }

    fn dup_connect(&mut self, side: Side, [ep, model]: [Pick; 2], limit: u8, data: u8) -> Outcome {
        let key = self.pick(side, HandleKind::Ep, ep);
        let model = self.pick(side, HandleKind::Ep, model);
        let attempt = model
            .and_then(|model| self.world.eps.get(&model))
            .filter(|model| model.state == EndpointState::Connected)
            .and_then(|model| model.attempt)
            .and_then(|index| self.world.attempts.get(index))
            .cloned();
        // EPU-01 does not say which qualifier a duplicate of an accepted connection goes to.
        let accepted = attempt
            .as_ref()
            .is_some_and(|attempt| Some(attempt.active) != model);
        if accepted && self.is_exact() {
            return Ok(());
        }
        let data = private_data(self.world.attempts.len(), data);
        let timeout = timeout(limit);
        let verdict = self
            .world
            .check_dup_connect(side, key, model, timeout, data.len());
        let (id, model_id, now) = (self.ep_id(key), self.ep_id(model), self.fabric.now());
        let outcome = self.with(side, |ia| {
            ia.ep_dup_connect(
                id,
                model_id,
                timeout,
                &data,
                QualityOfService::BEST_EFFORT,
                now,
            )
        });
        if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
            let (target, qualifier) =
                attempt.map_or((None, 0), |attempt| (attempt.target, attempt.qualifier));
            self.world
                .connect(key, target, qualifier, timeout != TIMEOUT_INFINITE);
        }
        Ok(())
    }
}
