//! The engine: controllers, segments and everything else of one process.

pub(crate) mod progress;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod wait;

use alloc::vec::Vec;
use core::fmt;
use core::task::Waker;

use dat_core::backend::Backend;
use dat_core::sync::{Mutex, RawLock};
use portable_atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use crate::controller::port::{Port, PortState};
use crate::engine::progress::IDLE;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::export::share::Shares;
use crate::id::{ControllerId, Handle};
use crate::link::wire::Body;
use crate::options::{ControllerConfig, Options};

/// Tells the handles of one engine from those of another one.
static INSTANCES: AtomicU16 = AtomicU16::new(0);

/// Blocking calls that are woken; more look again by themselves.
pub(crate) const SLEEPERS: usize = 32;

/// Remote shared memory for one process.
///
/// Every call may be made by any thread; none holds a lock while it waits. Nothing happens by itself: blocking calls
/// make progress while they wait, and between them somebody has to call [`progress`](Self::progress), or peers
/// find nobody at home.
pub struct Rsm<'s, B: Backend, L: RawLock> {
    // Before the state: an adapter that is closed touches no memory any more.
    pub(crate) ports: Vec<Port<'s, B, L>>,
    pub(crate) state: Mutex<L, State>,
    pub(crate) sleepers: Mutex<L, heapless::Vec<(u32, Waker), SLEEPERS>>,
    pub(crate) options: Options,
    instance: u16,
    /// Whether somebody makes progress, and was asked to look again.
    pub(crate) turn: AtomicU8,
    /// Counts what sleeping calls want to know of.
    pub(crate) changes: AtomicU32,
    pub(crate) tickets: AtomicU32,
    /// Counts accesses to mappings.
    pub(crate) shortcuts: AtomicU32,
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
    /// Makes an engine of adapters. Controllers open when they are got first.
    ///
    /// # Errors
    /// - CTLR_NOT_PRESENT: a name is none.
    /// - BAD_LIBRARY_VERSION: an adapter cannot carry the interface: it has no RDMA Reads, or too few receives.
    /// - INSUFFICIENT_MEM: no memory for the tables.
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
            turn: AtomicU8::new(IDLE),
            changes: AtomicU32::new(0),
            tickets: AtomicU32::new(0),
            shortcuts: AtomicU32::new(0),
        })
    }

    /// The properties it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether a handle was given out by this engine rather than by another one of the process, if by any at all; whether it
    /// still names something it does not say. Takes no lock.
    pub fn gave_out(&self, handle: impl Into<Handle>) -> bool {
        handle.into().instance() == self.instance
    }

    /// Does something to the state that may fail.
    pub(crate) fn attempt<R>(&self, act: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        self.state.with(act)
    }

    /// Says something to a peer, as soon as it may be said; nobody waits for it.
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

    /// The port of an open controller.
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
