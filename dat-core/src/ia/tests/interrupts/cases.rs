//! Calls that a handler interrupts.

use super::bed::{Bed, NOTHING, SIZES, peer};
use crate::backend::{ControlEvent, PrivateData, RequestKey};
use crate::endpoint::{BatchOperation, BatchReceive, BatchRequest, ConnectParam, Extended};
use crate::error::Result;
use crate::flags::{
    CloseFlags, CrFields, EndpointState, EpFields, EvdFields, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, SrqFields, TIMEOUT_INFINITE,
};
use crate::memory::{LmrMemory, LmrRequest, Region, RmrTriplet};
use crate::testing::fixture::{PEER, SMALL};
use crate::time::Instant;

/// The object that the call changes, and so refuses to a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// Nothing that the handler uses: all of its calls are made.
    Nothing,
    Endpoint,
    SharedQueue,
    /// The dispatcher of software events.
    Software,
    Region,
    /// All of it, for good.
    Everything,
}

/// A call, made on a bed that `prepare` and `raise` have prepared.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) changes: Changes,
    /// Set if the dispatcher of transfers does not notify its object afterwards.
    pub(super) is_silent: bool,
    pub(super) prepare: fn(&Bed),
    /// Raises the control event that the call handles.
    pub(super) raise: fn(&Bed),
    pub(super) call: fn(&Bed) -> Result<()>,
}

impl Case {
    const fn changes(self, changes: Changes) -> Self {
        Self { changes, ..self }
    }

    const fn in_silence(self) -> Self {
        Self {
            is_silent: true,
            ..self
        }
    }

    const fn after(self, prepare: fn(&Bed)) -> Self {
        Self { prepare, ..self }
    }
}

const fn case(name: &'static str, call: fn(&Bed) -> Result<()>) -> Case {
    Case {
        name,
        changes: Changes::Nothing,
        is_silent: false,
        prepare: |_| (),
        raise: |_| (),
        call,
    }
}

/// `progress` with a control event.
const fn progress(name: &'static str, raise: fn(&Bed)) -> Case {
    let made = case(name, |bed| {
        while bed.ia.progress(Instant::ZERO) != 0 {}
        Ok(())
    });
    Case { raise, ..made }
}

fn disconnected(bed: &Bed) {
    bed.ia.ep_disconnect(bed.ep, CloseFlags::Abrupt).unwrap();
    while bed.ia.evd_dequeue(bed.connections).is_ok() {}
}

fn connecting(bed: &Bed) {
    bed.ia
        .ep_connect(bed.fresh, &peer(), Instant::ZERO)
        .unwrap();
}

fn write(bed: &Bed) -> RmrTriplet {
    RmrTriplet {
        context: bed.segment.context,
        address: bed.segment.address,
        length: 8,
    }
}

