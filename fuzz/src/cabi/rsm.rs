//! Calls of the C library for RSM, on the controller of the own node.

use std::mem::size_of;

use dat_ffi::rsm::*;
use dat_rsm::RsmError;

use super::source::{Argument, LISTED, MEMORY, REGISTERED, Source, of_bytes};
use super::{CALLS, CallList, play};

/// The node number of a process without a configured one.
const NODE: u32 = 1;
const PAGE: usize = 4096;
/// The exclusive bound of the offset at which the caller's memory begins.
const BEGINS: usize = REGISTERED / 2;
/// The entries of a vector's memory: one more than the limit.
const ENTRIES: usize = 17;
/// `RSM_HANDLE_TYPE`.
const BY_HANDLE: i32 = 1;
/// `RSM_PERM_RDWR`.
const READ_AND_WRITE: u32 = 0o600;
/// `RSM_BARRIER_MODE_EXPLICIT`.
const EXPLICIT: u32 = 0;
/// More calls than a run gets a controller.
const OFTEN: usize = 2 * CALLS;

impl Argument for Consumer {
    /// Makes memory with at least half of the block after its start.
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let address = match source.byte() {
            0xFF => 0,
            page @ 0..0x80 => memory() + usize::from(page) * PAGE % BEGINS,
            odd => memory() + usize::from(odd),
        };
        of_bytes(address)
    }
}

fn memory() -> usize {
    MEMORY.0.get() as usize
}

impl Argument for usize {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        (source.number() as Self).min(BEGINS)
    }
}

impl Argument for i64 {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        source.number() as Self
    }
}

impl Argument for List<AccessEntry> {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let block = source.block(LISTED, 8);
        for at in 0..2 {
            let entry = [node(source), source.number() as u32];
            if !block.is_null() {
                // SAFETY: inside the block.
                unsafe { block.cast::<[u32; 2]>().add(at).write(entry) };
            }
        }
        of_bytes(block)
    }
}

fn node(source: &mut Source<'_>) -> u32 {
    [NODE, 0, 2, u32::MAX][usize::from(source.byte() % 4)]
}

/// The number of a segment, which the caller may leave open.
struct Wanted(Out<u32>);

impl Argument for Wanted {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let block = source.block(size_of::<u32>(), 4);
        let number = source.number() as u32;
        if !block.is_null() {
            // SAFETY: there is room for it.
            unsafe { block.cast::<u32>().write(number) };
        }
        Self(of_bytes(block))
    }
}

/// A scatter or gather vector with its entries.
struct Vector(Out<ScatterGather>);

impl Argument for Vector {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let entries = source.block(ENTRIES * size_of::<IoVector>(), 8);
        let given = usize::from(source.byte() % 4);
        if !entries.is_null() {
            for at in 0..given {
                let kind = i32::from(source.byte() % 4);
                let (local, offset) = match kind {
                    BY_HANDLE => (source.handle(), source.number()),
                    _ => {
                        let local: Consumer = Argument::make(source, "memory");
                        (of_bytes(local), source.number() % PAGE as u64)
                    }
                };
                let words: [u64; 5] = [
                    kind as u64,
                    local as u64,
                    offset,
                    source.number(),
                    source.number().min(BEGINS as u64 - PAGE as u64),
                ];
                assert_eq!(size_of_val(&words), size_of::<IoVector>());
                // SAFETY: there is room for more entries.
                unsafe { entries.cast::<[u64; 5]>().add(at).write(words) };
            }
        }
        let vector = source.block(size_of::<ScatterGather>(), 8);
        if !vector.is_null() {
            let node = node(source);
            let count = match source.byte() {
                0..0xF0 => given as u64,
                _ => source.number(),
            };
            let words: [u64; 6] = [
                node.into(),
                count,
                0,
                source.number(),
                source.handle() as u64,
                entries as u64,
            ];
            assert_eq!(size_of_val(&words), size_of::<ScatterGather>());
            // SAFETY: there is room for the vector.
            unsafe { vector.cast::<[u64; 6]>().write(words) };
        }
        Self(of_bytes(vector))
    }
}

/// A barrier, as the library left it or with other content.
struct Barrier(Out<BarrierStorage>);

impl Argument for Barrier {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let block = source.block(size_of::<BarrierStorage>(), 8);
        let words = [source.handle(), source.number() as usize, source.handle()];
        if !block.is_null() {
            // SAFETY: there is room for it.
            unsafe { block.cast::<[usize; 3]>().write(words) };
        }
        Self(of_bytes(block))
    }
}

