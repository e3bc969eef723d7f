//! Open adapters of any backend.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;

use dat_core::attributes::IaAddress;
use dat_core::backend::{HostBackend, HostDriver, PRIVATE_DATA_MAX};
use dat_core::event::{Wait, WakeReason};
use dat_core::flags::{CloseFlags, HandleKind, IaFields, LMR_COOKIE_SIZE, ProviderFields};
use dat_core::id::Handle;
use dat_core::time::Instant;
use dat_core::{Error, Result, Subtype};
use dat_devices::ByAddress;
use dat_storage::Limits;

use crate::agents;
use crate::backoff::Backoff;
use crate::boundary::{
    Entered, Kept, NamedAttributes, Numbered, PerProcess, Placed, STACK_FOR_AGENTS, Shut, Slot,
    SocketAddress, detects_forks, has_memory, keep_small, start_thread, start_thread_with,
    uncancelled,
};
use crate::handles::{self, CHandle, Cells, Reserved, reserve};

/// A backend that the C libraries can open.
pub(crate) trait Openable: ByAddress + Numbered {
    /// Returns the adapters that are shut.
    fn shut() -> &'static Shut<Self>;

    /// Returns the adapter's data of this backend, if it is one of this backend.
    fn of(adapter: &Adapter) -> Option<&Opened<Self>>;

    /// Returns an open adapter of this backend as one of any backend.
    fn device(opened: Opened<Self>) -> OpenDevice;
}

/// Declares [`OpenDevice`], and implements [`Openable`] for each backend.
macro_rules! declare {
    ({} $($name:ident = $type:ty,)+) => {
        /// An open adapter of one of the backends.
        #[expect(
            clippy::allow_attributes,
            reason = "which backends there are, and so how large, is not this crate's to know"
        )]
        #[allow(
            clippy::large_enum_variant,
            reason = "each value is a field of an adapter, which is in a box"
        )]
        pub(crate) enum OpenDevice {
            $($name(Opened<$type>),)+
        }

        $(impl Openable for $type {
            fn shut() -> &'static Shut<Self> {
                static SHUT: Shut<$type> = PerProcess::new();
                &SHUT
            }

            #[inline]
            fn of(adapter: &Adapter) -> Option<&Opened<Self>> {
                if let OpenDevice::$name(opened) = &adapter.device {
                    return Some(opened);
                }
                None
            }

            fn device(opened: Opened<Self>) -> OpenDevice {
                OpenDevice::$name(opened)
            }
        })+
    };
}
dat_devices::backends! { [declare] {} }

/// Evaluates an expression for the open adapter of any backend.
macro_rules! with_device {
    ($adapter:expr, $opened:ident => $result:expr) => {
        dat_devices::backends! { [$crate::adapter::by_device] { $adapter, $opened => $result } }
    };
}
pub(crate) use with_device;

macro_rules! by_device {
    ({ $adapter:expr, $opened:ident => $result:expr } $($name:ident = $type:ty,)+) => {
        match &$adapter.device {
            $($crate::adapter::OpenDevice::$name($opened) => $result,)+
        }
    };
}
pub(crate) use by_device;

/// Longest sleep, in microseconds, between two checks whether the thread was cancelled.
const SLICE_MICROS: u64 = 100_000;

/// The object that a thread sleeps on.
pub(crate) type WaitOf<B> = <<B as HostBackend>::Driver as HostDriver>::Wait;

/// An open adapter of one backend.
pub(crate) struct Opened<B: Openable> {
    pub(crate) ia: Kept<B>,
    driver: B::Driver,
    /// Sleepers that no thread uses.
    sleepers: Mutex<Vec<WaitOf<B>>>,
}

impl<B: Openable> Opened<B> {
    /// Opens the adapter of a backend.
    ///
    /// Its tables start small, and grow.
    ///
    /// # Errors
    /// Those of `Kept::open`.
    pub(crate) fn open(backend: B, async_evd_min_qlen: i32) -> Result<Self> {
        let driver = backend.driver();
        Ok(Self {
            ia: Kept::open(backend, async_evd_min_qlen)?,
            driver,
            sleepers: Mutex::new(Vec::new()),
        })
    }

    /// Checks that there is memory for the allocations of a post.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): the heap is exhausted.
    fn check_post(&self) -> Result<()> {
        if !B::POSTS_ALLOCATE || has_memory() {
            return Ok(());
        }
        Err(Error::insufficient_resources(Subtype::ResourceMemory))
    }

