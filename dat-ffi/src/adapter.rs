//! Open adapters, whatever their backend.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

use crate::boundary::{Entered, NamedAttributes, OwnedIa, Slot, SocketAddress, without_signals};
use crate::capacity::Capacity;
use crate::handles::{CHandle, Cells, reserve};

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

    /// Something to sleep on for one more thread.
    fn sleeper(ground: &Self::Ground) -> std::result::Result<Self::Wait, BackendError>;

    /// The time now.
    fn now(ground: &Self::Ground) -> Instant;
}

impl Host for MockBackend {
    type Wait = MockWait;
    type Ground = Fabric;

    fn sleeper(fabric: &Fabric) -> std::result::Result<MockWait, BackendError> {
        Ok(MockWait::new(fabric))
    }

    fn now(fabric: &Fabric) -> Instant {
        fabric.now()
    }
}

#[cfg(feature = "verbs")]
impl Host for backend_verbs::VerbsBackend {
    type Wait = backend_verbs::VerbsWait;
    type Ground = Mutex<backend_verbs::VerbsWait>;

    fn sleeper(ground: &Self::Ground) -> std::result::Result<Self::Wait, BackendError> {
        let first = ground.lock().unwrap_or_else(PoisonError::into_inner);
        first.another()
    }

    fn now(_: &Self::Ground) -> Instant {
        dat_core::event::ThreadWait::clock()
    }
}

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

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        B::now(&self.ground)
    }

    /// Calls `sleep` with something to sleep on.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (DEVICE): there is nothing to sleep on; and those of `sleep`.
    pub(crate) fn sleeping<R>(&self, sleep: impl FnOnce(&mut B::Wait) -> Result<R>) -> Result<R> {
        let idle = || self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = idle().pop();
        let mut sleeper = match known {
            Some(sleeper) => sleeper,
            None => B::sleeper(&self.ground)
                .map_err(|_| Error::insufficient_resources(Subtype::ResourceDevice))?,
        };
        let result = sleep(&mut sleeper);
        idle().push(sleeper);
        result
    }

    /// Lets the adapter make progress until `closing` says so, on a thread that does nothing else.
    fn keep(&self, closing: &AtomicBool, keeper: &Mutex<Option<Waker>>) {
        let Ok(mut sleeper) = B::sleeper(&self.ground) else {
            return;
        };
        let waker = sleeper.waker();
        // Whoever closes the adapter looks here after it has said so: either finds the waker, or is seen below.
        *keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        while !closing.load(Ordering::Acquire) {
            self.ia.register_progress_waker(&waker);
            if self.ia.progress(sleeper.now()) == 0 {
                let _reason: WakeReason = sleeper.wait(self.ia.next_deadline());
            }
        }
    }
}

/// The backends that can be open.
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
    pub(crate) handle: CHandle,
    /// The consumer did not want the asynchronous event dispatcher.
    pub(crate) keeps_async_evd: bool,
    pub(crate) address: SocketAddress,
    pub(crate) named: NamedAttributes,
    attachments: Mutex<HashMap<u64, Box<Attachment>>>,
    closing: AtomicBool,
    /// Wakes the thread that lets it make progress.
    keeper: Mutex<Option<Waker>>,
    kept: AtomicBool,
}

/// What query structures and events of an object point to.
#[derive(Clone, Copy)]
pub(crate) struct Attachment {
    pub(crate) private_data: [u8; PRIVATE_DATA_MAX],
    pub(crate) local: SocketAddress,
    pub(crate) remote: SocketAddress,
    pub(crate) cookie: [u8; LMR_COOKIE_SIZE],
}

/// Most adapters that are open at a time.
const MOST: usize = 1 << 15;

static ADAPTERS: [Slot<Adapter>; MOST] = [const { Slot::new() }; MOST];

/// Adapters that are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);

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
        registered: Registered,
        keeps_async_evd: bool,
        async_evd_min_qlen: i32,
    ) -> Result<Entered<'static, Self>> {
        // One after the other, so that an empty place stays empty until it is filled.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let full = Error::insufficient_resources(Subtype::ResourceMemory);
        let (index, slot) = ADAPTERS
            .iter()
            .enumerate()
            .find(|(_, slot)| slot.is_empty())
            .ok_or(full)?;
        let cell = reserve()?;
        let capacity = Capacity::beside(OPEN.load(Ordering::Relaxed));
        let device = without_signals(|| opening.open(&capacity, async_evd_min_qlen))?;
        let slot_number = u32::try_from(index).map_err(|_| full)?;
        let cells = Cells::new(registered.provider, slot_number, |kind| capacity.of(kind));
        let mut adapter = Box::new(Self {
            device,
            cells,
            registered,
            handle: CHandle::NULL,
            keeps_async_evd,
            address: SocketAddress::new(IaAddress::Node(0)),
            named: NamedAttributes::default(),
            attachments: Mutex::new(HashMap::new()),
            closing: AtomicBool::new(false),
            keeper: Mutex::new(None),
            kept: AtomicBool::new(false),
        });
        let (object, told) = with_device!(adapter, opened => (
            opened.ia.handle(),
            opened.ia.ia_query(IaFields::empty(), ProviderFields::empty())?,
        ));
        adapter.address = SocketAddress::new(told.ia.ia_address);
        adapter.named = NamedAttributes::new(&told.ia, &told.provider);
        adapter.handle = adapter.cells.publish(cell, object);
        let adapter = slot.fill(adapter).map_err(|_| full)?;
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(adapter)
    }

    /// The adapter of an object, whatever the object is by now.
    #[inline(always)]
    pub(crate) fn of(handle: CHandle) -> Option<Entered<'static, Self>> {
        ADAPTERS.get(handle.cell()?.slot())?.enter()
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
        entered.closing.store(true, Ordering::Release);
        let keeper = entered.keeper.lock();
        if let Some(keeper) = keeper.unwrap_or_else(PoisonError::into_inner).take() {
            keeper.wake();
        }
        if entered.close() {
            entered.cells.retire_all();
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// An object is gone, and with it what structures pointed to for it.
    pub(crate) fn retire(&self, object: impl Into<Handle>) {
        let object = object.into();
        self.cells.retire(object);
        self.attachments().remove(&object.to_raw());
    }

    fn attachments(&self) -> MutexGuard<'_, HashMap<u64, Box<Attachment>>> {
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
        if self.kept.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let handle = self.handle;
        let keep = move || {
            if let Some(adapter) = Self::itself(handle) {
                with_device!(adapter, opened => opened.keep(&adapter.closing, &adapter.keeper));
            }
        };
        let thread = thread::Builder::new().name("dat".into());
        let started = without_signals(|| thread.spawn(keep));
        started.map(drop).map_err(|_| {
            self.kept.store(false, Ordering::Release);
            Error::insufficient_resources(Subtype::NoSubtype)
        })
    }
}
