//! Queue pairs and their states.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::BackendError;
use rdma_sys::{
    ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask,
    ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_query_qp,
};

use super::{Access, CompletionQueue, ConnectionId, Domain, SharedReceiveQueue, refusal};

/// Less is not worth asking for.
const LEAST_INLINE: u32 = 32;

/// A reliable connected queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    raw: NonNull<ibv_qp>,
    domain: Arc<Domain>,
    /// Bytes that a request can carry itself.
    inline: u32,
    /// Peers may do atomic operations.
    atomics: bool,
    /// The port for whose every connection it was initialised when it was made, if there is one.
    ready_port: Option<u8>,
    _queues: [Arc<CompletionQueue>; 2],
    _shared: Option<Arc<SharedReceiveQueue>>,
}

// SAFETY: libibverbs lets any thread use its objects.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

/// What a queue pair is made from.
#[derive(Debug)]
pub(crate) struct QueuePairPlan<'a> {
    /// Comes with its events.
    pub(crate) number: usize,
    pub(crate) domain: &'a Arc<Domain>,
    pub(crate) request_queue: &'a Arc<CompletionQueue>,
    pub(crate) receive_queue: &'a Arc<CompletionQueue>,
    pub(crate) shared: Option<&'a Arc<SharedReceiveQueue>>,
    pub(crate) requests: u32,
    pub(crate) receives: u32,
    pub(crate) request_segments: u32,
    pub(crate) receive_segments: u32,
    /// Bytes that requests should be able to carry themselves.
    pub(crate) inline: u32,
    pub(crate) port: u8,
    /// All connections of the port have the same key of a partition, since it has no other.
    pub(crate) one_partition: bool,
    /// Peers may do atomic operations.
    pub(crate) atomics: bool,
}

/// A step towards a connection, with what is ours to decide about it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Takes receives, knows its port.
    Initialise,
    /// Takes what the peer sends.
    Receive {
        /// Reads of the peer at once.
        reads_in: u8,
        /// How long a peer that finds no receive waits, as verbs encodes it.
        not_ready_timer: u8,
    },
    /// Sends.
    Send {
        /// Own reads at once.
        reads_out: u8,
        /// How long an acknowledgement may take at most, as verbs encodes it.
        longest_timeout: u8,
        /// Repetitions without an answer.
        retries: u8,
        /// Repetitions when the peer has no receive.
        not_ready_retries: u8,
    },
}

impl QueuePair {
    /// A queue pair that the device did not make: it must not be dropped.
    #[cfg(feature = "fake")]
    pub(super) fn borrowed(
        raw: NonNull<ibv_qp>,
        domain: Arc<Domain>,
        queues: [Arc<CompletionQueue>; 2],
        inline: u32,
    ) -> Self {
        Self {
            raw,
            domain,
            inline,
            atomics: false,
            ready_port: None,
            _queues: queues,
            _shared: None,
        }
    }

    /// A queue pair that takes receives and is not connected.
    pub(crate) fn new(plan: &QueuePairPlan<'_>) -> Result<Self, BackendError> {
        let made = Self::create(plan)?;
        let mut attributes = blank();
        attributes.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attributes.port_num = plan.port;
        attributes.qp_access_flags = Access::of_queue_pair(plan.atomics).0;
        made.modify(
            &mut attributes,
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
                | ibv_qp_attr_mask::IBV_QP_PORT
                | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS,
        )?;
        Ok(made)
    }

    /// Devices that cannot let requests carry as much as is wanted refuse the queue pair, and say what they let them
    /// carry only where they do not; so less is asked for until nothing is.
    fn create(plan: &QueuePairPlan<'_>) -> Result<Self, BackendError> {
        let mut inline = plan.inline;
        loop {
            match Self::create_carrying(plan, inline) {
                Err(_) if inline != 0 => {
                    inline = if inline < LEAST_INLINE { 0 } else { inline / 2 }
                }
                outcome => return outcome,
            }
        }
    }

