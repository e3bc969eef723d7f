//! What a device tells of itself, its port and its tables.

use core::ffi::{c_int, c_uint};

use backend_roce::proto::PathMtu;
use nix::errno::Errno;

use crate::adapter::Adapter;
use crate::boundary::layout::{
    IBV_ATOMIC_HCA, IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_DEVICE_RC_RNR_NAK_GEN, IBV_DEVICE_SRQ_RESIZE,
    IBV_DEVICE_SYS_IMAGE_GUID, IBV_GID_TYPE_ROCE_V2, IBV_PORT_ACTIVE, IBV_PORT_CM_SUP,
    IBV_PORT_DOWN, IBV_PORT_IP_BASED_GIDS, ibv_context, ibv_device_attr, ibv_device_attr_ex,
    ibv_gid_entry, ibv_port_attr, ibv_query_device_ex_input,
};
use crate::boundary::{Handle, In, Out, Room, zeroed};
use crate::context::{Context, of_structure};
use crate::errors::{Result, code, count, done, minus};

/// The port of the device.
pub(crate) const PORT: u8 = 1;
/// The partition key, of the table's only entry: that of the default partition.
const PARTITION: u16 = 0xFFFF;
/// Sizes of pages: 4 KiB and up.
const PAGES: u64 = !0xFFF;
/// A vendor without a number.
const NO_VENDOR: u32 = 0xFF_FFFF;
/// Code of the time in which the device acknowledges: 134 ms, of a process that others may delay.
const ACKNOWLEDGES: u8 = 15;
/// `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;
/// `IBV_QPF_GRH_REQUIRED`: every address has a GID.
const NEEDS_GID: u8 = 1;
/// States of the physical port.
const LINK_UP: u8 = 5;
const DISABLED: u8 = 3;
/// Four lanes of 2.5 Gb/s: about what one process carries.
const WIDTH: u8 = 2;
const SPEED: u8 = 1;
/// Bytes of a message or transfer.
const LARGEST_MESSAGE: u32 = 1 << 31;
/// Bytes of `ibv_port_attr` in programs of older headers.
const OLD_PORT_ATTRIBUTES: usize = 48;

/// Returns the attributes of the device.
fn device_attributes(adapter: &Adapter) -> ibv_device_attr {
    let limits = adapter.device.limits();
    let guid = u64::from_ne_bytes(adapter.interfaces.guid);
    let mut a: ibv_device_attr = zeroed();
    for (place, byte) in a.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *place = byte as _;
    }
    a.node_guid = guid;
    a.sys_image_guid = guid;
    a.max_mr_size = isize::MAX as u64;
    a.page_size_cap = PAGES;
    a.vendor_id = NO_VENDOR;
    a.max_qp = count(limits.pairs);
    a.max_qp_wr = count(limits.work_requests);
    // Extensions: what programs have of them; memory is registered fast by none outside a kernel.
    a.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_RC_RNR_NAK_GEN
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_MEM_MGT_EXTENSIONS
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    a.max_sge = count(limits.segments);
    a.max_sge_rd = count(limits.segments);
    a.max_cq = count(limits.queues);
    a.max_cqe = count(limits.completions);
    a.max_mr = count(limits.regions);
    a.max_mw = count(limits.regions);
    a.max_pd = count(limits.domains);
    a.max_qp_rd_atom = count(limits.reads);
    a.max_qp_init_rd_atom = count(limits.reads);
    a.max_res_rd_atom = count(limits.reads.saturating_mul(limits.pairs));
    a.atomic_cap = IBV_ATOMIC_HCA;
    a.max_srq = count(limits.shared_queues);
    a.max_srq_wr = count(limits.shared_receives);
    a.max_srq_sge = count(limits.segments);
    a.max_pkeys = 1;
    a.local_ca_ack_delay = ACKNOWLEDGES;
    a.phys_port_cnt = PORT;
    a
}

/// Returns the attributes of the port.
fn port_attributes(adapter: &Adapter) -> ibv_port_attr {
    let mut a: ibv_port_attr = zeroed();
    let is_up = !adapter.interfaces.gids.is_empty();
    a.state = if is_up {
        IBV_PORT_ACTIVE
    } else {
        IBV_PORT_DOWN
    };
    a.max_mtu = PathMtu::Bytes4096.code().into();
    a.active_mtu = adapter.interfaces.mtu.code().into();
    a.gid_tbl_len = c_int::try_from(adapter.interfaces.gids.len()).unwrap_or(c_int::MAX);
    a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    a.max_msg_sz = LARGEST_MESSAGE;
    a.pkey_tbl_len = 1;
    a.max_vl_num = 1;
    a.active_width = WIDTH;
    a.active_speed = SPEED;
    a.phys_state = if is_up { LINK_UP } else { DISABLED };
    a.link_layer = ETHERNET;
    a.flags = NEEDS_GID;
    a
}

