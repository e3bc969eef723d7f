//! The controllers of this process.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use std::{fs, process};

use dat_core::attributes::IaAddress;
use dat_devices::{
    ByAddress, Cause, DeviceAddress, FabricOptions, Network, OpenError, OpenErrorKind,
};
use dat_rsm::{Credentials, Handle, NodeEntry, Options, Result, RsmError, is_same_controller};
use dat_storage::forks::generation;
use std::os::unix::fs::MetadataExt;

use super::nodes::{Known, Nodes};
use super::nodes_problem::Problem;
use super::site::{Shape, Site};
use crate::boundary::{page_size, start_thread};
use crate::diagnostic::report;

/// Name of this library for the loader.
pub(super) const LIBRARY: &str = "librsm.so.2";
/// The controller that reaches its own node only.
pub(super) const LOOPBACK: &str = "loopback";
/// Connection qualifier of `loopback` on its fabric.
const LOOPBACK_QUALIFIER: u64 = 1;
/// Microseconds that a node may take to answer. Its thread may have to wait for a processor.
const CONNECT_TIMEOUT: u32 = 10_000_000;
/// Microseconds that importers may take to release a segment.
const REVOCATION_GRACE: u32 = 1_000_000;

/// Declares [`Opened`].
macro_rules! declare {
    ({} $($name:ident = $type:ty,)+) => {
        /// An open controller of one of the backends.
        pub(super) enum Opened {
            $($name(Box<Site<$type>>),)+
        }
    };
}
dat_devices::backends! { [declare] {} }

/// Evaluates an expression for the site of a controller with any backend.
macro_rules! with_site {
    ($opened:expr, $site:ident => $result:expr) => {
        dat_devices::backends! { [$crate::rsm::process::by_site] { $opened, $site => $result } }
    };
}
pub(super) use with_site;

macro_rules! by_site {
    ({ $opened:expr, $site:ident => $result:expr } $($name:ident = $type:ty,)+) => {
        match $opened {
            $($crate::rsm::process::Opened::$name($site) => $result,)+
        }
    };
}
pub(super) use by_site;

/// Opens the device of a name by the backend of its scheme, and evaluates an expression for it.
macro_rules! by_scheme {
    ({ $named:expr, $options:expr, $backend:ident => $site:expr } $($name:ident = $type:ty,)+) => {
        match $named.scheme() {
            $(<$type as ByAddress>::SCHEME => {
                let opened = <$type as ByAddress>::open($named.device(), $options);
                opened.map(|$backend| $site.map(|site| Opened::$name(Box::new(site))))
            })+
            _ => return Err(RsmError::ControllerNotPresent),
        }
    };
}

/// A controller of this process, open or not.
pub(super) struct Controller {
    pub(super) name: &'static str,
    pub(super) nodes: Vec<NodeEntry>,
    /// The device; `None` for `loopback`.
    device: Option<Known>,
    /// The network of `loopback`, whose thread runs as long as the process.
    network: OnceLock<Network>,
    opened: OnceLock<Opened>,
    turn: Mutex<()>,
}

impl Controller {
    /// Returns true if the port of its device is up, and for `loopback`.
    pub(super) fn active(&self) -> bool {
        self.device.as_ref().is_none_or(|device| device.active)
    }

