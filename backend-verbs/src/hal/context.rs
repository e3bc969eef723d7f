//! Devices and their reported limits.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv6Addr};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use dat_core::backend::BackendError;
use rdma_sys::{
    ibv_atomic_cap, ibv_close_device, ibv_context, ibv_context_ops, ibv_device, ibv_device_attr,
    ibv_device_cap_flags, ibv_free_device_list, ibv_get_device_list, ibv_get_device_name,
    ibv_gid_entry, ibv_open_device, ibv_query_device, ibv_query_port, ibv_transport_type,
};

use super::{cancel, refusal};
use crate::device::lacks_descriptors;

unsafe extern "C" {
    /// Function that `ibv_query_gid_table` of the headers calls.
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        room: usize,
        flags: u32,
        entry_bytes: usize,
    ) -> isize;
}

/// Room for addresses in the first query, and in the second if the first fails.
const ADDRESSES: [usize; 2] = [32, 8192];

/// An open device.
#[derive(Debug)]
pub(crate) struct Context {
    raw: NonNull<ibv_context>,
    /// Set if posts and requests for notifications may make system calls.
    calls_the_system: bool,
}

// SAFETY: libibverbs lets any thread use a context and the objects made from it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Transport of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    InfiniBand,
    Iwarp,
    Other,
}

/// Limits of a device; counts are clipped to the core's types.
#[derive(Clone, Debug)]
pub(crate) struct DeviceLimits {
    pub(crate) firmware: String,
    pub(crate) vendor: u32,
    pub(crate) part: u32,
    pub(crate) hardware: u32,
    pub(crate) transport: Transport,
    pub(crate) ports: u8,
    pub(crate) queue_pairs: i32,
    pub(crate) work_requests: i32,
    pub(crate) segments: i32,
    pub(crate) read_segments: i32,
    pub(crate) completion_queues: i32,
    pub(crate) completions: i32,
    pub(crate) regions: i32,
    pub(crate) region_bytes: u64,
    pub(crate) domains: i32,
    pub(crate) reads_in: i32,
    pub(crate) reads_out: i32,
    pub(crate) reads_in_total: i32,
    pub(crate) windows: i32,
    pub(crate) windows_type_1: bool,
    pub(crate) windows_type_2: bool,
    pub(crate) shared_receive_queues: i32,
    pub(crate) shared_buffers: i32,
    pub(crate) atomics: bool,
}

/// State of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortState {
    pub(crate) active: bool,
    pub(crate) message_bytes: u32,
    /// Packet length, as verbs encodes it.
    pub(crate) packet: u32,
    /// Number of partition keys that queue pairs can have.
    pub(crate) partition_keys: u16,
}

/// List of devices from libibverbs.
struct List {
    first: *mut *mut ibv_device,
    count: usize,
}

impl List {
    /// Obtains the list from the library.
    ///
    /// # Errors
    /// `Descriptors`: no descriptors are left. The library would find no device then. If it has not
    /// loaded its drivers yet, it would never find one later either.
    fn take() -> Result<Self, BackendError> {
        /// Set once the library has looked for its drivers, which it does only once.
        static LOOKED: AtomicBool = AtomicBool::new(false);
        if !LOOKED.load(Ordering::Relaxed) && lacks_descriptors() {
            return Err(BackendError::Descriptors);
        }
        let list = Self::made()?;
        if list.count == 0 && lacks_descriptors() {
            return Err(BackendError::Descriptors);
        }
        // It looks for drivers if there is a device.
        if list.count != 0 {
            LOOKED.store(true, Ordering::Relaxed);
        }
        Ok(list)
    }

