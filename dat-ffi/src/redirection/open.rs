//! Opening and closing of adapters.

use dat_core::flags::HandleKind;
use dat_core::{Error, Result, Subtype};

use super::adapters::{self, KNOWN, provider_at, reserve};
use super::arguments::Ia;
use super::calls::{Code, code};
use super::providers::{Used, find, release};
use crate::boundary::{Out, Text, uncancelled};
use crate::handles::CHandle;
use crate::registry::Wanted;

/// Slot of `dat_ia_close` in a provider's table.
const CLOSE: usize = 2;

/// `DAT_CLOSE_ABRUPT_FLAG`.
const ABRUPT: u32 = 0;

/// Bytes of the longest name.
const NAME_LENGTH: usize = 255;

#[doc = include_str!("../../manual/dat_ia_openv.md")]
pub extern "C-unwind" fn dat_ia_openv(
    name: Text,
    async_evd_min_qlen: i32,
    async_evd: Out<CHandle>,
    ia: Out<CHandle>,
    major: u32,
    minor: u32,
    thread_safe: u32,
) -> Code {
    let opened = uncancelled(|| {
        let bad_name = Error::invalid_argument(1);
        let text = name.get().ok_or(bad_name)?;
        if text.as_bytes().len() > NAME_LENGTH {
            return Err(bad_name);
        }
        let no_output = Error::invalid_handle(Subtype::InvalidHandleIa);
        let output = ia.required(4).map_err(|_| no_output)?;
        let wanted_evd = async_evd.get().ok_or(Error::invalid_argument(3))?;
        let used = find(Wanted {
            name: &text,
            major,
            minor,
            is_thread_safe: thread_safe != 0,
        })?;
        let opened = open(used, name, async_evd_min_qlen, wanted_evd);
        if !matches!(opened, Ok(Ok(_))) {
            release(used);
        }
        Ok(opened?.map(|opened| (output, opened)))
    });
    match opened {
        Ok(Ok((output, (number, evd)))) => {
            output.put(number);
            async_evd.offer(evd);
            0
        }
        Ok(Err(code)) => code,
        Err(error) => code(error),
    }
}

/// Opens an adapter; returns its number and its asynchronous event dispatcher.
///
/// The inner error is the provider's.
fn open(
    used: Used,
    name: Text,
    async_evd_min_qlen: i32,
    wanted_evd: CHandle,
) -> Result<std::result::Result<(CHandle, CHandle), Code>> {
    let provider = used.provider;
    let is_real = !matches!(
        wanted_evd,
        CHandle::NULL | CHandle::ASYNC_EXISTS | CHandle::OUT_OF_SCOPE
    );
    let owner = KNOWN
        .find(wanted_evd, HandleKind::Evd)
        .and_then(provider_at);
    if is_real && owner != Some(provider) {
        return Err(Error::invalid_handle(Subtype::InvalidHandleEvdAsync));
    }
    let reserved = reserve()?;
    let slot = reserved.slot();
    let opened = provider.open(name, async_evd_min_qlen, wanted_evd);
    let (evd, own) = match opened.ok_or(Error::not_implemented())? {
        Ok(opened) => opened,
        Err(refused) => return Ok(Err(refused)),
    };
    match reserved.note_open(used, own) {
        Ok(number) => {
            if evd != wanted_evd && evd != CHandle::OUT_OF_SCOPE {
                KNOWN.adopt(evd, HandleKind::Evd, slot);
            }
            Ok(Ok((number, evd)))
        }
        Err(error) => {
            let _closed: Option<Code> = provider.call(CLOSE, (own, ABRUPT));
            Err(error)
        }
    }
}

#[doc = include_str!("../../manual/dat_ia_close.md")]
pub extern "C-unwind" fn dat_ia_close(ia: Ia, flags: u32) -> Code {
    let closed: Result<Code> = uncancelled(|| {
        let adapter = ia.adapter()?;
        let called = adapter.provider.call(CLOSE, (adapter.own, flags));
        let code = called.ok_or(Error::not_implemented())?;
        if code == 0
            && let Some(used) = adapters::retire(ia.number())
        {
            release(used);
        }
        Ok(code)
    });
    closed.unwrap_or_else(code)
}

#[doc = include_str!("../../manual/dats_get_ia_handle.md")]
pub extern "C" fn dats_get_ia_handle(ia: CHandle, other: Out<CHandle>) -> Code {
    let outcome: Result<()> = (|| {
        let unknown = Error::invalid_handle(Subtype::InvalidHandleIa);
        let output = other.required(2)?;
        let own = adapters::find(ia).map(|adapter| adapter.own);
        let found = own.or_else(|| adapters::consumer_handle(ia));
        output.put(found.ok_or(unknown)?);
        Ok(())
    })();
    outcome.map_or_else(code, |()| 0)
}
