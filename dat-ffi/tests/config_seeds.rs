//! Seeds of the fuzz target `config`: user-written files, and inputs that once failed.

#[expect(unreachable_pub, reason = "the file belongs to the fuzzer")]
#[path = "../../fuzz/src/config.rs"]
mod config;

use std::fs;
use std::path::Path;

/// Spec: REGL-05, RSMGEN-09, RSMID-01
#[test]
fn every_seed_is_read_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/config");
    let mut seeds = 0;
    for seed in fs::read_dir(folder).expect("the seeds of the target") {
        let path = seed.expect("a seed").path();
        println!("{}", path.display());
        config::run(&fs::read(path).expect("can be read"));
        seeds += 1;
    }
    assert!(seeds >= 9, "{seeds} seeds");
}