fn adapter_of(context: &Handle<Context>) -> Result<&Adapter> {
    Ok(&context.get().ok_or(Errno::EINVAL)?.adapter)
}

/// Returns an adapter of a context, whose port is named.
fn port_of(context: &Handle<Context>, port: u32) -> Result<&Adapter> {
    let adapter = adapter_of(context)?;
    let is_there = port == PORT.into();
    is_there.then_some(adapter).ok_or(Errno::EINVAL)
}

pub(crate) extern "C" fn ibv_query_device(
    context: Handle<Context>,
    attributes: Out<ibv_device_attr>,
) -> c_int {
    code(adapter_of(&context).and_then(|adapter| attributes.put(device_attributes(adapter))))
}

/// `query_device_ex` of a context; the program may know fewer attributes.
pub(crate) extern "C" fn query_device(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attributes: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let input: In<u32> = In::at(input.cast());
    code((|| {
        if input.get().is_some_and(|mask| mask != 0) || size < size_of::<ibv_device_attr>() {
            return Err(Errno::EINVAL);
        }
        let context = of_structure(context);
        let mut a: ibv_device_attr_ex = zeroed();
        a.orig_attr = device_attributes(adapter_of(&context)?);
        a.phys_port_cnt_ex = PORT.into();
        Room::at(attributes).put(a, size)
    })())
}

/// `query_port` of a context; the program may know fewer attributes.
pub(crate) extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    code((|| {
        let context = of_structure(context);
        let a = port_attributes(port_of(&context, port.into())?);
        Room::at(attributes).put(a, size)
    })())
}

pub(crate) extern "C" fn ibv_query_port(
    context: Handle<Context>,
    port: u8,
    attributes: Room,
) -> c_int {
    code((|| {
        let a = port_attributes(port_of(&context, port.into())?);
        attributes.put(a, OLD_PORT_ATTRIBUTES)
    })())
}

pub(crate) extern "C" fn ibv_query_gid(
    context: Handle<Context>,
    port: u8,
    index: c_int,
    gid: Out<[u8; 16]>,
) -> c_int {
    done((|| {
        let adapter = port_of(&context, port.into())?;
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        let found = adapter.interfaces.gids.get(index).ok_or(Errno::EINVAL)?;
        gid.put(found.bytes())
    })())
}

fn entry(adapter: &Adapter, index: usize) -> Option<ibv_gid_entry> {
    let gid = adapter.interfaces.gids.get(index)?;
    let mut entry: ibv_gid_entry = zeroed();
    entry.gid.raw = gid.bytes();
    entry.gid_index = u32::try_from(index).ok()?;
    entry.port_num = PORT.into();
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = gid.interface;
    Some(entry)
}

pub(crate) extern "C" fn _ibv_query_gid_ex(
    context: Handle<Context>,
    port: u32,
    index: u32,
    to: Room,
    flags: u32,
    size: usize,
) -> c_int {
    code((|| {
        let adapter = port_of(&context, port)?;
        if flags != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let found = usize::try_from(index).ok();
        let found = found.and_then(|index| entry(adapter, index));
        to.put(found.ok_or(Errno::EINVAL)?, size)
    })())
}

/// Returns the number of entries, or an error as a negative number.
pub(crate) extern "C" fn _ibv_query_gid_table(
    context: Handle<Context>,
    to: Room,
    most: usize,
    flags: u32,
    size: usize,
) -> isize {
    let entries = || {
        let adapter = adapter_of(&context)?;
        let length = adapter.interfaces.gids.len();
        if flags != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if most < length {
            return Err(Errno::EINVAL);
        }
        for index in 0..length {
            if let Some(entry) = entry(adapter, index) {
                to.behind(index * size).put(entry, size)?;
            }
        }
        Ok(length.cast_signed())
    };
    entries().unwrap_or_else(|error: Errno| -(error as i32 as isize))
}

/// Returns the kind of a GID, by the numbers of the system's files: 1 for RoCE v2.
pub(crate) fn gid_type(context: Handle<Context>, port: u8, index: c_uint) -> Result<c_int> {
    const ROCE_V2: c_int = 1;
    let adapter = port_of(&context, port.into())?;
    let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
    let found = adapter.interfaces.gids.get(index);
    found.map(|_| ROCE_V2).ok_or(Errno::EINVAL)
}

pub(crate) extern "C" fn ibv_query_pkey(
    context: Handle<Context>,
    port: u8,
    index: c_int,
    key: Out<u16>,
) -> c_int {
    done(port_of(&context, port.into()).and_then(|_| match index {
        0 => key.put(PARTITION.to_be()),
        _ => Err(Errno::EINVAL),
    }))
}

/// Returns the index of a partition key.
pub(crate) extern "C" fn ibv_get_pkey_index(context: Handle<Context>, port: u8, key: u16) -> c_int {
    minus(port_of(&context, port.into()).and_then(|_| {
        let is_ours = key == PARTITION.to_be();
        is_ours.then_some(0).ok_or(Errno::EINVAL)
    }))
}
