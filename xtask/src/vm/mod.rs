//! Runs jobs in a guest with an RDMA device.
//!
//! The guest is Debian's kernel in QEMU, with soft-RoCE and the programs of this machine.

mod build;
mod capture;
mod image;
mod job;
mod kernel;
mod machine;
mod turn;
mod verdict;

use anyhow::{Context, Result, bail};
use clap::Args;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use xshell::{Shell, cmd};

use self::build::{built, compiled, named};
use self::image::Image;
use self::job::{Build, Compile, Job, Target};
use self::kernel::Kernel;
use self::machine::{Cable, Machine, Patience};
pub(crate) use self::turn::NESTED;
pub(crate) use self::verdict::counted;
use self::verdict::{End, Verdict};
use crate::packages;
use crate::process::Running;
use crate::workspace::Workspace;

/// Programs of every guest in addition to busybox.
///
/// The `timeout` of busybox leaves a process for a while.
const PROGRAMS: [&str; 4] = ["bash", "ip", "rdma", "timeout"];
/// The library that the C library loads when a thread is cancelled or ends itself.
const UNWINDER: &str = "libgcc_s.so.1";
/// The folder of Debian's shared libraries.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
/// The configuration file of the device's provider.
const PROVIDER: &str = "/etc/libibverbs.d/rxe.driver";
/// Known programs that are useless in a guest.
const NOT_FOR_GUESTS: [&str; 4] = ["valgrind", "busybox", "pkg-config", "tshark"];
/// The modules of the device; it uses the checksum modules without listing them as dependencies.
const MODULES: [&str; 6] = [
    "dummy",
    "crc32_generic",
    "crc32_pclmul",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
];
/// The modules of a network card.
const CARD: [&str; 2] = ["virtio_pci", "virtio_net"];

/// Arguments of the task.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// The job to run [default: conformance]
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// List the jobs and exit
    #[arg(long)]
    list: bool,
    /// Run this command in the guest instead of a job
    #[arg(long, value_name = "COMMAND", conflicts_with = "job")]
    shell: Option<String>,
    /// Copy this file into the guest as a program on its PATH; may be repeated
    #[arg(long, value_name = "PATH")]
    binary: Vec<PathBuf>,
    /// Memory of the guest [default: from the size of its image]
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Processors of the guest [default: 2, or 1 with --icount]
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<u32>,
    /// Boot a second guest on the same network; the job runs in the first
    #[arg(long)]
    peer: bool,
    /// Run the guest's clock at one nanosecond per executed instruction
    #[arg(long)]
    icount: bool,
    /// Stop the guest after this time [default: from the job and its progress]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// Arguments of the job
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Runs the job of the command line; its exit code becomes that of this program.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    if options.list {
        for name in job::names(&scripts(workspace).join("jobs"))? {
            println!("{name:14} {}", load(workspace, &name)?.needs.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let job = match &options.shell {
        Some(command) => Job::of_command(command, programs_at_hand()),
        None => load(workspace, options.job.as_deref().unwrap_or("conformance"))?,
    };
    Ok(ExitCode::from(&run_job(workspace, &job, options)?.verdict))
}

/// Runs jobs in short forms, one guest each; fails at the first that does not pass.
///
/// Returns true if it is also the turn of job [`NESTED`].
pub(crate) fn check(workspace: &Workspace, turn: Option<usize>) -> Result<bool> {
    // First, because another step may hold cargo's lock later.
    build::of_tests(workspace)?;
    let mut lines = turn::chosen(turn);
    let count = lines.len();
    lines.retain(|line| *line != NESTED);
    for line in &lines {
        let (name, arguments) = line.split_once(" -- ").unwrap_or((line, ""));
        let mut job = load(workspace, name)?;
        job.shorten();
        let mut options = Options::default();
        if !arguments.is_empty() {
            options.arguments = arguments.split(' ').map(str::to_owned).collect();
        }
        if run_job(workspace, &job, &options)?.verdict.code() != 0 {
            bail!(
                "job {name} failed; repeat it with `cargo xtask vm {line}`, or, as it was built, with `cargo \
                xtask test --all --jobs all --only vm`"
            );
        }
    }
    Ok(lines.len() < count)
}

/// Runs the job of this name; returns the console's text.
pub(crate) fn console(workspace: &Workspace, name: &str, arguments: &[String]) -> Result<String> {
    let job = load(workspace, name)?;
    let options = Options {
        arguments: arguments.to_vec(),
        ..Options::default()
    };
    if run_job(workspace, &job, &options)?.verdict.code() != 0 {
        bail!("job {name} failed; repeat it with `cargo xtask vm {name}`");
    }
    let log = log_of(workspace, name);
    fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))
}

