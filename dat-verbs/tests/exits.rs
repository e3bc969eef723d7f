//! Programs that exit without destroying their objects, and such as are stopped: two processes.

#![expect(unsafe_code, reason = "the library is called as from C")]

mod common;

use std::env;
use std::ffi::{c_int, c_void};
use std::io::BufReader;
use std::mem::zeroed;
use std::process::{Child, Command, Stdio, exit};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use common::*;

/// Variable with the role of a process of a test.
const ROLE: &str = "DAT_TEST_ROLE";
/// Messages, and the bytes of each: more than leave at once.
const MESSAGES: usize = 8;
const LENGTH: usize = 1 << 20;
/// Longest wait for an event.
const WAIT: c_int = 30_000;

/// Runs a test of this program alone in a role; the answer goes to the parent.
fn process(test: &str, role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, role);
    command
}

/// Acts as the role of this process says: as both sides, by each way, if it has none.
fn play(test: &str, receive: fn(&mut Peer), send: fn(&mut Peer)) {
    match env::var(ROLE).ok().as_deref() {
        None => {
            for way in ["packets", "local", "any"] {
                let status = process(test, "receiver")
                    .env("DAT_VERBS_PATH", way)
                    .status();
                assert!(status.expect("a process").success(), "{way}");
            }
        }
        Some("receiver") => {
            let mut child = process(test, "sender")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process");
            let from = child.stdout.take().expect("a pipe");
            let to = child.stdin.take().expect("a pipe");
            receive(&mut Peer {
                from: Box::new(BufReader::new(from)),
                to: Box::new(to),
                child: Some(child),
            });
        }
        Some(_) => send(&mut Peer {
            from: Box::new(BufReader::new(std::io::stdin())),
            to: Box::new(std::io::stdout()),
            child: None,
        }),
    }
}

/// The other process.
struct Peer {
    from: Box<dyn std::io::BufRead>,
    to: Box<dyn std::io::Write>,
    child: Option<Child>,
}

impl Peer {
    fn tell(&mut self, number: u32) {
        writeln!(self.to, "number {number}").expect("a pipe");
        self.to.flush().expect("a pipe");
    }

    /// Reads the next number, past what the harness writes.
    fn ask(&mut self) -> u32 {
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).expect("a pipe"), 0);
            if let Some((_, number)) = line.trim_end().split_once("number ") {
                return number.parse().expect("a number");
            }
        }
    }

    fn end(&mut self) {
        let child = self.child.as_mut().expect("a process");
        assert!(child.wait().expect("its end").success());
    }
}

/// Memory and a completion queue.
struct Side {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    mr: *mut ibv_mr,
    bytes: &'static mut [u8],
}

impl Side {
    fn new(context: *mut ibv_context, pd: *mut ibv_pd) -> Self {
        let cq = ibv_create_cq(context, 64, null_mut(), null_mut(), 0);
        let bytes = vec![7_u8; LENGTH].leak();
        let mr = ibv_reg_mr(pd, bytes.as_mut_ptr().cast(), LENGTH, ACCESS as c_int);
        assert!(!(cq.is_null() || mr.is_null()), "errno {}", errno());
        Self {
            context,
            pd,
            cq,
            mr,
            bytes,
        }
    }

    fn segment(&self) -> ibv_sge {
        ibv_sge {
            addr: self.bytes.as_ptr() as u64,
            length: LENGTH as u32,
            // SAFETY: a live region.
            lkey: unsafe { (*self.mr).lkey },
        }
    }

    /// Posts all messages.
    fn send(&self, pair: *mut ibv_qp, count: usize) {
        let mut segment = self.segment();
        for _ in 0..count {
            // SAFETY: numbers and pointers.
            let mut request: ibv_send_wr = unsafe { zeroed() };
            (request.sg_list, request.num_sge) = (&raw mut segment, 1);
            request.opcode = IBV_WR_SEND;
            let mut bad = null_mut();
            // SAFETY: a live queue pair, and its device's function.
            let posted = unsafe {
                let post = (*self.context).ops.post_send.expect("a function");
                post(pair, &raw mut request, &raw mut bad)
            };
            assert_eq!(posted, 0);
        }
    }

    /// Posts receives for all messages.
    fn receive(&self, pair: *mut ibv_qp) {
        let mut segment = self.segment();
        for _ in 0..MESSAGES {
            let mut receive = ibv_recv_wr {
                wr_id: 0,
                next: null_mut(),
                sg_list: &raw mut segment,
                num_sge: 1,
            };
            let mut bad = null_mut();
            // SAFETY: a live queue pair, and its device's function.
            let posted = unsafe {
                let post = (*self.context).ops.post_recv.expect("a function");
                post(pair, &raw mut receive, &raw mut bad)
            };
            assert_eq!(posted, 0);
        }
    }

