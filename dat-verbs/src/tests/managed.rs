//! Queue pairs that a program makes itself, and connects by rdma_cm; memory windows.

use core::ffi::c_int;
use core::ptr::null_mut;

use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, poll};

use super::connection::{id as new_id, pointer};
use super::refusal;
use crate::boundary::layout::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_WRITE, IBV_MW_TYPE_1,
    IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WC_BIND_MW,
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_RESOLVED, ibv_mw_bind, ibv_qp_attr, ibv_qp_init_attr, ibv_wc,
    rdma_cm_event, rdma_conn_param,
};
use crate::boundary::{Address, Handle, In, Out, socket_storage, zeroed};
use crate::completion::{Queue, ibv_create_cq, ibv_destroy_cq, poll_cq};
use crate::connection::{
    EventChannel, Id, rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_connect,
    rdma_create_event_channel, rdma_destroy_event_channel, rdma_destroy_id, rdma_disconnect,
    rdma_establish, rdma_get_cm_event, rdma_get_devices, rdma_get_src_port, rdma_init_qp_attr,
    rdma_listen, rdma_reject_ece, rdma_resolve_addr, rdma_resolve_route,
};
use crate::memory::{Domain, ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_reg_mr, ibv_rereg_mr};
use crate::transfer::{
    Pair, alloc_mw, bind_mw, dealloc_mw, ibv_create_qp, ibv_destroy_qp, ibv_modify_qp,
};

fn storage(port: u16) -> libc::sockaddr_storage {
    socket_storage(([127, 0, 0, 1], port).into())
}

/// Waits for an event, which must be of a kind.
fn next(channel: Handle<EventChannel>, kind: u32) -> rdma_cm_event {
    let own = channel.get().expect("a channel");
    poll(&mut [PollFd::new(&*own.events, PollFlags::IN)], None).expect("a poll");
    let mut event = Handle::NULL;
    assert_eq!(rdma_get_cm_event(channel, Out::at(&raw mut event)), 0);
    let c = event.read().expect("an event");
    assert_eq!((c.event, rdma_ack_cm_event(event)), (kind, 0));
    c
}

/// A program with a queue pair for each side of a connection.
struct Program {
    domain: Handle<Domain>,
    queue: Handle<Queue>,
    pairs: [Handle<Pair>; 2],
    channels: [Handle<EventChannel>; 2],
    listener: Handle<Id>,
}

impl Program {
    fn new() -> Self {
        let devices = rdma_get_devices(Out::at(null_mut()));
        let context = Handle::at(crate::boundary::values(&In::at(devices), 1)[0]);
        crate::connection::rdma_free_devices(devices);
        let domain = ibv_alloc_pd(context);
        let queue = ibv_create_cq(context, 16, Address(null_mut()), Handle::NULL, 0);
        let pairs = [(); 2].map(|()| {
            let mut wanted: ibv_qp_init_attr = zeroed();
            (wanted.send_cq, wanted.recv_cq) = (queue.pointer(), queue.pointer());
            wanted.qp_type = IBV_QPT_RC;
            wanted.cap.max_send_wr = 4;
            ibv_create_qp(domain, Out::at(&raw mut wanted))
        });
        let channels = [(); 2].map(|()| rdma_create_event_channel());
        let listener = new_id(channels[1]);
        assert_eq!(rdma_bind_addr(listener, pointer(&storage(0))), 0);
        assert_eq!(rdma_listen(listener, 4), 0);
        Self {
            domain,
            queue,
            pairs,
            channels,
            listener,
        }
    }

    /// Returns the parameters of a connection with a queue pair.
    fn parameters(&self, side: usize) -> rdma_conn_param {
        let mut parameters: rdma_conn_param = zeroed();
        parameters.qp_num = self.pairs[side].read().expect("a pair").qp_base.qp_num;
        (parameters.responder_resources, parameters.initiator_depth) = (3, 2);
        parameters
    }

    /// Asks for a connection; returns the identifiers of both sides.
    fn ask(&self) -> [Handle<Id>; 2] {
        let client = new_id(self.channels[0]);
        self.resolve(client);
        assert_eq!(refusal(rdma_establish(client)), Errno::EINVAL);
        let parameters = self.parameters(0);
        assert_eq!(rdma_connect(client, In::at(&raw const parameters)), 0);
        let c = next(self.channels[1], RDMA_CM_EVENT_CONNECT_REQUEST);
        [client, Handle::at(c.id)]
    }

