//! Event calls.

use dat_core::Result;
use dat_core::error::ErrorKind;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{CnoFields, CrFields, EvdFields, EvdFlags, EvdState, HandleKind};
use dat_core::id::EpId;

use super::{Outcome, Runner, code};
use crate::expect::{Checks, Verdict};
use crate::op::{EventOp, Side};
use crate::world::{Config, Key, Operation, Seen};

/// Chooses the streams of a dispatcher.
fn flags(choice: u8) -> EvdFlags {
    let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
    match choice % 12 {
        0..=2 => transfers,
        3 => EvdFlags::CR,
        4 => EvdFlags::CONNECTION,
        5 => EvdFlags::CR | EvdFlags::CONNECTION,
        6 => EvdFlags::SOFTWARE,
        7 => EvdFlags::DEFAULT,
        8 => EvdFlags::all(),
        9 => transfers | EvdFlags::CONNECTION | EvdFlags::SOFTWARE,
        10 => EvdFlags::DTO,
        _ if choice < 128 => EvdFlags::empty(),
        _ => EvdFlags::from_bits_retain(0x1000),
    }
}

/// Chooses a length: non-positive values unchanged, large ones beyond every limit.
fn length(choice: i8) -> i32 {
    match choice {
        112.. => 1_000_000,
        1.. => 1 + i32::from(choice) % 16,
        _ => i32::from(choice),
    }
}

