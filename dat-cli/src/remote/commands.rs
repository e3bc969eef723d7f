//! The commands on devices that reach other processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dat_core::attributes::IaAddress;
use dat_devices::ByAddress;
use serde::Serialize;

use super::connection::ServerAddress;
use super::file_store::{FileStore, Folder, NoFiles, Quotas};
use super::host_adapter::{Drive, Driven, Waiting};
use super::protocol::{MOST_DEPTH, Work};
use super::server::{Notice, Server, Terms};
use super::token::{Guard, Token};
use super::transport::{
    choose, first_address, is_same_ip, no_device, own_address, reach, resolve, text,
};
use crate::arguments::{
    DeviceArguments, Operation, PerfArguments, ServeArguments, WaitName, WaitingArguments,
};
use crate::failure::{Failure, FailureKind, Result};
use crate::interrupt::Signals;
use crate::memory;
use crate::output::{FAINT, GOOD, HEADING, Output};
use crate::perf::{self, Counters, Load, say_counts, without_counters};
use crate::size::{argument, counted, size};

fn waiting(arguments: WaitingArguments) -> Waiting {
    match arguments.wait {
        Some(WaitName::Poll) => Waiting::Poll {
            looks: arguments.yield_after,
        },
        Some(WaitName::Block) | None => Waiting::Block,
    }
}

/// Returns the reader of the counts of a device.
///
/// # Errors
/// - Usage: the device has none.
fn counters(drive: &Drive, argument: &str) -> Result<Arc<Counters>> {
    let counters = drive.counters.clone();
    counters.ok_or_else(|| without_counters(argument))
}

/// Runs `act` as the client of the named server, or of one in this process.
///
/// The server in this process runs on the same device and stores files in `local`. `act` runs
/// again for each address of the named server, until one is reached.
pub(crate) fn with_server<B: ByAddress, R>(
    arguments: &DeviceArguments,
    memory: u64,
    local: &dyn FileStore,
    mut act: impl FnMut(&mut Driven, ServerAddress<'_>, &str) -> Result<R>,
) -> Result<R> {
    let waiting = waiting(arguments.waiting);
    if let Some(peer) = &arguments.connect {
        let token = arguments.token_file.as_deref().map(Token::read);
        let token = token.transpose()?;
        return reach(&resolve(peer)?, |peer| {
            let device = choose::<B>(&arguments.named, own_address(peer))?;
            let mut client = Drive::open::<B>(&device, waiting)?;
            let server = ServerAddress {
                address: IaAddress::from(peer),
                qualifier: peer.port().into(),
                token: token.as_ref(),
            };
            act(&mut client, server, &device.name)
        });
    }
    let device = choose::<B>(&arguments.named, None)?;
    let address = first_address(&device)?;
    let server = Drive::open::<B>(&device, waiting)?;
    let client = Drive::open::<B>(&device.other_end(), waiting)?;
    with_own_server(&device.name, address, (server, client), memory, local, act)
}

/// Runs `act` as the client of a server in this process, which stores files in `files`.
///
/// The server's adapter, the first one, has this address.
pub(crate) fn with_own_server<R>(
    device: &str,
    address: IaAddress,
    (server, mut client): (Driven, Driven),
    memory: u64,
    files: &dyn FileStore,
    mut act: impl FnMut(&mut Driven, ServerAddress<'_>, &str) -> Result<R>,
) -> Result<R> {
    let memory = usize::try_from(memory).unwrap_or(usize::MAX);
    let of_server = server.0.clone();
    // The client is this process: it may be silent while it reads a slow source.
    let terms = Terms {
        idle: Duration::MAX,
        ..Terms::default()
    };
    let mut server = Server::new(server, memory, terms);
    let qualifier = server.listen(None, None)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serve = || {
            let ended = || stop.load(Ordering::Acquire);
            server.run(files, &ended, &mut |_| {})
        };
        let serving = thread::Builder::new().spawn_scoped(scope, serve);
        let serving = serving.map_err(|error| Failure::system("cannot start a thread", &error))?;
        let server = ServerAddress {
            address,
            qualifier,
            token: None,
        };
        let result = act(&mut client, server, device);
        stop.store(true, Ordering::Release);
        // The server does not wait for its next look at `stop`.
        of_server.close();
        match serving.join() {
            // The client's error is the more specific one.
            Ok(served) => result.and_then(|result| served.map(|()| result)),
            Err(_) => Err(Failure::operation("serving failed", "its thread panicked")),
        }
    })
}

