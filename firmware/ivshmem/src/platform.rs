//! What the driver asks of a platform: the memory that is shared, and how the other end is told to look and is found to be gone.
#![expect(
    unsafe_code,
    reason = "the promises of this machine to the driver; a room of its own"
)]

use core::ptr::with_exposed_provenance;
use core::sync::atomic::AtomicU8;

use backend_mmio::mailbox::{
    Mailbox, MailboxBackend, MailboxControl, MailboxRegisters, MailboxSideband, OtherEnd, defs,
};
use backend_mmio::mlx5::{
    CompletionQueueSlot, MmioBackend, Parts, QueuePairSlot, RequestSlot, SharedReceiveSlot, State,
    Storage, WindowSlot,
};
use backend_mmio::{DeviceUnit, DeviceWord, DmaMemory, MappedWords, RegisterWords};
use dat_core::backend::BackendError;
use dat_core::sync::NoLock;
use machine::{Barriers, Function};
use static_cell::{ConstStaticCell, StaticCell};

/// The driver of the device that the process is.
pub(crate) type Backend = MailboxBackend<'static, NoLock, Process, Barriers>;

/// Bytes of the memory that is shared: the mailbox, what the driver shares with the device, and what consumers may register.
const SHARED: usize = 1 << 20;
const FIRST: usize = 4096;
const MEMORY: usize = 256 << 10;
/// Bytes for the consumer.
pub(crate) const BYTES: usize = 4096;

/// Endpoints, event dispatchers, windows.
pub(crate) const PAIRS: usize = 1;
pub(crate) const DISPATCHERS: usize = 8;
const WINDOWS: usize = 2;
const REQUESTS: usize = 256;
/// What is given out together, of descriptors and in bytes.
const REQUESTS_GRAIN: usize = 16;
const MEMORY_GRAIN: usize = 256;

static STATE: ConstStaticCell<State> = ConstStaticCell::new(State::new());
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

/// What the device writes into when somebody at the other end rings: the process, and whoever sees it go.
static MESSAGES: [DeviceWord; 2] = [const { DeviceWord::new() }; 2];
const GONE: usize = 1;

/// Waits until somebody rings; what they ring for is to be looked for afterwards. Somebody who is gone rings for ever.
pub(crate) fn sleep() {
    while MESSAGES.iter().all(|word| word.load() == 0) {
        core::hint::spin_loop();
    }
    // Stored, not exchanged: the device takes no part in that. What it writes from here on ends the next sleep.
    if let Some(rung) = MESSAGES.first() {
        rung.store(0);
    }
}

/// The process at the other end. The server of the memory knows it as its first peer.
pub(crate) struct Process {
    registers: MappedWords,
}

/// The doorbell, and the registers up to it; a peer by its number, and an interrupt of it.
const DOORBELL: u32 = 12;
const REGISTERS: u32 = 16;
const FIRST_PEER: u32 = 0;
/// Looks for an answer: more than a minute.
const LOOKS: u32 = u32::MAX;

// SAFETY: the process reaches the memory of the device alone. All of it is behind words and bytes that are made to be written by others at
// any moment, and none is ever used for anything else.
unsafe impl OtherEnd for Process {
    fn ring(&self) {
        (&self.registers).write(DOORBELL, FIRST_PEER << 16);
    }

    fn is_gone(&self) -> bool {
        MESSAGES.get(GONE).is_none_or(|word| word.load() != 0)
    }

    fn awaits(&self, looks: u32) -> bool {
        core::hint::spin_loop();
        looks < LOOKS
    }

    fn cut_off(&self) {}
}

/// The driver, and memory that it can register.
pub(crate) type Opened = (Backend, &'static [AtomicU8; BYTES]);

/// Finds the shared memory, and who is at the other end; `None` if there is none. Once.
pub(crate) fn open() -> Option<Result<Opened, BackendError>> {
    let function = Function::find(0x1AF4, 0x1110)?;
    function.enable();
    if !function.send_messages(&MESSAGES.each_ref().map(|word| (word, 1))) {
        return None;
    }
    // SAFETY: the window is longer, and its registers reach no memory.
    let registers = unsafe { function.registers(0, REGISTERS) }?;
    let shared = function.window(2);
    let at = |offset: usize| shared.wrapping_add(offset);
    // SAFETY: the window is `SHARED` bytes long and at a multiple of that. Its first page is the mailbox's alone.
    let mailbox = unsafe { &*with_exposed_provenance::<[DeviceUnit; defs::UNITS]>(at(0)) };
    // SAFETY: what follows is the driver's alone.
    let memory = unsafe {
        let units = with_exposed_provenance::<DeviceUnit>(at(FIRST));
        let units = core::slice::from_raw_parts(units, MEMORY / size_of::<DeviceUnit>());
        // The process has the memory at the same addresses.
        DmaMemory::new(units, at(FIRST) as u64)
    };
    const { assert!(FIRST + MEMORY + BYTES <= SHARED) };
    // SAFETY: and what follows is the consumer's.
    let bytes = unsafe { &*with_exposed_provenance::<[AtomicU8; BYTES]>(at(FIRST + MEMORY)) };
    // SAFETY: the window stays mapped for as long as this machine runs, and its first page is used for nothing else.
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
        sideband: MailboxSideband::new(mailbox)?,
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