    /// Takes a completion; returns false if there is none.
    fn poll(&self, to: &mut ibv_wc) -> bool {
        // SAFETY: a live queue, and its device's function.
        let taken = unsafe {
            let poll = (*self.context).ops.poll_cq.expect("a function");
            poll(self.cq, 1, to)
        };
        assert!(taken >= 0);
        taken == 1
    }

    /// Waits for completions; returns their statuses.
    fn statuses(&self, count: usize) -> Vec<ibv_wc_status> {
        let end = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while all.len() < count {
            assert!(Instant::now() < end, "{} of {count} completions", all.len());
            // SAFETY: numbers.
            let mut done: ibv_wc = unsafe { zeroed() };
            if self.poll(&mut done) {
                all.push(done.status);
            }
        }
        all
    }

    /// Makes a queue pair; returns the QPN of that of `peer`, too.
    fn pair(&self, peer: &mut Peer) -> (*mut ibv_qp, u32) {
        let pair = ibv_create_qp(self.pd, &mut wanted(self.cq, null_mut()));
        // SAFETY: a live queue pair.
        peer.tell(unsafe { (*pair).qp_num });
        (pair, peer.ask())
    }

    /// Leads a queue pair to RTS.
    fn lead(&self, pair: *mut ibv_qp, peer_qpn: u32) {
        for (mut attr, mask) in changes(self.context, peer_qpn) {
            assert_eq!(ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        }
    }

    /// Makes a queue pair and leads it to RTS, once `peer` has told its QPN.
    fn attach(&self, peer: &mut Peer) -> *mut ibv_qp {
        let (pair, other) = self.pair(peer);
        self.lead(pair, other);
        pair
    }
}

fn own_side() -> Side {
    let context = open();
    Side::new(context, ibv_alloc_pd(context))
}

/// Requests of queue pairs that programs connect themselves arrive; later ones of the peer fail.
///
/// Spec: ROCE-269
#[test]
fn an_exit_loses_no_request() {
    let receive = |peer: &mut Peer| {
        let side = own_side();
        let pair = side.attach(peer);
        side.receive(pair);
        peer.tell(0);
        assert_eq!(side.statuses(MESSAGES), [IBV_WC_SUCCESS; MESSAGES]);
        peer.end();
        side.send(pair, 1);
        assert_eq!(side.statuses(1), [IBV_WC_RETRY_EXC_ERR]);
    };
    let send = |peer: &mut Peer| {
        let side = own_side();
        let pair = side.attach(peer);
        peer.ask();
        side.send(pair, MESSAGES);
        exit(0);
    };
    play("an_exit_loses_no_request", receive, send);
}

/// Both ends of a queue pair go the same way, though one was stopped when the other one asked it
/// for queues, for longer than a set-up takes.
///
/// Spec: ROCE-273
#[test]
fn a_peer_that_is_stopped_agrees_on_the_way() {
    let receive = |peer: &mut Peer| {
        let side = own_side();
        let (pair, other) = side.pair(peer);
        let process = peer.child.as_ref().expect("a process").id().cast_signed();
        // SAFETY: a child that lives.
        let signal = move |signal| assert_eq!(unsafe { libc::kill(process, signal) }, 0);
        signal(libc::SIGSTOP);
        let goes_on = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(6));
            signal(libc::SIGCONT);
        });
        side.lead(pair, other);
        goes_on.join().expect("a thread");
        side.receive(pair);
        peer.tell(0);
        assert_eq!(side.statuses(MESSAGES), [IBV_WC_SUCCESS; MESSAGES]);
        peer.tell(0);
        peer.end();
    };
    let send = |peer: &mut Peer| {
        let side = own_side();
        let pair = side.attach(peer);
        peer.ask();
        side.send(pair, MESSAGES);
        peer.ask();
    };
    play("a_peer_that_is_stopped_agrees_on_the_way", receive, send);
}

/// Waits for the next event of rdma_cm, and acknowledges it.
fn next(channel: *mut rdma_event_channel) -> (rdma_cm_event_type, *mut rdma_cm_id) {
    let mut poll = libc::pollfd {
        // SAFETY: a live channel.
        fd: unsafe { (*channel).fd },
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry is valid.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, WAIT) }, 1, "no event");
    let mut event = null_mut();
    assert_eq!(rdma_get_cm_event(channel, &raw mut event), 0);
    // SAFETY: a live event.
    let told = unsafe { ((*event).event, (*event).id) };
    assert_eq!(rdma_ack_cm_event(event), 0);
    told
}

