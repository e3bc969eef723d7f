//! The port of the device, and its GIDs.

use core::ffi::{c_int, c_uint};

use backend_roce::HostAddress;
use backend_roce::proto::PathMtu;

use crate::c;
use crate::devices;
use crate::layout::*;
use crate::process::{self, Process};

/// The number of the only port.
pub(crate) const PORT: u8 = 1;

/// The key of the only partition.
const PARTITION: u16 = 0xFFFF;

/// Length of a port's attributes for programs of old headers, which lack the last field.
const OLD_LENGTH: usize = 48;

/// Returns the code of the largest path MTU: that of the first GID, which most programs use.
fn largest_mtu(process: &Process) -> c_uint {
    let known = process.addresses.first().map(|one| one.mtu);
    known.unwrap_or(PathMtu::Bytes1024).code().into()
}

fn attributes(context: *mut ibv_context, port: u8) -> Result<ibv_port_attr, c_int> {
    let context = devices::find(context)?;
    if port != PORT {
        return Err(libc::EINVAL);
    }
    let mut attr: ibv_port_attr = c::zeroed();
    attr.state = IBV_PORT_ACTIVE;
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = largest_mtu(context.process);
    let gids = context.process.addresses.len();
    attr.gid_tbl_len = c_int::try_from(gids).unwrap_or(c_int::MAX);
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = 1 << 31;
    attr.pkey_tbl_len = 1;
    // 4 lanes of 25 Gb/s.
    attr.active_width = 2;
    attr.active_speed = 32;
    attr.phys_state = 5;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    Ok(attr)
}

pub(crate) extern "C" fn query_port_whole(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    c::code(attributes(context, port).map(|attr| {
        c::put_part(out, &attr, length);
    }))
}

pub(crate) extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
) -> c_int {
    query_port_whole(context, port, out, OLD_LENGTH)
}

/// Returns the address of a GID, by its index.
fn address(context: *mut ibv_context, port: u32, index: u32) -> Result<HostAddress, c_int> {
    let context = devices::find(context)?;
    let address = context.process.addresses.get(index as usize).copied();
    address.filter(|_| port == PORT.into()).ok_or(libc::EINVAL)
}

fn gid_of(address: &HostAddress) -> ibv_gid {
    ibv_gid {
        raw: process::gid(address.address.ip()),
    }
}

pub(crate) extern "C" fn query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: *mut ibv_gid,
) -> c_int {
    let index = u32::try_from(index).map_err(|_| libc::EINVAL);
    match index.and_then(|index| address(context, port.into(), index)) {
        Ok(address) => {
            c::put(out, gid_of(&address));
            0
        }
        Err(code) => c::fails(code),
    }
}

/// As `sysfs` tells it: type 1 is RoCE version 2.
pub(crate) extern "C" fn query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    out: *mut c_uint,
) -> c_int {
    match address(context, port.into(), index) {
        Ok(_) => {
            c::put(out, 1);
            0
        }
        Err(code) => c::fails(code),
    }
}

fn entry(context: *mut ibv_context, port: u32, index: u32) -> Result<ibv_gid_entry, c_int> {
    let address = address(context, port, index)?;
    let mut entry: ibv_gid_entry = c::zeroed();
    entry.gid = gid_of(&address);
    entry.gid_index = index;
    entry.port_num = port;
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = address.interface;
    Ok(entry)
}

pub(crate) extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    out: *mut ibv_gid_entry,
    flags: u32,
    length: usize,
) -> c_int {
    if flags != 0 {
        return libc::EOPNOTSUPP;
    }
    match entry(context, port, index) {
        Ok(entry) => {
            c::put_part(out, &entry, length);
            0
        }
        // As the kernel says it of an empty place.
        Err(_) => libc::ENODATA,
    }
}

pub(crate) extern "C" fn query_gid_table(
    context: *mut ibv_context,
    out: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    length: usize,
) -> isize {
    if flags != 0 || length < size_of::<ibv_gid_entry>() {
        return -(libc::EOPNOTSUPP as isize);
    }
    let entries = (0..).map_while(|index| entry(context, PORT.into(), index).ok());
    let mut count = 0;
    for entry in entries.take(most) {
        let place = out.wrapping_byte_add(length * count as usize);
        c::put(place, entry);
        count += 1;
    }
    count
}

pub(crate) extern "C" fn query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: *mut u16,
) -> c_int {
    if devices::find(context).is_err() || port != PORT || index != 0 {
        return c::fails(libc::EINVAL);
    }
    c::put(out, PARTITION);
    0
}

pub(crate) extern "C" fn get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    partition: u16,
) -> c_int {
    if devices::find(context).is_err() || port != PORT || partition != PARTITION {
        return c::fails(libc::EINVAL);
    }
    0
}
