//! Notification objects.

use dat_core::flags::{CnoFields, HandleKind};
use dat_core::id::CnoId;
use dat_core::{Error, ErrorKind, Result};

use super::edition::{Added, Edition};
use super::result::{Code, adapter, adapter_of, check_mask, check_memory, code, sheltered};
use crate::adapter::{Adapter, with_device};
use crate::agents;
use crate::boundary::{Agent, CnoParam, Out, guarded, in_steps, uncancelled};
use crate::handles::CHandle;

/// `DAT_PROXY_TYPE_AGENT`.
const PROXY_AGENT: u32 = 1;

/// Spec: CNC-01..03
pub(crate) extern "C-unwind" fn create<E: Edition>(
    ia: CHandle,
    agent: Agent,
    cno: Out<CHandle>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let output = cno.required(3)?;
        let cell = adapter.cells.reserve(HandleKind::Cno)?;
        if agent.is_some() {
            adapter.keep()?;
        }
        let id = with_device!(adapter, opened => opened.ia.cno_create(None))?;
        let made = adapter.cells.publish(cell, id.into());
        // No event can notify the object yet, and it is gone only if its adapter is closed.
        let closed = Error::invalid_handle(HandleKind::Ia.subtype());
        associate(&adapter, made, id, agent).map_err(|_| {
            adapter.retire(id);
            closed
        })?;
        output.put(made);
        Ok(())
    })
}

/// Spec: CNM-01, CNC-02
pub(crate) extern "C-unwind" fn modify_agent<E: Edition>(cno: CHandle, agent: Agent) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(cno, HandleKind::Cno)?;
        if agent.is_some() {
            check_memory()?;
            adapter.keep()?;
        }
        associate(&adapter, cno, CnoId::from_handle(cno.named()), agent)
    })
}

fn associate(adapter: &Adapter, cno: CHandle, id: CnoId, agent: Agent) -> Result<()> {
    with_device!(adapter, opened => {
        let give = |proxy| opened.ia.cno_modify_agent(id, proxy);
        agents::associate(agent, cno, adapter.handle, give)
    })
}

/// Spec: CNQ-01
pub(crate) extern "C-unwind" fn query<E: Edition>(
    cno: CHandle,
    mask: u32,
    param: Out<CnoParam<E>>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(cno, HandleKind::Cno)?;
        let id = CnoId::from_handle(cno.named());
        let queried = with_device!(adapter, opened => opened.ia.cno_query(id, CnoFields::empty()))?;
        check_mask(mask, E::CNO_FIELDS)?;
        let agent = agents::known(queried.agent);
        param.required(3)?.put(CnoParam {
            ia: E::ia_of(&adapter),
            proxy_type: Added::of(if agent.is_some() { PROXY_AGENT } else { 0 }),
            agent,
        });
        Ok(())
    })
}

/// Spec: CNF-01
pub(crate) extern "C-unwind" fn free<E: Edition>(cno: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(cno, HandleKind::Cno)?;
        let id = CnoId::from_handle(cno.named());
        with_device!(adapter, opened => opened.ia.cno_free(id))?;
        agents::dismiss(cno);
        adapter.retire(id);
        Ok(())
    })
}

/// Waits; stores a null dispatcher if the time runs out or the adapter is closed.
///
/// Spec: CNW-01..07
pub(crate) extern "C-unwind" fn wait<E: Edition>(
    cno: CHandle,
    timeout: u32,
    evd: Out<CHandle>,
) -> Code {
    let begun = uncancelled(|| {
        let adapter = adapter_of(cno, HandleKind::Cno)?;
        let output = evd.required(3)?;
        let deadline = with_device!(adapter, opened => opened.now().after(timeout));
        Ok((adapter, output, deadline))
    });
    let (adapter, output, deadline) = match begun {
        Ok(begun) => begun,
        Err(error) => return code::<E>(Err(error)),
    };
    let id = CnoId::from_handle(cno.named());
    guarded(adapter, |adapter| {
        with_device!(adapter, opened => match uncancelled(|| {
            let waiting = opened.ia.cno_wait(id)?;
            Ok((waiting, opened.sleeper()?))
        }) {
            Err(error) => code::<E>(Err(error)),
            Ok(begun) => guarded(begun, |(waiting, sleeper)| in_steps(|| {
                let slice = opened.slice(deadline);
                let waited = match waiting.sleep_until(Some(slice), sleeper.get()?) {
                    Some(waited) => waited,
                    None if deadline != Some(slice) => return None,
                    None => Err(Error::queue_empty()),
                };
                match waited {
                    Ok(fired) => output.put(adapter.cells.of_some(fired)),
                    Err(error) if releases(error) => output.put(CHandle::NULL),
                    Err(_) => {}
                }
                Some(code::<E>(waited.map(drop)))
            })),
        })
    })
}

/// Returns true for an error that ends a wait with a null dispatcher.
fn releases(error: Error) -> bool {
    matches!(error.kind(), ErrorKind::QueueEmpty | ErrorKind::Abort)
}
