//! Model of the C libraries of the verbs backend, libibverbs and librdmacm, with devices in the
//! process.
//!
//! The functions have the names of the libraries' functions, so that a program that uses this crate
//! is linked with these. It is a crate of its own for that reason: tests on real devices must not
//! be linked with it. Objects are identified by their addresses. The process ends if it uses an
//! object that was destroyed or never made, or destroys one before the objects made from it.
//!
//! There are three devices, which differ in what they do with requests:
//!
//! - [`STRICT`] checks them: keys, bounds, rights and number. Its driver decides on completions and
//!   events, which may be false.
//! - [`SCRIPTED`] records them, and does what its [`Script`] tells.
//! - [`COUNTED`] accepts them at the least cost, so that the cost of its callers can be counted.
#![cfg(feature = "rdma-core")]
#![expect(unsafe_code, reason = "it defines functions that C calls")]

mod counting;
mod device;
mod manager;
mod requests;
mod script;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdma_sys::{ibv_context, ibv_device, rdma_cm_event};

pub use self::counting::{Bind, Counted, Receive, Request, Room};
pub use self::device::report_event;
use self::manager::Id;
pub use self::manager::{CmEvent, follow, report_cm_event};
pub use self::requests::Found;
pub use self::script::{Posted, Script, opened};
use self::work::{Pair, Queue, Shared};
pub use self::work::{answer, carry_out, forge, notify_of_nothing, outstanding};

/// The name of the device that checks requests.
pub const STRICT: &str = "strict0";
/// The name of the device that does what its script tells.
pub const SCRIPTED: &str = "scripted0";
/// The name of the device that accepts all requests at the least cost.
pub const COUNTED: &str = "counted0";

const NAMES: [&str; 3] = [STRICT, SCRIPTED, COUNTED];

/// A region as the device knows it.
#[derive(Clone, Copy, Debug)]
struct Region {
    domain: usize,
    address: u64,
    length: u64,
    access: u32,
    key: u32,
}

/// The object at an address.
#[derive(Debug)]
enum Object {
    Context(Arc<Script>),
    /// A completion channel.
    Channel {
        context: usize,
    },
    Domain {
        context: usize,
    },
    Region(Region),
    Window {
        domain: usize,
    },
    Queue(Queue),
    Shared(Shared),
    Pair(Pair),
    EventChannel {
        fd: i32,
    },
    Id(Id),
}

/// The deviations of a device from others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oddities {
    /// The index and the value of a replaced attribute.
    pub attribute: Option<(u8, i32)>,
    /// Gives all queue pairs one number, or impossible numbers.
    pub number: Option<u32>,
    /// Has only windows of type 2.
    pub second_windows: bool,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<usize, Object>,
    /// The devices, which live as long as the process.
    devices: [usize; NAMES.len()],
    /// Events of connections, and queues that have notified.
    connections: VecDeque<usize>,
    notified: VecDeque<usize>,
    /// Events of devices: context, kind and element.
    asynchronous: VecDeque<(usize, u32, usize)>,
    /// Elements that exist only for their events.
    elements: Vec<usize>,
    /// Data of events, by the event's address.
    carried: BTreeMap<usize, Vec<u8>>,
    /// The private data that was sent.
    sent: Vec<Vec<u8>>,
    /// The number of calls to refuse from now on, and their error.
    refusals: (u32, i32),
    /// Set if a queue pair in error is not flushed.
    keeps: bool,
    oddities: Oddities,
    last_key: u32,
    last_port: u16,
    /// Set if the device has forged a completion.
    forged: bool,
    /// Set if the device has failed in another way.
    failed: bool,
    /// The queues that have answered a poll with nonsense.
    nonsense: Vec<u64>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
/// The number of alerts to the backend's thread.
static ALERTS: AtomicU64 = AtomicU64::new(0);

/// The locked state.
struct StateGuard(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for StateGuard {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect("a device")
    }
}

impl std::ops::DerefMut for StateGuard {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("a device")
    }
}

/// Returns an object by a number that counts modulo the number of objects; `None` if there is none.
fn pick<T: Copy>(objects: &[T], number: usize) -> Option<T> {
    objects.get(number % objects.len().max(1)).copied()
}

fn state() -> StateGuard {
    let mut held = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    held.get_or_insert_default();
    StateGuard(held)
}