/// Descriptors to wait for.
struct Polled(Out<PollEntry>);

impl Argument for Polled {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        Self(of_bytes(source.filled(LISTED, 8, 3)))
    }
}

/// The longest wait of a call, in milliseconds.
struct Timeout(i32);

impl Argument for Timeout {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        Self(i32::from(source.byte() % 2))
    }
}

macro_rules! table {
    ($($name:ident($($argument:ident: $type:ty),*) = $call:expr;)*) => {
        /// The calls, and their names.
        const TABLE: &CallList<Code> = &[
            $((stringify!($name), |source| {
                $(let $argument = <$type as Argument>::make(source, stringify!($argument));)*
                $call
            }),)*
        ];
    };
}

table! {
    rsm_get_controller(name: Text, controller: Out<CHandle>) = get_controller(name, controller);
    rsm_get_controller_attr(controller: CHandle, attributes: Out<ControllerAttributes>) = get_controller_attributes(controller, attributes);
    rsm_release_controller(controller: CHandle) = release_controller(controller);
    rsm_get_interconnect_topology(topology: Out<CHandle>) = get_topology(topology);
    rsm_free_interconnect_topology(topology: CHandle) = { free_topology(of_bytes(topology)); 0 };
    rsm_get_segmentid_range(application: Text, base: Out<u32>, length: Out<u32>) = segment_id_range(application, base, length);
    rsm_memseg_export_create(controller: CHandle, segment: Out<CHandle>, memory: Consumer, length: usize, flags: u32) = export_create(controller, segment, memory, length, flags);
    rsm_memseg_export_destroy(segment: CHandle) = export_destroy(segment);
    rsm_memseg_export_rebind(segment: CHandle, memory: Consumer, offset: i64, length: usize) = export_rebind(segment, memory, offset, length);
    rsm_memseg_export_publish(segment: CHandle, id: Wanted, list: List<AccessEntry>, length: u32) = export_publish(segment, id.0, list, length);
    rsm_memseg_export_unpublish(segment: CHandle) = export_unpublish(segment);
    rsm_memseg_export_republish(segment: CHandle, list: List<AccessEntry>, length: u32) = export_republish(segment, list, length);
    rsm_memseg_import_connect(controller: CHandle, node: u32, id: u32, permission: u32, import: Out<CHandle>) = import_connect(controller, node, id, permission, import);
    rsm_memseg_import_disconnect(import: CHandle) = import_disconnect(import);
    rsm_memseg_import_map(import: CHandle, address: Out<u64>, attribute: u32, permission: u32, offset: i64, length: usize) = import_map(import, address, attribute, permission, offset, length);
    rsm_memseg_import_unmap(import: CHandle) = import_unmap(import);
    rsm_memseg_import_get8(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u8>(import, offset, items, count);
    rsm_memseg_import_get16(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u16>(import, offset, items, count);
    rsm_memseg_import_get32(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u32>(import, offset, items, count);
    rsm_memseg_import_get64(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u64>(import, offset, items, count);
    rsm_memseg_import_get(import: CHandle, offset: i64, memory: Consumer, length: usize) = get(import, offset, memory, length);
    rsm_memseg_import_put8(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u8>(import, offset, items, count);
    rsm_memseg_import_put16(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u16>(import, offset, items, count);
    rsm_memseg_import_put32(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u32>(import, offset, items, count);
    rsm_memseg_import_put64(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u64>(import, offset, items, count);
    rsm_memseg_import_put(import: CHandle, offset: i64, memory: Consumer, length: usize) = put(import, offset, memory, length);
    rsm_memseg_import_getv(vector: Vector) = getv(vector.0);
    rsm_memseg_import_putv(vector: Vector) = putv(vector.0);
    rsm_create_localmemory_handle(controller: CHandle, local: Out<CHandle>, memory: Consumer, length: usize) = create_local_memory(controller, local, memory, length);
    rsm_free_localmemory_handle(controller: CHandle, local: CHandle) = free_local_memory(controller, local);
    rsm_memseg_import_init_barrier(import: CHandle, kind: u32, barrier: Barrier) = init_barrier(import, kind, barrier.0);
    rsm_memseg_import_open_barrier(barrier: Barrier) = open_barrier(barrier.0);
    rsm_memseg_import_order_barrier(barrier: Barrier) = order_barrier(barrier.0);
    rsm_memseg_import_close_barrier(barrier: Barrier) = close_barrier(barrier.0);
    rsm_memseg_import_destroy_barrier(barrier: Barrier) = destroy_barrier(barrier.0);
    rsm_memseg_import_get_mode(import: CHandle, mode: Out<u32>) = get_mode(import, mode);
    rsm_memseg_import_set_mode(import: CHandle, mode: u32) = set_mode(import, mode);
    rsm_intr_signal_post(segment: CHandle, flags: u32) = signal_post(segment, flags);
    rsm_intr_signal_wait(segment: CHandle, timeout: Timeout) = signal_wait(segment, timeout.0);
    rsm_intr_signal_wait_pollfd(entries: Polled, count: u64, timeout: Timeout, ready: Out<i32>) = wait_pollfd(entries.0, count, timeout.0, ready);
    rsm_memseg_get_pollfd(segment: CHandle, entry: Out<PollEntry>) = get_pollfd(segment, entry);
    rsm_memseg_release_pollfd(segment: CHandle) = release_pollfd(segment);
}

/// Returns the names of the calls, in the order of their numbers in inputs.
#[must_use]
pub fn names() -> Vec<&'static str> {
    TABLE.iter().map(|(name, _)| *name).collect()
}

fn get_loopback() -> CHandle {
    let mut controller = 0_usize;
    let name: Text = of_bytes(c"loopback".as_ptr());
    assert_eq!(get_controller(name, of_bytes(&raw mut controller)), 0);
    of_bytes(controller)
}

/// Uses a segment from its creation to its end, which must succeed after any calls.
fn use_well() {
    let controller = get_loopback();
    let (mut segment, mut import, mut id) = (0_usize, 0_usize, 0_u32);
    let all = of_bytes::<Consumer, _>(memory());
    let made = export_create(controller, of_bytes(&raw mut segment), all, PAGE, 0);
    assert_eq!(made, 0, "a segment");
    let entry = [NODE, READ_AND_WRITE];
    let list: List<AccessEntry> = of_bytes(entry.as_ptr());
    let published = export_publish(of_bytes(segment), of_bytes(&raw mut id), list, 1);
    assert_eq!(published, 0, "published");
    let pointer = of_bytes(&raw mut import);
    let connected = import_connect(controller, NODE, id, READ_AND_WRITE, pointer);
    assert_eq!(connected, 0, "connected");
    // Without barriers.
    assert_eq!(set_mode(of_bytes(import), EXPLICIT), 0);
    let (sent, mut back) = (*b"whatever", [0_u8; 8]);
    assert_eq!(put(of_bytes(import), 8, of_bytes(sent.as_ptr()), 8), 0);
    assert_eq!(get(of_bytes(import), 8, of_bytes(back.as_mut_ptr()), 8), 0);
    assert_eq!(sent, back);
    assert_eq!(import_disconnect(of_bytes(import)), 0);
    assert_eq!(export_destroy(of_bytes(segment)), 0);
    assert_eq!(release_controller(controller), 0);
}

/// Runs an input: the number of each call, and the source of its arguments.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    let mut source = Source::new(b"loopback\0");
    source.handles.push(of_bytes(get_loopback()));
    play(input, &mut source, TABLE, |name, code| {
        assert!(
            code == 0
                || RsmError::from_code(code).is_some_and(|error| error != RsmError::InternalError),
            "{name} returned {code}"
        );
    });
    // A controller is freed after as many releases as it was got; the last frees its objects.
    for handle in &source.handles {
        free_topology(of_bytes(*handle));
        for _ in 0..OFTEN {
            if release_controller(of_bytes(*handle)) != 0 {
                break;
            }
        }
    }
    for handle in &source.handles {
        let handle: CHandle = of_bytes(*handle);
        let mut mode = 0_u32;
        let meant = [
            get_controller_attributes(handle, of_bytes(0_usize))
                != RsmError::BadControllerHandle.code(),
            release_pollfd(handle) == 0,
            export_unpublish(handle) == 0,
            export_destroy(handle) == 0,
            get_mode(handle, of_bytes(&raw mut mode)) == 0,
            import_disconnect(handle) == 0,
        ];
        assert_eq!(meant, [false; 6], "a handle means something");
    }
    use_well();
}