    /// Posts or binds; the thread is not cancelled meanwhile.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): the heap is exhausted; and those of `call`.
    pub(crate) fn posting<R>(&self, call: impl FnOnce() -> Result<R>) -> Result<R> {
        self.check_post()?;
        if B::DATA_CALLS_ARE_CANCELLED {
            uncancelled(call)
        } else {
            call()
        }
    }

    /// Returns true if a device pins registered memory, and so checks that it exists.
    #[expect(
        clippy::unused_self,
        reason = "the type of the backend is known where it is called only"
    )]
    pub(crate) const fn pins_memory(&self) -> bool {
        B::PINS_MEMORY
    }

    /// Returns true if connections need a thread while the program waits in another adapter.
    #[expect(clippy::unused_self, reason = "as above")]
    const fn needs_connection_thread(&self) -> bool {
        <B::Driver as HostDriver>::NEEDS_CONNECTION_THREAD
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Instant {
        self.driver.now()
    }

    /// Returns the earlier of `deadline` and the time of the next check for cancellation.
    pub(crate) fn slice(&self, deadline: Option<Instant>) -> Instant {
        let slice = Instant::from_micros(self.now().as_micros().saturating_add(SLICE_MICROS));
        deadline.map_or(slice, |deadline| deadline.min(slice))
    }

    fn sleepers(&self) -> MutexGuard<'_, Vec<WaitOf<B>>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sleeper for a whole wait.
    ///
    /// The wait keeps it, because the process may have no descriptors for another one later.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (DEVICE): no sleeper can be made.
    pub(crate) fn sleeper(&self) -> Result<Sleeper<'_, B>> {
        let known = self.sleepers().pop();
        let wait = match known {
            Some(wait) => wait,
            None => self
                .driver
                .wait()
                .map_err(|_| Error::insufficient_resources(Subtype::ResourceDevice))?,
        };
        Ok(Sleeper {
            opened: self,
            wait: Some(wait),
        })
    }

    /// Drives the adapter, on a thread of its own, until `care` differs from `mine`.
    fn keep(&self, mine: u8, care: &AtomicU8, keeper: &Mutex<Option<Waker>>) {
        let sleeper = match mine {
            ATTENDED => self.driver.connection_wait(),
            _ => self.driver.wait(),
        };
        let Ok(mut sleeper) = sleeper else {
            return;
        };
        let waker = sleeper.waker();
        {
            let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
            // A thread that changes `care` takes the waker afterwards. Either it finds this waker,
            // or this check sees its change.
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

/// A sleeper that one wait uses; dropping it returns it to the adapter.
pub(crate) struct Sleeper<'o, B: Openable> {
    opened: &'o Opened<B>,
    /// Present until the drop.
    wait: Option<WaitOf<B>>,
}

impl<B: Openable> Sleeper<'_, B> {
    /// Returns the backend's sleeper.
    pub(crate) fn get(&mut self) -> Option<&mut WaitOf<B>> {
        self.wait.as_mut()
    }
}

impl<B: Openable> Drop for Sleeper<'_, B> {
    fn drop(&mut self) {
        self.opened.sleepers().extend(self.wait.take());
    }
}

/// Version and thread safety that the registry opened an adapter by.
///
/// They come from the line of `dat.conf` or the discovered device. The registry expects queries to
/// return them again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) is_thread_safe: bool,
    /// The address of the provider's table.
    pub(crate) provider: usize,
}

/// An open adapter with all data that C sees of it.
pub(crate) struct Adapter {
    pub(crate) device: OpenDevice,
    pub(crate) cells: Cells,
    pub(crate) registered: Registered,
    /// The name that the adapter was opened by.
    pub(crate) name: CString,
    pub(crate) handle: CHandle,
    /// Set if the consumer did not want the asynchronous event dispatcher.
    pub(crate) keeps_async_evd: bool,
    pub(crate) address: SocketAddress,
    pub(crate) named: NamedAttributes,
    attachments: Mutex<BTreeMap<u64, Box<Attachment>>>,
    /// Set once the adapter has had a service point or a connection.
    connects: AtomicBool,
    /// State of the thread that drives the adapter outside of calls, a constant below.
    care: AtomicU8,
    /// Wakes the thread that drives the adapter.
    keeper: Mutex<Option<Waker>>,
    /// Number of dequeues that found nothing.
    found_nothing: AtomicU32,
    /// Record of the waits that found nothing.
    pub(crate) backoff: Backoff,
}

