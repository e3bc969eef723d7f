//! An operation in flight, as its future knows it.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dat_core::flags::DtoStatus;

use super::adapter_state::AdapterState;
use super::lent::Lent;
use super::table::{Key, Outcome};
use crate::error::Error;

/// An operation in the table of its adapter; dropping it lets the operation go on.
pub(crate) struct Operation {
    adapter: Arc<AdapterState>,
    key: Key,
    is_new: bool,
    is_over: bool,
}

impl Operation {
    pub(crate) const fn new(adapter: Arc<AdapterState>, key: Key) -> Self {
        Self {
            adapter,
            key,
            is_new: true,
            is_over: false,
        }
    }

    pub(crate) const fn adapter(&self) -> &Arc<AdapterState> {
        &self.adapter
    }

    pub(crate) const fn cookie(&self) -> u64 {
        self.key.to_cookie()
    }

    /// Returns the memory and the number of bytes moved, or the error.
    ///
    /// # Panics
    /// If it is polled again after it was ready. In a child of `fork`, if the parent was adding or
    /// completing an operation of the adapter at the fork: its memory is lost.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Lent, Result<usize, Error>)> {
        assert!(!self.is_over, "polled after it was ready");
        if self.adapter.is_inherited() {
            self.is_over = true;
            let memory = self.adapter.table().try_remove(self.key);
            // A thread of the parent was changing the table at the fork, for ever.
            let memory = memory.expect("the adapter was idle when the process forked");
            return Poll::Ready((memory, Err(Error::Closed)));
        }
        let is_new = std::mem::replace(&mut self.is_new, false);
        let ended = ready!(self.adapter.table().poll(self.key, context, is_new));
        self.is_over = true;
        let Some((outcome, memory)) = ended else {
            unreachable!("an operation stays in the table until its future is over");
        };
        let result = match outcome {
            Outcome::Completed(DtoStatus::Success, length) => Ok(length),
            Outcome::Completed(status, _) => Err(Error::Failed(status)),
            Outcome::Closed => Err(Error::Closed),
        };
        Poll::Ready((memory, result))
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.is_over && !self.adapter.is_inherited() {
            self.adapter.table().abandon(self.key);
        }
    }
}
