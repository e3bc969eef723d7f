//! Private data of messages.

/// Private data with a capacity, which is the room of its message on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData<const N: usize> {
    bytes: [u8; N],
}

impl<const N: usize> PrivateData<N> {
    /// No private data: zeros on the wire.
    pub const NONE: Self = Self { bytes: [0; N] };

    /// Copies `data`; `None` if it is longer than the room (ROCE-152).
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut private = Self::NONE;
        private
            .bytes
            .split_at_mut_checked(data.len())?
            .0
            .copy_from_slice(data);
        Some(private)
    }

    /// Returns the whole room; the wire does not tell the length of the data.
    pub const fn bytes(&self) -> &[u8; N] {
        &self.bytes
    }

    pub(super) const fn from_wire(bytes: [u8; N]) -> Self {
        Self { bytes }
    }
}

impl<const N: usize> core::fmt::Debug for PrivateData<N> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let end = self.bytes.iter().rposition(|byte| *byte != 0);
        let used = self.bytes.get(..=end.unwrap_or_default());
        formatter.debug_tuple("PrivateData").field(&used).finish()
    }
}
