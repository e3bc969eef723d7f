//! One listening process that serves two other processes.

use dat_core::event::ConnectionEventKind;
use dat_core::flags::{CloseFlags, CompletionFlags, CrFields, DtoStatus, MemoryPrivileges};
use dat_tests::fixture::{PartyOptions, equal, granted};

use crate::runner::server_and_two_clients;
use crate::side::{Party, numbers_of, part, range_of};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Bytes of the memory of a client.
const BYTES: u64 = 1024;

/// One service point takes the requests of two processes, and tells them apart.
///
/// Each client sends, writes and reads on its own connection, at the same time.
///
/// Spec: PSC-01, PSC-02, CRQ-01, CRA-01, EPS-01, EPW-01, EPB-01, DTO-01, DTO-11, ROCE-44
#[test]
fn one_listener_serves_two_processes() {
    server_and_two_clients(
        |server| {
            let first = server.party();
            let second = Party::in_zone(&first.ia, first.zone, &PartyOptions::default());
            let service = server.listen(&first);
            let mut served = Vec::new();
            for party in [&first, &second] {
                let cr = server.request(&first, &service);
                let request = granted(first.ia.cr_query(cr, CrFields::all()));
                let client = usize::from(request.private_data[0]);
                party.receive_into(&[party.memory.segment(0, BYTES)], client as u64);
                granted(first.ia.cr_accept(cr, Some(party.ep), &[client as u8]));
                server.established(party);
                let range = party.memory.remote(BYTES, 2 * BYTES);
                server.tell_to(client, "memory", &numbers_of(&range));
                served.push((client, party));
            }
            let pattern = Party::in_zone(&first.ia, first.zone, &PartyOptions::default()).memory;
            server.meet("everything");
            for (client, party) in &served {
                let done = server
                    .net
                    .receive_ends(party, *client as u64, DtoStatus::Success);
                assert_eq!((done.ep, done.transferred_length), (party.ep, BYTES));
                pattern.fill(*client as u8);
                let expected = pattern.load(0, BYTES as usize);
                for at in [0, BYTES as usize, 2 * BYTES as usize] {
                    equal("bytes", &party.memory.load(at, BYTES as usize), &expected);
                }
                server.net.quiet(party);
            }
            let mut clients: Vec<_> = served.iter().map(|(client, _)| *client).collect();
            clients.sort_unstable();
            assert_eq!(clients, [1, 2]);
        },
        |client| {
            let party = client.party();
            let number = client.number as u8;
            client.begin_connect(&party, 0, &[number]);
            client.established(&party);
            let mut answer = [0; 1];
            granted(party.ia.ep_private_data(party.ep, &mut answer));
            assert_eq!(answer, [number]);
            let remote = range_of(&client.hear_from(0, "memory"));
            party.memory.fill(number);
            let own = [party.memory.segment(0, BYTES)];
            let back = [party.memory.segment(BYTES, BYTES)];
            party.send_from(&own, 1);
            party.write(&own, 2, &part(&remote, 0, BYTES), DEFAULT);
            party.write(&own, 3, &part(&remote, BYTES, BYTES), DEFAULT);
            party.read(&back, 4, &part(&remote, BYTES, BYTES), DEFAULT);
            for cookie in 1..=4 {
                client.net.success(&party, cookie);
            }
            let length = BYTES as usize;
            equal(
                "what was read",
                &party.memory.load(length, length),
                &party.memory.load(0, length),
            );
            client.meet("everything");
            client.net.quiet(&party);
        },
    );
}

/// Two processes stream to a third one at once; neither starves, and every byte arrives.
///
/// Spec: DTO-11, EPW-41, EPB-01, ROCE-85
#[test]
fn two_processes_stream_at_once() {
    const LARGE: u64 = 1 << 20;
    const ROUNDS: u64 = 8;
    server_and_two_clients(
        |server| {
            let first = server.party();
            let second = Party::in_zone(&first.ia, first.zone, &PartyOptions::default());
            server.accept_all(&[&first, &second]);
            let memories = [1, 2].map(|client| {
                let memory = first.more_memory(LARGE as usize, MemoryPrivileges::ALL);
                server.tell_to(client, "memory", &numbers_of(&memory.remote(0, LARGE)));
                memory
            });
            server.meet("streamed");
            let pattern = first.more_memory(LARGE as usize, MemoryPrivileges::ALL);
            for (client, memory) in [1, 2].into_iter().zip(memories) {
                pattern.fill(client);
                equal("the stream", &memory.content(), &pattern.content());
            }
        },
        |client| {
            let party = client.party();
            client.connect_to(&party, 0);
            let remote = range_of(&client.hear_from(0, "memory"));
            let own = party.more_memory(LARGE as usize, MemoryPrivileges::ALL);
            let back = party.more_memory(LARGE as usize, MemoryPrivileges::ALL);
            own.fill(client.number as u8);
            for round in 0..ROUNDS {
                client.step(&format!("round {round}"));
                party.write(&[own.segment(0, LARGE)], 2 * round, &remote, DEFAULT);
                party.read(&[back.segment(0, LARGE)], 2 * round + 1, &remote, DEFAULT);
            }
            for cookie in 0..2 * ROUNDS {
                client.net.success(&party, cookie);
            }
            equal("what was read", &back.content(), &own.content());
            client.meet("streamed");
        },
    );
}

/// A client that reaches too far, and one that leaves, end their own connection only.
///
/// Spec: DTO-08, DTO-12, EPW-34, EPD-10, E21, E22
#[test]
fn each_client_ends_its_own_connection() {
    server_and_two_clients(
        |server| {
            let first = server.party();
            let second = Party::in_zone(&first.ia, first.zone, &PartyOptions::default());
            let service = server.listen(&first);
            let mut parties = [first.clone(), second.clone()];
            for party in [&first, &second] {
                let cr = server.request(&first, &service);
                let request = granted(first.ia.cr_query(cr, CrFields::all()));
                let client = usize::from(request.private_data[0]);
                granted(first.ia.cr_accept(cr, Some(party.ep), &[]));
                server.established(party);
                parties[client - 1] = party.clone();
            }
            let memory = first.more_memory(64, MemoryPrivileges::ALL);
            let before = memory.content();
            for client in [1, 2] {
                server.tell_to(client, "memory", &numbers_of(&memory.remote(0, 64)));
            }
            let [greedy, leaving] = &parties;
            server.broken(greedy);
            equal("the memory", &memory.content(), &before);
            server.tell_to(2, "the first is gone", &[]);
            server.ends(leaving, ConnectionEventKind::Disconnected);
            equal("the memory", &memory.content(), &[7; 64]);
            server.net.quiet(greedy);
            server.net.quiet(leaving);
        },
        |client| {
            let party = client.party();
            client.begin_connect(&party, 0, &[client.number as u8]);
            client.established(&party);
            let remote = range_of(&client.hear_from(0, "memory"));
            party.memory.store(0, &[7; 64]);
            let segment = [party.memory.segment(0, 64)];
            if client.number == 1 {
                party.write(&segment, 1, &part(&remote, 1, 64), DEFAULT);
                client.net.request_ends(&party, 1, DtoStatus::RemoteAccess);
                client.broken(&party);
            } else {
                client.hear_from(0, "the first is gone");
                party.write(&segment, 1, &remote, DEFAULT);
                client.net.success(&party, 1);
                granted(party.ia.ep_disconnect(party.ep, CloseFlags::Graceful));
                client.ends(&party, ConnectionEventKind::Disconnected);
            }
        },
    );
}
