//! Open adapters, whatever their backend.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;

use backend_mock::{Fabric, MockBackend, MockWait};
use dat_core::attributes::IaAddress;
use dat_core::backend::{Backend, BackendError, PRIVATE_DATA_MAX};
use dat_core::event::{Wait, WakeReason};
use dat_core::flags::{CloseFlags, IaFields, LMR_COOKIE_SIZE, ProviderFields};
use dat_core::id::Handle;
use dat_core::time::Instant;
use dat_core::{Error, Result, Subtype};

use crate::agents;
use crate::boundary::{
    Entered, NamedAttributes, OwnedIa, PerProcess, Slot, SocketAddress, has_memory, is_told_apart,
    keep_small, start_thread,
};
use crate::capacity::Capacity;
use crate::courtesy::Courtesy;
use crate::handles::{self, CHandle, Cells, reserve};

/// A backend that the C libraries can open.
pub(crate) trait Host:
    Backend<
        CompletionQueue: 'static,
        SendQueue: 'static,
        ReceiveQueue: 'static,
        SharedReceiveQueue: 'static,
    > + 'static
{
    /// What a thread sleeps on.
    type Wait: Wait + Send;

    /// What else is needed to sleep and to know the time.
    type Ground: Send + Sync;

    /// Whether posts may allocate.
    const POSTS_ALLOCATE: bool;

    /// Something to sleep on for one more thread.
    fn sleeper(ground: &Self::Ground) -> std::result::Result<Self::Wait, BackendError>;

    /// Something to sleep on for a thread that does what no call does: connections of an adapter go on while the program waits in
    /// another one. `None` for a backend that has a thread for that.
    fn attendant(ground: &Self::Ground) -> Option<Self::Wait>;

    /// The time now.
    fn now(ground: &Self::Ground) -> Instant;
}

impl Host for MockBackend {
    type Wait = MockWait;
    type Ground = Fabric;

    const POSTS_ALLOCATE: bool = true;

    fn sleeper(fabric: &Fabric) -> std::result::Result<MockWait, BackendError> {
        Ok(MockWait::new(fabric))
    }

    fn attendant(_: &Fabric) -> Option<MockWait> {
        None
    }

    fn now(fabric: &Fabric) -> Instant {
        fabric.now()
    }
}

#[cfg(feature = "verbs")]
impl Host for backend_verbs::VerbsBackend {
    type Wait = backend_verbs::VerbsWait;
    type Ground = backend_verbs::VerbsWaits;

    const POSTS_ALLOCATE: bool = false;

    fn sleeper(waits: &Self::Ground) -> std::result::Result<Self::Wait, BackendError> {
        waits.wait()
    }

    fn attendant(waits: &Self::Ground) -> Option<Self::Wait> {
        waits.without_completions().ok()
    }

    fn now(_: &Self::Ground) -> Instant {
        dat_core::event::ThreadWait::clock()
    }
}

/// How long a thread sleeps without a look whether it was cancelled.
const SLICE_MICROS: u64 = 100_000;

/// An open adapter of one backend.
pub(crate) struct Opened<B: Host> {
    pub(crate) ia: OwnedIa<B>,
    ground: B::Ground,
    /// Those that no thread sleeps on.
    sleepers: Mutex<Vec<B::Wait>>,
}

impl<B: Host> Opened<B> {
    /// Opens the adapter of a backend.
    pub(crate) fn open(
        backend: B,
        ground: B::Ground,
        capacity: &Capacity,
        async_evd_min_qlen: i32,
    ) -> Result<Self> {
        Ok(Self {
            ia: OwnedIa::open(backend, capacity, async_evd_min_qlen)?,
            ground,
            sleepers: Mutex::new(Vec::new()),
        })
    }

    /// Whether there is memory for what a post may allocate.
    #[inline(always)]
    pub(crate) fn may_post(&self) -> bool {
        !B::POSTS_ALLOCATE || has_memory()
    }

