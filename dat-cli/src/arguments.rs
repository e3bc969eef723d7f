//! The command line.

use std::error::Error;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::failure::Failure;
use crate::model::DEVICE;
use crate::peer::{Peer, QUALIFIER, parse_peer};
use crate::rsm::arguments::RsmArguments;
use crate::size::{Sweep, parse_count, parse_duration, parse_quota, parse_size, parse_sweep};

const EXIT_CODES: &str = "\
Exit codes:
  0  everything went as specified
  1  an operation failed, memory is short, or an outcome is not what the specification says
  2  the arguments cannot be used
  3  a file cannot be read or written

A copy that a signal ends exits with that signal.

Without a command, the tour is run.";

/// The Direct Access Transport at work: a tour, file copies through registered memory, measurements.
#[derive(Parser)]
#[command(name = "dat", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) tour: TourArguments,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Where the tour goes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of the tour")]
pub(crate) struct TourArguments {
    /// On a model of a device, model-mlx5, in place of the mock
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
}

/// Options of every command.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print nothing but errors; the exit code tells the rest
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Walk through the interface as it works today, comparing every outcome with the specification
    Tour(TourArguments),
    /// Copy a file through registered memory, by RDMA Writes from one endpoint to another
    Copy(CopyArguments),
    /// Measure what operations cost
    Perf(PerfArguments),
    /// Let other processes and hosts copy files to this one, and measure, over an RDMA device
    Serve(ServeArguments),
    /// Export memory as segments of remote shared memory, move files to and from them, and measure
    Rsm(RsmArguments),
    /// Show the backends of this build, and the RDMA devices of this host, with all attributes of their adapters and providers
    Devices,
    /// Print the lines of dat.conf by which libdat2, the registry of DAT 2.0, finds our provider: one for each device. Or say what is
    /// wrong with a dat.conf
    Registry(RegistryArguments),
}

/// The provider's file name on the loader's search path.
pub(crate) const PROVIDER: &str = "libdat_provider.so.2";

#[derive(Args)]
#[command(after_help = "\
`cargo build --release --package dat-provider --features verbs` makes the provider, as target/release/libdat_provider.so. Either \
give its path with --library, or copy it to where the loader looks, as libdat_provider.so.2. docs/c-libraries.md tells the rest.")]
pub(crate) struct RegistryArguments {
    /// The provider: its path, best an absolute one, or a name that the loader finds
    #[arg(long, value_name = "FILE", default_value = PROVIDER, value_parser = parse_library)]
    pub(crate) library: String,
    /// For programs that ask for a provider that is safe for threads, as few do
    #[arg(long)]
    pub(crate) thread_safe: bool,
    /// Read a dat.conf instead, load the libraries that it names, open the devices of other providers, and say what is wrong with
    /// them; without FILE, the one that programs use, which DAT_OVERRIDE names, or /etc/dat.conf
    #[cfg(unix)]
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["library", "thread_safe"])]
    pub(crate) check: Option<Option<PathBuf>>,
    /// What a process of ours is started with to load one library and open its device: where the result goes, and the line
    #[cfg(unix)]
    #[arg(long, hide = true, num_args = 6, allow_hyphen_values = true)]
    pub(crate) look: Option<Vec<OsString>>,
}

#[derive(Args)]
#[command(after_help = "\
The data is first written to a temporary file beside DST, read back, and compared by checksum (XXH3, 128 bits, as \
`xxh128sum` prints it); only then does it take the place of DST, with the owner, group and permissions of the file that it \
replaces. If anything goes wrong, or a signal such as Ctrl-C ends the copy, DST is as it was. Other hard links to DST keep \
the old content.

The buffers of each side, --depth x --segments x --chunk bytes, may have 1 GiB. With the mock backend, the program takes four \
times as much memory: both sides are its own, and plain copies are measured as well.

Sizes are in bytes or with a unit: 64K and 64KiB are both 65536.")]
pub(crate) struct CopyArguments {
    /// The file to copy
    #[arg(value_name = "SRC", value_parser = local_path())]
    pub(crate) source: PathBuf,
    /// The copy; a directory gets a file of the same name. A file that exists is replaced. With --connect, the name of the
    /// copy at the server, or `.` for that of SRC
    #[arg(value_name = "DST", value_parser = local_path())]
    pub(crate) target: PathBuf,
    /// RDMA Writes under way at once, 1 to 1024
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
    /// Use this device, as `dat devices` names it: an RDMA device of this host, or model-mlx5, a model of one in this process; without
    /// --connect, both ends are on it
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Let the other end be `dat serve` in another process, or on another host
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_peer)]
    pub(crate) connect: Option<Peer>,
    /// The file with the token that this `dat serve` asks for
    #[arg(long, value_name = "FILE", requires = "connect", value_parser = local_path())]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) waiting: WaitingArguments,
}

