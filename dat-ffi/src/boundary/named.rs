//! Lists of named attributes.

use std::ffi::CString;

use dat_core::attributes::{IaAttributes, NamedAttribute as Named, ProviderAttributes};

use super::layout::NamedAttribute;

/// A list with the strings that it points to.
#[derive(Debug, Default)]
pub(crate) struct NamedList {
    entries: Box<[NamedAttribute]>,
    _strings: Box<[(CString, CString)]>,
}

impl NamedList {
    fn new(attributes: &[Named]) -> Self {
        // Neither names nor values have zero bytes; what would is left empty.
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

    /// How many there are.
    pub(crate) fn count(&self) -> i32 {
        i32::try_from(self.entries.len()).unwrap_or(0)
    }

    /// The first of them.
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
    /// Those that adapter and provider tell of.
    pub(crate) fn new(ia: &IaAttributes, provider: &ProviderAttributes) -> Self {
        Self {
            transport: NamedList::new(ia.transport_attributes),
            vendor: NamedList::new(ia.vendor_attributes),
            provider: NamedList::new(provider.provider_specific_attributes),
        }
    }
}