    /// Refuses a post that there is no memory for.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): the heap is exhausted.
    #[inline(always)]
    pub(crate) fn check_post(&self) -> Result<()> {
        if self.may_post() {
            return Ok(());
        }
        Err(Error::insufficient_resources(Subtype::ResourceMemory))
    }

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        B::now(&self.ground)
    }

    /// When a sleep with this deadline ends for a look whether its thread was cancelled.
    pub(crate) fn slice(&self, deadline: Option<Instant>) -> Instant {
        let slice = Instant::from_micros(self.now().as_micros().saturating_add(SLICE_MICROS));
        deadline.map_or(slice, |deadline| deadline.min(slice))
    }

    fn sleepers(&self) -> MutexGuard<'_, Vec<B::Wait>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something to sleep on, for a whole wait: the process may have no descriptors for another one later.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (DEVICE): there is nothing to sleep on.
    pub(crate) fn sleeper(&self) -> Result<Sleeper<'_, B>> {
        let known = self.sleepers().pop();
        let wait = match known {
            Some(wait) => wait,
            None => B::sleeper(&self.ground)
                .map_err(|_| Error::insufficient_resources(Subtype::ResourceDevice))?,
        };
        Ok(Sleeper {
            opened: self,
            wait: Some(wait),
        })
    }

    /// Lets the adapter make progress until `care` is another, on a thread that does nothing else.
    fn keep(&self, mine: u8, care: &AtomicU8, keeper: &Mutex<Option<Waker>>) {
        let sleeper = match mine {
            ATTENDED => B::attendant(&self.ground),
            _ => B::sleeper(&self.ground).ok(),
        };
        let Some(mut sleeper) = sleeper else {
            return;
        };
        let waker = sleeper.waker();
        {
            let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever changes the care looks for the waker after that: either finds it, or is seen here.
            if care.load(Ordering::Acquire) != mine {
                return;
            }
            *keeper = Some(waker.clone());
        }
        while care.load(Ordering::Acquire) == mine {
            self.ia.register_progress_waker(&waker);
            if self.ia.progress(sleeper.now()) == 0 {
                let _reason: WakeReason = sleeper.wait(self.ia.next_deadline());
            }
        }
    }
}

/// What a thread sleeps on in a wait; kept for others when it is dropped.
pub(crate) struct Sleeper<'o, B: Host> {
    opened: &'o Opened<B>,
    /// There until it is dropped.
    wait: Option<B::Wait>,
}

impl<B: Host> Sleeper<'_, B> {
    /// What it sleeps on.
    pub(crate) fn get(&mut self) -> Option<&mut B::Wait> {
        self.wait.as_mut()
    }
}

impl<B: Host> Drop for Sleeper<'_, B> {
    fn drop(&mut self) {
        self.opened.sleepers().extend(self.wait.take());
    }
}

/// The backends that can be open.
#[cfg_attr(
    feature = "verbs",
    expect(
        clippy::large_enum_variant,
        reason = "it is a part of an adapter, which is in a box"
    )
)]
pub(crate) enum Device {
    Mock(Opened<MockBackend>),
    #[cfg(feature = "verbs")]
    Verbs(Opened<backend_verbs::VerbsBackend>),
}

/// Evaluates an expression for the open adapter, whatever its backend.
macro_rules! with_device {
    ($adapter:expr, $opened:ident => $result:expr) => {
        match &$adapter.device {
            $crate::adapter::Device::Mock($opened) => $result,
            #[cfg(feature = "verbs")]
            $crate::adapter::Device::Verbs($opened) => $result,
        }
    };
}
pub(crate) use with_device;

/// As `with_device`, where each instruction counts: what the expression is for the mock is a function of its own, out of the way of devices.
macro_rules! with_device_first {
    ($adapter:expr, $opened:ident => $result:expr) => {
        match &$adapter.device {
            $crate::adapter::Device::Mock($opened) => $crate::adapter::aside(move || $result),
            #[cfg(feature = "verbs")]
            $crate::adapter::Device::Verbs($opened) => $result,
        }
    };
}
pub(crate) use with_device_first;

/// Calls a function, in a function.
#[cold]
#[inline(never)]
pub(crate) fn aside<R>(call: impl FnOnce() -> R) -> R {
    call()
}

/// What the line of `dat.conf` said that the registry opened an adapter by, and expects to be told again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) is_thread_safe: bool,
    /// The address of the provider's table.
    pub(crate) provider: usize,
}

/// An open adapter with everything that C sees of it.
pub(crate) struct Adapter {
    pub(crate) device: Device,
    pub(crate) cells: Cells,
    pub(crate) registered: Registered,
    /// By which it was opened.
    pub(crate) name: CString,
    pub(crate) handle: CHandle,
    /// The consumer did not want the asynchronous event dispatcher.
    pub(crate) keeps_async_evd: bool,
    pub(crate) address: SocketAddress,
    pub(crate) named: NamedAttributes,
    attachments: Mutex<BTreeMap<u64, Box<Attachment>>>,
    /// What lets it make progress beside the calls of the program.
    care: AtomicU8,
    /// Wakes the thread that does.
    keeper: Mutex<Option<Waker>>,
    /// Dequeues that found nothing.
    found_nothing: AtomicU32,
    /// Waits that found nothing.
    pub(crate) courtesy: Courtesy,
}

/// Nothing does.
const ALONE: u8 = 0;
/// A thread takes in what happens to connections and on the device: other adapters are open, and who waits in one of them does not
/// do that here.
const ATTENDED: u8 = 1;
/// A thread does all there is, because somebody is to be called.
const KEPT: u8 = 2;
/// It is closed.
const CLOSED: u8 = 3;

