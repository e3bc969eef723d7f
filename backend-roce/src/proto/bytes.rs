//! Cursors over bytes that cannot panic.

/// A cursor that reads big-endian integers.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that are not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Reads `N` bytes; `None` if fewer are left.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(crate) fn skip(&mut self, length: usize) -> Option<()> {
        self.0 = self.0.get(length..)?;
        Some(())
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads 3 bytes.
    pub(crate) fn u24(&mut self) -> Option<u32> {
        let [high, middle, low] = self.array()?;
        Some(u32::from_be_bytes([0, high, middle, low]))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// A cursor that writes big-endian integers.
#[derive(Debug)]
pub(crate) struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that are not written yet.
    pub(crate) fn into_rest(self) -> &'a mut [u8] {
        self.0
    }

    /// Writes `bytes`; `None` if there is no room for all of them.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let (room, rest) = core::mem::take(&mut self.0).split_at_mut_checked(bytes.len())?;
        room.copy_from_slice(bytes);
        self.0 = rest;
        Some(())
    }

    /// Writes `length` zero bytes.
    pub(crate) fn zeros(&mut self, length: usize) -> Option<()> {
        let (room, rest) = core::mem::take(&mut self.0).split_at_mut_checked(length)?;
        room.fill(0);
        self.0 = rest;
        Some(())
    }

    pub(crate) fn u8(&mut self, value: u8) -> Option<()> {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn u16(&mut self, value: u16) -> Option<()> {
        self.put(&value.to_be_bytes())
    }

    /// Writes the low 3 bytes.
    pub(crate) fn u24(&mut self, value: u32) -> Option<()> {
        let [_, bytes @ ..] = value.to_be_bytes();
        self.put(&bytes)
    }

    pub(crate) fn u32(&mut self, value: u32) -> Option<()> {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> Option<()> {
        self.put(&value.to_be_bytes())
    }
}
