//! Hostile peers: an adapter of node 1 speaks the control protocol by hand.

use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::memory::RmrTriplet;
use dat_rsm::wire::{Body, Greeting, MESSAGE_SIZE, Message, Rejection};
use dat_rsm::{ExportId, ImportId, ImportState, Permission, RsmError, SignalFlags, VectorFlags};

use crate::fixture::intruder::{INCARNATION, Intruder, connect_request, greeting};
use crate::fixture::nodes::{Nodes, PAGE, SEGMENT, load, node_number, pattern, put, store};
use crate::fixture::{RsmTestbed, granted};

const NONE: VectorFlags = VectorFlags::empty();

/// Two nodes that import from each other.
struct Honest {
    export: ExportId,
    import: ImportId,
    memory: &'static [core::sync::atomic::AtomicU8],
    back: ImportId,
    back_memory: &'static [core::sync::atomic::AtomicU8],
}

fn honest<T: RsmTestbed>(nodes: &Nodes<'_, T>) -> Honest {
    let (export, memory) = nodes.export(1, 1, SEGMENT);
    let (_, back_memory) = nodes.export(0, 1, SEGMENT);
    let honest = Honest {
        export,
        import: nodes.import(0, 1, SEGMENT),
        memory,
        back: nodes.import(1, 0, SEGMENT),
        back_memory,
    };
    nodes.run_to_idle();
    honest
}

impl Honest {
    /// Expects that both imports work and that no other signal came.
    fn check<T: RsmTestbed>(&self, nodes: &Nodes<'_, T>) {
        let pairs = [
            (0, self.import, self.memory),
            (1, self.back, self.back_memory),
        ];
        for (node, import, memory) in pairs {
            let engine = nodes.engine(node);
            assert_eq!(engine.import_state(import), Ok(ImportState::Connected));
            assert_eq!(engine.import_length(import), Ok(PAGE as u64));
            assert_eq!(engine.signal_take(import), Ok(false));
            store(memory, 0, &[0; PAGE]);
            let bytes = pattern(5, PAGE);
            engine
                .putv(import, &[put(&bytes, 0)], NONE, &mut nodes.wait(node))
                .expect("a vector");
            assert!(load(memory) == bytes);
        }
        let exporter = nodes.engine(1);
        assert_eq!(exporter.signal_take(self.export), Ok(false));
        nodes
            .engine(0)
            .signal_post(self.import, SignalFlags::empty(), &mut nodes.wait(0))
            .expect("a signal");
        assert_eq!(
            exporter.signal_wait(self.export, None, &mut nodes.wait(1)),
            Ok(())
        );
    }
}

/// Spec: RSMGEN-08
pub fn false_greetings_are_rejected<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let fine = greeting();
    let mut version = fine.encode();
    version[3] += 1;
    let another = Greeting {
        node: node_number(1),
        ..fine
    }
    .encode();
    let unknown = Greeting { node: 77, ..fine }.encode();
    let silent = Greeting { credits: 0, ..fine }.encode();
    let encoded = fine.encode();
    let mut forged = vec![
        &[][..],
        b"hello",
        &encoded[..20],
        &version,
        &unknown,
        &silent,
    ];
    // Nodes on one device share an address, so that it does not tell them apart.
    if nodes.node_entries[0].address != nodes.node_entries[1].address {
        forged.push(&another);
    }
    for bad in forged {
        let kind = Intruder::new(&nodes).connect(bad);
        assert_eq!(kind, ConnectionEventKind::PeerRejected, "{bad:?}");
    }
    let intruder = Intruder::new(&nodes);
    assert_eq!(intruder.connect(&encoded), ConnectionEventKind::Established);
    let mut answer = [0; 256];
    granted(intruder.ia.ep_private_data(intruder.ep, &mut answer));
    let answer = Greeting::decode(&answer).expect("a greeting");
    assert_eq!(answer.node, node_number(1));
    honest(&nodes).check(&nodes);
}

