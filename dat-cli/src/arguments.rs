//! The command line.

use std::error::Error;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::peer::{Peer, QUALIFIER, parse_device, parse_ip, parse_peer};
use crate::remote::counts::without_counts;
use crate::rsm::arguments::RsmArguments;
use crate::size::{Sweep, parse_count, parse_duration, parse_quota, parse_size, parse_sweep};

const EXIT_CODES: &str = "\
Exit codes:
  0  success: every outcome was as specified
  1  an operation failed, memory ran out, or an outcome differs from the specification
  2  invalid arguments
  3  a file cannot be read or written

A copy that is interrupted by a signal exits with that signal.

Without a command, `dat` runs the tour.";

/// Tour, file copies, measurements and remote shared memory over the Direct Access Transport (DAT).
#[derive(Parser)]
#[command(name = "dat", version = env!("DAT_VERSION"), after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Options of every command.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print errors only; the exit code tells success from failure
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Demonstrate the calls step by step and compare every outcome with the specification
    Tour,
    /// Copy a file with RDMA Writes from one endpoint to another
    Copy(CopyArguments),
    /// Measure the latency, rate and bandwidth of operations
    Perf(PerfArguments),
    /// Serve `dat copy --connect` and `dat perf --connect`
    Serve(ServeArguments),
    /// Export memory as remote shared memory (RSM) segments, transfer files to and from them,
    /// measure
    Rsm(RsmArguments),
    /// Run a program of libibverbs or librdmacm, unchanged, without an RDMA device
    Run(RunArguments),
    /// List the backends of this build and the RDMA devices of this host
    Devices(DevicesArguments),
    /// Print the completion script of a shell
    Completions(CompletionsArguments),
    /// Print the man page of `dat` or of a command, or write all man pages to a directory
    Man(ManArguments),
}

#[derive(Args)]
#[command(after_help = "\
Where shells look for the script:
  bash  ~/.local/share/bash-completion/completions/dat
  fish  ~/.config/fish/completions/dat.fish
  zsh   _dat, in a directory of $fpath")]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Args)]
#[command(after_help = "\
`dat man rsm put | man -l -` shows the page of `dat rsm put`. `dat man --output ~/.local/share/man/man1` installs all pages for `man dat` and `man dat-rsm-put`.")]
pub(crate) struct ManArguments {
    /// The command that the page describes, such as `copy` or `rsm put` [default: `dat` itself]
    #[arg(value_name = "COMMAND", num_args = 0..)]
    pub(crate) command: Vec<String>,
    /// Write the pages of `dat` and of all its commands to this directory, which is created if
    /// missing
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "command", value_parser = local_path())]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct DevicesArguments {
    /// Print all attributes of each device, with their meanings; with --json they are always there
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Args)]
#[command(after_help = "\
The data is written to a temporary file in the directory of DST, read back, and compared by checksum (128-bit XXH3, as `xxh128sum` prints it). Then the file replaces DST and keeps the owner, group and permissions of the old file. If the copy fails or is interrupted, DST is unchanged. Other hard links to DST keep the old content.

The buffers of each side, --depth x --segments x --chunk bytes, are limited to 1 GiB. With the mock backend the program needs four times that memory: it holds both sides, and measures plain copies too.

Sizes are in bytes or have a binary unit: 64K and 64KiB are both 65536.")]
pub(crate) struct CopyArguments {
    /// The file to copy
    #[arg(value_name = "SRC", value_parser = local_path())]
    pub(crate) source: PathBuf,
    /// The destination: a file, which is replaced if it exists, or a directory, which gets a file
    /// of the same name. With --connect, the name of the file on the server; `.` keeps the name of
    /// SRC
    #[arg(value_name = "DST", value_parser = local_path())]
    pub(crate) target: PathBuf,
    /// Maximum number of outstanding RDMA Writes, 1 to 1024
    #[arg(long, default_value_t = 4, value_parser = up_to::<u16, 1024>, allow_negative_numbers = true)]
    pub(crate) depth: u16,
    /// Segments per RDMA Write, 1 to 32
    #[arg(long, default_value_t = 4, value_parser = up_to::<u8, 32>, allow_negative_numbers = true)]
    pub(crate) segments: u8,
    /// Bytes per segment, 1 to 1G
    #[arg(long, default_value = "256K", value_parser = parse_size, allow_negative_numbers = true)]
    pub(crate) chunk: u64,
    #[command(flatten)]
    pub(crate) device: DeviceArguments,
}

