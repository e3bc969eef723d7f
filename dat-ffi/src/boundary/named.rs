//! Lists of named attributes.

use std::ffi::CString;

use dat_core::attributes::{IaAttributes, NamedAttribute as Named, ProviderAttributes};
use dat_core::backend::Extensions;

use super::layout::NamedAttribute;

/// A list that owns the strings that it points to.
#[derive(Debug, Default)]
pub(crate) struct NamedList {
    entries: Box<[NamedAttribute]>,
    _strings: Box<[(CString, CString)]>,
}

impl NamedList {
    fn new(attributes: &[Named]) -> Self {
        // No name or value has a zero byte; a text with one would become empty.
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let strings: Box<[(CString, CString)]> = attributes
            .iter()
            .map(|one| (text(one.name), text(one.value)))
            .collect();
        let entries = strings
            .iter()
            .map(|(name, value)| NamedAttribute {
                name: name.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        Self {
            entries,
            _strings: strings,
        }
    }

    /// Returns the number of attributes.
    pub(crate) fn count(&self) -> i32 {
        i32::try_from(self.entries.len()).unwrap_or(0)
    }

    /// Returns the address of the first attribute; null for an empty list.
    pub(crate) fn first(&self) -> *const NamedAttribute {
        match self.entries.first() {
            Some(first) => first,
            None => std::ptr::null(),
        }
    }
}

/// The named attributes of an adapter.
#[derive(Debug, Default)]
pub(crate) struct NamedAttributes {
    pub(crate) transport: NamedList,
    pub(crate) vendor: NamedList,
    pub(crate) provider: NamedList,
}

impl NamedAttributes {
    /// Makes the lists from the attributes of adapter and provider, and adds the device's
    /// abilities.
    ///
    /// Abilities have the names that programs look up. Without `DAT_IB_RDMA_READ`, `dtest` skips
    /// half of its test while its peers wait for it. Programs for 1.2 know none of these names.
    pub(crate) fn new(
        ia: &IaAttributes,
        provider: &ProviderAttributes,
        extensions: Extensions,
        major: u32,
    ) -> Self {
        let mut of_provider = provider.provider_specific_attributes.to_vec();
        let reads = ia.max_rdma_read_per_ep_in > 0 && ia.max_rdma_read_per_ep_out > 0;
        if major >= 2 {
            of_provider.push(Named {
                name: "DAT_IB_RDMA_READ",
                value: if reads { "TRUE" } else { "FALSE" },
            });
        }
        for (extension, name) in [
            (Extensions::WRITE_IMMEDIATE, "DAT_IB_IMMED_DATA"),
            (Extensions::FETCH_AND_ADD, "DAT_IB_FETCH_AND_ADD"),
            (Extensions::COMPARE_AND_SWAP, "DAT_IB_CMP_AND_SWAP"),
        ] {
            if extensions.contains(extension) {
                let value = "TRUE";
                of_provider.push(Named { name, value });
            }
        }
        Self {
            transport: NamedList::new(ia.transport_attributes),
            vendor: NamedList::new(ia.vendor_attributes),
            provider: NamedList::new(&of_provider),
        }
    }
}