/// Spec: RSMST-03, RSMIM-03, RSMSG-02
pub fn messages_for_other_connections_are_ignored<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let honest = honest(&nodes);
    let intruder = Intruder::greeted(&nodes);
    intruder.send_message(connect_request(5, 0o600));
    let Body::Accept {
        import: 5,
        importer,
        publication,
        ..
    } = intruder.next_message()
    else {
        panic!("no answer");
    };
    // The exporter's ids of other connections are near the intruder's; the importers' are known
    // here.
    let victim = honest.back.handle().to_raw();
    let near: Vec<u64> = (1..20)
        .flat_map(|step| [importer.wrapping_sub(step), importer.wrapping_add(step)])
        .chain([0, 1, u64::MAX, victim])
        .collect();
    for importer in near {
        for no_accumulate in [false, true] {
            intruder.send_message(Body::Signal {
                importer,
                no_accumulate,
            });
        }
        intruder.send_message(Body::Acknowledge { importer });
        intruder.send_message(Body::Disconnect { importer });
    }
    honest.check(&nodes);
    for import in [victim, victim ^ 1, 0, u64::MAX] {
        let importer = 1;
        intruder.send_message(Body::Revoke { import, importer });
        intruder.send_message(Body::Rebind {
            import,
            importer,
            address: 1,
            key: 1,
        });
        intruder.send_message(Body::Rebind {
            import,
            importer,
            address: u64::MAX,
            key: 1,
        });
        intruder.send_message(Body::Refuse {
            import,
            error: RsmError::ConnectionAborted,
        });
        intruder.send_message(Body::Accept {
            import,
            importer,
            length: 7,
            address: 1,
            key: 1,
            publication: 1,
        });
    }
    for publication in [1, 2, 3, publication, u64::MAX] {
        intruder.send_message(Body::SignalImporters {
            publication,
            no_accumulate: false,
        });
    }
    honest.check(&nodes);
    // It may use its own connection, and end it once.
    intruder.send_message(Body::Signal {
        importer,
        no_accumulate: false,
    });
    assert_eq!(nodes.engine(1).signal_take(honest.export), Ok(true));
    intruder.send_message(Body::Disconnect { importer });
    intruder.send_message(Body::Signal {
        importer,
        no_accumulate: false,
    });
    honest.check(&nodes);
}

/// Spec: RSMIM-02, RSMPB-10, RSMPB-03
pub fn a_connection_that_was_never_granted_is_not_resumed<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let honest = honest(&nodes);
    let intruder = Intruder::greeted(&nodes);
    for (import, resume) in [(honest.import.handle().to_raw(), 1), (5, 1), (5, u64::MAX)] {
        let Body::Connect {
            segment,
            permission,
            user,
            group,
            ..
        } = connect_request(import, 0o600)
        else {
            panic!("a wish");
        };
        intruder.send_message(Body::Connect {
            import,
            segment,
            permission,
            user,
            group,
            resume,
        });
        let Body::Refuse { error, .. } = intruder.next_message() else {
            panic!("granted");
        };
        assert_eq!(error, RsmError::SegmentNotPublished);
    }
    for permission in [0, 0o700, 0o100, u32::MAX] {
        intruder.send_message(connect_request(5, permission));
        let Body::Refuse { error, .. } = intruder.next_message() else {
            panic!("granted");
        };
        assert_eq!(error, RsmError::PermissionDenied);
    }
    honest.check(&nodes);
}