    /// Resolves the address of the listener, and the route to it.
    fn resolve(&self, client: Handle<Id>) {
        let peer = storage(u16::from_be(rdma_get_src_port(self.listener)));
        let nowhere = In::at(core::ptr::null());
        assert_eq!(rdma_resolve_addr(client, nowhere, pointer(&peer), 100), 0);
        next(self.channels[0], RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!(rdma_resolve_route(client, 100), 0);
        next(self.channels[0], RDMA_CM_EVENT_ROUTE_RESOLVED);
    }

    /// Leads a queue pair to a state by the attributes of an identifier; returns those.
    fn lead(&self, side: usize, id: Handle<Id>, state: u32) -> ibv_qp_attr {
        self.lead_with(side, id, state, |_| ())
    }

    /// As [`lead`](Self::lead), with attributes that the program changes.
    fn lead_with(
        &self,
        side: usize,
        id: Handle<Id>,
        state: u32,
        change: impl FnOnce(&mut ibv_qp_attr),
    ) -> ibv_qp_attr {
        let mut attributes: ibv_qp_attr = zeroed();
        attributes.qp_state = state;
        let mut mask: c_int = 0;
        let (to, known) = (Out::at(&raw mut attributes), Out::at(&raw mut mask));
        assert_eq!(rdma_init_qp_attr(id, to, known), 0, "{state}");
        let told = attributes;
        change(&mut attributes);
        let with = In::at(&raw const attributes);
        assert_eq!(ibv_modify_qp(self.pairs[side], with, mask), 0, "{state}");
        told
    }

    /// Returns the code of the wait of a peer whose message finds no receive.
    fn timer(&self, side: usize) -> u8 {
        let own = self.pairs[side].get().expect("a pair");
        let terms = own.adapter.device.pair_terms(own.qpn);
        terms.expect("a connection").not_ready_timer
    }

    /// Disconnects the first identifier, and ends both.
    fn disconnect(&self, ids: [Handle<Id>; 2]) {
        assert_eq!(rdma_disconnect(ids[0]), 0);
        for channel in self.channels {
            next(channel, RDMA_CM_EVENT_DISCONNECTED);
        }
        for id in ids {
            assert_eq!(rdma_destroy_id(id), 0);
        }
    }

    fn close(self) {
        for pair in self.pairs {
            assert_eq!(ibv_destroy_qp(pair), 0);
        }
        self.close_without_pairs();
    }

    fn close_without_pairs(self) {
        assert_eq!(rdma_destroy_id(self.listener), 0);
        assert_eq!(ibv_destroy_cq(self.queue), 0);
        assert_eq!(ibv_dealloc_pd(self.domain), 0);
        for channel in self.channels {
            rdma_destroy_event_channel(channel);
        }
    }
}

/// Spec: ROCE-272
#[test]
fn a_program_connects_queue_pairs_of_its_own_and_binds_a_window() {
    let program = Program::new();
    let [client, server] = program.ask();
    assert_eq!(rdma_reject_ece(server, In::at(core::ptr::null()), 0), 0);
    let c = next(program.channels[0], RDMA_CM_EVENT_REJECTED);
    assert_ne!(c.status, 28, "the program gave no reason");
    for id in [client, server] {
        assert_eq!(rdma_destroy_id(id), 0);
    }
    // The queue pair is as it was before.
    let [client, server] = program.ask();
    program.lead(1, server, IBV_QPS_INIT);
    let timer = |code| move |c: &mut ibv_qp_attr| c.min_rnr_timer = code;
    let told = program.lead_with(1, server, IBV_QPS_RTR, timer(5));
    assert_eq!(
        told.min_rnr_timer, 20,
        "as the connection is made without the program"
    );
    program.lead(1, server, IBV_QPS_RTS);
    let parameters = program.parameters(1);
    assert_eq!(rdma_accept(server, In::at(&raw const parameters)), 0);
    next(program.channels[0], RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_eq!(program.timer(1), 5);
    program.lead(0, client, IBV_QPS_INIT);
    program.lead_with(0, client, IBV_QPS_RTR, timer(7));
    assert_eq!(program.timer(0), 7);
    let attributes = program.lead(0, client, IBV_QPS_RTS);
    assert_eq!(attributes.max_rd_atomic, 2);
    assert_eq!(rdma_establish(client), 0);
    next(program.channels[1], RDMA_CM_EVENT_ESTABLISHED);
    bind(&program);
    program.disconnect([client, server]);
    program.close();
}

/// As OFA's library of DAT does before it accepts, and programs that make the queue pair by verbs.
///
/// Spec: ROCE-272
#[test]
fn a_program_puts_queue_pairs_into_identifiers() {
    let program = Program::new();
    let [client, former] = [0, 1].map(|side| {
        let id = new_id(program.channels[side]);
        id.change(|c| c.qp = program.pairs[side].pointer());
        id
    });
    program.resolve(client);
    assert_eq!(rdma_connect(client, In::at(core::ptr::null())), 0);
    let c = next(program.channels[1], RDMA_CM_EVENT_CONNECT_REQUEST);
    let server = Handle::<Id>::at(c.id);
    assert_eq!(
        refusal(rdma_accept(server, In::at(core::ptr::null()))),
        Errno::EINVAL,
        "it has no queue pair"
    );
    let pair = former.read().expect("an identifier").qp;
    server.change(|c| c.qp = pair);
    assert_eq!(rdma_accept(server, In::at(core::ptr::null())), 0);
    // The identifier that had it before goes without its connection.
    former.change(|c| c.qp = null_mut());
    assert_eq!(rdma_destroy_id(former), 0);
    for channel in program.channels {
        next(channel, RDMA_CM_EVENT_ESTABLISHED);
    }
    program.disconnect([client, server]);
    program.close();
}

/// Binds a window twice by the first queue pair.
fn bind(program: &Program) {
    let memory = [0_u8; 64];
    let start = Address(memory.as_ptr().cast_mut().cast());
    let all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    let flags = [all, IBV_ACCESS_LOCAL_WRITE].map(u32::cast_signed);
    let regions = flags.map(|flags| ibv_reg_mr(program.domain, start, 64, flags));
    assert!(alloc_mw(program.domain.pointer(), 99).is_null());
    let window = alloc_mw(program.domain.pointer(), IBV_MW_TYPE_1);
    let key = || {
        let c = In::at(window.cast_const()).get().expect("a window");
        c.rkey
    };
    let mut wanted: ibv_mw_bind = zeroed();
    wanted.send_flags = IBV_SEND_SIGNALED;
    wanted.bind_info.addr = start.0 as u64;
    wanted.bind_info.length = 64;
    wanted.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    let pair = program.pairs[0].pointer();
    // No region, and one that windows may not be bound to.
    for region in [Handle::NULL, regions[1]] {
        wanted.bind_info.mr = region.pointer();
        assert_eq!(bind_mw(pair, window, &raw mut wanted), libc::EINVAL);
    }
    wanted.bind_info.mr = regions[0].pointer();
    let mut keys = vec![key()];
    for wr_id in [5, 6] {
        wanted.wr_id = wr_id;
        assert_eq!(bind_mw(pair, window, &raw mut wanted), 0);
        assert!(!keys.contains(&key()));
        keys.push(key());
        let mut wc: ibv_wc = zeroed();
        while poll_cq(program.queue.pointer(), 1, &raw mut wc) == 0 {}
        assert_eq!((wc.status, wc.opcode, wc.wr_id), (0, IBV_WC_BIND_MW, wr_id));
    }
    // The window holds its region as it is.
    let read_only = IBV_ACCESS_MW_BIND.cast_signed();
    for (flags, access) in [(1, 0), (2, 0), (4, read_only)] {
        let changed = ibv_rereg_mr(regions[0], flags, program.domain, start, 64, access);
        assert_eq!((changed, Errno::last()), (-4, Errno::EBUSY), "{flags}");
    }
    assert_eq!(ibv_dereg_mr(regions[0]), libc::EBUSY);
    assert_eq!(dealloc_mw(window), 0);
    assert_eq!(dealloc_mw(window), libc::EINVAL);
    assert_eq!(bind_mw(pair, window, &raw mut wanted), libc::EINVAL);
    assert_eq!(
        ibv_rereg_mr(regions[0], 4, program.domain, start, 64, read_only),
        0
    );
    for region in regions {
        assert_eq!(ibv_dereg_mr(region), 0);
    }
}

/// Its QPN may be that of another queue pair by then.
#[test]
fn an_identifier_leaves_a_queue_pair_that_was_destroyed() {
    let program = Program::new();
    let [client, server] = program.ask();
    let qpn = program.parameters(0).qp_num;
    assert_eq!(client.get().ok().and_then(Id::qpn), Some(qpn));
    assert_eq!(ibv_destroy_qp(program.pairs[0]), 0);
    assert_eq!(client.get().ok().and_then(Id::qpn), None);
    let managed = &client.get().expect("an identifier").adapter.managed;
    managed.add(qpn);
    assert_eq!(
        client.get().ok().and_then(Id::qpn),
        None,
        "it is another one"
    );
    managed.remove(qpn);
    for id in [client, server] {
        assert_eq!(rdma_destroy_id(id), 0);
    }
    assert_eq!(ibv_destroy_qp(program.pairs[1]), 0);
    program.close_without_pairs();
}

/// Its attempt may have ended by then, on the other side.
#[test]
fn a_request_that_is_left_expects_no_queue_pair() {
    let program = Program::new();
    let [client, server] = program.ask();
    program.lead(1, server, IBV_QPS_INIT);
    let attributes = program.lead(1, server, IBV_QPS_RTR);
    assert_eq!(rdma_disconnect(client), 0);
    // It was not yet connected.
    next(program.channels[0], RDMA_CM_EVENT_DISCONNECTED);
    let name = (attributes.dest_qp_num, attributes.rq_psn);
    let adapter = std::sync::Arc::clone(&server.get().expect("an identifier").adapter);
    assert!(adapter.managed.takes(1, name));
    adapter.managed.remove(1);
    for id in [client, server] {
        assert_eq!(rdma_destroy_id(id), 0);
    }
    assert!(!adapter.managed.takes(1, name));
    program.close();
}
