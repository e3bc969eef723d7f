//! Event dispatchers.

use dat_core::event::{Event, Waited};
use dat_core::flags::{EvdFields, EvdFlags, HandleKind, TIMEOUT_INFINITE};
use dat_core::id::{CnoId, EvdId};
use dat_core::{Error, First};

use super::edition::Edition;
use super::event;
use super::result::{Code, adapter, adapter_of, check_mask, code, named_of, sheltered};
use crate::adapter::{Adapter, Openable, with_device};
use crate::boundary::{self, EvdParam, In, Out, guarded, in_steps, uncancelled};
use crate::handles::CHandle;

/// Mark of dispatchers that can get completions.
const HAS_COMPLETIONS: u32 = 1;
/// `DAT_QUEUE_EMPTY` without the error class.
const EMPTY_WITHOUT_CLASS: Code = 0x000D_0000;

fn cno_of(cno: CHandle) -> Option<CnoId> {
    cno.named_or_none().map(CnoId::from_handle)
}

/// Spec: EVC-01..04
pub(crate) extern "C-unwind" fn create<E: Edition>(
    ia: CHandle,
    min_qlen: i32,
    cno: CHandle,
    flags: u32,
    evd: Out<CHandle>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let output = evd.required(5)?;
        let cell = adapter.cells.reserve(HandleKind::Evd)?;
        let flags = EvdFlags::from_bits_retain(flags);
        let made =
            with_device!(adapter, opened => opened.ia.evd_create(min_qlen, cno_of(cno), flags))?;
        let made = Adapter::publish(&adapter, cell, made.into());
        if let Some(cell) = made.cell()
            && flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND)
        {
            cell.set_mark(HAS_COMPLETIONS);
        }
        output.put(made);
        Ok(())
    })
}

/// Spec: EVQ-01, EVQ-02
pub(crate) extern "C-unwind" fn query<E: Edition>(
    evd: CHandle,
    mask: u32,
    param: Out<EvdParam>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(evd, HandleKind::Evd)?;
        let id = EvdId::from_handle(evd.named());
        let queried = with_device!(adapter, opened => opened.ia.evd_query(id, EvdFields::empty()))?;
        check_mask(mask, 0x1F)?;
        param.required(3)?.put(EvdParam {
            ia: E::ia_of(&adapter),
            qlen: queried.qlen,
            state: queried.state.bits(),
            cno: adapter.cells.of_some(queried.cno),
            flags: queried.flags.bits(),
        });
        Ok(())
    })
}

/// Calls that change a dispatcher and return no data.
macro_rules! changes {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) = $call:ident($($passed:expr),*);)*) => {$(
        $(#[$attribute])*
        pub(crate) extern "C-unwind" fn $name<E: Edition>(evd: CHandle $(, $argument: $type)*) -> Code {
            sheltered::<E>(|| {
                let adapter = adapter_of(evd, HandleKind::Evd)?;
                let id = EvdId::from_handle(evd.named());
                with_device!(adapter, opened => opened.ia.$call(id $(, $passed)*))
            })
        }
    )*};
}

changes! {
    /// Spec: EVM-01, EVM-02
    modify_cno(cno: CHandle) = evd_modify_cno(cno_of(cno));
    /// Spec: EVN-01
    enable() = evd_enable();
    /// Spec: EVN-02
    disable() = evd_disable();
    /// Spec: EVN-04
    set_unwaitable() = evd_set_unwaitable();
    /// Spec: EVN-05
    clear_unwaitable() = evd_clear_unwaitable();
    /// Spec: EVZ-01
    resize(min_qlen: i32) = evd_resize(min_qlen);
}

/// Spec: EVF-01
pub(crate) extern "C-unwind" fn free<E: Edition>(evd: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(evd, HandleKind::Evd)?;
        let id = EvdId::from_handle(evd.named());
        with_device!(adapter, opened => opened.ia.evd_free(id))?;
        adapter.retire(id);
        Ok(())
    })
}

/// Posts an event, which must be a software event.
///
/// Spec: EVS-01..04
pub(crate) extern "C-unwind" fn post_software_event<E: Edition>(
    evd: CHandle,
    event: In<boundary::Event<E>>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(evd, HandleKind::Evd)?;
        let invalid = Error::invalid_argument(2);
        let event = event.get().ok_or(invalid)?;
        if event.number != event::SOFTWARE {
            return Err(invalid);
        }
        let id = EvdId::from_handle(evd.named());
        with_device!(adapter, opened => opened.ia.evd_post_se(id, event.software_pointer()))
    })
}

/// Dequeues an event; checks the device before it returns that the queue is empty.
///
/// For a dispatcher that can get completions, `DAT_QUEUE_EMPTY` comes without the error class, as
/// from OFA's provider: programs that poll, `dtest` among them, compare with the type only.
///
/// Spec: EVG-01..04
pub(crate) extern "C" fn dequeue<E: Edition, B: Openable>(
    evd: CHandle,
    event: Out<boundary::Event<E>>,
) -> Code {
    if B::DATA_CALLS_ARE_CANCELLED {
        return uncancelled(|| dequeue_common::<E, B>(evd, event));
    }
    dequeue_common::<E, B>(evd, event)
}

