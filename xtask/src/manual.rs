//! Shell completions of the program, and man pages of the program and the C libraries.

use anyhow::{Context, Result};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use xshell::cmd;

use crate::pages::Manual;
use crate::workspace::Workspace;

/// Arguments of both tasks.
#[derive(Args)]
pub(crate) struct Options {
    /// Output directory, created if missing [default: a directory in `target`, which is printed]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

/// Writes the shell completions of the program.
pub(crate) fn write_completions(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = options.folder(workspace, "completions")?;
    write_of_program(workspace, &[], "completions", &folder)?;
    println!("{}", folder.display());
    Ok(())
}

/// Writes man pages of the program and of the C libraries.
///
/// The folders are `man1`, `man3`, `man5` and `man7`.
pub(crate) fn write_pages(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = options.folder(workspace, "man")?;
    write_of_program(workspace, &[], "man", &folder.join("man1"))?;
    for (path, text) in Manual::read(&workspace.root().join("dat-ffi"))?.render()? {
        let path = folder.join(path);
        make_folder(path.parent().unwrap_or(&folder))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("{}", folder.display());
    Ok(())
}

impl Options {
    fn folder(&self, workspace: &Workspace, usual: &str) -> Result<PathBuf> {
        match &self.output {
            Some(folder) => std::path::absolute(folder).context("the output directory"),
            None => Ok(workspace.root().join("target").join(usual)),
        }
    }
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Builds the example that [`write_of_program`] runs, with the cargo arguments `built`.
pub(crate) fn build_writer(workspace: &Workspace, built: &[String]) -> Result<()> {
    let shell = &workspace.shell;
    let quiet = cmd!(
        shell,
        "cargo build --quiet --package dat-cli --example manual {built...}"
    );
    quiet.quiet().run()?;
    Ok(())
}

/// Writes the files of `kind` ("man" or "completions") into a folder.
///
/// An example of the program's package does the work, so xtask does not depend on the program's
/// crates. `built` holds the cargo arguments of the example's build.
pub(crate) fn write_of_program(
    workspace: &Workspace,
    built: &[String],
    kind: &str,
    folder: &Path,
) -> Result<()> {
    build_writer(workspace, built)?;
    make_folder(folder)?;
    let shell = &workspace.shell;
    let quiet = cmd!(
        shell,
        "cargo run --quiet --package dat-cli --example manual {built...} -- {kind} {folder}"
    );
    // The example prints the folder.
    quiet.quiet().ignore_stdout().run()?;
    Ok(())
}
