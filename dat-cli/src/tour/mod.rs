//! `dat tour`: runs the interface and compares every outcome with the specification.

mod bind;
mod coherence;
mod record;
mod remote_memory;
mod shared;
mod stage;
mod write;

use self::record::Tour;
use crate::failure::{During, Result};
use crate::output::{HEADING, Output};

/// Text on the parts that do not exist.
const NOT_INCLUDED: &str = "Tests on physical adapters: the mlx5 data path driver is tested on a device model, \
the paravirtual driver on a device model and on QEMU's adapter. A control path on a Linux host for \
either driver. This tour neither shows nor imitates them.";
/// Text on the parts that exist, but not in the tour.
const ELSEWHERE: &str = "Available outside this tour: RDMA between processes and hosts, with and without RDMA devices \
(`dat serve`, `dat copy`, `dat perf`, `dat rsm`); C libraries for DAT 1.2 (libdat) and remote shared memory (librsm), \
and a provider for libdat2 that runs C programs for DAT 2.0 unchanged (docs/c-libraries.md); firmware (docs/firmware.md).";

/// Runs the tour; returns false if an outcome differs.
///
/// # Errors
/// A chapter could not be played to its end.
pub(crate) fn run(output: &mut Output) -> Result<bool> {
    output.line(format_args!(
        "{HEADING}The Direct Access Transport, on the backend `mock`{HEADING:#}\n\
         Two adapters, A and B. Every outcome below is compared with the specification, whose\n\
         requirements are named with it."
    ));
    let mut tour = Tour::new(output);
    write::play(&mut tour).during("the chapter on RDMA Write")?;
    bind::play(&mut tour).during("the chapter on RMR bind")?;
    shared::play(&mut tour).during("the chapter on the shared receive queue")?;
    coherence::play(&mut tour).during("the chapter on memory that is not coherent")?;
    remote_memory::play(&mut tour).during("the chapter on remote shared memory")?;
    Ok(tour.finish(NOT_INCLUDED, ELSEWHERE))
}