/// Measures on a device.
///
/// # Errors
/// - Those of a measurement on the mock.
/// - Operation: no device or server is usable, or the server refused the request.
pub(crate) fn perf<B: ByAddress>(arguments: &PerfArguments, output: &mut Output) -> Result<bool> {
    if matches!(arguments.operation, Operation::Bind | Operation::Srq) {
        return perf_both::<B>(arguments, output);
    }
    if arguments.depth > MOST_DEPTH {
        return Err(Failure::usage(
            "--depth is too large for a device",
            format!("over a device, this program has at most {MOST_DEPTH} operations under way"),
            format!("use a --depth of at most {MOST_DEPTH}"),
        ));
    }
    let depth = u64::from(arguments.depth);
    // Checks the arguments before any memory is allocated.
    let largest = perf::sizes(arguments)?.into_iter().max().unwrap_or(0);
    // For echoes the server needs twice the memory of a side and four buffers more.
    let memory = largest
        .saturating_mul(2 * depth + 4)
        .saturating_add(4 << 20);
    // A server in this process needs up to six times the memory of a side.
    let sides = if arguments.device.connect.is_some() {
        2
    } else {
        8
    };
    perf::room(sides, largest, arguments.depth)?;
    with_server::<B, _>(&arguments.device, memory, &NoFiles, |client, server, _| {
        let counters = arguments
            .verbose
            .then(|| counters(&client.1, "--verbose"))
            .transpose()?;
        let counters = counters.as_deref();
        let mut is_reached = false;
        perf::run_on(B::SCHEME, arguments, output, counters, |shape, meter| {
            let opened = Load::<B>::to_server(client, server, shape);
            let mut load = opened.map_err(|failure| match failure.kind {
                // Another address would begin the measurement anew.
                FailureKind::Unreached if is_reached => Failure {
                    kind: FailureKind::Operation,
                    ..failure
                },
                _ => failure,
            })?;
            is_reached = true;
            meter.measure(&mut load)?;
            load.close();
            Ok(())
        })
    })
}

/// Measures an operation without a server, with both ends on one device.
fn perf_both<B: ByAddress>(arguments: &PerfArguments, output: &mut Output) -> Result<bool> {
    if arguments.device.connect.is_some() {
        return Err(perf::not_to_server(
            arguments.operation,
            "remove --connect: --device NAME has both ends on that device",
        ));
    }
    let device = choose::<B>(&arguments.device.named, None)?;
    perf::on_both_ends::<B>(B::SCHEME, arguments, output, |waiting| {
        let near = Drive::open::<B>(&device, waiting)?;
        let far = Drive::open::<B>(&device.other_end(), waiting)?;
        Ok(((near, far), first_address(&device.other_end())?))
    })
}

#[derive(Serialize, Default)]
struct ServeReport {
    ok: bool,
    device: String,
    port: u16,
    /// Accepted clients.
    clients: u64,
    /// Rejected connection requests.
    rejected: u64,
    /// Refused requests of accepted clients.
    refused: u64,
    /// Files stored; `bytes` is their total length.
    files: u64,
    bytes: u64,
    /// Counts of the device, with `--stats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<BTreeMap<&'static str, u64>>,
}

