//! Children of `fork`: they leave the adapters of their parent alone, and keep none of its ports.
#![cfg(all(feature = "udp", target_os = "linux"))]

#[path = "common/table.rs"]
#[allow(
    unreachable_pub,
    clippy::allow_attributes,
    reason = "other test targets have it in a module"
)]
mod table;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use backend_roce::local::{Dial, Dialled, First, Identity, Label, Listener, PAYLOAD_MAX};
use backend_roce::{RoceBackend, RoceOptions};
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend as _, BackendError, CompletionQueue as _, ConnectRequest, ControlEvent, DeviceFailure,
    QueuePairRequest,
};
use dat_core::event::{ThreadWait, Wait as _};
use dat_core::flags::QualityOfService;
use table::Table;

/// Set in the process that forks, to the address that it connects to.
const ROLE: &str = "FORKING_PROCESS";
/// Set if its adapter is polled.
const POLLED: &str = "FORKING_PROCESS_POLLS";

/// A qualifier, and the port that it claims.
const QUALIFIER: u16 = 20_003;

/// Held by each test: a child of another one has this one's sockets until it begins to run.
static ALONE: Mutex<()> = Mutex::new(());

fn address(number: u8, port: u16) -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::new(Ipv4Addr::new(127, 48 + number, high, low).into(), port)
}

fn open(address: SocketAddr, polled: bool) -> RoceBackend {
    let mut options = RoceOptions::random().unwrap();
    options.connections = 64;
    options.keys = 256;
    options.polled = polled;
    // Half a minute: the other process may wait for a processor.
    options.response_timeout = 19;
    RoceBackend::open(address, options).unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// Forks; the child runs `act` and exits, or is killed after a minute.
#[expect(unsafe_code, reason = "the subject of these tests")]
fn fork(act: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the C library keeps its heap usable in the child, and `act` takes no lock of a thread
    // that the child does not have.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: as above; `alarm` has no other effect.
            unsafe { libc::alarm(60) };
            let code =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).map_or(1, |()| 0);
            std::process::exit(code)
        }
        child => child,
    }
}

#[expect(unsafe_code, reason = "the subject of these tests")]
fn exit_status(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the status is a variable of the stack.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    status
}

/// Uses and drops an adapter in a child.
fn use_in_child(mut device: RoceBackend, mut queue: backend_roce::RoceCompletionQueue) {
    let state = Some(BackendError::State);
    assert_eq!(device.create_domain().err(), state);
    assert_eq!(device.create_completion_queue(7, 4).err(), state);
    assert_eq!(device.listen(1, Some(20_004)).err(), state);
    assert_eq!(device.listen(1, None).err(), state);
    assert_eq!(queue.poll(), Err(DeviceFailure::Broken));
    assert_eq!(device.poll_control(ThreadWait::clock()), None);
    assert_eq!(device.next_deadline(), None);
    assert_eq!(device.counts().packets, 0);
    assert!(device.driver().connection_counts().is_empty());
    let _ = device.ia_attributes();
    let mut wait = device.wait();
    let soon = wait.now();
    wait.wait(Some(soon));
    drop(wait);
    device.destroy_completion_queue(queue);
    drop(device);
    // An adapter of its own works.
    let mut own = open(address(1, 0), false);
    own.create_domain().unwrap();
    own.listen(1, None).unwrap();
}

/// A child uses and drops the adapter of its parent while threads of the parent hold its locks.
#[test]
fn a_child_is_refused_and_does_not_hang() {
    refuse_children(address(2, 0), false);
}

#[test]
fn a_child_of_a_polled_adapter_is_refused_and_does_not_hang() {
    refuse_children(address(5, 0), true);
}

fn refuse_children(own: SocketAddr, polled: bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut device = open(own, polled);
    let claimed = SocketAddr::new(own.ip(), QUALIFIER);
    let (listener, _) = device.listen(1, Some(QUALIFIER.into())).unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let (driver, ends) = (device.driver(), Arc::clone(&ends));
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let _ = driver.connection_counts();
                }
            })
        })
        .collect();
    let mut queue = Some(device.create_completion_queue(0, 4).unwrap());
    let mut device = Some(device);
    for _ in 0..20 {
        let child = fork(|| use_in_child(device.take().unwrap(), queue.take().unwrap()));
        assert_eq!(exit_status(child), 0);
    }
    ends.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().unwrap();
    }
    // The parent has lost nothing.
    let mut device = device.unwrap();
    assert!(UdpSocket::bind(claimed).is_err());
    device.stop_listening(listener);
    UdpSocket::bind(claimed).expect("the port is free again");
    device.create_domain().unwrap();
}

