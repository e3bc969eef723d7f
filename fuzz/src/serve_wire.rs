//! The decoders of the two ends of `dat serve`.
//!
//! The target includes the protocol's module without the program, which would take minutes to
//! build.
//!
//! Each input is decoded as a request, an answer, a rejection and a message. An accepted message is
//! encoded to the same bytes. A message is accepted if and only if this file also finds its bytes
//! possible. Its memory has at most the permitted size and ends within the address space. A name
//! that counts as plain stays in its folder.

use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Component, Path};

use dat_core::memory::RmrTriplet;

use protocol::{
    MESSAGE, MOST_BYTES, MOST_DEPTH, Message, NAME, Refusal, Request, VERSION, Work, decode_answer,
    decode_challenge, decode_rejection, encode_answer, encode_rejection, is_plain_name,
};

#[path = "../../dat-cli/src/remote/protocol.rs"]
#[expect(dead_code, reason = "only the program uses the texts for users")]
mod protocol;

const MAGIC: &[u8] = b"DATc";
const GREETING: usize = 6;
/// A transfer of 2 x 64 bytes, and one that needs no memory.
const REQUESTS: [Request; 2] = [
    Request {
        work: Work::Write,
        depth: 2,
        size: 64,
    },
    Request {
        work: Work::Echo,
        depth: 2,
        size: 64,
    },
];

/// Decodes an input in every way.
pub fn run(input: &[u8]) {
    let expected = refusal_of_greeting(input).or_else(|| refusal_of_request(input));
    let request = Request::decode(input);
    assert_eq!(request.err(), expected);
    if let Ok((request, proof)) = request {
        assert_eq!(request.encode(proof.as_ref()), input, "{request:?}");
        assert!(request.bytes() <= MOST_BYTES, "{request:?}");
    }
    for request in REQUESTS {
        answer(input, &request);
    }
    rejection(input);
    message(input);
}

