//! Identifiers, their addresses and events.

use core::ffi::c_int;
use core::net::{SocketAddr, SocketAddrV6};
use core::ptr::null_mut;

use libc::{sockaddr, sockaddr_storage};
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};

use super::refusal;
use crate::boundary::layout::{
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_PS_TCP, RDMA_PS_UDP, ibv_qp_attr, ibv_qp_init_attr,
    rdma_addrinfo, rdma_cm_event,
};
use crate::boundary::{Address, Handle, In, Out, Text, gid_bytes, socket_storage, zeroed};
use crate::completion::{ibv_create_cq, ibv_destroy_cq};
use crate::connection::{
    Event, EventChannel, Id, rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_connect,
    rdma_create_ep, rdma_create_event_channel, rdma_create_id, rdma_create_qp, rdma_destroy_ep,
    rdma_destroy_event_channel, rdma_destroy_id, rdma_destroy_qp, rdma_freeaddrinfo,
    rdma_get_cm_event, rdma_get_dst_port, rdma_get_request, rdma_get_src_port, rdma_getaddrinfo,
    rdma_init_qp_attr, rdma_listen, rdma_migrate_id, rdma_resolve_addr, rdma_resolve_route,
    rdma_set_option,
};
use crate::settings::ADDRESS;
use crate::transfer::{Pair, ibv_query_qp};

const NOWHERE: In<sockaddr> = In::at(core::ptr::null());

fn storage(address: &str) -> sockaddr_storage {
    socket_storage(address.parse().expect("an address"))
}

pub(super) const fn pointer(storage: &sockaddr_storage) -> In<sockaddr> {
    In::at(core::ptr::from_ref(storage).cast())
}

fn channel() -> Handle<EventChannel> {
    let channel = rdma_create_event_channel();
    let own = channel.get().expect("a channel");
    fcntl_setfl(&*own.events, OFlags::NONBLOCK).expect("flags");
    channel
}

/// Makes an identifier; null is for synchronous mode.
pub(super) fn id(channel: Handle<EventChannel>) -> Handle<Id> {
    let mut id = Handle::NULL;
    let made = rdma_create_id(
        channel,
        Out::at(&raw mut id),
        Address(null_mut()),
        RDMA_PS_TCP,
    );
    assert_eq!(made, 0, "{}", Errno::last());
    id
}

/// Takes an event.
fn event(channel: Handle<EventChannel>) -> Result<(Handle<Event>, rdma_cm_event), Errno> {
    let mut event = Handle::NULL;
    match rdma_get_cm_event(channel, Out::at(&raw mut event)) {
        0 => Ok((event, event.read().expect("an event"))),
        failed => Err(refusal(failed)),
    }
}

/// Takes an event, acknowledges it, and returns its kind and status.
fn kind(channel: Handle<EventChannel>) -> Result<(u32, c_int), Errno> {
    let (handle, c) = event(channel)?;
    assert_eq!(rdma_ack_cm_event(handle), 0);
    assert_eq!(refusal(rdma_ack_cm_event(handle)), Errno::EINVAL);
    Ok((c.event, c.status))
}

#[test]
fn an_address_and_a_route_are_resolved() {
    let channel = channel();
    let id = id(channel);
    assert_eq!(kind(channel), Err(Errno::EAGAIN));
    assert_eq!(refusal(rdma_resolve_route(id, 100)), Errno::EINVAL);
    let peer = storage("127.0.0.1:7174");
    assert_eq!(rdma_resolve_addr(id, NOWHERE, pointer(&peer), 100), 0);
    assert_eq!(kind(channel), Ok((RDMA_CM_EVENT_ADDR_RESOLVED, 0)));
    let c = id.read().expect("an identifier");
    assert!(!c.verbs.is_null() && c.port_num == 1);
    assert_eq!(rdma_get_dst_port(id), 7174_u16.to_be());
    assert_ne!(rdma_get_src_port(id), 0);
    assert_eq!(
        refusal(rdma_resolve_addr(id, NOWHERE, pointer(&peer), 100)),
        Errno::EINVAL,
        "it is resolved"
    );
    assert_eq!(rdma_resolve_route(id, 100), 0);
    assert_eq!(kind(channel), Ok((RDMA_CM_EVENT_ROUTE_RESOLVED, 0)));
    let c = id.read().expect("an identifier");
    assert!(c.route.num_paths == 1 && !c.route.path_rec.is_null());
    assert_eq!(rdma_destroy_id(id), 0);
    assert_eq!(refusal(rdma_destroy_id(id)), Errno::EINVAL);
    rdma_destroy_event_channel(channel);
}