/// The outcome of a job that another task ran.
pub(crate) struct Attempt {
    /// The text of the console.
    pub(crate) console: String,
    /// The record of the guest's first process.
    pub(crate) record: String,
    /// The counts of captured packets, as rows.
    pub(crate) captured: Vec<String>,
    /// The failure in words; `None` if the job passed.
    pub(crate) complaint: Option<String>,
    /// Set if the job ran to its end.
    ///
    /// Otherwise the guest died or exceeded its time.
    pub(crate) is_whole: bool,
}

/// Runs the job of this name with this memory and time limit.
pub(crate) fn attempt(
    workspace: &Workspace,
    name: &str,
    arguments: Vec<String>,
    memory: Option<u64>,
    seconds: u64,
) -> Result<Attempt> {
    let options = Options {
        arguments,
        memory,
        timeout: Some(seconds),
        ..Options::default()
    };
    attempt_with(workspace, name, &options)
}

/// Runs the job of this name with an additional file, named in its first argument.
pub(crate) fn attempt_on(
    workspace: &Workspace,
    name: &str,
    file: PathBuf,
    arguments: &[&str],
) -> Result<Attempt> {
    let own = file.file_name().context("a file has a name")?;
    let own = own.to_str().context("the name of a file")?;
    let arguments = std::iter::once(own).chain(arguments.iter().copied());
    let options = Options {
        arguments: arguments.map(str::to_owned).collect(),
        binary: vec![file],
        ..Options::default()
    };
    attempt_with(workspace, name, &options)
}

fn attempt_with(workspace: &Workspace, name: &str, options: &Options) -> Result<Attempt> {
    let job = load(workspace, name)?;
    let Outcome {
        verdict,
        record,
        captured,
    } = run_job(workspace, &job, options)?;
    let console = read(&log_of(workspace, name));
    let complaint = (verdict.code() != 0).then(|| verdict.describe(&console));
    Ok(Attempt {
        console,
        record,
        captured,
        complaint,
        is_whole: verdict.is_of_job(),
    })
}

/// Builds a library of the workspace, and returns its path.
///
/// `is_short` selects what the tests build; otherwise it is optimised.
pub(crate) fn library_of(
    workspace: &Workspace,
    (package, name): (&str, &str),
    features: &[&str],
    is_short: bool,
) -> Result<PathBuf> {
    let mut job = Job::of_command("", Vec::new());
    let build = Build {
        package: package.to_owned(),
        features: features.iter().map(|&feature| feature.to_owned()).collect(),
        release: !is_short,
        target: Target::Library(name.to_owned()),
        sources: Vec::new(),
    };
    job.needs.build.push(build);
    built(workspace, &job, &job.needs.build[0])
}

/// Compiles a C program into a folder, with a library there under its soname; returns its path.
pub(crate) fn program_of(
    workspace: &Workspace,
    source: &str,
    library: &Path,
    folder: &Path,
) -> Result<PathBuf> {
    let linked = named(workspace, library, folder)?;
    compiled(workspace, source, folder, Some(&linked), &[])
}

/// Returns the path of a job's console log.
fn log_of(workspace: &Workspace, name: &str) -> PathBuf {
    let mut log = workspace.target().join("vm/log").join(name);
    log.set_extension("log");
    log
}

/// The verdict on a job, the record it was read from, and the counts of captured packets.
struct Outcome {
    verdict: Verdict,
    record: String,
    captured: Vec<String>,
}

/// Builds the machine of a job, with its image in the folder `work`.
fn machine_of(workspace: &Workspace, job: &Job, options: &Options, work: &Path) -> Result<Machine> {
    let (shell, needs) = (&workspace.shell, &job.needs);
    let icount = options.icount || needs.icount;
    let cpus = machine::cpus(options.cpus, icount)?;
    let peer = options.peer || needs.peer;
    if peer && icount {
        bail!(
            "instructions are counted in one guest only, because two guests do not share a clock"
        );
    }
    if env::consts::ARCH != "x86_64" {
        bail!("the guest runs host programs, which is supported on x86-64 only");
    }
    packages::install_for(
        shell,
        ["qemu-system-x86_64", "busybox", PROVIDER]
            .into_iter()
            .chain(PROGRAMS)
            .chain(needs.capture.then_some(capture::DISSECTOR))
            .chain(needs.programs.iter().map(String::as_str)),
    )?;
    let kernel = Kernel::get(shell, &workspace.target().join("vm/kernel"))?;
    let mut image = fill(workspace, job, options)?;
    let card = if peer { &CARD[..] } else { &[] };
    let own = needs.modules.iter().map(String::as_str);
    let modules: Vec<&str> = own.chain(MODULES).chain(card.iter().copied()).collect();
    add_modules(shell, &mut image, &kernel, &modules)?;
    let archive = work.join("image.cpio");
    image.write(File::create(&archive)?)?;
    let memory = options.memory.or(needs.memory);
    Ok(Machine {
        qemu: packages::find("qemu-system-x86_64").context("qemu-system-x86_64")?,
        kernel: kernel.image,
        image: archive,
        memory: memory.unwrap_or_else(|| machine::memory(image.size().unwrap_or_default())),
        cpus,
        icount,
        patience: match options.timeout {
            Some(seconds) => Patience::exactly(seconds),
            None => Patience::of_job(needs.timeout),
        },
    })
}

