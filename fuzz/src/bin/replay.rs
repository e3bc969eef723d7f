//! Runs the seeds of one fuzz target without the fuzzer: `replay TARGET FOLDER`.
//!
//! `cargo xtask harden --only coverage` calls it. One build serves all targets, with the compiler
//! of all other code.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use dat_fuzz::targets;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let (Some(target), Some(seeds)) = (arguments.next(), arguments.next()) else {
        return Err("usage: replay TARGET FOLDER".into());
    };
    let target = target.into_string().map_err(|_| "no such target")?;
    let run = targets::find(&target).ok_or_else(|| format!("there is no target {target}"))?;
    let entries: Result<Vec<PathBuf>, _> = fs::read_dir(seeds)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut paths = entries?;
    paths.sort();
    if paths.is_empty() {
        return Err("no seeds".into());
    }
    for path in paths {
        println!("{target}: {}", path.display());
        run(&fs::read(&path)?);
    }
    Ok(())
}