/// The process that forks: it connects, and its child drops the adapter and then waits.
fn forking_process(target: &str) -> ! {
    let target: SocketAddr = target.parse().unwrap();
    let mut device = open(address(3, 0), std::env::var_os(POLLED).is_some());
    println!(
        "at {}",
        device.ia_attributes().ia_address.socket_address().unwrap()
    );
    let domain = device.create_domain().unwrap();
    let queue = device.create_completion_queue(0, 64).unwrap();
    let mut request = QueuePairRequest::new(1, domain, EpAttributes::DEFAULT);
    request.request_queue = Some(0);
    request.receive_queue = Some(0);
    let pair = device.create_queue_pair(&request).unwrap();
    device.listen(1, Some(QUALIFIER.into())).unwrap();
    let request = ConnectRequest {
        address: target.into(),
        qualifier: QUALIFIER.into(),
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
    };
    device.connect(pair.key, &request).unwrap();
    loop {
        let event = device.poll_control(ThreadWait::clock());
        if matches!(event, Some(ControlEvent::Established { .. })) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut objects = Some((device, queue, pair));
    let child = fork(|| {
        let (mut device, queue, pair) = objects.take().unwrap();
        device.disconnect(pair.key, dat_core::backend::DisconnectMode::Abrupt);
        device.destroy_queue_pair(pair.key, pair.send, pair.receive);
        use_in_child(device, queue);
        println!("dropped");
        std::io::stdout().flush().unwrap();
        std::io::stdin().read_line(&mut String::new()).unwrap();
        println!("bye");
    });
    exit_status(child);
    std::process::exit(1)
}

/// A child drops the adapter silently; with the parent gone, the ports are free while the child
/// lives.
#[test]
fn the_end_of_the_parent_frees_its_ports() {
    if let Ok(target) = std::env::var(ROLE) {
        forking_process(&target);
    }
    for polled in [false, true] {
        end_parent(polled);
    }
}

fn end_parent(polled: bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut device = open(address(4, 0), polled);
    let here = device.ia_attributes().ia_address.socket_address().unwrap();
    device.listen(1, Some(QUALIFIER.into())).unwrap();
    let domain = device.create_domain().unwrap();
    let _queue = device.create_completion_queue(0, 64).unwrap();
    let mut request = QueuePairRequest::new(1, domain, EpAttributes::DEFAULT);
    request.request_queue = Some(0);
    request.receive_queue = Some(0);
    let pair = device.create_queue_pair(&request).unwrap();
    let mut parent = Command::new(std::env::current_exe().unwrap());
    if polled {
        parent.env(POLLED, "1");
    }
    let mut parent = parent
        .args([
            "--exact",
            "the_end_of_the_parent_frees_its_ports",
            "--nocapture",
        ])
        .env(ROLE, here.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let mut line = |wanted: &str| {
        let found = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            Some(line.split_once(wanted)?.1.to_owned())
        });
        found.unwrap_or_else(|| panic!("no line with {wanted}"))
    };
    let there: SocketAddr = line("at ").parse().unwrap();
    let mut pending = Some(pair.key);
    loop {
        match device.poll_control(ThreadWait::clock()) {
            Some(ControlEvent::ConnectionRequest { request, .. }) => {
                device
                    .accept(request, pending.take().unwrap(), &[])
                    .unwrap();
            }
            Some(ControlEvent::Established { .. }) => break,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    line("dropped");
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        assert_eq!(device.poll_control(ThreadWait::clock()), None);
        std::thread::sleep(Duration::from_millis(5));
    }
    let taken = |port| UdpSocket::bind(SocketAddr::new(there.ip(), port)).is_err();
    assert!(taken(there.port()) && taken(QUALIFIER));
    let mut stdin = parent.stdin.take().unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(!taken(there.port()) && !taken(QUALIFIER));
    // The child is still there, and ends by itself.
    stdin.write_all(b"\n").unwrap();
    line("bye");
}

/// A child has neither the memory nor the sockets of a pair, and its end of the pair is none.
///
/// Spec: ROCE-222
#[test]
fn a_child_reads_and_writes_no_queue() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let target = address(6, QUALIFIER);
    // It prepares the process for forks.
    let _device = open(address(7, 0), true);
    let now = dat_core::time::Instant::ZERO;
    let identity = Identity::new([1; 16]);
    let mut listener = Listener::new().unwrap();
    listener.add(target).unwrap();
    let mut dial = Dial::new(&identity, target, target, First::Offer, now).unwrap();
    let mut pairs = Table::default();
    listener.accept(&identity, now, &mut pairs);
    let Dialled::Made(pair) = dial.poll(now) else {
        panic!("no pair");
    };
    let label = Label {
        segment: 16,
        kind: 0,
        source_port: 1,
        destination_port: 2,
    };
    assert!(pair.write(label, b"before the fork!"));
    let theirs = pairs.0.pop().unwrap();
    let mut ends = Some((listener, pair, theirs));
    let mut buffer = vec![0; PAYLOAD_MAX];
    let child = fork(|| {
        let (mut listener, pair, theirs) = ends.take().unwrap();
        assert!(!pair.write(label, b"of the child..."));
        pair.ring();
        assert_eq!(theirs.read(&mut buffer), None);
        assert!(theirs.arm() && !theirs.has_records());
        listener.accept(&identity, now, &mut pairs);
        drop((listener, pair, theirs));
    });
    let (listener, pair, theirs) = ends.take().unwrap();
    assert_eq!(exit_status(child), 0);
    // The parent has lost nothing, and nothing came.
    theirs.attend();
    assert!(theirs.read(&mut buffer).is_some());
    assert_eq!(buffer[..16], *b"before the fork!");
    assert_eq!(theirs.read(&mut buffer), None);
    assert!(pair.write(label, b"after the fork!!"));
    assert!(theirs.read(&mut buffer).is_some());
    drop(listener);
    // A child that lives on does not keep the pair, once it runs.
    let child = fork(|| std::thread::sleep(Duration::from_secs(60)));
    drop(pair);
    while !theirs.is_over() {
        theirs.attend();
        std::thread::yield_now();
    }
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    exit_status(child);
}
