//! Runs: reproducible, waited for, with a thread, driven by polls.

use backend_mock::{Fabric, FabricOptions, Fault, FaultPlan, MockWait, NodeOptions};
use dat_core::backend::{Backend, CompletionQueue, ControlEvent};
use dat_core::event::{Wait, WakeReason};
use dat_core::flags::MemoryPrivileges;
use dat_core::time::Instant;

use crate::support::{Couple, Host, attributes, connect, post_receive};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;

/// Everything that a mixed load leads to, in the order it is seen.
fn trace(options: FabricOptions) -> Vec<String> {
    let mut couple = Couple::new(options);
    let source = couple.near.buffer(256, ALL);
    let target = couple.far.buffer(256, ALL);
    source.count_up(1);
    let made = couple
        .far
        .backend
        .create_shared_receive_queue(5, couple.far.domain, 16, 1);
    let (key, mut queue) = made.unwrap();
    let mut c = couple.near.end(attributes());
    let d = couple.far.shared_end(key);
    connect(&mut couple.near, &c, &mut couple.far, &d);
    for token in 0..8 {
        couple.b.receive(token, &[target.segment(token * 8, 8)]);
        post_receive(
            &mut queue,
            100 + token,
            &[target.segment(64 + token * 8, 8)],
        );
    }
    for token in 0..8 {
        couple.a.send(token, &[source.segment(token * 8, 8)]);
        couple
            .a
            .read(20 + token, &[source.segment(200, 8)], target.remote(0));
        c.send(40 + token, &[source.segment(64, 5)]);
        c.write(60 + token, &[source.segment(0, 32)], target.remote(192));
    }
    let mut trace = Vec::new();
    while couple.fabric.step() {
        let now = couple.fabric.now();
        for host in [&mut couple.near, &mut couple.far] {
            let events = host.control();
            let sent = host.sent();
            let received = host.received();
            if !(events.is_empty() && sent.is_empty() && received.is_empty()) {
                trace.push(format!("{now:?} {events:?} {sent:?} {received:?}"));
            }
        }
    }
    trace.push(format!("{:?}", target.content()));
    // Addresses differ from run to run, keys do not.
    trace.push(format!("{:?}", target.keys));
    trace
}

fn plan() -> FaultPlan {
    let faults = vec![
        Fault::ReorderCompletion {
            adapter: 0,
            queue: 0,
            nth: 3,
        },
        Fault::DelayCompletion {
            adapter: 1,
            queue: 1,
            nth: 2,
            by: 30,
        },
        Fault::LinkDown {
            a: 0,
            b: 1,
            at: 25,
            duration: Some(60),
        },
    ];
    FaultPlan { faults }
}

#[test]
fn seed_and_plan_reproduce_a_run() {
    let mut different = std::collections::BTreeSet::new();
    for seed in 0..8 {
        for faults in [FaultPlan::default(), plan()] {
            let options = FabricOptions {
                seed,
                faults,
                ..FabricOptions::default()
            };
            let first = trace(options.clone());
            assert_eq!(first, trace(options.clone()), "{options:?}");
            different.insert(first);
        }
    }
    assert_eq!(different.len(), 16);
}

#[test]
fn a_wait_steps_the_fabric() {
    let mut couple = Couple::new(FabricOptions::default());
    let mut wait = MockWait::new(&couple.fabric);
    couple.a.write(
        1,
        &[],
        dat_core::backend::RemoteRange { address: 0, key: 0 },
    );
    let mut rounds = 0;
    while couple.near.sent().is_empty() {
        assert_eq!(wait.wait(None), WakeReason::Woken);
        rounds += 1;
    }
    assert!(rounds > 0);
    couple.run();
    assert_eq!(wait.wait(None), WakeReason::Interrupted);
    let until = Instant::from_micros(wait.now().as_micros() + 1000);
    assert_eq!(wait.wait(Some(until)), WakeReason::TimedOut);
    assert_eq!(wait.now(), until);
    assert_eq!(couple.fabric.now(), until);
    wait.waker().wake_by_ref();
    assert_eq!(wait.wait(None), WakeReason::Woken);
    // What is due later than the wait goes on stays.
    couple.a.write(
        2,
        &[],
        dat_core::backend::RemoteRange { address: 0, key: 0 },
    );
    assert_eq!(wait.wait(Some(until)), WakeReason::TimedOut);
    assert_eq!(wait.now(), until);
    assert!(couple.fabric.next_due().is_some());
}

#[test]
fn polls_can_drive_the_fabric() {
    let options = FabricOptions {
        poll_steps: true,
        ..FabricOptions::default()
    };
    let fabric = Fabric::new(options);
    let mut near = Host::new(&fabric, 1);
    let mut far = Host::new(&fabric, 2);
    let mut a = near.end(attributes());
    let b = far.end(attributes());
    far.backend.listen(1, Some(5)).unwrap();
    let request = near.connect_request(far.address, 5, b"");
    near.backend.connect(a.key, &request).unwrap();
    let poll = |host: &mut Host| {
        for _ in 0..100 {
            if let Some(event) = host.backend.poll_control(Instant::ZERO) {
                return event;
            }
        }
        panic!("no event");
    };
    let ControlEvent::ConnectionRequest { request, .. } = poll(&mut far) else {
        panic!("no request");
    };
    far.backend.accept(request, b.key, b"").unwrap();
    while !matches!(poll(&mut near), ControlEvent::Established { .. }) {}
    a.write(
        1,
        &[],
        dat_core::backend::RemoteRange { address: 0, key: 0 },
    );
    let completion = (0..100).find_map(|_| near.requests.poll().unwrap());
    assert_eq!(completion.unwrap().token, 1);
}

