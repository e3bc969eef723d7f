//! Completion queues that are polled one completion after another (`ibv_cq_ex`).

use core::ffi::c_int;

use nix::errno::Errno;

use super::queue::{Queue, create};
use crate::boundary::layout::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_DLID_PATH_BITS,
    IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID,
    IBV_WC_EX_WITH_SRC_QP, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc,
};
use crate::boundary::{Handle, In, immediate_of, show_completion, zeroed};
use crate::errors::{Result, code, or, require};

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
    let made = or(Handle::NULL, || {
        // Programs of older headers end before the flags, which the mask tells.
        let attributes = In::at(attributes).get()?;
        let is_known = attributes.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS == 0
            && attributes.wc_flags & !FIELDS == 0;
        require(is_known, Errno::EOPNOTSUPP)?;
        create(Handle::at(context), &attributes, |c| {
            c.start_poll = Some(start_poll);
            c.next_poll = Some(next_poll);
            c.end_poll = Some(end_poll);
            fill_readers(c);
        })
    });
    made.pointer()
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
    code(|| {
        let own = handle.trusted()?;
        let mask = In::at(attributes)
            .get()
            .map_or(0, |attributes| attributes.comp_mask);
        require(mask == 0, Errno::EINVAL)?;
        own.turns.begin();
        // The program ends a turn that began only if it got a completion.
        advance(handle, own).inspect_err(|_| own.turns.end())
    })
}

extern "C" fn next_poll(queue: *mut ibv_cq_ex) -> c_int {
    let handle = Handle::<Queue>::at(queue);
    code(|| advance(handle, handle.trusted()?))
}

extern "C" fn end_poll(queue: *mut ibv_cq_ex) {
    if let Ok(own) = Handle::<Queue>::at(queue).trusted() {
        own.turns.end();
    }
}

/// Returns the completion of the turn.
fn current(queue: *mut ibv_cq_ex) -> ibv_wc {
    let own = Handle::<Queue>::at(queue);
    let current = own.trusted().map(|own| own.turns.with(|current| *current));
    current.ok().flatten().unwrap_or_else(zeroed)
}

macro_rules! readers {
    ($($reader:ident($wc:ident) -> $type:ty = $value:expr;)*) => {
        $(extern "C" fn $reader(queue: *mut ibv_cq_ex) -> $type {
            let $wc = current(queue);
            $value
        })*

        fn fill_readers(c: &mut ibv_cq_ex) {
            $(c.$reader = Some($reader);)*
        }
    };
}

readers! {
    read_opcode(wc) -> u32 = wc.opcode;
    read_vendor_err(wc) -> u32 = wc.vendor_err;
    read_byte_len(wc) -> u32 = wc.byte_len;
    read_imm_data(wc) -> u32 = immediate_of(&wc);
    read_qp_num(wc) -> u32 = wc.qp_num;
    read_src_qp(wc) -> u32 = wc.src_qp;
    read_wc_flags(wc) -> u32 = wc.wc_flags;
    read_slid(wc) -> u32 = wc.slid.into();
    read_sl(wc) -> u8 = wc.sl;
    read_dlid_path_bits(wc) -> u8 = wc.dlid_path_bits;
}
