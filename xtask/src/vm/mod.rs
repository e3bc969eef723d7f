//! Jobs in a guest that has an RDMA device: Debian's kernel in QEMU, with soft-RoCE and the programs of this machine.

mod image;
mod job;
mod kernel;
mod machine;
mod verdict;

use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use clap::Args;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use xshell::cmd;

use self::image::Image;
use self::job::{Build, Job, Target};
use self::kernel::Kernel;
use self::machine::Machine;
use self::verdict::Verdict;
use crate::packages;
use crate::workspace::Workspace;

/// Programs that every guest has, beside those of busybox. Its own `timeout` leaves a process behind for a while.
const PROGRAMS: [&str; 4] = ["bash", "ip", "rdma", "timeout"];
/// The library that the C library loads when a thread is cancelled or ends itself.
const UNWINDER: &str = "libgcc_s.so.1";
/// Where Debian keeps shared libraries.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
/// What the device's provider is configured by.
const PROVIDER: &str = "/etc/libibverbs.d/rxe.driver";
/// Known programs that make no sense in a guest.
const NOT_FOR_GUESTS: [&str; 4] = ["valgrind", "qemu-system-x86_64", "busybox", "pkg-config"];
/// The modules of the device. It computes check sums by modules that it does not name.
const MODULES: [&str; 6] = [
    "dummy",
    "crc32_generic",
    "crc32_pclmul",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
];

/// Arguments of the task.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// What to run there [default: smoke]
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Name the jobs and stop
    #[arg(long)]
    list: bool,
    /// Run this command there instead of a job
    #[arg(long, value_name = "COMMAND", conflicts_with = "job")]
    shell: Option<String>,
    /// Take this file along, as a program of the search path; may be repeated
    #[arg(long, value_name = "PATH")]
    binary: Vec<PathBuf>,
    /// Memory of the guest [default: by what it takes along]
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Processors of the guest [default: 2, or 1 with --icount]
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<u32>,
    /// Let one nanosecond of the guest be one executed instruction
    #[arg(long)]
    icount: bool,
    /// End the guest after this time [default: by the job]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// Arguments of the job
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Runs what the command line asks for; its code becomes that of this program.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let jobs = scripts(workspace).join("jobs");
    if options.list {
        for name in job::names(&jobs)? {
            println!("{name:14} {}", Job::load(&jobs, &name)?.needs.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let job = match &options.shell {
        Some(command) => Job::of_command(command, programs_at_hand()),
        None => Job::load(&jobs, options.job.as_deref().unwrap_or("smoke"))?,
    };
    Ok(ExitCode::from(&run_job(workspace, &job, options)?))
}

/// Runs the jobs of these names, one guest each; fails at the first that does not pass.
pub(crate) fn check(workspace: &Workspace, names: &[&str]) -> Result<()> {
    for name in names {
        let job = Job::load(&scripts(workspace).join("jobs"), name)?;
        let verdict = run_job(workspace, &job, &Options::default())?;
        if verdict.code() != 0 {
            bail!("job {name} did not pass; repeat it alone with `cargo xtask vm {name}`");
        }
    }
    Ok(())
}

/// Runs the job of this name; what it and the guest wrote on the console.
pub(crate) fn console(workspace: &Workspace, name: &str, arguments: &[String]) -> Result<String> {
    let job = Job::load(&scripts(workspace).join("jobs"), name)?;
    let options = Options {
        arguments: arguments.to_vec(),
        ..Options::default()
    };
    if run_job(workspace, &job, &options)?.code() != 0 {
        bail!("job {name} did not pass; repeat it alone with `cargo xtask vm {name}`");
    }
    let log = log_of(workspace, name);
    fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))
}

/// Where the console of a job is kept.
fn log_of(workspace: &Workspace, name: &str) -> PathBuf {
    let mut log = workspace.target().join("vm/log").join(name);
    log.set_extension("log");
    log
}