    /// Returns the site, if the controller was opened.
    pub(super) fn opened(&'static self) -> Option<&'static Opened> {
        self.opened.get()
    }

    /// Returns the site, opened on first use.
    fn open(&'static self, node: u32) -> Result<&'static Opened> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.make(node).inspect_err(|code| {
            let name = self.name;
            report(LIBRARY, format_args!("{name} cannot be opened: {code}"));
        })?;
        Ok(self.opened.get_or_init(|| opened))
    }

    fn make(&self, node: u32) -> Result<Opened> {
        let mut devices = dat_devices::Options::new();
        devices.start_thread = Some(start_thread);
        let (named, shape) = match &self.device {
            Some(device) => (
                &DeviceAddress::from_argument(&device.name),
                self.shape(device.qualifier, false),
            ),
            None => {
                devices.network = Some(match self.network.get() {
                    Some(network) => network.clone(),
                    None => {
                        let network = Network::with_thread(FabricOptions::default(), start_thread);
                        let network = network.map_err(|_| RsmError::InsufficientResources)?;
                        self.network.get_or_init(|| network).clone()
                    }
                });
                (
                    &DeviceAddress::new("mock", LOOPBACK),
                    self.shape(LOOPBACK_QUALIFIER, true),
                )
            }
        };
        let site = dat_devices::backends! { [by_scheme] {
            named, &devices, backend => Site::open(backend, options(node), shape)
        } };
        site.map_err(|error| self.refused(&error))?
    }

    fn shape(&self, qualifier: u64, loopback: bool) -> Shape {
        Shape {
            name: self.name,
            qualifier,
            nodes: self.nodes.clone(),
            loopback,
        }
    }

    /// Reports why the device is not opened; returns the error of the call.
    fn refused(&self, error: &OpenError) -> RsmError {
        let name = self
            .device
            .as_ref()
            .map_or(self.name, |device| &device.name);
        let why: &dyn std::fmt::Display = match (error.cause(), error.kind()) {
            (Cause::Backend(_), OpenErrorKind::Descriptors) => {
                &"no file descriptor is left (RLIMIT_NOFILE)"
            }
            (Cause::Backend(_), OpenErrorKind::AddressNotThere) => {
                &"its network interface no longer has an address"
            }
            (Cause::Backend(_), OpenErrorKind::NoSuchDevice) => {
                &"it was removed, or this user has no permission to open it"
            }
            (_, OpenErrorKind::NotBuiltIn { .. }) => &"this library has no RDMA devices",
            _ => error,
        };
        report(LIBRARY, format_args!("the device {name}: {why}"));
        match error.kind() {
            OpenErrorKind::NoSuchDevice
            | OpenErrorKind::AddressNotThere
            | OpenErrorKind::Permission
            | OpenErrorKind::NotBuiltIn { .. } => RsmError::ControllerNotPresent,
            _ => RsmError::InsufficientResources,
        }
    }
}

/// Returns the options of an engine of this process.
fn options(node: u32) -> Options {
    let begin = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let begin = begin.map_or(0, |time| time.as_nanos() as u64);
    let about = fs::metadata("/proc/self").ok();
    Options {
        credentials: about.map_or_else(Credentials::default, |about| Credentials {
            user: about.uid(),
            group: about.gid(),
        }),
        default_access: 0o666 & !umask(),
        page_size: page_size() as u64,
        connect_timeout: CONNECT_TIMEOUT,
        revocation_grace: REVOCATION_GRACE,
        ..Options::new(node, begin ^ u64::from(process::id()).rotate_left(32))
    }
}

/// Returns the file mode creation mask, read from `/proc` because the system call changes it.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok())
        .unwrap_or(0o022)
}

/// The controllers of one process.
pub(super) struct Process {
    pub(super) node: u32,
    /// `loopback` is always there, as the last one.
    pub(super) controllers: Vec<Controller>,
    /// The error of a file of nodes that cannot be used.
    pub(super) fault: Option<RsmError>,
}

/// Number of processes in a line of forks that have controllers of their own.
const GENERATIONS: usize = 64;
static PROCESSES: [OnceLock<Process>; GENERATIONS] = [const { OnceLock::new() }; GENERATIONS];

