//! Private data on the wire.
//!
//! The connection messages of InfiniBand and RoCE carry private data of a fixed length, padded with
//! zeros. The last byte encodes the length of the data, plus one. If it is zero, another program
//! sent data that does not fill the message; then all of it counts, padding included.

use dat_core::backend::{BackendError, PrivateData};

use crate::hal::CONNECT_DATA;

/// Most bytes of private data of a connection call.
pub(crate) const MOST: usize = 64;
const _: () = assert!(MOST <= SPLIT_MOST);

/// Packs data into a message with room for `room` bytes.
pub(crate) fn pack(data: &[u8], room: usize) -> Result<PrivateData, BackendError> {
    let last = room.checked_sub(1).ok_or(BackendError::Resources)?;
    let mark = u8::try_from(data.len())
        .ok()
        .and_then(|length| length.checked_add(1))
        .ok_or(BackendError::Resources)?;
    let mut packed = PrivateData::new();
    let fits = data.len() <= last
        && packed.extend_from_slice(data).is_ok()
        && packed.resize(last, 0).is_ok()
        && packed.push(mark).is_ok();
    if fits {
        Ok(packed)
    } else {
        Err(BackendError::Resources)
    }
}

/// Unpacks the data of a message.
///
/// The last byte of another program's data stands for no length above the limit, and for a smaller
/// one only if zeros are behind the data.
pub(crate) fn unpack(mut received: PrivateData) -> PrivateData {
    if let Some((&mark, rest)) = received.split_last()
        && let Some(length) = usize::from(mark).checked_sub(1)
        && length <= MOST
        && let Some(padding) = rest.get(length..)
        && padding.iter().all(|&byte| byte == 0)
    {
        received.truncate(length);
    }
    received
}

/// Mark of the first of two requests, which carries the tail of the data.
const FIRST: u8 = 0xFF;
/// Mark of the second request, which carries the head.
const SECOND: u8 = 0xFE;
/// First bytes of both requests.
const MAGIC: [u8; 2] = [0xDA, 0x7A];
/// Bytes of a name, which tells pairs of requests apart.
const NAME: usize = 6;
/// Bytes of data in each request.
const PART: usize = CONNECT_DATA - MAGIC.len() - NAME - 2;
/// Most bytes of data that two requests carry.
pub(crate) const SPLIT_MOST: usize = 2 * PART;

/// Name of a pair of requests, which tells a peer's pairs apart.
pub(crate) type Name = [u8; NAME];

/// Private data of a connection request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Brought {
    /// All of the data.
    Complete(PrivateData),
    /// Tail of data whose head a second request carries.
    First(Name, PrivateData),
    /// Head of data of this length.
    Second(Name, usize, PrivateData),
}

/// Splits data into the private data of two requests.
pub(crate) fn split(data: &[u8], name: Name) -> Result<[PrivateData; 2], BackendError> {
    let too_long = BackendError::Resources;
    let (head, tail) = data.split_at_checked(PART).ok_or(too_long)?;
    let length = u8::try_from(data.len()).map_err(|_| too_long)?;
    let part = |length: u8, part: &[u8], mark: u8| {
        let mut packed = PrivateData::new();
        let fits = packed.extend_from_slice(&MAGIC).is_ok()
            && packed.extend_from_slice(&name).is_ok()
            && packed.push(length).is_ok()
            && part.len() <= PART
            && packed.extend_from_slice(part).is_ok()
            && packed.resize(CONNECT_DATA - 1, 0).is_ok()
            && packed.push(mark).is_ok();
        if fits { Ok(packed) } else { Err(too_long) }
    };
    Ok([part(length, tail, FIRST)?, part(length, head, SECOND)?])
}

