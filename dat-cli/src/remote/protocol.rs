//! The messages between a client and a server.
//!
//! A client's request travels in the private data of its connection request, and the server's
//! answer in that of the acceptance or rejection. All later messages have at most [`MESSAGE`]
//! bytes. Numbers are little-endian. Only this file decodes the bytes of a peer: data that is too
//! short, too long, unknown or out of bounds goes no further.
//!
//! The fuzz target `serve_wire` includes this file without the rest of the program, so it uses no
//! other file of the program.

use dat_core::memory::RmrTriplet;

/// The version of the formats in this file; both sides must have the same.
pub(crate) const VERSION: u16 = 2;
/// Maximum length of a message.
pub(crate) const MESSAGE: usize = 2 + NAME;
/// Maximum length of a file name, in bytes.
pub(crate) const NAME: usize = 255;
/// Maximum number of slots, or of operations under way at once.
pub(crate) const MOST_DEPTH: u16 = 1024;
/// Maximum number of bytes that a client may request.
pub(crate) const MOST_BYTES: u64 = 1 << 30;

/// Random bytes of the server, for one connection request.
pub(crate) type Challenge = [u8; 16];
/// A client's answer to a challenge.
///
/// It is the first bytes of an HMAC-SHA-256 of the challenge and the request, keyed with the token.
pub(crate) type Proof = [u8; 16];

const MAGIC: [u8; 4] = *b"DATc";
const REQUEST: usize = 24;
const ANSWER: usize = 30;
const REJECTION: usize = 8;

/// The work that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Copy a file of this length into slots that the server empties.
    Copy {
        /// Bytes of the file.
        length: u64,
    },
    /// Write into the server's memory.
    Write,
    /// Read the server's memory.
    Read,
    /// Send messages that the server sends back.
    Echo,
}

/// The request of a client when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) work: Work,
    /// Number of slots, each of `size` bytes.
    pub(crate) depth: u16,
    pub(crate) size: u32,
}

/// Defines the reasons of refusals: the number, the name, the reason and the remedy for people.
macro_rules! refusals {
    ($($code:literal $name:ident: $why:literal, $remedy:literal;)*) => {
        /// The reason of a server's refusal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Refusal {
            $($name = $code,)*
        }

        #[cfg(test)]
        const REFUSALS: &[Refusal] = &[$(Refusal::$name),*];

        impl Refusal {
            fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the reason as text for people.
            pub(crate) const fn why(self) -> &'static str {
                match self {
                    $(Self::$name => $why,)*
                }
            }

            /// Returns the remedy as text for people.
            pub(crate) const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)*
                }
            }
        }
    };
}

refusals! {
    1 Unknown:
        "the request is not from this program",
        "use the same version of `dat` on both sides";
    2 Version:
        "the two programs speak different versions of their protocol",
        "use the same version of `dat` on both sides";
    3 Malformed:
        "a message is invalid",
        "use the same version of `dat` on both sides; otherwise please report this";
    4 TooLarge:
        "it does not have that much memory for one client",
        "use a smaller size, --depth, --segments or --chunk, or start the server with more \
         --memory";
    5 Busy:
        "it has no room for another client now",
        "try again later, or start the server with more --memory";
    6 NoFolder:
        "it was started without --into, so it stores no files",
        "start the server with `dat serve --into DIRECTORY`";
    7 BadName:
        "the file name is not a plain name, or has characters that are not seen",
        "use a name without a directory, a leading dot, and characters that are not seen";
    8 Exists:
        "the file exists there, and the server was started without --force",
        "choose another name, or start the server with --force";
    9 CannotWrite:
        "it cannot write the file",
        "the output of the server has the reason";
    10 Different:
        "the written file differs from the sent data",
        "run the command again; no file was changed";
    11 Silent:
        "the client was silent for too long",
        "run the command again; no file was changed";
    12 WrongAddress:
        "it listens on another address of its device",
        "connect to the server's --listen address";
    13 Unregistered:
        "it has reached its limit of locked memory",
        "raise the limit of locked memory on the server (`ulimit -l`), or use a smaller size, \
         --depth or --chunk";
    14 NoToken:
        "it requires a token",
        "pass a copy of the server's token with --token-file";
    15 WrongToken:
        "the token does not match",
        "copy the server's --token-file to this host";
    16 Quota:
        "the file exceeds the remaining quota",
        "copy a smaller file, or start the server with a larger --quota and --client-quota";
    17 Full:
        "it serves 16 clients already, the most at one time",
        "try again later, or start another server on another port";
    18 NoSpace:
        "its disk is full",
        "free some space on the server, or start it with a directory on another disk";
    19 TooLong:
        "its system does not allow so long a file",
        "raise the limit of file sizes on the server (`ulimit -f`), or use another file system";
    20 NotPermitted:
        "it may not write to its directory",
        "check the permissions of the server's directory, and that its file system can be written";
    21 NoDirectory:
        "its directory does not exist any more",
        "create the server's directory again";
    22 NoDescriptor:
        "it has reached its limit of open files",
        "raise the limit of open files on the server (`ulimit -n`)";
    23 Overloaded:
        "its system refuses more memory or another thread",
        "free some memory on the server, or raise its limits of memory and of threads";
    24 NoServer:
        "the program that listens on that port is no `dat serve`",
        "check the port number; `dat rsm put`, `get` and `bench` are for `dat rsm export`";
}