/// Which device carries the data, and to whom; without any of these it is the mock.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "RDMA devices")]
pub(crate) struct DeviceArguments {
    #[command(flatten)]
    pub(crate) named: DeviceName,
    /// Connect to `dat serve` in another process or on another host
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_peer)]
    pub(crate) connect: Option<Peer>,
    /// Read the token that this `dat serve` requires from a file
    #[arg(long, value_name = "FILE", requires = "connect", value_parser = local_path())]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) waiting: WaitingArguments,
}

/// Which device of this host to use.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DeviceName {
    /// Use this device: roce (RDMA in software, without a device) or roce://IP, or an RDMA device
    /// by its name or as verbs://NAME (see `dat devices`); a command that reaches no other process
    /// has both ends on it [default with --connect and in `dat serve`: an RDMA device that is up,
    /// if this build and host have one, else roce]
    #[arg(long, value_name = "NAME", value_parser = parse_device)]
    pub(crate) device: Option<String>,
    /// Use this way on roce; without --device, this selects roce [default: any, unless the name of
    /// the device has one]
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) path: Option<PathName>,
    /// Print the path of the connections, the counts of packets, retransmits and errors, and why
    /// shared memory is not used; only on roce
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// A way between two ends on roce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathName {
    /// Shared memory to processes of this user on this host, UDP to others
    Any,
    /// Shared memory to processes of this user on this host; others are refused
    Local,
    /// UDP
    Packets,
}

impl PathName {
    /// Returns the name in an address, and in a setting of the library of `dat run`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Local => "local",
            Self::Packets => "packets",
        }
    }
}

impl DeviceName {
    /// Returns the name of the device; only roce has a choice of ways.
    pub(crate) fn name(&self) -> Option<&str> {
        let of_path = self.path.map(|_| "roce");
        self.device.as_deref().or(of_path)
    }
}

/// How to wait for a device.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WaitingArguments {
    /// How to wait for the device [default: block]
    #[arg(long, value_enum)]
    pub(crate) wait: Option<WaitName>,
    /// With --wait poll: empty polls before the processor is yielded to other programs
    #[arg(long, value_name = "LOOKS", requires = "wait", default_value_t = 1000, value_parser = up_to::<u32, 1_000_000_000>, allow_negative_numbers = true)]
    pub(crate) yield_after: u32,
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitName {
    /// Sleep until the device signals an event
    Block,
    /// Poll continuously: faster, but keeps a processor busy
    Poll,
}

impl DeviceArguments {
    /// Returns true if the arguments select an RDMA device, and false for the mock.
    ///
    /// # Errors
    /// - Usage: `--wait` or `--verbose` is given without an RDMA device.
    pub(crate) fn wants_device(&self) -> Result<bool, Failure> {
        wanted(&self.named, self.connect.is_some(), self.waiting)
    }
}

/// Returns true if the command is for an RDMA device: a named one, or one that connects.
///
/// # Errors
/// - Usage: `--wait` or `--verbose` is given without a device.
pub(crate) fn wanted(
    named: &DeviceName,
    connects: bool,
    waiting: WaitingArguments,
) -> Result<bool, Failure> {
    let named_or_connects = named.name().is_some() || connects;
    if !named_or_connects && named.verbose {
        return Err(without_counts("--verbose"));
    }
    if !named_or_connects && waiting.wait.is_some() {
        return Err(Failure::usage(
            "--wait cannot be used here",
            "it applies to RDMA devices only; on the mock this program does the transfers itself",
            "add --device or --connect, or remove --wait",
        ));
    }
    Ok(named_or_connects)
}

#[derive(Args)]
#[command(after_help = "\
Serves `dat copy --connect` and `dat perf --connect` for up to 16 clients at once, until it is interrupted (Ctrl-C). A shell script that starts it with `&` makes it ignore that: end it with `kill`. A client can access only the memory assigned to it, and can store files only in the --into directory, under plain names. Without --token-file, any host that can reach the device can connect.

