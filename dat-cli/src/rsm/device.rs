//! Remote shared memory on a device, between processes and hosts.

use std::cell::Cell;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread;
use std::time::SystemTime;

use dat_core::Ia;
use dat_core::attributes::IaAddress;
use dat_core::event::{ThreadWait, Wait, WakeReason};
use dat_core::flags::{EvdFlags, PspFlags};
use dat_core::sync::SpinLock;
use dat_core::time::Instant;
use dat_rsm::{
    AccessEntry, ControllerConfig, ControllerId, Credentials, ExportFlags, ExportId, NodeEntry,
    NodeId, Options, Permission, Rsm, RsmError, SegmentId,
};
use dat_storage::Limits;
use twox_hash::XxHash3_128;

use super::arguments::{
    BenchArguments, ExportArguments, GetArguments, ImportArguments, PutArguments, RsmCommand,
};
use super::file::{Contents, Fresh, Source};
use super::importer::{Importer, Shape};
use super::pair::{CONTROLLER, DuringRsm, Engine};
use super::plain::{Course, ExporterAddress, Plain};
use super::{ExportReport, contents, get_file, pages, put_file, report_export};
use crate::arguments::{WaitName, WaitingArguments};
use crate::failure::{During, Failure, Result};
use crate::host::{self, Memory};
use crate::interrupt::Signals;
use crate::output::{HEADING, Output};
use crate::peer::Peer;
use crate::remote::server::not_listening;
use crate::remote::transport::{Carrier, Transport, first_address, own_address, resolve};
use crate::size::size;

/// The node number of the exporter; other nodes are numbered by their addresses.
const EXPORTER: NodeId = 1;
/// The qualifier of nodes that do not listen.
const NOWHERE: u64 = 0;
/// Importers that an exporter has endpoints for.
const IMPORTERS: usize = 16;
/// Microseconds after which an exporter checks again if it must end.
const TICK: u32 = 200_000;
/// Microseconds between two probes of the peer on an idle connection.
const PROBES: u32 = 5_000_000;
/// Ports that are tried after the first, for an exporter in this process.
const TRIES: u32 = 8;

/// Runs the command that the arguments name, on a device.
///
/// # Errors
/// - Those on the mock.
/// - Operation: no device is usable, or the exporter is missing, refuses, or ends.
pub(crate) fn run<T: Transport>(
    command: &RsmCommand,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let done = match command {
        RsmCommand::Export(arguments) => export::<T>(arguments, signals, output),
        RsmCommand::Put(arguments) => put::<T>(arguments, signals, output),
        RsmCommand::Get(arguments) => get::<T>(arguments, signals, output),
        RsmCommand::Bench(arguments) => measure::<T>(arguments, signals, output),
    };
    // If a signal interrupted a call, the signal is the better report.
    done.or_else(|failure| signals.check().and(Err(failure)))
}

/// The way in which a call waits for the device.
struct DeviceWait<W> {
    inner: W,
    /// If set, the wait polls instead of sleeping.
    polls: Option<Looks>,
}

impl<W: Wait> Wait for DeviceWait<W> {
    fn now(&mut self) -> Instant {
        self.inner.now()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn begin(&mut self) {
        self.inner.begin();
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        let Some(looks) = &self.polls else {
            return self.inner.wait(until);
        };
        if until.is_some_and(|until| until <= ThreadWait::clock()) {
            return WakeReason::TimedOut;
        }
        looks.go_on();
        WakeReason::Woken
    }
}

/// Counts empty polls; yields the thread after `most` of them.
struct Looks {
    most: u32,
    vain: Cell<u32>,
}

impl Looks {
    fn new(arguments: WaitingArguments) -> Self {
        Self {
            most: arguments.yield_after,
            vain: Cell::new(0),
        }
    }
}

impl Course for Looks {
    fn now(&self) -> Instant {
        ThreadWait::clock()
    }

    fn go_on(&self) {
        let vain = self.vain.get().wrapping_add(1);
        if vain < self.most {
            self.vain.set(vain);
            return;
        }
        self.vain.set(0);
        thread::yield_now();
    }
}

/// Returns the node number of an importer.
///
/// It is the IPv4 address, or a hash of the IPv6 address, but at least [`EXPORTER`] + 1.
fn node_at(address: IpAddr) -> NodeId {
    let number = match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => XxHash3_128::oneshot(&address.octets()) as u32,
    };
    number.max(EXPORTER + 1)
}

fn entry(node: NodeId, address: IaAddress, qualifier: u64) -> NodeEntry {
    NodeEntry {
        node,
        controller: CONTROLLER,
        address,
        qualifier,
    }
}