impl Process {
    /// Returns the controllers of this process.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: too many forks lie between this process and the first one that used
    /// the library; or there are no descriptors to find the controllers with.
    pub(super) fn this() -> Result<&'static Self> {
        let process = PROCESSES.get(generation());
        let process = process.ok_or(RsmError::InsufficientResources)?;
        if let Some(known) = process.get() {
            return Ok(known);
        }
        let (found, problem) = Self::find()?;
        Ok(process.get_or_init(|| {
            // Of several threads that come here, one prints the problem.
            if let Some(problem) = problem {
                report(LIBRARY, problem);
            }
            found
        }))
    }

    /// Finds the controllers, and the problem of the file of nodes.
    fn find() -> Result<(Self, Option<Problem>)> {
        let (nodes, problem) = match Nodes::find()? {
            Ok(nodes) => (nodes, None),
            Err(problem) => (Nodes::default(), Some(problem)),
        };
        let node = nodes.own;
        let itself = NodeEntry {
            node,
            controller: LOOPBACK,
            // That of the first name in a network.
            address: IaAddress::Node(1),
            qualifier: LOOPBACK_QUALIFIER,
        };
        let devices = nodes
            .controllers
            .into_iter()
            .map(|(device, nodes)| (device.controller, nodes, Some(device)));
        let controllers =
            devices
                .chain([(LOOPBACK, vec![itself], None)])
                .map(|(name, nodes, device)| Controller {
                    name,
                    nodes,
                    device,
                    network: OnceLock::new(),
                    opened: OnceLock::new(),
                    turn: Mutex::new(()),
                });
        let process = Self {
            node,
            controllers: controllers.collect(),
            fault: problem.as_ref().map(|_| RsmError::BadConfiguration),
        };
        Ok((process, problem))
    }

    /// Opens the controller with this name.
    ///
    /// # Errors
    /// - CTLR_NOT_PRESENT: there is none, or its device is gone.
    /// - INSUFFICIENT_RESOURCES: it cannot be opened for lack of memory, threads or descriptors.
    /// - BAD_CONF: there is none, and the file of nodes cannot be used.
    pub(super) fn open(&'static self, name: &str) -> Result<&'static Opened> {
        let mut known = self.controllers.iter();
        match known.find(|known| is_same_controller(known.name, name)) {
            Some(controller) => controller.open(self.node),
            // The problem of the file was printed when it was found.
            None => Err(self.fault.unwrap_or_else(|| self.absent(name))),
        }
    }

    /// Prints that no controller has this name, with all names; returns the error.
    pub(super) fn absent(&self, name: &str) -> RsmError {
        let known: Vec<&str> = self.controllers.iter().map(|known| known.name).collect();
        let devices = match self.controllers.iter().any(|known| known.device.is_some()) {
            true => "",
            false => "; a nodes file with a line for an address of this host makes a controller",
        };
        let known = known.join(", ");
        report(
            LIBRARY,
            format_args!("no controller has the name `{name}`: known are {known}{devices}"),
        );
        RsmError::ControllerNotPresent
    }

    /// Returns the open sites.
    pub(super) fn sites(&'static self) -> impl Iterator<Item = &'static Opened> {
        self.controllers.iter().filter_map(Controller::opened)
    }

    fn site_of(&'static self, handle: Handle) -> Option<&'static Opened> {
        self.sites()
            .find(|opened| with_site!(opened, site => site.engine.gave_out(handle)))
    }
}

/// Returns the site whose engine returned a handle.
///
/// # Errors
/// `otherwise`: no engine of this process returned it.
pub(super) fn site_of(handle: Handle, otherwise: RsmError) -> Result<&'static Opened> {
    // No handle exists before the first controller was got.
    let process = PROCESSES.get(generation()).and_then(OnceLock::get);
    process
        .filter(|_| !handle.is_null())
        .and_then(|process| process.site_of(handle))
        .ok_or(otherwise)
}

/// Returns true if a process that this one was forked from returned the handle.
///
/// Objects of such a process must not be touched, because threads that are not in this process may
/// have held its locks.
///
/// Spec: RSMGEN-03
pub(super) fn is_inherited(handle: Handle) -> bool {
    let former = PROCESSES
        .iter()
        .take(generation())
        .filter_map(OnceLock::get);
    !handle.is_null() && former.into_iter().any(|it| it.site_of(handle).is_some())
}
