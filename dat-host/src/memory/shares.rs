//! A registration that several owners share, or a part of its memory.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use dat_core::id::LmrId;
use dat_core::memory::LmrTriplet;

use super::registered::{Bindable, Registered};
use crate::error::Result;
use crate::flight::{AdapterState, Lent};
use crate::remote::resolve_range;

/// A share of registered memory, which nobody writes as long as there are shares.
pub(crate) struct Shares<B> {
    #[expect(
        clippy::redundant_allocation,
        reason = "the box keeps the value in place"
    )]
    registered: Arc<Box<Registered<B>>>,
    start: usize,
    length: usize,
}

impl<B> Shares<B> {
    pub(super) fn new(registered: Box<Registered<B>>) -> Self {
        let length = registered.memory.len();
        Self {
            registered: Arc::new(registered),
            start: 0,
            length,
        }
    }

    pub(crate) fn id(&self) -> LmrId {
        self.registered.id()
    }

    pub(super) fn adapter(&self) -> &Arc<AdapterState> {
        self.registered.domain().adapter()
    }

    /// Returns a part, in bytes from the start of this one.
    pub(super) fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (start, length) = resolve_range(range, self.length)?;
        Ok(Self {
            start: self.start + start,
            length,
            ..self.clone()
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.registered.memory.bytes()[self.start..][..self.length]
    }

    /// Returns the registration of the whole memory if this is the last share.
    pub(super) fn into_registered(self) -> std::result::Result<Box<Registered<B>>, Self> {
        let (start, length) = (self.start, self.length);
        Arc::try_unwrap(self.registered).map_err(|registered| Self {
            registered,
            start,
            length,
        })
    }

    /// Returns the segment of all bytes of the share.
    pub(super) fn whole(&self) -> LmrTriplet {
        self.registered.segment(self.start, self.length)
    }

    pub(super) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("id", &self.id())
            .field("start", &self.start)
            .field("length", &self.length)
            .finish()
    }
}

impl<B: Send + Sync + 'static> Shares<B> {
    pub(super) fn lend(self) -> Lent {
        Lent::shared(self.registered, self.start, self.length)
    }

    pub(super) fn take_back(lent: Lent) -> Self {
        let (start, length) = (lent.start, lent.length);
        Self {
            registered: lent.take_shared(),
            start,
            length,
        }
    }
}

impl<B> Clone for Shares<B> {
    fn clone(&self) -> Self {
        Self {
            registered: Arc::clone(&self.registered),
            ..*self
        }
    }
}

impl<B: Send + Sync + 'static> Bindable for Shares<B> {
    fn adapter(&self) -> &Arc<AdapterState> {
        self.adapter()
    }

    fn segment(&self, start: usize, length: usize) -> LmrTriplet {
        self.registered.segment(self.start + start, length)
    }
}
