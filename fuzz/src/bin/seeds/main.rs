//! Writes the seeds of the fuzz targets, all without an argument: `seeds [TARGET...]`.
//!
//! A module for each target lists its inputs; those of `serve_wire` stand with the target, the only
//! one that sees the protocol. The seeds of `config` are texts written by hand. All seeds of a
//! target are run before they are written.

/// Scenarios: each a name, a setup that is zero unless it is given, and operations.
///
/// Operations in brackets are lists of threads.
macro_rules! scenarios {
    ($($name:literal $(in $setup:expr)? => $([$($operation:expr),*]),*;)*) => {
        vec![$(($name, scenarios!(@ $($setup)?), [$(vec![$($operation),*]),*])),*]
    };
    ($($name:literal $(in $setup:expr)? => $($operation:expr),*;)*) => {
        vec![$(($name, scenarios!(@ $($setup)?), vec![$($operation),*])),*]
    };
    (@) => { Default::default() };
    (@ $setup:expr) => { $setup };
}

/// Short forms of operations, as functions of some of their arguments.
macro_rules! short_forms {
    ($($(#[$doc:meta])* $name:ident($($argument:ident),*) = $operation:expr;)*) => {$(
        $(#[$doc])*
        const fn $name($($argument: u8),*) -> Operation {
            $operation
        }
    )*};
}

mod cabi;
mod cm_wire;
mod device;
mod ops;
mod roce_packet;
mod roce_queue;
mod roce_session;
mod roce_wire;
mod rsm_ops;
mod rsm_wire;
mod sched;
mod search;
mod verbs;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use dat_fuzz::{serve_wire, targets};

/// The name of a seed, and its bytes.
type Seed = (String, Vec<u8>);
/// A name, a setup, and operations.
type Scenario<S, O> = (&'static str, S, Vec<O>);

/// Makes the seeds of a target.
type Generator = fn() -> Vec<Seed>;

/// The targets with generated seeds.
const TARGETS: [(&str, Generator); 15] = [
    ("ops", ops::seeds),
    ("rsm_ops", rsm_ops::seeds),
    ("rsm_wire", rsm_wire::seeds),
    ("cm_wire", cm_wire::seeds),
    ("roce_packet", roce_packet::seeds),
    ("roce_queue", roce_queue::seeds),
    ("roce_session", roce_session::seeds),
    ("roce_wire", roce_wire::seeds),
    ("serve_wire", serve_wire::seeds),
    ("device", device::seeds),
    ("sched", sched::seeds),
    ("cabi", cabi::seeds_of_1_2),
    ("cabi2", cabi::seeds_of_2_0),
    ("cabi_rsm", cabi::seeds_of_rsm),
    ("verbs", verbs::seeds),
];

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let is_known = |name: &&String| TARGETS.iter().any(|(known, _)| known == name);
    if let Some(other) = wanted.iter().find(|name| !is_known(name)) {
        return Err(format!("there is no target {other} with generated seeds").into());
    }
    for (target, seeds) in TARGETS {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == target) {
            continue;
        }
        let run = targets::find(target).ok_or("a target that does not exist")?;
        let seeds = seeds();
        for (name, input) in &seeds {
            println!("{target}: {name}");
            run(input);
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
        let folder = folder.join(target);
        if folder.is_dir() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        for (name, input) in seeds {
            fs::write(folder.join(name), input)?;
        }
    }
    Ok(())
}