Sizes are in bytes or have a binary unit: 64K and 64KiB are both 65536.")]
pub(crate) struct ServeArguments {
    /// Listen on this address only [default: 127.0.0.1 without an RDMA device, else all addresses
    /// of the device]
    #[arg(long, value_name = "ADDR", value_parser = parse_ip)]
    pub(crate) listen: Option<SocketAddr>,
    /// Listen on this port, 1 to 65535
    #[arg(long, default_value_t = QUALIFIER, value_parser = up_to::<u16, 65535>, allow_negative_numbers = true)]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) named: DeviceName,
    /// Store received files in this directory; without it, copies are refused
    #[arg(long, value_name = "DIRECTORY", value_parser = local_path())]
    pub(crate) into: Option<PathBuf>,
    /// Replace existing files
    #[arg(long, requires = "into")]
    pub(crate) force: bool,
    /// Total memory for all clients, 1 to 1G
    #[arg(long, default_value = "64M", value_parser = parse_size, allow_negative_numbers = true)]
    pub(crate) memory: u64,
    /// Serve only clients that present the token in this file (at least 16 bytes)
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    pub(crate) token_file: Option<PathBuf>,
    /// Disconnect clients that are silent for this long, 15s to 1day
    #[arg(long, value_name = "DURATION", default_value = "1min", value_parser = parse_idle, allow_negative_numbers = true)]
    pub(crate) idle: Duration,
    /// Bytes that all clients together may store until the server restarts
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = parse_quota, allow_negative_numbers = true)]
    pub(crate) quota: u64,
    /// Bytes that the clients of one host may store until the server restarts
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_quota, allow_negative_numbers = true)]
    pub(crate) client_quota: u64,
    /// Print the counts of packets, retransmits and errors when a client has left and at the end;
    /// only on roce
    #[arg(long)]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) waiting: WaitingArguments,
}

#[derive(Args)]
#[command(after_help = "\
The program sees the RDMA device dat0, which needs no hardware, kernel module or privilege: RDMA in software (roce). It may link libibverbs and librdmacm, which then have to be installed, or open them by name. Programs that are linked statically or have the set-user-ID bit do not load the library.

`dat run --print-env >> \"$GITHUB_ENV\"` gives the device to all later steps of a workflow.")]
#[command(group = clap::ArgGroup::new("what").required(true).args(["program", "print_env"]))]
pub(crate) struct RunArguments {
    /// Give the device this IP address of this host only; `IP%INTERFACE` for a link-local one
    /// [default: all addresses]
    #[arg(long, value_name = "IP", value_parser = parse_ip)]
    pub(crate) address: Option<SocketAddr>,
    /// Use this way to peers [default: any]
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) path: Option<PathName>,
    /// Print the environment of the program, a variable per line
    #[arg(long, conflicts_with = "program")]
    pub(crate) print_env: bool,
    /// The program, and all its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = "\
post      median duration of one post call
latency   from the post to its completion event; for send and srq, to the later event of both ends; for send on a device, until a reply of the same size arrives. \"1 of 16\" means that about 1 of 16 operations was timed; interruptions of the others count in rate and bandwidth, not in max
rate      completed operations per second, timed or not

Adapters and connections are those of dat-host, which also hands out messages of srq; posts and other polls are calls of the core. With the mock backend this program performs the transfers, so the bandwidth is that of its memory copies.

The buffers of each side, largest size x --depth bytes, are limited to 1 GiB. With the mock backend this program holds both sides and needs twice that memory, for srq three times.