pub(super) const CASES: &[Case] = &[
    case("pz_create", |bed| bed.ia.pz_create().map(drop)),
    case("cno_create", |bed| bed.ia.cno_create(None).map(drop)),
    case("cno_free", |bed| bed.ia.cno_free(bed.cno)),
    case("evd_create", |bed| {
        bed.ia.evd_create(8, Some(bed.cno), EvdFlags::DTO).map(drop)
    }),
    case("evd_resize", |bed| bed.ia.evd_resize(bed.data, 40)),
    case("evd_free", |bed| bed.ia.evd_free(bed.software)).changes(Changes::Software),
    case("evd_modify_cno", |bed| {
        bed.ia.evd_modify_cno(bed.data, None)
    })
    .in_silence(),
    case("evd_disable", |bed| bed.ia.evd_disable(bed.data)).in_silence(),
    case("evd_enable", |bed| bed.ia.evd_enable(bed.data)),
    case("evd_query", |bed| {
        bed.ia.evd_query(bed.data, EvdFields::all()).map(drop)
    }),
    case("evd_post_se", |bed| bed.ia.evd_post_se(bed.software, 1)),
    case("evd_dequeue", |bed| {
        bed.ia.evd_dequeue(bed.software).map(drop)
    })
    .changes(Changes::Software),
    case("lmr_create", |bed| {
        let request = LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x2000, 64)),
            pz: bed.pz,
            privileges: MemoryPrivileges::ALL,
        };
        bed.ia.lmr_create(&request).map(drop)
    }),
    case("lmr_free", |bed| bed.ia.lmr_free(bed.lmr)).changes(Changes::Region),
    case("rmr_create", |bed| bed.ia.rmr_create(bed.pz).map(drop)),
    case("rmr_free", |bed| bed.ia.rmr_free(bed.rmr)),
    case("rmr_bind", |bed| {
        let opens = MemoryPrivileges::REMOTE_WRITE;
        let (rmr, segment) = (bed.rmr, &bed.segment);
        bed.ia
            .rmr_bind(rmr, segment, opens, bed.ep, 9, NOTHING)
            .map(drop)
    })
    .changes(Changes::Endpoint),
    case("srq_create", |bed| {
        bed.ia.srq_create(bed.pz, &SIZES).map(drop)
    }),
    case("srq_resize", |bed| bed.ia.srq_resize(bed.srq, 8)).changes(Changes::SharedQueue),
    case("srq_resize shorter", |bed| bed.ia.srq_resize(bed.srq, 2)).changes(Changes::SharedQueue),
    case("srq_set_lw", |bed| bed.ia.srq_set_lw(bed.srq, 1)),
    case("srq_query", |bed| {
        bed.ia.srq_query(bed.srq, SrqFields::all()).map(drop)
    }),
    case("srq_post_recv", |bed| {
        bed.ia.srq_post_recv(bed.srq, &[bed.segment], 9)
    }),
    case("srq_free", |bed| bed.ia.srq_free(bed.srq))
        .after(|bed| bed.ia.ep_free(bed.sharing).unwrap())
        .changes(Changes::SharedQueue),
    case("ep_create", |bed| {
        let (data, connections) = (Some(bed.data), Some(bed.connections));
        bed.ia
            .ep_create(Some(bed.pz), data, data, connections, Some(&SMALL))
            .map(drop)
    }),
    case("ep_create_with_srq", |bed| {
        let (data, connections) = (Some(bed.data), Some(bed.connections));
        bed.ia
            .ep_create_with_srq(Some(bed.pz), data, data, connections, bed.srq, &SMALL)
            .map(drop)
    }),
    case("ep_modify", |bed| {
        let wanted = bed.wanted(bed.fresh);
        bed.ia
            .ep_modify(bed.fresh, EpFields::MAX_REQUEST_DTOS, &wanted)
    }),
    case("ep_set_watermark", |bed| {
        bed.ia.ep_set_watermark(bed.ep, 1, 2)
    })
    .changes(Changes::Endpoint),
    case("ep_query", |bed| {
        bed.ia.ep_query(bed.ep, EpFields::all()).map(drop)
    }),
    case("ep_get_status", |bed| {
        bed.ia.ep_get_status(bed.ep).map(drop)
    }),
    case("ep_free", |bed| bed.ia.ep_free(bed.ep)).changes(Changes::Endpoint),
    case("ep_reset", |bed| bed.ia.ep_reset(bed.ep))
        .after(disconnected)
        .changes(Changes::Endpoint),
    case("ep_connect", |bed| {
        bed.ia.ep_connect(bed.fresh, &peer(), Instant::ZERO)
    }),
    case("ep_disconnect", |bed| {
        bed.ia.ep_disconnect(bed.ep, CloseFlags::Abrupt)
    })
    .changes(Changes::Endpoint),
    case("ep_disconnect graceful", |bed| {
        bed.ia.ep_disconnect(bed.ep, CloseFlags::Graceful)
    })
    .changes(Changes::Endpoint),
    case("cr_accept", |bed| {
        bed.ia.cr_accept(bed.cr, Some(bed.fresh), b"")
    }),
    case("cr_reject", |bed| bed.ia.cr_reject(bed.cr, b"")),
    case("psp_create", |bed| {
        bed.ia
            .psp_create(8, bed.connections, PspFlags::Provider)
            .map(drop)
    }),
    case("psp_free", |bed| bed.ia.psp_free(bed.psp)),
    case("rsp_create", |bed| {
        bed.ia
            .rsp_create(9, Some(bed.fresh), bed.connections)
            .map(drop)
    }),
    case("post_send", |bed| {
        bed.ia.post_send(bed.ep, &[bed.segment], 9, NOTHING)
    }),
    case("post_recv", |bed| {
        bed.ia.post_recv(bed.ep, &[bed.segment], 9, NOTHING)
    }),
    case("post_rdma_write", |bed| {
        bed.ia
            .post_rdma_write(bed.ep, &[bed.segment], 9, &write(bed), NOTHING)
    }),
    case("post_rdma_read", |bed| {
        bed.ia
            .post_rdma_read(bed.ep, &[bed.segment], 9, &write(bed), NOTHING)
    }),
    case("post_extended", |bed| {
        let operation = Extended::FetchAndAdd { add: 1 };
        bed.ia
            .post_extended(bed.ep, operation, &[bed.segment], 9, &write(bed), NOTHING)
    }),
    case("post_batch", |bed| {
        let request = BatchRequest {
            operation: BatchOperation::Send,
            segments: &[bed.segment],
            cookie: 9,
            flags: NOTHING,
        };
        bed.ia
            .post_batch(bed.ep, &[request; 2])
            .map_err(|refused| refused.error)
    }),
    case("post_recv_batch", |bed| {
        let receive = BatchReceive {
            segments: &[bed.segment],
            cookie: 9,
            flags: NOTHING,
        };
        bed.ia
            .post_recv_batch(bed.ep, &[receive; 2])
            .map_err(|refused| refused.error)
    }),
    case("lmr_sync", |bed| {
        bed.ia.lmr_sync_rdma_read(&[bed.segment])?;
        bed.ia.lmr_sync_rdma_write(&[bed.segment])
    }),
    case("evd_resize of the adapter's own", |bed| {
        bed.ia.evd_resize(bed.ia.async_evd, 8)
    }),
    case("evd_set_unwaitable", |bed| {
        bed.ia.evd_set_unwaitable(bed.software)
    }),
    case("evd_wait", |bed| {
        let wait = bed.ia.evd_wait(bed.software, 1)?;
        drop(wait);
        Ok(())
    })
    .changes(Changes::Software),
    case("ep_dup_connect", |bed| {
        let (timeout, quality) = (TIMEOUT_INFINITE, QualityOfService::BEST_EFFORT);
        bed.ia
            .ep_dup_connect(bed.fresh, bed.other, timeout, b"", quality, Instant::ZERO)
    }),
    case("cr_query", |bed| {
        bed.ia.cr_query(bed.cr, CrFields::all()).map(drop)
    }),
    case("cr_handoff", |bed| bed.ia.cr_handoff(bed.cr, 7)),
    case("psp_create_any", |bed| {
        bed.ia
            .psp_create_any(bed.connections, PspFlags::Consumer)
            .map(drop)
    }),
    case("ia_close", |bed| bed.ia.shut(CloseFlags::Abrupt).map(drop)).changes(Changes::Everything),
    progress("progress, disconnected", |bed| {
        let queue_pair = bed.ep.handle().to_raw();
        bed.device
            .push_control(ControlEvent::Disconnected { queue_pair });
    })
    .changes(Changes::Endpoint),
    progress("progress, completions", |bed| {
        let queue = bed.data.slot().get();
        bed.device.push_control(ControlEvent::Completions { queue });
    }),
    progress("progress, request", |bed| {
        bed.device.push_control(ControlEvent::ConnectionRequest {
            listener: bed.psp.handle().to_raw(),
            request: RequestKey(2),
            remote: PEER,
            remote_port: 1,
            local: PEER,
            private_data: PrivateData::new(),
        });
    }),
    progress("progress, established", |bed| {
        bed.device.push_control(ControlEvent::Established {
            queue_pair: bed.fresh.handle().to_raw(),
            private_data: PrivateData::new(),
        });
    })
    .after(connecting),
    case("progress, deadline", |bed| {
        let param = ConnectParam {
            timeout: 1,
            ..peer()
        };
        bed.ia.ep_connect(bed.fresh, &param, Instant::ZERO)?;
        bed.ia.progress(Instant::from_micros(2));
        bed.ia.progress(Instant::from_micros(2));
        let state = bed.ia.ep_get_status(bed.fresh)?.state;
        assert_eq!(state, EndpointState::Disconnected);
        Ok(())
    }),
    case("progress, drain", |bed| {
        bed.ia.ep_disconnect(bed.ep, CloseFlags::Graceful)?;
        bed.ia.progress(Instant::ZERO);
        Ok(())
    })
    .changes(Changes::Endpoint),
];
