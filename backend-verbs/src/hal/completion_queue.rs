//! Completion queues and what they hold.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BackendError, DeviceFailure};
use rdma_sys::{ibv_cq, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq, ibv_wc};

use super::{CompletionChannel, Context, refusal};

/// Completions taken from the device at a time.
pub(crate) const BATCH: usize = 16;

type Poll = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;
type Notify = unsafe extern "C" fn(*mut ibv_cq, i32) -> i32;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    poll: Poll,
    notify: Notify,
    /// What keeps the device open; none for a queue that is not ours to destroy.
    owner: Option<Arc<CompletionChannel>>,
}

// SAFETY: libibverbs lets any thread use its objects.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

/// One completion, as the device wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkCompletion {
    pub(crate) token: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) length: u32,
    pub(crate) queue_pair: u32,
}

/// Completions that were taken from the device and not yet asked for.
pub(crate) struct Batch {
    /// Room for `BATCH` of them.
    entries: NonNull<ibv_wc>,
    /// The next one that is asked for.
    next: NonNull<ibv_wc>,
    /// Behind the last one that the device has written.
    end: NonNull<ibv_wc>,
}

// SAFETY: the pointers in it lead to what it owns.
unsafe impl Send for Batch {}
// SAFETY: as above; it changes through exclusive references alone.
unsafe impl Sync for Batch {}

impl core::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Batch")
            .field("is_empty", &self.is_empty())
            .finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new() -> Self {
        let room: Box<[MaybeUninit<ibv_wc>; BATCH]> =
            Box::new([const { MaybeUninit::zeroed() }; BATCH]);
        let entries = NonNull::from(Box::leak(room)).cast();
        Self {
            entries,
            next: entries,
            end: entries,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// The next one.
    ///
    /// # Safety
    /// It is not empty.
    #[inline(always)]
    unsafe fn take_first(&mut self) -> WorkCompletion {
        let entry = self.next.as_ptr();
        // SAFETY: an entry before `end`; all integers, zero before the device first wrote it.
        unsafe {
            self.next = self.next.add(1);
            WorkCompletion {
                token: (*entry).wr_id,
                status: (*entry).status,
                opcode: (*entry).opcode,
                length: (*entry).byte_len,
                queue_pair: (*entry).qp_num,
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let room = self.entries.cast::<[MaybeUninit<ibv_wc>; BATCH]>();
        // SAFETY: made by `new`, and dropped once.
        drop(unsafe { Box::from_raw(room.as_ptr()) });
    }
}

impl CompletionQueue {
    /// A queue whose notifications carry `number`.
    pub(crate) fn new(
        channel: &Arc<CompletionChannel>,
        number: usize,
        depth: i32,
    ) -> Result<Self, BackendError> {
        let context = channel.context();
        let (poll, notify) = functions(context)?;
        // SAFETY: context and channel live; the number is never followed as a pointer.
        let raw = unsafe {
            ibv_create_cq(
                context.raw(),
                depth,
                ptr::without_provenance_mut(number),
                channel.raw(),
                0,
            )
        };
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
            poll,
            notify,
            owner: Some(Arc::clone(channel)),
        })
    }

    #[cfg(any(test, feature = "fake"))]
    pub(super) fn borrowed(raw: NonNull<ibv_cq>, poll: Poll, notify: Notify) -> Self {
        Self {
            raw,
            poll,
            notify,
            owner: None,
        }
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// The file descriptor of its channel.
    pub(crate) fn fd(&self) -> Option<i32> {
        self.owner.as_ref().map(|channel| channel.fd())
    }

    /// The next completion, of the batch if there is one in it, else of the next batch.
    #[inline(always)]
    pub(crate) fn next(&self, batch: &mut Batch) -> Result<Option<WorkCompletion>, DeviceFailure> {
        if batch.is_empty() && !self.fill(batch)? {
            return Ok(None);
        }
        // SAFETY: it is not empty.
        Ok(Some(unsafe { batch.take_first() }))
    }

    /// Takes up to a batch of completions, and says whether there were any; what was left in the batch must have
    /// been taken out.
    #[inline(always)]
    pub(crate) fn fill(&self, batch: &mut Batch) -> Result<bool, DeviceFailure> {
        // SAFETY: the queue lives, and the batch has room for that many.
        let count = unsafe { (self.poll)(self.raw(), BATCH as i32, batch.entries.as_ptr()) };
        if count == 0 {
            return Ok(false);
        }
        // More than there was room for is as much nonsense as fewer than none.
        if count.cast_unsigned() > BATCH as u32 {
            return Err(DeviceFailure::Broken);
        }
        batch.next = batch.entries;
        // SAFETY: no more than there is room for.
        batch.end = unsafe { batch.entries.add(count.cast_unsigned() as usize) };
        Ok(true)
    }

    /// Asks for a notification.
    pub(crate) fn request_notification(&self, solicited_only: bool) -> bool {
        // SAFETY: the queue lives.
        unsafe { (self.notify)(self.raw(), i32::from(solicited_only)) == 0 }
    }

    pub(crate) fn resize(&self, depth: i32) -> Result<(), BackendError> {
        // SAFETY: the queue lives.
        refusal::check(unsafe { ibv_resize_cq(self.raw(), depth) })
    }

    /// Completions it holds at most.
    pub(crate) fn depth(&self) -> u32 {
        // SAFETY: the queue lives.
        u32::try_from(unsafe { (*self.raw()).cqe }).unwrap_or(0)
    }
}

fn functions(context: &Context) -> Result<(Poll, Notify), BackendError> {
    // SAFETY: the context lives, and nobody changes its table.
    let operations = unsafe { &(*context.raw()).ops };
    match (operations.poll_cq, operations.req_notify_cq) {
        (Some(poll), Some(notify)) => Ok((poll, notify)),
        _ => Err(BackendError::NotSupported),
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if self.owner.is_some() {
            // SAFETY: made by `new`; queue pairs on it hold it and are gone.
            unsafe { ibv_destroy_cq(self.raw()) };
        }
    }
}