/// How to wait for a device.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WaitingArguments {
    /// How to wait for the device [default: block]
    #[arg(long, value_enum)]
    pub(crate) wait: Option<WaitName>,
    /// Looks in vain, of --wait poll, before other programs get their turn
    #[arg(long, value_name = "LOOKS", requires = "wait", default_value_t = 1000, value_parser = up_to::<u32, 1_000_000_000>, allow_negative_numbers = true)]
    pub(crate) yield_after: u32,
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitName {
    /// Asleep, until the device wakes this process
    Block,
    /// Looking again and again: faster, but keeps a processor busy
    Poll,
}

impl DeviceArguments {
    /// Returns the carrier that the arguments select.
    ///
    /// # Errors
    /// - Usage: `--wait` is given without an RDMA device, or the model device with `--connect`.
    pub(crate) fn wanted(&self) -> Result<Wanted, Failure> {
        let model = self.device.as_deref() == Some(DEVICE);
        if model && self.connect.is_some() {
            return Err(Failure::usage(
                format!("{DEVICE} cannot --connect"),
                "it is in this process, and reaches nothing outside",
                "leave out --connect, or name an RDMA device",
            ));
        }
        let named = self.device.is_some() || self.connect.is_some();
        Ok(if wanted(named && !model, self.waiting)? {
            Wanted::Device
        } else if model {
            Wanted::Model
        } else {
            Wanted::Mock
        })
    }
}

/// Checks that a command that needs an RDMA device is not given the model device.
///
/// # Errors
/// - Usage: the device is the model.
pub(crate) fn check_is_outside(device: Option<&str>, command: &str) -> Result<(), Failure> {
    if device != Some(DEVICE) {
        return Ok(());
    }
    let devices = "name an RDMA device, of those that `dat devices` lists";
    let missing = crate::device::note().map_or_else(String::new, |note| format!(" ({note})"));
    Err(Failure::usage(
        format!("`dat {command}` cannot use {DEVICE}"),
        "it is the model of a device, in this process: the tour, `dat copy` and `dat perf` run on it",
        format!("{devices}{missing}; `dat rsm` runs on the mock without --device"),
    ))
}

/// The carrier of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The mock.
    Mock,
    /// A device model in this process.
    Model,
    /// An RDMA device.
    Device,
}

/// Returns `named`: true if the command is for an RDMA device.
///
/// # Errors
/// - Usage: `--wait` is given without a device.
pub(crate) fn wanted(named: bool, waiting: WaitingArguments) -> Result<bool, Failure> {
    if !named && waiting.wait.is_some() {
        return Err(Failure::usage(
            "--wait cannot be used here",
            "it says how to wait for an RDMA device, and on the mock there is nothing to wait for, nor on a model: this program does the transfers too",
            "name a --device or a server to --connect to, or leave out --wait",
        ));
    }
    Ok(named)
}

#[derive(Args)]
#[command(after_help = "\
Serves `dat copy --connect` and `dat perf --connect` of up to 16 clients at once, until a signal such as Ctrl-C ends it. Clients \
reach only memory that is lent to them and can only store files of plain names in the directory of --into. Without \
--token-file, everybody who reaches the device can connect.

Sizes are in bytes or with a unit: 64K and 64KiB are both 65536.")]
pub(crate) struct ServeArguments {
    /// Serve only those who connect to this address of the device [default: all addresses of the device]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<IpAddr>,
    /// Listen on this port, 1 to 65535
    #[arg(long, default_value_t = QUALIFIER, value_parser = up_to::<u16, 65535>, allow_negative_numbers = true)]
    pub(crate) port: u16,
    /// Use this RDMA device, as `dat devices` names it [default: the one that has the address, or the first that is up]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Store copies in this directory; without it, copies are refused
    #[arg(long, value_name = "DIRECTORY", value_parser = local_path())]
    pub(crate) into: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long, requires = "into")]
    pub(crate) force: bool,
    /// Memory for all clients together, 1 to 1G
    #[arg(long, default_value = "64M", value_parser = parse_size, allow_negative_numbers = true)]
    pub(crate) memory: u64,
    /// Serve only clients that have the token in this file, of at least 16 bytes
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    pub(crate) token_file: Option<PathBuf>,
    /// End clients that say nothing for so long, 15s to 1day
    #[arg(long, value_name = "DURATION", default_value = "1min", value_parser = parse_idle, allow_negative_numbers = true)]
    pub(crate) idle: Duration,
    /// Bytes that all clients together may store before the server is started again
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = parse_quota, allow_negative_numbers = true)]
    pub(crate) quota: u64,
    /// Bytes of these that the clients of one host may store
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_quota, allow_negative_numbers = true)]
    pub(crate) client_quota: u64,
    #[command(flatten)]
    pub(crate) waiting: WaitingArguments,
}

