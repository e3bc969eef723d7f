//! The engine: controllers, segments and all other objects of one process.

pub(crate) mod state;

use alloc::vec::Vec;
use core::fmt;
use core::task::Waker;

use dat_core::backend::Backend;
use dat_core::sync::{Mutex, RawLock, Turns};
use portable_atomic::{AtomicU16, AtomicU32, Ordering};

use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::id::{ControllerId, Handle};
use crate::options::{ControllerConfig, Options};
use crate::port::{Port, PortState};
use crate::shares::Shares;
use crate::wire::Body;

/// Source of instance numbers, which tell the handles of one engine from those of another.
static INSTANCES: AtomicU16 = AtomicU16::new(0);

/// Most blocking calls that a change wakes; further ones poll.
pub(crate) const SLEEPERS: usize = 32;

/// The engine of remote shared memory for one process.
///
/// Any thread may make any call; no call holds a lock while it waits. The engine has no thread of
/// its own. Blocking calls make progress while they wait. Between them the caller must call
/// [`progress`](Self::progress), or peers get no answer.
pub struct Rsm<'s, B: Backend, L: RawLock> {
    // Dropped before the state: a closed adapter touches no memory of the state.
    pub(crate) ports: Vec<Port<'s, B, L>>,
    pub(crate) state: Mutex<L, State>,
    pub(crate) sleepers: Mutex<L, heapless::Vec<(u32, Waker), SLEEPERS>>,
    pub(crate) options: Options,
    instance: u16,
    /// Turns of the threads that make progress.
    pub(crate) turns: Turns,
    /// Counts changes that sleeping calls may wait for.
    pub(crate) changes: AtomicU32,
    pub(crate) tickets: AtomicU32,
    /// Counts accesses without a transfer.
    pub(crate) shortcuts: AtomicU32,
    /// Returns true if there is memory for the allocations of a post.
    pub(crate) has_memory: fn() -> bool,
}

impl<B: Backend, L: RawLock> fmt::Debug for Rsm<'_, B, L> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Rsm")
            .field("node", &self.options.node)
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

impl<'s, B: Backend, L: RawLock> Rsm<'s, B, L> {
    /// Makes an engine of adapters; a controller opens with its first user.
    ///
    /// # Errors
    /// - CTLR_NOT_PRESENT: a controller's name is invalid.
    /// - BAD_LIBRARY_VERSION: an adapter has no RDMA Reads or too few receives for the interface.
    /// - INSUFFICIENT_MEM: memory for the tables is missing.
    ///
    /// Spec: RSMGEN-03, RSMCT-04
    pub fn new(options: Options, controllers: Vec<ControllerConfig<'s, B, L>>) -> Result<Self> {
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let mut ports = Vec::new();
        let mut states = Vec::new();
        ports
            .try_reserve_exact(controllers.len())
            .and_then(|()| states.try_reserve_exact(controllers.len()))
            .map_err(|_| RsmError::InsufficientMemory)?;
        for (index, config) in controllers.into_iter().enumerate() {
            let index = u16::try_from(index).map_err(|_| RsmError::InsufficientResources)?;
            ports.push(Port::new(config, &options)?);
            states.push(PortState::new(instance, index));
        }
        let shares = Shares::new(&options, &ports)?;
        let state =
            State::new(instance, &options, shares, states).ok_or(RsmError::InsufficientMemory)?;
        Ok(Self {
            ports,
            state: Mutex::new(state),
            sleepers: Mutex::new(heapless::Vec::new()),
            options,
            instance,
            turns: Turns::new(),
            changes: AtomicU32::new(0),
            tickets: AtomicU32::new(0),
            shortcuts: AtomicU32::new(0),
            has_memory: || true,
        })
    }

    /// Has each call ask `has_memory` before its first transfer; `false` is INSUFFICIENT_RESOURCES.
    ///
    /// For programs that go on when memory is exhausted: a backend may allocate for a post.
    ///
    /// Spec: RSMPV-E10
    pub fn ask_for_memory(&mut self, has_memory: fn() -> bool) {
        self.has_memory = has_memory;
    }

    /// Returns the parameters of the engine.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns true if this engine issued the handle.
    ///
    /// Only compares the number of the engine; the handle may be stale. Takes no lock.
    pub fn gave_out(&self, handle: impl Into<Handle>) -> bool {
        handle.into().instance() == self.instance
    }

    /// Runs `act`, which may fail, on the locked state.
    pub(crate) fn attempt<R>(&self, act: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        self.state.with(act)
    }

    /// Queues a message to a peer and sends it once possible; no call waits.
    pub(crate) fn tell(&self, state: &mut State, link: Handle, body: Body) {
        state.say(
            &self.ports,
            link,
            body,
            Handle::NULL,
            Handle::NULL,
            &self.options,
        );
    }

    /// Returns the port of an open controller.
    pub(crate) fn port_of(&self, state: &State, controller: ControllerId) -> Result<usize> {
        let index = controller.handle().index();
        state
            .ports
            .get(index)
            .filter(|port| port.controller() == Some(controller))
            .map(|_| index)
            .ok_or(RsmError::BadControllerHandle)
    }
}