    fn create_carrying(plan: &QueuePairPlan<'_>, inline: u32) -> Result<Self, BackendError> {
        let mut wanted = ibv_qp_init_attr {
            qp_context: ptr::without_provenance_mut(plan.number),
            send_cq: plan.request_queue.raw(),
            recv_cq: plan.receive_queue.raw(),
            srq: plan.shared.map_or(ptr::null_mut(), |shared| shared.raw()),
            cap: ibv_qp_cap {
                max_send_wr: plan.requests.max(1),
                max_recv_wr: if plan.shared.is_some() {
                    0
                } else {
                    plan.receives.max(1)
                },
                max_send_sge: plan.request_segments.max(1),
                max_recv_sge: if plan.shared.is_some() {
                    0
                } else {
                    plan.receive_segments.max(1)
                },
                max_inline_data: inline,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain, completion queues and shared queue live; the number is never followed as a pointer.
        let raw = unsafe { ibv_create_qp(plan.domain.raw(), &raw mut wanted) };
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
            domain: Arc::clone(plan.domain),
            // What the device granted, which may be more. Where nothing may be carried, nothing was asked for.
            inline: if inline == 0 {
                0
            } else {
                wanted.cap.max_inline_data
            },
            atomics: plan.atomics,
            ready_port: plan.one_partition.then_some(plan.port),
            _queues: [
                Arc::clone(plan.request_queue),
                Arc::clone(plan.receive_queue),
            ],
            _shared: plan.shared.map(Arc::clone),
        })
    }

    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Bytes that a request can carry itself.
    pub(super) fn inline(&self) -> u32 {
        self.inline
    }

    /// Its number at the device.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { (*self.raw()).qp_num }
    }

    /// Goes one step towards the connection that `id` stands for.
    pub(crate) fn advance(&self, id: &ConnectionId, step: Step) -> Result<(), BackendError> {
        if matches!(step, Step::Initialise) && self.ready_port == Some(id.port()) {
            // It would get the port, the key and the rights that it has.
            return Ok(());
        }
        let mut attributes = blank();
        attributes.qp_state = match step {
            Step::Initialise => ibv_qp_state::IBV_QPS_INIT,
            Step::Receive { .. } => ibv_qp_state::IBV_QPS_RTR,
            Step::Send { .. } => ibv_qp_state::IBV_QPS_RTS,
        };
        let mask = id.fill_attributes(&mut attributes)?;
        match step {
            Step::Initialise => {
                attributes.qp_access_flags = Access::of_queue_pair(self.atomics).0;
            }
            Step::Receive {
                reads_in,
                not_ready_timer,
            } => {
                attributes.max_dest_rd_atomic = reads_in;
                attributes.min_rnr_timer = not_ready_timer;
            }
            Step::Send {
                reads_out,
                longest_timeout,
                retries,
                not_ready_retries,
            } => {
                attributes.max_rd_atomic = reads_out;
                // 0 would be for ever.
                attributes.timeout = match attributes.timeout {
                    0 => longest_timeout,
                    timeout => timeout.min(longest_timeout),
                };
                attributes.retry_cnt = retries;
                attributes.rnr_retry = not_ready_retries;
            }
        }
        self.modify(&mut attributes, ibv_qp_attr_mask(mask))
    }

    /// Puts it in error: nothing moves any more, and what is posted completes flushed.
    pub(crate) fn fail(&self) {
        let mut attributes = blank();
        attributes.qp_state = ibv_qp_state::IBV_QPS_ERR;
        // Every state but RESET, in which no queue pair of ours is, leads there; and a device that is gone
        // moves nothing either.
        let _failed = self.modify(&mut attributes, ibv_qp_attr_mask::IBV_QP_STATE);
    }

    /// Whether it is in error.
    pub(crate) fn has_failed(&self) -> bool {
        let mut attributes = blank();
        let mut plan = MaybeUninit::<ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair lives, and there is room for both answers.
        let answer = unsafe {
            ibv_query_qp(
                self.raw(),
                &raw mut attributes,
                ibv_qp_attr_mask::IBV_QP_STATE.0 as i32,
                plan.as_mut_ptr(),
            )
        };
        answer != 0 || attributes.qp_state == ibv_qp_state::IBV_QPS_ERR
    }

    fn modify(
        &self,
        attributes: &mut ibv_qp_attr,
        mask: ibv_qp_attr_mask,
    ) -> Result<(), BackendError> {
        // SAFETY: the queue pair lives.
        refusal::check(unsafe { ibv_modify_qp(self.raw(), attributes, mask.0 as i32) })
    }
}

/// Attributes with everything zero.
fn blank() -> ibv_qp_attr {
    // SAFETY: all of it is integers.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and dropped once.
        unsafe { ibv_destroy_qp(self.raw()) };
    }
}