#[derive(Args)]
#[command(after_help = "\
post      median time of one post call
latency   from before the post to its completion event; for send and srq, to the later of the events at both ends; for \
send on a device, until a message of the same size came back. \"of 1 in 16\" says that of about 16 operations one was timed: min, max and \
the rest are of those, and the longest pause may have met another one
rate      of all operations, timed or not

With the mock backend, the transfer itself is done by this program too, so bandwidth is that of its memory copies.

The buffers of each side, the largest size x --depth bytes, may have 1 GiB. With the mock backend, both sides are this \
program's, so it takes twice as much memory.

Sizes are in bytes or with a unit: 64K and 64KiB are both 65536.")]
pub(crate) struct PerfArguments {
    /// What to measure
    #[arg(value_enum)]
    pub(crate) operation: Operation,
    /// Bytes per operation, 1 to 1G
    #[arg(long, default_value = "4K", value_parser = parse_size, allow_negative_numbers = true)]
    pub(crate) size: u64,
    /// Measure MIN bytes, twice as many, and so on up to MAX
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_sweep, conflicts_with = "size", allow_hyphen_values = true)]
    pub(crate) sweep: Option<Sweep>,
    /// Operations under way at once, 1 to 4096
    #[arg(long, default_value_t = 16, value_parser = up_to::<u16, 4096>, allow_negative_numbers = true)]
    pub(crate) depth: u16,
    /// Local segments per operation, 1 to 32; bind has 1
    #[arg(long, default_value_t = 1, value_parser = up_to::<u8, 32>, allow_negative_numbers = true)]
    pub(crate) segments: u8,
    /// Operations that are posted together, 1 to the depth; bind and srq have 1
    #[arg(long, default_value_t = 1, value_parser = up_to::<u16, 4096>, allow_negative_numbers = true)]
    pub(crate) batch: u16,
    /// Operations per size, at least 1 [default: as many as there is time for]
    #[arg(long, short = 'n', value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) iterations: Option<u64>,
    /// Time per size, 1ms to 1day, such as 500ms or 2s
    #[arg(long, default_value = "1s", value_parser = parse_duration, conflicts_with = "iterations", allow_negative_numbers = true)]
    pub(crate) duration: Duration,
    /// Draw the results into this file, whose name ends in .svg; it must not exist yet
    #[arg(long, value_name = "FILE.svg", value_parser = local_path())]
    pub(crate) plot: Option<PathBuf>,
    /// Replace the file that --plot names, if it exists
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
                "this reads as a path on the host {host}, and paths are of this host; write ./{named} for a file of that name, \
                 or name the host with --connect where a command has it"
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
        .ok_or_else(|| "a time from 15s to 1day is needed, for example 1min".into())
}

/// Parses a library that can stand in a line of `dat.conf`.
fn parse_library(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.contains(char::is_control) {
        return Err(
            "the path of the provider is needed, or a name that the loader finds, in one line"
                .into(),
        );
    }
    Ok(text.into())
}

/// What `dat perf` can measure.
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
    let mut takers = Vec::new();
    collect_takers(&Arguments::command(), "", option, &mut takers);
    if takers.is_empty() {
        return;
    }
    let tip = format!("'--{option}' is an option of {}", takers.join(", "));
    error.remove(ContextKind::SuggestedArg);
    let tip = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tip);
}

/// Collects the full names of all commands with an option, from `command` down.
fn collect_takers(command: &clap::Command, above: &str, option: &str, takers: &mut Vec<String>) {
    let path = format!("{above} {}", command.get_name());
    let has = |argument: &clap::Arg| argument.get_long() == Some(option) && !argument.is_hide_set();
    if command.get_arguments().any(has) {
        takers.push(format!("`{}`", path.trim_start()));
    }
    let inner = command.get_subcommands();
    inner.for_each(|inner| collect_takers(inner, &path, option, takers));
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
        let (said, remedy) = source.split_once("; ").unwrap_or(("", &source));
        let without = why.strip_suffix(&source).unwrap_or(&why);
        why = format!("{without}{said}")
            .trim_end_matches([':', ' '])
            .into();
        paragraphs = vec![format!("{remedy};"), "--help tells more".into()];
    } else if let Some(specific) = specific(error, &paragraphs) {
        // The list of subcommands belongs to the remedy, so it is removed from the reason.
        if let Some((said, _)) = why.split_once(" [subcommands: ") {
            why = said.to_owned();
        }
        paragraphs = vec![specific + ";", "--help tells more".into()];
    }
    Failure::usage(
        "the arguments cannot be used",
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
