//! Which attributes a change of a queue pair's state needs, and which it takes.

use core::ffi::c_uint;

use nix::errno::Errno;

use crate::boundary::layout::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS,
    IBV_QPS_SQD, IBV_QPT_UD, ibv_qp_state, ibv_qp_type,
};
use crate::errors::Result;

/// A change of state, with the attributes that it needs and those that it takes beside them.
struct Transition {
    from: ibv_qp_state,
    to: ibv_qp_state,
    needs: c_uint,
    takes: c_uint,
}

const fn transition(
    from: ibv_qp_state,
    to: ibv_qp_state,
    needs: c_uint,
    takes: c_uint,
) -> Transition {
    Transition {
        from,
        to,
        needs,
        takes,
    }
}

/// The changes of a reliable connection, as the manual of `ibv_modify_qp` and the kernel have them.
const RELIABLE: [Transition; 8] = [
    transition(
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        0,
    ),
    transition(
        IBV_QPS_INIT,
        IBV_QPS_INIT,
        0,
        IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    ),
    transition(
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
    ),
    transition(
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC,
        IBV_QP_CUR_STATE
            | IBV_QP_ALT_PATH
            | IBV_QP_ACCESS_FLAGS
            | IBV_QP_MIN_RNR_TIMER
            | IBV_QP_PATH_MIG_STATE,
    ),
    transition(
        IBV_QPS_RTS,
        IBV_QPS_RTS,
        0,
        IBV_QP_CUR_STATE
            | IBV_QP_ACCESS_FLAGS
            | IBV_QP_ALT_PATH
            | IBV_QP_PATH_MIG_STATE
            | IBV_QP_MIN_RNR_TIMER,
    ),
    transition(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    transition(
        IBV_QPS_SQD,
        IBV_QPS_SQD,
        0,
        IBV_QP_PORT
            | IBV_QP_AV
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_MAX_QP_RD_ATOMIC
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_ALT_PATH
            | IBV_QP_ACCESS_FLAGS
            | IBV_QP_PKEY_INDEX
            | IBV_QP_MIN_RNR_TIMER
            | IBV_QP_PATH_MIG_STATE,
    ),
    transition(
        IBV_QPS_SQD,
        IBV_QPS_RTS,
        0,
        IBV_QP_CUR_STATE
            | IBV_QP_ACCESS_FLAGS
            | IBV_QP_ALT_PATH
            | IBV_QP_PATH_MIG_STATE
            | IBV_QP_MIN_RNR_TIMER,
    ),
];

/// The changes of a queue pair for datagrams.
const DATAGRAMS: [Transition; 8] = [
    transition(
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
        0,
    ),
    transition(
        IBV_QPS_INIT,
        IBV_QPS_INIT,
        0,
        IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
    ),
    transition(
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        0,
        IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
    ),
    transition(
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        IBV_QP_SQ_PSN,
        IBV_QP_CUR_STATE | IBV_QP_QKEY,
    ),
    transition(IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY),
    transition(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    transition(IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
    transition(IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY),
];

/// Checks a change of state against the attributes that come with it.
///
/// # Errors
/// `EINVAL`: there is no such change, an attribute is missing, or one does not belong to it.
pub(super) fn check(
    kind: ibv_qp_type,
    from: ibv_qp_state,
    to: ibv_qp_state,
    mask: c_uint,
) -> Result<()> {
    let changes = match kind {
        IBV_QPT_UD => &DATAGRAMS,
        _ => &RELIABLE,
    };
    let given = mask & !IBV_QP_STATE;
    let (needs, takes) = match to {
        IBV_QPS_RESET | IBV_QPS_ERR => (0, IBV_QP_CUR_STATE),
        _ => {
            let mut all = changes.iter();
            let found = all.find(|one| one.from == from && one.to == to);
            let found = found.ok_or(Errno::EINVAL)?;
            (found.needs, found.takes)
        }
    };
    let is_right = given & needs == needs && given & !(needs | takes) == 0;
    is_right.then_some(()).ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::layout::IBV_QPT_RC;

    const TO_RTR: c_uint = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;

    /// Each attribute that a change needs is missed, and each one that it does not take is refused.
    #[test]
    fn a_change_takes_the_attributes_of_its_states_only() {
        for (kind, changes) in [(IBV_QPT_RC, &RELIABLE), (IBV_QPT_UD, &DATAGRAMS)] {
            for Transition {
                from,
                to,
                needs,
                takes,
            } in changes
            {
                for bit in (0..26).map(|bit| 1 << bit) {
                    let mask = (IBV_QP_STATE | needs) ^ bit;
                    let is_right = bit == IBV_QP_STATE || bit & takes != 0;
                    let case = format!("{kind}: {from} to {to}, {mask:#x}");
                    assert_eq!(check(kind, *from, *to, mask).is_ok(), is_right, "{case}");
                }
                for mask in [*needs, needs | takes] {
                    assert_eq!(check(kind, *from, *to, IBV_QP_STATE | mask), Ok(()));
                }
            }
        }
    }

    #[test]
    fn states_follow_each_other() {
        for from in IBV_QPS_RESET..=IBV_QPS_ERR {
            assert_eq!(check(IBV_QPT_RC, from, IBV_QPS_RESET, IBV_QP_STATE), Ok(()));
            assert_eq!(check(IBV_QPT_RC, from, IBV_QPS_ERR, IBV_QP_STATE), Ok(()));
            let is_init = from == IBV_QPS_INIT;
            assert_eq!(
                check(IBV_QPT_RC, from, IBV_QPS_RTR, TO_RTR).is_ok(),
                is_init
            );
        }
        assert_eq!(
            check(IBV_QPT_RC, IBV_QPS_RTS, 99, IBV_QP_STATE),
            Err(Errno::EINVAL)
        );
    }
}
