//! Queries of the device.

use core::ffi::{c_char, c_int};

use nix::errno::Errno;

use super::{Opened, refusal};
use crate::boundary::layout::{
    IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_PORT_ACTIVE, ibv_context, ibv_device, ibv_device_attr,
    ibv_device_attr_ex, ibv_gid_entry, ibv_port_attr,
};
use crate::boundary::{Handle, Out, Room, Text, zeroed};
use crate::device::{
    ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index, ibv_get_device_list,
    ibv_get_device_name,
};
use crate::opening::{ibv_close_device, ibv_open_device};
use crate::query::{
    _ibv_query_gid_ex, _ibv_query_gid_table, gid_type, ibv_get_pkey_index, ibv_query_device,
    ibv_query_gid, ibv_query_pkey, ibv_query_port, query_device, query_port,
};
use crate::sysfs::ibv_read_sysfs_file;

#[test]
fn there_is_one_device() {
    let mut count: c_int = 0;
    let list = ibv_get_device_list(Out::at(&raw mut count));
    assert_eq!(count, 1);
    ibv_free_device_list(list);
    let device = crate::device::device();
    let name = ibv_get_device_name(device);
    assert_eq!(name.get(), Some(c"dat0"));
    assert_ne!(ibv_get_device_guid(device), 0);
    assert_eq!(ibv_get_device_index(device), 0);
    assert!(ibv_get_device_name(Handle::NULL).get().is_none());
    let mut other: ibv_device = zeroed();
    other.name[0] = b'x' as c_char;
    let other = ibv_get_device_name(Handle::at(&raw mut other));
    assert_eq!(other.get(), Some(c"x"), "a structure of the program");
    assert!(ibv_open_device(Handle::NULL).is_null());
    assert_eq!(Errno::last(), Errno::ENODEV);
    assert_eq!(refusal(ibv_close_device(Handle::NULL)), Errno::EINVAL);
}

#[test]
fn attributes_are_those_of_the_adapter() {
    let context = Opened::new();
    let mut old: ibv_device_attr = zeroed();
    assert_eq!(ibv_query_device(context.0, Out::at(&raw mut old)), 0);
    assert!(old.max_cqe >= 1 << 16 && old.max_mr > 0 && old.phys_port_cnt == 1);
    // Programs send with invalidation only then.
    assert_ne!(old.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS, 0);
    let mut whole: ibv_device_attr_ex = zeroed();
    let structure: *mut ibv_context = context.0.pointer();
    let size = size_of::<ibv_device_attr_ex>();
    let asked = query_device(structure, core::ptr::null(), &raw mut whole, size);
    assert_eq!((asked, whole.phys_port_cnt_ex), (0, 1));
    assert_eq!(whole.orig_attr.max_cqe, old.max_cqe);
    let short = query_device(structure, core::ptr::null(), &raw mut whole, 8);
    assert_eq!(short, libc::EINVAL);
    let null: Out<ibv_device_attr> = Out::at(core::ptr::null_mut());
    assert_eq!(ibv_query_device(context.0, null), libc::EINVAL);
    assert_eq!(
        ibv_query_device(Handle::NULL, Out::at(&raw mut old)),
        libc::EINVAL
    );
}

#[test]
fn a_port_fills_as_much_as_a_program_knows() {
    let context = Opened::new();
    let mut port: ibv_port_attr = zeroed();
    port.port_cap_flags2 = 7;
    assert_eq!(ibv_query_port(context.0, 1, Room::at(&raw mut port)), 0);
    assert_eq!(
        (port.state, port.port_cap_flags2),
        (IBV_PORT_ACTIVE, 7),
        "a program of an older header has no room for the last field"
    );
    let structure: *mut ibv_context = context.0.pointer();
    let size = size_of::<ibv_port_attr>();
    assert_eq!(query_port(structure, 1, &raw mut port, size), 0);
    assert_eq!((port.port_cap_flags2, port.link_layer), (0, 2));
    assert!(port.gid_tbl_len > 0 && (1..=5).contains(&port.active_mtu));
    for other in [0, 2] {
        let refused = ibv_query_port(context.0, other, Room::at(&raw mut port));
        assert_eq!(refused, libc::EINVAL, "port {other}");
    }
}

