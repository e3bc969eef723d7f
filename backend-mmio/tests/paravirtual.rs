//! Comparison of the paravirtual queue layouts with the header that C programs use.
//!
//! Without the header or a compiler the test prints a message and ends.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use backend_mmio::defs::pvrdma::{
    Entry, RECEIVED, Receive, Request, SegmentEntry, Words, doorbell, opcode, status,
};

const HEADER: &str = "/usr/include/rdma/vmw_pvrdma-abi.h";

/// Prints one name and one number per line.
const PROGRAM: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include <rdma/vmw_pvrdma-abi.h>
#define AT(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(struct type, field))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(struct type))
#define VALUE(name) printf("%s %lu\n", #name, (unsigned long)(unsigned)(name))
int main(void) {
    SIZE(pvrdma_sq_wqe_hdr); AT(pvrdma_sq_wqe_hdr, wr_id); AT(pvrdma_sq_wqe_hdr, num_sge); AT(pvrdma_sq_wqe_hdr, total_len);
    AT(pvrdma_sq_wqe_hdr, opcode); AT(pvrdma_sq_wqe_hdr, send_flags);
    AT(pvrdma_sq_wqe_hdr, wr.rdma.remote_addr); AT(pvrdma_sq_wqe_hdr, wr.rdma.rkey);
    SIZE(pvrdma_rq_wqe_hdr); AT(pvrdma_rq_wqe_hdr, wr_id); AT(pvrdma_rq_wqe_hdr, num_sge); AT(pvrdma_rq_wqe_hdr, total_len);
    SIZE(pvrdma_sge); AT(pvrdma_sge, addr); AT(pvrdma_sge, length); AT(pvrdma_sge, lkey);
    SIZE(pvrdma_cqe); AT(pvrdma_cqe, wr_id); AT(pvrdma_cqe, qp); AT(pvrdma_cqe, opcode); AT(pvrdma_cqe, status);
    AT(pvrdma_cqe, byte_len); AT(pvrdma_cqe, imm_data); AT(pvrdma_cqe, src_qp); AT(pvrdma_cqe, wc_flags); AT(pvrdma_cqe, vendor_err);
    VALUE(PVRDMA_UAR_HANDLE_MASK); VALUE(PVRDMA_UAR_QP_OFFSET); VALUE(PVRDMA_UAR_QP_SEND); VALUE(PVRDMA_UAR_QP_RECV);
    VALUE(PVRDMA_UAR_CQ_OFFSET); VALUE(PVRDMA_UAR_CQ_ARM_SOL); VALUE(PVRDMA_UAR_CQ_ARM); VALUE(PVRDMA_UAR_CQ_POLL);
    VALUE(PVRDMA_UAR_SRQ_OFFSET); VALUE(PVRDMA_UAR_SRQ_RECV);
    VALUE(PVRDMA_WR_RDMA_WRITE); VALUE(PVRDMA_WR_SEND); VALUE(PVRDMA_WR_RDMA_READ); VALUE(PVRDMA_WC_RECV);
    VALUE(PVRDMA_WC_SUCCESS); VALUE(PVRDMA_WC_LOC_LEN_ERR); VALUE(PVRDMA_WC_LOC_QP_OP_ERR); VALUE(PVRDMA_WC_LOC_PROT_ERR);
    VALUE(PVRDMA_WC_WR_FLUSH_ERR); VALUE(PVRDMA_WC_BAD_RESP_ERR); VALUE(PVRDMA_WC_LOC_ACCESS_ERR); VALUE(PVRDMA_WC_REM_INV_REQ_ERR);
    VALUE(PVRDMA_WC_REM_ACCESS_ERR); VALUE(PVRDMA_WC_REM_OP_ERR); VALUE(PVRDMA_WC_RETRY_EXC_ERR); VALUE(PVRDMA_WC_RNR_RETRY_EXC_ERR);
    VALUE(PVRDMA_WC_REM_ABORT_ERR); VALUE(PVRDMA_WC_FATAL_ERR); VALUE(PVRDMA_WC_GENERAL_ERR);
}
"#;

/// Returns the values of the header by name; `None` without the header or a compiler.
fn header() -> Option<BTreeMap<String, u64>> {
    if !Path::new(HEADER).is_file() {
        println!("{HEADER} is not there: nothing is compared");
        return None;
    }
    // A shared temporary directory would let others guess and take the name.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pvrdma-layout");
    fs::create_dir_all(&folder).expect("a folder");
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    fs::write(&source, PROGRAM).expect("a file");
    let Ok(compiled) = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .status()
    else {
        println!("there is no compiler for C: nothing is compared");
        return None;
    };
    assert!(compiled.success());
    let output = Command::new(&program).output().expect("a program");
    fs::remove_dir_all(&folder).expect("no folder");
    let text = String::from_utf8(output.stdout).expect("text");
    let values = text.lines().map(|line| {
        let (name, value) = line.split_once(' ').expect("a name and a number");
        (name.to_owned(), value.parse().expect("a number"))
    });
    Some(values.collect())
}

/// Returns the byte offset of the only nonzero field of a value.
fn offset(value: &impl Words) -> u64 {
    let mut words = Vec::new();
    value.put(&mut |word| words.push(word));
    let first = words.iter().position(|word| *word != 0).expect("a field");
    first as u64 * 4
}

fn zeros<T: Words>() -> T {
    T::take(&mut || 0)
}