impl Runner {
    pub(super) fn event(&mut self, side: Side, op: &EventOp) -> Outcome {
        match *op {
            EventOp::EvdCreate {
                length: choice,
                cno,
                flags: streams,
            } => {
                let cno = self.pick_optional(side, HandleKind::Cno, cno);
                let (length, flags) = (length(choice), flags(streams));
                let verdict = self.world.check_evd_create(side, length, cno, flags);
                let id = cno.map(|cno| self.cno_id(cno));
                let outcome = self.with(side, |ia| ia.evd_create(length, id, flags));
                if let Some(id) = self.judge(&verdict, outcome)? {
                    let actual = self.with(side, |ia| ia.evd_query(id, EvdFields::all()));
                    let actual = actual.map_or(0, |param| param.qlen);
                    self.expect(
                        actual >= length,
                        "a queue at least as long as requested (EVC-01)",
                        actual,
                    )?;
                    let key =
                        self.world
                            .evd_create(side, actual.unsigned_abs(), cno.flatten(), flags);
                    self.record_handle(key, id.handle());
                }
            }
            EventOp::EvdQuery { evd, unknown_mask } => self.evd_query(side, evd, unknown_mask)?,
            EventOp::EvdModifyCno { evd, cno } => {
                let key = self.pick(side, HandleKind::Evd, evd);
                let cno = self.pick_optional(side, HandleKind::Cno, cno);
                let mut checks = self.world.check_handle(side, HandleKind::Evd, key);
                self.world
                    .check_optional(&mut checks, side, HandleKind::Cno, cno);
                let (id, cno_id) = (self.evd_id(key), cno.map(|cno| self.cno_id(cno)));
                let outcome = self.with(side, |ia| ia.evd_modify_cno(id, cno_id));
                if self.judge(&checks.verdict(), outcome)?.is_some()
                    && let Some(evd) = key.and_then(|key| self.world.evds.get_mut(&key))
                {
                    // EVM-02: queued events may trigger the new object. CNW-05: the old one may
                    // have lost its last dispatcher.
                    let old = std::mem::replace(&mut evd.cno, cno.flatten());
                    self.world.touch_cno(old, false);
                    self.world.touch_cno(cno.flatten(), false);
                }
            }
            EventOp::EvdResize {
                evd,
                length: choice,
            } => {
                let key = self.pick(side, HandleKind::Evd, evd);
                let (id, length) = (self.evd_id(key), length(choice));
                let verdict = self.world.check_evd_resize(side, key, length);
                let outcome = self.with(side, |ia| ia.evd_resize(id, length));
                if self.judge(&verdict, outcome)?.is_some() {
                    let actual = self.with(side, |ia| ia.evd_query(id, EvdFields::all()));
                    let actual = actual.map_or(0, |param| param.qlen);
                    self.expect(
                        actual >= length,
                        "a queue at least as long as requested (EVZ-01)",
                        actual,
                    )?;
                    if let Some(evd) = key.and_then(|key| self.world.evds.get_mut(&key)) {
                        evd.length = actual.unsigned_abs();
                    }
                }
            }
            EventOp::EvdEnable { evd }
            | EventOp::EvdDisable { evd }
            | EventOp::EvdSetUnwaitable { evd }
            | EventOp::EvdClearUnwaitable { evd } => {
                let key = self.pick(side, HandleKind::Evd, evd);
                let id = self.evd_id(key);
                let verdict = self.check_query(side, HandleKind::Evd, key, false);
                let outcome = self.with(side, |ia| match op {
                    EventOp::EvdEnable { .. } => ia.evd_enable(id),
                    EventOp::EvdDisable { .. } => ia.evd_disable(id),
                    EventOp::EvdSetUnwaitable { .. } => ia.evd_set_unwaitable(id),
                    _ => ia.evd_clear_unwaitable(id),
                });
                if self.judge(&verdict, outcome)?.is_some()
                    && let Some(evd) = key.and_then(|key| self.world.evds.get_mut(&key))
                {
                    match op {
                        EventOp::EvdEnable { .. } => evd.enabled = true,
                        EventOp::EvdDisable { .. } => evd.enabled = false,
                        EventOp::EvdSetUnwaitable { .. } => evd.waitable = false,
                        _ => evd.waitable = true,
                    }
                }
            }
            EventOp::EvdFree { evd } => {
                let key = self.pick(side, HandleKind::Evd, evd);
                let id = self.evd_id(key);
                let verdict = self.world.check_evd_free(side, key);
                let outcome = self.with(side, |ia| ia.evd_free(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.evd_free(key);
                }
            }
            EventOp::EvdDequeue { evd } => {
                let key = self.pick(side, HandleKind::Evd, evd);
                self.dequeue(side, key)?;
            }
            EventOp::EvdPostSe { evd, pointer } => {
                let key = self.pick(side, HandleKind::Evd, evd);
                let id = self.evd_id(key);
                let verdict = self.world.check_post_software(side, key);
                let outcome = self.with(side, |ia| ia.evd_post_se(id, u64::from(pointer)));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.post_software(key, u64::from(pointer));
                }
            }
            EventOp::EvdWait { evd, threshold } => {
                self.evd_wait(side, evd, i32::from(threshold))?
            }
            EventOp::EvdWaitUntil {
                evd,
                threshold,
                limit,
            } => self.evd_wait_until(side, evd, i32::from(threshold), limit)?,
            EventOp::EvdWaitNow { evd, threshold } => {
                self.evd_wait_now(side, evd, i32::from(threshold))?
            }
            EventOp::EvdWaitMeanwhile {
                evd,
                threshold,
                call,
            } => self.evd_wait_meanwhile(side, evd, i32::from(threshold), call)?,
            EventOp::Drain => self.drain(side)?,
            EventOp::CnoCreate => self.cno_create(side, false)?,
            EventOp::CnoCreateWithAgent => self.cno_create(side, true)?,
            EventOp::CnoModifyAgent { cno, agent } => self.modify_agent(side, cno, agent)?,
            EventOp::CnoQuery { cno, unknown_mask } => {
                let key = self.pick(side, HandleKind::Cno, cno);
                let id = self.cno_id(key);
                let verdict = self.check_query(side, HandleKind::Cno, key, unknown_mask);
                let mask =
                    CnoFields::from_bits_retain(super::mask(CnoFields::all().bits(), unknown_mask));
                let outcome = self.with(side, |ia| ia.cno_query(id, mask));
                if let Some(param) = self.judge(&verdict, outcome)? {
                    self.compare_agent(key, param.agent)?;
                }
            }
            EventOp::CnoWait { cno } => self.cno_wait(side, cno)?,
            EventOp::CnoWaitUntil { cno, limit } => self.cno_wait_until(side, cno, limit)?,
            EventOp::CnoWaits { cno, waits } => self.cno_waits(side, cno, waits)?,
            EventOp::CnoFree { cno } => {
                let key = self.pick(side, HandleKind::Cno, cno);
                let id = self.cno_id(key);
                let verdict = self.world.check_cno_free(side, key);
                let outcome = self.with(side, |ia| ia.cno_free(id));
                if let (Some(()), Some(key)) = (self.judge(&verdict, outcome)?, key) {
                    self.world.cnos.remove(&key);
                    self.world.mark_dead(key);
                }
            }
            EventOp::Context {
                kind,
                object,
                value,
            } => self.context(side, kind, object, value)?,
        }
        Ok(())
    }

