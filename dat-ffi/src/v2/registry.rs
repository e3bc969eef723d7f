//! Registration of this provider with the registry that loaded it.

use std::ffi::{CStr, CString};

use dat_devices::DeviceAddress;

use super::function_table;
use crate::adapter::Registered;
use crate::boundary::{
    FunctionTable, In, Inherited, InheritedGuard, ProviderInfo, Registry, StaticText, Text,
};
use crate::devices::explanation;

/// A line of `dat.conf` that the registry loaded this provider for.
#[derive(Clone)]
pub(super) struct Entry {
    /// Text of any encoding: the registry compares bytes.
    name: CString,
    info: ProviderInfo,
    pub(super) device: DeviceAddress,
    table: &'static FunctionTable,
}

impl Entry {
    /// Returns the data that adapters of this entry report about it.
    pub(super) fn registered(&self) -> Registered {
        Registered {
            major: self.info.major,
            minor: self.info.minor,
            is_thread_safe: self.info.is_thread_safe != 0,
            provider: std::ptr::from_ref(self.table).expose_provenance(),
        }
    }

    fn is_of(&self, info: &ProviderInfo) -> bool {
        let key = |info: &ProviderInfo| (info.major, info.minor, info.is_thread_safe != 0);
        info.name().is_some_and(|name| name == self.name) && key(&self.info) == key(info)
    }
}

fn entries() -> InheritedGuard<'static, Vec<Entry>> {
    static ENTRIES: Inherited<Vec<Entry>> = Inherited::new(Vec::new());
    ENTRIES.lock()
}

/// Registers the provider of a line of `dat.conf`; does nothing more if the registry refuses.
pub fn register(info: In<ProviderInfo>, instance_data: Text) {
    // The table is that of 2.0; a registry of another edition would pass other structures to it.
    let Some(info) = info.get().filter(|info| info.major == 2) else {
        return;
    };
    let Some(name) = info.name() else {
        return;
    };
    let words = instance_data.get().unwrap_or_default();
    let device =
        DeviceAddress::from_configuration(&words.to_string_lossy(), &name.to_string_lossy());
    let mut entries = entries();
    // A line whose last adapter was closed is loaded again. Its table stays, because handles lead
    // to it.
    let known = entries.iter_mut().find(|entry| entry.is_of(&info));
    let table = match known {
        Some(entry) => {
            entry.device = device;
            entry.table
        }
        None => {
            let is_thread_safe = info.is_thread_safe != 0;
            let table = function_table::make(name.clone(), is_thread_safe, &device);
            entries.push(Entry {
                name,
                info,
                device,
                table,
            });
            table
        }
    };
    drop(entries);
    let _wanted: bool = Registry::add(table, &info);
}

/// Explains why a line of `dat.conf` opens no adapter by this provider; null if it may.
pub fn explain(info: In<ProviderInfo>, instance_data: Text) -> StaticText {
    explanation(2, info, instance_data)
}

/// Removes the provider of a line of `dat.conf` from the registry.
pub fn unregister(info: In<ProviderInfo>) {
    let Some(info) = info.get() else {
        return;
    };
    let table = entries()
        .iter()
        .find(|entry| entry.is_of(&info))
        .map(|entry| entry.table);
    if let Some(table) = table {
        let _was_there: bool = Registry::remove(table, &info);
    }
}

/// Returns the entry with this name and thread safety.
///
/// The registry does not tell which line an adapter is opened for. So the first of the lines that
/// differ only in version stands for all.
pub(super) fn find(name: &CStr, is_thread_safe: bool) -> Option<Entry> {
    let is_meant =
        |entry: &&Entry| *entry.name == *name && (entry.info.is_thread_safe != 0) == is_thread_safe;
    entries().iter().find(is_meant).cloned()
}
