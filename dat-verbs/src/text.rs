//! Names of states, statuses and events.

use core::ffi::{CStr, c_int};

use crate::boundary::Text;

/// Makes functions that return a name by its number, or the one in front if there is none.
macro_rules! names {
    ($($function:ident $unknown:literal: $($name:literal)*;)*) => {
        $(pub(crate) extern "C" fn $function(number: c_int) -> Text {
            const NAMES: &[&CStr] = &[$($name),*];
            let known = usize::try_from(number).ok();
            let known = known.and_then(|number| NAMES.get(number));
            Text::of(known.copied().unwrap_or($unknown))
        })*
    };
}

names! {
    ibv_node_type_str c"unknown":
        c"unknown" c"InfiniBand channel adapter" c"InfiniBand switch" c"InfiniBand router"
        c"iWARP NIC" c"usNIC" c"usNIC UDP" c"unspecified";
    ibv_port_state_str c"unknown":
        c"no state change (NOP)" c"down" c"init" c"armed" c"active" c"active defer";
    ibv_event_type_str c"unknown":
        c"CQ error" c"local work queue catastrophic error"
        c"invalid request local work queue error" c"local access violation work queue error"
        c"communication established" c"send queue drained" c"path migrated"
        c"path migration request error" c"local catastrophic error" c"port active" c"port error"
        c"LID change" c"P_Key change" c"SM change" c"SRQ catastrophic error" c"SRQ limit reached"
        c"last WQE reached" c"client reregistration" c"GID table change" c"WQ fatal";
    ibv_wc_status_str c"unknown":
        c"success" c"local length error" c"local QP operation error"
        c"local EE context operation error" c"local protection error" c"Work Request Flushed Error"
        c"memory management operation error" c"bad response error" c"local access error"
        c"remote invalid request error" c"remote access error" c"remote operation error"
        c"transport retry counter exceeded" c"RNR retry counter exceeded"
        c"local RDD violation error" c"remote invalid RD request" c"aborted error"
        c"invalid EE context number" c"invalid EE context state" c"fatal error"
        c"response timeout error" c"general error" c"TM error" c"TM software rendezvous";
    rdma_event_str c"UNKNOWN EVENT":
        c"RDMA_CM_EVENT_ADDR_RESOLVED" c"RDMA_CM_EVENT_ADDR_ERROR" c"RDMA_CM_EVENT_ROUTE_RESOLVED"
        c"RDMA_CM_EVENT_ROUTE_ERROR" c"RDMA_CM_EVENT_CONNECT_REQUEST"
        c"RDMA_CM_EVENT_CONNECT_RESPONSE" c"RDMA_CM_EVENT_CONNECT_ERROR"
        c"RDMA_CM_EVENT_UNREACHABLE" c"RDMA_CM_EVENT_REJECTED" c"RDMA_CM_EVENT_ESTABLISHED"
        c"RDMA_CM_EVENT_DISCONNECTED" c"RDMA_CM_EVENT_DEVICE_REMOVAL"
        c"RDMA_CM_EVENT_MULTICAST_JOIN" c"RDMA_CM_EVENT_MULTICAST_ERROR"
        c"RDMA_CM_EVENT_ADDR_CHANGE" c"RDMA_CM_EVENT_TIMEWAIT_EXIT";
}
