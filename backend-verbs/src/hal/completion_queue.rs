//! Completion queues and what they hold.

use core::mem::{MaybeUninit, offset_of};
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BackendError, DeviceFailure};
use rdma_sys::{ibv_cq, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq, ibv_wc, ibv_wc_opcode};

use super::{CompletionChannel, Context, cancel, refusal};

/// Completions taken from the device at a time.
pub(crate) const BATCH: usize = 16;

type Poll = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;
pub(super) type Notify = unsafe extern "C" fn(*mut ibv_cq, i32) -> i32;

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

/// The bit of an operation code that marks receives.
pub(crate) const RECEIVED: u32 = 1 << 7;

/// The operation code of receives that an RDMA Write completed.
const RECEIVED_WITH_NUMBER: u32 = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;

/// What the next completion is, if it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Success {
    /// A request succeeded.
    Request { token: u64 },
    /// A receive succeeded.
    Receive { token: u64, length: u32 },
    /// There is none.
    Nothing,
    /// It is something else.
    Left,
}

/// Completions that were taken from the device and not yet asked for.
pub(crate) struct Batch {
    entries: [MaybeUninit<ibv_wc>; BATCH],
    /// How many of them the device has written.
    count: u32,
    /// The next one that is asked for.
    next: u32,
    /// The number that came with the last one that `take` took.
    immediate: Option<u32>,
    /// The device claimed to have written more than there is room for, or fewer than none.
    nonsense: bool,
}

// SAFETY: the pointers that an entry has room for are never followed.
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
        Self {
            entries: [const { MaybeUninit::zeroed() }; BATCH],
            count: 0,
            next: 0,
            immediate: None,
            nonsense: false,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.count
    }

    /// The next one, which stays.
    ///
    /// # Safety
    /// The batch is not empty.
    #[inline(always)]
    unsafe fn first(&self) -> &ibv_wc {
        // SAFETY: the next one is before the last, and there is room for that; all of it is integers, zero before the
        // device first wrote it.
        unsafe { &*self.entries.as_ptr().add(self.next as usize).cast() }
    }

    /// Takes the next one.
    fn take(&mut self) -> Option<WorkCompletion> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: it is not empty.
        let first = unsafe { self.first() };
        let taken = WorkCompletion {
            token: first.wr_id,
            status: first.status,
            opcode: first.opcode,
            length: first.byte_len,
            queue_pair: first.qp_num,
        };
        let with_number = (first.status, first.opcode) == (0, RECEIVED_WITH_NUMBER);
        // SAFETY: any bits are a number.
        let number = unsafe { first.imm_data_invalidated_rkey_union.imm_data };
        self.immediate = with_number.then_some(number);
        self.next += 1;
        Some(taken)
    }

    /// The number that came with what was taken last, if one did.
    pub(crate) const fn immediate(&self) -> Option<u32> {
        self.immediate
    }

    /// Takes the next one if it is a success; one of a receive only if `receives` says so.
    #[inline(always)]
    pub(crate) fn next_success(&mut self, receives: impl FnOnce() -> bool) -> Success {
        if self.is_empty() {
            return Success::Nothing;
        }
        // SAFETY: it is not empty.
        let first = unsafe { self.first() };
        let token = first.wr_id;
        let success = if is_request(first) {
            Success::Request { token }
        } else if is_receive(first) && receives() {
            let length = first.byte_len;
            Success::Receive { token, length }
        } else {
            return Success::Left;
        };
        self.next += 1;
        success
    }

    /// Takes the first one of a batch that has just been filled, if it is the success of a request; its token.
    #[inline(always)]
    pub(crate) fn first_request(&mut self) -> Option<u64> {
        let [entry, ..] = &self.entries;
        // SAFETY: all of it is integers, zero before the device first wrote it.
        let first = unsafe { entry.assume_init_ref() };
        let token = is_request(first).then_some(first.wr_id)?;
        self.next = 1;
        Some(token)
    }
}

/// Whether a completion is the success of a receive with nothing beside its data.
#[inline(always)]
fn is_receive(completion: &ibv_wc) -> bool {
    completion.status == 0 && completion.opcode == RECEIVED
}

/// Whether a completion is the success of a request, which one word tells.
#[inline(always)]
fn is_request(completion: &ibv_wc) -> bool {
    const NEITHER: [u32; 2] = [u32::MAX, RECEIVED];
    // SAFETY: status and operation code are neighbours, as is checked where the layouts are.
    let kind = unsafe {
        (&raw const completion.status)
            .cast::<u64>()
            .read_unaligned()
    };
    // SAFETY: any bits are a number.
    kind & unsafe { core::mem::transmute::<[u32; 2], u64>(NEITHER) } == 0
}

const _: () = assert!(offset_of!(ibv_wc, opcode) == offset_of!(ibv_wc, status) + 4);

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
    pub(crate) fn next(&self, batch: &mut Batch) -> Result<Option<WorkCompletion>, DeviceFailure> {
        if batch.nonsense {
            return Err(DeviceFailure::Broken);
        }
        if batch.is_empty() {
            self.fill(batch)?;
        }
        Ok(batch.take())
    }

    /// Takes up to a batch of completions, and says whether there were any; what was left in the batch must have
    /// been taken out.
    #[inline(always)]
    pub(crate) fn fill(&self, batch: &mut Batch) -> Result<bool, DeviceFailure> {
        let entries = batch.entries.as_mut_ptr().cast::<ibv_wc>();
        // SAFETY: the queue lives, and the batch has room for that many.
        let count = unsafe { (self.poll)(self.raw(), BATCH as i32, entries) };
        if count == 0 {
            return Ok(false);
        }
        // More than there was room for is as much nonsense as fewer than none.
        if count.cast_unsigned() > BATCH as u32 {
            batch.nonsense = true;
            return Err(DeviceFailure::Broken);
        }
        batch.next = 0;
        batch.count = count.cast_unsigned();
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
    match (context.operations().poll_cq, cancel::notify(context)) {
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
