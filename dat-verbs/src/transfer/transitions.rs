//! The attributes that changes of a queue pair's state need, and those that they take.

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
use crate::errors::{Result, require};

/// A change of state: from, to, the attributes that it needs, and those that it takes beside them.
type Transition = (ibv_qp_state, ibv_qp_state, c_uint, c_uint);

/// Attributes of a queue pair that begins: its port and partition, and the rights or key of peers.
const ACCESS: c_uint = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const KEY: c_uint = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
/// Attributes that may change while a queue pair sends.
const SENDING: c_uint = IBV_QP_CUR_STATE
    | IBV_QP_ALT_PATH
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_PATH_MIG_STATE;
const SENDING_DATAGRAMS: c_uint = IBV_QP_CUR_STATE | IBV_QP_QKEY;
const OWN_KEY: c_uint = IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
/// Attributes of the peer that a queue pair receives from.
const PEER: c_uint = IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
const RECEIVING: c_uint = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
/// Attributes of the requests of a queue pair, and those of their repetition.
const PATIENCE: c_uint = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
const REQUESTS: c_uint = PATIENCE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
/// Attributes that may change once a queue pair has drained.
const DRAINED: c_uint = ACCESS
    | PATIENCE
    | IBV_QP_AV
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_ALT_PATH
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_PATH_MIG_STATE;

/// The changes of a reliable connection, as the manual of `ibv_modify_qp` and the kernel have them.
const RELIABLE: [Transition; 8] = [
    (IBV_QPS_RESET, IBV_QPS_INIT, ACCESS, 0),
    (IBV_QPS_INIT, IBV_QPS_INIT, 0, ACCESS),
    (IBV_QPS_INIT, IBV_QPS_RTR, PEER, RECEIVING),
    (IBV_QPS_RTR, IBV_QPS_RTS, REQUESTS, SENDING),
    (IBV_QPS_RTS, IBV_QPS_RTS, 0, SENDING),
    (IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    (IBV_QPS_SQD, IBV_QPS_SQD, 0, DRAINED),
    (IBV_QPS_SQD, IBV_QPS_RTS, 0, SENDING),
];

/// The changes of a queue pair for datagrams.
const DATAGRAMS: [Transition; 8] = [
    (IBV_QPS_RESET, IBV_QPS_INIT, KEY, 0),
    (IBV_QPS_INIT, IBV_QPS_INIT, 0, KEY),
    (IBV_QPS_INIT, IBV_QPS_RTR, 0, OWN_KEY),
    (IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, SENDING_DATAGRAMS),
    (IBV_QPS_RTS, IBV_QPS_RTS, 0, SENDING_DATAGRAMS),
    (IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    (IBV_QPS_SQD, IBV_QPS_SQD, 0, OWN_KEY),
    (IBV_QPS_SQD, IBV_QPS_RTS, 0, SENDING_DATAGRAMS),
];

/// Returns the attributes that a reliable connection needs to go on to a state.
///
/// # Errors
/// `EINVAL`: there is no such state.
pub(crate) fn needs(to: ibv_qp_state) -> Result<c_uint> {
    let mut changes = RELIABLE.iter();
    let found = changes.find(|(_, next, needs, _)| *next == to && *needs != 0);
    found.map(|(.., needs, _)| *needs).ok_or(Errno::EINVAL)
}

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
            let found = changes.iter().find(|one| (one.0, one.1) == (from, to));
            let (.., needs, takes) = *found.ok_or(Errno::EINVAL)?;
            (needs, takes)
        }
    };
    let is_right = given & needs == needs && given & !(needs | takes) == 0;
    require(is_right, Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::layout::IBV_QPT_RC;

    /// Each attribute that a change needs is missed, and each one that it does not take is refused.
    #[test]
    fn a_change_takes_the_attributes_of_its_states_only() {
        for (kind, changes) in [(IBV_QPT_RC, &RELIABLE), (IBV_QPT_UD, &DATAGRAMS)] {
            for (from, to, needs, takes) in changes {
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
                check(IBV_QPT_RC, from, IBV_QPS_RTR, IBV_QP_STATE | PEER).is_ok(),
                is_init
            );
        }
        assert_eq!(
            check(IBV_QPT_RC, IBV_QPS_RTS, 99, IBV_QP_STATE),
            Err(Errno::EINVAL)
        );
    }
}
