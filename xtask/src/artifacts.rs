//! The artifacts of a cargo build.

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Artifact, Message};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs a cargo command that builds; returns its artifacts.
///
/// `label` names the build in an error.
pub(crate) fn of(command: &mut Command, label: &str) -> Result<Vec<Artifact>> {
    let mut child = command
        // Not `--quiet`, so that cargo prints that it waits for another build.
        .args(["--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let output = child.stdout.take().context("standard output of cargo")?;
    let mut built = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message? {
            built.push(artifact);
        }
    }
    ensure!(child.wait()?.success(), "{label} does not build");
    Ok(built)
}

/// Returns the program that was built from the target of this name.
pub(crate) fn program(built: &[Artifact], name: &str) -> Result<PathBuf> {
    let mut named = built.iter().filter(|artifact| artifact.target.name == name);
    let program = named.find_map(|artifact| artifact.executable.as_ref());
    let program = program.with_context(|| format!("cargo built no {name}"))?;
    Ok(program.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Whoever starts a task waits for cargo first, which says that it waits unless it is quiet.
    #[test]
    fn the_cargo_that_starts_tasks_is_not_quiet() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cargo/config.toml");
        let content = fs::read_to_string(file).expect("the file of cargo");
        let config: toml::Table = content.parse().expect("TOML");
        let command = config["alias"]["xtask"].as_str().expect("a command");
        let mut words = command.split_whitespace();
        assert!(
            words.all(|word| !["--quiet", "-q"].contains(&word)),
            "{command}"
        );
    }
}
