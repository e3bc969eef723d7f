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
mod tests;