/// A node on a device, with an open controller.
struct Site<T: Transport> {
    engine: Engine<T::Backend>,
    controller: ControllerId,
    wait: DeviceWait<T::Wait>,
}

impl<T: Transport> Site<T> {
    fn open(
        device: &Carrier,
        waiting: WaitingArguments,
        node: NodeId,
        qualifier: u64,
        nodes: Vec<NodeEntry>,
    ) -> Result<Self> {
        let (backend, wait) = T::open(device)?;
        const LINKS: usize = IMPORTERS + 2;
        let limits = Limits {
            endpoints: LINKS,
            connection_requests: LINKS,
            zones: LINKS + 2,
            local_regions: 256,
            remote_regions: 256,
            records: 256 * LINKS,
            events: 2048,
            ..host::LIMITS
        };
        let ia = host::open_static(backend, &limits)?;
        if qualifier != NOWHERE {
            listens(&ia, qualifier)?;
        }
        let config = ControllerConfig {
            name: CONTROLLER,
            ia,
            qualifier,
            nodes,
        };
        let begin = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let begin = begin.map_or(0, |time| time.as_nanos() as u64);
        let incarnation = begin ^ u64::from(process::id()).rotate_left(32);
        let options = Options {
            credentials: credentials(),
            probe_interval: PROBES,
            ..Options::new(node, incarnation)
        };
        let engine = Rsm::new(options, vec![config]).during_rsm("creating the RSM engine")?;
        let controller = engine
            .get_controller(Some(CONTROLLER))
            .during_rsm("rsm_get_controller")?;
        let polls = (waiting.wait == Some(WaitName::Poll)).then(|| Looks::new(waiting));
        Ok(Self {
            engine,
            controller,
            wait: DeviceWait { inner: wait, polls },
        })
    }
}

/// Returns the user and group of this process.
///
/// If the system does not report them, all processes count as one user.
fn credentials() -> Credentials {
    let about = fs::metadata("/proc/self");
    about.map_or_else(
        |_| Credentials::default(),
        |about| Credentials {
            user: about.uid(),
            group: about.gid(),
        },
    )
}

/// Checks that the port is free.
///
/// The engine has no error for a port in use.
///
/// # Errors
/// - Operation: another process listens on the port.
fn listens<B: host::HostBackend>(ia: &Ia<'_, B, SpinLock>, qualifier: u64) -> Result<()> {
    let arrivals = ia
        .evd_create(1, None, EvdFlags::CR)
        .during("dat_evd_create")?;
    match ia.psp_create(qualifier, arrivals, PspFlags::Consumer) {
        Ok(psp) => ia.psp_free(psp).during("dat_psp_free")?,
        Err(error) => return Err(not_listening(qualifier, error)),
    }
    ia.evd_free(arrivals).during("dat_evd_free")
}

/// An exporter with its segment.
struct Exporter<T: Transport> {
    site: Site<T>,
    export: ExportId,
}

impl<T: Transport> Exporter<T> {
    /// Publishes a segment to processes of this host and of the hosts in `others`.
    fn publish(
        device: &Carrier,
        (waiting, qualifier): (WaitingArguments, u64),
        others: &[IpAddr],
        memory: Memory,
        (id, digits): (SegmentId, u32),
    ) -> Result<Self> {
        let own = first_address::<T>(device)?;
        let mut nodes = vec![entry(EXPORTER, own, qualifier)];
        let here = device
            .addresses
            .iter()
            .filter_map(|address| Some((address.socket_address()?.ip(), *address)));
        let there = others
            .iter()
            .map(|address| (*address, IaAddress::from(SocketAddr::from((*address, 0)))));
        for (ip, address) in here.chain(there) {
            nodes.push(entry(node_at(ip), address, NOWHERE));
        }
        let list: Vec<AccessEntry> = nodes
            .iter()
            .map(|entry| AccessEntry {
                node: entry.node,
                permission: digits,
            })
            .collect();
        let site = Site::open(device, waiting, EXPORTER, qualifier, nodes)?;
        let export = site
            .engine
            .export_create(site.controller, memory.region(), ExportFlags::empty())
            .during_rsm("rsm_memseg_export_create")?;
        site.engine
            .export_publish(export, id, &list)
            .during_rsm("rsm_memseg_export_publish")?;
        Ok(Self { site, export })
    }

    /// Serves until `ends` returns true; `ends` gets the number of signals so far.
    fn serve(&mut self, mut ends: impl FnMut(u64) -> bool) -> Result<u64> {
        let mut signals = 0;
        while !ends(signals) {
            let Site { engine, wait, .. } = &mut self.site;
            let until = ThreadWait::clock().after(TICK);
            match engine.signal_wait(self.export, until, wait) {
                Ok(()) => signals += 1,
                Err(RsmError::TimedOut | RsmError::Interrupted) => {}
                Err(error) => return Err(error).during_rsm("rsm_intr_signal_wait"),
            }
        }
        Ok(signals)
    }

