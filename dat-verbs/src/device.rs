//! The device `dat0`.

use core::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::adapter::adapter;
use crate::boundary::layout::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use crate::boundary::{Handle, Kind, Out, Text, free_list, list_of, zeroed};

/// Name of the device.
pub(crate) const NAME: &str = "dat0";
/// Name of its file for programs.
const FILE: &str = "uverbs0";

/// The device.
pub(crate) struct Device;

impl Kind for Device {
    type C = ibv_device;
}

impl Handle<Device> {
    /// Returns true for the device, also of a program that has it from before a `fork`.
    pub(crate) fn is_ours(self) -> bool {
        self == device()
    }
}

/// Writes a text to an array, which has room for it.
pub(crate) fn write(array: &mut [c_char], text: &str) {
    for (place, byte) in array.iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
}

/// Returns the device of this process.
pub(crate) fn device() -> Handle<Device> {
    static DEVICE: OnceLock<Handle<Device>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let mut c: ibv_device = zeroed();
        c.node_type = IBV_NODE_CA;
        c.transport_type = IBV_TRANSPORT_IB;
        write(&mut c.name, NAME);
        write(&mut c.dev_name, FILE);
        write(&mut c.dev_path, "/sys/class/infiniband_verbs/uverbs0");
        write(&mut c.ibdev_path, "/sys/class/infiniband/dat0");
        Handle::new(c, Device)
    })
}

pub(crate) extern "C" fn ibv_get_device_list(count: Out<c_int>) -> *mut *mut ibv_device {
    count.set(1);
    list_of(&[device().pointer()])
}

pub(crate) extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    free_list(list);
}

/// Returns the name in the structure, which may be a program's own, as in its tests.
pub(crate) extern "C" fn ibv_get_device_name(device: Handle<Device>) -> Text {
    if device.is_null() {
        return Text::NONE;
    }
    let c: *const ibv_device = device.pointer();
    Text::at(
        c.wrapping_byte_add(core::mem::offset_of!(ibv_device, name))
            .cast(),
    )
}

/// Returns the GUID in network order; 0 if the device cannot be opened.
pub(crate) extern "C" fn ibv_get_device_guid(device: Handle<Device>) -> u64 {
    match (device.is_ours(), adapter()) {
        (true, Ok(adapter)) => u64::from_ne_bytes(adapter.interfaces.guid),
        _ => 0,
    }
}

pub(crate) extern "C" fn ibv_get_device_index(device: Handle<Device>) -> c_int {
    match device.is_ours() {
        true => 0,
        false => -1,
    }
}
