//! Shell completions and man pages of the program.

use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use xshell::cmd;

use crate::workspace::Workspace;

/// Arguments of both tasks.
#[derive(Args)]
pub(crate) struct Options {
    /// Where to; made if it does not exist [default: target/completions, target/man]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

/// Writes what `kind` says. The work is done by an example of the program's package, so that these tasks do not have to be
/// built from everything that the program is built from.
pub(crate) fn write(workspace: &Workspace, kind: &str, options: &Options) -> Result<()> {
    let directory = match &options.output {
        Some(directory) => std::path::absolute(directory).context("the output directory")?,
        None => workspace.root().join("target").join(kind),
    };
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let shell = &workspace.shell;
    cmd!(
        shell,
        "cargo run --quiet --package dat-cli --example manual -- {kind} {directory}"
    )
    .quiet()
    .run()?;
    Ok(())
}