    /// Revokes the segment of all importers.
    fn end(mut self) -> Result<()> {
        let Site {
            engine,
            controller,
            wait,
        } = &mut self.site;
        engine
            .export_destroy(self.export, wait)
            .during_rsm("rsm_memseg_export_destroy")?;
        engine
            .release_controller(*controller, wait)
            .during_rsm("rsm_release_controller")
    }
}

fn export<T: Transport>(
    arguments: &ExportArguments,
    interrupts: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let (memory, _) = contents(arguments)?;
    let save = arguments.save.as_deref().map(Fresh::create).transpose()?;
    let device = T::choose(arguments.device.as_deref(), None)?;
    let mut exporter = Exporter::<T>::publish(
        &device,
        (arguments.waiting, arguments.port.into()),
        &arguments.importer,
        memory,
        (arguments.segment, arguments.permission),
    )?;
    let bytes = memory.length() as u64;
    output.line(format_args!(
        "{HEADING}dat rsm export{HEADING:#} on {}: {} port {}, {} as segment {:#x}; interrupt to stop",
        device.name,
        device.addresses().join(" "),
        arguments.port,
        size(bytes),
        arguments.segment
    ));
    let signals = exporter.serve(|signals| {
        interrupts.check().is_err() || arguments.signals.is_some_and(|most| signals >= most)
    })?;
    exporter.end()?;
    let checksum = Contents::of(memory, bytes).checksum();
    if let Some(save) = save {
        save.write(memory)?;
    }
    report_export(
        &ExportReport {
            ok: true,
            backend: T::NAME,
            device: Some(device.name),
            segment: arguments.segment,
            bytes,
            signals,
            checksum: format!("{checksum:032x}"),
        },
        output,
    );
    Ok(true)
}

/// The connection of an importer, and its addresses.
struct Importing<'s, T: Transport> {
    importer: Importer<'s, T::Backend, DeviceWait<T::Wait>>,
    exporter: ExporterAddress,
    device: Carrier,
}

/// Connects to an exporter as a separate node and runs `act`.
fn import<T: Transport, R>(
    (device, peer): (&Carrier, SocketAddr),
    (arguments, waiting): (&ImportArguments, WaitingArguments),
    permission: Permission,
    shape: Shape,
    act: impl FnOnce(&mut Importing<'_, T>) -> Result<R>,
) -> Result<R> {
    let own = own_address(peer).unwrap_or(peer.ip());
    let node = node_at(own);
    let address = IaAddress::from(peer);
    let qualifier = peer.port().into();
    let nodes = vec![entry(EXPORTER, address, qualifier)];
    let Site {
        engine,
        controller,
        wait,
    } = Site::<T>::open(device, waiting, node, NOWHERE, nodes)?;
    let whom = (EXPORTER, arguments.segment);
    let importer = Importer::connect((&engine, controller), whom, permission, shape, wait)?;
    let mut importing = Importing {
        importer,
        exporter: ExporterAddress {
            address,
            qualifier,
            node,
            segment: arguments.segment,
        },
        device: device.clone(),
    };
    let done = act(&mut importing)?;
    importing.importer.disconnect()?;
    Ok(done)
}

/// Runs `act` as importer of the named exporter, or of one in this process.
///
/// The exporter in this process runs on the same device.
fn with_exporter<T: Transport, R>(
    arguments: &ImportArguments,
    waiting: WaitingArguments,
    permission: Permission,
    shape: Shape,
    memory: impl FnOnce() -> Result<Memory>,
    act: impl FnOnce(&mut Importing<'_, T>) -> Result<R>,
) -> Result<R> {
    if let Some(peer) = &arguments.device.connect {
        let peer = resolve(peer)?;
        let device = T::choose(arguments.device.device.as_deref(), own_address(peer))?;
        let whom = (&device, peer);
        return import::<T, _>(whom, (arguments, waiting), permission, shape, act);
    }
    let device = T::choose(arguments.device.device.as_deref(), None)?;
    let memory = memory()?;
    let (mut exporter, port) = exporter_here::<T>(&device, arguments.segment, memory)?;
    let address = first_address::<T>(&device)?.socket_address();
    let host = address.ok_or_else(|| Failure::operation("no address", "it is no IP address"))?;
    let peer = Peer {
        host: host.ip().to_string(),
        port,
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            exporter.serve(|_| stop.load(Ordering::Acquire))?;
            exporter.end()
        });
        let result = resolve(&peer).and_then(|peer| {
            let whom = (&device, peer);
            import::<T, _>(whom, (arguments, waiting), permission, shape, act)
        });
        stop.store(true, Ordering::Release);
        match serving.join() {
            // The importer's error is the more specific one.
            Ok(served) => result.and_then(|result| served.map(|()| result)),
            Err(_) => Err(Failure::operation(
                "exporting failed",
                "its thread panicked",
            )),
        }
    })
}