/// Starts with a new device.
pub fn begin(oddities: Oddities) {
    let mut state = state();
    let devices = state.devices;
    *state = State {
        devices,
        oddities,
        last_port: 20_000,
        ..State::default()
    };
}

/// Checks that all objects were freed.
///
/// # Panics
/// An object is left.
pub fn end() {
    let state = state();
    assert!(state.objects.is_empty(), "left: {:?}", state.objects);
    assert!(state.carried.is_empty(), "events that nobody acknowledged");
}

/// Refuses the next calls.
pub fn refuse(count: u32, error: i32) {
    let mut state = state();
    state.refusals = (count, error);
    state.failed |= count != 0;
}

/// Stops flushing from here on.
pub fn keep() {
    let mut state = state();
    state.keeps = true;
    state.failed = true;
}

/// Makes the device do its part from here on.
pub fn behave() {
    work::flush_all();
}

/// Returns true if the device has always done its part.
pub fn has_behaved() -> bool {
    let state = state();
    !state.forged && !state.failed && state.nonsense.is_empty() && state.oddities.number.is_none()
}

/// Returns the completion queues.
pub fn queues() -> Vec<u64> {
    let state = state();
    let queues = state.objects.values().filter_map(|object| match object {
        Object::Queue(queue) => Some(queue.order),
        _ => None,
    });
    queues.collect()
}

/// Returns true if one of these queues answered a poll with nonsense.
pub fn caught(queues: &[u64]) -> bool {
    state().nonsense.iter().any(|queue| queues.contains(queue))
}

/// Returns the number of connection identifiers.
pub fn ids() -> usize {
    state().ids().len()
}

/// Returns the private data that was sent.
pub fn sent() -> Vec<Vec<u8>> {
    state().sent.clone()
}

/// Counts an alert.
pub fn alerted() {
    ALERTS.fetch_add(1, Ordering::Release);
}

/// Makes the descriptor of a channel or of a device readable.
pub fn make_readable(fd: i32) {
    let one = 1_u64;
    // SAFETY: eight bytes; a descriptor that is none of ours takes them or not.
    unsafe { libc::write(fd, (&raw const one).cast(), 8) };
}

/// Takes what made a descriptor readable; returns false if it was not.
pub fn lower(fd: i32) -> bool {
    let mut count = 0_u64;
    // SAFETY: there is room for eight bytes.
    unsafe { libc::read(fd, (&raw mut count).cast(), 8) == 8 }
}

/// Makes a descriptor readable, and waits until the backend's thread has seen it.
fn raise(fd: i32) {
    let before = ALERTS.load(Ordering::Acquire);
    make_readable(fd);
    let begin = Instant::now();
    while ALERTS.load(Ordering::Acquire) == before {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "the backend was not woken"
        );
        std::thread::yield_now();
    }
}

fn counter() -> i32 {
    // SAFETY: creates a new descriptor.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    assert!(fd >= 0, "a descriptor");
    fd
}

/// Allocates a structure of C, all zero.
fn zeroed<T>() -> *mut T {
    // SAFETY: used for structures of C only, for all of which zero is a value.
    Box::into_raw(unsafe { Box::new(MaybeUninit::<T>::zeroed().assume_init()) })
}

/// Frees an allocation of `zeroed`.
///
/// # Safety
/// `zeroed` made it, and it has no other user.
unsafe fn free<T>(made: *mut T) {
    // SAFETY: as the caller promised.
    drop(unsafe { Box::from_raw(made) });
}

/// Removes an object and its pending events, and frees it.
///
/// # Safety
/// `zeroed` made it.
unsafe fn destroy<T>(state: &mut State, made: *mut T) -> Object {
    let removed = state.remove(made as usize);
    state
        .asynchronous
        .retain(|(_, _, known)| *known != made as usize);
    // SAFETY: as the caller promised; it was known, so it was not freed before.
    unsafe { free(made) };
    removed
}

/// Destroys an object with a descriptor.
///
/// # Safety
/// `zeroed` made it.
unsafe fn destroy_with<T>(state: &mut State, made: *mut T, fd: i32) {
    // SAFETY: as the caller promised; the descriptor is the object's.
    unsafe {
        destroy(state, made);
        libc::close(fd);
    }
}

