//! The commands on devices that reach other processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dat_core::attributes::IaAddress;
use dat_host::Network;
use serde::Serialize;

use super::connection::ServerAddress;
use super::counts::{Counts, has_counts};
use super::file_store::{FileStore, Folder, NoFiles, Quotas};
use super::host_adapter::{Drive, Driven, Waiting};
use super::protocol::Work;
use super::server::{Notice, Server, Terms};
use super::token::{Guard, Token};
use super::transport::{
    Carrier, choose, first_address, is_same_ip, no_device, own_address, reach, resolve, text,
};
use crate::arguments::{DeviceArguments, ServeArguments, WaitName, WaitingArguments};
use crate::failure::{Failure, Result};
use crate::interrupt::Signals;
use crate::memory;
use crate::output::{FAINT, GOOD, HEADING, Output};
use crate::size::{argument, counted, size};

fn waiting(arguments: WaitingArguments) -> Waiting {
    match arguments.wait {
        Some(WaitName::Poll) => Waiting::Poll {
            looks: arguments.yield_after,
        },
        Some(WaitName::Block) | None => Waiting::Block,
    }
}

/// Returns the device for both ends in this process: the named one, or else the mock.
///
/// # Errors
/// - Those of [`choose`].
pub(crate) fn device_of_both(arguments: &DeviceArguments) -> Result<Carrier> {
    match arguments.named.name() {
        Some(_) => choose(&arguments.named, None),
        None => Ok(Carrier::mock(Network::options())),
    }
}

/// Runs `act` as the client of the named server, or of one in this process.
///
/// The server in this process runs on the same device and stores files in `local`. `act` runs
/// again for each address of the named server, until one is reached.
pub(crate) fn with_server<R>(
    arguments: &DeviceArguments,
    memory: u64,
    local: &dyn FileStore,
    mut act: impl FnMut(&mut Driven, ServerAddress<'_>, &Carrier) -> Result<R>,
) -> Result<R> {
    let waiting = waiting(arguments.waiting);
    if let Some(peer) = &arguments.connect {
        let token = arguments.token_file.as_deref().map(Token::read);
        let token = token.transpose()?;
        return reach(&resolve(peer)?, |peer| {
            let device = choose(&arguments.named, own_address(peer))?;
            let mut client = Drive::open(&device, waiting)?;
            let server = ServerAddress {
                address: IaAddress::from(peer),
                qualifier: peer.port().into(),
                token: token.as_ref(),
            };
            act(&mut client, server, &device)
        });
    }
    with_own_server(&device_of_both(arguments)?, waiting, memory, local, act)
}

/// Runs `act` as the client of a server in this process, which stores files in `files`.
pub(crate) fn with_own_server<R>(
    device: &Carrier,
    waiting: Waiting,
    memory: u64,
    files: &dyn FileStore,
    mut act: impl FnMut(&mut Driven, ServerAddress<'_>, &Carrier) -> Result<R>,
) -> Result<R> {
    let memory = usize::try_from(memory).unwrap_or(usize::MAX);
    let address = first_address(device)?;
    let server = Drive::open(device, waiting)?;
    let mut client = Drive::open(&device.other_end(), waiting)?;
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
    /// Counts of the device, with `--stats` or `--verbose`.
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
pub(crate) fn serve(
    arguments: &ServeArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let device = choose(&arguments.named, arguments.listen)?;
    if let Some(address) = arguments.listen {
        let has = |own| is_same_ip(own, address) || own.ip().is_unspecified();
        if !device.ip_addresses().any(has) {
            return Err(no_device(
                device.scheme,
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
    let opened = Drive::open(&device, waiting(arguments.waiting))?;
    let adapter = opened.0.clone();
    let says_counts = arguments.stats || arguments.named.verbose;
    if says_counts {
        let argument = match arguments.stats {
            true => "--stats",
            false => "--verbose",
        };
        has_counts(&adapter, argument)?;
    }
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
        if notice == Notice::Gone && says_counts {
            Counts::new(adapter.counts()).say(output);
        }
    })?;
    output.line(format_args!(
        "{} served, {} stored, {} rejected",
        counted(report.clients, "client"),
        counted(report.files, "file"),
        report.rejected
    ));
    if says_counts {
        let counts = Counts::new(adapter.counts());
        counts.say(output);
        report.counters = Some(counts.named());
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