/// What query structures and events of an object point to.
#[derive(Clone, Copy)]
pub(crate) struct Attachment {
    pub(crate) private_data: [u8; PRIVATE_DATA_MAX],
    pub(crate) local: SocketAddress,
    pub(crate) remote: SocketAddress,
    pub(crate) cookie: [u8; LMR_COOKIE_SIZE],
}

/// So many dequeues that find nothing come before others go on.
const EMPTY_DEQUEUES: u32 = 256;

/// Most adapters that are open at a time.
const MOST: usize = 1 << 15;

static ADAPTERS: [Slot<Adapter>; MOST] = [const { Slot::new() }; MOST];

/// The first place that is this process's; those before it were its parent's.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// Places up to this one were ever used.
static REACHED: AtomicUsize = AtomicUsize::new(0);

/// Adapters that are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Shuts the adapters of the parent in a process that was just forked: their threads and devices are the parent's.
/// Drops nothing, takes no lock and allocates nothing.
pub(crate) fn abandon_all() {
    let reached = REACHED.load(Ordering::Relaxed);
    // Those before the first were abandoned by the parent: a count that is raised again overflows.
    let first = FIRST.load(Ordering::Relaxed);
    for slot in ADAPTERS.iter().take(reached).skip(first) {
        slot.abandon();
    }
    FIRST.store(reached, Ordering::Relaxed);
    OPEN.store(0, Ordering::Relaxed);
}

/// What can be opened.
pub(crate) trait Opening {
    /// Opens the device.
    ///
    /// # Errors
    /// As `dat_ia_open`.
    fn open(&self, capacity: &Capacity, async_evd_min_qlen: i32) -> Result<Device>;
}

