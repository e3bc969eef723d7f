//! Seeds of random runs.

/// Returns the seeds of a test, from the environment or the given ones.
pub(crate) fn seeds(first: u64, runs: u64) -> impl Iterator<Item = u64> {
    let given = |name, usual| {
        let text = std::env::var(name).ok();
        let number = text.map(|text| text.parse());
        number.map_or(usual, |number| {
            number.unwrap_or_else(|error| panic!("{name}: {error}"))
        })
    };
    let (first, runs): (u64, u64) = (
        given("DAT_ORACLE_SEED", first),
        given("DAT_ORACLE_RUNS", runs),
    );
    println!("DAT_ORACLE_SEED={first} DAT_ORACLE_RUNS={runs}");
    (0..runs).map(move |step| first.wrapping_add(step))
}
