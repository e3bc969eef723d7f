//! Peers of the same user that do not keep to the set-up.

use core::mem::MaybeUninit;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, bind, connect, listen, recv, sendmsg, socket_with, socketpair,
};

use super::super::super::bell::Bell;
use super::super::super::memory::{LENGTH, Memory};
use super::super::super::pair::{Naming, Role};
use super::super::message::{Answer, Hello, Verdict};
use super::*;

fn socket() -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

/// Connects to an adapter, and says nothing.
fn stranger(adapter: &Adapter) -> OwnedFd {
    let socket = socket();
    connect(&socket, &names::name(adapter.address).unwrap()).unwrap();
    socket
}

/// Returns true if the peer of a socket has closed it, whatever it said before.
fn is_closed(socket: &OwnedFd) -> bool {
    let mut bytes = [0; 256];
    loop {
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// Sends bytes with files.
fn say(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(files)));
    }
    let sent = sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    );
    assert_eq!(sent, Ok(bytes.len()));
}

/// The question of an honest peer.
fn question(adapter: &Adapter) -> Hello {
    let (identity, own) = dialler();
    Hello {
        number: 1,
        adapter: identity.adapter,
        own,
        target: adapter.address,
    }
}

/// Asserts that a question with some files is refused, and that honest peers still get a pair.
fn is_refused(adapter: &mut Adapter, what: &str, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let stranger = stranger(adapter);
    say(&stranger, bytes, files);
    adapter.accept(ZERO);
    assert!(adapter.pairs.0.is_empty(), "{what}");
    assert!(is_closed(&stranger), "{what}");
    assert!(adapter.listener.deadline().is_none(), "{what}");
    let target = adapter.address;
    talk(&made(adapter, target));
}

/// A process may have any name of a socket, but not the addresses of other hosts.
///
/// Spec: ROCE-217, ROCE-282
#[test]
fn no_pair_leads_to_an_address_of_another_host() {
    let (identity, own) = dialler();
    for foreign in ["192.0.2.1", "2001:db8::1"] {
        let adapter = Adapter::at(foreign);
        let dial = Dial::new(&identity, own, adapter.address, First::Offer, ZERO);
        assert!(matches!(dial, Err(Refusal::Elsewhere)), "{foreign}");
        let mut wildcard = Adapter::at("::");
        let misled = Hello {
            target: wildcard.target(foreign),
            ..question(&wildcard)
        };
        let stranger = stranger(&wildcard);
        let (_memory, file) = Memory::create().unwrap();
        say(&stranger, &misled.encode().unwrap(), &[file.as_fd()]);
        wildcard.accept(ZERO);
        assert!(
            wildcard.pairs.0.is_empty() && is_closed(&stranger),
            "{foreign}"
        );
    }
}

/// Spec: ROCE-219, ROCE-282
#[test]
fn other_questions_than_a_diallers_are_refused() {
    let mut adapter = Adapter::at("127.0.0.1");
    let hello = question(&adapter).encode().unwrap();
    let (_memory, file) = Memory::create().unwrap();
    let file = file.as_fd();
    for (what, at) in [("mark", 0), ("version", 11), ("queue", 15), ("payload", 19)] {
        let mut other = hello;
        other[at] ^= 1;
        is_refused(&mut adapter, what, &other, &[file]);
    }
    let unnumbered = Hello {
        number: 0,
        ..question(&adapter)
    };
    is_refused(
        &mut adapter,
        "number",
        &unnumbered.encode().unwrap(),
        &[file],
    );
    for target in ["127.0.0.2:1", "127.0.0.1:1", "[::1]:4791"] {
        let misled = Hello {
            target: target.parse().unwrap(),
            ..question(&adapter)
        };
        is_refused(&mut adapter, target, &misled.encode().unwrap(), &[file]);
    }
    // A name of another host, which receivers of datagrams would answer.
    for own in ["192.0.2.9:4791", "[2001:db8::9]:4791"] {
        let forged = Hello {
            own: own.parse().unwrap(),
            ..question(&adapter)
        };
        is_refused(&mut adapter, own, &forged.encode().unwrap(), &[file]);
    }
    is_refused(&mut adapter, "short", &hello[..hello.len() - 1], &[file]);
    is_refused(&mut adapter, "one byte", &[0], &[file]);
    is_refused(&mut adapter, "two files", &hello, &[file, file]);
    is_refused(&mut adapter, "eight files", &hello, &[file; 8]);
}