fn run_job(workspace: &Workspace, job: &Job, options: &Options) -> Result<Verdict> {
    let icount = options.icount || job.needs.icount;
    let cpus = machine::cpus(options.cpus, icount)?;
    let seconds = options.timeout.unwrap_or(job.needs.timeout);
    if std::env::consts::ARCH != "x86_64" {
        bail!("the guest runs this machine's programs, and that is set up for x86-64 only");
    }
    let shell = &workspace.shell;
    packages::install_for(
        shell,
        ["qemu-system-x86_64", "busybox", PROVIDER]
            .into_iter()
            .chain(PROGRAMS)
            .chain(job.needs.programs.iter().map(String::as_str)),
    )?;
    let kernel = Kernel::get(shell, &workspace.target().join("vm/kernel"))?;
    let image = fill(workspace, job, options, &kernel)?;

    let logs = workspace.target().join("vm/log");
    fs::create_dir_all(&logs)?;
    let work = tempfile::tempdir_in(&logs).context("a folder for the guest's image")?;
    let archive = work.path().join("image.cpio");
    image.write(File::create(&archive)?)?;
    let machine = Machine {
        qemu: packages::find("qemu-system-x86_64").context("qemu-system-x86_64")?,
        kernel: kernel.image,
        image: archive,
        memory: options
            .memory
            .unwrap_or_else(|| machine::memory(image.size().unwrap_or_default())),
        cpus,
        icount,
        seconds,
    };
    let log = log_of(workspace, &job.name);
    let record = work.path().join("record");
    println!(
        "job {}: {}; {} MiB, {} processors, at most {seconds} s",
        job.name, job.needs.about, machine.memory, machine.cpus
    );
    let begin = Instant::now();
    let console = Both {
        first: io::stdout(),
        second: File::create(&log).with_context(|| format!("cannot write {}", log.display()))?,
    };
    let end = machine.run(&record, console)?;
    let taken = begin.elapsed().as_secs_f64();
    let verdict = Verdict::read(
        &String::from_utf8_lossy(&fs::read(&record).unwrap_or_default()),
        end,
    );
    let text = verdict.describe(&String::from_utf8_lossy(&fs::read(&log)?));
    println!(
        "\njob {} {text} ({taken:.1} s; console in {})",
        job.name,
        log.display()
    );
    Ok(verdict)
}

/// Makes the guest's file system.
fn fill<'a>(
    workspace: &'a Workspace,
    job: &Job,
    options: &Options,
    kernel: &Kernel,
) -> Result<Image<'a>> {
    let shell = &workspace.shell;
    let mut image = Image::new(shell)?;
    let needed = PROGRAMS
        .into_iter()
        .chain(job.needs.programs.iter().map(String::as_str));
    for program in needed {
        let file = packages::find(program).with_context(|| format!("no program {program}"))?;
        image.installed(&file)?;
    }
    image.installed(Path::new(PROVIDER))?;
    image.installed(&provider_library()?)?;
    image.installed(&Path::new(LIBRARIES).join(UNWINDER))?;
    let busybox = packages::find("busybox").context("busybox")?;
    image.installed(&busybox)?;
    let installed = fs::canonicalize(&busybox)?;
    let installed = installed.to_str().context("the place of busybox")?;
    for applet in cmd!(shell, "{busybox} --list-full").quiet().read()?.lines() {
        image.link(&Path::new("/").join(applet), installed)?;
    }
    for build in &job.needs.build {
        let file = built(workspace, build)?;
        let name = match build.target {
            Target::Program(_) | Target::Test(_) => OsStr::new(build.target.name()),
            Target::Library(_) => file.file_name().context("a library has a name")?,
        };
        image.program(&file, name)?;
    }
    for file in &options.binary {
        let file = std::path::absolute(file)?;
        let name = file.file_name().context("a program has a name")?;
        image.program(&file, name)?;
    }
    let modules = kernel.modules(shell, &MODULES)?;
    let mut order = String::new();
    for (name, module) in modules {
        let path = format!("/vm/modules/{name}.ko");
        image.text(&path, module, false)?;
        order += &path;
        order += "\n";
    }
    image.text("/vm/order", order, false)?;
    image.text("/vm/job", job.script.as_str(), false)?;
    let arguments: String = options
        .arguments
        .iter()
        .map(|argument| format!("{argument}\0"))
        .collect();
    image.text("/vm/arguments", arguments, false)?;
    image.text("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", false)?;
    image.text("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n", false)?;
    image.text("/etc/group", "root:x:0:\n", false)?;
    for (name, path) in [("init", "/init"), ("library", "/vm/library")] {
        let script = shell.read_file(scripts(workspace).join(name))?;
        image.text(path, script, name == "init")?;
    }
    Ok(image)
}

/// The folder of the guest's scripts.
fn scripts(workspace: &Workspace) -> PathBuf {
    workspace.root().join("xtask/vm")
}

/// The known programs that this machine has.
fn programs_at_hand() -> Vec<String> {
    packages::known_programs()
        .filter(|name| !NOT_FOR_GUESTS.contains(name) && packages::find(name).is_some())
        .map(str::to_owned)
        .collect()
}

