use super::*;

#[test]
fn numbers_lead_to_tokens_while_their_queue_pairs_live() {
    let directory = Directory::new(Leaves::default());
    for number in [0, 17, 0xFFF, 0x1000, 0xFF_FFFF] {
        assert_eq!(directory.token(number), 0);
        assert!(directory.enter(number, u64::from(number) + 5));
        assert_eq!(directory.token(number), u64::from(number) + 5);
    }
    directory.leave(0x1000);
    assert_eq!(directory.token(0x1000), 0);
    assert_eq!(directory.token(0xFFF), 0xFFF + 5);
    for nonsense in [0x100_0000, u32::MAX] {
        assert_eq!(directory.token(nonsense), 0);
        assert!(!directory.enter(nonsense, 1));
        assert!(!directory.note_failure(nonsense));
    }
}

#[test]
fn failures_and_early_data_are_reported_once() {
    let directory = Directory::new(Leaves::default());
    directory.enter(9, 1);
    assert!(!directory.take_changes());
    assert!(!directory.note_data(9), "nobody waits");
    directory.wait_for_data(9);
    assert!(directory.is_waiting());
    assert!(!directory.note_failure(10), "there is no such queue pair");
    directory.enter(9, 1);
    directory.wait_for_data(9);
    assert!(directory.note_data(9));
    assert!(!directory.note_data(9));
    assert!(directory.note_failure(9));
    assert!(!directory.note_failure(9));
    assert!(directory.take_changes());
    assert!(!directory.take_changes());
    let noted = Noted {
        arrived: true,
        failed: true,
    };
    assert_eq!(directory.noted(9), noted);
}

#[test]
fn nonsense_is_reported_once() {
    let directory = Directory::new(Leaves::default());
    assert!(!directory.take_nonsense());
    assert!(directory.note_nonsense());
    assert!(!directory.note_nonsense());
    assert!(directory.take_changes());
    assert!(directory.take_nonsense());
    assert!(!directory.take_nonsense());
    assert!(!directory.note_nonsense());
    assert!(!directory.take_changes());
}

#[test]
fn waiting_ends_with_the_last_entry_that_waits() {
    let directory = Directory::new(Leaves::default());
    for number in 0..3 {
        directory.enter(number, 1);
        directory.wait_for_data(number);
        directory.wait_for_data(number);
    }
    directory.expect_data(0);
    directory.expect_data(0);
    directory.leave(1);
    assert!(directory.is_waiting());
    directory.expect_failure(2);
    assert!(!directory.is_waiting());
    assert!(!directory.note_failure(2));
}