/// The messages on an established connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Client: the name for the copy.
    Name(String),
    /// Client: a slot holds the next bytes of the file.
    Filled { slot: u16, length: u32 },
    /// Client: all data was sent, and this is its checksum.
    End { checksum: u128 },
    /// Client: return the checksum of the granted memory.
    Sum,
    /// Server: ready for the data.
    Ready,
    /// Server: a slot is empty again.
    Empty { slot: u16 },
    /// Either side: still at work, nothing to report.
    Here,
    /// Server: the file is stored, with its length and checksum as read back.
    Stored { length: u64, checksum: u128 },
    /// Server: the requested checksum.
    SumIs { checksum: u128 },
    /// Server: the request is refused, and no further message is expected.
    Refused(Refusal),
}

/// Takes fields off the front of received bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.bytes().map(u128::from_le_bytes)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Returns the value if no bytes are left.
    fn end<T>(&self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }

    /// Checks that the peer has the same protocol and version.
    fn greeting(&mut self) -> Result<(), Refusal> {
        if self.bytes() != Some(MAGIC) {
            return Err(Refusal::Unknown);
        }
        match self.u16() {
            Some(VERSION) => Ok(()),
            Some(_) => Err(Refusal::Version),
            None => Err(Refusal::Malformed),
        }
    }
}

fn greeting(room: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(room);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes
}

impl Request {
    /// Returns the bytes of all slots.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.depth) * u64::from(self.size)
    }

    /// Encodes the private data of a connection request, with the proof of a challenged client.
    pub(crate) fn encode(&self, proof: Option<&Proof>) -> Vec<u8> {
        let (kind, length) = match self.work {
            Work::Copy { length } => (1_u16, length),
            Work::Write => (2, 0),
            Work::Read => (3, 0),
            Work::Echo => (4, 0),
        };
        let mut bytes = greeting(REQUEST);
        bytes.extend(kind.to_le_bytes());
        bytes.extend(self.depth.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.resize(REQUEST, 0);
        bytes.extend(proof.into_iter().flatten());
        bytes
    }

    /// Decodes a request and the proof that follows it, if any.
    ///
    /// # Errors
    /// - `Unknown`, `Version`: the request does not come from this program.
    /// - `Malformed`: a field has an invalid value.
    /// - `TooLarge`: the request exceeds the protocol's limits.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, Option<Proof>), Refusal> {
        let mut reader = Reader(bytes);
        reader.greeting()?;
        let mut fields = || {
            let (kind, depth, size) = (reader.u16()?, reader.u16()?, reader.u32()?);
            let (length, padding) = (reader.u64()?, reader.u16()?);
            let work = match (kind, length) {
                (1, length) => Work::Copy { length },
                (2, 0) => Work::Write,
                (3, 0) => Work::Read,
                (4, 0) => Work::Echo,
                _ => return None,
            };
            let request = Self { work, depth, size };
            let plausible = padding == 0 && depth > 0 && size > 0;
            let proof = reader.bytes();
            reader.end((request, proof)).filter(|_| plausible)
        };
        let (request, proof) = fields().ok_or(Refusal::Malformed)?;
        if request.depth > MOST_DEPTH || request.bytes() > MOST_BYTES {
            return Err(Refusal::TooLarge);
        }
        Ok((request, proof))
    }
}

