//! Layouts, compared with the headers of this system if it has any.

use core::mem::offset_of;
use std::fmt::Write as _;
use std::process::Command;

use crate::layout::*;

/// Adds assertions about structures and their fields to a program in C.
macro_rules! assertions {
    ($program:ident: $($name:ident { $($field:ident),* $(,)? })*) => {$(
        let size = size_of::<$name>();
        let name = stringify!($name);
        writeln!($program, "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");")
            .expect("a text");
        $(
            let (offset, field) = (offset_of!($name, $field), stringify!($field));
            writeln!(
                $program,
                "_Static_assert(offsetof(struct {name}, {field}) == {offset}, \"{name}.{field}\");",
            )
            .expect("a text");
        )*
    )*};
}

#[test]
fn layouts_are_those_of_the_headers() {
    let mut program = String::from(
        "#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("layout.c");
    let compiles = |program: &str| {
        std::fs::write(&file, program).expect("a file");
        let compiler = Command::new("cc").arg("-fsyntax-only").arg(&file).output();
        compiler.map(|output| {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), errors)
        })
    };
    match compiles(&program) {
        Ok((true, _)) => {}
        _ => {
            eprintln!("layouts are not compared: no compiler, or no headers of rdma-core");
            return;
        }
    }
    assertions! { program:
        ibv_ah { context, pd, handle }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_async_event { element, event_type }
        ibv_comp_channel { context, fd, refcnt }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        ibv_context_ops {
            alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send,
            post_recv,
        }
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed,
        }
        ibv_cq_ex {
            context, channel, cqe, comp_mask, status, wr_id, start_poll, next_poll, end_poll,
            read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp,
            read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts,
        }
        ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain,
        }
        ibv_data_buf { addr, length }
        ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_device_attr {
            fw_ver, node_guid, max_mr_size, max_qp, max_qp_wr, device_cap_flags, max_sge, max_cq,
            max_cqe, max_mr, max_pd, max_qp_rd_atom, atomic_cap, max_ah, max_srq, max_srq_sge,
            max_pkeys, phys_port_cnt,
        }
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_pd { context, handle }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, pkey_tbl_len,
            active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2,
        }
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type,
            events_completed,
        }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, en_sqd_async_notify,
            max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt,
            rnr_retry, rate_limit,
        }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_ex {
            qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_bind_mw, wr_local_inv,
            wr_rdma_read, wr_rdma_write, wr_send, wr_send_inv, wr_set_ud_addr, wr_set_inline_data,
            wr_set_sge_list, wr_start, wr_complete, wr_abort,
        }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_init_attr_ex {
            qp_context, send_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, create_flags,
            send_ops_flags,
        }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, wr }
        ibv_sge { addr, length, lkey }
        ibv_srq { context, srq_context, pd, handle, events_completed }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_srq_init_attr { srq_context, attr }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, qp_num, src_qp, wc_flags, pkey_index,
            slid, sl, dlid_path_bits,
        }
        verbs_context { query_port, create_cq_ex, query_device_ex, create_qp_ex, sz, context }
        rdma_addrinfo {
            ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr,
            ai_dst_addr, ai_src_canonname, ai_route, ai_connect, ai_next,
        }
        rdma_cm_event { id, listen_id, event, status, param }
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
            recv_cq_channel, recv_cq, srq, pd, qp_type,
        }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num,
        }
        rdma_event_channel { fd }
        rdma_route { addr, path_rec, num_paths }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
    }
    let (is_right, errors) = compiles(&program).expect("a compiler");
    assert!(is_right, "{errors}");
}