#[test]
fn the_table_of_gids_is_the_same_by_all_calls() {
    let context = Opened::new();
    let mut port: ibv_port_attr = zeroed();
    ibv_query_port(context.0, 1, Room::at(&raw mut port));
    let count = usize::try_from(port.gid_tbl_len).expect("a count");
    let mut table = vec![zeroed::<ibv_gid_entry>(); count];
    let size = size_of::<ibv_gid_entry>();
    let room = || Room::at(core::ptr::null_mut::<u8>());
    assert_eq!(_ibv_query_gid_table(context.0, room(), 0, 0, size), -22);
    let to = Room::at(table.as_mut_ptr());
    let taken = _ibv_query_gid_table(context.0, to, count, 0, size);
    assert_eq!(taken, count.cast_signed());
    for (index, entry) in (0..).zip(&table) {
        let mut gid = [0; 16];
        assert_eq!(ibv_query_gid(context.0, 1, index, Out::at(&raw mut gid)), 0);
        assert_ne!(gid, [0; 16]);
        let mut one: ibv_gid_entry = zeroed();
        let to = Room::at(&raw mut one);
        let index = index.cast_unsigned();
        assert_eq!(_ibv_query_gid_ex(context.0, 1, index, to, 0, size), 0);
        assert_eq!((one.gid_index, one.gid_type), (index, 2));
        assert_eq!(one.ndev_ifindex, entry.ndev_ifindex);
        assert_eq!(gid_type(context.0, 1, index), Ok(1));
    }
    let mut gid = [0; 16];
    for index in [-1, port.gid_tbl_len] {
        let refused = ibv_query_gid(context.0, 1, index, Out::at(&raw mut gid));
        assert_eq!(refusal(refused), Errno::EINVAL);
    }
    let mut one: ibv_gid_entry = zeroed();
    let to = Room::at(&raw mut one);
    assert_eq!(
        _ibv_query_gid_ex(context.0, 1, 0, to, 1, size),
        libc::EOPNOTSUPP,
        "no flag is known"
    );
}

#[test]
fn there_is_the_default_partition() {
    let context = Opened::new();
    let mut key = 0_u16;
    assert_eq!(ibv_query_pkey(context.0, 1, 0, Out::at(&raw mut key)), 0);
    assert_eq!(ibv_get_pkey_index(context.0, 1, key), 0);
    assert_eq!(refusal(ibv_get_pkey_index(context.0, 1, 7)), Errno::EINVAL);
    let other = ibv_query_pkey(context.0, 1, 1, Out::at(&raw mut key));
    assert_eq!(refusal(other), Errno::EINVAL);
}

#[test]
fn files_of_the_device_and_of_the_system_are_read() {
    let _context = Opened::new();
    let read = |folder, name, size: usize| {
        let mut bytes = [0xFF_u8; 64];
        let to = Room::at(bytes.as_mut_ptr());
        let length = ibv_read_sysfs_file(Text::of(folder), Text::of(name), to, size);
        let length = usize::try_from(length).map_err(|_| Errno::last())?;
        assert_eq!(bytes.get(length), Some(&0));
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    };
    let device = c"/sys/class/infiniband/dat0";
    assert_eq!(read(device, c"node_type", 64).as_deref(), Ok("1: CA"));
    assert_eq!(
        read(device, c"ports/1/gid_attrs/types/0", 64).as_deref(),
        Ok("RoCE v2")
    );
    let gid = read(device, c"ports/1/gids/0", 64).expect("a GID");
    assert_eq!((gid.len(), gid.matches(':').count()), (39, 7));
    assert_eq!(read(device, c"ports/1/gids/999", 64), Err(Errno::ENOENT));
    assert_eq!(read(device, c"node_type", 5), Err(Errno::ENAMETOOLONG));
    let ibdev = read(c"/sys/class/infiniband_verbs/uverbs0", c"ibdev", 64);
    assert_eq!(ibdev.as_deref(), Ok("dat0"));
    let mtu = read(c"/sys/class/net/lo", c"mtu", 64);
    assert_eq!(mtu.as_deref(), Ok("65536"), "without the end of the line");
    assert_eq!(read(c"/sys", c"none", 64), Err(Errno::ENOENT));
}