/// The library that libibverbs loads for the device.
fn provider_library() -> Result<PathBuf> {
    let folder = Path::new(LIBRARIES).join("libibverbs");
    fs::read_dir(&folder)
        .ok()
        .and_then(|mut entries| {
            entries.find_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name();
                name.to_string_lossy()
                    .starts_with("librxe-")
                    .then(|| entry.path())
            })
        })
        .with_context(|| format!("{} has no library for soft-RoCE", folder.display()))
}

/// Builds a program, a file of tests or a shared library, and tells where it is.
fn built(workspace: &Workspace, build: &Build) -> Result<PathBuf> {
    let package = workspace
        .member(&build.package)
        .with_context(|| format!("the workspace has no package {}", build.package))?;
    if let Some(feature) = build
        .features
        .iter()
        .find(|feature| !package.features.contains_key(*feature))
    {
        bail!(
            "package {} has no feature {feature} yet, which this job needs",
            build.package
        );
    }
    let name = build.target.name();
    let mut command = Command::new("cargo");
    command.current_dir(workspace.root()).stdout(Stdio::piped());
    match build.target {
        Target::Program(_) => command.args(["build", "--bin", name]),
        Target::Test(_) => command.args(["test", "--no-run", "--test", name]),
        Target::Library(_) => command.args(["build", "--lib"]),
    };
    command.args(["--quiet", "--message-format", "json-render-diagnostics"]);
    command.args(["--package", &build.package]);
    command.args(["--features", &build.features.join(",")]);
    if build.release {
        command.arg("--release");
    }
    let mut child = command.spawn().context("cannot run cargo")?;
    let output = child.stdout.take().context("standard output of cargo")?;
    let mut found = None;
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.target.name == name
        {
            let library = || artifact.filenames.into_iter().find(is_shared_library);
            let made = match build.target {
                Target::Program(_) | Target::Test(_) => artifact.executable,
                Target::Library(_) => library(),
            };
            found = made.or(found);
        }
    }
    if !child.wait()?.success() {
        bail!("{name} of package {} does not build", build.package);
    }
    let file = found.with_context(|| format!("cargo built no {name}"))?;
    Ok(file.into())
}

fn is_shared_library(file: &impl AsRef<Path>) -> bool {
    file.as_ref()
        .extension()
        .is_some_and(|extension| extension == "so")
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Program(name) | Self::Test(name) | Self::Library(name) => name,
        }
    }
}

/// Writes everything twice.
struct Both<First, Second> {
    first: First,
    second: Second,
}

impl<First: Write, Second: Write> Write for Both<First, Second> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.first.write_all(bytes)?;
        self.second.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.first.flush()?;
        self.second.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        Line::try_parse_from(["vm"].iter().chain(words)).map(|line| line.options)
    }

    #[test]
    fn a_job_and_its_own_arguments_are_told_apart() {
        let options = parse(&[
            "smoke", "--binary", "a", "--binary", "b", "--", "--list", "x",
        ]);
        let options = options.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(options.job.as_deref(), Some("smoke"));
        assert_eq!(options.binary, ["a", "b"].map(PathBuf::from));
        assert_eq!(options.arguments, ["--list", "x"]);
        assert!(!options.list);
    }

    #[test]
    fn limits_are_numbers_above_nothing() {
        assert!(parse(&["--timeout", "0"]).is_err());
        assert!(parse(&["--timeout", "soon"]).is_err());
        assert!(parse(&["--memory", "-1"]).is_err());
        assert!(parse(&["--timeout", "90", "--memory", "512"]).is_ok());
    }

    #[test]
    fn a_command_takes_the_place_of_a_job() {
        assert!(parse(&["smoke", "--shell", "ls"]).is_err());
        assert!(parse(&["--shell", "ls"]).is_ok());
    }

    #[test]
    fn a_build_that_the_workspace_does_not_have_is_named() {
        let workspace = Workspace::load().expect("workspace");
        let refused = |package: &str, feature: &str| {
            let build = Build {
                package: package.to_owned(),
                features: vec![feature.to_owned()],
                release: false,
                target: Target::Program("it".to_owned()),
            };
            built(&workspace, &build).expect_err("refused").to_string()
        };
        assert!(refused("no-such-package", "a").contains("no-such-package"));
        assert!(refused("xtask", "no-such-feature").contains("no-such-feature"));
    }

    #[test]
    fn both_outputs_get_everything() {
        let mut both = Both {
            first: Vec::new(),
            second: Vec::new(),
        };
        both.write_all(b"text").expect("written");
        assert_eq!(
            (both.first, both.second),
            (b"text".to_vec(), b"text".to_vec())
        );
    }
}