    /// Checks the consumer context and the type of a handle (CTX-01 to CTX-04, HTY-01).
    fn context(&mut self, side: Side, kind: u8, object: crate::op::Pick, value: u16) -> Outcome {
        let kind = HandleKind::ALL[usize::from(kind) % HandleKind::ALL.len()];
        let key = self.pick(side, kind, object);
        let handle = self.handle(key);
        let found = key.and_then(|key| self.world.objects.get(&key));
        let good = found.is_some_and(|object| object.alive && object.side == side);
        let mut checks = Checks::default();
        checks.handle(!good, None);
        let verdict = checks.verdict();
        let kind = found.map(|object| object.kind);
        let text = format!("{handle:?}");
        let id_text = format!("{:?}", EpId::from_handle(handle));
        let named = match handle.kind() {
            None => text == "null",
            Some(kind) => text.starts_with(&format!("{kind:?}#")),
        };
        let own = handle.kind().is_none_or(|kind| kind != HandleKind::Ep) || id_text == text;
        self.expect(
            named && own,
            "the kind of a handle in its text",
            (text, id_text),
        )?;
        let before = found.map_or(0, |object| object.context);
        let actual = self.with(side, |ia| ia.get_consumer_context(handle));
        if let Some(actual) = self.judge(&verdict, actual)? {
            self.expect(
                actual == before,
                format_args!("context {before} (CTX-04)"),
                actual,
            )?;
        }
        let outcome = self.with(side, |ia| ia.set_consumer_context(handle, u64::from(value)));
        if self.judge(&verdict, outcome)?.is_some()
            && let Some(object) = key.and_then(|key| self.world.objects.get_mut(&key))
        {
            object.context = u64::from(value);
        }
        let actual = self.with(side, |ia| ia.get_handle_type(handle));
        if let Some(actual) = self.judge(&verdict, actual)? {
            self.expect(
                Some(actual) == kind,
                format_args!("kind {kind:?} (HTY-01)"),
                actual,
            )?;
        }
        Ok(())
    }

    fn evd_query(&mut self, side: Side, evd: crate::op::Pick, unknown_mask: bool) -> Outcome {
        let key = self.pick(side, HandleKind::Evd, evd);
        let id = self.evd_id(key);
        let verdict = self.check_query(side, HandleKind::Evd, key, unknown_mask);
        let mask = EvdFields::from_bits_retain(super::mask(EvdFields::all().bits(), unknown_mask));
        let outcome = self.with(side, |ia| ia.evd_query(id, mask));
        if let Some(param) = self.judge(&verdict, outcome)?
            && let Some(evd) = key.and_then(|key| self.world.evds.get(&key))
        {
            let enabled = if evd.enabled {
                EvdState::ENABLED
            } else {
                EvdState::DISABLED
            };
            let waitable = if evd.waitable {
                EvdState::WAITABLE
            } else {
                EvdState::UNWAITABLE
            };
            let state = param.state.difference(EvdState::CONFIGURATION);
            let configuration = param.state.configuration();
            let configured = match key.and_then(|key| self.world.config_of(key)) {
                Some(Config::Notify) => configuration == EvdState::CONFIG_NOTIFY,
                Some(Config::Solicited) => configuration == EvdState::CONFIG_SOLICITED,
                _ => true,
            };
            let holds = param.qlen.unsigned_abs() == evd.length
                && state == enabled | waitable
                && param.flags == evd.flags
                && configured
                && param.cno.map(|cno| self.key(cno)) == evd.cno.map(Some);
            self.expect(holds, format_args!("{evd:?} (EVQ-01, EVQ-02)"), param)?;
        }
        Ok(())
    }

    /// Dequeues once; returns true if an event came.
    fn dequeue(&mut self, side: Side, key: Option<Key>) -> Outcome<bool> {
        let id = self.evd_id(key);
        let outcome = self.with(side, |ia| ia.evd_dequeue(id));
        self.check_event(side, key, outcome)
    }

    /// Checks an event of a dispatcher (EVG-01 to EVG-04); returns true if there was one.
    pub(super) fn check_event(
        &mut self,
        side: Side,
        key: Option<Key>,
        outcome: Result<Event>,
    ) -> Outcome<bool> {
        let Some(key) = key.filter(|&key| self.world.is(side, HandleKind::Evd, Some(key))) else {
            self.judge(&Verdict::refused(ErrorKind::InvalidHandle, None), outcome)?;
            return Ok(false);
        };
        match outcome {
            Ok(event) => {
                self.reached.insert(tag(&event));
                // Section 6 of the state machines: the event numbers of the interface.
                let number = event.number();
                let group = match event {
                    Event::Dto(_) => 0,
                    Event::RmrBind(_) => 1,
                    Event::ConnectionRequest { .. } => 2,
                    Event::Connection { .. } => 4,
                    Event::Async { .. } => 8,
                    Event::Software { .. } => 0x10,
                    Event::Extended(_) => 0x40,
                };
                self.expect(number >> 12 == group, "the number of its sort", number)?;
                let seen = self.translate(side, &event);
                self.record_completion(&seen)?;
                if !self.is_exact() {
                    return Ok(true);
                }
                match self
                    .world
                    .evds
                    .get_mut(&key)
                    .and_then(|evd| evd.take(&seen))
                {
                    Some(queued) => {
                        self.world.dequeued(&queued);
                        Ok(true)
                    }
                    None => {
                        self.mismatch(format!("one of these:{}", self.world.describe(key)), event)
                    }
                }
            }
            Err(error) => {
                let sure = self.world.evds.get(&key).map_or(0, |evd| evd.bounds().0);
                let empty = error.kind() == ErrorKind::QueueEmpty && sure == 0;
                if !empty && self.is_exact() {
                    return self.mismatch(
                        format!("one of these:{}", self.world.describe(key)),
                        code(error),
                    );
                }
                if let Some(evd) = self.world.evds.get_mut(&key) {
                    evd.found_empty();
                }
                Ok(false)
            }
        }
    }

