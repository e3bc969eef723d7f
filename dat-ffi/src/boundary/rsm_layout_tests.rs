//! Layouts and values of `<rsmapi.h>` in Rust, compared with those of a C compiler.

use std::mem::{align_of, offset_of, size_of};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use dat_rsm::{
    BarrierMode, ConnectionState, ExportFlags, Permission, RsmError, SignalFlags, VectorFlags,
};

use super::rsm_layout::*;
use crate::handles::CHandle;

/// A C expression and Rust's value for it.
struct Same(String, u64);

macro_rules! layouts {
    ($list:ident: $($rust:ident = $c:ident { $($field:ident = $c_field:ident),* })*) => {$(
        let c = stringify!($c);
        $list.push(Same(format!("sizeof({c})"), size_of::<$rust>() as u64));
        $list.push(Same(format!("offsetof(struct {{ char first; {c} second; }}, second)"), align_of::<$rust>() as u64));
        $(
            let field = stringify!($c_field);
            $list.push(Same(format!("offsetof({c}, {field})"), offset_of!($rust, $field) as u64));
        )*
    )*};
}

/// Names of the errors, in the order of their numbers.
const ERRORS: &[&str] = &[
    "BAD_LIBRARY_VERSION",
    "BAD_TOPOLOGY_PTR",
    "BAD_CTLR_HNDL",
    "CTLR_NOT_PRESENT",
    "BAD_SEG_HNDL",
    "SEG_ALREADY_PUBLISHED",
    "SEG_NOT_PUBLISHED",
    "SEG_NOT_PUBLISHED_TO_NODE",
    "SEG_ALREADY_MAPPED",
    "SEG_STILL_MAPPED",
    "SEG_NOT_MAPPED",
    "NOT_CREATOR",
    "BAD_BARRIER_PTR",
    "BAD_SGIO",
    "BAD_LOCALMEM_HNDL",
    "BAD_ADDR",
    "BAD_MEM_ALIGNMENT",
    "BAD_OFFSET",
    "MISALIGNED_OFFSET",
    "BAD_LENGTH",
    "BAD_ACL",
    "BAD_SEGID",
    "RESERVED_SEGID",
    "SEGID_IN_USE",
    "BAD_MODE",
    "BAD_PERMS",
    "PERM_DENIED",
    "LOCKS_NOT_SUPPORTED",
    "LOCKS_NOT_ENABLED",
    "REBIND_NOT_ALLOWED",
    "INSUFFICIENT_RESOURCES",
    "INSUFFICIENT_MEM",
    "MAP_FAILED",
    "POLLFD_IN_USE",
    "BARRIER_UNINITIALIZED",
    "BARRIER_OPEN_FAILED",
    "BARRIER_NOT_OPENED",
    "BARRIER_FAILURE",
    "REMOTE_NODE_UNREACHABLE",
    "CONN_ABORTED",
    "INTERRUPTED",
    "TIMEOUT",
    "BAD_APPID",
    "BAD_CONF",
    "SEG_NOT_CONNECTED",
    "INTERNAL_ERROR",
    "BAD_ARGS_ERRORS",
];

