//! Private data of connections, with its length and its padding.

use dat_core::backend::{PRIVATE_DATA_MAX, PrivateData as CoreData};

use crate::proto::connection::{ConnectRequest, PRIVATE_TAIL, PrivateData, REQUEST_PRIVATE};

/// How private data is in its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PrivateForm {
    /// With its length.
    #[default]
    Packed,
    /// As programs of rdma_cm have it: followed by zeros, and all of the room when it is received.
    Plain,
}

/// Returns the largest private data of a request, in bytes.
pub(crate) const fn private_size() -> usize {
    REQUEST_PRIVATE + PRIVATE_TAIL
}

/// Packs private data into the room of a message.
///
/// The last byte is the length plus one; other programs leave it 0.
pub(super) fn pack<const N: usize>(form: PrivateForm, data: &[u8]) -> Option<PrivateData<N>> {
    if form == PrivateForm::Plain {
        return PrivateData::new(data);
    }
    let mut bytes = [0; N];
    let (last, room) = bytes.split_last_mut()?;
    room.get_mut(..data.len())?.copy_from_slice(data);
    *last = u8::try_from(data.len()).ok()?.checked_add(1)?;
    PrivateData::new(&bytes)
}

/// Unpacks private data; of other programs, all of the room counts that the core can hold.
///
/// Ends of this project over RDMA devices pack theirs in the same way, and send no mark.
/// The last byte of another program's data stands for no length above the limit, and for a smaller
/// one only if zeros are behind the data.
pub(super) fn unpack(form: PrivateForm, room: &[u8]) -> CoreData {
    let packed = || {
        if form == PrivateForm::Plain {
            return None;
        }
        let (last, rest) = room.split_last()?;
        let length = usize::from(*last).checked_sub(1)?;
        let length = Some(length).filter(|length| *length <= private_size())?;
        let (data, padding) = rest.split_at_checked(length)?;
        padding.iter().all(|byte| *byte == 0).then_some(data)
    };
    let whole = room.get(..PRIVATE_DATA_MAX).unwrap_or(room);
    CoreData::from_slice(packed().unwrap_or(whole)).unwrap_or_default()
}

/// Packs the private data of a request, with the part that the mark carries.
pub(super) fn pack_request(
    form: PrivateForm,
    data: &[u8],
) -> Option<(PrivateData<REQUEST_PRIVATE>, u8, [u8; PRIVATE_TAIL])> {
    if let Some(packed) = pack(form, data) {
        return Some((packed, 0, [0; PRIVATE_TAIL]));
    }
    if form == PrivateForm::Plain {
        return None;
    }
    let (head, rest) = data.split_at_checked(REQUEST_PRIVATE)?;
    let mut tail = [0; PRIVATE_TAIL];
    tail.get_mut(..rest.len())?.copy_from_slice(rest);
    let length = u8::try_from(data.len()).ok()?.checked_add(1)?;
    Some((PrivateData::new(head)?, length, tail))
}

/// Returns the private data of a request.
///
/// Data that fills the room of rdma_cm counts whole whatever its last byte is: nothing shows
/// whether it comes from another program, or with its length from an end of ours over a device.
pub(super) fn unpack_request(form: PrivateForm, request: &ConnectRequest) -> CoreData {
    let head = request.private_data.bytes();
    match request.mark {
        Some(mark) if mark.private_length > 0 => {
            let mut data = CoreData::from_slice(head).unwrap_or_default();
            let _ = data.extend_from_slice(&mark.private_tail);
            data.truncate(usize::from(mark.private_length) - 1);
            data
        }
        None if head.last().copied().map(usize::from) == Some(REQUEST_PRIVATE) => {
            CoreData::from_slice(head).unwrap_or_default()
        }
        _ => unpack(form, head),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::connection::{REJECT_PRIVATE, REPLY_PRIVATE};

    /// Spec: ROCE-152
    #[test]
    fn full_answers_of_other_programs_are_whole_whatever_their_last_byte() {
        for room in [REPLY_PRIVATE, REJECT_PRIVATE] {
            for last in 0..=u8::MAX {
                let mut data = [7; REPLY_PRIVATE];
                let data = &mut data[..room];
                data[room - 1] = last;
                let kept = &data[..room.min(PRIVATE_DATA_MAX)];
                let unpacked = unpack(PrivateForm::Packed, data);
                assert_eq!(unpacked, *kept, "{room} bytes, the last is {last}");
            }
        }
    }

    /// Spec: ROCE-152
    #[test]
    fn packed_data_has_its_length_again() {
        for length in 0..=private_size() {
            let data = &[7; 64][..length];
            let form = PrivateForm::Packed;
            let reply = pack::<REPLY_PRIVATE>(form, data).expect("room");
            assert_eq!(unpack(form, reply.bytes()), *data);
            let rejection = pack::<REJECT_PRIVATE>(form, data).expect("room");
            assert_eq!(unpack(form, rejection.bytes()), *data);
        }
    }

    /// Spec: ROCE-272
    #[test]
    fn plain_data_fills_its_room_and_is_received_with_it() {
        let form = PrivateForm::Plain;
        for length in [0, 1, REPLY_PRIVATE - 1, REPLY_PRIVATE] {
            let data = &[7; REPLY_PRIVATE][..length];
            let reply = pack::<REPLY_PRIVATE>(form, data).expect("room");
            let mut whole = data.to_vec();
            whole.resize(REPLY_PRIVATE.min(PRIVATE_DATA_MAX), 0);
            assert_eq!(unpack(form, reply.bytes()), *whole);
        }
        assert!(pack::<REPLY_PRIVATE>(form, &[7; REPLY_PRIVATE + 1]).is_none());
        assert!(pack_request(form, &[7; REQUEST_PRIVATE]).is_some());
        assert!(pack_request(form, &[7; REQUEST_PRIVATE + 1]).is_none());
    }
}
