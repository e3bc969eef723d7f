//! Seed and settings of random runs.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::test_runner::{Config, RngSeed};

/// Seed of all runs of this process, printed once.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    let given = std::env::var("DAT_ORACLE_SEED").ok();
    let seed = given.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(1, |elapsed| elapsed.as_nanos() as u64)
    });
    println!("DAT_ORACLE_SEED={seed}");
    seed
});

/// Returns the settings of random runs.
pub(crate) fn config() -> Config {
    Config {
        rng_seed: RngSeed::Fixed(*SEED),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    }
}
