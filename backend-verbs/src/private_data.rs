//! Private data on the wire.
//!
//! The connection messages of InfiniBand and RoCE carry private data of a fixed length, padded with zeros, so the last
//! byte tells how much of it is meant: the number of bytes plus one. A zero there is what another program's data ends
//! with that does not fill the message: then all of it counts, padding included.

use dat_core::backend::{BackendError, PrivateData};

/// Data as it goes into a message with room for `room` bytes.
pub(crate) fn pack(data: &[u8], room: usize) -> Result<PrivateData, BackendError> {
    let last = room.checked_sub(1).ok_or(BackendError::Resources)?;
    let mark = u8::try_from(data.len())
        .ok()
        .and_then(|length| length.checked_add(1))
        .ok_or(BackendError::Resources)?;
    let mut packed = PrivateData::new();
    let whole = data.len() <= last
        && packed.extend_from_slice(data).is_ok()
        && packed.resize(last, 0).is_ok()
        && packed.push(mark).is_ok();
    if whole {
        Ok(packed)
    } else {
        Err(BackendError::Resources)
    }
}

/// Data as it came in a message.
pub(crate) fn unpack(mut received: PrivateData) -> PrivateData {
    if let Some((&mark, rest)) = received.split_last()
        && let Some(length) = usize::from(mark).checked_sub(1)
        && let Some(padding) = rest.get(length..)
        && padding.iter().all(|&byte| byte == 0)
    {
        received.truncate(length);
    }
    received
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(bytes: &[u8]) -> PrivateData {
        PrivateData::from_slice(bytes).expect("short enough")
    }

    /// Spec: EPK-02, EVW-13
    #[test]
    fn all_lengths_come_out_as_they_went_in() {
        for room in [56_usize, 148, 196] {
            for length in 0..room {
                let bytes: Vec<u8> = (0..length).map(|at| (at % 3) as u8).collect();
                let packed = pack(&bytes, room).expect("it fits");
                assert_eq!(packed.len(), room);
                assert_eq!(unpack(packed), data(&bytes), "{length} of {room}");
            }
            assert_eq!(pack(&vec![1; room], room), Err(BackendError::Resources));
        }
        assert_eq!(pack(&[], 0), Err(BackendError::Resources));
    }

    #[test]
    fn data_of_other_programs_stays_whole() {
        let mut padded = [0; 56];
        padded[..5].copy_from_slice(b"hello");
        assert_eq!(unpack(data(&padded)), data(&padded));
        let full = [7; 56];
        assert_eq!(unpack(data(&full)), data(&full));
        assert_eq!(unpack(data(&[])), data(&[]));
        assert_eq!(unpack(data(&[255])), data(&[255]));
    }
}
