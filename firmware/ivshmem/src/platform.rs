//! Platform of the driver: shared memory, the peer's doorbell and its departure.
#![expect(
    unsafe_code,
    reason = "the promises of this machine to the driver are made only in this module"
)]

use core::ptr::with_exposed_provenance;
use core::sync::atomic::AtomicU8;

use backend_mmio::cm::MailboxConnectionManager;
use backend_mmio::defs::mailbox as defs;
use backend_mmio::mailbox::{Mailbox, MailboxBackend, MailboxControl, MailboxRegisters, OtherEnd};
use backend_mmio::mlx5::{MmioBackend, Parts, Storage, WindowSlot};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{DeviceUnit, DeviceWord, DmaMemory, MappedWords, RegisterWords};
use dat_core::backend::BackendError;
use dat_core::sync::NoLock;
use machine::{Barriers, Function};
use static_cell::{ConstStaticCell, StaticCell};

/// Driver of the device that the process provides.
pub(crate) type Backend = MailboxBackend<'static, NoLock, Process, Barriers>;

/// Length of the shared memory in bytes: mailbox, driver memory, consumer memory.
const SHARED: usize = 1 << 20;
const FIRST: usize = 4096;
const MEMORY: usize = 256 << 10;
/// Length of the consumer memory in bytes.
pub(crate) const BYTES: usize = 4096;

/// Numbers of endpoints, event dispatchers and windows.
pub(crate) const PAIRS: usize = 1;
pub(crate) const DISPATCHERS: usize = 8;
const WINDOWS: usize = 2;
const REQUESTS: usize = 256;
/// Allocation units of descriptors and of memory in bytes.
const REQUESTS_GRAIN: usize = 16;
const MEMORY_GRAIN: usize = 256;

static STATE: ConstStaticCell<DeviceState> = ConstStaticCell::new(DeviceState::new());
static QUEUE_PAIRS: ConstStaticCell<[QueuePairSlot; 2 * PAIRS]> =
    ConstStaticCell::new([const { QueuePairSlot::EMPTY }; 2 * PAIRS]);
static COMPLETION_QUEUES: ConstStaticCell<[CompletionQueueSlot; DISPATCHERS]> =
    ConstStaticCell::new([const { CompletionQueueSlot::EMPTY }; DISPATCHERS]);
static SHARED_QUEUES: ConstStaticCell<[SharedReceiveSlot; 1]> =
    ConstStaticCell::new([const { SharedReceiveSlot::EMPTY }; 1]);
static SLOTS: ConstStaticCell<[RequestSlot; REQUESTS]> =
    ConstStaticCell::new([const { RequestSlot::EMPTY }; REQUESTS]);
static WINDOW_SLOTS: ConstStaticCell<[WindowSlot; WINDOWS]> =
    ConstStaticCell::new([const { WindowSlot::EMPTY }; WINDOWS]);
static SLOTS_TAKEN: ConstStaticCell<[bool; REQUESTS / REQUESTS_GRAIN]> =
    ConstStaticCell::new([false; REQUESTS / REQUESTS_GRAIN]);
static MEMORY_TAKEN: ConstStaticCell<[bool; MEMORY / MEMORY_GRAIN]> =
    ConstStaticCell::new([false; MEMORY / MEMORY_GRAIN]);
static MAILBOX: StaticCell<Mailbox<'static, NoLock, Process, Barriers>> = StaticCell::new();

/// Words that the device writes: on the process's doorbell, and when the process leaves.
static MESSAGES: [DeviceWord; 2] = [const { DeviceWord::new() }; 2];
const GONE: usize = 1;

/// Waits until a word is written; the caller then looks for events.
///
/// A process that left keeps every later call from waiting.
pub(crate) fn sleep() {
    while MESSAGES.iter().all(|word| word.load() == 0) {
        core::hint::spin_loop();
    }
    // A store, not an exchange: the device's writes are not atomic with it. A later write of the
    // device ends the next sleep.
    if let Some(rung) = MESSAGES.first() {
        rung.store(0);
    }
}