Sizes are in bytes or have a binary unit: 64K and 64KiB are both 65536.")]
pub(crate) struct PerfArguments {
    /// The operation to measure
    #[arg(value_enum)]
    pub(crate) operation: Operation,
    /// Bytes per operation, 1 to 1G
    #[arg(long, default_value = "4K", value_parser = parse_size, allow_negative_numbers = true)]
    pub(crate) size: u64,
    /// Measure each size from MIN to MAX, doubling
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_sweep, conflicts_with = "size", allow_hyphen_values = true)]
    pub(crate) sweep: Option<Sweep>,
    /// Maximum number of outstanding operations, 1 to 4096
    #[arg(long, default_value_t = 16, value_parser = up_to::<u16, 4096>, allow_negative_numbers = true)]
    pub(crate) depth: u16,
    /// Local segments per operation, 1 to 32; bind supports 1 only
    #[arg(long, default_value_t = 1, value_parser = up_to::<u8, 32>, allow_negative_numbers = true)]
    pub(crate) segments: u8,
    /// Operations per batch post, 1 to --depth; bind and srq support 1 only
    #[arg(long, default_value_t = 1, value_parser = up_to::<u16, 4096>, allow_negative_numbers = true)]
    pub(crate) batch: u16,
    /// Operations per size, at least 1 [default: as many as fit into --duration]
    #[arg(long, short = 'n', value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) iterations: Option<u64>,
    /// Measurement time per size, 1ms to 1day, such as 500ms or 2s
    #[arg(long, default_value = "1s", value_parser = parse_duration, conflicts_with = "iterations", allow_negative_numbers = true)]
    pub(crate) duration: Duration,
    /// Write a plot of the results to this new file; the name must end in .svg
    #[arg(long, value_name = "FILE.svg", value_parser = local_path())]
    pub(crate) plot: Option<PathBuf>,
    /// Replace the --plot file if it exists
    #[arg(long, requires = "plot")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArguments,
}

/// Parses a count from 1 to `MOST`; the type must hold `MOST`.
pub(crate) fn up_to<T: TryFrom<u64>, const MOST: u64>(text: &str) -> Result<T, String> {
    let count = parse_count(text, 1..=MOST)?;
    T::try_from(count).map_err(|_| format!("{MOST} is too much"))
}

pub(crate) fn at_least_one(text: &str) -> Result<u64, String> {
    parse_count(text, 1..=u64::MAX)
}

/// Parses a path, but refuses `HOST:PATH`, which other copy programs take as remote.
pub(crate) fn local_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let named = path.to_str().unwrap_or_default();
        let first = named.split(std::path::is_separator).next();
        let host = first.and_then(|first| first.rsplit_once(':'));
        match host {
            // A drive letter.
            Some((drive, _)) if cfg!(windows) && drive.len() == 1 => Ok(path),
            Some((host, _)) if !host.is_empty() => Err(format!(
                "a path with a colon would be a path on the host {host}, but paths are local; write \
                ./{named} for a local file of that name, or name the host with --connect"
            )),
            _ => Ok(path),
        }
    })
}

/// Parses the time that a client may be silent, from 15 s to a day.
///
/// A client in a measurement reports to the server after a third of that time.
fn parse_idle(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok()
        .filter(|idle| *idle >= Duration::from_secs(15))
        .ok_or_else(|| "the time must be from 15s to 1day, for example 1min".into())
}

/// Operations that `dat perf` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// RDMA Write
    Write,
    /// RDMA Read
    Read,
    /// Send into posted receives
    Send,
    /// Binding a remote memory region
    Bind,
    /// Sends of two endpoints into one shared receive queue
    Srq,
}

/// Adds a tip: the known commands, or those that have a misplaced option.
pub(crate) fn hint(error: &mut clap::Error) {
    match error.kind() {
        ErrorKind::UnknownArgument => hint_at_command(error),
        ErrorKind::InvalidSubcommand => hint_at_commands(error),
        _ => {}
    }
}

/// Adds the known commands as a tip, unless clap suggests a similar one.
fn hint_at_commands(error: &mut clap::Error) {
    let is_registry = matches!(error.get(ContextKind::InvalidSubcommand),
        Some(ContextValue::String(name)) if name == "registry");
    if is_registry {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = "the program `dat-registry` prints and checks lines of dat.conf; it is installed with the \
        provider, and `cargo run --package dat-provider` runs it";
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tip);
        return;
    }
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return;
    }
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return;
    };
    // The usage starts with the full name of the command that parsing stopped at: `Usage: dat rsm
    // [OPTIONS] <COMMAND>`.
    let usage = usage.to_string();
    let mut command = Arguments::command();
    for word in usage.split_whitespace().skip(2) {
        let Some(inner) = command.find_subcommand(word) else {
            break;
        };
        command = inner.clone();
    }
    let shown = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set());
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    let tip = format!("use one of: {}", names.join(", "));
    let tip = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tip);
}