/// Parses the private data of a request.
pub(crate) fn receive(received: PrivateData) -> Brought {
    let part = || {
        let (&mark, rest) = received.split_last()?;
        let rest = rest.strip_prefix(&MAGIC)?;
        let (name, rest) = rest.split_first_chunk::<NAME>()?;
        let (&length, rest) = rest.split_first()?;
        let length = usize::from(length);
        if rest.len() < PART || !(PART..=SPLIT_MOST).contains(&length) {
            return None;
        }
        let take = |count: usize| PrivateData::from_slice(rest.get(..count)?).ok();
        match mark {
            FIRST => Some(Brought::First(*name, take(length - PART)?)),
            SECOND => Some(Brought::Second(*name, length, take(PART)?)),
            _ => None,
        }
    };
    part().unwrap_or_else(|| Brought::Complete(unpack(received)))
}

/// Joins head and tail.
pub(crate) fn join(mut head: PrivateData, tail: &[u8]) -> Option<PrivateData> {
    head.extend_from_slice(tail).ok()?;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hal::{REJECT_DATA, REPLY_DATA};

    fn data(bytes: &[u8]) -> PrivateData {
        PrivateData::from_slice(bytes).expect("short enough")
    }

    /// Spec: EPK-02, EVW-13
    #[test]
    fn private_data_of_every_length_round_trips() {
        for room in [56_usize, 148, 196] {
            for length in 0..room.min(MOST + 1) {
                let bytes: Vec<u8> = (0..length).map(|at| (at % 3) as u8).collect();
                let packed = pack(&bytes, room).expect("it fits");
                assert_eq!(packed.len(), room);
                assert_eq!(unpack(packed), data(&bytes), "{length} of {room}");
            }
            assert_eq!(pack(&vec![1; room], room), Err(BackendError::Resources));
        }
        assert_eq!(pack(&[], 0), Err(BackendError::Resources));
    }

    /// Spec: IAQ-07, EPK-02
    #[test]
    fn long_private_data_takes_two_requests() {
        for length in 56..=SPLIT_MOST {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 5) as u8).collect();
            let [first, second] = split(&bytes, *b"name 1").expect("it fits");
            assert_eq!((first.len(), second.len()), (CONNECT_DATA, CONNECT_DATA));
            let Brought::First(name, tail) = receive(first) else {
                panic!("{length}");
            };
            let Brought::Second(same, total, head) = receive(second) else {
                panic!("{length}");
            };
            assert_eq!((name, same, total), (*b"name 1", *b"name 1", length));
            assert_eq!(join(head, &tail), Some(data(&bytes)));
        }
        assert!(split(&[0; SPLIT_MOST + 1], [0; NAME]).is_err());
        assert!(split(&[0; PART - 1], [0; NAME]).is_err());
    }

    #[test]
    fn malformed_headers_are_plain_data() {
        let [first, _] = split(&[1; 60], [9; NAME]).expect("it fits");
        for (at, byte) in [(0, 0), (8, 0), (8, 255), (55, 0xFD)] {
            let mut bent = first.clone();
            bent[at] = byte;
            assert_eq!(
                receive(bent.clone()),
                Brought::Complete(unpack(bent)),
                "{at}"
            );
        }
        let mut short = first;
        short.truncate(12);
        short.push(FIRST).expect("room");
        assert!(matches!(receive(short), Brought::Complete(_)));
    }

    #[test]
    fn data_of_other_programs_is_unchanged() {
        let mut padded = [0; 56];
        padded[..5].copy_from_slice(b"hello");
        assert_eq!(unpack(data(&padded)), data(&padded));
        let full = [7; 56];
        assert_eq!(unpack(data(&full)), data(&full));
        assert_eq!(unpack(data(&[])), data(&[]));
        assert_eq!(unpack(data(&[255])), data(&[255]));
        for room in [REPLY_DATA, REJECT_DATA] {
            for last in 0..=u8::MAX {
                let mut full = vec![7; room];
                full[room - 1] = last;
                assert_eq!(unpack(data(&full)), data(&full), "{room}, {last}");
            }
        }
    }
}