/// Publishes a segment on a free port, for an importer in this process.
///
/// After any failure it tries the next port.
fn exporter_here<T: Transport>(
    device: &Carrier,
    segment: SegmentId,
    memory: Memory,
) -> Result<(Exporter<T>, u16)> {
    let waiting = WaitingArguments {
        wait: None,
        yield_after: 1,
    };
    let mut tried = 0;
    loop {
        let port = 49_152 + (process::id().wrapping_mul(TRIES).wrapping_add(tried) % 16_384) as u16;
        let settings = (waiting, port.into());
        match Exporter::<T>::publish(device, settings, &[], memory, (segment, 0o666)) {
            Err(_) if tried < TRIES => tried += 1,
            done => return done.map(|exporter| (exporter, port)),
        }
    }
}

fn put<T: Transport>(
    arguments: &PutArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let length = Source::open(&arguments.file, "put into a segment")?.length();
    let (import, waiting) = (&arguments.import, arguments.import.device.waiting);
    let memory = || Ok(Memory::new(pages(arguments.offset.saturating_add(length))?));
    let all = Permission::all();
    with_exporter::<T, _>(import, waiting, all, shape, memory, |importing| {
        let on = (T::NAME, Some(importing.device.name.clone()));
        put_file(arguments, &mut importing.importer, on, signals, output)
    })
}

fn get<T: Transport>(
    arguments: &GetArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let (import, waiting) = (&arguments.import, arguments.import.device.waiting);
    let source = arguments
        .from
        .as_ref()
        .map(|from| contents(&arguments.exported(from)))
        .transpose()?;
    let expected = source
        .map(|(memory, end)| {
            let length = arguments.bytes(end, memory.length() as u64)?;
            let contents = Contents::part(memory, arguments.offset, length);
            Ok((length, contents))
        })
        .transpose()?;
    let memory = || match source {
        Some((memory, _)) => Ok(memory),
        None => Err(Failure::usage(
            "no segment is exported",
            "with --device and without --connect, both ends use that device",
            "give the content of the segment with --from, or an exporter with --connect",
        )),
    };
    with_exporter::<T, _>(
        import,
        waiting,
        Permission::READ,
        shape,
        memory,
        |importing| {
            let on = (T::NAME, Some(importing.device.name.clone()));
            let importer = &mut importing.importer;
            let (length, expected) = match expected {
                Some((length, expected)) => (length, Some(expected)),
                None => {
                    let segment = importer.length()?;
                    (arguments.bytes(segment, segment)?, None)
                }
            };
            get_file(arguments, importer, (length, expected), on, signals, output)
        },
    )
}

fn measure<T: Transport>(
    arguments: &BenchArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let import = &arguments.import;
    // Plain transfers poll, so vectors poll too.
    let waiting = WaitingArguments {
        wait: Some(WaitName::Poll),
        ..import.device.waiting
    };
    let memory = || Ok(Memory::new(pages(shape.vector() as u64)?));
    let all = Permission::all();
    let report = with_exporter::<T, _>(import, waiting, all, shape, memory, |importing| {
        let (backend, _) = T::open(&importing.device)?;
        let limits = Limits {
            records: 2 * shape.entries + 64,
            ..host::LIMITS
        };
        let third = host::open(backend, &limits)?;
        let looks = Looks::new(waiting);
        let mut plain = Plain::connect(third, &looks, importing.exporter, shape)?;
        let on = (T::NAME, Some(importing.device.name.clone()));
        let report =
            super::bench::run(arguments, on, signals, &mut importing.importer, &mut plain)?;
        plain.disconnect()?;
        Ok(report)
    })?;
    super::bench::print(&report, output);
    output.document(&report);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_by_their_addresses() {
        let number = |text: &str| node_at(text.parse().unwrap());
        assert_eq!(number("10.9.0.1"), 0x0A09_0001);
        assert_eq!(number("::ffff:10.9.0.1"), number("10.9.0.1"));
        assert_ne!(number("fd09::1"), number("fd09::2"));
        for text in ["0.0.0.0", "0.0.0.1"] {
            assert_ne!(number(text), EXPORTER);
        }
    }
}
