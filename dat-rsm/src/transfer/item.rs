//! Puts and gets of items of 8 to 64 bits.

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;

use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::ImportId;
use crate::import::import_at;

/// Bytes that are converted at a time.
const CHUNK: usize = 512;

/// A buffer of items in the exporter's byte order.
///
/// Its alignment makes each item a multiple of its size from a 64-byte boundary, as in the segment.
/// So a copy in larger units splits no item.
///
/// Spec: RSMGP-04
#[repr(align(64))]
struct Chunk([u8; CHUNK]);

mod sealed {
    pub trait Sealed {}
}

/// A number that put and get move as one: `u8`, `u16`, `u32` or `u64`.
pub trait Item: Copy + sealed::Sealed {
    /// Size in bytes.
    const SIZE: usize;

    #[doc(hidden)]
    fn store(self, swapped: bool, to: &mut [u8]);

    #[doc(hidden)]
    fn load(swapped: bool, from: &[u8]) -> Self;
}

macro_rules! items {
    ($($number:ty)*) => {$(
        impl sealed::Sealed for $number {}

        impl Item for $number {
            const SIZE: usize = size_of::<$number>();

            fn store(self, swapped: bool, to: &mut [u8]) {
                let number = if swapped { self.swap_bytes() } else { self };
                for (to, from) in to.iter_mut().zip(number.to_ne_bytes()) {
                    *to = from;
                }
            }

            fn load(swapped: bool, from: &[u8]) -> Self {
                let mut bytes = [0; size_of::<$number>()];
                for (to, from) in bytes.iter_mut().zip(from) {
                    *to = *from;
                }
                let number = Self::from_ne_bytes(bytes);
                if swapped { number.swap_bytes() } else { number }
            }
        }
    )*};
}

items! { u8 u16 u32 u64 }

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Copies numbers to a segment from `offset` on, in the exporter's byte order.
    ///
    /// The exporter sees each number entirely or not at all, if
    /// [`crate::ControllerAttributes::direct_access_sizes`] has its size.
    ///
    /// # Errors
    /// As [`put`](Self::put); BAD_MEM_ALIGNMENT, before CONN_ABORTED: `offset` is not a multiple of
    /// the size.
    ///
    /// Spec: RSMGP-01, RSMGP-02, RSMGP-03, RSMGP-04
    pub fn put_items<T: Item, W: Wait>(
        &self,
        import: ImportId,
        offset: u64,
        items: &[T],
        wait: &mut W,
    ) -> Result<()> {
        let (swapped, checked) = self.check_items::<T>(import, offset, items.len())?;
        if let Err(error) = checked {
            return first_wrong(self.put(import, offset, &[], wait), error);
        }
        if items.is_empty() {
            return self.put(import, offset, &[], wait);
        }
        let mut position = offset;
        for some in items.chunks(CHUNK / T::SIZE) {
            let mut chunk = Chunk([0; CHUNK]);
            for (to, item) in chunk.0.chunks_exact_mut(T::SIZE).zip(some) {
                item.store(swapped, to);
            }
            let length = some.len().saturating_mul(T::SIZE);
            let bytes = chunk.0.get(..length).unwrap_or_default();
            self.put(import, position, bytes, wait)?;
            position = position.saturating_add(length as u64);
        }
        Ok(())
    }

    /// Copies numbers from a segment from `offset` on, in the exporter's byte order.
    ///
    /// Each number has a value that the exporter stored at one time, if
    /// [`crate::ControllerAttributes::direct_access_sizes`] has its size and the exporter stores it
    /// as one.
    ///
    /// # Errors
    /// As [`get`](Self::get); BAD_MEM_ALIGNMENT, before CONN_ABORTED: `offset` is not a multiple of
    /// the size.
    ///
    /// Spec: RSMGP-01, RSMGP-02, RSMGP-03, RSMGP-04
    pub fn get_items<T: Item, W: Wait>(
        &self,
        import: ImportId,
        offset: u64,
        items: &mut [T],
        wait: &mut W,
    ) -> Result<()> {
        let (swapped, checked) = self.check_items::<T>(import, offset, items.len())?;
        if let Err(error) = checked {
            return first_wrong(self.get(import, offset, &mut [], wait), error);
        }
        if items.is_empty() {
            return self.get(import, offset, &mut [], wait);
        }
        let mut position = offset;
        for some in items.chunks_mut(CHUNK / T::SIZE) {
            let mut chunk = Chunk([0; CHUNK]);
            // In explicit mode this call does not report a failed get. Filling the chunk first
            // leaves such items unchanged, as with `get`.
            for (to, item) in chunk.0.chunks_exact_mut(T::SIZE).zip(&*some) {
                item.store(swapped, to);
            }
            let length = some.len().saturating_mul(T::SIZE);
            let part = chunk.0.get_mut(..length).unwrap_or_default();
            self.get(import, position, part, wait)?;
            for (item, from) in some.iter_mut().zip(chunk.0.chunks_exact(T::SIZE)) {
                *item = T::load(swapped, from);
            }
            position = position.saturating_add(length as u64);
        }
        Ok(())
    }

    /// Returns whether bytes are swapped, and an error if an item lies outside.
    ///
    /// With such an error no item moves.
    fn check_items<T: Item>(
        &self,
        import: ImportId,
        offset: u64,
        count: usize,
    ) -> Result<(bool, Result<()>)> {
        self.state.with(|state| {
            let import = import_at(state, import)?;
            if offset.checked_rem(T::SIZE as u64) != Some(0) {
                return Err(RsmError::BadMemoryAlignment);
            }
            let end = (count as u64)
                .checked_mul(T::SIZE as u64)
                .and_then(|length| offset.checked_add(length));
            let inside = end.is_some_and(|end| end <= import.length);
            let checked = if inside {
                Ok(())
            } else {
                Err(RsmError::BadLength)
            };
            Ok((import.swapped, checked))
        })
    }
}

/// Returns the error of the empty access, else that of the length.
///
/// A missing barrier does not take precedence over the length.
fn first_wrong(empty: Result<()>, length: RsmError) -> Result<()> {
    match empty {
        Ok(()) | Err(RsmError::BarrierUninitialized) => Err(length),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMGP-03
    #[test]
    fn items_change_their_byte_order_and_back() {
        let mut bytes = [0; 4];
        0x0102_0304_u32.store(true, &mut bytes);
        assert_eq!(bytes, 0x0403_0201_u32.to_ne_bytes());
        assert_eq!(u32::load(true, &bytes), 0x0102_0304);
        assert_eq!(u32::load(false, &bytes), 0x0403_0201);
        let mut one = [0];
        7_u8.store(true, &mut one);
        assert_eq!(u8::load(true, &one), 7);
    }
}
