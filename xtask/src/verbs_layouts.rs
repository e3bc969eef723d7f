//! The layouts of rdma-core's types, as `dat-verbs` has them.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use xshell::cmd;

use crate::tools::BINDGEN;
use crate::workspace::Workspace;

/// The file that the task writes.
const LAYOUT: &str = "dat-verbs/src/boundary/layout.rs";

const HEADERS: &str = "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n";

/// Types of the headers; those of their fields come with them.
const TYPES: &str = "ibv_device|ibv_context|verbs_context|ibv_pd|ibv_mr|ibv_mw|ibv_mw_bind\
    |ibv_comp_channel|ibv_cq|ibv_cq_ex|ibv_cq_init_attr_ex|ibv_wc|ibv_qp|ibv_qp_ex\
    |ibv_qp_init_attr|ibv_qp_init_attr_ex|ibv_qp_attr|ibv_srq|ibv_srq_attr|ibv_srq_init_attr\
    |ibv_srq_init_attr_ex|ibv_send_wr|ibv_recv_wr|ibv_data_buf|ibv_device_attr_ex|ibv_port_attr\
    |ibv_gid_entry|ibv_async_event|ibv_ah|ibv_grh|ibv_sa_path_rec|rdma_event_channel|rdma_cm_id\
    |rdma_cm_event|rdma_addrinfo|ibv_access_flags|ibv_wc_flags|ibv_qp_attr_mask|ibv_send_flags\
    |ibv_srq_attr_mask|ibv_create_cq_wc_flags|ibv_qp_create_send_ops_flags|ibv_device_cap_flags\
    |ibv_port_cap_flags|ibv_qp_init_attr_mask|ibv_srq_init_attr_mask|ibv_gid_type|ibv_port_state\
    |ibv_fork_status|ibv_cq_init_attr_mask";

/// Types that only pointers of functions without an implementation name.
const OPAQUE: &[&str] = &[
    "verbs_ex_private",
    "ibv_flow",
    "ibv_flow_attr",
    "ibv_flow_action",
    "ibv_flow_action_esp_attr",
    "ibv_counters",
    "ibv_counters_init_attr",
    "ibv_counter_attach_attr",
    "ibv_td",
    "ibv_td_init_attr",
    "ibv_dm",
    "ibv_alloc_dm_attr",
    "ibv_wq",
    "ibv_wq_attr",
    "ibv_wq_init_attr",
    "ibv_rwq_ind_table",
    "ibv_rwq_ind_table_init_attr",
    "ibv_values_ex",
    "ibv_xrcd",
    "ibv_xrcd_init_attr",
    "ibv_qp_open_attr",
    "ibv_ops_wr",
    "ibv_parent_domain_init_attr",
    "ibv_wc_tm_info",
    "ibv_modify_cq_attr",
    "ibv_qp_rate_limit_attr",
    "ibv_query_device_ex_input",
];

/// Types of the C library, which the crate `libc` has for each processor.
const OF_LIBC: [&str; 7] = [
    "pthread_cond_t",
    "pthread_mutex_t",
    "sockaddr",
    "sockaddr_in",
    "sockaddr_in6",
    "sockaddr_storage",
    "socklen_t",
];

/// Further types of the C library that those above consist of.
const PARTS: [&str; 10] = [
    "in_addr",
    "in_addr_t",
    "in_port_t",
    "in6_addr",
    "in6_addr__bindgen_ty_1",
    "sa_family_t",
    "__socklen_t",
    "__time_t",
    "__syscall_slong_t",
    "timespec",
];

/// Writes the layouts from the installed headers of rdma-core.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    let bindgen = BINDGEN.install(workspace)?;
    let shell = &workspace.shell;
    let folder = shell.create_temp_dir()?;
    let header = folder.path().join("layouts.h");
    fs::write(&header, HEADERS)?;
    let hidden = OPAQUE.join("|");
    let (hidden, types) = (
        format!("^({hidden}|ibv_ops_wr_.*|ib_uverbs.*)$"),
        format!("^({TYPES})$"),
    );
    let style = "--no-doc-comments --default-enum-style consts --no-prepend-enum-name --use-core \
        --ignore-functions --no-derive-debug --opaque-type pthread_.* --blocklist-var .*"
        .split_whitespace();
    let bindings = cmd!(
        shell,
        "{bindgen} {header} {style...} --blocklist-type {hidden} --allowlist-type {types}"
    )
    .read()
    .context("the bindings of rdma-core's headers; are libibverbs-dev and librdmacm-dev there?")?;
    let path = workspace.root().join(LAYOUT);
    fs::write(&path, file(&bindings)).with_context(|| path.display().to_string())?;
    cmd!(shell, "rustfmt --edition 2024 {path}").run()?;
    Ok(())
}

