//! The structures of `<rsmapi.h>` as C has them on 64-bit machines.
//!
//! The layouts follow the tables of the project's specification of the binary interface. A test
//! compares them with the layouts that a C compiler makes of the header.

use super::{Consumer, Plain};
use crate::handles::CHandle;

const _: () = assert!(size_of::<CHandle>() == 8, "handles take 64 bits");

macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        // SAFETY: made of numbers and addresses only.
        unsafe impl Plain for $type {}
    )*};
}

plain! { ScatterGather, IoVector, AccessEntry, BarrierStorage, ControllerAttributes, libc::pollfd }

/// `rsm_scat_gath_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ScatterGather {
    pub(crate) local_node: u32,
    pub(crate) request_count: u64,
    pub(crate) residual_count: u64,
    pub(crate) flags: u32,
    pub(crate) remote_handle: CHandle,
    pub(crate) vector: super::List<IoVector>,
}

/// `rsm_iovec_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IoVector {
    pub(crate) kind: i32,
    /// A handle or an address.
    pub(crate) local: Consumer,
    pub(crate) local_offset: usize,
    pub(crate) remote_offset: usize,
    pub(crate) length: usize,
}

/// `rsmapi_access_entry_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AccessEntry {
    pub(crate) node: u32,
    pub(crate) permission: u32,
}

/// `rsmapi_barrier_t`: storage of the caller with contents of this library.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BarrierStorage {
    pub(crate) segment: CHandle,
    pub(crate) mark: u16,
    pub(crate) barrier: CHandle,
}

/// `rsmapi_controller_attr_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ControllerAttributes {
    pub(crate) direct_access_sizes: u32,
    pub(crate) atomic_sizes: u32,
    pub(crate) page_size: usize,
    pub(crate) max_export_segment_size: usize,
    pub(crate) tot_export_segment_size: usize,
    pub(crate) max_export_segments: u64,
    pub(crate) max_import_map_size: usize,
    pub(crate) tot_import_map_size: usize,
    pub(crate) max_import_segments: u64,
}

/// Bytes of a controller's name.
pub(crate) const NAME_BYTES: usize = 256;

/// `rsm_topology_hdr_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TopologyHeader {
    pub(crate) local_node: u32,
    pub(crate) controllers: u32,
}

/// `rsm_connections_hdr_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ConnectionsHeader {
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) address: u64,
    pub(crate) remotes: i32,
}

/// `rsm_remote_cntlr_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RemoteController {
    pub(crate) node: u32,
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) address: u64,
    pub(crate) state: u32,
}
