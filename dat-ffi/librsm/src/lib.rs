//! Remote shared memory for C: the functions of `<rsmapi.h>`.
//!
//! All code is in `dat-ffi`. The files of its folder `manual` document each function, and the
//! manual pages are made of them too. `docs/c-libraries.md` is for users.

use dat_ffi::rsm::{
    AccessEntry, BarrierStorage, CHandle, Code, Consumer, ControllerAttributes, List, Out,
    PollEntry, ScatterGather, Text,
};

/// Carries calls to their end if the heap is exhausted.
#[global_allocator]
static HEAP: dat_ffi::Heap = dat_ffi::Heap;

/// Exports functions of the module under their C names.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) = $call:expr;)*) => {$(
        $(#[$doc])*
        #[expect(unsafe_code, reason = "C programs find the function by its name")]
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name($($argument: $type),*) -> Code {
            use dat_ffi::rsm::*;
            $call
        }
    )*};
}

// A thread that is cancelled in a wait, or as a call ends, unwinds through these functions, which
// have nothing to drop.
functions! {
    #[doc = include_str!("../manual/rsm_get_controller.md")]
    rsm_get_controller(name: Text, controller: Out<CHandle>) = get_controller(name, controller);
    #[doc = include_str!("../manual/rsm_get_controller_attr.md")]
    rsm_get_controller_attr(controller: CHandle, attributes: Out<ControllerAttributes>) = get_controller_attributes(controller, attributes);
    #[doc = include_str!("../manual/rsm_release_controller.md")]
    rsm_release_controller(controller: CHandle) = release_controller(controller);
    #[doc = include_str!("../manual/rsm_get_interconnect_topology.md")]
    rsm_get_interconnect_topology(topology: Out<CHandle>) = get_topology(topology);
    #[doc = include_str!("../manual/rsm_get_segmentid_range.md")]
    rsm_get_segmentid_range(application: Text, base: Out<u32>, length: Out<u32>) = segment_id_range(application, base, length);
    #[doc = include_str!("../manual/rsm_memseg_export_create.md")]
    rsm_memseg_export_create(controller: CHandle, segment: Out<CHandle>, memory: Consumer, length: usize, flags: u32) = export_create(controller, segment, memory, length, flags);
    #[doc = include_str!("../manual/rsm_memseg_export_destroy.md")]
    rsm_memseg_export_destroy(segment: CHandle) = export_destroy(segment);
    #[doc = include_str!("../manual/rsm_memseg_export_rebind.md")]
    rsm_memseg_export_rebind(segment: CHandle, memory: Consumer, offset: i64, length: usize) = export_rebind(segment, memory, offset, length);
    #[doc = include_str!("../manual/rsm_memseg_export_publish.md")]
    rsm_memseg_export_publish(segment: CHandle, id: Out<u32>, list: List<AccessEntry>, length: u32) = export_publish(segment, id, list, length);
    #[doc = include_str!("../manual/rsm_memseg_export_unpublish.md")]
    rsm_memseg_export_unpublish(segment: CHandle) = export_unpublish(segment);
    #[doc = include_str!("../manual/rsm_memseg_export_republish.md")]
    rsm_memseg_export_republish(segment: CHandle, list: List<AccessEntry>, length: u32) = export_republish(segment, list, length);
    #[doc = include_str!("../manual/rsm_memseg_import_connect.md")]
    rsm_memseg_import_connect(controller: CHandle, node: u32, segment: u32, permission: u32, import: Out<CHandle>) = import_connect(controller, node, segment, permission, import);
    #[doc = include_str!("../manual/rsm_memseg_import_disconnect.md")]
    rsm_memseg_import_disconnect(import: CHandle) = import_disconnect(import);
    #[doc = include_str!("../manual/rsm_memseg_import_map.md")]
    rsm_memseg_import_map(import: CHandle, address: Out<u64>, attribute: u32, permission: u32, offset: i64, length: usize) = import_map(import, address, attribute, permission, offset, length);
    #[doc = include_str!("../manual/rsm_memseg_import_unmap.md")]
    rsm_memseg_import_unmap(import: CHandle) = import_unmap(import);
    #[doc = include_str!("../manual/rsm_memseg_import_get8.md")]
    rsm_memseg_import_get8(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u8>(import, offset, items, count);
    #[doc = include_str!("../manual/rsm_memseg_import_get8.md")]
    rsm_memseg_import_get16(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u16>(import, offset, items, count);
    #[doc = include_str!("../manual/rsm_memseg_import_get8.md")]
    rsm_memseg_import_get32(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u32>(import, offset, items, count);
    #[doc = include_str!("../manual/rsm_memseg_import_get8.md")]
    rsm_memseg_import_get64(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u64>(import, offset, items, count);
    #[doc = include_str!("../manual/rsm_memseg_import_get.md")]
    rsm_memseg_import_get(import: CHandle, offset: i64, memory: Consumer, length: usize) = get(import, offset, memory, length);
    #[doc = include_str!("../manual/rsm_memseg_import_put8.md")]
    rsm_memseg_import_put8(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u8>(import, offset, items, count);
    #[doc = include_str!("../manual/rsm_memseg_import_put8.md")]
    rsm_memseg_import_put16(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u16>(import, offset, items, count);
    #[doc = include_str!("../manual/rsm_memseg_import_put8.md")]
    rsm_memseg_import_put32(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u32>(import, offset, items, count);
    #[doc = include_str!("../manual/rsm_memseg_import_put8.md")]
    rsm_memseg_import_put64(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u64>(import, offset, items, count);
    #[doc = include_str!("../manual/rsm_memseg_import_put.md")]
    rsm_memseg_import_put(import: CHandle, offset: i64, memory: Consumer, length: usize) = put(import, offset, memory, length);
    #[doc = include_str!("../manual/rsm_memseg_import_getv.md")]
    rsm_memseg_import_getv(vector: Out<ScatterGather>) = getv(vector);
    #[doc = include_str!("../manual/rsm_memseg_import_putv.md")]
    rsm_memseg_import_putv(vector: Out<ScatterGather>) = putv(vector);
    #[doc = include_str!("../manual/rsm_create_localmemory_handle.md")]
    rsm_create_localmemory_handle(controller: CHandle, local: Out<CHandle>, memory: Consumer, length: usize) = create_local_memory(controller, local, memory, length);
    #[doc = include_str!("../manual/rsm_free_localmemory_handle.md")]
    rsm_free_localmemory_handle(controller: CHandle, local: CHandle) = free_local_memory(controller, local);
    #[doc = include_str!("../manual/rsm_memseg_import_init_barrier.md")]
    rsm_memseg_import_init_barrier(import: CHandle, kind: u32, barrier: Out<BarrierStorage>) = init_barrier(import, kind, barrier);
    #[doc = include_str!("../manual/rsm_memseg_import_open_barrier.md")]
    rsm_memseg_import_open_barrier(barrier: Out<BarrierStorage>) = open_barrier(barrier);
    #[doc = include_str!("../manual/rsm_memseg_import_order_barrier.md")]
    rsm_memseg_import_order_barrier(barrier: Out<BarrierStorage>) = order_barrier(barrier);
    #[doc = include_str!("../manual/rsm_memseg_import_close_barrier.md")]
    rsm_memseg_import_close_barrier(barrier: Out<BarrierStorage>) = close_barrier(barrier);
    #[doc = include_str!("../manual/rsm_memseg_import_destroy_barrier.md")]
    rsm_memseg_import_destroy_barrier(barrier: Out<BarrierStorage>) = destroy_barrier(barrier);
    #[doc = include_str!("../manual/rsm_memseg_import_get_mode.md")]
    rsm_memseg_import_get_mode(import: CHandle, mode: Out<u32>) = get_mode(import, mode);
    #[doc = include_str!("../manual/rsm_memseg_import_set_mode.md")]
    rsm_memseg_import_set_mode(import: CHandle, mode: u32) = set_mode(import, mode);
    #[doc = include_str!("../manual/rsm_intr_signal_post.md")]
    rsm_intr_signal_post(segment: CHandle, flags: u32) = signal_post(segment, flags);
    #[doc = include_str!("../manual/rsm_memseg_get_pollfd.md")]
    rsm_memseg_get_pollfd(segment: CHandle, entry: Out<PollEntry>) = get_pollfd(segment, entry);
    #[doc = include_str!("../manual/rsm_memseg_release_pollfd.md")]
    rsm_memseg_release_pollfd(segment: CHandle) = release_pollfd(segment);
    #[doc = include_str!("../manual/rsm_intr_signal_wait.md")]
    rsm_intr_signal_wait(segment: CHandle, timeout: i32) = signal_wait(segment, timeout);
    #[doc = include_str!("../manual/rsm_intr_signal_wait_pollfd.md")]
    rsm_intr_signal_wait_pollfd(entries: Out<PollEntry>, count: u64, timeout: i32, ready: Out<i32>) = wait_pollfd(entries, count, timeout, ready);
}

#[doc = include_str!("../manual/rsm_free_interconnect_topology.md")]
#[expect(unsafe_code, reason = "C programs find the function by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn rsm_free_interconnect_topology(topology: Consumer) {
    dat_ffi::rsm::free_topology(topology);
}
