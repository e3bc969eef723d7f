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

/// Smallest inline size that is halved after a refusal; below it, none is tried.
const LEAST_INLINE: u32 = 32;

/// A reliable connected queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    raw: NonNull<ibv_qp>,
    domain: Arc<Domain>,
    /// Bytes that a request can carry inline.
    inline: u32,
    /// Set if peers may perform atomic operations.
    atomics: bool,
    /// Port of the initialisation at creation, if it fits every connection.
    ready_port: Option<u8>,
    _queues: [Arc<CompletionQueue>; 2],
    _shared: Option<Arc<SharedReceiveQueue>>,
}

// SAFETY: libibverbs lets any thread use its objects.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

/// Parameters of a new queue pair.
#[derive(Debug)]
pub(crate) struct QueuePairPlan<'a> {
    /// Context of its events.
    pub(crate) number: usize,
    pub(crate) domain: &'a Arc<Domain>,
    pub(crate) request_queue: &'a Arc<CompletionQueue>,
    pub(crate) receive_queue: &'a Arc<CompletionQueue>,
    pub(crate) shared: Option<&'a Arc<SharedReceiveQueue>>,
    pub(crate) requests: u32,
    pub(crate) receives: u32,
    pub(crate) request_segments: u32,
    pub(crate) receive_segments: u32,
    /// Bytes that requests should be able to carry inline.
    pub(crate) inline: u32,
    pub(crate) port: u8,
    /// Set if the port has only one partition key, which all its connections share.
    pub(crate) one_partition: bool,
    /// Set if peers may perform atomic operations.
    pub(crate) atomics: bool,
}

/// A state change towards a connection, with the parameters that this side chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// To INIT: accepts receives and has a port.
    Initialise,
    /// To RTR: accepts messages of the peer.
    Receive {
        /// Most concurrent reads by the peer.
        reads_in: u8,
        /// Wait of a peer that finds no receive, as verbs encodes it.
        not_ready_timer: u8,
    },
    /// To RTS: sends.
    Send {
        /// Most concurrent reads by this side.
        reads_out: u8,
        /// Longest time for an acknowledgement, as verbs encodes it.
        longest_timeout: u8,
        /// Repetitions without an acknowledgement.
        retries: u8,
        /// Most repetitions if the peer has no receive.
        not_ready_retries: u8,
    },
}

impl QueuePair {
    /// Creates a queue pair that accepts receives and is not connected.
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

    /// Creates the queue pair with as much inline data as the device grants.
    ///
    /// A device refuses a queue pair whose inline size it cannot grant, and reports its limit only
    /// on success. So each retry asks for half, and the last one for none.
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
        // SAFETY: domain, completion queues and shared queue live; the number is never
        // dereferenced.
        let raw = unsafe { ibv_create_qp(plan.domain.raw(), &raw mut wanted) };
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
            domain: Arc::clone(plan.domain),
            // The device may grant more. Without a wish for inline data, none is used.
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

    /// Returns the number of bytes that a request can carry inline.
    pub(super) fn inline(&self) -> u32 {
        self.inline
    }

    /// Returns the device's number of the queue pair.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { (*self.raw()).qp_num }
    }

    /// Advances the queue pair one state towards the connection of `id`.
    pub(crate) fn advance(&self, id: &ConnectionId, step: Step) -> Result<(), BackendError> {
        if matches!(step, Step::Initialise) && self.ready_port == Some(id.port()) {
            // The port, the partition key and the rights would stay the same.
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
                // 0 means no limit.
                attributes.timeout = match attributes.timeout {
                    0 => longest_timeout,
                    timeout => timeout.min(longest_timeout),
                };
                attributes.retry_cnt = retries;
                // The peer has asked for as many.
                attributes.rnr_retry = attributes.rnr_retry.min(not_ready_retries);
            }
        }
        self.modify(&mut attributes, ibv_qp_attr_mask(mask))
    }

    /// Moves the queue pair to the error state, which flushes all posted requests.
    pub(crate) fn fail(&self) {
        let mut attributes = blank();
        attributes.qp_state = ibv_qp_state::IBV_QPS_ERR;
        // A failure is harmless. Every state leads to the error state but RESET, which no queue
        // pair has after `new`; and a device that is gone processes nothing.
        let _failed = self.modify(&mut attributes, ibv_qp_attr_mask::IBV_QP_STATE);
    }

    /// Returns true if the queue pair is in error or cannot be queried.
    pub(crate) fn has_failed(&self) -> bool {
        let mut attributes = blank();
        let mut plan = MaybeUninit::<ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair lives, and both answers have room.
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

/// Returns attributes with all fields zero.
fn blank() -> ibv_qp_attr {
    // SAFETY: all fields are integers.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and dropped once.
        unsafe { ibv_destroy_qp(self.raw()) };
    }
}