/// Returns the file for bindings.
fn file(bindings: &str) -> String {
    let mut text = String::from(
        "//! Layouts of rdma-core's types; `cargo xtask verbs-layouts` writes this file from its headers.\n\n",
    );
    let _infallible = writeln!(text, "use core::ffi::c_void;\n");
    let _infallible = writeln!(text, "use libc::{{{}}};\n", OF_LIBC.join(", "));
    let _infallible = writeln!(text, "use super::layout_checks::layouts;\n");
    for name in OPAQUE {
        let _infallible = writeln!(text, "pub type {name} = c_void;");
    }
    let _infallible = writeln!(text, "pub type ib_uverbs_advise_mr_advice = u32;");
    let mut layouts = BTreeMap::new();
    for item in items(bindings) {
        if item.contains("const _: () =") {
            let (name, layout) = layout(&item);
            if is_ours(&name) {
                layouts.insert(name, layout);
            }
        } else if defined(&item).is_some_and(is_ours) {
            text += &item
                .replace("::core::ffi::c_void", "c_void")
                .replace("::core::", "core::");
        }
    }
    let _infallible = writeln!(text, "\nlayouts! {{");
    for (name, layout) in layouts {
        let _infallible = writeln!(text, "{name} {layout};");
    }
    text + "}\n"
}

fn is_ours(name: &str) -> bool {
    !OF_LIBC.contains(&name) && !PARTS.contains(&name)
}

/// Returns the items of bindings, with their attributes.
fn items(bindings: &str) -> Vec<String> {
    let (mut items, mut item) = (Vec::new(), String::new());
    for line in bindings.lines() {
        if item.is_empty() && (line.is_empty() || line.starts_with("/*")) {
            continue;
        }
        item += line;
        item.push('\n');
        let is_whole = !line.starts_with([' ', '#']) && line.ends_with([';', '}']);
        if is_whole {
            items.push(std::mem::take(&mut item));
        }
    }
    items
}

/// Returns the name that an item defines.
fn defined(item: &str) -> Option<&str> {
    let line = item.lines().find(|line| !line.starts_with('#'))?;
    let name = line.split([' ', ':']).nth(2)?;
    Some(name)
}

/// Returns the name of a type, and its size, alignment and offsets.
fn layout(checks: &str) -> (String, String) {
    let joined: String = checks.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut name, mut text) = (String::new(), String::new());
    for check in joined.split("[\"").skip(1) {
        let Some((what, rest)) = check.split_once("\"]") else {
            continue;
        };
        let number: String = rest
            .rsplit(" - ")
            .next()
            .unwrap_or_default()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        if let Some(of) = what.strip_prefix("Size of ") {
            name = of.to_owned();
            text = number;
        } else if what.starts_with("Alignment of ") {
            let _infallible = write!(text, " {number}:");
        } else if let Some((_, field)) = what.rsplit_once("::") {
            let _infallible = write!(text, " {field} {number},");
        }
    }
    (name, text.trim_end_matches(',').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDINGS: &str = r#"/* made */

#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_data_buf {
    pub addr: *mut ::core::ffi::c_void,
    pub length: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ibv_data_buf"][::core::mem::size_of::<ibv_data_buf>() - 16usize];
    ["Alignment of ibv_data_buf"]
        [::core::mem::align_of::<ibv_data_buf>() - 8usize];
    ["Offset of field: ibv_data_buf::addr"][::core::mem::offset_of!(ibv_data_buf, addr) - 0usize];
    ["Offset of field: ibv_data_buf::length"]
        [::core::mem::offset_of!(ibv_data_buf, length) - 8usize];
};
pub const IBV_SEND_FENCE: ibv_send_flags = 1;
pub type socklen_t = __socklen_t;
"#;

    #[test]
    fn bindings_become_a_file_with_one_line_for_a_layout() {
        let file = file(BINDINGS);
        assert!(file.contains("pub addr: *mut c_void,"), "{file}");
        assert!(
            file.contains("pub const IBV_SEND_FENCE: ibv_send_flags = 1;"),
            "{file}"
        );
        assert!(
            file.contains("\nibv_data_buf 16 8: addr 0, length 8;\n"),
            "{file}"
        );
        assert!(!file.contains("pub type socklen_t"), "{file}");
    }
}
