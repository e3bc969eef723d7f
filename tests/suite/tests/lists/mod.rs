//! Random lists on two beds, compared and counted.

use dat_tests::differential::{Compared, compare, record};
use dat_tests::fixture::Testbed;

/// Operations of a list.
const OPERATIONS: usize = 120;
/// Default number of lists; `DAT_LISTS` changes it.
const LISTS: u64 = 8;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Plays the same lists on the mock and on the bed of a backend.
pub(crate) fn lists<M: Testbed, T: Testbed>(
    backend: &str,
    mock: impl Fn() -> M,
    bed: impl Fn() -> T,
) {
    let first = number("DAT_SEED", 1);
    let mut all = Compared::default();
    for seed in first..first + number("DAT_LISTS", LISTS) {
        println!("DAT_SEED={seed} DAT_LISTS=1");
        let on_mock = record(&mock(), backend, seed, OPERATIONS);
        let here = record(&bed(), backend, seed, OPERATIONS);
        all.add(compare(seed, ("mock", &on_mock), (backend, &here)));
    }
    let Compared {
        lists,
        operations,
        returns,
        events,
        memories,
    } = all;
    println!("compared|{backend}|{lists}|{operations}|{returns}|{events}|{memories}");
    assert!(returns > 0 && events > 0 && memories > 0);
}
