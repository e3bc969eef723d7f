//! The counted calls; each row is named after its call.

use std::fmt::Display;
use std::task::{Poll, Waker};

use dat_core::Result;
use dat_core::event::{ConnectionEventKind, EvdWait, Event, ThreadWait};
use dat_core::flags::{
    CloseFlags, CnoFields, CompletionFlags, EpFields, EvdFields, EvdFlags, IaFields, LmrFields,
    MemoryPrivileges, ProviderFields, PspFields, PzFields, RmrFields, RspFields, SrqFields,
};
use dat_core::sync::HostLock;
use dat_core::time::Instant;

use backend_mock::MockBackend;

use crate::count::Counter;
use crate::world::{SHARED_RECEIVES, World};

type Wait<'w> = EvdWait<'w, 'static, MockBackend, HostLock>;

/// Counts all calls but the close.
pub(crate) fn count(world: &World, counter: &Counter) {
    counter.start("mock");
    objects(world, counter);
    shared_queues(world, counter);
    connections(world, counter);
    messages(world, counter);
    waits(world, counter);
    counter.stop("mock");
}

/// Counts create, query and free of one kind of object.
fn object<T: Copy, Q>(
    counter: &Counter,
    kind: impl Display,
    create: impl Fn() -> Result<T>,
    query: impl Fn(T) -> Result<Q>,
    free: impl Fn(T) -> Result<()>,
) {
    let mut made = Vec::new();
    counter.row(
        &format!("{kind}_create"),
        || {},
        |()| create(),
        |object| made.push(object.expect("there is room")),
    );
    counter.row(
        &format!("{kind}_query"),
        || made[0],
        query,
        |answer| assert!(answer.is_ok()),
    );
    counter.row(
        &format!("{kind}_free"),
        || made.pop().expect("one for each call"),
        free,
        |freed| assert_eq!(freed, Ok(())),
    );
}

fn objects(world: &World, counter: &Counter) {
    let side = &world.near;
    let ia = &side.ia;
    counter.row(
        "ia_query",
        || {},
        |()| ia.ia_query(IaFields::all(), ProviderFields::all()),
        |answer| assert!(answer.is_ok()),
    );
    object(
        counter,
        "ep",
        || side.endpoint(),
        |ep| ia.ep_query(ep, EpFields::all()),
        |ep| ia.ep_free(ep),
    );
    object(
        counter,
        "evd",
        || side.dispatcher(),
        |evd| ia.evd_query(evd, EvdFields::all()),
        |evd| ia.evd_free(evd),
    );
    object(
        counter,
        "cno",
        || side.notification_object(),
        |cno| ia.cno_query(cno, CnoFields::all()),
        |cno| ia.cno_free(cno),
    );
    object(
        counter,
        "pz",
        || ia.pz_create(),
        |pz| ia.pz_query(pz, PzFields::all()),
        |pz| ia.pz_free(pz),
    );
    object(
        counter,
        "lmr",
        || side.region(),
        |lmr| ia.lmr_query(lmr, LmrFields::all()),
        |lmr| ia.lmr_free(lmr),
    );
    object(
        counter,
        "rmr",
        || side.window(),
        |rmr| ia.rmr_query(rmr, RmrFields::all()),
        |rmr| ia.rmr_free(rmr),
    );
    object(
        counter,
        "srq",
        || side.shared_queue(),
        |srq| ia.srq_query(srq, SrqFields::all()),
        |srq| ia.srq_free(srq),
    );
    object(
        counter,
        "psp",
        || side.service_point(),
        |psp| ia.psp_query(psp, PspFields::all()),
        |psp| ia.psp_free(psp),
    );
    object(
        counter,
        "rsp",
        || side.reserved_service_point(),
        |rsp| ia.rsp_query(rsp, RspFields::all()),
        |rsp| ia.rsp_free(rsp),
    );
}