impl Adapter {
    /// Opens an adapter.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): too many are open; and those of the device.
    pub(crate) fn open(
        opening: &impl Opening,
        name: &CStr,
        registered: Registered,
        keeps_async_evd: bool,
        async_evd_min_qlen: i32,
    ) -> Result<Entered<'static, Self>> {
        // One after the other, so that an empty place stays empty until it is filled.
        static TURN: PerProcess<Mutex<()>> = PerProcess::new();
        static SMALL: AtomicBool = AtomicBool::new(false);
        let full = Error::insufficient_resources(Subtype::ResourceMemory);
        if !is_told_apart() {
            return Err(full);
        }
        let _turn = TURN.this().lock().unwrap_or_else(PoisonError::into_inner);
        if !SMALL.swap(true, Ordering::Relaxed) {
            keep_small(&ADAPTERS);
            handles::keep_small();
        }
        let (index, slot) = ADAPTERS
            .iter()
            .enumerate()
            .skip(FIRST.load(Ordering::Relaxed))
            // Before the look, which takes a lock: a child that is forked meanwhile begins behind it.
            .inspect(|(index, _)| {
                REACHED.fetch_max(index + 1, Ordering::Relaxed);
            })
            .find(|(_, slot)| slot.is_empty())
            .ok_or(full)?;
        let cell = reserve()?;
        let capacity = Capacity::beside(OPEN.load(Ordering::Relaxed));
        let device = opening.open(&capacity, async_evd_min_qlen)?;
        let slot_number = u32::try_from(index).map_err(|_| full)?;
        let cells = Cells::new(registered.provider, slot_number, |kind| capacity.of(kind));
        let mut adapter = Box::new(Self {
            device,
            cells,
            registered,
            name: name.to_owned(),
            handle: CHandle::NULL,
            keeps_async_evd,
            address: SocketAddress::new(IaAddress::Node(0)),
            named: NamedAttributes::default(),
            attachments: Mutex::new(BTreeMap::new()),
            care: AtomicU8::new(ALONE),
            keeper: Mutex::new(None),
            found_nothing: AtomicU32::new(0),
            courtesy: Courtesy::default(),
        });
        let (object, told, extensions) = with_device!(adapter, opened => (
            opened.ia.handle(),
            opened.ia.ia_query(IaFields::empty(), ProviderFields::empty())?,
            opened.ia.extensions(),
        ));
        if registered.major >= 2 {
            // Programs for 2.0 wait for it.
            with_device!(adapter, opened => opened.ia.report_shared_ends());
        }
        adapter.address = SocketAddress::new(told.ia.ia_address);
        adapter.named =
            NamedAttributes::new(&told.ia, &told.provider, extensions, registered.major);
        adapter.handle = adapter.cells.publish(cell, object);
        let adapter = slot.fill(adapter).map_err(|_| full)?;
        let before = OPEN.fetch_add(1, Ordering::Relaxed);
        if before != 0 {
            adapter.attend();
        }
        if before == 1 {
            // The one that was alone so far.
            let mut others = ADAPTERS.iter().filter_map(Slot::enter);
            let other = others.find(|other| other.handle != adapter.handle);
            if let Some(other) = other {
                other.attend();
            }
        }
        Ok(adapter)
    }

    /// Connections go on from now on while the program waits in another adapter. Without a thread to be had they do so in calls alone.
    fn attend(&self) {
        let is_for_us = match &self.device {
            Device::Mock(_) => false,
            #[cfg(feature = "verbs")]
            Device::Verbs(_) => true,
        };
        if is_for_us {
            let _without: Result<()> = self.care_for(ALONE, ATTENDED);
        }
    }

    /// Has a thread care for the adapter if nothing has since `before`.
    fn care_for(&self, before: u8, care: u8) -> Result<()> {
        let change = self
            .care
            .compare_exchange(before, care, Ordering::AcqRel, Ordering::Acquire);
        if change.is_err() {
            return Ok(());
        }
        self.wake_keeper();
        let handle = self.handle;
        let keep = move || {
            if let Some(adapter) = Self::itself(handle) {
                with_device!(adapter, opened => opened.keep(care, &adapter.care, &adapter.keeper));
            }
        };
        start_thread(c"dat", Box::new(keep)).map_err(|_| {
            let _closed =
                self.care
                    .compare_exchange(care, ALONE, Ordering::AcqRel, Ordering::Acquire);
            Error::insufficient_resources(Subtype::NoSubtype)
        })
    }

    fn wake_keeper(&self) {
        let keeper = self.keeper.lock();
        if let Some(keeper) = keeper.unwrap_or_else(PoisonError::into_inner).take() {
            keeper.wake();
        }
    }

    /// The adapter of an object, whatever the object is by now.
    #[inline(always)]
    pub(crate) fn of(handle: CHandle) -> Option<Entered<'static, Self>> {
        Self::at(handle.cell()?.slot())
    }

    /// The adapter in a place.
    #[inline(always)]
    pub(crate) fn at(slot: usize) -> Option<Entered<'static, Self>> {
        ADAPTERS.get(slot % MOST)?.enter()
    }

    /// The adapter that a handle names itself. Another one may be in its place by now.
    pub(crate) fn itself(handle: CHandle) -> Option<Entered<'static, Self>> {
        Self::of(handle).filter(|adapter| adapter.handle == handle)
    }

    /// Closes the adapter.
    ///
    /// # Errors
    /// As `Ia::shut`; INVALID_HANDLE (IA) if somebody else closes it.
    pub(crate) fn close(entered: &Entered<'static, Self>, flags: CloseFlags) -> Result<()> {
        let backend = with_device!(entered, opened => opened.ia.shut(flags).map(drop));
        backend?;
        entered.care.store(CLOSED, Ordering::Release);
        entered.wake_keeper();
        agents::release(entered.handle);
        if entered.close() {
            entered.cells.retire_all();
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A dequeue found nothing. Once in a while others go on then: the peer may wait for this processor, and without that would for a slice of the
    /// scheduler's.
    #[inline(always)]
    pub(crate) fn found_nothing(&self) {
        // No thread has to be counted exactly.
        let count = self.found_nothing.load(Ordering::Relaxed).wrapping_add(1);
        self.found_nothing.store(count, Ordering::Relaxed);
        if count.is_multiple_of(EMPTY_DEQUEUES) {
            thread::yield_now();
        }
    }

    /// An object is gone, and with it what structures pointed to for it.
    pub(crate) fn retire(&self, object: impl Into<Handle>) {
        let object = object.into();
        self.cells.retire(object);
        self.attachments().remove(&object.to_raw());
    }

    fn attachments(&self) -> MutexGuard<'_, BTreeMap<u64, Box<Attachment>>> {
        self.attachments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what structures point to for an object, and calls `tell` with where it is. It stays there until the object is gone.
    pub(crate) fn attach<R>(
        &self,
        object: impl Into<Handle>,
        tell: impl FnOnce(&mut Attachment) -> R,
    ) -> R {
        let nowhere = SocketAddress::new(IaAddress::Node(0));
        let mut attachments = self.attachments();
        let attachment = attachments.entry(object.into().to_raw());
        tell(attachment.or_insert_with(|| {
            Box::new(Attachment {
                private_data: [0; PRIVATE_DATA_MAX],
                local: nowhere,
                remote: nowhere,
                cookie: [0; LMR_COOKIE_SIZE],
            })
        }))
    }

    /// Lets the adapter make progress without calls from now on, because somebody is to be called.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: the system has no thread to give.
    pub(crate) fn keep(&self) -> Result<()> {
        // In this order: another thread may take it from alone to attended meanwhile.
        self.care_for(ALONE, KEPT)?;
        self.care_for(ATTENDED, KEPT)
    }
}
