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

/// Exports functions of the module under their C names; some share a page of the manual.
macro_rules! functions {
    ($($name:ident $arguments:tt = $call:path $(, as $page:ident)?;)*) => {
        $(functions! { @ $name $arguments $call, $($page,)? $name })*
    };
    (@ $name:ident ($($argument:ident: $type:ty),*) $call:path, $page:ident $(, $own:ident)?) => {
        #[doc = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../manual/", stringify!($page), ".md"))]
        #[expect(unsafe_code, reason = "C programs find the function by its name")]
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name($($argument: $type),*) -> Code {
            use dat_ffi::rsm::*;
            $call($($argument),*)
        }
    };
}

// A thread that is cancelled in a wait, or as a call ends, unwinds through these functions, which
// have nothing to drop.
functions! {
    rsm_get_controller(name: Text, controller: Out<CHandle>) = get_controller;
    rsm_get_controller_attr(controller: CHandle, attributes: Out<ControllerAttributes>) = get_controller_attributes;
    rsm_release_controller(controller: CHandle) = release_controller;
    rsm_get_interconnect_topology(topology: Out<CHandle>) = get_topology;
    rsm_get_segmentid_range(application: Text, base: Out<u32>, length: Out<u32>) = segment_id_range;
    rsm_memseg_export_create(controller: CHandle, segment: Out<CHandle>, memory: Consumer, length: usize, flags: u32) = export_create;
    rsm_memseg_export_destroy(segment: CHandle) = export_destroy;
    rsm_memseg_export_rebind(segment: CHandle, memory: Consumer, offset: i64, length: usize) = export_rebind;
    rsm_memseg_export_publish(segment: CHandle, id: Out<u32>, list: List<AccessEntry>, length: u32) = export_publish;
    rsm_memseg_export_unpublish(segment: CHandle) = export_unpublish;
    rsm_memseg_export_republish(segment: CHandle, list: List<AccessEntry>, length: u32) = export_republish;
    rsm_memseg_import_connect(controller: CHandle, node: u32, segment: u32, permission: u32, import: Out<CHandle>) = import_connect;
    rsm_memseg_import_disconnect(import: CHandle) = import_disconnect;
    rsm_memseg_import_map(import: CHandle, address: Out<u64>, attribute: u32, permission: u32, offset: i64, length: usize) = import_map;
    rsm_memseg_import_unmap(import: CHandle) = import_unmap;
    rsm_memseg_import_get8(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u8>;
    rsm_memseg_import_get16(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u16>, as rsm_memseg_import_get8;
    rsm_memseg_import_get32(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u32>, as rsm_memseg_import_get8;
    rsm_memseg_import_get64(import: CHandle, offset: i64, items: Consumer, count: u64) = get_items::<u64>, as rsm_memseg_import_get8;
    rsm_memseg_import_get(import: CHandle, offset: i64, memory: Consumer, length: usize) = get;
    rsm_memseg_import_put8(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u8>;
    rsm_memseg_import_put16(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u16>, as rsm_memseg_import_put8;
    rsm_memseg_import_put32(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u32>, as rsm_memseg_import_put8;
    rsm_memseg_import_put64(import: CHandle, offset: i64, items: Consumer, count: u64) = put_items::<u64>, as rsm_memseg_import_put8;
    rsm_memseg_import_put(import: CHandle, offset: i64, memory: Consumer, length: usize) = put;
    rsm_memseg_import_getv(vector: Out<ScatterGather>) = getv;
    rsm_memseg_import_putv(vector: Out<ScatterGather>) = putv;
    rsm_create_localmemory_handle(controller: CHandle, local: Out<CHandle>, memory: Consumer, length: usize) = create_local_memory;
    rsm_free_localmemory_handle(controller: CHandle, local: CHandle) = free_local_memory;
    rsm_memseg_import_init_barrier(import: CHandle, kind: u32, barrier: Out<BarrierStorage>) = init_barrier;
    rsm_memseg_import_open_barrier(barrier: Out<BarrierStorage>) = open_barrier;
    rsm_memseg_import_order_barrier(barrier: Out<BarrierStorage>) = order_barrier;
    rsm_memseg_import_close_barrier(barrier: Out<BarrierStorage>) = close_barrier;
    rsm_memseg_import_destroy_barrier(barrier: Out<BarrierStorage>) = destroy_barrier;
    rsm_memseg_import_get_mode(import: CHandle, mode: Out<u32>) = get_mode;
    rsm_memseg_import_set_mode(import: CHandle, mode: u32) = set_mode;
    rsm_intr_signal_post(segment: CHandle, flags: u32) = signal_post;
    rsm_memseg_get_pollfd(segment: CHandle, entry: Out<PollEntry>) = get_pollfd;
    rsm_memseg_release_pollfd(segment: CHandle) = release_pollfd;
    rsm_intr_signal_wait(segment: CHandle, timeout: i32) = signal_wait;
    rsm_intr_signal_wait_pollfd(entries: Out<PollEntry>, count: u64, timeout: i32, ready: Out<i32>) = wait_pollfd;
}

#[doc = include_str!("../manual/rsm_free_interconnect_topology.md")]
#[expect(unsafe_code, reason = "C programs find the function by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn rsm_free_interconnect_topology(topology: Consumer) {
    dat_ffi::rsm::free_topology(topology);
}