fn size<T: Words>() -> u64 {
    T::WORDS as u64 * 4
}

macro_rules! at {
    ($type:ty, $field:ident) => {
        offset(&{
            let mut value: $type = zeros();
            value.$field = 1;
            value
        })
    };
}

#[test]
fn queue_layouts_equal_the_header() {
    let Some(header) = header() else {
        return;
    };
    let ours = [
        ("pvrdma_sq_wqe_hdr", size::<Request>()),
        ("pvrdma_sq_wqe_hdr.wr_id", at!(Request, token)),
        ("pvrdma_sq_wqe_hdr.num_sge", at!(Request, segments)),
        ("pvrdma_sq_wqe_hdr.total_len", at!(Request, length)),
        ("pvrdma_sq_wqe_hdr.opcode", at!(Request, opcode)),
        ("pvrdma_sq_wqe_hdr.send_flags", at!(Request, flags)),
        (
            "pvrdma_sq_wqe_hdr.wr.rdma.remote_addr",
            at!(Request, address),
        ),
        ("pvrdma_sq_wqe_hdr.wr.rdma.rkey", at!(Request, key)),
        ("pvrdma_rq_wqe_hdr", size::<Receive>()),
        ("pvrdma_rq_wqe_hdr.wr_id", at!(Receive, token)),
        ("pvrdma_rq_wqe_hdr.num_sge", at!(Receive, segments)),
        ("pvrdma_rq_wqe_hdr.total_len", at!(Receive, length)),
        ("pvrdma_sge", size::<SegmentEntry>()),
        ("pvrdma_sge.addr", at!(SegmentEntry, address)),
        ("pvrdma_sge.length", at!(SegmentEntry, length)),
        ("pvrdma_sge.lkey", at!(SegmentEntry, key)),
        ("pvrdma_cqe", size::<Entry>()),
        ("pvrdma_cqe.wr_id", at!(Entry, token)),
        ("pvrdma_cqe.qp", at!(Entry, queue_pair)),
        ("pvrdma_cqe.opcode", at!(Entry, opcode)),
        ("pvrdma_cqe.status", at!(Entry, status)),
        ("pvrdma_cqe.byte_len", at!(Entry, length)),
        ("pvrdma_cqe.imm_data", at!(Entry, immediate)),
        ("pvrdma_cqe.src_qp", at!(Entry, source)),
        ("pvrdma_cqe.wc_flags", at!(Entry, flags)),
        ("pvrdma_cqe.vendor_err", at!(Entry, vendor)),
    ];
    let values = [
        ("PVRDMA_UAR_HANDLE_MASK", doorbell::HANDLE),
        ("PVRDMA_UAR_QP_OFFSET", doorbell::QUEUE_PAIR),
        ("PVRDMA_UAR_QP_SEND", doorbell::SEND),
        ("PVRDMA_UAR_QP_RECV", doorbell::RECEIVE),
        ("PVRDMA_UAR_CQ_OFFSET", doorbell::COMPLETION_QUEUE),
        ("PVRDMA_UAR_CQ_ARM_SOL", doorbell::ARM_SOLICITED),
        ("PVRDMA_UAR_CQ_ARM", doorbell::ARM),
        ("PVRDMA_UAR_CQ_POLL", doorbell::POLL),
        ("PVRDMA_UAR_SRQ_OFFSET", doorbell::SHARED_RECEIVE_QUEUE),
        ("PVRDMA_UAR_SRQ_RECV", doorbell::SHARED_RECEIVE),
        ("PVRDMA_WR_RDMA_WRITE", opcode::RDMA_WRITE),
        ("PVRDMA_WR_SEND", opcode::SEND),
        ("PVRDMA_WR_RDMA_READ", opcode::RDMA_READ),
        ("PVRDMA_WC_RECV", RECEIVED),
        ("PVRDMA_WC_SUCCESS", status::SUCCESS),
        ("PVRDMA_WC_LOC_LEN_ERR", status::LOCAL_LENGTH),
        ("PVRDMA_WC_LOC_QP_OP_ERR", status::LOCAL_OPERATION),
        ("PVRDMA_WC_LOC_PROT_ERR", status::LOCAL_PROTECTION),
        ("PVRDMA_WC_WR_FLUSH_ERR", status::FLUSHED),
        ("PVRDMA_WC_BAD_RESP_ERR", status::BAD_RESPONSE),
        ("PVRDMA_WC_LOC_ACCESS_ERR", status::LOCAL_ACCESS),
        ("PVRDMA_WC_REM_INV_REQ_ERR", status::REMOTE_INVALID),
        ("PVRDMA_WC_REM_ACCESS_ERR", status::REMOTE_ACCESS),
        ("PVRDMA_WC_REM_OP_ERR", status::REMOTE_OPERATION),
        ("PVRDMA_WC_RETRY_EXC_ERR", status::RETRIES),
        ("PVRDMA_WC_RNR_RETRY_EXC_ERR", status::NOT_READY),
        ("PVRDMA_WC_REM_ABORT_ERR", status::REMOTE_ABORTED),
        ("PVRDMA_WC_FATAL_ERR", status::FATAL),
        ("PVRDMA_WC_GENERAL_ERR", status::GENERAL),
    ];
    let values = values.map(|(name, value)| (name, u64::from(value)));
    let ours: BTreeMap<String, u64> = ours
        .into_iter()
        .chain(values)
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    assert_eq!(ours, header);
}