/// Spec: RSMPB-20, RSMST-04, RSMIM-03
pub fn a_key_opens_only_what_is_granted<T: RsmTestbed>(bed: &T) {
    let write = MemoryPrivileges::REMOTE_WRITE;
    for (permission, allowed) in [(0o400, MemoryPrivileges::REMOTE_READ), (0o200, write)] {
        // Each misuse ends the connection, so that each case has its own.
        for (offset, length, forbidden) in [
            (0, 8, true),
            (PAGE as u64 - 4, 8, false),
            (PAGE as u64, 8, false),
            (u64::MAX - 7, 8, false),
        ] {
            let nodes = Nodes::two(bed);
            let honest = honest(&nodes);
            let intruder = Intruder::greeted(&nodes);
            intruder.send_message(connect_request(5, permission));
            let Body::Accept {
                length: size,
                address,
                key,
                ..
            } = intruder.next_message()
            else {
                panic!("refused");
            };
            assert_eq!(size, PAGE as u64);
            let may_write = allowed == write;
            let range = |offset: u64, length| RmrTriplet {
                context: key,
                address: address.wrapping_add(offset),
                length,
            };
            assert_eq!(
                intruder.access(may_write, &range(16, 8)),
                DtoStatus::Success
            );
            let status = intruder.access(may_write != forbidden, &range(offset, length));
            assert_eq!(
                status,
                DtoStatus::RemoteAccess,
                "{permission:o} {offset} {length}"
            );
            nodes.run_to_idle();
            honest.check(&nodes);
        }
    }
    // A peer that does not acknowledge loses the key as well.
    for publish_again in [false, true] {
        let nodes = Nodes::two(bed);
        let honest = honest(&nodes);
        let intruder = Intruder::greeted(&nodes);
        intruder.send_message(connect_request(5, 0o600));
        let Body::Accept { address, key, .. } = intruder.next_message() else {
            panic!("refused");
        };
        let exporter = nodes.engine(1);
        exporter
            .export_unpublish(honest.export, &mut nodes.wait(1))
            .expect("unpublished");
        assert!(matches!(
            intruder.next_message(),
            Body::Revoke { import: 5, .. }
        ));
        if publish_again {
            exporter
                .export_publish(honest.export, SEGMENT, &[])
                .expect("published");
            nodes.import(0, 1, SEGMENT);
        }
        store(honest.memory, 0, &[0xEE; PAGE]);
        let range = RmrTriplet {
            context: key,
            address,
            length: 8,
        };
        assert_eq!(intruder.access(true, &range), DtoStatus::RemoteAccess);
        nodes.run_to_idle();
        assert!(load(honest.memory).iter().all(|byte| *byte == 0xEE));
    }
}

/// A key and a connection id of an earlier incarnation of the exporter are invalid.
///
/// Spec: RSMST-03, RSMGEN-04
pub fn keys_of_an_earlier_incarnation_open_nothing<T: RsmTestbed>(bed: &T) {
    for write in [false, true] {
        let mut nodes = Nodes::two(bed);
        let (_, before) = nodes.export(1, 1, SEGMENT);
        let (address, key, publication) = {
            let intruder = Intruder::greeted(&nodes);
            intruder.send_message(connect_request(5, 0o600));
            let Body::Accept {
                address,
                key,
                publication,
                ..
            } = intruder.next_message()
            else {
                panic!("refused");
            };
            (address, key, publication)
        };
        nodes.restart(1);
        store(before, 0, &[0xEE; PAGE]);
        let (_, memory) = nodes.export(1, 1, SEGMENT);
        let intruder = Intruder::greeted(&nodes);
        intruder.send_message(Body::Connect {
            import: 5,
            segment: SEGMENT,
            permission: 0o600,
            user: 0,
            group: 0,
            resume: publication,
        });
        let Body::Refuse { error, .. } = intruder.next_message() else {
            panic!("granted");
        };
        assert_eq!(error, RsmError::SegmentNotPublished);
        // Another importer has the new keys.
        nodes.import(0, 1, SEGMENT);
        let range = RmrTriplet {
            context: key,
            address,
            length: 8,
        };
        assert_eq!(intruder.access(write, &range), DtoStatus::RemoteAccess);
        nodes.run_to_idle();
        assert!(load(before).iter().all(|byte| *byte == 0xEE));
        assert!(load(memory).iter().all(|byte| *byte == 0));
    }
}

/// Spec: RSMGEN-05
pub fn noise_ends_the_connection_that_it_came_by<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let honest = honest(&nodes);
    let fine = Message {
        incarnation: INCARNATION,
        credits: 0,
        body: Body::Credit,
    };
    let stranger = Message {
        incarnation: INCARNATION + 1,
        ..fine
    };
    let mut version = fine.encode();
    version[3] = 9;
    let mut kind = fine.encode();
    kind[4] = 200;
    let mut padding = fine.encode();
    padding[MESSAGE_SIZE - 1] = 1;
    for noise in [
        &stranger.encode()[..],
        &version,
        &kind,
        &padding,
        &[0; MESSAGE_SIZE],
        &[0xFF; MESSAGE_SIZE],
        // Longer than any message.
        &[7; MESSAGE_SIZE + 1],
    ] {
        let intruder = Intruder::greeted(&nodes);
        intruder.send(noise);
        let kind = intruder.connection();
        let over = [
            ConnectionEventKind::Disconnected,
            ConnectionEventKind::Broken,
        ];
        assert!(over.contains(&kind), "{kind:?} after {noise:?}");
        nodes.run_to_idle();
        honest.check(&nodes);
    }
}

