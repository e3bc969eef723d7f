//! Debian packages that checks need, and how they get onto the machine.

use anyhow::{Result, bail};
use std::env;
use xshell::{Shell, cmd};

/// A program that a check runs, and the package that brings it.
struct SystemPackage {
    name: &'static str,
    program: &'static str,
    why: &'static str,
}

const NEEDED: &[SystemPackage] = &[SystemPackage {
    name: "valgrind",
    program: "valgrind",
    why: "counts the instructions of the hot paths",
}];

/// Installs what is missing, as root or through sudo; otherwise names the command and fails.
pub(crate) fn install_missing(shell: &Shell) -> Result<()> {
    let missing: Vec<&SystemPackage> = NEEDED
        .iter()
        .filter(|package| !in_path(package.program))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("missing: {} ({})", package.name, package.why);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let Some((program, before)) = as_root(shell)? else {
        bail!(
            "install the missing packages, then run this again:\n  \
             sudo apt-get update && sudo apt-get install --yes {}",
            names.join(" ")
        );
    };
    let quiet = ["env", "DEBIAN_FRONTEND=noninteractive"];
    let options = ["--yes", "--no-install-recommends"];
    cmd!(shell, "{program} {before...} {quiet...} apt-get update").run()?;
    cmd!(
        shell,
        "{program} {before...} {quiet...} apt-get install {options...} {names...}"
    )
    .run()?;
    Ok(())
}

/// The program, with its options, that runs a command as root; `None` where there is none.
fn as_root(shell: &Shell) -> Result<Option<(&'static str, &'static [&'static str])>> {
    const SUDO: (&str, &[&str]) = ("sudo", &["--non-interactive"]);
    if !in_path("apt-get") {
        return Ok(None);
    }
    if cmd!(shell, "id --user").quiet().read()? == "0" {
        return Ok(Some(("env", &[])));
    }
    let (sudo, options) = SUDO;
    let works = in_path(sudo)
        && cmd!(shell, "{sudo} {options...} true")
            .quiet()
            .ignore_stderr()
            .run()
            .is_ok();
    Ok(works.then_some(SUDO))
}

fn in_path(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}
