//! Memory that the engine of a node has registered, with the value that owns it.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use dat_core::memory::Region;
use dat_rsm::{ExportId, LocalMemoryId, RsmError};

use super::call::Call;
use super::engine::{Interrupt, Sleep};
use super::{Guard, Site};
use crate::error::{Error, Failed, Result};
use crate::memory::{Pinned, Stable};

/// An object of the engine that uses memory until it is freed.
pub(super) trait Registration: Copy + Send + 'static {
    /// Frees the object; if that succeeds, nothing uses its memory any more.
    fn free(self, site: &Site, sleep: &mut Sleep) -> Result<(), RsmError>;
}

impl Registration for ExportId {
    fn free(self, site: &Site, sleep: &mut Sleep) -> Result<(), RsmError> {
        site.engine().export_destroy(self, sleep)
    }
}

impl Registration for LocalMemoryId {
    fn free(self, site: &Site, sleep: &mut Sleep) -> Result<(), RsmError> {
        site.engine()
            .free_local_memory(site.controller, self, sleep)
    }
}

/// A value whose memory the engine uses.
///
/// Dropping it frees the object of the engine, on a thread of the node.
pub(super) struct Held<M: Stable, I: Registration> {
    guard: Arc<Guard>,
    /// `None` only in `drop` and in the call of `free`.
    used: Option<Used<M, I>>,
}

impl<M: Stable, I: Registration> Held<M, I> {
    /// Lets `register` register the memory of a value.
    pub(super) fn new<E: Into<Error>>(
        guard: &Arc<Guard>,
        value: M,
        register: impl FnOnce(&Site, Region) -> Result<I, E>,
    ) -> Result<Self, Failed<M>> {
        let mut content = Box::new(Content {
            value,
            memory: Pinned::EMPTY,
        });
        content.memory = Pinned::of(&mut content.value);
        let id = match register(&guard.0, content.memory.to_register()) {
            Ok(id) => id,
            Err(error) => return Err(Failed::new(error, content.value)),
        };
        Ok(Self {
            guard: Arc::clone(guard),
            used: Some(Used {
                site: Arc::clone(&guard.0),
                id,
                content: Some(content),
            }),
        })
    }

    fn used(&self) -> &Used<M, I> {
        match &self.used {
            Some(used) => used,
            None => unreachable!("only `drop` and the call of `free` take it"),
        }
    }

    pub(super) fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    pub(super) fn id(&self) -> I {
        self.used().id
    }

    pub(super) fn atomics(&self) -> &[AtomicU8] {
        let content = self.used().content.as_ref();
        content.map_or(&[], |content| content.memory.atomics())
    }

    /// Frees the object of the engine; returns the value.
    pub(super) fn free(mut self) -> Call<Result<M>> {
        let site = Arc::clone(&self.guard.0);
        // A method call, so that the closure owns the whole, which is freed in any case.
        Call::freeing(&site, move |_, sleep| match self.take() {
            Some(used) => Ok(used.free(sleep)?),
            None => unreachable!("the call is made once"),
        })
    }

    const fn take(&mut self) -> Option<Used<M, I>> {
        self.used.take()
    }
}

impl<M: Stable, I: Registration> Drop for Held<M, I> {
    fn drop(&mut self) {
        if let Some(used) = self.take() {
            // Without a thread the memory stays with the node.
            self.guard.0.submit(Box::new(move || {
                let mut sleep = Sleep::new(&used.site.sleepers, Interrupt::Never);
                // The error is that of a node that closes meanwhile.
                drop(used.free(&mut sleep));
            }));
        }
    }
}

/// A value in use; unless freeing succeeds, its memory stays with the node.
struct Used<M: Stable, I: Registration> {
    site: Arc<Site>,
    id: I,
    /// `None` once it is given back. Boxed, so that the value does not move while it is in use.
    content: Option<Box<Content<M>>>,
}

struct Content<M> {
    value: M,
    memory: Pinned,
}

impl<M: Stable, I: Registration> Used<M, I> {
    fn free(mut self, sleep: &mut Sleep) -> Result<M, RsmError> {
        self.id.free(&self.site, sleep)?;
        match self.content.take() {
            Some(content) => Ok(content.value),
            None => unreachable!("only this function takes the content"),
        }
    }
}

impl<M: Stable, I: Registration> Drop for Used<M, I> {
    fn drop(&mut self) {
        if let Some(content) = self.content.take() {
            self.site.keep(content);
        }
    }
}