/// Encodes the private data of an acceptance.
///
/// It holds the memory that the client may access, if any, and the idle limit in milliseconds.
pub(crate) fn encode_answer(granted: Option<RmrTriplet>, idle: u32) -> Vec<u8> {
    let granted = granted.unwrap_or(RmrTriplet {
        context: 0,
        address: 0,
        length: 0,
    });
    let mut bytes = greeting(ANSWER);
    bytes.extend(granted.context.to_le_bytes());
    bytes.extend(granted.address.to_le_bytes());
    bytes.extend(granted.length.to_le_bytes());
    bytes.extend(idle.to_le_bytes());
    bytes
}

/// Decodes the private data of an acceptance.
///
/// # Errors
/// - Those of [`Request::decode`].
/// - `Malformed`: the memory does not have the requested length.
pub(crate) fn decode_answer(bytes: &[u8], request: &Request) -> Result<(RmrTriplet, u32), Refusal> {
    let mut reader = Reader(bytes);
    reader.greeting().map_err(of_server)?;
    let mut fields = || {
        let granted = RmrTriplet {
            context: reader.u32()?,
            address: reader.u64()?,
            length: reader.u64()?,
        };
        let idle = reader.u32()?;
        let expected = match request.work {
            Work::Echo => 0,
            _ => request.bytes(),
        };
        reader
            .end((granted, idle))
            .filter(|(granted, _)| granted.length == expected)
            .filter(|(granted, _)| granted.address.checked_add(expected).is_some())
    };
    fields().ok_or(Refusal::Malformed)
}

/// Returns what a client makes of an answer with a wrong greeting.
const fn of_server(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Unknown => Refusal::NoServer,
        refusal => refusal,
    }
}

/// Encodes the private data of a rejection; a challenge follows `NoToken`.
pub(crate) fn encode_rejection(refusal: Refusal, challenge: Option<&Challenge>) -> Vec<u8> {
    let mut bytes = greeting(REJECTION);
    bytes.push(refusal as u8);
    bytes.push(0);
    bytes.extend(challenge.into_iter().flatten());
    bytes
}

/// Decodes the challenge of a rejection, if it has one.
pub(crate) fn decode_challenge(bytes: &[u8]) -> Option<Challenge> {
    let mut reader = Reader(bytes);
    reader.greeting().ok()?;
    let is_challenge = reader.u8()? == Refusal::NoToken as u8 && reader.u8()? == 0;
    reader.bytes().filter(|_| is_challenge)
}

/// Decodes the private data of a rejection; malformed data is a rejection too.
///
/// Returns `None` if all bytes are zero: the system rejects so for a program that ends between a
/// request and its answer.
pub(crate) fn decode_rejection(bytes: &[u8]) -> Option<Refusal> {
    if bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut reader = Reader(bytes);
    Some(match reader.greeting() {
        Err(refusal) => of_server(refusal),
        Ok(()) => reader
            .u8()
            .and_then(Refusal::from_code)
            .unwrap_or(Refusal::Malformed),
    })
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MESSAGE);
        match self {
            Self::Name(name) => {
                bytes.push(1);
                bytes.extend(name.bytes().take(NAME));
            }
            Self::Filled { slot, length } => {
                bytes.push(2);
                bytes.extend(slot.to_le_bytes());
                bytes.extend(length.to_le_bytes());
            }
            Self::End { checksum } => {
                bytes.push(3);
                bytes.extend(checksum.to_le_bytes());
            }
            Self::Sum => bytes.push(4),
            Self::Ready => bytes.push(16),
            Self::Empty { slot } => {
                bytes.push(17);
                bytes.extend(slot.to_le_bytes());
            }
            Self::Here => bytes.push(18),
            Self::Stored { length, checksum } => {
                bytes.push(19);
                bytes.extend(length.to_le_bytes());
                bytes.extend(checksum.to_le_bytes());
            }
            Self::SumIs { checksum } => {
                bytes.push(20);
                bytes.extend(checksum.to_le_bytes());
            }
            Self::Refused(refusal) => bytes.extend([21, *refusal as u8]),
        }
        bytes
    }

    /// Decodes a message; returns `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let message = match reader.u8()? {
            1 => {
                let name = std::str::from_utf8(reader.rest()).ok()?;
                (1..=NAME)
                    .contains(&name.len())
                    .then(|| Self::Name(name.to_owned()))?
            }
            2 => Self::Filled {
                slot: reader.u16()?,
                length: reader.u32()?,
            },
            3 => Self::End {
                checksum: reader.u128()?,
            },
            4 => Self::Sum,
            16 => Self::Ready,
            17 => Self::Empty {
                slot: reader.u16()?,
            },
            18 => Self::Here,
            19 => Self::Stored {
                length: reader.u64()?,
                checksum: reader.u128()?,
            },
            20 => Self::SumIs {
                checksum: reader.u128()?,
            },
            21 => Self::Refused(Refusal::from_code(reader.u8()?)?),
            _ => return None,
        };
        reader.end(message)
    }
}