/// Dequeues a completion at the place of the dispatcher; leaves all else to `dequeue_slow`.
#[inline(always)]
fn dequeue_common<E: Edition, B: Openable>(evd: CHandle, event: Out<boundary::Event<E>>) -> Code {
    let taken = match (evd.cell(), event.required(2)) {
        (Some(cell), Ok(output)) => cell.place().dequeue::<B, _>(|cells, completion| {
            event::put_transfer(output, event::transfer_of(cells, completion), evd);
        }),
        _ => None,
    };
    match taken {
        Some(First::Transfer(())) => 0,
        Some(First::Nothing) => dequeue_slow::<E>(evd, event, true),
        None => dequeue_slow::<E>(evd, event, false),
    }
}

/// Dequeues any event, with all checks of the arguments.
///
/// Checks the device if the queue is empty; it was just found to be so if `is_empty` is set.
#[inline(never)]
fn dequeue_slow<E: Edition>(evd: CHandle, event: Out<boundary::Event<E>>, is_empty: bool) -> Code {
    let (adapter, object, output) = match named_of(evd, HandleKind::Evd)
        .and_then(|(adapter, object)| Ok((adapter, object, event.required(2)?)))
    {
        Ok(found) => found,
        Err(error) => return code::<E>(Err(error)),
    };
    let id = EvdId::from_handle(object);
    let mut dequeued = match is_empty {
        true => Err(Error::queue_empty()),
        false => with_device!(adapter, opened => opened.ia.evd_dequeue(id)),
    };
    if dequeued == Err(Error::queue_empty()) {
        with_device!(adapter, opened => if !opened.ia.is_quiet() {
            // `progress` may make system calls.
            dequeued = uncancelled(|| {
                opened.ia.progress(opened.now());
                opened.ia.evd_dequeue(id)
            });
        });
    }
    match dequeued {
        Ok(event) => {
            output.put(event::made_of(&event, &adapter, evd));
            0
        }
        Err(error) if error == Error::queue_empty() => {
            adapter.found_nothing();
            match evd.cell() {
                Some(cell) if cell.mark() == HAS_COMPLETIONS => EMPTY_WITHOUT_CLASS,
                _ => code::<E>(Err(error)),
            }
        }
        Err(error) => code::<E>(Err(error)),
    }
}

/// Waits; if the time runs out, the last argument gets the number of queued events.
///
/// Spec: EVW-01..14
pub(crate) extern "C-unwind" fn wait<E: Edition>(
    evd: CHandle,
    timeout: u32,
    threshold: i32,
    event: Out<boundary::Event<E>>,
    more: Out<i32>,
) -> Code {
    let id = EvdId::from_handle(evd.named());
    let begun = uncancelled(|| {
        let adapter = adapter_of(evd, HandleKind::Evd)?;
        let output = event.required(4)?;
        let more = more.required(5)?;
        let look = || {
            with_device!(adapter, opened => {
                // Connections must go on even if every wait finds a completed transfer.
                if !opened.ia.is_quiet() {
                    opened.ia.progress(opened.now());
                }
                opened.ia.evd_wait_now(id, threshold)
            })
        };
        let mut ready = look();
        let mut deadline = None;
        if ready.is_none() {
            // The time starts before the yield, and only if it is limited: reading the clock is a
            // large part of a wait.
            if timeout != TIMEOUT_INFINITE {
                deadline = with_device!(adapter, opened => opened.now().after(timeout));
            }
            let cell = evd.cell();
            let completes = cell.is_some_and(|cell| cell.mark() == HAS_COMPLETIONS);
            if completes && timeout != 0 {
                ready = adapter.backoff.yield_first(look);
            }
        }
        if let Some(Waited {
            event: Event::Dto(completion),
            more: left,
        }) = ready
        {
            more.put(count(left));
            let transfer = event::transfer_of(&adapter.cells, &completion);
            event::put_transfer(output, transfer, evd);
            return Ok(None);
        }
        Ok(Some((adapter, output, more, deadline)))
    });
    let (adapter, output, more, deadline) = match begun {
        Ok(Some(begun)) => begun,
        Ok(None) => return 0,
        Err(error) => return code::<E>(Err(error)),
    };
    guarded(adapter, |adapter| {
        with_device!(adapter, opened => match uncancelled(|| {
            let waiting = opened.ia.evd_wait(id, threshold)?;
            Ok((Some(waiting), opened.sleeper()?))
        }) {
            Err(error) => code::<E>(Err(error)),
            Ok(begun) => guarded(begun, |(waiting, sleeper)| in_steps(|| {
                let slice = opened.slice(deadline);
                let waited = match waiting.as_mut()?.sleep_until(Some(slice), sleeper.get()?) {
                    Some(waited) => waited.map(Ok),
                    None if deadline != Some(slice) => return None,
                    None => Ok(waiting.take()?.expire()),
                };
                Some(code::<E>(match waited {
                    Ok(Ok(waited)) => {
                        more.put(count(waited.more));
                        output.put(event::made_of(&waited.event, adapter, evd));
                        Ok(())
                    }
                    Ok(Err(expired)) => {
                        more.put(count(expired.queued));
                        Err(expired.into())
                    }
                    Err(error) => Err(error),
                }))
            })),
        })
    })
}

fn count(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