/// A short message is not completed with an earlier one in the same buffer.
///
/// This is a regression test: the earlier message was processed again once.
///
/// Spec: RSMGEN-05
pub fn stale_bytes_of_a_message_are_not_processed<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let honest = honest(&nodes);
    let signal = |importer| Body::Signal {
        importer,
        no_accumulate: false,
    };
    for length in [1, 8, MESSAGE_SIZE - 1] {
        let intruder = Intruder::greeted(&nodes);
        let importer = intruder.request_segment(5).expect("granted");
        // Each buffer has received a signal.
        for _ in 0..40 {
            intruder.send_message(signal(importer));
            assert_eq!(nodes.engine(1).signal_take(honest.export), Ok(true));
        }
        let message = Message {
            incarnation: INCARNATION,
            credits: 1,
            body: signal(importer),
        };
        intruder.send(&message.encode()[..length]);
        let kind = intruder.connection();
        let over = [
            ConnectionEventKind::Disconnected,
            ConnectionEventKind::Broken,
        ];
        assert!(over.contains(&kind), "{kind:?} after {length} bytes");
        nodes.run_to_idle();
        assert_eq!(nodes.engine(1).signal_take(honest.export), Ok(false));
        honest.check(&nodes);
    }
}

/// A peer that sends requests and takes no answers is disconnected.
///
/// Spec: RSMST-05
pub fn a_peer_without_receives_is_cut_off<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let honest = honest(&nodes);
    let intruder = Intruder::new(&nodes);
    let deaf = Greeting {
        credits: 1,
        ..greeting()
    };
    assert_eq!(
        intruder.connect(&deaf.encode()),
        ConnectionEventKind::Established
    );
    let mut over = None;
    for import in 0..600 {
        let message = Message {
            incarnation: INCARNATION,
            credits: 0,
            body: connect_request(import, 0o700),
        };
        intruder.send(&message.encode());
        nodes.run_to_idle();
        if let Ok(Event::Connection { kind, .. }) = intruder.ia.evd_dequeue(intruder.connections) {
            over = Some(kind);
            break;
        }
    }
    assert!(over.is_some(), "it is still listened to");
    intruder.take();
    assert_eq!(
        intruder.received_bodies.borrow().len(),
        1,
        "as many answers as credits"
    );
    honest.check(&nodes);
}

/// Makes three nodes with this number of importer and link slots.
fn small<T: RsmTestbed>(bed: &T, importers: usize, links: usize) -> Nodes<'_, T> {
    Nodes::with(bed, 3, |mut options| {
        options.limits.importers = importers;
        options.limits.links = links;
        options
    })
}

/// Spec: RSMST-05
pub fn one_node_has_its_share_of_importers<T: RsmTestbed>(bed: &T) {
    let nodes = small(bed, 9, 12);
    let (_, memory) = nodes.export(1, 1, SEGMENT);
    let full = RsmError::InsufficientResources;
    let intruder = Intruder::greeted(&nodes);
    let granted: Vec<u64> = (0..3)
        .map(|import| intruder.request_segment(import).expect("within its share"))
        .collect();
    for import in 3..20 {
        assert_eq!(intruder.request_segment(import), Err(full));
    }
    // Other processes of the same node are refused, too; those of another node are not affected.
    assert_eq!(nodes.import_as(0, 1, SEGMENT, Permission::all()), Err(full));
    let others: Vec<ImportId> = (0..3).map(|_| nodes.import(2, 1, SEGMENT)).collect();
    assert_eq!(nodes.import_as(2, 1, SEGMENT, Permission::all()), Err(full));
    for import in others {
        nodes
            .engine(2)
            .putv(import, &[put(&[9], 0)], NONE, &mut nodes.wait(2))
            .expect("a vector");
        assert_eq!(load(memory)[0], 9);
        store(memory, 0, &[0]);
        let ended = nodes
            .engine(2)
            .import_disconnect(import, &mut nodes.wait(2));
        assert_eq!(ended, Ok(()));
    }
    // A released slot can be used again.
    let importer = granted[1];
    intruder.send_message(Body::Disconnect { importer });
    nodes.import(0, 1, SEGMENT);
    assert_eq!(intruder.request_segment(20), Err(full));
    // Slots of a lost connection stay reserved for the peer that comes back.
    drop(intruder);
    nodes.run_to_idle();
    let intruder = Intruder::greeted(&nodes);
    for import in 30..32 {
        assert!(intruder.request_segment(import).is_ok());
    }
    assert_eq!(intruder.request_segment(32), Err(full));
}

