//! Numbers that peers name: valid ones, ended ones and guesses.

use std::collections::{HashMap, HashSet, VecDeque};

use backend_roce::proto::numbers::{NumberKind, NumberSlot, NumberTable};
use fastrand::Rng;

/// Spec: ROCE-128
#[test]
fn a_key_grants_until_it_ends_and_never_again() {
    let seed = 128;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut slots = [NumberSlot::EMPTY; 100];
    let mut table = NumberTable::new(NumberKind::Word, [1; 16], &mut slots).expect("a table");
    // 128 slots would be named by 7 bits: 8 are kept in reserve.
    assert_eq!(table.capacity(), 92);
    let drawn: Vec<u32> = (0..92).map(|_| table.draw(0).expect("room")).collect();
    assert_eq!(table.draw(0), None);
    for key in drawn {
        assert_eq!(table.remove(key), Some(0));
    }
    let mut valid: HashMap<u32, u64> = HashMap::new();
    let mut ended: VecDeque<u32> = VecDeque::new();
    for step in 0..5_000 {
        if random.bool() {
            match table.draw(step) {
                Some(key) => {
                    assert_ne!(key, 0);
                    assert_eq!(valid.insert(key, step), None);
                    assert!(!ended.contains(&key));
                }
                None => assert_eq!(valid.len(), table.capacity()),
            }
        } else if let Some(key) = valid.keys().next().copied() {
            assert_eq!(table.remove(key), valid.remove(&key));
            assert_eq!(table.get(key), None);
            assert_eq!(table.remove(key), None);
            ended.push_back(key);
            ended.truncate(500);
        }
        for (key, grant) in &valid {
            assert_eq!(table.get(*key), Some(grant));
        }
        let guess = random.u32(..);
        assert_eq!(table.get(guess), valid.get(&guess));
        assert_eq!(table.get(0), None);
    }
}

/// Spec: ROCE-130
#[test]
fn keys_do_not_repeat_while_one_is_drawn_and_ended_beside_many() {
    // 16 slots: one is kept, 14 are taken for good, one key comes and goes.
    let mut slots = [NumberSlot::EMPTY; 16];
    let mut table = NumberTable::new(NumberKind::Word, [2; 16], &mut slots).expect("a table");
    assert_eq!(table.capacity(), 15);
    let mut seen: HashSet<u32> = (0..14).map(|_| table.draw(()).expect("room")).collect();
    for _ in 0..20_000 {
        let key = table.draw(()).expect("room");
        assert!(seen.insert(key));
        assert_eq!(table.remove(key), Some(()));
    }
    assert!(table.draw(()).is_some());
    assert_eq!(table.draw(()), None);
}

/// Spec: ROCE-128
#[test]
fn guesses_hit_as_often_as_keys_are_valid() {
    let mut random = Rng::with_seed(4);
    let mut slots = vec![NumberSlot::EMPTY; 1 << 18];
    let mut table = NumberTable::new(NumberKind::Word, [4; 16], &mut slots).expect("a table");
    for _ in 0..240_000 {
        table.draw(()).expect("room");
    }
    let hits = (0..300_000)
        .filter(|_| table.get(random.u32(..)).is_some())
        .count();
    // 300,000 × 240,000 / 2^32 = 17.
    assert!((4..40).contains(&hits), "{hits}");
    // Neighbours of a valid key are guesses, too.
    let key = table.draw(()).expect("room");
    let hits = (1..30_000)
        .filter(|step| table.get(key.wrapping_add(*step)).is_some())
        .count();
    assert!(hits < 12, "{hits}");
}

/// Spec: ROCE-128
#[test]
fn tables_have_sizes_that_keys_can_name() {
    assert!(NumberTable::<()>::new(NumberKind::Word, [0; 16], &mut []).is_none());
    assert!(NumberTable::<()>::new(NumberKind::Word, [0; 16], &mut [NumberSlot::EMPTY]).is_none());
    let mut many = vec![NumberSlot::EMPTY; (1 << 24) + 1];
    assert!(NumberTable::<()>::new(NumberKind::Word, [0; 16], &mut many).is_none());
    let mut two = [NumberSlot::EMPTY; 2];
    let mut table = NumberTable::new(NumberKind::Word, [0; 16], &mut two).expect("a table");
    let key = table.draw(5).expect("room");
    assert_eq!((table.capacity(), table.draw(6)), (1, None));
    assert_eq!(table.get(key), Some(&5));
}

/// Spec: ROCE-56
#[test]
fn queue_pairs_have_numbers_of_24_bits_that_are_free() {
    let mut slots = [NumberSlot::EMPTY; 64];
    let mut table = NumberTable::new(NumberKind::Qpn, [5; 16], &mut slots).expect("a table");
    assert_eq!(table.capacity(), 60);
    let mut seen = HashSet::new();
    for draw in 0..100_000 {
        let number = table.draw(draw).expect("room");
        assert!((2..0xFF_FFFF).contains(&number));
        assert!(seen.insert(number), "{draw}");
        assert_eq!(table.get_mut(number), Some(&mut { draw }));
        assert_eq!(table.get(number | 1 << 24), None);
        assert_eq!(table.remove(number), Some(draw));
    }
    let mut many = vec![NumberSlot::EMPTY; (1 << 16) + 1];
    assert!(NumberTable::<()>::new(NumberKind::Qpn, [0; 16], &mut many).is_none());
}