/// Returns true if a name stays in its directory, is not hidden, and is seen as it is.
pub(crate) fn is_plain_name(name: &str) -> bool {
    (1..=NAME).contains(&name.len())
        && !name.starts_with('.')
        && !name
            .chars()
            .any(|letter| is_invisible(letter) || matches!(letter, '/' | '\\' | ':'))
}

/// Returns true for a character that changes how a text is seen, or is not seen itself.
///
/// These are controls, marks of format and of direction, separators of lines, and characters
/// without a meaning. Spaces of every width are none of them.
pub(crate) fn is_invisible(letter: char) -> bool {
    if letter.is_ascii() {
        return letter.is_ascii_control();
    }
    let is_space = letter.is_whitespace() && !matches!(letter, '\u{85}' | '\u{2028}' | '\u{2029}');
    // After another letter, the standard library escapes exactly what cannot be printed.
    let is_printed = format!("a{letter}").escape_debug().nth(1) == Some(letter);
    !is_space && !is_printed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        [
            Work::Copy { length: 0 },
            Work::Copy { length: u64::MAX },
            Work::Write,
            Work::Read,
            Work::Echo,
        ]
        .map(|work| Request {
            work,
            depth: 3,
            size: 4096,
        })
        .to_vec()
    }

    fn messages() -> Vec<Message> {
        let mut messages = vec![
            Message::Name("a".into()),
            Message::Name("ä".repeat(NAME / 2)),
            Message::Filled {
                slot: 7,
                length: u32::MAX,
            },
            Message::End { checksum: 1 << 100 },
            Message::Sum,
            Message::Ready,
            Message::Empty { slot: u16::MAX },
            Message::Here,
            Message::Stored {
                length: 9,
                checksum: u128::MAX,
            },
            Message::SumIs { checksum: 0 },
        ];
        messages.extend(REFUSALS.iter().copied().map(Message::Refused));
        messages
    }

    #[test]
    fn encoded_messages_are_decoded() {
        for request in requests() {
            for proof in [None, Some([7; 16])] {
                let bytes = request.encode(proof.as_ref());
                assert_eq!(Request::decode(&bytes), Ok((request, proof)));
                assert_eq!(bytes.len(), REQUEST + 16 * proof.iter().len());
                // The limit of private data that a device passes without a second request.
                assert!(bytes.len() <= 55);
            }
            let granted = RmrTriplet {
                context: 5,
                address: 1 << 40,
                length: 3 * 4096,
            };
            let answer = encode_answer(Some(granted), 60_000);
            assert_eq!(answer.len(), ANSWER);
            let expected = match request.work {
                Work::Echo => Err(Refusal::Malformed),
                _ => Ok((granted, 60_000)),
            };
            assert_eq!(decode_answer(&answer, &request), expected);
            let none = decode_answer(&encode_answer(None, 1), &request);
            assert_eq!(none.is_ok(), request.work == Work::Echo);
        }
        for message in messages() {
            let bytes = message.encode();
            assert!(bytes.len() <= MESSAGE, "{message:?}");
            assert_eq!(Message::decode(&bytes), Some(message));
        }
        for refusal in REFUSALS.iter().copied() {
            let bytes = encode_rejection(refusal, None);
            assert_eq!(bytes.len(), REJECTION);
            assert_eq!(decode_rejection(&bytes), Some(refusal));
            assert_eq!(decode_challenge(&bytes), None);
            let mut bytes = encode_rejection(refusal, Some(&[9; 16]));
            assert_eq!(decode_rejection(&bytes), Some(refusal));
            // The kernel pads the private data with zeros.
            bytes.resize(148, 0);
            let challenge = (refusal == Refusal::NoToken).then_some([9; 16]);
            assert_eq!(decode_challenge(&bytes), challenge);
        }
    }

    #[test]
    fn truncated_and_extended_messages_are_refused() {
        for request in requests() {
            let mut bytes = request.encode(Some(&[7; 16]));
            for length in (0..bytes.len()).filter(|length| *length != REQUEST) {
                assert!(Request::decode(&bytes[..length]).is_err(), "{length}");
            }
            bytes.push(0);
            assert_eq!(Request::decode(&bytes), Err(Refusal::Malformed));
        }
        for message in messages() {
            if matches!(message, Message::Name(_)) {
                continue;
            }
            let mut bytes = message.encode();
            for length in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..length]), None, "{message:?}");
            }
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), None, "{message:?}");
        }
        let answer = encode_answer(None, 1);
        let echo = requests()[4];
        for length in 0..answer.len() {
            assert!(decode_answer(&answer[..length], &echo).is_err());
        }
        for (bytes, refusal) in [
            (&b""[..], None),
            (&[0; 148], None),
            (b"SMB?", Some(Refusal::NoServer)),
            (b"DATc\x01\0\x05\0", Some(Refusal::Version)),
            (b"DATc\x02\0", Some(Refusal::Malformed)),
            (b"DATc\x02\0\xFF\0", Some(Refusal::Malformed)),
        ] {
            assert_eq!(decode_rejection(bytes), refusal);
        }
    }

    #[test]
    fn requests_out_of_bounds_are_refused() {
        let decode = |change: &dyn Fn(&mut Request)| {
            let mut request = requests()[2];
            change(&mut request);
            Request::decode(&request.encode(None))
        };
        for (depth, size, refusal) in [
            (0, 1, Refusal::Malformed),
            (1, 0, Refusal::Malformed),
            (MOST_DEPTH + 1, 1, Refusal::TooLarge),
            (u16::MAX, u32::MAX, Refusal::TooLarge),
            (2, 1 << 30, Refusal::TooLarge),
        ] {
            let outcome = decode(&|request| (request.depth, request.size) = (depth, size));
            assert_eq!(outcome, Err(refusal), "{depth} {size}");
        }
        let mut bytes = requests()[2].encode(None);
        bytes[4] = bytes[4].wrapping_add(1);
        assert_eq!(Request::decode(&bytes), Err(Refusal::Version));
        bytes[0] ^= 1;
        assert_eq!(Request::decode(&bytes), Err(Refusal::Unknown));
    }

    #[test]
    fn names_outside_the_folder_are_refused() {
        for name in [
            "a",
            "a.b",
            "ä ö",
            "-x",
            "a\u{308}",
            "全角\u{3000}空白",
            "\u{1f600}",
            &"x".repeat(NAME),
        ] {
            assert!(is_plain_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "/etc/passwd",
            "a/b",
            "../a",
            "a\\b",
            "c:a",
            "a\0",
            "a\n",
            "a\u{7f}",
            "a\u{85}",
            "a\u{ad}",
            "a\u{200b}",
            "gpj.\u{202e}txt.exe",
            "a\u{2028}b",
            "a\u{2029}b",
            "a\u{2066}b",
            "\u{feff}a",
            "a\u{e0041}",
            "a\u{e000}",
            &"x".repeat(NAME + 1),
        ] {
            assert!(!is_plain_name(name), "{name:?}");
        }
    }

    /// Random bytes are either refused or encode to the same bytes again.
    #[test]
    fn random_bytes_do_no_harm() {
        let seed = std::env::var("DAT_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(|| u64::from(std::process::id()) | 1 << 40);
        println!("seed {seed} (set DAT_SEED to repeat)");
        let mut state = seed;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let encoded: Vec<Vec<u8>> = messages()
            .iter()
            .map(Message::encode)
            .chain(requests().iter().map(|request| request.encode(None)))
            .collect();
        for _ in 0..200_000 {
            let mut bytes = encoded[random() as usize % encoded.len()].clone();
            for _ in 0..random() % 4 {
                match random() % 4 {
                    0 => bytes.truncate(random() as usize % (bytes.len() + 1)),
                    1 => bytes.push(random() as u8),
                    _ if bytes.is_empty() => {}
                    _ => {
                        let at = random() as usize % bytes.len();
                        bytes[at] = random() as u8;
                    }
                }
            }
            if let Some(message) = Message::decode(&bytes) {
                assert_eq!(message.encode(), bytes, "{message:?}");
            }
            if let Ok((request, proof)) = Request::decode(&bytes) {
                assert_eq!(request.encode(proof.as_ref()), bytes, "{request:?}");
                assert!(request.bytes() <= MOST_BYTES);
                let _ = decode_answer(&bytes, &request);
            }
            decode_rejection(&bytes);
        }
    }
}