/// Counts the calls of a shared queue that two endpoints use.
fn shared_queues(world: &World, counter: &Counter) {
    let side = &world.near;
    let ia = &side.ia;
    let srq = side.shared_queue().expect("a shared queue");
    let users = [0, 1].map(|_| side.endpoint_with(srq).expect("an endpoint"));
    let mut made = Vec::new();
    counter.row(
        "ep_create_with_srq",
        || {},
        |()| side.endpoint_with(srq),
        |ep| made.push(ep.expect("there is room")),
    );
    counter.row(
        "ep_free with a shared queue",
        || made.pop().expect("one for each call"),
        |ep| ia.ep_free(ep),
        |freed| assert_eq!(freed, Ok(())),
    );
    counter.row(
        "srq_query with endpoints",
        || {},
        |()| ia.srq_query(srq, SrqFields::all()),
        |answer| assert!(answer.is_ok()),
    );
    let resize = |number| {
        let resized = ia.srq_resize(srq, number);
        resized.expect("no buffer is posted");
    };
    let larger = 2 * SHARED_RECEIVES;
    counter.row(
        "srq_resize to more",
        || larger,
        resize,
        |()| resize(SHARED_RECEIVES),
    );
    counter.row(
        "srq_resize to fewer",
        || {
            resize(larger);
            SHARED_RECEIVES
        },
        resize,
        drop,
    );
    for ep in users {
        ia.ep_free(ep).expect("it is not connected");
    }
    ia.srq_free(srq).expect("nothing uses it");
}

/// Counts the calls of a connection, from connect to reset.
fn connections(world: &World, counter: &Counter) {
    let (near, far) = (&world.near.ia, &world.far.ia);
    let ends = world.spare;
    let accept = |cr| far.cr_accept(cr, Some(ends.1), b"");
    let established = || {
        world.settle();
        world.expect(ConnectionEventKind::Established);
    };
    let end = || {
        near.ep_disconnect(ends.0, CloseFlags::Graceful)
            .expect("it is connected");
        world.settle();
        world.expect(ConnectionEventKind::Disconnected);
    };
    let reset = || {
        near.ep_reset(ends.0).expect("it is disconnected");
        far.ep_reset(ends.1).expect("it is disconnected");
    };
    counter.row(
        "ep_connect",
        || {},
        |()| world.ask(ends.0),
        |asked| {
            asked.expect("the endpoint can connect");
            world.settle();
            accept(world.request()).expect("the request can be accepted");
            established();
            end();
            reset();
        },
    );
    counter.row(
        "progress with a connection request",
        || {
            world.ask(ends.0).expect("the endpoint can connect");
            world.carry();
        },
        |()| far.progress(world.now()),
        |handled| {
            assert_ne!(handled, 0);
            accept(world.request()).expect("the request can be accepted");
            established();
            end();
            reset();
        },
    );
    counter.row(
        "cr_accept",
        || {
            world.ask(ends.0).expect("the endpoint can connect");
            world.settle();
            world.request()
        },
        accept,
        |accepted| {
            accepted.expect("the request can be accepted");
            established();
            end();
            reset();
        },
    );
    let other = far
        .psp_query(
            world.far.service_point().expect("a service point"),
            PspFields::all(),
        )
        .expect("it listens");
    counter.row(
        "cr_handoff",
        || {
            world.ask(ends.0).expect("the endpoint can connect");
            world.settle();
            world.request()
        },
        |cr| far.cr_handoff(cr, other.qualifier),
        |handed| {
            handed.expect("the other service point has room");
            accept(world.request()).expect("the request can be accepted");
            established();
            end();
            reset();
        },
    );
    counter.row(
        "connect and accept, both sides and the mock",
        || {},
        |()| world.connect(ends),
        |()| {
            end();
            reset();
        },
    );
    counter.row(
        "ep_disconnect, graceful",
        || world.connect(ends),
        |()| near.ep_disconnect(ends.0, CloseFlags::Graceful),
        |ended| {
            assert_eq!(ended, Ok(()));
            world.settle();
            world.expect(ConnectionEventKind::Disconnected);
            reset();
        },
    );
    counter.row(
        "ep_disconnect, graceful, both sides and the mock",
        || world.connect(ends),
        |()| end(),
        |()| reset(),
    );
    counter.row(
        "ep_disconnect, abrupt, both sides and the mock",
        || world.connect(ends),
        |()| {
            near.ep_disconnect(ends.0, CloseFlags::Abrupt)
                .expect("it is connected");
            world.settle();
            world.expect(ConnectionEventKind::Disconnected);
        },
        |()| reset(),
    );
    counter.row(
        "ep_reset",
        || {
            world.connect(ends);
            end();
        },
        |()| near.ep_reset(ends.0),
        |outcome| {
            assert_eq!(outcome, Ok(()));
            far.ep_reset(ends.1).expect("it is disconnected");
        },
    );
}