/// Serves until a signal comes.
///
/// # Errors
/// - Usage: the token file holds no token.
/// - File: the directory or the token file cannot be used.
/// - Memory: the system lacks the memory for the clients.
/// - Operation: no device is usable, or another process listens on the port.
pub(crate) fn serve<B: ByAddress>(
    arguments: &ServeArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let device = choose::<B>(&arguments.named, arguments.listen)?;
    if let Some(address) = arguments.listen {
        let has = |own| is_same_ip(own, address) || own.ip().is_unspecified();
        if !device.ip_addresses().any(has) {
            return Err(no_device(
                B::SCHEME,
                format!("cannot listen on {}", text(address)),
                "the selected device does not have that address",
            ));
        }
    }
    let files = files(arguments)?;
    let token = arguments.token_file.as_deref().map(Token::read);
    let terms = Terms {
        idle: arguments.idle,
        guard: token.transpose()?.map(Guard::new),
        ..Terms::default()
    };
    memory::room(arguments.memory, |room| {
        format!(
            "free some memory, or use less --memory; --memory {} fits",
            argument(room.max(1))
        )
    })?;
    let memory = usize::try_from(arguments.memory).unwrap_or(usize::MAX);
    let opened = Drive::open::<B>(&device, waiting(arguments.waiting))?;
    let counters = arguments
        .stats
        .then(|| counters(&opened.1, "--stats"))
        .transpose()?;
    let mut server = Server::new(opened, memory, terms);
    server.listen(Some(arguments.port.into()), arguments.listen)?;
    let addresses: Vec<String> = match arguments.listen {
        Some(address) => vec![text(address)],
        None => device.addresses(),
    };
    output.line(format_args!(
        "{HEADING}dat serve{HEADING:#} on {}: {} port {}{}",
        device.name,
        addresses.join(" "),
        arguments.port,
        match &arguments.into {
            Some(path) => format!(", storing files in {}", path.display()),
            None => ", storing no files (see --into)".into(),
        }
    ));
    let mut report = ServeReport {
        ok: true,
        device: device.name.clone(),
        port: arguments.port,
        ..ServeReport::default()
    };
    let stop = || signals.check().is_err();
    server.run(files.as_ref(), &stop, &mut |notice| {
        report.count(&notice);
        say(&notice, output);
        if notice == Notice::Gone
            && let Some(counters) = &counters
        {
            say_counts(&counters(), output);
        }
    })?;
    output.line(format_args!(
        "{} served, {} stored, {} rejected",
        counted(report.clients, "client"),
        counted(report.files, "file"),
        report.rejected
    ));
    if let Some(counters) = &counters {
        let counts = counters();
        say_counts(&counts, output);
        report.counters = Some(counts.into_iter().collect());
    }
    output.document(&report);
    Ok(true)
}

/// Opens the store for the files of clients.
fn files(arguments: &ServeArguments) -> Result<Box<dyn FileStore>> {
    let Some(path) = &arguments.into else {
        return Ok(Box::new(NoFiles));
    };
    if !path.is_dir() {
        return Err(Failure::file_because(
            "store files in",
            path,
            "it is not a directory",
            "create it, or name another directory",
        ));
    }
    let quotas = Quotas {
        host: arguments.client_quota.min(arguments.quota),
        all: arguments.quota,
    };
    let folder = Folder::new(path, arguments.force, quotas);
    let folder = folder.map_err(|error| Failure::file("store files in", path, &error))?;
    Ok(Box::new(folder))
}

impl ServeReport {
    /// Counts what a notice tells.
    fn count(&mut self, notice: &Notice) {
        match notice {
            Notice::Accepted(_) => self.clients += 1,
            Notice::Rejected(_) => self.rejected += 1,
            Notice::Refused(_) => self.refused += 1,
            Notice::Stored(_, length) => {
                self.files += 1;
                self.bytes += length;
            }
            Notice::Gone | Notice::Failed(_) => {}
        }
    }
}

fn say(notice: &Notice, output: &mut Output) {
    match notice {
        Notice::Accepted(request) => {
            let work = match request.work {
                Work::Copy { length } => format!("copies a file of {}", size(length)),
                Work::Write => "writes".into(),
                Work::Read => "reads".into(),
                Work::Echo => "sends messages".into(),
            };
            output.line(format_args!(
                "{FAINT}a client {work}, {} of {}{FAINT:#}",
                counted(request.depth.into(), "slot"),
                size(request.size.into())
            ));
        }
        Notice::Failed(why) => output.line(format_args!("{why}")),
        Notice::Rejected(refusal) => output.line(format_args!("rejected: {}", refusal.why())),
        Notice::Refused(refusal) => output.line(format_args!("refused: {}", refusal.why())),
        Notice::Stored(name, length) => {
            output.line(format_args!(
                "{GOOD}stored{GOOD:#} {name}, {}",
                size(*length)
            ));
        }
        Notice::Gone => output.line(format_args!("{FAINT}client disconnected{FAINT:#}")),
    }
}
