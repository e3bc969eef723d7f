//! Vectors that do not block.

use dat_core::backend::Backend;
use dat_core::sync::RawLock;

use super::call::Manner;
use super::entry::Handles;
use super::vector::Vector;
use super::{Direction, HandleEntry, VectorError, VectorFlags};
use crate::engine::Rsm;
use crate::id::ImportId;

/// A vector under way: poll it until it is done.
///
/// Dropping it leaves the entries that were begun to run to their end; the rest is not begun. Nobody waits for it: when
/// its connection is ended it ends with BAD_SEG_HNDL, and an entry whose handle is freed meanwhile is refused. One that
/// is forgotten counts among [`crate::Limits::calls`] until its connection is ended.
pub struct VectorCall<'r, 's, 'e, B: Backend, L: RawLock>(Vector<'r, 's, B, L, Handles<'e>>);

impl<B: Backend, L: RawLock> core::fmt::Debug for VectorCall<'_, '_, '_, B, L> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("VectorCall").finish_non_exhaustive()
    }
}

impl<B: Backend, L: RawLock> VectorCall<'_, '_, '_, B, L> {
    /// Goes on as far as it can without waiting; says how it ended once it has. Somebody has to call
    /// [`Rsm::progress`] in between.
    ///
    /// # Errors
    /// As [`Rsm::putv`].
    pub fn poll(&mut self) -> Option<Result<(), VectorError>> {
        self.0.advance()
    }

    /// Entries that count as done so far; in explicit mode, that are on the way.
    pub fn completed(&self) -> usize {
        self.0.accepted()
    }
}

impl<'s, B: Backend, L: RawLock> Rsm<'s, B, L> {
    /// As [`putv`](Self::putv), without waiting: begins what can be begun now.
    ///
    /// # Errors
    /// As `putv`, for what is found out at once.
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

    /// As [`getv`](Self::getv), without waiting: begins what can be begun now.
    ///
    /// # Errors
    /// As `getv`, for what is found out at once.
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
        let manner = Manner {
            direction,
            flags,
            single: false,
            waited: false,
        };
        Ok(VectorCall(self.begin(import, Handles(entries), &manner)?))
    }
}
