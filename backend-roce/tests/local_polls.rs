//! Polls that take packets from queues in memory without a system call.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use backend_roce::PathChoice;
use common::end::{End, QUALIFIER, SLOT, listen, param};
use dat_core::event::{ConnectionEventKind, Event, ThreadWait};
use dat_core::flags::{CompletionFlags, DtoStatus};
use dat_core::memory::RmrTriplet;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Set in the process that polls, to the path of its connection.
const PATH: &str = "LOCAL_POLLS_PATH";

/// Calls of a thread that posts and polls. Another one may hold a lock of the adapter.
const ALLOWED: [libc::c_long; 3] = [
    libc::SYS_futex,
    // It wakes the thread of the adapter, after this one had no processor for a while.
    libc::SYS_write,
    // Where the system keeps the clock to itself.
    libc::SYS_clock_gettime,
];

/// Ends the process at any other system call of this thread.
fn forbid_calls() {
    let rules = ALLOWED.into_iter().map(|call| (call, Vec::new())).collect();
    let machine = std::env::consts::ARCH.try_into().expect("a machine");
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        machine,
    );
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .expect("a filter of system calls");
    seccompiler::apply_filter(&program).expect("filters of system calls");
}

/// Polls until the next event, without calls of the system.
fn poll(end: &End) -> Event {
    loop {
        if let Ok(event) = end.ia.evd_dequeue(end.evd) {
            return event;
        }
    }
}

fn succeeds(end: &End) {
    match poll(end) {
        Event::Dto(done) => assert_eq!(done.status, DtoStatus::Success),
        other => panic!("{other:?}"),
    }
}

/// Writes, reads and sends of some lengths, and as many messages that the peer sends back.
fn exchange(end: &End, remote: &dyn Fn(usize, usize) -> RmrTriplet) {
    let none = CompletionFlags::empty();
    // Short of what fills the queue: its reader rings for room.
    for length in [8, 1000, SLOT] {
        let (local, remote) = (end.local(0, length), remote(0, length));
        for _ in 0..20 {
            let written = end.ia.post_rdma_write(end.ep, &local, 1, &remote, none);
            written.expect("a post");
            let read = end.ia.post_rdma_read(end.ep, &local, 2, &remote, none);
            read.expect("a post");
            (0..2).for_each(|_| succeeds(end));
            // Its receive, and the one of the answer.
            let received = end.ia.post_recv(end.ep, &end.local(1, SLOT), 3, none);
            received.expect("a receive");
            let sent = end.ia.post_send(end.ep, &end.local(0, 8), 4, none);
            sent.expect("a post");
            (0..2).for_each(|_| succeeds(end));
        }
    }
}

/// The peer: an adapter without a thread, which asks for no doorbells, answers each message.
fn answer(far: &End, is_over: &AtomicBool) {
    let none = CompletionFlags::empty();
    let receive = || {
        let received = far.ia.post_recv(far.ep, &far.local(2, SLOT), 5, none);
        received.expect("a receive");
    };
    receive();
    while !is_over.load(Ordering::Relaxed) {
        match far.look() {
            Some(Event::ConnectionRequest { cr, .. }) => {
                let accepted = far.ia.cr_accept(cr, Some(far.ep), &[]);
                accepted.expect("an acceptance");
            }
            Some(Event::Dto(done)) if done.cookie == 5 => {
                receive();
                let sent = far.ia.post_send(far.ep, &far.local(0, 8), 6, none);
                sent.expect("a post");
            }
            _ => {}
        }
    }
}

/// Posts and polls on a thread that no call of the system is allowed to.
fn polls(path: PathChoice) {
    let (address, told) = channel();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let far = End::open_on(131, true, "", path);
            listen(&far, QUALIFIER);
            let target = far.address.socket_address().expect("an address");
            address.send((target, far.remote(0, 0))).expect("the test");
            answer(&far, &is_over);
            std::process::exit(0);
        });
        let near = End::open_on(132, false, "", path);
        let (target, memory) = told.recv().expect("the peer");
        let connected = near
            .ia
            .ep_connect(near.ep, &param(target, QUALIFIER), ThreadWait::clock());
        connected.expect("an attempt");
        let event = loop {
            if let Some(event) = near.look() {
                break event;
            }
        };
        let established = ConnectionEventKind::Established;
        assert!(matches!(event, Event::Connection { kind, .. } if kind == established));
        let remote = |slot: usize, length: usize| RmrTriplet {
            address: memory.address + (slot * SLOT) as u64,
            length: length as u64,
            ..memory
        };
        exchange(&near, &remote);
        forbid_calls();
        exchange(&near, &remote);
        is_over.store(true, Ordering::Relaxed);
        // The end of this thread would need calls: the other one ends the process.
        loop {
            std::hint::spin_loop();
        }
    });
}

/// The process of the test below.
#[test]
fn polling_process() {
    match std::env::var(PATH).as_deref() {
        Ok("local") => polls(PathChoice::Local),
        Ok("packets") => polls(PathChoice::Packets),
        _ => {}
    }
}

fn run(path: &str) -> ExitStatus {
    let program = std::env::current_exe().expect("this program");
    let status = Command::new(program)
        .args(["--exact", "polling_process", "--nocapture"])
        .env(PATH, path)
        .status();
    status.expect("a process")
}

/// A program that polls writes to queues and takes packets from them without a system call.
///
/// Spec: ROCE-235
#[test]
fn polls_of_queues_make_no_system_call() {
    let status = run("local");
    assert!(status.success(), "{status}");
    // Sockets need calls, which the filter finds.
    assert_eq!(run("packets").signal(), Some(libc::SIGSYS));
}
