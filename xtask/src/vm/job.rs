//! The jobs of a guest: scripts of `xtask/vm/jobs`; a header in each states its needs.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// The start of a script line that states the job's needs; TOML follows.
const MARK: &str = "#:";
const SUFFIX: &str = "sh";

/// A job, as read from its file.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) needs: Needs,
    pub(crate) script: String,
}

/// The needs of a job, and the limits under which it runs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Needs {
    /// The purpose of the job, in one line.
    pub(crate) about: String,
    /// The longest duration in seconds on a quiet machine, boot included.
    ///
    /// A guest whose console makes progress gets more time.
    pub(crate) timeout: u64,
    /// Set if the guest's clock counts instructions.
    #[serde(default)]
    pub(crate) icount: bool,
    /// Set if the job needs a second guest, joined with the first by a network.
    ///
    /// The job runs in the first.
    #[serde(default)]
    pub(crate) peer: bool,
    /// Set if the packets of RoCEv2 between two guests are captured and judged.
    #[serde(default)]
    pub(crate) capture: bool,
    /// MiB of each guest; by default, derived from the size of its files.
    pub(crate) memory: Option<u64>,
    /// Programs of this machine that the job runs.
    #[serde(default)]
    pub(crate) programs: Vec<String>,
    /// Libraries of this machine that programs load at run time.
    ///
    /// They have the same paths in the guest.
    #[serde(default)]
    pub(crate) libraries: Vec<String>,
    /// Files of this machine that programs read; they have the same paths in the guest.
    #[serde(default)]
    pub(crate) files: Vec<PathBuf>,
    /// Kernel modules that the job needs in addition to those of the device.
    #[serde(default)]
    pub(crate) modules: Vec<String>,
    /// Programs and tests of the workspace that the job runs.
    #[serde(default)]
    pub(crate) build: Vec<Build>,
    /// C programs that use libraries of this machine only.
    #[serde(default)]
    pub(crate) compile: Vec<Compile>,
}

/// A C program without a library of the workspace.
///
/// In the guest it has the name of its source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compile {
    /// The path of the source.
    pub(crate) source: String,
    /// Libraries of this machine that the program is linked with.
    #[serde(default)]
    pub(crate) links: Vec<String>,
}

/// A build of a target of the workspace.
///
/// In the guest it has the target's name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Build {
    pub(crate) package: String,
    #[serde(default)]
    pub(crate) features: Vec<String>,
    #[serde(default)]
    pub(crate) release: bool,
    pub(crate) target: Target,
    /// The source paths of C programs that are linked with the library.
    ///
    /// In the guest they have the names of the files.
    #[serde(default)]
    pub(crate) sources: Vec<String>,
}

/// A target of the package, by name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Target {
    /// A program.
    Program(String),
    /// A file of integration tests.
    Test(String),
    /// An example.
    Example(String),
    /// A shared library; in the guest it is in the folder of the programs.
    Library(String),
}

impl Target {
    /// Returns the name of the program, test file or library.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Program(name) | Self::Test(name) | Self::Example(name) | Self::Library(name) => {
                name
            }
        }
    }
}

impl Job {
    /// Reads the job of that name from the folder of jobs.
    pub(crate) fn load(folder: &Path, name: &str) -> Result<Self> {
        let file = folder.join(name).with_extension(SUFFIX);
        if !names(folder)?.iter().any(|known| known == name) {
            bail!("unknown job `{name}`; run `cargo xtask vm --list` for a list");
        }
        let script =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(name, script).with_context(|| file.display().to_string())
    }

    fn parse(name: &str, script: String) -> Result<Self> {
        let header: Vec<&str> = script
            .lines()
            .filter_map(|line| line.strip_prefix(MARK))
            .collect();
        let needs: Needs = toml::from_str(&header.join("\n"))
            .with_context(|| format!("the lines that begin with `{MARK}`"))?;
        if needs.capture && !needs.peer {
            bail!("packets are captured between two guests only: add `peer = true`");
        }
        Ok(Self {
            name: name.to_owned(),
            needs,
            script,
        })
    }

