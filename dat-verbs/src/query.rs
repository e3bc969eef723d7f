//! Queries of the device, its port and its tables.

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
use crate::context::Context;
use crate::device::write;
use crate::errors::{Result, code, done, require};
use crate::gids::Gid;

/// The port of the device.
pub(crate) const PORT: u8 = 1;
/// The partition key, of the table's only entry: that of the default partition, in any byte order.
pub(crate) const PARTITION: u16 = 0xFFFF;
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
/// Bytes of `ibv_port_attr` in programs of older headers.
const OLD_PORT_ATTRIBUTES: usize = 48;

/// Returns the attributes of the device.
fn device_attributes(adapter: &Adapter) -> ibv_device_attr {
    let limits = adapter.device.attributes();
    let guid = u64::from_ne_bytes(adapter.interfaces.guid);
    let mut a: ibv_device_attr = zeroed();
    write(&mut a.fw_ver, env!("CARGO_PKG_VERSION"));
    a.node_guid = guid;
    a.sys_image_guid = guid;
    a.max_mr_size = isize::MAX as u64;
    a.page_size_cap = PAGES;
    a.vendor_id = NO_VENDOR;
    a.max_qp = limits.max_eps;
    a.max_qp_wr = limits.max_dto_per_ep;
    // Extensions: what programs have of them; memory is registered fast by none outside a kernel.
    a.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_RC_RNR_NAK_GEN
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_MEM_MGT_EXTENSIONS
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    a.max_sge = limits.max_iov_segments_per_dto;
    a.max_sge_rd = limits.max_iov_segments_per_dto;
    a.max_cq = limits.max_evds;
    a.max_cqe = limits.max_evd_qlen;
    a.max_mr = limits.max_lmrs;
    a.max_mw = limits.max_rmrs;
    a.max_pd = limits.max_pzs;
    a.max_qp_rd_atom = limits.max_rdma_read_per_ep_in;
    a.max_qp_init_rd_atom = limits.max_rdma_read_per_ep_out;
    a.max_res_rd_atom = limits.max_rdma_read_in;
    a.atomic_cap = IBV_ATOMIC_HCA;
    a.max_srq = limits.max_srqs;
    a.max_srq_wr = limits.max_recv_per_srq;
    a.max_srq_sge = limits.max_iov_segments_per_dto;
    // As many as there is memory for.
    a.max_ah = i32::MAX;
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
    a.max_msg_sz = adapter.device.attributes().max_message_size as u32;
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
    Ok(&context.get()?.adapter)
}

/// Returns an adapter of a context, whose port is named.
fn port_of(context: &Handle<Context>, port: u32) -> Result<&Adapter> {
    require(port == PORT.into(), Errno::EINVAL)?;
    adapter_of(context)
}

pub(crate) extern "C" fn ibv_query_device(
    context: Handle<Context>,
    attributes: Out<ibv_device_attr>,
) -> c_int {
    code(|| attributes.put(device_attributes(adapter_of(&context)?)))
}

/// `query_device_ex` of a context; the program may know fewer attributes.
pub(crate) extern "C" fn query_device(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attributes: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let input: In<u32> = In::at(input.cast());
    code(|| {
        let is_known = input.get().unwrap_or(0) == 0 && size >= size_of::<ibv_device_attr>();
        require(is_known, Errno::EINVAL)?;
        let context = Handle::at(context);
        let mut a: ibv_device_attr_ex = zeroed();
        a.orig_attr = device_attributes(adapter_of(&context)?);
        a.phys_port_cnt_ex = PORT.into();
        Room::at(attributes).put(a, size)
    })
}

/// `query_port` of a context; the program may know fewer attributes.
pub(crate) extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    code(|| {
        let context = Handle::at(context);
        let a = port_attributes(port_of(&context, port.into())?);
        Room::at(attributes).put(a, size)
    })
}

pub(crate) extern "C" fn ibv_query_port(
    context: Handle<Context>,
    port: u8,
    attributes: Room,
) -> c_int {
    code(|| {
        let a = port_attributes(port_of(&context, port.into())?);
        attributes.put(a, OLD_PORT_ATTRIBUTES)
    })
}

pub(crate) extern "C" fn ibv_query_gid(
    context: Handle<Context>,
    port: u8,
    index: c_int,
    gid: Out<[u8; 16]>,
) -> c_int {
    done(|| {
        let adapter = port_of(&context, port.into())?;
        gid.put(gid_at(adapter, index)?.bytes())
    })
}

/// Returns an entry of the GID table.
fn gid_at(adapter: &Adapter, index: impl TryInto<usize>) -> Result<Gid> {
    let index = index.try_into().map_err(|_| Errno::EINVAL)?;
    let found = adapter.interfaces.gids.get(index);
    found.copied().ok_or(Errno::EINVAL)
}

fn entry(index: u32, gid: Gid) -> ibv_gid_entry {
    let mut entry: ibv_gid_entry = zeroed();
    entry.gid.raw = gid.bytes();
    entry.gid_index = index;
    entry.port_num = PORT.into();
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = gid.interface;
    entry
}

pub(crate) extern "C" fn _ibv_query_gid_ex(
    context: Handle<Context>,
    port: u32,
    index: u32,
    to: Room,
    flags: u32,
    size: usize,
) -> c_int {
    code(|| {
        let adapter = port_of(&context, port)?;
        require(flags == 0, Errno::EOPNOTSUPP)?;
        to.put(entry(index, gid_at(adapter, index)?), size)
    })
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
        require(flags == 0, Errno::EOPNOTSUPP)?;
        require(most >= length, Errno::EINVAL)?;
        for (index, gid) in (0_u32..).zip(&adapter.interfaces.gids) {
            to.behind(index as usize * size)
                .put(entry(index, *gid), size)?;
        }
        Ok(length.cast_signed())
    };
    entries().unwrap_or_else(|error: Errno| -(error as i32 as isize))
}

/// Returns the kind of a GID, by the numbers of the system's files: 1 for RoCE v2.
pub(crate) fn gid_type(context: Handle<Context>, port: u8, index: c_uint) -> Result<c_int> {
    const ROCE_V2: c_int = 1;
    gid_at(port_of(&context, port.into())?, index)?;
    Ok(ROCE_V2)
}

pub(crate) extern "C" fn ibv_query_pkey(
    context: Handle<Context>,
    port: u8,
    index: c_int,
    key: Out<u16>,
) -> c_int {
    done(|| {
        port_of(&context, port.into())?;
        require(index == 0, Errno::EINVAL)?;
        key.put(PARTITION)
    })
}

/// Returns the index of a partition key: 0 for the only one.
pub(crate) extern "C" fn ibv_get_pkey_index(context: Handle<Context>, port: u8, key: u16) -> c_int {
    done(|| {
        port_of(&context, port.into())?;
        require(key == PARTITION, Errno::EINVAL)
    })
}
