//! Loom tests of concurrent calls.
//!
//! Each explores all interleavings, and all values that the memory model allows a load to return.
//!
//! `cargo xtask harden --only models` builds and runs them with `--cfg loom`. Each is an ordinary
//! test. With the environment variable `DAT_CORE_CHANGED` it runs with one access of the core
//! changed, and must fail then.

mod bench;
mod latch;
mod lock;
mod parking;
mod posting;
mod record;
mod slot;
mod slots;
mod turns;

use std::env;
use std::format;
use std::println;
use std::string::String;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use crate::sync::loom_sync::{self, Change, Mutant};

/// Environment variable with the access to change: file, line, column and change.
const CHANGED: &str = "DAT_CORE_CHANGED";
/// Environment variable that makes a test list the accesses that can be changed.
const LISTED: &str = "DAT_CORE_LISTED";

/// Runs a loom test in all interleavings.
///
/// `bound` limits the preemptions, which are the interruptions of a thread that could continue;
/// `None` tries all.
pub(crate) fn prove(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    loom_sync::change(changed());
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = 20_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        loom_sync::set_under_way(false);
        model();
    });
    let bound = bound.map_or_else(|| String::from("all"), |bound| format!("{bound}"));
    println!(
        "proved: {} ways, {} accesses, {} interruptions",
        runs.load(Ordering::Relaxed),
        loom_sync::accesses(),
        bound
    );
    if env::var_os(LISTED).is_some() {
        for Mutant {
            file,
            line,
            column,
            change,
        } in loom_sync::seen()
        {
            println!("changeable: {file}:{line}:{column}:{}", change.name());
        }
    }
}

fn changed() -> Option<Mutant> {
    let named = env::var(CHANGED).ok()?;
    let parts: Vec<&str> = named.split(':').collect();
    let [file, line, column, change] = parts[..] else {
        panic!("{named} names no access");
    };
    let change = Change::ALL
        .into_iter()
        .find(|known| known.name() == change)
        .expect("a known change");
    Some(Mutant {
        file: file.into(),
        line: line.parse().expect("a line"),
        column: column.parse().expect("a column"),
        change,
    })
}