    /// Selects the short form: it runs what the tests build, without optimisation.
    ///
    /// A library that programs of others load stays as it is installed: optimised and stripped.
    pub(crate) fn shorten(&mut self) {
        for build in &mut self.needs.build {
            let is_library = matches!(build.target, Target::Library(_));
            build.release &= is_library && build.sources.is_empty();
        }
    }

    /// Returns a job that runs one command of the user.
    pub(crate) fn of_command(command: &str, programs: Vec<String>) -> Self {
        Self {
            name: "shell".to_owned(),
            needs: Needs {
                about: "a command of the user".to_owned(),
                timeout: 300,
                programs,
                ..Needs::default()
            },
            script: format!("{command}\n"),
        }
    }
}

/// Returns the names of all jobs, sorted.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|_| path.extension().is_some_and(|it| it == SUFFIX)) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = r#"#!/bin/bash
#: about = "shows it"
#: timeout = 60
#: programs = ["rping"]
#: build = [{ package = "dat-tests", features = ["verbs"], target = { test = "verbs" } }]
# an ordinary comment
rping
"#;

    #[test]
    fn the_header_of_a_script_lists_its_needs() {
        let job = Job::parse("one", SCRIPT.to_owned()).expect("job");
        assert_eq!((job.needs.timeout, job.needs.icount), (60, false));
        assert_eq!(job.needs.programs, ["rping"]);
        let build = job.needs.build.first().expect("build");
        assert!(matches!(&build.target, Target::Test(name) if name == "verbs"));
        assert_eq!(build.features, ["verbs"]);
        assert!(!build.release);
        assert!(!job.needs.peer && job.needs.memory.is_none());
        let two = SCRIPT.replace(
            "timeout = 60",
            "timeout = 60\n#: peer = true\n#: memory = 512",
        );
        let two = Job::parse("two", two).expect("job");
        assert!(two.needs.peer && two.needs.memory == Some(512));
        assert!(!two.needs.capture);
        let captured = SCRIPT.replace(
            "timeout = 60",
            "timeout = 60\n#: peer = true\n#: capture = true\n#: compile = [{ source = \"a.c\" }]",
        );
        let captured = Job::parse("captured", captured).expect("job");
        assert!(captured.needs.capture);
        let compile = captured.needs.compile.first().expect("a program");
        assert_eq!((compile.source.as_str(), compile.links.len()), ("a.c", 0));
    }

    #[test]
    fn a_short_job_runs_what_tests_built_and_installed_libraries() {
        let two = r#"#: build = [{ package = "a", release = true, target = { library = "a" }, sources = ["a.c"] },
#:     { package = "b", release = true, target = { program = "b" } },
#:     { package = "c", release = true, target = { library = "c" } }]
"#;
        let script = format!("#: about = \"it\"\n#: timeout = 1\n{two}");
        let mut job = Job::parse("one", script).expect("job");
        job.shorten();
        let release: Vec<bool> = job.needs.build.iter().map(|build| build.release).collect();
        assert_eq!(release, [false, false, true]);
    }

    #[test]
    fn an_incomplete_script_header_is_refused() {
        for (old, new) in [
            ("#: timeout = 60\n", ""),
            ("timeout = 60", "timeout = -1"),
            ("timeout = 60", "timeout = 60\n#: memory = true"),
            ("timeout = 60", "timeout = 60\n#: capture = true"),
            (", target = { test = \"verbs\" }", ""),
            ("test =", "bench ="),
        ] {
            let script = SCRIPT.replace(old, new);
            assert!(Job::parse("one", script).is_err(), "{old:?} -> {new:?}");
        }
    }

    #[test]
    fn every_job_of_the_workspace_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/jobs");
        let names = names(&folder).expect("names");
        assert!(names.iter().any(|name| name == "conformance"));
        for name in names {
            let job = Job::load(&folder, &name).expect("job");
            assert!(
                !job.needs.about.is_empty() && job.needs.timeout > 0,
                "{name}"
            );
        }
    }

    #[test]
    fn an_unknown_job_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("folder");
        let error = Job::load(folder.path(), "none").expect_err("refused");
        assert!(error.to_string().contains("unknown job `none`"));
    }
}
