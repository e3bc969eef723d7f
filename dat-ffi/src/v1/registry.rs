//! The registry: the provider of each adapter name.
//!
//! Providers are the lines of `dat.conf` for 1.x, or the discovered devices if there is no such
//! line, and providers that register themselves.

use std::collections::BTreeMap;
use std::ffi::CString;

use dat_core::{Cause, Error, Result};

use super::edition::V1;
use super::foreign;
use super::types::Guest;
use crate::adapter::Registered;
use crate::boundary::{
    FUNCTIONS_1_2, In, Inherited, InheritedGuard, List, Out, ProviderInfo, StaticText, Text,
    uncancelled,
};
use crate::calls::ia;
use crate::calls::result::{Code, code, sheltered};
use crate::devices;
use crate::handles::CHandle;
use crate::registry::{Configuration, Discovered, Found, Level, Providers, Rules, Used, Wanted};

static PROVIDERS: Providers<FUNCTIONS_1_2> = Providers::new(Rules {
    library: c"libdat.so.1",
    paths: &["/etc/dat/dat.conf", Configuration::USUAL],
    default: "",
    concerns: |entry| entry.level == Level::User && entry.major == 1,
    devices: Some(found),
});

/// Bytes of the longest name.
const LONGEST: usize = 255;
/// Slot of `dat_ia_close` in a provider's table.
const CLOSE: usize = 2;

/// Lists the devices of this host.
///
/// # Errors
/// INSUFFICIENT_RESOURCES (DEVICE): there are no descriptors to list the devices with.
fn found() -> Result<Vec<Discovered>> {
    let registered = Registered {
        major: 1,
        minor: 2,
        is_thread_safe: false,
        // No call goes through a table.
        provider: 0,
    };
    let devices = devices::found()?.into_iter();
    let registered = devices
        .filter_map(|found| Some((registered, CString::new(found.name).ok()?, found.address)));
    Ok(registered.collect())
}

/// Open adapters of other providers, by handle.
///
/// A handle has the number of its provider once for each open, because a provider may return the
/// same handle several times.
fn open_adapters() -> InheritedGuard<'static, BTreeMap<usize, Vec<u64>>> {
    static OPEN: Inherited<BTreeMap<usize, Vec<u64>>> = Inherited::new(BTreeMap::new());
    OPEN.lock()
}

/// Notes an open of another provider's adapter.
fn opened(ia: CHandle, number: u64) {
    open_adapters()
        .entry(ia.address())
        .or_default()
        .push(number);
}

/// Removes one open of an adapter; returns the number of its provider.
fn closing(ia: CHandle) -> Option<u64> {
    let mut all = open_adapters();
    let numbers = all.get_mut(&ia.address())?;
    let number = numbers.pop();
    if numbers.is_empty() {
        all.remove(&ia.address());
    }
    number
}

/// Opens an adapter; tries the next fitting entry if a library does not load or is no provider.
///
/// Spec: IAO-01..08, REGL-05
pub(super) fn open(
    name: Text,
    async_evd_min_qlen: i32,
    async_evd: Out<CHandle>,
    ia: Out<CHandle>,
    major: u32,
    minor: u32,
    is_thread_safe: u32,
) -> Code {
    let opened = || {
        let text = name.get().ok_or(Error::invalid_argument(1))?;
        if text.as_bytes().len() > LONGEST {
            return Err(Error::invalid_argument(1));
        }
        async_evd.required(3)?;
        ia.required(4)?;
        let is_thread_safe = match is_thread_safe {
            0 => false,
            1 => true,
            _ => return Err(Error::invalid_argument(7).because(Cause::UnknownValue)),
        };
        let wanted = Wanted {
            name: &text,
            major,
            minor,
            is_thread_safe,
        };
        match PROVIDERS.find(wanted)? {
            Found::Device(device, registered) => {
                let find = |_: &_| Ok((device, registered));
                ia::open(name, async_evd_min_qlen, async_evd, ia, find).map(|()| 0)
            }
            Found::Used(used) => open_guest(used, name, async_evd_min_qlen, async_evd, ia),
        }
    };
    uncancelled(|| opened().unwrap_or_else(|error| code::<V1>(Err(error))))
}

fn open_guest(
    used: Used<FUNCTIONS_1_2>,
    name: Text,
    async_evd_min_qlen: i32,
    async_evd: Out<CHandle>,
    ia: Out<CHandle>,
) -> Result<Code> {
    let wanted = async_evd.get().unwrap_or(CHandle::NULL);
    let refusal = match used.provider.open(name, async_evd_min_qlen, wanted) {
        Some(Ok((evd, made))) => {
            opened(made, used.number);
            async_evd.offer(evd);
            ia.offer(made);
            return Ok(0);
        }
        Some(Err(refused)) => Ok(refused),
        None => Err(Error::not_implemented()),
    };
    PROVIDERS.release(used.number);
    refusal
}

/// Spec: IAC-01..07
pub(super) fn close(ia: CHandle, flags: u32) -> Code {
    let Some(guest) = foreign::provider_of(ia) else {
        return ia::close::<V1>(ia, flags);
    };
    // Removed before the provider closes it, because another adapter may get this handle as soon as
    // it is closed. The provider stays until the release below.
    uncancelled(|| {
        let number = closing(ia);
        let returned = guest.call(CLOSE, (ia, flags));
        match (number, returned) {
            (Some(number), Some(0)) => PROVIDERS.release(number),
            (Some(number), _) => opened(ia, number),
            (None, _) => {}
        }
        returned.unwrap_or_else(|| code::<V1>(Err(Error::not_implemented())))
    })
}

/// Returns the provider whose table is at an address.
pub(super) fn entered_at(address: usize) -> Option<Guest> {
    PROVIDERS.entered_at(address)
}

/// Spec: REGL-01..05
pub(super) fn list(most: i32, count: Out<i32>, outputs: List<Out<ProviderInfo>>) -> Code {
    sheltered::<V1>(|| PROVIDERS.list(most, count, outputs))
}

/// Registers a provider; refuses one of another edition, whose table and structures differ.
///
/// Spec: REGA-01, REGA-02
pub(super) fn add(provider: Option<Guest>, info: In<ProviderInfo>) -> Code {
    if info.get().is_some_and(|info| info.major != 1) {
        return code::<V1>(Err(Error::invalid_argument(2)));
    }
    foreign::expect();
    sheltered::<V1>(|| PROVIDERS.add(provider, info))
}

/// Spec: REGR-01
pub(super) fn remove(provider: Option<Guest>, info: In<ProviderInfo>) -> Code {
    sheltered::<V1>(|| PROVIDERS.remove(provider, info))
}

/// Explains why a line with this library opens no adapter, for `dat-registry --check`.
///
/// Null if it may open one.
pub extern "C" fn dat_provider_explain(info: In<ProviderInfo>, instance_data: Text) -> StaticText {
    devices::explanation(1, info, instance_data)
}