/// The process at the other end, the first peer of the memory's server.
pub(crate) struct Process {
    registers: MappedWords,
}

/// Doorbell register, the length of the registers, and the peer's number.
const DOORBELL: u32 = 12;
const REGISTERS: u32 = 16;
const FIRST_PEER: u32 = 0;
/// Polls for an answer: more than a minute.
const MOST_POLLS: u32 = u32::MAX;

// SAFETY: the process reaches only the memory of the device. All of it is accessed through words
// and bytes that others may write at any moment, and is used for nothing else.
unsafe impl OtherEnd for Process {
    fn ring(&self) {
        (&self.registers).write(DOORBELL, FIRST_PEER << 16);
    }

    fn is_gone(&self) -> bool {
        MESSAGES.get(GONE).is_none_or(|word| word.load() != 0)
    }

    fn keep_waiting(&self, polls: u32) -> bool {
        core::hint::spin_loop();
        polls < MOST_POLLS
    }

    fn cut_off(&self) {}
}

/// Driver, and the memory that it can register.
pub(crate) type Opened = (Backend, &'static [AtomicU8; BYTES]);

/// Opens the shared memory and the peer's mailbox; `None` if there is no device. Called once.
pub(crate) fn open() -> Option<Result<Opened, BackendError>> {
    let function = Function::find(0x1AF4, 0x1110)?;
    function.enable();
    if !function.send_messages(&MESSAGES.each_ref().map(|word| (word, 1))) {
        return None;
    }
    // SAFETY: the window is longer, and its registers affect no memory.
    let registers = unsafe { function.registers(0, REGISTERS) }?;
    let shared = function.window(2);
    let at = |offset: usize| shared.wrapping_add(offset);
    // SAFETY: the window is `SHARED` bytes long and aligned to its length. Only the mailbox uses
    // the first page.
    let mailbox = unsafe { &*with_exposed_provenance::<[DeviceUnit; defs::UNITS]>(at(0)) };
    // SAFETY: only the driver uses the memory that follows.
    let memory = unsafe {
        let units = with_exposed_provenance::<DeviceUnit>(at(FIRST));
        let units = core::slice::from_raw_parts(units, MEMORY / size_of::<DeviceUnit>());
        // The process maps the memory at the same addresses.
        DmaMemory::new(units, at(FIRST) as u64)
    };
    const { assert!(FIRST + MEMORY + BYTES <= SHARED) };
    // SAFETY: only the consumer uses the memory that follows.
    let bytes = unsafe { &*with_exposed_provenance::<[AtomicU8; BYTES]>(at(FIRST + MEMORY)) };
    // SAFETY: the window stays mapped as long as the machine runs, and its first page is used for
    // nothing else.
    let mailbox = unsafe { Mailbox::new(mailbox, Process { registers }) };
    let mailbox = MAILBOX.init(mailbox);
    Some(driver(mailbox, memory).map(|driver| (driver, bytes)))
}

fn driver(
    mailbox: &'static Mailbox<'static, NoLock, Process, Barriers>,
    memory: DmaMemory<'static>,
) -> Result<Backend, BackendError> {
    let parts = Parts {
        control: MailboxControl::new(mailbox, "ivshmem0")?,
        cm: MailboxConnectionManager::new(mailbox)?,
        registers: MailboxRegisters::new(mailbox),
        hal: Barriers,
        shared_buffers: 0,
        memory,
    };
    let storage = Storage {
        state: STATE.take().lend().0,
        queue_pairs: QUEUE_PAIRS.take(),
        completion_queues: COMPLETION_QUEUES.take(),
        shared_receive_queues: SHARED_QUEUES.take(),
        requests: SLOTS.take(),
        requests_taken: SLOTS_TAKEN.take(),
        windows: WINDOW_SLOTS.take(),
        memory_taken: MEMORY_TAKEN.take(),
    };
    Ok(MmioBackend::new(parts, storage))
}
