//! Vectors that do not block.

use dat_core::backend::Backend;
use dat_core::sync::RawLock;

use super::call::CallOptions;
use super::entry::Handles;
use super::vector::Vector;
use super::{Direction, HandleEntry, VectorError, VectorFlags};
use crate::engine::Rsm;
use crate::id::ImportId;

/// An active vector; poll it until it is done.
///
/// Dropping it lets started entries run to their end; the others do not start. No call waits for
/// it. If its connection ends, it ends with BAD_SEG_HNDL. An entry whose handle is freed meanwhile
/// is refused. A forgotten one counts in [`crate::Limits::calls`] until its connection ends.
pub struct VectorCall<'r, 's, 'e, B: Backend, L: RawLock>(Vector<'r, 's, B, L, Handles<'e>>);

impl<B: Backend, L: RawLock> core::fmt::Debug for VectorCall<'_, '_, '_, B, L> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("VectorCall").finish_non_exhaustive()
    }
}

impl<B: Backend, L: RawLock> VectorCall<'_, '_, '_, B, L> {
    /// Advances as far as possible without waiting; returns the outcome once it is done.
    ///
    /// The caller must also call [`Rsm::progress`].
    ///
    /// # Errors
    /// As [`Rsm::putv`].
    pub fn poll(&mut self) -> Option<Result<(), VectorError>> {
        self.0.advance()
    }

    /// Returns the number of completed entries; in explicit mode, of posted ones.
    pub fn completed(&self) -> usize {
        self.0.accepted()
    }
}

impl<'s, B: Backend, L: RawLock> Rsm<'s, B, L> {
    /// As [`putv`](Self::putv), without waiting; starts the entries at the first poll.
    ///
    /// # Errors
    /// Those of `putv` that are detected at once.
    ///
    /// Spec: RSMPV-20, RSMPV-21
    pub fn start_putv<'r, 'e>(
        &'r self,
        import: ImportId,
        entries: &'e [HandleEntry],
        flags: VectorFlags,
    ) -> Result<VectorCall<'r, 's, 'e, B, L>, VectorError> {
        self.start(import, entries, flags, Direction::Put)
    }

    /// As [`getv`](Self::getv), without waiting; starts the entries at the first poll.
    ///
    /// # Errors
    /// Those of `getv` that are detected at once.
    ///
    /// Spec: RSMPV-20, RSMPV-21
    pub fn start_getv<'r, 'e>(
        &'r self,
        import: ImportId,
        entries: &'e [HandleEntry],
        flags: VectorFlags,
    ) -> Result<VectorCall<'r, 's, 'e, B, L>, VectorError> {
        self.start(import, entries, flags, Direction::Get)
    }

    fn start<'r, 'e>(
        &'r self,
        import: ImportId,
        entries: &'e [HandleEntry],
        flags: VectorFlags,
        direction: Direction,
    ) -> Result<VectorCall<'r, 's, 'e, B, L>, VectorError> {
        let options = CallOptions {
            direction,
            flags,
            single: false,
            waited: false,
        };
        Ok(VectorCall(self.begin(
            import,
            Handles(entries),
            &options,
        )?))
    }
}
