//! Files of `/sys` about a device; those about `dat0` are answered here.

use core::ffi::c_int;
use std::fs;

use nix::errno::Errno;
use nix::net::if_::if_indextoname;

use crate::adapter::{Adapter, adapter};
use crate::boundary::{Room, Text};
use crate::device::NAME;
use crate::errors::{Result, minus, of_system, require};

pub(crate) const extern "C" fn ibv_get_sysfs_path() -> Text {
    Text::of(c"/sys")
}

/// Returns groups of four digits, as files of `/sys` have a GUID.
fn groups(bytes: &[u8]) -> String {
    let groups = bytes.chunks(2);
    let groups: Vec<String> = groups
        .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join(":")
}

/// Returns the content of a file about the device; `None` if there is no such file.
fn file(adapter: &Adapter, name: &str) -> Option<String> {
    let interfaces = &adapter.interfaces;
    let gid = |index: &str| interfaces.gids.get(index.parse::<usize>().ok()?);
    Some(match name {
        "node_type" => "1: CA".into(),
        "node_guid" | "sys_image_guid" => groups(&interfaces.guid),
        "node_desc" => NAME.into(),
        "fw_ver" => env!("CARGO_PKG_VERSION").into(),
        "hca_type" | "board_id" => "dat".into(),
        _ => match name.strip_prefix("ports/1/")? {
            "state" if interfaces.gids.is_empty() => "1: DOWN".into(),
            "state" => "4: ACTIVE".into(),
            "phys_state" if interfaces.gids.is_empty() => "3: Disabled".into(),
            "phys_state" => "5: LinkUp".into(),
            "link_layer" => "Ethernet".into(),
            "lid" | "sm_lid" => "0x0".into(),
            "lid_mask_count" | "sm_sl" => "0".into(),
            "rate" => "10 Gb/sec (4X)".into(),
            "pkeys/0" => "0xffff".into(),
            rest => {
                if let Some(index) = rest.strip_prefix("gids/") {
                    groups(&gid(index)?.bytes())
                } else if let Some(index) = rest.strip_prefix("gid_attrs/types/") {
                    gid(index).map(|_| "RoCE v2".into())?
                } else {
                    let index = rest.strip_prefix("gid_attrs/ndevs/")?;
                    let name = if_indextoname(gid(index)?.interface).ok()?;
                    name.to_string_lossy().into_owned()
                }
            }
        },
    })
}

fn read(folder: &str, name: &str) -> Result<String> {
    let folder = folder.trim_end_matches('/');
    if folder == format!("/sys/class/infiniband/{NAME}") {
        return file(&*adapter()?, name).ok_or(Errno::ENOENT);
    }
    if folder == "/sys/class/infiniband_verbs/uverbs0" {
        return match name {
            "ibdev" => Ok(NAME.into()),
            "abi_version" => Ok("1".into()),
            _ => Err(Errno::ENOENT),
        };
    }
    fs::read_to_string(format!("{folder}/{name}")).map_err(of_system)
}

/// Reads a file without the end of its last line; returns the number of bytes.
pub(crate) extern "C" fn ibv_read_sysfs_file(
    folder: Text,
    name: Text,
    to: Room,
    size: usize,
) -> c_int {
    minus(|| {
        let text = |text: &Text| Some(text.get()?.to_str().ok()?.to_owned());
        let (folder, name) = (text(&folder), text(&name));
        let content = read(&folder.ok_or(Errno::EINVAL)?, &name.ok_or(Errno::EINVAL)?)?;
        let line = content.strip_suffix('\n').unwrap_or(&content).as_bytes();
        require(line.len() < size, Errno::ENAMETOOLONG)?;
        to.set_bytes(line);
        to.behind(line.len()).set_bytes(b"\0");
        Ok(c_int::try_from(line.len()).unwrap_or(c_int::MAX))
    })
}