fn run_job(workspace: &Workspace, job: &Job, options: &Options) -> Result<Outcome> {
    let log = log_of(workspace, &job.name);
    let logs = log.parent().context("a log is in a folder")?;
    fs::create_dir_all(logs)?;
    let work = tempfile::tempdir_in(logs).context("a folder for the guest's image")?;
    let machine = machine_of(workspace, job, options, work.path())?;
    let record = work.path().join("record");
    let peer = options.peer || job.needs.peer;
    println!(
        "job {}: {}; {}{} MiB, {} processors, {} s without progress at most",
        job.name,
        job.needs.about,
        if peer { "two guests, each " } else { "" },
        machine.memory,
        machine.cpus,
        machine.patience.silence
    );
    let begin = Instant::now();
    let console = Both {
        first: io::stdout(),
        second: File::create(&log).with_context(|| format!("cannot write {}", log.display()))?,
    };
    let packets = job.needs.capture.then(|| log.with_extension("pcap"));
    let (mut other, cable) = if peer {
        let (other, cable) = Peer::start(&machine, work.path(), &log)?;
        (Some(other), Some(cable.captured_in(packets.clone())))
    } else {
        (None, None)
    };
    let end = machine.run(&record, console, cable, || {
        if let Some(other) = &mut other
            && verdict::asks_for_kill(&read(&record))
        {
            other.kill();
        }
    })?;
    let taken = begin.elapsed().as_secs_f64();
    let record = read(&record);
    let verdict = Verdict::read(&record, end);
    let text = verdict.describe(&read(&log));
    println!(
        "\njob {} {text} ({taken:.1} s; console in {})",
        job.name,
        log.display()
    );
    let verdict = match other.map(Peer::verdict).transpose()?.flatten() {
        // The second guest's verdict counts only if the job passed.
        Some(died) if verdict.code() == 0 => died,
        _ => verdict,
    };
    let mut captured = Vec::new();
    if let Some(file) = packets.filter(|_| verdict.code() == 0) {
        let counts =
            capture::judge(&file).with_context(|| format!("the packets of job {}", job.name))?;
        println!("{counts}; a changed byte is reported ({})", file.display());
        captured = counts.rows();
    }
    Ok(Outcome {
        verdict,
        record,
        captured,
    })
}

/// Returns the content of a file, or an empty string if it cannot be read.
fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

/// The second of two guests.
///
/// It runs until it is killed, at the latest when the job has ended.
struct Peer {
    machine: Option<Running>,
    record: PathBuf,
    log: PathBuf,
}

impl Peer {
    /// Starts the second guest; returns the first guest's end of the cable.
    fn start(machine: &Machine, work: &Path, log: &Path) -> Result<(Self, Cable)> {
        let (first, second) = Cable::pair()?;
        let (record, log) = (work.join("peer"), log.with_extension("peer.log"));
        let console =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let running = machine.start(&record, console, second)?;
        let peer = Self {
            machine: Some(running),
            record,
            log,
        };
        Ok((peer, first))
    }

    /// Ends the guest as a power failure would.
    fn kill(&mut self) {
        self.machine = None;
    }

    /// Ends the guest and prints its console's path; returns a verdict if it ended earlier.
    fn verdict(mut self) -> Result<Option<Verdict>> {
        let died = match &mut self.machine {
            Some(machine) => machine.is_over()?,
            None => false,
        };
        self.kill();
        let log = self.log.display();
        if !died {
            println!("console of the second guest in {log}");
            return Ok(None);
        }
        let verdict = Verdict::read(&read(&self.record), End::Own);
        let text = verdict.describe(&read(&self.log));
        println!("the second guest ended unexpectedly: {text} (console in {log})");
        Ok(Some(verdict))
    }
}

