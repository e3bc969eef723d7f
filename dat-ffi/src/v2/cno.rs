//! Notification objects.

use dat_core::flags::{CnoFields, HandleKind};
use dat_core::id::CnoId;
use dat_core::{Error, ErrorKind};

use super::result::{Code, adapter, adapter_of, check_mask, code, ia_of};
use crate::adapter::with_device;
use crate::agents;
use crate::boundary::{Agent, CnoParam, Out};
use crate::handles::{CHandle, reserve};

/// `DAT_PROXY_TYPE_AGENT`.
const PROXY_AGENT: u32 = 1;
/// The fields are 1, 2 and 3, and all of them 4, which is no mask; so every value up to 7 is one.
const FIELDS: u32 = 0x7;

/// Spec: CNC-01..03
pub(super) extern "C" fn create(ia: CHandle, agent: Agent, cno: Out<CHandle>) -> Code {
    code((|| {
        let adapter = adapter(ia)?;
        let place = cno.required(3)?;
        let cell = reserve()?;
        if agent.is_some() {
            adapter.keep()?;
        }
        let proxy = agents::enlist(agent, ia);
        let made = with_device!(adapter, opened => opened.ia.cno_create(proxy))
            .inspect_err(|_| agents::dismiss(proxy))?;
        place.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })())
}

/// Spec: CNM-01, CNC-02
pub(super) extern "C" fn modify_agent(cno: CHandle, agent: Agent) -> Code {
    code((|| {
        let adapter = adapter_of(cno, HandleKind::Cno)?;
        let id = CnoId::from_handle(cno.named());
        if agent.is_some() {
            adapter.keep()?;
        }
        let proxy = agents::enlist(agent, adapter.handle);
        let former = with_device!(adapter, opened => {
            opened.ia.cno_query(id, CnoFields::empty()).and_then(|former| {
                opened.ia.cno_modify_agent(id, proxy).map(|()| former)
            })
        })
        .inspect_err(|_| agents::dismiss(proxy))?;
        agents::dismiss(former.agent);
        Ok(())
    })())
}

/// Spec: CNQ-01
pub(super) extern "C" fn query(cno: CHandle, mask: u32, param: Out<CnoParam>) -> Code {
    code((|| {
        let adapter = adapter_of(cno, HandleKind::Cno)?;
        let id = CnoId::from_handle(cno.named());
        let told = with_device!(adapter, opened => opened.ia.cno_query(id, CnoFields::empty()))?;
        check_mask(mask, FIELDS)?;
        let agent = agents::known(told.agent);
        param.required(3)?.put(CnoParam {
            ia: ia_of(&adapter),
            proxy_type: if agent.is_some() { PROXY_AGENT } else { 0 },
            agent,
        });
        Ok(())
    })())
}

/// Spec: CNF-01
pub(super) extern "C" fn free(cno: CHandle) -> Code {
    code((|| {
        let adapter = adapter_of(cno, HandleKind::Cno)?;
        let id = CnoId::from_handle(cno.named());
        let former = with_device!(adapter, opened => {
            opened.ia.cno_query(id, CnoFields::empty())
                .and_then(|former| opened.ia.cno_free(id).map(|()| former))
        })?;
        agents::dismiss(former.agent);
        adapter.retire(id);
        Ok(())
    })())
}

/// When the time is up, the dispatcher is null.
///
/// Spec: CNW-01..07
pub(super) extern "C" fn wait(cno: CHandle, timeout: u32, evd: Out<CHandle>) -> Code {
    code((|| {
        let adapter = adapter_of(cno, HandleKind::Cno)?;
        let place = evd.required(3)?;
        let id = CnoId::from_handle(cno.named());
        let waited = with_device!(adapter, opened => opened.sleeping(|sleeper| {
            let deadline = opened.now().after(timeout);
            opened.ia.cno_wait_until(id, deadline, sleeper)
        }));
        match waited {
            Ok(fired) => place.put(adapter.cells.of_some(fired)),
            Err(error) if is_empty(error) => {
                place.put(CHandle::NULL);
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    })())
}

fn is_empty(error: Error) -> bool {
    error.kind() == ErrorKind::QueueEmpty
}