    fn made() -> Result<Self, BackendError> {
        let mut count = 0;
        // SAFETY: the call writes `count`, and returns null or a list of that many devices.
        let first = unsafe { ibv_get_device_list(&raw mut count) };
        if first.is_null() {
            return Err(refusal::last());
        }
        Ok(Self {
            first,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    fn devices(&self) -> impl Iterator<Item = (*mut ibv_device, String)> + '_ {
        (0..self.count).filter_map(|index| {
            // SAFETY: the list holds `count` devices, and lives as long as `self`.
            let device = unsafe { *self.first.add(index) };
            // SAFETY: the name of a listed device is a string inside the device.
            let name = unsafe {
                let name = ibv_get_device_name(device);
                (!name.is_null()).then(|| CStr::from_ptr(name))
            };
            Some((device, name?.to_string_lossy().into_owned()))
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: `ibv_get_device_list` returned it; opened devices survive.
        unsafe { ibv_free_device_list(self.first) }
    }
}

/// Returns the names of all devices in the order of libibverbs.
///
/// # Errors
/// `Descriptors`: the list may lack devices because no descriptors are left.
pub(crate) fn device_names() -> Result<Vec<String>, BackendError> {
    let list = List::take()?;
    Ok(list.devices().map(|(_, name)| name).collect())
}

/// A device of the host's list.
pub(crate) struct ListedDevice {
    device: *mut ibv_device,
    /// Keeps the device.
    _list: List,
}

impl ListedDevice {
    /// Finds the device with this name.
    pub(crate) fn find(name: &str) -> Result<Self, BackendError> {
        let list = List::take()?;
        let device = list
            .devices()
            .find_map(|(device, known)| (known == name).then_some(device))
            .ok_or(BackendError::Device)?;
        Ok(Self {
            device,
            _list: list,
        })
    }

    /// Returns a number that tells devices apart while a context of them is open.
    ///
    /// It is the device's address. The library keeps a device that is listed or open at its
    /// address, and lists a device that was replaced under the same name at another one.
    pub(crate) fn identity(&self) -> usize {
        self.device.addr()
    }

    /// Opens the device.
    pub(crate) fn open(&self) -> Result<Context, BackendError> {
        // SAFETY: a device of a list that still lives.
        let raw = unsafe { ibv_open_device(self.device) };
        let mut context = Context {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
            calls_the_system: true,
        };
        context.calls_the_system = cancel::may_call_the_system(context.limits()?.vendor);
        Ok(context)
    }
}

impl Context {
    /// Opens the device with this name.
    pub(crate) fn open(name: &str) -> Result<Self, BackendError> {
        ListedDevice::find(name)?.open()
    }

    pub(super) fn operations(&self) -> &ibv_context_ops {
        // SAFETY: the context lives as long as `self`, and its table never changes.
        unsafe { &(*self.raw()).ops }
    }

    pub(super) fn calls_the_system(&self) -> bool {
        self.calls_the_system
    }

    pub(super) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Returns the limits of the device.
    pub(crate) fn limits(&self) -> Result<DeviceLimits, BackendError> {
        let mut space = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context lives, and the answer has room.
        refusal::check(unsafe { ibv_query_device(self.raw(), space.as_mut_ptr()) })?;
        // SAFETY: all fields are integers, for which zero is valid, and the call filled them in.
        let limits = unsafe { space.assume_init() };
        let firmware: Vec<u8> = limits
            .fw_ver
            .iter()
            .map(|&letter| letter as u8)
            .take_while(|&letter| letter != 0)
            .collect();
        // SAFETY: the device of a context outlives it.
        let transport = match unsafe { (*(*self.raw()).device).transport_type } {
            ibv_transport_type::IBV_TRANSPORT_IB => Transport::InfiniBand,
            ibv_transport_type::IBV_TRANSPORT_IWARP => Transport::Iwarp,
            _ => Transport::Other,
        };
        let has = |flag: ibv_device_cap_flags| limits.device_cap_flags & flag.0 != 0;
        Ok(DeviceLimits {
            firmware: String::from_utf8_lossy(&firmware).into_owned(),
            vendor: limits.vendor_id,
            part: limits.vendor_part_id,
            hardware: limits.hw_ver,
            transport,
            ports: limits.phys_port_cnt,
            queue_pairs: limits.max_qp,
            work_requests: limits.max_qp_wr,
            segments: limits.max_sge,
            read_segments: limits.max_sge_rd,
            completion_queues: limits.max_cq,
            completions: limits.max_cqe,
            regions: limits.max_mr,
            region_bytes: limits.max_mr_size,
            domains: limits.max_pd,
            reads_in: limits.max_qp_rd_atom,
            reads_out: limits.max_qp_init_rd_atom,
            reads_in_total: limits.max_res_rd_atom,
            windows: limits.max_mw,
            windows_type_1: has(ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW),
            windows_type_2: has(ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A)
                || has(ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B),
            shared_receive_queues: limits.max_srq,
            shared_buffers: limits.max_srq_wr,
            atomics: limits.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE,
        })
    }

    /// Returns the state of a port.
    pub(crate) fn port(&self, number: u8) -> Result<PortState, BackendError> {
        // The library fills in the part that the structure's first version had; the rest stays
        // zero.
        let mut space = MaybeUninit::<rdma_sys::ibv_port_attr>::zeroed();
        // SAFETY: the context lives, and the answer has more room than it needs.
        refusal::check(unsafe { ibv_query_port(self.raw(), number, space.as_mut_ptr().cast()) })?;
        // SAFETY: all fields are integers, for which zero is valid.
        let port = unsafe { space.assume_init() };
        Ok(PortState {
            active: port.state == rdma_sys::ibv_port_state::IBV_PORT_ACTIVE,
            message_bytes: port.max_msg_sz,
            packet: port.active_mtu,
            partition_keys: port.pkey_tbl_len,
        })
    }
}

impl Context {
    /// Returns a port's addresses with the indices of their network interfaces; none if unknown.
    ///
    /// On InfiniBand and iWARP they are no addresses of IP.
    pub(crate) fn addresses(&self, port: u8) -> Vec<(u32, IpAddr)> {
        for room in ADDRESSES {
            let mut entries = Vec::<ibv_gid_entry>::with_capacity(room);
            let size = size_of::<ibv_gid_entry>();
            // SAFETY: the context lives, and there is room for `room` entries of this size.
            let count =
                unsafe { _ibv_query_gid_table(self.raw(), entries.as_mut_ptr(), room, 0, size) };
            let Ok(count) = usize::try_from(count) else {
                continue;
            };
            // SAFETY: the library filled in `count` entries, limited here to the room.
            unsafe { entries.set_len(count.min(room)) };
            return entries
                .iter()
                .filter(|entry| entry.port_num == u32::from(port) && entry.ndev_ifindex != 0)
                .map(|entry| {
                    // SAFETY: any bytes are a GID.
                    let bytes = unsafe { entry.gid.raw };
                    let address = Ipv6Addr::from(bytes).to_canonical();
                    (entry.ndev_ifindex, address)
                })
                .collect();
        }
        Vec::new()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by `open`; every object made from it holds the context and is gone.
        unsafe { ibv_close_device(self.raw()) };
    }
}