fn number(bytes: &[u8], at: Range<usize>) -> u64 {
    let digits = bytes[at].iter().rev();
    digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the reason to refuse a greeting, if any.
fn refusal_of_greeting(bytes: &[u8]) -> Option<Refusal> {
    if !bytes.starts_with(MAGIC) {
        Some(Refusal::Unknown)
    } else if bytes.len() < GREETING {
        Some(Refusal::Malformed)
    } else {
        let same = number(bytes, 4..GREETING) == u64::from(VERSION);
        (!same).then_some(Refusal::Version)
    }
}

/// Returns what a client makes of an answer with such a greeting: another program gave it.
fn refusal_of_answer(bytes: &[u8]) -> Option<Refusal> {
    refusal_of_greeting(bytes).map(|refusal| match refusal {
        Refusal::Unknown => Refusal::NoServer,
        refusal => refusal,
    })
}

/// Returns the reason to refuse a request with a valid greeting, if any.
fn refusal_of_request(bytes: &[u8]) -> Option<Refusal> {
    // The lengths without and with a proof.
    if !matches!(bytes.len(), 24 | 40) {
        return Some(Refusal::Malformed);
    }
    let [kind, depth, size, length, padding] =
        [6..8, 8..10, 10..14, 14..22, 22..24].map(|at| number(bytes, at));
    let means_something = (kind == 1 || matches!(kind, 2..=4) && length == 0)
        && [depth, size].iter().all(|count| *count != 0)
        && padding == 0;
    if !means_something {
        return Some(Refusal::Malformed);
    }
    let fits = depth <= u64::from(MOST_DEPTH) && depth * size <= MOST_BYTES;
    (!fits).then_some(Refusal::TooLarge)
}

fn answer(bytes: &[u8], request: &Request) {
    let expected = refusal_of_answer(bytes).or_else(|| {
        let wanted = match request.work {
            Work::Echo => 0,
            _ => request.bytes(),
        };
        let fits = bytes.len() == 30
            && number(bytes, 18..26) == wanted
            && number(bytes, 10..18) <= u64::MAX - wanted;
        (!fits).then_some(Refusal::Malformed)
    });
    let answer = decode_answer(bytes, request);
    assert_eq!(answer.err(), expected);
    if let Ok((granted, idle)) = answer {
        assert_eq!(encode_answer(Some(granted), idle), bytes, "{granted:?}");
    }
}

/// Checks an input as a rejection; the kernel appends zeros to one.
fn rejection(bytes: &[u8]) {
    let refusal = decode_rejection(bytes);
    assert_eq!(refusal.is_none(), bytes.iter().all(|byte| *byte == 0));
    if let Some(why) = refusal_of_answer(bytes) {
        assert!(refusal.is_none_or(|refusal| refusal == why));
    } else if let Some(refusal) = refusal {
        // An unknown code decodes as `Malformed`.
        let rejection = encode_rejection(refusal, None);
        let same = bytes.get(..7) == rejection.get(..7);
        assert!(same || refusal == Refusal::Malformed, "{refusal:?}");
    }
    let challenge = decode_challenge(bytes);
    assert!(challenge.is_none() || refusal == Some(Refusal::NoToken));
    if let Some(challenge) = challenge {
        let rejection = encode_rejection(Refusal::NoToken, Some(&challenge));
        assert!(bytes.starts_with(&rejection), "{challenge:?}");
    }
}

fn message(bytes: &[u8]) {
    let Some(message) = Message::decode(bytes) else {
        let length = match bytes.first() {
            Some(1) => return,
            Some(4 | 16 | 18) => 1,
            Some(17) => 3,
            Some(2) => 7,
            Some(3 | 20) => 17,
            Some(19) => 25,
            _ => return,
        };
        assert_ne!(bytes.len(), length, "{bytes:?} is a message");
        return;
    };
    assert_eq!(message.encode(), bytes, "{message:?}");
    assert!(bytes.len() <= MESSAGE);
    if let Message::Name(name) = message {
        assert!((1..=NAME).contains(&name.len()));
        let mut parts = Path::new(&name).components();
        let part = (parts.next(), parts.next());
        let stays = part == (Some(Component::Normal(OsStr::new(&name))), None);
        assert!(stays || !is_plain_name(&name), "{name:?}");
    }
}

/// Returns one message of each kind, by name; the fuzzer starts with them.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let works = [
        ("copy", Work::Copy { length: 1 << 20 }),
        ("write", Work::Write),
        ("read", Work::Read),
        ("echo", Work::Echo),
    ];
    let requests = works.map(|(name, work)| {
        let request = Request {
            work,
            depth: 16,
            size: 4096,
        };
        (format!("request-{name}"), request.encode(None))
    });
    let too_large = Request {
        work: Work::Write,
        depth: MOST_DEPTH,
        size: u32::MAX,
    };
    let granted = RmrTriplet {
        context: 7,
        address: 1 << 40,
        length: REQUESTS[0].bytes(),
    };
    let messages = [
        ("name", Message::Name("a file".into())),
        ("name-hidden", Message::Name(".hidden".into())),
        ("name-outside", Message::Name("../outside".into())),
        (
            "filled",
            Message::Filled {
                slot: 3,
                length: 4096,
            },
        ),
        ("end", Message::End { checksum: 1 << 100 }),
        ("sum", Message::Sum),
        ("ready", Message::Ready),
        ("empty", Message::Empty { slot: 3 }),
        ("here", Message::Here),
        (
            "stored",
            Message::Stored {
                length: 1 << 20,
                checksum: 1 << 100,
            },
        ),
        ("sum-is", Message::SumIs { checksum: 9 }),
        ("refused", Message::Refused(Refusal::Quota)),
    ];
    let mut seeds = vec![
        ("request-too-large".into(), too_large.encode(None)),
        ("request-proven".into(), REQUESTS[0].encode(Some(&[7; 16]))),
        ("answer".into(), encode_answer(Some(granted), 60_000)),
        ("answer-without-memory".into(), encode_answer(None, 60_000)),
        ("rejection".into(), encode_rejection(Refusal::Busy, None)),
        (
            "rejection-with-challenge".into(),
            encode_rejection(Refusal::NoToken, Some(&[9; 16])),
        ),
        ("rejection-without-reason".into(), vec![0; 148]),
    ];
    seeds.extend(requests);
    seeds.extend(messages.map(|(name, message)| (format!("message-{name}"), message.encode())));
    seeds
}
