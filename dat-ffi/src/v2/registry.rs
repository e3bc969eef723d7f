//! Entering ourselves into the registry that has loaded us.

use std::ffi::{CStr, CString};

use super::table;
use crate::adapter::Registered;
use crate::boundary::{
    In, Inherited, InheritedGuard, ProviderInfo, Registry, StaticText, Table, Text,
};
use crate::devices::{Named, explanation};

/// A line of `dat.conf` that we were called for.
#[derive(Clone)]
pub(super) struct Entry {
    /// In whatever encoding: the registry compares bytes.
    name: CString,
    info: ProviderInfo,
    pub(super) device: Named,
    table: &'static Table,
}

impl Entry {
    /// What adapters opened by this entry are to tell of it.
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

/// Enters the provider of a line of `dat.conf` into the registry that calls; if the registry does not want it, nothing happens.
pub fn register(info: In<ProviderInfo>, instance_data: Text) {
    // The table is that of 2.0; a registry of another edition would call it with other structures.
    let Some(info) = info.get().filter(|info| info.major == 2) else {
        return;
    };
    let Some(name) = info.name() else {
        return;
    };
    let words = instance_data.get().unwrap_or_default();
    let device = Named::parse(&words.to_string_lossy(), &name.to_string_lossy());
    let mut entries = entries();
    // A line whose last adapter was closed comes again; its table stays, because handles lead to it.
    let known = entries.iter_mut().find(|entry| entry.is_of(&info));
    let table = match known {
        Some(entry) => {
            entry.device = device;
            entry.table
        }
        None => {
            let table = table::make(name.clone(), info.is_thread_safe != 0);
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

/// Why a line of `dat.conf` opens no adapter by this provider; null if it may open one.
pub fn explain(info: In<ProviderInfo>, instance_data: Text) -> StaticText {
    explanation(2, info, instance_data)
}

/// Takes the provider of a line of `dat.conf` out of the registry.
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

/// The entry of a name that is registered as thread-safe or not. The registry does not say for which line an adapter is opened, so of
/// lines that differ in version alone the first stands for all.
pub(super) fn find(name: &CStr, is_thread_safe: bool) -> Option<Entry> {
    let is_meant =
        |entry: &&Entry| *entry.name == *name && (entry.info.is_thread_safe != 0) == is_thread_safe;
    entries().iter().find(is_meant).cloned()
}