/// Spec: ROCE-219, ROCE-220
#[test]
fn who_has_asked_sends_the_memory_of_that_question_or_is_refused() {
    let mut adapter = Adapter::at("127.0.0.1");
    let hello = question(&adapter);
    let other = Hello {
        adapter: [8; 16],
        ..question(&adapter)
    };
    let (_memory, file) = Memory::create().unwrap();
    let file = file.as_fd();
    let says = |hello: &Hello| hello.encode().unwrap();
    for (what, bytes, files) in [
        ("no file again", says(&hello), &[][..]),
        ("another adapter", says(&other), &[file]),
        ("two files", says(&hello), &[file, file]),
    ] {
        let stranger = stranger(&adapter);
        say(&stranger, &says(&hello), &[]);
        adapter.accept(ZERO);
        assert!(adapter.listener.deadline().is_some(), "{what}");
        say(&stranger, &bytes, files);
        adapter.accept(ZERO);
        assert!(adapter.pairs.0.is_empty(), "{what}");
        assert!(is_closed(&stranger), "{what}");
        assert!(adapter.listener.deadline().is_none(), "{what}");
    }
    // Who is silent then is given up.
    let stranger = stranger(&adapter);
    say(&stranger, &says(&hello), &[]);
    adapter.accept(ZERO);
    adapter.accept(Instant::from_micros(PATIENCE));
    assert!(is_closed(&stranger));
    let target = adapter.address;
    talk(&made(&mut adapter, target));
}

/// A pair with a process that gives itself the name of another adapter is no pair with that one.
///
/// Spec: ROCE-221
#[test]
fn the_name_of_an_adapter_is_of_its_process() {
    let mut adapter = Adapter::at("127.0.0.1");
    let (identity, own) = dialler();
    let (memory, _) = Memory::create().unwrap();
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (ours, _theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let naming = Naming {
        number: 9,
        peer_number: 9,
        peer_adapter: Known {
            process: 1,
            ..known(&identity)
        },
        own: adapter.address,
        peer: own,
    };
    let pair = LocalPair::new(naming, Role::Listener, memory, Bell::new(ours));
    adapter.pairs.0.push(pair);
    let target = adapter.address;
    talk(&made(&mut adapter, target));
    assert_eq!(adapter.pairs.0.len(), 1, "beside that one");
}

/// A file without a name, of a length, with seals, filled if `fills`.
fn file(flags: MemfdFlags, length: usize, seals: SealFlags, fills: bool) -> Option<OwnedFd> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("strange", flags).ok()?;
    ftruncate(&file, length as u64).ok()?;
    if fills {
        fallocate(&file, FallocateFlags::empty(), 0, length as u64).ok()?;
    }
    fcntl_add_seals(&file, seals).ok()?;
    Some(file)
}

/// Spec: ROCE-211
#[test]
fn other_memory_than_a_diallers_is_refused() {
    let mut adapter = Adapter::at("127.0.0.1");
    let hello = question(&adapter).encode().unwrap();
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let none = MemfdFlags::empty();
    let (_memory, right) = Memory::create().unwrap();
    let path = std::format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&right));
    let huge = 2 << 20;
    let strange = [
        ("device", File::open("/dev/zero").ok().map(OwnedFd::from)),
        ("file", File::open("/proc/self/exe").ok().map(OwnedFd::from)),
        ("socket", Some(socket())),
        ("read only", File::open(path).ok().map(OwnedFd::from)),
        ("no seal", file(none, LENGTH, SealFlags::empty(), true)),
        ("shrinks", file(none, LENGTH, all - SealFlags::SHRINK, true)),
        ("grows", file(none, LENGTH, all - SealFlags::GROW, true)),
        (
            "sealed later",
            file(none, LENGTH, all - SealFlags::SEAL, true),
        ),
        (
            "constant",
            file(none, LENGTH, all | SealFlags::FUTURE_WRITE, true),
        ),
        ("empty", file(none, 0, all, false)),
        ("short", file(none, LENGTH - 4096, all, true)),
        ("long", file(none, LENGTH + 4096, all, true)),
        ("not filled", file(none, LENGTH, all, false)),
        // The system may have no such pages, but makes the file.
        ("huge", file(MemfdFlags::HUGETLB, huge, all, false)),
    ];
    for (what, file) in &strange {
        let file = file.as_ref().expect(what);
        is_refused(&mut adapter, what, &hello, &[file.as_fd()]);
    }
}

