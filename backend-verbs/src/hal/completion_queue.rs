//! Completion queues and batches of their completions.

use core::mem::{MaybeUninit, offset_of};
use core::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use dat_core::backend::{BackendError, DeviceFailure, Peek};
use rdma_sys::{ibv_cq, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq, ibv_wc, ibv_wc_opcode};

use super::{CompletionChannel, Context, cancel, refusal};

/// Most completions taken from the device at a time.
pub(crate) const BATCH: usize = 16;

type Poll = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;
pub(super) type Notify = unsafe extern "C" fn(*mut ibv_cq, i32) -> i32;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    poll: Poll,
    notify: Notify,
    /// Keeps the device open.
    channel: Arc<CompletionChannel>,
    /// Completions reserved for the queue pairs on it.
    pub(crate) reserved: AtomicU32,
    /// Next completion queue of the same dispatcher.
    pub(crate) next: OnceLock<Arc<Self>>,
}

// SAFETY: libibverbs lets any thread use its objects.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

/// A completion, as the device wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkCompletion {
    pub(crate) token: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) length: u32,
    pub(crate) queue_pair: u32,
}

/// Bit of an operation code that marks receives.
pub(crate) const RECEIVED: u32 = 1 << 7;

/// Operation code of a receive that an RDMA Write with immediate data completed.
const RECEIVED_WITH_NUMBER: u32 = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;

/// Completions that were polled from the device and not yet taken.
pub(crate) struct Batch {
    entries: [MaybeUninit<ibv_wc>; BATCH],
    /// Number of entries that the device has written.
    count: u32,
    /// Index of the next entry to take.
    next: u32,
    /// Immediate data of the completion that `take` took last.
    immediate: Option<u32>,
    /// Set if the device reported a negative count, or more completions than fit.
    nonsense: bool,
}

// SAFETY: the pointers that an entry has room for are never followed.
unsafe impl Send for Batch {}
// SAFETY: as above; it changes only through exclusive references.
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
        self.next >= self.count
    }

    /// Returns the next completion, which stays in the batch.
    ///
    /// # Safety
    /// The batch is not empty.
    #[inline(always)]
    unsafe fn first(&self) -> &ibv_wc {
        // SAFETY: `next` is less than `count`, which is at most `BATCH`. All fields are integers,
        // zero until the device first wrote them.
        unsafe { &*self.entries.as_ptr().add(self.next as usize).cast() }
    }

    /// Returns true if the device reported a number of completions that cannot be.
    pub(crate) const fn is_broken(&self) -> bool {
        self.nonsense
    }

    /// Takes the next completion.
    pub(crate) fn take(&mut self) -> Option<WorkCompletion> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the batch is not empty.
        let first = unsafe { self.first() };
        let taken = WorkCompletion {
            token: first.wr_id,
            status: first.status,
            opcode: first.opcode,
            length: first.byte_len,
            queue_pair: first.qp_num,
        };
        let with_number = (first.status, first.opcode) == (0, RECEIVED_WITH_NUMBER);
        // SAFETY: any bits are a valid integer.
        let number = unsafe { first.imm_data_invalidated_rkey_union.imm_data };
        self.immediate = with_number.then_some(number);
        self.skip();
        Some(taken)
    }

    /// Returns the immediate data of the completion taken last, if it had any.
    pub(crate) const fn immediate(&self) -> Option<u32> {
        self.immediate
    }

    /// Returns the next completion, which stays in the batch.
    ///
    /// A receive is a `Success` only if `receives` returns true.
    #[inline(always)]
    pub(crate) fn peek(&self, receives: impl FnOnce() -> bool) -> Peek {
        if self.is_empty() {
            return Peek::Empty;
        }
        // SAFETY: the batch is not empty.
        let first = unsafe { self.first() };
        let token = first.wr_id;
        if is_request(first) {
            let length = u32::MAX;
            Peek::Success { token, length }
        } else if is_receive(first) && receives() {
            let length = first.byte_len;
            Peek::Success { token, length }
        } else {
            Peek::Other
        }
    }

    /// Moves to the next completion.
    #[inline(always)]
    pub(crate) fn skip(&mut self) {
        self.next = self.next.wrapping_add(1);
    }
}

/// Returns true for the success of a receive without immediate data.
#[inline(always)]
fn is_receive(completion: &ibv_wc) -> bool {
    completion.status == 0 && completion.opcode == RECEIVED
}

/// Returns true for the success of a request, by a test of one word.
#[inline(always)]
fn is_request(completion: &ibv_wc) -> bool {
    const NEITHER: [u32; 2] = [u32::MAX, RECEIVED];
    // SAFETY: status and operation code are neighbours; the assertion below checks that.
    let kind = unsafe {
        (&raw const completion.status)
            .cast::<u64>()
            .read_unaligned()
    };
    // SAFETY: any bits are a valid integer.
    kind & unsafe { core::mem::transmute::<[u32; 2], u64>(NEITHER) } == 0
}

const _: () = assert!(offset_of!(ibv_wc, opcode) == offset_of!(ibv_wc, status) + 4);

impl CompletionQueue {
    /// Creates a queue whose notifications carry `number`.
    pub(crate) fn new(
        channel: &Arc<CompletionChannel>,
        number: usize,
        depth: i32,
    ) -> Result<Self, BackendError> {
        let context = channel.context();
        let (poll, notify) = functions(context)?;
        // SAFETY: context and channel live; the number is never dereferenced.
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
            channel: Arc::clone(channel),
            reserved: AtomicU32::new(0),
            next: OnceLock::new(),
        })
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// Returns the descriptor of its channel.
    pub(crate) fn fd(&self) -> i32 {
        self.channel.fd()
    }

    /// Polls up to a batch of completions; returns true if there were any.
    ///
    /// The batch must be empty.
    #[inline(always)]
    pub(crate) fn fill(&self, batch: &mut Batch) -> Result<bool, DeviceFailure> {
        let entries = batch.entries.as_mut_ptr().cast::<ibv_wc>();
        // SAFETY: the queue lives, and the batch has room for `BATCH` entries.
        let count = unsafe { (self.poll)(self.raw(), BATCH as i32, entries) };
        if count == 0 {
            return Ok(false);
        }
        // Also true for a negative count.
        if count.cast_unsigned() > BATCH as u32 {
            batch.nonsense = true;
            return Err(DeviceFailure::Broken);
        }
        batch.next = 0;
        batch.count = count.cast_unsigned();
        Ok(true)
    }

    /// Requests a notification; returns false if the device refuses.
    pub(crate) fn request_notification(&self, solicited_only: bool) -> bool {
        // SAFETY: the queue lives.
        unsafe { (self.notify)(self.raw(), i32::from(solicited_only)) == 0 }
    }

    pub(crate) fn resize(&self, depth: i32) -> Result<(), BackendError> {
        // SAFETY: the queue lives.
        refusal::check(unsafe { ibv_resize_cq(self.raw(), depth) })
    }

    /// Returns the most completions that it holds.
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
        // SAFETY: made by `new`; queue pairs on it hold it and are gone.
        unsafe { ibv_destroy_cq(self.raw()) };
    }
}