/// Spec: RSMST-05
pub fn one_node_has_its_share_of_links<T: RsmTestbed>(bed: &T) {
    // Three for this side's own links, and two for each node.
    let nodes = small(bed, 90, 9);
    let (_, memory) = nodes.export(1, 1, SEGMENT);
    let greeting_of = |incarnation| {
        let greeting = Greeting {
            incarnation,
            ..greeting()
        };
        greeting.encode()
    };
    let full = RsmError::InsufficientResources;
    let established = ConnectionEventKind::Established;
    let first = Intruder::greeted(&nodes);
    let second = Intruder::new(&nodes);
    assert_eq!(second.connect(&greeting_of(INCARNATION + 1)), established);
    nodes.run_to_idle();
    for other in 2..8 {
        let more = Intruder::new(&nodes);
        let kind = more.connect(&greeting_of(INCARNATION + other));
        assert_eq!(kind, ConnectionEventKind::PeerRejected);
        let mut answer = [0; 256];
        granted(more.ia.ep_private_data(more.ep, &mut answer));
        assert_eq!(Rejection::decode(&answer), Ok(Rejection { error: full }));
    }
    assert_eq!(nodes.import_as(0, 1, SEGMENT, Permission::all()), Err(full));
    let import = nodes.import(2, 1, SEGMENT);
    // The slots of this side are still free.
    nodes.export(2, 1, SEGMENT);
    nodes.export(0, 1, SEGMENT);
    nodes.import(1, 2, SEGMENT);
    nodes.import(1, 0, SEGMENT);
    nodes
        .engine(2)
        .putv(import, &[put(&[9], 0)], NONE, &mut nodes.wait(2))
        .expect("a vector");
    assert_eq!(load(memory)[0], 9);
    // A process has one link: a second one of the same incarnation replaces the first.
    //
    // The first one broke unnoticed.
    let again = Intruder::new(&nodes);
    assert_eq!(again.connect(&greeting_of(INCARNATION)), established);
    let over = [
        ConnectionEventKind::Disconnected,
        ConnectionEventKind::Broken,
    ];
    assert!(over.contains(&first.connection()));
    nodes.run_to_idle();
    assert!(again.request_segment(1).is_ok());
    // A released slot can be used again.
    drop((again, first, second));
    nodes.run_to_idle();
    nodes.import(0, 1, SEGMENT);
}

/// Messages to a node that takes none leave room for messages to others.
///
/// Spec: RSMST-05
pub fn messages_to_a_peer_without_receives_leave_room<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 3, |mut options| {
        options.limits.requests = 24;
        options
    });
    let (export, memory) = nodes.export(1, 1, SEGMENT);
    let import = nodes.import(2, 1, SEGMENT);
    let deaf: Vec<Intruder<'_, '_, T>> = (0..3)
        .map(|number| {
            let intruder = Intruder::without_receives(&nodes);
            let greeting = Greeting {
                incarnation: INCARNATION + number,
                ..greeting()
            };
            let kind = intruder.connect(&greeting.encode());
            assert_eq!(kind, ConnectionEventKind::Established);
            for import in 0..10 {
                let message = Message {
                    incarnation: INCARNATION + number,
                    credits: 0,
                    body: connect_request(import, 0o700),
                };
                intruder.send(&message.encode());
            }
            nodes.progress();
            intruder
        })
        .collect();
    let (exporter, importer) = (nodes.engine(1), nodes.engine(2));
    for round in 1..=20_u8 {
        importer
            .putv(import, &[put(&[round], 0)], NONE, &mut nodes.wait(2))
            .expect("a vector");
        assert_eq!(load(memory)[0], round);
        exporter
            .signal_post(export, SignalFlags::empty(), &mut nodes.wait(1))
            .expect("a signal");
        let received_bodies = importer.signal_wait(import, None, &mut nodes.wait(2));
        assert_eq!(received_bodies, Ok(()));
        if round == 1 && nodes.bed.is_stepped() {
            // The vector and the signal did not wait until the deaf links were given up.
            for intruder in &deaf {
                intruder.ia.progress(nodes.bed.now());
                assert!(intruder.ia.evd_dequeue(intruder.connections).is_err());
            }
        }
    }
    drop(deaf);
    nodes.run_to_idle();
}