/// Spec: ROCE-220
#[test]
fn silent_strangers_are_bounded_and_do_not_keep_others_out() {
    let mut adapter = Adapter::at("127.0.0.1");
    let strangers: Vec<_> = (0..40).map(|_| stranger(&adapter)).collect();
    adapter.accept(ZERO);
    let target = adapter.address;
    talk(&made(&mut adapter, target));
    let open = |strangers: &[OwnedFd]| strangers.iter().filter(|one| !is_closed(one)).count();
    assert_eq!(open(&strangers), 16);
    assert!(is_closed(&strangers[0]), "the oldest ones go first");
    assert!(adapter.listener.deadline().is_some());
    adapter.accept(Instant::from_micros(PATIENCE));
    assert_eq!(open(&strangers), 0);
    assert!(adapter.listener.deadline().is_none());
}

/// An adapter that sleeps would find a question that comes after the connection too late.
///
/// Spec: ROCE-220
#[test]
fn a_connection_is_watched_until_its_question_comes() {
    let mut adapter = Adapter::at("127.0.0.1");
    let target = adapter.address;
    made(&mut adapter, target);
    assert_eq!(adapter.pairs.2, 0, "the question came with the connection");
    let _stranger = stranger(&adapter);
    adapter.accept(ZERO);
    assert_eq!(adapter.pairs.2, 1);
    // One that cannot be watched is closed.
    adapter.pairs.1 = Room::Lost;
    let stranger = stranger(&adapter);
    adapter.accept(ZERO);
    assert!(is_closed(&stranger));
}

/// Takes the question of a dialler at the name of an address, and answers something.
fn answered<T>(answer: impl FnOnce(OwnedFd) -> T) -> String {
    let (identity, own) = dialler();
    let target = SocketAddr::new("127.0.0.1".parse().unwrap(), free_port());
    let listener = socket();
    bind(&listener, &names::name(target).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    let mut dial = Dial::new(&identity, own, target, First::Offer, ZERO).unwrap();
    let accepted = rustix::net::accept(&listener).unwrap();
    // It may stay open until the end.
    let _kept = answer(accepted);
    refusal(&mut dial, ZERO)
}

/// Spec: ROCE-219
#[test]
fn other_answers_than_a_listeners_are_refused() {
    let right = Answer {
        verdict: Verdict::Taken,
        number: 1,
        adapter: [3; 16],
    };
    for (at, what) in [
        (0, "another mark"),
        (11, "another version"),
        (12, "another verdict"),
        (19, "no number"),
    ] {
        let mut bytes = right.encode().unwrap();
        bytes[at] ^= 1;
        let text = answered(|socket| {
            say(&socket, &bytes, &[]);
            socket
        });
        assert_eq!(text, std::format!("the message of the peer has {what}"));
    }
    let text = answered(|socket| {
        say(&socket, &[0; 35], &[]);
        socket
    });
    assert_eq!(text, "the message of the peer has another length");
    // The memory is there already.
    let wanted = Answer {
        verdict: Verdict::Wanted,
        ..right
    };
    let text = answered(|socket| {
        wanted.send(socket.as_fd()).unwrap();
        socket
    });
    assert_eq!(text, "the message of the peer has another verdict");
    let refused = Answer {
        verdict: Verdict::Refused,
        ..right
    };
    let text = answered(|socket| {
        refused.send(socket.as_fd()).unwrap();
        socket
    });
    assert_eq!(text, "the peer refused it");
    // Closed with the question unread.
    let text = answered(drop);
    assert_eq!(text, "the peer closed its socket");
}