/// Makes the queue pair of an identifier.
fn side_of(id: *mut rdma_cm_id) -> (Side, *mut ibv_qp) {
    // SAFETY: a live identifier, which has a device.
    let (context, pd) = unsafe { ((*id).verbs, (*id).pd) };
    let side = Side::new(context, pd);
    let made = rdma_create_qp(id, pd, &mut wanted(side.cq, null_mut()));
    assert_eq!(made, 0, "errno {}", errno());
    // SAFETY: as above, with a queue pair.
    (side, unsafe { (*id).qp })
}

/// The peer of a connection learns of the exit, after it has got everything.
///
/// Spec: ROCE-269
#[test]
fn an_exit_ends_connections() {
    let receive = |peer: &mut Peer| {
        let channel = rdma_create_event_channel();
        let listener = new_id(channel);
        assert_eq!(rdma_bind_addr(listener, loopback(0)), 0);
        assert_eq!(rdma_listen(listener, 4), 0);
        peer.tell(u16::from_be(rdma_get_src_port(listener)).into());
        let (kind, id) = next(channel);
        assert_eq!(kind, RDMA_CM_EVENT_CONNECT_REQUEST);
        let (side, pair) = side_of(id);
        side.receive(pair);
        assert_eq!(rdma_accept(id, &mut param(b"")), 0);
        assert_eq!(next(channel).0, RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(next(channel), (RDMA_CM_EVENT_DISCONNECTED, id));
        assert_eq!(side.statuses(MESSAGES), [IBV_WC_SUCCESS; MESSAGES]);
        peer.end();
    };
    let send = |peer: &mut Peer| {
        let channel = rdma_create_event_channel();
        let id = new_id(channel);
        let to = loopback(peer.ask() as u16);
        assert_eq!(rdma_resolve_addr(id, null_mut(), to, 1000), 0);
        assert_eq!(next(channel).0, RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!(rdma_resolve_route(id, 1000), 0);
        assert_eq!(next(channel).0, RDMA_CM_EVENT_ROUTE_RESOLVED);
        let (side, pair) = side_of(id);
        assert_eq!(rdma_connect(id, &mut param(b"")), 0);
        assert_eq!(next(channel).0, RDMA_CM_EVENT_ESTABLISHED);
        side.send(pair, MESSAGES);
        exit(0);
    };
    play("an_exit_ends_connections", receive, send);
}

extern "C" fn leave(_: c_int) {
    // SAFETY: as a program in C ends; nothing here waits for its threads.
    unsafe { libc::exit(0) };
}

/// Repeats a call in each of some processes until a signal, whose handler ends the process.
fn leave_amid(test: &str, processes: usize, mut call: impl FnMut()) {
    if env::var_os(ROLE).is_none() {
        for _ in 0..processes {
            let status = process(test, "alone").status();
            assert!(status.expect("a process").success());
        }
        return;
    }
    let bed = Bed::new(no_srq);
    // The process ends as a failure if it hangs.
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        // SAFETY: nothing is left to be done.
        unsafe { libc::_exit(1) };
    });
    let handler = leave as extern "C" fn(c_int);
    // SAFETY: the handler is a function of this type.
    unsafe { libc::signal(libc::SIGALRM, handler as *const c_void as usize) };
    // SAFETY: this thread lives until the process ends.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: as above.
    std::thread::spawn(move || unsafe { libc::pthread_kill(this, libc::SIGALRM) });
    loop {
        bed.arm();
        call();
    }
}

/// A signal that ends the process may have stopped a call that holds a lock.
///
/// Spec: ROCE-269
#[test]
fn an_exit_in_a_call_ends_the_process() {
    leave_amid("an_exit_in_a_call_ends_the_process", 5, || {});
}

/// The same of a call of the C library: the end of the process needs no memory.
///
/// Spec: ROCE-269
#[test]
fn an_exit_in_malloc_ends_the_process() {
    let mut blocks = [null_mut(); 64];
    leave_amid("an_exit_in_malloc_ends_the_process", 20, || {
        for round in 0..4096 {
            let block = &mut blocks[round * 29 % 64];
            // SAFETY: the block is of this allocator, or null.
            unsafe { libc::free(*block) };
            // SAFETY: any number of bytes.
            *block = unsafe { libc::malloc(1500 + round * 7919 % 60_000) };
        }
    });
}