/// Counts posts, completions and what carries them.
fn messages(world: &World, counter: &Counter) {
    let (near, far) = (&world.near, &world.far);
    let write = || {
        world.write().expect("there is room");
        world.carry();
    };
    counter.row(
        "post_rdma_write",
        || {},
        |()| world.write(),
        |posted| {
            assert_eq!(posted, Ok(()));
            world.carry();
            world.completed(near);
        },
    );
    counter.row(
        "evd_dequeue",
        write,
        |()| near.ia.evd_dequeue(near.data),
        |event| assert!(matches!(event, Ok(Event::Dto(_)))),
    );
    counter.row(
        "evd_dequeue, empty",
        || {},
        |()| near.ia.evd_dequeue(near.data),
        |event| assert!(event.is_err()),
    );
    counter.row(
        "post_recv",
        || {},
        |()| world.receive(),
        |posted| {
            assert_eq!(posted, Ok(()));
            world.send().expect("there is room");
            world.carry();
            world.completed(near);
            world.completed(far);
        },
    );
    counter.row(
        "message, both sides and the mock",
        || {},
        |()| {
            world.receive().expect("there is room");
            world.send().expect("there is room");
            world.carry();
            world.completed(near);
            world.completed(far)
        },
        drop,
    );
    let rmr = near.window().expect("a window");
    counter.row(
        "rmr_bind",
        || {},
        |()| {
            let (segment, flags) = (near.segment(), CompletionFlags::empty());
            let all = MemoryPrivileges::ALL;
            near.ia
                .rmr_bind(rmr, &segment, all, world.active.0, 7, flags)
        },
        |bound| {
            assert!(bound.is_ok());
            world.carry();
            world.completed(near);
        },
    );
    near.ia.rmr_free(rmr).expect("no bind is pending");
    let evd = near.ia.evd_create(8, None, EvdFlags::SOFTWARE);
    let evd = evd.expect("a dispatcher");
    counter.row(
        "evd_post_se and evd_dequeue",
        || {},
        |()| {
            near.ia.evd_post_se(evd, 7).expect("there is room");
            near.ia.evd_dequeue(evd)
        },
        |event| assert!(event.is_ok()),
    );
    near.ia.evd_free(evd).expect("nothing uses it");
}

/// Counts waits and `progress`.
fn waits(world: &World, counter: &Counter) {
    let near = &world.near;
    let write = || {
        world.write().expect("there is room");
        world.carry();
    };
    // A disconnect armed the completion queue, and the writes above have notified.
    world.settle();
    counter.row(
        "progress, nothing to do",
        || {},
        |()| near.ia.progress(world.now()),
        |handled| assert_eq!(handled, 0),
    );
    counter.row(
        "progress with a message",
        || {
            let mut wait = begun(world);
            assert!(poll(&mut wait).is_pending());
            write();
            wait
        },
        |wait| (near.ia.progress(world.now()), wait),
        |(handled, mut wait)| {
            assert_ne!(handled, 0);
            assert!(poll(&mut wait).is_ready());
        },
    );
    counter.row(
        "evd_wait, pending",
        || {},
        |()| {
            let mut wait = begun(world);
            assert!(poll(&mut wait).is_pending());
        },
        drop,
    );
    counter.row(
        "evd_wait, until a message has arrived",
        || {},
        |()| {
            let mut wait = begun(world);
            assert!(poll(&mut wait).is_pending());
            write();
            near.ia.progress(world.now());
            poll(&mut wait)
        },
        |waited| assert!(waited.is_ready()),
    );
    let mut blocking = ThreadWait::new();
    counter.row(
        "evd_wait_until, an event is ready",
        write,
        |()| near.ia.evd_wait_until(near.data, 1, None, &mut blocking),
        |waited| assert!(waited.is_ok()),
    );
    let mut blocking = ThreadWait::new();
    counter.row(
        "evd_wait_until, expired",
        || Some(Instant::ZERO),
        |until| near.ia.evd_wait_until(near.data, 1, until, &mut blocking),
        |waited| assert!(waited.is_err()),
    );
}

fn begun(world: &World) -> Wait<'_> {
    let near = &world.near;
    near.ia.evd_wait(near.data, 1).expect("nobody else waits")
}

fn poll(wait: &mut Wait<'_>) -> Poll<()> {
    let waited = wait.poll(Waker::noop());
    waited.map(|waited| {
        waited.expect("a completion");
    })
}

/// Counts an abrupt close with all objects of the near side, for each object.
pub(crate) fn close(world: &World, counter: &Counter) {
    let ia = &world.near.ia;
    let number: u32 = ia.objects_left().iter().map(|(_, number)| number).sum();
    counter.start("close");
    let closed = counter.once("close, each object", number as usize, || {
        ia.shut(CloseFlags::Abrupt)
    });
    counter.stop("close");
    assert!(closed.is_ok());
}