/// Builds the guest's file system.
fn fill<'a>(workspace: &'a Workspace, job: &Job, options: &Options) -> Result<Image<'a>> {
    let shell = &workspace.shell;
    let mut image = Image::new(shell)?;
    let needed = PROGRAMS
        .into_iter()
        .chain(job.needs.programs.iter().map(String::as_str));
    for program in needed {
        let file = packages::find(program).with_context(|| format!("no program {program}"))?;
        image.installed(&file)?;
    }
    for library in &job.needs.libraries {
        image.installed(&Path::new(LIBRARIES).join(library))?;
    }
    for file in &job.needs.files {
        image.installed(file)?;
    }
    image.installed(Path::new(PROVIDER))?;
    image.installed(&provider_library()?)?;
    image.installed(&Path::new(LIBRARIES).join(UNWINDER))?;
    let busybox = packages::find("busybox").context("busybox")?;
    image.installed(&busybox)?;
    let installed = fs::canonicalize(&busybox)?;
    let installed = installed.to_str().context("the path of busybox")?;
    for applet in cmd!(shell, "{busybox} --list-full").quiet().read()?.lines() {
        let applet = Path::new("/").join(applet);
        // The real program may be in any folder of the user's search path.
        if !image.has_program(applet.file_name().context("an applet has a name")?)? {
            image.link(&applet, installed)?;
        }
    }
    add_built(workspace, &mut image, job)?;
    for file in &options.binary {
        let file = std::path::absolute(file)?;
        let name = file.file_name().context("a program has a name")?;
        image.program(&file, name)?;
    }
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
    for (name, path) in [
        ("init", "/init"),
        ("library", "/vm/library"),
        ("command", "/vm/command"),
    ] {
        let script = shell.read_file(scripts(workspace).join(name))?;
        image.text(path, script, name != "library")?;
    }
    Ok(image)
}

/// Adds the programs, tests and libraries of the workspace that the job runs.
fn add_built(workspace: &Workspace, image: &mut Image<'_>, job: &Job) -> Result<()> {
    let mut add = |file: &Path, name: Option<&str>| {
        let own = file.file_name().context("a program has a name")?;
        image.program(file, name.map_or(own, OsStr::new))
    };
    let folder = workspace.target().join("vm/linked");
    fs::create_dir_all(&folder)?;
    for build in &job.needs.build {
        let file = built(workspace, job, build)?;
        let is_library = matches!(build.target, Target::Library(_));
        add(&file, (!is_library).then(|| build.target.name()))?;
        if build.sources.is_empty() {
            continue;
        }
        let linked = named(workspace, &file, &folder)?;
        add(&linked, None)?;
        for source in &build.sources {
            let program = compiled(workspace, source, &folder, Some(&linked), &[])?;
            add(&program, None)?;
        }
    }
    for Compile { source, links } in &job.needs.compile {
        add(&compiled(workspace, source, &folder, None, links)?, None)?;
    }
    Ok(())
}

/// Adds the kernel modules, and the order in which they are loaded.
fn add_modules(shell: &Shell, image: &mut Image, kernel: &Kernel, modules: &[&str]) -> Result<()> {
    let mut order = String::new();
    for (name, module) in kernel.modules(shell, modules)? {
        let path = format!("/vm/modules/{name}.ko");
        image.text(&path, module, false)?;
        order += &path;
        order += "\n";
    }
    image.text("/vm/order", order, false)
}

/// Reads the job of that name.
fn load(workspace: &Workspace, name: &str) -> Result<Job> {
    Job::load(&scripts(workspace).join("jobs"), name)
}

/// Returns the folder of the guest's scripts.
fn scripts(workspace: &Workspace) -> PathBuf {
    workspace.root().join("xtask/vm")
}

/// Returns the known programs that this machine has.
fn programs_at_hand() -> Vec<String> {
    packages::known_programs()
        .filter(|name| !NOT_FOR_GUESTS.contains(name) && !name.starts_with("qemu-system-"))
        .filter(|name| packages::find(name).is_some())
        .map(str::to_owned)
        .collect()
}

/// Returns the library that libibverbs loads for the device.
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
        .with_context(|| format!("{} contains no library for soft-RoCE", folder.display()))
}

/// A writer that writes everything to two writers.
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
    fn a_job_and_its_arguments_are_separated() {
        let options = parse(&[
            "roce", "--binary", "a", "--binary", "b", "--", "--list", "x",
        ]);
        let options = options.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(options.job.as_deref(), Some("roce"));
        assert_eq!(options.binary, ["a", "b"].map(PathBuf::from));
        assert_eq!(options.arguments, ["--list", "x"]);
        assert!(!options.list);
    }

    #[test]
    fn limits_are_numbers_above_zero() {
        assert!(parse(&["--timeout", "0"]).is_err());
        assert!(parse(&["--timeout", "soon"]).is_err());
        assert!(parse(&["--memory", "-1"]).is_err());
        assert!(parse(&["--timeout", "90", "--memory", "512"]).is_ok());
    }

    #[test]
    fn a_command_can_replace_a_job() {
        assert!(parse(&["roce", "--shell", "ls"]).is_err());
        assert!(parse(&["--shell", "ls"]).is_ok());
    }

    #[test]
    fn both_writers_get_all_output() {
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