/// Adds as a tip the commands that have an option which this one lacks.
///
/// Clap would explain how to pass the option as a value, or suggest another option.
fn hint_at_command(error: &mut clap::Error) {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    let Some(option) = argument.strip_prefix("--").filter(|name| !name.is_empty()) else {
        return;
    };
    let mut commands = Vec::new();
    collect_commands(&Arguments::command(), "", option, &mut commands);
    if commands.is_empty() {
        return;
    }
    let tip = format!("'--{option}' is an option of {}", commands.join(", "));
    error.remove(ContextKind::SuggestedArg);
    let tip = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tip);
}

/// Collects the full names of all commands with an option, from `command` down.
fn collect_commands(
    command: &clap::Command,
    above: &str,
    option: &str,
    commands: &mut Vec<String>,
) {
    let path = format!("{above} {}", command.get_name());
    let has = |argument: &clap::Arg| argument.get_long() == Some(option) && !argument.is_hide_set();
    if command.get_arguments().any(has) {
        commands.push(format!("`{}`", path.trim_start()));
    }
    let inner = command.get_subcommands();
    inner.for_each(|inner| collect_commands(inner, &path, option, commands));
}

/// Converts a command line error to a failure, for callers that read a document.
pub(crate) fn failure(error: &clap::Error) -> Failure {
    let text = error.to_string();
    // The text is a message, then paragraphs with tips and the usage, and a reference to the help.
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        words.join(" ")
    });
    let mut paragraphs: Vec<String> = paragraphs.collect();
    let mut why = paragraphs.remove(0);
    if error.kind() == ErrorKind::ValueValidation
        && let Some(source) = error.source().map(ToString::to_string)
    {
        // The remedy is the last part of the source; it moves out of the reason.
        let (cause, remedy) = source.split_once("; ").unwrap_or(("", &source));
        let without = why.strip_suffix(&source).unwrap_or(&why);
        why = format!("{without}{cause}")
            .trim_end_matches([':', ' '])
            .into();
        paragraphs = vec![format!("{remedy};"), "see --help".into()];
    } else if let Some(specific) = specific(error, &paragraphs) {
        // The list of subcommands belongs to the remedy, so it is removed from the reason.
        if let Some((cause, _)) = why.split_once(" [subcommands: ") {
            why = cause.to_owned();
        }
        paragraphs = vec![specific + ";", "see --help".into()];
    }
    Failure::usage(
        "invalid arguments",
        why.strip_prefix("error: ").unwrap_or(&why),
        paragraphs.join(" "),
    )
}

/// Returns the remedy for a particular error, if one is known.
fn specific(error: &clap::Error, paragraphs: &[String]) -> Option<String> {
    let tip = paragraphs
        .iter()
        .find_map(|paragraph| paragraph.strip_prefix("tip: "));
    if let Some(tip) = tip {
        return Some(tip.into());
    }
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.clone()),
        Some(ContextValue::Strings(names)) => Some(names.join(", ")),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidValue => {
            named(ContextKind::ValidValue).map(|values| format!("use one of: {values}"))
        }
        ErrorKind::MissingRequiredArgument => {
            named(ContextKind::InvalidArg).map(|missing| format!("add {missing}"))
        }
        ErrorKind::MissingSubcommand => {
            named(ContextKind::ValidSubcommand).map(|commands| format!("use one of: {commands}"))
        }
        ErrorKind::ArgumentConflict => Some("leave out one of them".into()),
        _ => None,
    }
}

impl Command {
    /// Returns true if the command is to say why shared memory is not used.
    pub(crate) const fn is_verbose(&self) -> bool {
        match self {
            Self::Copy(copy) => copy.device.named.verbose,
            Self::Perf(perf) => perf.device.named.verbose,
            Self::Serve(serve) => serve.named.verbose,
            Self::Rsm(rsm) => rsm.command.named().verbose,
            Self::Tour | Self::Run(_) | Self::Devices(_) | Self::Completions(_) | Self::Man(_) => {
                false
            }
        }
    }
}

impl Operation {
    /// Returns the name of the operation on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::Bind => "bind",
            Self::Srq => "srq",
        }
    }
}