    /// Translates an event to the oracle's keys; records the handles in it.
    fn translate(&mut self, side: Side, event: &Event) -> Seen {
        match *event {
            Event::Dto(dto) => Seen::Completion {
                ep: self.key(dto.ep),
                cookie: dto.cookie,
                status: dto.status,
                length: dto.transferred_length,
                operation: Operation::Dto(dto.operation),
            },
            Event::RmrBind(bind) => Seen::Bind {
                rmr: self.key(bind.rmr),
                cookie: bind.cookie,
                status: bind.status,
            },
            Event::Extended(extended) => Seen::Completion {
                ep: self.key(extended.ep),
                cookie: extended.cookie,
                status: extended.status,
                length: extended.transferred_length,
                operation: Operation::Extended(extended.operation),
            },
            Event::ConnectionRequest {
                service_point,
                qualifier,
                cr,
                ..
            } => {
                let query = self.with(side, |ia| ia.cr_query(cr, CrFields::all()));
                let attempt = query.as_ref().ok().and_then(|param| {
                    let tag = param.private_data.get(..4)?.try_into().ok()?;
                    usize::try_from(u32::from_le_bytes(tag)).ok()
                });
                if let (Some(attempt), Ok(param)) = (attempt, query) {
                    let brings = param.local_ep.map(|ep| self.key(ep));
                    let exact = self.is_exact();
                    let keys = self.world.request_of(side, attempt, brings, exact);
                    if let Some((cr_key, ep)) = keys {
                        self.record_handle(cr_key, cr.handle());
                        if let (Some(ep), Some(id)) = (ep, param.local_ep) {
                            self.record_handle(ep, id.handle());
                        }
                    }
                }
                Seen::Request {
                    service_point: service_point.and_then(|psp| self.key(psp)),
                    qualifier,
                    attempt,
                }
            }
            Event::Connection {
                kind,
                ep,
                private_data_size,
            } => {
                let mut private_data = vec![0; usize::from(private_data_size)];
                if kind == ConnectionEventKind::Established && private_data_size != 0 {
                    // EVW-13: the data is gone if the endpoint was freed or reset meanwhile; the
                    // size shows that it existed.
                    let read = self.with(side, |ia| ia.ep_private_data(ep, &mut private_data));
                    if read != Ok(private_data.len()) {
                        private_data = self.world.private_data_of(self.key(ep));
                    }
                }
                Seen::Connection {
                    kind,
                    ep: self.key(ep),
                    private_data,
                }
            }
            Event::Async {
                kind,
                handle,
                reason,
            } => Seen::Async {
                kind,
                object: self.key(handle),
                reason,
            },
            Event::Software { pointer } => Seen::Software { pointer },
        }
    }

    /// Drains all dispatchers.
    pub(super) fn drain(&mut self, side: Side) -> Outcome {
        let mut any = true;
        while any {
            any = false;
            let keys: Vec<Key> = self
                .world
                .evds
                .iter()
                .filter(|(_, evd)| evd.side == side)
                .map(|(&key, _)| key)
                .collect();
            for key in keys {
                while self.dequeue(side, Some(key))? {
                    any = true;
                }
            }
        }
        Ok(())
    }
}

/// Returns the tag of an event, without handles.
fn tag(event: &Event) -> String {
    match event {
        Event::Dto(dto) => format!("{:?} {:?}", dto.operation, dto.status),
        Event::RmrBind(bind) => format!("bind {:?}", bind.status),
        Event::Extended(completion) => {
            let operation = format!("{:?}", completion.operation);
            // Without the immediate data of a receive.
            let operation = operation.split(' ').next().unwrap_or_default();
            format!("{operation} {:?}", completion.status)
        }
        Event::ConnectionRequest { .. } => "request".into(),
        Event::Connection { kind, .. } => format!("{kind:?}"),
        Event::Async { kind, reason, .. } => format!("{kind:?} {reason}"),
        Event::Software { .. } => "software".into(),
    }
}
