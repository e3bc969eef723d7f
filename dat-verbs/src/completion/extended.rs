//! Completion queues that are polled one completion after another (`ibv_cq_ex`).

use core::ffi::c_int;

use nix::errno::Errno;

use super::queue::{Queue, Wanted, create};
use crate::boundary::layout::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_DLID_PATH_BITS,
    IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID,
    IBV_WC_EX_WITH_SRC_QP, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc,
};
use crate::boundary::{Address, Handle, In, immediate_of, show_completion, zeroed};
use crate::context::of_structure;
use crate::errors::{Result, code, or};

/// Fields that each completion has.
const FIELDS: u64 = (IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS) as u64;

/// `create_cq_ex` of a context.
pub(crate) extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let made = (|| {
        // Programs of older headers end before the flags, which the mask tells.
        let attributes = In::at(attributes).get().ok_or(Errno::EINVAL)?;
        if attributes.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0
            || attributes.wc_flags & !FIELDS != 0
        {
            return Err(Errno::EOPNOTSUPP);
        }
        let wanted = Wanted {
            depth: attributes.cqe,
            cq_context: Address(attributes.cq_context),
            channel: Handle::at(attributes.channel),
            vector: attributes.comp_vector,
        };
        create(of_structure(context), &wanted, |c| {
            c.start_poll = Some(start_poll);
            c.next_poll = Some(next_poll);
            c.end_poll = Some(end_poll);
            c.read_opcode = Some(read_opcode);
            c.read_vendor_err = Some(read_vendor_err);
            c.read_byte_len = Some(read_byte_len);
            c.read_imm_data = Some(read_imm_data);
            c.read_qp_num = Some(read_qp_num);
            c.read_src_qp = Some(read_src_qp);
            c.read_wc_flags = Some(read_wc_flags);
            c.read_slid = Some(read_slid);
            c.read_sl = Some(read_sl);
            c.read_dlid_path_bits = Some(read_dlid_path_bits);
        })
    })();
    or(made, Handle::NULL).pointer()
}

/// Takes the next completion.
///
/// # Errors
/// `ENOENT`: there is none. `EIO`: some are lost.
fn advance(handle: Handle<Queue>, own: &Queue) -> Result<()> {
    let mut taken = None;
    own.poll(1, |done| taken = Some(done))?;
    let wc = taken.ok_or(Errno::ENOENT)?;
    show_completion(handle, wc.wr_id, wc.status);
    own.turns.with(|current| *current = Some(wc));
    Ok(())
}

pub(crate) extern "C" fn start_poll(
    queue: *mut ibv_cq_ex,
    attributes: *mut ibv_poll_cq_attr,
) -> c_int {
    let handle = Handle::<Queue>::at(queue);
    code((|| {
        let own = handle.trusted().ok_or(Errno::EINVAL)?;
        let attributes = In::at(attributes).get();
        if attributes.is_some_and(|attributes| attributes.comp_mask != 0) {
            return Err(Errno::EINVAL);
        }
        own.turns.begin();
        // The program ends a turn that began only if it got a completion.
        advance(handle, own).inspect_err(|_| own.turns.end())
    })())
}

extern "C" fn next_poll(queue: *mut ibv_cq_ex) -> c_int {
    let handle = Handle::<Queue>::at(queue);
    let own = handle.trusted().ok_or(Errno::EINVAL);
    code(own.and_then(|own| advance(handle, own)))
}

extern "C" fn end_poll(queue: *mut ibv_cq_ex) {
    if let Some(own) = Handle::<Queue>::at(queue).trusted() {
        own.turns.end();
    }
}

/// Returns the completion of the turn.
fn current(queue: *mut ibv_cq_ex) -> ibv_wc {
    let own = Handle::<Queue>::at(queue);
    let current = own
        .trusted()
        .and_then(|own| own.turns.with(|current| *current));
    current.unwrap_or_else(zeroed)
}

macro_rules! readers {
    ($($reader:ident $field:ident: $type:ty;)*) => {
        $(extern "C" fn $reader(queue: *mut ibv_cq_ex) -> $type {
            current(queue).$field.into()
        })*
    };
}

readers! {
    read_opcode opcode: u32;
    read_vendor_err vendor_err: u32;
    read_byte_len byte_len: u32;
    read_qp_num qp_num: u32;
    read_src_qp src_qp: u32;
    read_wc_flags wc_flags: u32;
    read_slid slid: u32;
    read_sl sl: u8;
    read_dlid_path_bits dlid_path_bits: u8;
}

extern "C" fn read_imm_data(queue: *mut ibv_cq_ex) -> u32 {
    immediate_of(&current(queue))
}