#[test]
fn an_address_that_is_not_resolved_is_told_by_an_event() {
    let channel = channel();
    let id = id(channel);
    // A broadcast address: no socket connects to it without asking for that.
    let peer = storage("255.255.255.255:7174");
    assert_eq!(rdma_resolve_addr(id, NOWHERE, pointer(&peer), 100), 0);
    let (told, status) = kind(channel).expect("an event");
    assert_eq!(told, RDMA_CM_EVENT_ADDR_ERROR);
    assert!(status < 0);
    // In synchronous mode, by the call.
    let alone = self::id(Handle::NULL);
    assert_eq!(
        refusal(rdma_resolve_addr(alone, NOWHERE, pointer(&peer), 100)) as c_int,
        -status
    );
    assert_eq!(rdma_destroy_id(alone), 0);
    assert_eq!(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

#[test]
fn calls_of_synchronous_mode_return_with_their_event() {
    let id = id(Handle::NULL);
    let peer = storage("127.0.0.1:7174");
    assert_eq!(rdma_resolve_addr(id, NOWHERE, pointer(&peer), 100), 0);
    assert_eq!(rdma_resolve_route(id, 100), 0);
    let c = id.read().expect("an identifier");
    let named = Handle::<Event>::at(c.event).read();
    assert_eq!(
        named.map(|event| event.event),
        Ok(RDMA_CM_EVENT_ROUTE_RESOLVED)
    );
    assert_eq!(rdma_destroy_id(id), 0);
}

#[test]
fn a_bound_port_belongs_to_one_identifier() {
    let channel = channel();
    let (first, second) = (id(channel), id(channel));
    let any = storage("127.0.0.1:0");
    assert_eq!(rdma_bind_addr(first, pointer(&any)), 0);
    assert!(!first.read().expect("an identifier").verbs.is_null());
    assert_eq!(refusal(rdma_bind_addr(first, pointer(&any))), Errno::EINVAL);
    let port = u16::from_be(rdma_get_src_port(first));
    let same = socket_storage(SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(
        refusal(rdma_bind_addr(second, pointer(&same))),
        Errno::EADDRINUSE
    );
    let stranger = storage("192.0.2.199:0");
    assert_eq!(
        refusal(rdma_bind_addr(second, pointer(&stranger))),
        Errno::ENODEV
    );
    assert_eq!(rdma_destroy_id(first), 0);
    // The child of another test has a copy of the port until it runs its program.
    while rdma_bind_addr(second, pointer(&same)) != 0 {
        assert_eq!(Errno::last(), Errno::EADDRINUSE);
    }
    assert_eq!(rdma_destroy_id(second), 0);
    let all = id(channel);
    assert_eq!(rdma_bind_addr(all, pointer(&storage("0.0.0.0:0"))), 0);
    assert!(all.read().expect("an identifier").verbs.is_null());
    assert_eq!(rdma_destroy_id(all), 0);
    rdma_destroy_event_channel(channel);
}

/// Makes the queue pair of an identifier.
fn make_pair(id: Handle<Id>) {
    let mut attributes: ibv_qp_init_attr = zeroed();
    attributes.qp_type = IBV_QPT_RC;
    let wanted = Out::at(&raw mut attributes);
    assert_eq!(rdma_create_qp(id, Handle::NULL, wanted), 0);
}

/// Asks a peer for a connection; the channel has no other event.
fn ask(clients: Handle<EventChannel>, peer: &sockaddr_storage) -> Handle<Id> {
    let id = id(clients);
    assert_eq!(rdma_resolve_addr(id, NOWHERE, pointer(peer), 100), 0);
    assert_eq!(kind(clients), Ok((RDMA_CM_EVENT_ADDR_RESOLVED, 0)));
    assert_eq!(rdma_resolve_route(id, 100), 0);
    assert_eq!(kind(clients), Ok((RDMA_CM_EVENT_ROUTE_RESOLVED, 0)));
    make_pair(id);
    assert_eq!(rdma_connect(id, In::at(core::ptr::null())), 0);
    id
}

/// Waits for an event of a channel that does not block.
fn awaited(channel: Handle<EventChannel>) -> (Handle<Event>, rdma_cm_event) {
    let own = channel.get().expect("a channel");
    let mut set = [PollFd::new(&*own.events, PollFlags::IN)];
    poll(&mut set, None).expect("a poll");
    event(channel).expect("an event")
}

/// Spec: ROCE-272
#[test]
fn a_port_has_a_listener_for_each_address() {
    let (servers, clients) = (channel(), channel());
    let at = |text: &str, port: u16| storage(&format!("{text}:{port}"));
    let listens = |to: &sockaddr_storage| {
        let id = id(servers);
        assert_eq!(rdma_bind_addr(id, pointer(to)), 0, "{}", Errno::last());
        id
    };
    let first = listens(&at("127.0.0.1", 0));
    let port = u16::from_be(rdma_get_src_port(first));
    // Both are bound before one listens.
    let second = listens(&at("127.0.0.2", port));
    for id in [first, second] {
        assert_eq!(rdma_listen(id, 1), 0, "{}", Errno::last());
    }
    let all = listens(&at("0.0.0.0", port));
    assert_eq!(rdma_listen(all, 1), 0, "{}", Errno::last());
    for (taken, error) in [
        ("127.0.0.1", Errno::EADDRINUSE),
        ("127.0.0.2", Errno::EADDRINUSE),
        ("0.0.0.0", Errno::EADDRNOTAVAIL),
    ] {
        let other = id(servers);
        let refused = rdma_bind_addr(other, pointer(&at(taken, port)));
        assert_eq!(refusal(refused), error, "{taken}");
        assert_eq!(rdma_destroy_id(other), 0);
    }
    let ask = |to: &str| ask(clients, &at(to, port));
    let end = |id| {
        rdma_destroy_qp(id);
        assert_eq!(rdma_destroy_id(id), 0);
    };
    for (to, listener) in [
        ("127.0.0.2", second),
        ("127.0.0.1", first),
        ("127.0.0.3", all),
    ] {
        let id = ask(to);
        let (handle, c) = awaited(servers);
        assert_eq!(c.event, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert!(Handle::<Id>::at(c.listen_id) == listener, "{to}");
        assert_eq!(rdma_ack_cm_event(handle), 0);
        assert_eq!(rdma_destroy_id(Handle::at(c.id)), 0);
        end(id);
        while kind(clients).is_ok() {}
    }
    // Without it, nobody listens at the others.
    assert_eq!(rdma_destroy_id(all), 0);
    let id = ask("127.0.0.3");
    let (handle, c) = awaited(clients);
    assert_eq!(c.event, RDMA_CM_EVENT_REJECTED);
    assert_eq!(rdma_ack_cm_event(handle), 0);
    end(id);
    for id in [first, second] {
        assert_eq!(rdma_destroy_id(id), 0);
    }
    rdma_destroy_event_channel(servers);
    rdma_destroy_event_channel(clients);
}

#[test]
fn an_identifier_takes_its_events_to_another_channel() {
    let (from, to) = (channel(), channel());
    let (id, other) = (id(from), id(from));
    let peer = storage("127.0.0.1:7174");
    for id in [id, other] {
        assert_eq!(rdma_resolve_addr(id, NOWHERE, pointer(&peer), 100), 0);
    }
    assert_eq!(rdma_migrate_id(id, to), 0);
    let (handle, c) = event(to).expect("an event");
    assert!(Handle::<Id>::at(c.id) == id);
    assert_eq!(event(to).err(), Some(Errno::EAGAIN));
    // An identifier ends when its events are acknowledged; those nobody took end with it.
    std::thread::scope(|scope| {
        let end = scope.spawn(move || rdma_destroy_id(id));
        assert_eq!(rdma_ack_cm_event(handle), 0);
        assert_eq!(end.join().expect("the end"), 0);
    });
    assert_eq!(rdma_destroy_id(other), 0);
    assert_eq!(event(from).err(), Some(Errno::EAGAIN));
    rdma_destroy_event_channel(from);
    rdma_destroy_event_channel(to);
}

/// Spec: ROCE-272
#[test]
fn requests_beyond_the_backlog_are_refused() {
    let (servers, clients) = (channel(), channel());
    let listener = id(servers);
    assert_eq!(
        rdma_bind_addr(listener, pointer(&storage("127.0.0.1:0"))),
        0
    );
    assert_eq!(rdma_listen(listener, 1), 0);
    let port = u16::from_be(rdma_get_src_port(listener));
    let peer = socket_storage(SocketAddr::from(([127, 0, 0, 1], port)));
    let ask = || ask(clients, &peer);
    let taken = |channel, expected| {
        let (handle, c) = awaited(channel);
        assert_eq!((c.event, rdma_ack_cm_event(handle)), (expected, 0));
        Handle::<Id>::at(c.id)
    };
    let first = ask();
    let own = servers.get().expect("a channel");
    poll(&mut [PollFd::new(&*own.events, PollFlags::IN)], None).expect("a poll");
    let second = ask();
    assert!(taken(clients, RDMA_CM_EVENT_REJECTED) == second);
    let request = taken(servers, RDMA_CM_EVENT_CONNECT_REQUEST);
    // The place is free again.
    let third = ask();
    let other = taken(servers, RDMA_CM_EVENT_CONNECT_REQUEST);
    for id in [request, other, listener] {
        assert_eq!(rdma_destroy_id(id), 0);
    }
    for id in [first, second, third] {
        rdma_destroy_qp(id);
        assert_eq!(rdma_destroy_id(id), 0);
    }
    rdma_destroy_event_channel(servers);
    rdma_destroy_event_channel(clients);
}

#[test]
fn only_what_is_supported_is_made_and_set() {
    let channel = channel();
    let mut none = Handle::NULL;
    let to = Out::at(&raw mut none);
    let context = Address(null_mut());
    assert_eq!(
        refusal(rdma_create_id(channel, to, context, RDMA_PS_UDP)),
        Errno::EOPNOTSUPP
    );
    let nothing: Out<Handle<Id>> = Out::at(null_mut());
    assert_eq!(
        refusal(rdma_create_id(channel, nothing, context, RDMA_PS_TCP)),
        Errno::EINVAL
    );
    let id = id(channel);
    let number = 1_i32;
    let value: In<u8> = In::at((&raw const number).cast());
    for option in 0..=3 {
        let length = if option == 1 || option == 2 { 4 } else { 1 };
        assert_eq!(rdma_set_option(id, 0, option, value, length), 0);
        let refused = rdma_set_option(id, 0, option, value, 2);
        assert_eq!(refusal(refused), Errno::EINVAL, "{option}");
    }
    for (level, option) in [(0, 4), (1, 1)] {
        let refused = rdma_set_option(id, level, option, value, 4);
        assert_eq!(refusal(refused), Errno::EOPNOTSUPP);
    }
    assert_eq!(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

#[test]
fn names_are_resolved() {
    let ask = |hints: Option<&rdma_addrinfo>| {
        let hints = In::at(hints.map_or(core::ptr::null(), core::ptr::from_ref));
        let mut info = Handle::NULL;
        let (node, service) = (Text::of(c"127.0.0.1"), Text::of(c"7174"));
        assert_eq!(
            rdma_getaddrinfo(node, service, hints, Out::at(&raw mut info)),
            0
        );
        let c = info.read().expect("an answer");
        (info, c)
    };
    let (info, c) = ask(None);
    let expected: SocketAddr = "127.0.0.1:7174".parse().expect("an address");
    assert_eq!(In::at(c.ai_dst_addr).address(), Ok(Some(expected)));
    assert_eq!((c.ai_port_space, c.ai_qp_type), (0x106, 2));
    assert!(c.ai_src_addr.is_null());
    rdma_freeaddrinfo(info);
    let mut hints: rdma_addrinfo = zeroed();
    hints.ai_flags = 1;
    let (info, c) = ask(Some(&hints));
    assert_eq!(In::at(c.ai_src_addr).address(), Ok(Some(expected)));
    assert!(c.ai_dst_addr.is_null());
    rdma_freeaddrinfo(info);
    let mut info = Handle::NULL;
    let to = Out::at(&raw mut info);
    let failed = rdma_getaddrinfo(Text::NONE, Text::NONE, In::at(core::ptr::null()), to);
    assert_eq!(refusal(failed), Errno::EINVAL);
    hints.ai_flags = 2;
    let failed = rdma_getaddrinfo(
        Text::of(c"no address"),
        Text::NONE,
        In::at(&raw const hints),
        to,
    );
    assert_eq!(failed, libc::EAI_NONAME);
}

#[test]
fn an_endpoint_has_its_address_and_route() {
    let ask = |flags| {
        let mut hints: rdma_addrinfo = zeroed();
        hints.ai_flags = flags;
        hints.ai_port_space = RDMA_PS_TCP.cast_signed();
        let mut info = Handle::NULL;
        let to = Out::at(&raw mut info);
        let hints = In::at(&raw const hints);
        assert_eq!(
            rdma_getaddrinfo(Text::of(c"127.0.0.1"), Text::NONE, hints, to),
            0
        );
        info
    };
    let none: Out<ibv_qp_init_attr> = Out::at(core::ptr::null_mut());
    for (flags, is_resolved) in [(0, true), (1, false)] {
        let info = ask(flags);
        let mut id = Handle::NULL;
        let to = Out::at(&raw mut id);
        let answer: *const rdma_addrinfo = info.pointer();
        assert_eq!(rdma_create_ep(to, In::at(answer), Handle::NULL, none), 0);
        let c = id.read().expect("an identifier");
        assert_eq!(c.route.num_paths == 1, is_resolved);
        assert!(!c.verbs.is_null() && rdma_get_src_port(id) != 0);
        rdma_destroy_ep(id);
        assert!(id.get().is_err());
        // A listening one gives its requests such queue pairs.
        let mut attributes: ibv_qp_init_attr = zeroed();
        let wanted = Out::at(&raw mut attributes);
        let answer = In::at(answer);
        assert_eq!(rdma_create_ep(to, answer, Handle::NULL, wanted), 0);
        let c = id.read().expect("an identifier");
        assert_eq!(c.qp.is_null(), !is_resolved);
        assert_eq!(attributes.send_cq.is_null(), !is_resolved);
        rdma_destroy_ep(id);
        assert!(id.get().is_err());
        rdma_freeaddrinfo(info);
    }
    let nothing = In::at(core::ptr::null());
    let mut id = Handle::NULL;
    let refused = rdma_create_ep(Out::at(&raw mut id), nothing, Handle::NULL, none);
    assert_eq!(refusal(refused), Errno::EINVAL);
}

/// Runs a test of this program alone, with few descriptors; returns true in that process.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "DAT_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let status = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, test)
        .status();
    assert!(status.expect("a process").success());
    false
}

#[test]
fn without_descriptors_nothing_is_left_behind() {
    if !is_alone("tests::connection::without_descriptors_nothing_is_left_behind") {
        return;
    }
    let all = || -> Vec<std::fs::File> {
        core::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
    };
    let listener = id(Handle::NULL);
    assert_eq!(
        rdma_bind_addr(listener, pointer(&storage("127.0.0.1:0"))),
        0
    );
    assert_eq!(rdma_listen(listener, 1), 0);
    let clients = channel();
    let client = id(clients);
    let port = u16::from_be(rdma_get_src_port(listener));
    let peer = socket_storage(SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(rdma_resolve_addr(client, NOWHERE, pointer(&peer), 100), 0);
    assert_eq!(kind(clients), Ok((RDMA_CM_EVENT_ADDR_RESOLVED, 0)));
    assert_eq!(rdma_resolve_route(client, 100), 0);
    assert_eq!(kind(clients), Ok((RDMA_CM_EVENT_ROUTE_RESOLVED, 0)));
    // The next number of a completion queue tells how many were made.
    let context = Handle::at(client.read().expect("an identifier").verbs);
    let number = || {
        let queue = ibv_create_cq(context, 1, Address(null_mut()), Handle::NULL, 0);
        let number = queue.read().expect("a queue").handle;
        assert_eq!(ibv_destroy_cq(queue), 0);
        number
    };
    let mut attributes: ibv_qp_init_attr = zeroed();
    attributes.qp_type = IBV_QPT_RC;
    let wanted = Out::at(&raw mut attributes);
    let before = number();
    let taken = all();
    let refused = rdma_create_qp(client, Handle::NULL, wanted);
    assert_eq!(refusal(refused), Errno::EMFILE);
    drop(taken);
    assert_eq!(number(), before + 1);
    assert_eq!(rdma_create_qp(client, Handle::NULL, wanted), 0);
    assert_eq!(rdma_connect(client, In::at(core::ptr::null())), 0);
    let requests = Handle::<EventChannel>::at(listener.read().expect("an identifier").channel);
    let own = requests.get().expect("a channel");
    poll(&mut [PollFd::new(&*own.events, PollFlags::IN)], None).expect("a poll");
    let taken = all();
    let mut request = Handle::NULL;
    let refused = rdma_get_request(listener, Out::at(&raw mut request));
    assert_eq!(refusal(refused), Errno::EMFILE);
    drop(taken);
    let (handle, c) = awaited(clients);
    assert_eq!(c.event, RDMA_CM_EVENT_REJECTED);
    assert_eq!(rdma_ack_cm_event(handle), 0);
    // It waits for no event.
    assert_eq!(rdma_destroy_id(listener), 0);
    rdma_destroy_qp(client);
    assert_eq!(rdma_destroy_id(client), 0);
    rdma_destroy_event_channel(clients);
}

/// A queue pair that rdma_cm connects tells the address of its peer and its time-out, as the
/// attributes of its identifier do.
///
/// Spec: ROCE-272
#[test]
fn a_connected_pair_tells_its_peer() {
    let (servers, clients) = (channel(), channel());
    let listener = id(servers);
    assert_eq!(
        rdma_bind_addr(listener, pointer(&storage("127.0.0.4:0"))),
        0
    );
    assert_eq!(rdma_listen(listener, 1), 0, "{}", Errno::last());
    let port = u16::from_be(rdma_get_src_port(listener));
    let client = ask(clients, &storage(&format!("127.0.0.4:{port}")));
    let (handle, c) = awaited(servers);
    assert_eq!(c.event, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(rdma_ack_cm_event(handle), 0);
    let server = Handle::<Id>::at(c.id);
    make_pair(server);
    assert_eq!(rdma_accept(server, In::at(core::ptr::null())), 0);
    for channel in [clients, servers] {
        let (handle, c) = awaited(channel);
        assert_eq!(c.event, RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(rdma_ack_cm_event(handle), 0);
    }
    for (id, peer) in [(client, Some(4)), (server, None)] {
        let pair = Handle::<Pair>::at(id.read().expect("an identifier").qp);
        let (mut has, mut init): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
        let (to, init) = (Out::at(&raw mut has), Out::at(&raw mut init));
        assert_eq!(ibv_query_qp(pair, to, 0, init), 0);
        let told = |state| {
            let (mut told, mut mask): (ibv_qp_attr, c_int) = (zeroed(), 0);
            told.qp_state = state;
            let (to, mask) = (Out::at(&raw mut told), Out::at(&raw mut mask));
            assert_eq!(rdma_init_qp_attr(id, to, mask), 0);
            told
        };
        let vectors = [has.ah_attr, told(IBV_QPS_RTR).ah_attr].map(|vector| {
            let grh = vector.grh;
            assert_eq!((vector.is_global, vector.port_num, vector.dlid), (1, 1, 0));
            (gid_bytes(grh.dgid), grh.sgid_index, grh.hop_limit)
        });
        assert_eq!(vectors[0], vectors[1]);
        let (gid, _, hops) = vectors[0];
        assert_eq!(
            (&gid[..13], hops),
            (&[&[0; 10][..], &[0xFF, 0xFF, 127]].concat()[..], 64)
        );
        assert!(peer.is_none_or(|peer| gid[15] == peer), "{gid:?}");
        assert_eq!(has.timeout, told(IBV_QPS_RTS).timeout);
        assert_ne!(has.timeout, 0);
    }
    for id in [client, server, listener] {
        rdma_destroy_qp(id);
        assert_eq!(rdma_destroy_id(id), 0);
    }
    while kind(clients).is_ok() || kind(servers).is_ok() {}
    for channel in [servers, clients] {
        rdma_destroy_event_channel(channel);
    }
}

/// Returns a link-local address of this host with its interface, if there is one.
fn link_local() -> Option<SocketAddrV6> {
    let all = nix::ifaddrs::getifaddrs().ok()?;
    let mut all = all.filter_map(|one| one.address?.as_sockaddr_in6().copied());
    let found = all.find(|address| address.ip().is_unicast_link_local())?;
    Some(found.into())
}

/// With a device at all addresses, and with one at this address only.
///
/// Spec: ROCE-272
#[test]
fn a_link_local_address_is_connected_by_its_interface() {
    let Some(mut address) = link_local() else {
        return;
    };
    let has_others = std::env::var_os(ADDRESS).is_none();
    if has_others {
        let text = format!("{}%{}", address.ip(), address.scope_id());
        let test = "tests::connection::a_link_local_address_is_connected_by_its_interface";
        again(test, &[(ADDRESS, &text)]);
    }
    let (servers, clients) = (channel(), channel());
    let [listener, lost] = [servers, clients].map(id);
    let own = socket_storage(address.into());
    let bound = rdma_bind_addr(listener, pointer(&own));
    assert_eq!(bound, 0, "{}", Errno::last());
    assert_eq!(rdma_listen(listener, 1), 0, "{}", Errno::last());
    address.set_port(u16::from_be(rdma_get_src_port(listener)));
    let peer = socket_storage(address.into());
    let client = ask(clients, &peer);
    let c = client.read().expect("an identifier").route.addr;
    let shown = In::at((&raw const c.__bindgen_anon_1).cast()).address();
    let Ok(Some(SocketAddr::V6(shown))) = shown else {
        panic!("{shown:?}");
    };
    assert_eq!(
        (shown.ip(), shown.scope_id()),
        (address.ip(), address.scope_id())
    );
    let (handle, c) = awaited(servers);
    assert_eq!(c.event, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(rdma_ack_cm_event(handle), 0);
    let request = Handle::at(c.id);
    make_pair(request);
    assert_eq!(rdma_accept(request, In::at(core::ptr::null())), 0);
    for channel in [clients, servers] {
        let (handle, c) = awaited(channel);
        assert_eq!(c.event, RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(rdma_ack_cm_event(handle), 0);
    }
    for id in [client, request, listener] {
        rdma_destroy_qp(id);
        assert_eq!(rdma_destroy_id(id), 0);
    }
    // Without its interface, it is refused at once, unless the device has one only.
    while kind(clients).is_ok() {}
    address.set_scope_id(0);
    let nowhere = socket_storage(address.into());
    assert_eq!(rdma_resolve_addr(lost, NOWHERE, pointer(&nowhere), 100), 0);
    let told = match has_others {
        true => (RDMA_CM_EVENT_ADDR_ERROR, -(Errno::EINVAL as c_int)),
        false => (RDMA_CM_EVENT_ADDR_RESOLVED, 0),
    };
    assert_eq!(kind(clients), Ok(told));
    assert_eq!(rdma_destroy_id(lost), 0);
    for channel in [servers, clients] {
        rdma_destroy_event_channel(channel);
    }
}

/// Runs a test in another process with variables of the environment.
fn again(test: &str, variables: &[(&str, &str)]) {
    let status = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .envs(variables.iter().copied())
        .status();
    assert!(status.expect("a process").success(), "{variables:?}");
}

/// Two devices at all addresses have different ports for queue pairs, and one of them may listen at
/// a port. Devices at different addresses may have the same ports.
///
/// Spec: ROCE-261, ROCE-272
#[test]
fn a_port_has_one_process_unless_devices_have_different_addresses() {
    const TEST: &str =
        "tests::connection::a_port_has_one_process_unless_devices_have_different_addresses";
    const PORTS: [&str; 2] = ["DAT_TEST_LISTENS", "DAT_TEST_DEVICE"];
    let known = PORTS.map(|name| std::env::var(name).ok()?.parse().ok());
    let is_everywhere = std::env::var_os(ADDRESS).is_none();
    let channel = channel();
    let id = id(channel);
    let adapter = &id.get().expect("an identifier").adapter;
    if let [Some(listens), Some(other)] = known {
        let bound = rdma_bind_addr(id, pointer(&storage(&format!("0.0.0.0:{listens}"))));
        match is_everywhere {
            true => {
                assert_eq!(refusal(bound), Errno::EADDRNOTAVAIL);
                assert!(!adapter.device.has_port(other));
            }
            false => assert_eq!(bound, 0, "{}", Errno::last()),
        }
        return;
    }
    assert_eq!(rdma_bind_addr(id, pointer(&storage("0.0.0.0:0"))), 0);
    assert_eq!(rdma_listen(id, 1), 0);
    let listens = u16::from_be(rdma_get_src_port(id)).to_string();
    let device = (61_000..=u16::MAX).find(|port| adapter.device.has_port(*port));
    let device = device.expect("a port").to_string();
    let mut variables = vec![(PORTS[0], &*listens), (PORTS[1], &device)];
    if is_everywhere {
        again(TEST, &variables);
        again(TEST, &[(ADDRESS, "127.0.0.8")]);
    } else {
        variables.push((ADDRESS, "127.0.0.9"));
        again(TEST, &variables);
    }
    assert_eq!(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}