/// No thread drives the adapter.
const ALONE: u8 = 0;
/// A thread handles connections and device events, but no completions.
///
/// Other adapters are open, and a thread that waits in one of them does not drive this one. An
/// adapter without service points and connections has no such thread: its calls are enough.
const ATTENDED: u8 = 1;
/// A thread drives everything, because agents have to be called.
const KEPT: u8 = 2;
/// The adapter is closed.
const CLOSED: u8 = 3;

/// Data that query structures and events of an object point to.
#[derive(Clone, Copy)]
pub(crate) struct Attachment {
    pub(crate) private_data: [u8; PRIVATE_DATA_MAX],
    pub(crate) local: SocketAddress,
    pub(crate) remote: SocketAddress,
    pub(crate) cookie: [u8; LMR_COOKIE_SIZE],
}

/// Number of dequeues that find nothing between two yields of the processor.
const EMPTY_DEQUEUES: u32 = 256;

/// Maximum number of adapters that are open at a time.
const MOST: usize = 1 << 15;

static ADAPTERS: [Slot<Adapter>; MOST] = [const { Slot::new() }; MOST];

/// First slot of this process; the slots below it were its parent's.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// End of the slots that were ever tried for an adapter.
static REACHED: AtomicUsize = AtomicUsize::new(0);

/// Number of open adapters.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Abandons the adapters of the parent in a process that was just forked.
///
/// Their threads and devices are the parent's. Drops nothing, takes no lock and allocates nothing.
pub(crate) fn abandon_all() {
    let reached = REACHED.load(Ordering::Relaxed);
    // The parent abandoned the slots below `first` itself. Raising their counts again would
    // overflow them in time.
    let first = FIRST.load(Ordering::Relaxed);
    for slot in ADAPTERS.iter().take(reached).skip(first) {
        slot.abandon();
    }
    FIRST.store(reached, Ordering::Relaxed);
    OPEN.store(0, Ordering::Relaxed);
    handles::abandon_all();
}

/// A device that can be opened.
pub(crate) trait Opening {
    /// Opens the device; returns the sizes up to which its tables grow, too.
    ///
    /// # Errors
    /// As `dat_ia_open`.
    fn open(&self, async_evd_min_qlen: i32) -> Result<(OpenDevice, Limits)>;
}