fn set_error(number: i32) {
    // SAFETY: the pointer is to this thread's `errno`.
    unsafe { *libc::__errno_location() = number };
}

/// Defines functions for an object of a kind, and for all of them, oldest first.
macro_rules! objects {
    ($($kind:ident, $words:literal: $one:ident, $all:ident;)*) => {
        impl State {$(
            fn $one(&mut self, address: usize) -> &mut $kind {
                match self.objects.get_mut(&address) {
                    Some(Object::$kind(object)) => object,
                    other => panic!("used as {}: {other:?}", $words),
                }
            }

            fn $all(&self) -> Vec<usize> {
                self.all(|object| match object {
                    Object::$kind(object) => Some(object.order),
                    _ => None,
                })
            }
        )*}
    };
}

objects! {
    Queue, "a completion queue": queue, queues;
    Pair, "a queue pair": pair, pairs;
    Shared, "a shared receive queue": shared, all_shared;
    Id, "an identifier": id, ids;
}

impl State {
    /// Returns the error of a call that is refused.
    fn refuses(&mut self) -> Option<i32> {
        let (left, error) = self.refusals;
        self.refusals.0 = left.checked_sub(1)?;
        set_error(error);
        Some(error)
    }

    fn insert(&mut self, address: usize, object: Object) {
        let before = self.objects.insert(address, object);
        assert!(before.is_none(), "two objects at one address");
    }

    fn is(&self, address: usize, what: impl FnOnce(&Object) -> bool) {
        let known = self.objects.get(&address);
        assert!(known.is_some_and(what), "used: {address:#x} is {known:?}");
    }

    /// Removes a destroyed object; panics if an object made from it is left.
    fn remove(&mut self, address: usize) -> Object {
        let depends = |object: &Object| match object {
            Object::Channel { context } | Object::Domain { context } => *context == address,
            Object::Region(region) => region.domain == address,
            Object::Window { domain } => *domain == address,
            Object::Queue(queue) => queue.channel == address,
            Object::Shared(shared) => shared.domain == address,
            Object::Pair(pair) => pair.uses(address),
            Object::Id(id) => id.channel == address,
            _ => false,
        };
        let dependent = self.objects.values().find(|object| depends(object));
        assert!(dependent.is_none(), "destroyed under {dependent:?}");
        let removed = self.objects.remove(&address);
        removed.unwrap_or_else(|| panic!("destroyed: {address:#x} is nothing"))
    }

    /// Returns the addresses of the objects of a kind, oldest first.
    ///
    /// The order of creation is the same in every run; heap addresses are not.
    fn all(&self, kind: impl Fn(&Object) -> Option<u64>) -> Vec<usize> {
        let mut found: Vec<(u64, usize)> = self
            .objects
            .iter()
            .filter_map(|(address, object)| Some((kind(object)?, *address)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, address)| address).collect()
    }

    /// Frees an element that existed only for its event.
    fn forget_element(&mut self, element: usize) {
        let mut elements = self.elements.iter();
        if let Some(at) = elements.position(|known| *known == element) {
            self.elements.swap_remove(at);
            // SAFETY: `Script::report` made it, and it was known, so it was not freed before.
            unsafe { free(element as *mut script::Element) };
        }
    }

    fn context(&self) -> usize {
        let known = |(address, object): (&usize, &Object)| {
            matches!(object, Object::Context(_)).then_some(*address)
        };
        self.objects.iter().find_map(known).expect("an open device")
    }

    /// Returns the next number; numbers give the order of creation.
    fn count(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key.into()
    }
}

/// Returns the devices; device lists may outlive a run and still name them.
fn devices() -> [*mut ibv_device; NAMES.len()] {
    let mut state = state();
    if state.devices[0] == 0 {
        state.devices = NAMES.map(|name| {
            let made = zeroed::<ibv_device>();
            // SAFETY: just made.
            unsafe {
                (*made).transport_type = rdma_sys::ibv_transport_type::IBV_TRANSPORT_IB;
                for (to, letter) in (*made).name.iter_mut().zip(name.bytes()) {
                    *to = letter as _;
                }
            }
            made as usize
        });
    }
    state.devices.map(|device| device as *mut ibv_device)
}

/// The C libraries' type of an event with private data.
type Event = rdma_cm_event;
type Context = ibv_context;