/// Lists all numbers that both sides have, those of the specification first.
fn all() -> Vec<Same> {
    let mut list = Vec::new();
    for (c, size) in [
        ("rsm_scat_gath_t", 48),
        ("rsm_iovec_t", 40),
        ("rsmapi_access_entry_t", 8),
        ("rsmapi_barrier_t", 24),
        ("rsm_barrier_t", 32),
        ("rsmapi_controller_attr_t", 64),
        ("rsm_topology_hdr_t", 8),
        ("rsm_connections_hdr_t", 272),
        ("rsm_remote_cntlr_t", 280),
        ("rsm_connections_t", 552),
        ("rsm_topology_t", 16),
        ("rsm_addr_t", 8),
        ("rsm_access_size_t", 4),
        ("rsm_barrier_type_t", 4),
        ("rsm_barrier_mode_t", 4),
        ("rsm_attribute_t", 4),
        ("off_t", 8),
        ("nfds_t", 8),
        ("struct pollfd", size_of::<libc::pollfd>() as u64),
    ] {
        list.push(Same(format!("sizeof({c})"), size));
    }
    layouts! { list:
        ScatterGather = rsm_scat_gath_t { local_node = local_nodeid, request_count = io_request_count, residual_count = io_residual_count, flags = flags, remote_handle = remote_handle, vector = iovec }
        IoVector = rsm_iovec_t { kind = io_type, local = local, local_offset = local_offset, remote_offset = remote_offset, remote_offset = import_segment_offset, length = transfer_length }
        AccessEntry = rsmapi_access_entry_t { node = ae_node, permission = ae_permission }
        BarrierStorage = rsmapi_barrier_t { segment = seg, mark = gnum, barrier = privdata }
        ControllerAttributes = rsmapi_controller_attr_t { direct_access_sizes = attr_direct_access_sizes, atomic_sizes = attr_atomic_sizes, page_size = attr_page_size, max_export_segment_size = attr_max_export_segment_size, tot_export_segment_size = attr_tot_export_segment_size, max_export_segments = attr_max_export_segments, max_import_map_size = attr_max_import_map_size, tot_import_map_size = attr_tot_import_map_size, max_import_segments = attr_max_import_segments }
        TopologyHeader = rsm_topology_hdr_t { local_node = local_nodeid, controllers = local_cntlr_count }
        ConnectionsHeader = rsm_connections_hdr_t { name = cntlr_name, address = local_hwaddr, remotes = remote_cntlr_count }
        RemoteController = rsm_remote_cntlr_t { node = remote_nodeid, name = remote_cntlrname, address = remote_hwaddr, state = connection_state }
        CHandle = rsmapi_controller_handle_t {}
        CHandle = rsm_memseg_export_handle_t {}
        CHandle = rsm_memseg_import_handle_t {}
        CHandle = rsm_localmemory_handle_t {}
    }
    list.push(Same(
        "offsetof(rsm_connections_t, remote_cntlr)".into(),
        size_of::<ConnectionsHeader>() as u64,
    ));
    list.push(Same(
        "offsetof(rsm_topology_t, connections)".into(),
        size_of::<TopologyHeader>() as u64,
    ));
    assert_eq!(ERRORS.len(), RsmError::ALL.len());
    for (name, error) in ERRORS.iter().zip(RsmError::ALL) {
        list.push(Same(format!("RSMERR_{name}"), error.code() as u64));
    }
    for (c, value) in [
        ("RSM_SUCCESS", 0),
        ("RSM_PERM_NONE", Permission::empty().bits()),
        ("RSM_PERM_READ", Permission::READ.bits()),
        ("RSM_PERM_WRITE", Permission::WRITE.bits()),
        ("RSM_PERM_RDWR", Permission::all().bits()),
        ("RSM_DAS8", 1),
        ("RSM_DAS16", 2),
        ("RSM_DAS32", 4),
        ("RSM_DAS64", 8),
        ("RSM_ALLOW_REBIND", ExportFlags::ALLOW_REBIND.bits()),
        ("RSM_CREATE_SEG_DONTWAIT", ExportFlags::DONT_WAIT.bits()),
        ("RSM_LOCK_OPS", ExportFlags::LOCK_OPERATIONS.bits()),
        ("RSM_HANDLE_TYPE", 1),
        ("RSM_VA_TYPE", 2),
        ("HANDLE", 1),
        ("VA_IMMEDIATE", 2),
        ("RSM_IMPLICIT_SIGPOST", VectorFlags::IMPLICIT_SIGPOST.bits()),
        (
            "RSM_SIGPOST_NO_ACCUMULATE",
            VectorFlags::SIGPOST_NO_ACCUMULATE.bits(),
        ),
        (
            "RSM_SIGPOST_NO_ACCUMULATE",
            SignalFlags::NO_ACCUMULATE.bits(),
        ),
        ("RSM_MAX_SGIOREQS", 16),
        ("RSM_BARRIER_MODE_EXPLICIT", BarrierMode::Explicit as u32),
        ("RSM_BARRIER_MODE_IMPLICIT", BarrierMode::Implicit as u32),
        ("RSM_BARRIER_SEGMENT", 0x01),
        ("RSM_BARRIER_NODE", 0x02),
        ("RSM_BARRIER_SEGMENT_THREAD", 0x11),
        ("RSM_BARRIER_NODE_THREAD", 0x12),
        ("RSM_BAR_DEFAULT", 0x02),
        ("RSM_MAP_NONE", 0),
        ("RSM_MAP_FIXED", 1),
        ("RSM_MAP_RESERVED", 2),
        ("RSM_CONNECTION_ACTIVE", ConnectionState::Active as u32),
        ("RSM_HPC_ID_BASE", dat_rsm::segment_id::FIRST_APPLICATION_ID),
        (
            "RSM_DLPI_ID_END",
            dat_rsm::segment_id::FIRST_APPLICATION_ID - 1,
        ),
        ("RSM_USER_APP_ID_BASE", dat_rsm::segment_id::FIRST_SYSTEM_ID),
        ("RSM_USER_APP_ID_END", u32::MAX),
        ("RSM_VERSION", 5),
        ("RSM_MAXNAMELEN", NAME_BYTES as u32),
        ("POLLRDNORM", libc::POLLRDNORM as u32),
    ] {
        list.push(Same(c.into(), value.into()));
    }
    list
}

/// Spec: RSMGEN-01
#[test]
fn layouts_and_values_are_those_of_the_header() {
    let list = all();
    let folder = tempfile::TempDir::new().expect("a folder");
    let source = folder.path().join("layout.c");
    let program = folder.path().join("layout");
    let lines: String = list
        .iter()
        .map(|Same(c, _)| {
            format!("    printf(\"%s %llu\\n\", \"{c}\", (unsigned long long)({c}));\n")
        })
        .collect();
    let text = format!(
        "#define RSM_GUIDE_NAMES\n#include <rsmapi.h>\n#include <stdio.h>\nint main(void)\n{{\n{lines}    return 0;\n}}\n"
    );
    fs::write(&source, text).expect("the source");
    let compiled = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(compiled.expect("a C compiler").success());
    let printed = Command::new(&program).output().expect("the program runs");
    let printed = String::from_utf8(printed.stdout).expect("text");
    let expected: String = list
        .iter()
        .map(|Same(c, value)| format!("{c} {value}\n"))
        .collect();
    for (c, rust) in printed.lines().zip(expected.lines()) {
        assert_eq!(rust, c);
    }
    assert_eq!(printed, expected);
}
