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