impl Adapter {
    /// Opens an adapter.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): too many adapters are open; and the errors of the device.
    pub(crate) fn open(
        opening: &impl Opening,
        name: &CStr,
        registered: Registered,
        keeps_async_evd: bool,
        async_evd_min_qlen: i32,
    ) -> Result<Entered<'static, Self>> {
        // One open at a time, so that an empty slot stays empty until it is filled.
        static TURN: PerProcess<Mutex<()>> = PerProcess::new();
        static SMALL: AtomicBool = AtomicBool::new(false);
        let full = Error::insufficient_resources(Subtype::ResourceMemory);
        if !detects_forks() {
            return Err(full);
        }
        let _turn = TURN.this().lock().unwrap_or_else(PoisonError::into_inner);
        if !SMALL.swap(true, Ordering::Relaxed) {
            keep_small(&ADAPTERS);
        }
        let (index, slot) = ADAPTERS
            .iter()
            .enumerate()
            .skip(FIRST.load(Ordering::Relaxed))
            // Raised before `is_empty` takes the slot's lock: a child that is forked there starts
            // after this slot.
            .inspect(|(index, _)| {
                REACHED.fetch_max(index + 1, Ordering::Relaxed);
            })
            .find(|(_, slot)| slot.is_empty())
            .ok_or(full)?;
        let cell = reserve()?;
        let (device, limits) = opening.open(async_evd_min_qlen)?;
        let slot_number = u32::try_from(index).map_err(|_| full)?;
        let cells = Cells::new(registered.provider, slot_number, |kind| limits.of(kind))?;
        cells.make_room(HandleKind::Ia)?;
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
            connects: AtomicBool::new(false),
            care: AtomicU8::new(ALONE),
            keeper: Mutex::new(None),
            found_nothing: AtomicU32::new(0),
            backoff: Backoff::default(),
        });
        let (object, queried, extensions) = with_device!(adapter, opened => (
            opened.ia.handle(),
            opened.ia.ia_query(IaFields::empty(), ProviderFields::empty())?,
            opened.ia.extensions(),
        ));
        if registered.major >= 2 {
            // Programs for 2.0 wait for the event of a shared queue's endpoint whose connection
            // ended.
            with_device!(adapter, opened => opened.ia.report_shared_ends());
        }
        adapter.address = SocketAddress::new(queried.ia.ia_address);
        adapter.named =
            NamedAttributes::new(&queried.ia, &queried.provider, extensions, registered.major);
        adapter.handle = adapter.cells.publish(cell, object);
        let adapter = slot.fill(adapter).map_err(|_| full)?;
        if OPEN.fetch_add(1, Ordering::SeqCst) == 1 {
            // The adapter that was the only one so far has no thread yet.
            let others = ADAPTERS.iter().filter_map(Slot::enter);
            for other in others.filter(|other| other.connects.load(Ordering::SeqCst)) {
                other.attend();
            }
        }
        Ok(adapter)
    }

    /// Notes that the adapter has a service point or a connection, with events to handle.
    ///
    /// Either this sees that another adapter is open, or the open of that one sees the note.
    pub(crate) fn note_connections(&self) {
        if !self.connects.load(Ordering::Relaxed)
            && !self.connects.swap(true, Ordering::SeqCst)
            && OPEN.load(Ordering::SeqCst) > 1
        {
            self.attend();
        }
    }

    /// Starts a thread that handles connections while the program waits in another adapter.
    ///
    /// If no thread can be started, only calls on this adapter handle them.
    fn attend(&self) {
        if with_device!(self, opened => opened.needs_connection_thread()) {
            let _without: Result<()> = self.care_for(ALONE, ATTENDED);
        }
    }

    /// Starts a thread for the state `care` if the state is `before`.
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
        let started = match care {
            KEPT => start_thread_with(STACK_FOR_AGENTS, c"dat", Box::new(keep)),
            _ => start_thread(c"dat", Box::new(keep)),
        };
        started.map_err(|_| {
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

    /// Returns the adapter of an object, even if the object is gone.
    #[inline]
    pub(crate) fn of(handle: CHandle) -> Option<Entered<'static, Self>> {
        Self::at(handle.cell()?.slot())
    }

    /// Returns the adapter in a slot.
    #[inline]
    pub(crate) fn at(slot: usize) -> Option<Entered<'static, Self>> {
        ADAPTERS.get(slot % MOST)?.enter()
    }

    /// Returns the adapter that a handle names; `None` if another one has its slot by now.
    pub(crate) fn itself(handle: CHandle) -> Option<Entered<'static, Self>> {
        Self::of(handle).filter(|adapter| adapter.handle == handle)
    }

    /// Closes the adapter.
    ///
    /// # Errors
    /// As `Ia::shut`; INVALID_HANDLE (IA) if another thread closed it first.
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

    /// Counts a dequeue that found nothing, and yields the processor at every `EMPTY_DEQUEUES`th.
    ///
    /// The peer may need this processor. Without the yield it would wait for a time slice of the
    /// scheduler.
    #[inline]
    pub(crate) fn found_nothing(&self) {
        // The count need not be exact: an update that another thread overwrites is lost.
        let count = self.found_nothing.load(Ordering::Relaxed).wrapping_add(1);
        self.found_nothing.store(count, Ordering::Relaxed);
        if count.is_multiple_of(EMPTY_DEQUEUES) {
            thread::yield_now();
        }
    }

    /// Returns the handle of an endpoint or a queue that was just made.
    pub(crate) fn publish(
        entered: &Entered<'static, Self>,
        cell: Reserved,
        made: Handle,
    ) -> CHandle {
        let placed = Placed::of(entered, made);
        entered.cells.publish_at(cell, placed)
    }

    /// Retires the handle of an object that is gone, and drops its attachment.
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

    /// Calls `tell` with the attachment of an object, made on first use.
    ///
    /// The attachment keeps its address until the object is gone.
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

    /// Starts a thread that drives the adapter, because agents have to be called.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: the system cannot start a thread.
    pub(crate) fn keep(&self) -> Result<()> {
        // In this order: another thread may change the state from `ALONE` to `ATTENDED` in between.
        self.care_for(ALONE, KEPT)?;
        self.care_for(ATTENDED, KEPT)
    }
}