#[test]
fn threads_post_and_wait_while_the_fabric_drives_itself() {
    const ROUNDS: u64 = 300;
    for options in [FabricOptions::default(), FabricOptions::immediate()] {
        // However slow the receiving thread is.
        let options = FabricOptions {
            receiver_not_ready_retries: u32::MAX,
            ..options
        };
        let couple = Couple::new(options);
        let fabric = couple.fabric.clone();
        let thread = fabric.spawn_thread().unwrap();
        assert!(fabric.spawn_thread().is_err());
        let Couple {
            mut near,
            mut far,
            mut a,
            mut b,
            ..
        } = couple;
        let source = near.buffer(64, ALL);
        let target = far.buffer(64, ALL);
        let mut far_wait = MockWait::new(&fabric);
        let mut near_wait = MockWait::new(&fabric);
        b.receive(0, &[target.all()]);
        let receiver = std::thread::spawn(move || {
            for round in 0..ROUNDS {
                let completion = loop {
                    if let Some(completion) = far.receives.poll().unwrap() {
                        break completion;
                    }
                    assert_eq!(far_wait.wait(None), WakeReason::Woken);
                };
                assert_eq!((completion.token, completion.length), (round, 64));
                assert_eq!(target.content(), [round as u8; 64]);
                b.receive(round + 1, &[target.all()]);
            }
            (far, b)
        });
        for round in 0..ROUNDS {
            source.fill(round as u8);
            a.send(round, &[source.all()]);
            let completion = loop {
                if let Some(completion) = near.requests.poll().unwrap() {
                    break completion;
                }
                assert_eq!(near_wait.wait(None), WakeReason::Woken);
            };
            assert_eq!(completion.token, round);
            assert_eq!(completion.status, dat_core::flags::DtoStatus::Success);
        }
        receiver.join().unwrap();
        let before = near_wait.now();
        let until = Instant::from_micros(before.as_micros() + 2000);
        while near_wait.wait(Some(until)) == WakeReason::Woken {}
        assert!(near_wait.now() >= until);
        drop(thread);
        // And on it goes by hand.
        drop(fabric.spawn_thread().unwrap());
    }
}

/// Timeouts do not expire while the fabric's thread waits for a processor.
#[test]
fn time_stands_still_while_the_thread_is_late() {
    let fabric = Fabric::new(FabricOptions {
        handshake_timeout: 1000,
        ..FabricOptions::default()
    });
    let (mut near, mut far) = (Host::new(&fabric, 1), Host::new(&fabric, 2));
    let (a, b) = (near.end(attributes()), far.end(attributes()));
    let (_, qualifier) = far.backend.listen(1, None).unwrap();
    let request = near.connect_request(far.address, qualifier, b"");
    near.backend.connect(a.key, &request).unwrap();
    let request = far.next_request();
    let mut late = None;
    let running = fabric.drive_with(|drive| {
        late = Some(drive);
        Ok(())
    });
    far.backend.accept(request, b.key, b"").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(fabric.next_due().is_some_and(|due| fabric.now() <= due));
    let thread = std::thread::spawn(late.unwrap());
    let mut wait = MockWait::new(&fabric);
    let event = loop {
        match far.backend.poll_control(Instant::ZERO) {
            Some(event) => break event,
            None => assert_eq!(wait.wait(None), WakeReason::Woken),
        }
    };
    assert!(
        matches!(event, ControlEvent::Established { .. }),
        "{event:?}"
    );
    drop(running.unwrap());
    thread.join().unwrap();
}

#[test]
fn a_waker_wakes_across_threads() {
    let fabric = Fabric::new(FabricOptions::default());
    let _adapter = fabric.node(NodeOptions::new("one", 1));
    let _thread = fabric.spawn_thread().unwrap();
    let mut wait = MockWait::new(&fabric);
    while wait.wait(Some(Instant::ZERO)) == WakeReason::Woken {}
    let waker = wait.waker().clone();
    let waiting = std::thread::spawn(move || wait.wait(None));
    waker.wake();
    assert_eq!(waiting.join().unwrap(), WakeReason::Woken);
}

/// Spec: IAQ-04, IAQ-05, IAQ-06, IAQ-07, IAQ-09, IAQ-10
#[test]
fn attributes_match_the_behaviour() {
    let fabric = Fabric::new(FabricOptions::default());
    let mut host = Host::new(&fabric, 1);
    let ia = host.backend.ia_attributes();
    let provider = host.backend.provider_attributes();
    assert!(provider.max_private_data_size >= 64);
    assert_eq!(provider.completion_flags_supported.bits() & 0x0F, 0x0F);
    assert_eq!(provider.lmr_mem_types_supported.bits(), 3);
    assert_eq!(256 % provider.optimal_buffer_alignment, 0);
    assert!(provider.may_merge(dat_core::flags::EvdFlags::all()));
    assert!(provider.srq_supported && provider.is_thread_safe);
    // What is announced is granted, and no more.
    let mut largest = host.request(attributes());
    largest.attributes.max_request_dtos = ia.max_dto_per_ep;
    largest.attributes.max_recv_dtos = ia.max_dto_per_ep;
    largest.attributes.max_request_iov = ia.max_iov_segments_per_dto;
    largest.attributes.max_rdma_read_in = ia.max_rdma_read_per_ep_in;
    assert!(host.backend.create_queue_pair(&largest).is_ok());
    largest.attributes.max_recv_dtos += 1;
    assert!(host.backend.create_queue_pair(&largest).is_err());
    for _ in 1..ia.max_pzs {
        host.backend.create_domain().unwrap();
    }
    assert!(host.backend.create_domain().is_err());
    host.backend.destroy_domain(host.domain);
    assert!(host.backend.create_domain().is_ok());
}
