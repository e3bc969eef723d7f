//! Runs the seeds of one fuzz target without the fuzzer.
//!
//! `cargo xtask harden --only coverage` calls it.
//!
//! One build serves all targets, with the compiler of all other code.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use arbitrary::{Arbitrary, Unstructured};
use dat_fuzz::{cabi, config, device, rsm_wire, sched, serve_wire, sideband_wire, verbs};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let (Some(target), Some(seeds)) = (arguments.next(), arguments.next()) else {
        return Err("usage: replay TARGET SEEDS".into());
    };
    let target = target.into_string().map_err(|_| "no such target")?;
    let entries: Result<Vec<PathBuf>, _> = fs::read_dir(seeds)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut paths = entries?;
    paths.sort();
    if paths.is_empty() {
        return Err("no seeds".into());
    }
    for path in paths {
        let input = fs::read(&path)?;
        let input = input.as_slice();
        match target.as_str() {
            "ops" => ops(input)?,
            "rsm_ops" => rsm_ops(input)?,
            "rsm_wire" => rsm_wire::run(input),
            "sideband_wire" => sideband_wire::run(input),
            "config" => config::run(input),
            "cabi" => cabi::v1::run(input),
            "cabi2" => cabi::v2::run(input),
            "cabi_rsm" => cabi::rsm::run(input),
            "device" => device::run(input),
            "sched" => sched::run(input),
            "serve_wire" => serve_wire::run(input),
            "verbs" => verbs::run(input),
            _ => return Err(format!("there is no target {target}").into()),
        }
        println!("{target}: {}", path.display());
    }
    Ok(())
}

fn ops(input: &[u8]) -> Result<(), Box<dyn Error>> {
    let input = dat_model::Input::arbitrary_take_rest(Unstructured::new(input))?;
    input.run().map_err(|mismatch| mismatch.to_string().into())
}

fn rsm_ops(input: &[u8]) -> Result<(), Box<dyn Error>> {
    let input = dat_model::rsm::Input::arbitrary_take_rest(Unstructured::new(input))?;
    input.run().map_err(|mismatch| mismatch.to_string().into())
}
