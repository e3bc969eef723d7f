//! Compares the structures of `rdma-sys` with the C headers of this machine.
//!
//! A C program prints their sizes, alignments and field offsets.

use core::mem::{align_of, offset_of, size_of};
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use rdma_sys::{
    bind_mw_t, ibv_async_event, ibv_comp_channel, ibv_context, ibv_context_ops, ibv_cq, ibv_device,
    ibv_device_attr, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_port_attr, ibv_qp,
    ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr, ibv_wc, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};

/// Expressions for the C compiler, and their values in Rust.
#[derive(Default)]
struct Questions {
    c: String,
    expected: Vec<(String, usize)>,
}

impl Questions {
    fn compare(&mut self, c: String, rust: usize) {
        writeln!(self.c, "    printf(\"%zu\\n\", (size_t)({c}));").expect("memory");
        self.expected.push((c, rust));
    }
}

macro_rules! sizes {
    ($comparisons:ident: $($name:ident),+ $(,)?) => {$(
        $comparisons.compare(format!("sizeof(struct {})", stringify!($name)), size_of::<$name>());
        $comparisons.compare(format!("_Alignof(struct {})", stringify!($name)), align_of::<$name>());
    )+};
}

macro_rules! offsets {
    ($comparisons:ident: $($name:ident { $($field:ident),+ $(,)? })+) => {$($(
        $comparisons.compare(
            format!("offsetof(struct {}, {})", stringify!($name), c_name(stringify!($field))),
            offset_of!($name, $field),
        );
    )+)+};
}

/// Returns the C name of a field that `rdma-sys` renamed, as it does for unions.
fn c_name(field: &str) -> &str {
    match field {
        "imm_data_invalidated_rkey_union" => "imm_data",
        "bind_mw_tso_union" => "bind_mw",
        "type_" => "type",
        other => other,
    }
}

#[test]
fn structures_are_laid_out_as_in_the_headers() {
    let mut comparisons = Questions::default();
    sizes!(comparisons: ibv_async_event, ibv_comp_channel, ibv_context, ibv_context_ops, ibv_cq, ibv_device,
        ibv_device_attr, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr,
        ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc,
        rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel);
    offsets!(comparisons:
        ibv_async_event { element, event_type }
        ibv_comp_channel { fd }
        ibv_context { device, ops, async_fd }
        ibv_context_ops { alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv }
        ibv_cq { context, cq_context, cqe }
        ibv_device { transport_type, name }
        ibv_device_attr { fw_ver, max_mr_size, vendor_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge,
            max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_mw,
            max_srq, max_srq_wr, phys_port_cnt, atomic_cap }
        ibv_mr { lkey, rkey }
        ibv_mw { rkey, type_ }
        ibv_mw_bind { wr_id, send_flags, bind_info }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_port_attr { state, max_msg_sz, active_mtu }
        ibv_qp { qp_context, qp_num }
        ibv_qp_attr { qp_state, qp_access_flags, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout,
            retry_cnt, rnr_retry }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data_invalidated_rkey_union, wr, qp_type,
            bind_mw_tso_union }
        ibv_sge { addr, length, lkey }
        ibv_srq { srq_context }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_wc { wr_id, status, opcode, byte_len, qp_num }
        rdma_cm_event { id, listen_id, event, status, param }
        rdma_cm_id { verbs, context, qp, route }
        rdma_conn_param { private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num }
        rdma_event_channel { fd }
    );
    comparisons.compare(
        "offsetof(struct ibv_send_wr, bind_mw.rkey) - offsetof(struct ibv_send_wr, bind_mw)".into(),
        offset_of!(bind_mw_t, rkey),
    );
    comparisons.compare(
        "offsetof(struct ibv_send_wr, wr.rdma.rkey) - offsetof(struct ibv_send_wr, wr)".into(),
        offset_of!(rdma_sys::rdma_t, rkey),
    );
    for (index, (question, (answer, expected))) in answers(&comparisons.c)
        .iter()
        .zip(&comparisons.expected)
        .enumerate()
        .map(|(i, (a, (q, e)))| (i, (q, (a, e))))
    {
        assert_eq!(answer, expected, "question {index}: {question}");
    }
}

/// Compiles and runs a program that prints one number per line.
fn answers(body: &str) -> Vec<usize> {
    // The folder's name is unpredictable, and no other user may write into it.
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n\
         int main(void) {{\n{body}    return 0;\n}}\n"
    );
    fs::write(&source, text).expect("a file");
    let compiled = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .status()
        .expect("a C compiler");
    assert!(
        compiled.success(),
        "the headers lack something that is used"
    );
    let output = Command::new(&program).output().expect("the program runs");
    folder.close().expect("the folder goes");
    let numbers: Vec<usize> = String::from_utf8(output.stdout)
        .expect("numbers")
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(numbers.len(), body.lines().count());
    numbers
}
