//! Where a server stores files, and how much of the disk its clients may fill.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dat_core::attributes::IaAddress;

use super::protocol::Refusal;
use crate::place::{Part, Place};

/// The least that a file counts for: its entry in a folder takes room, too.
const LEAST: u64 = 4096;

/// Writes a file, or the entries of a folder, to the disk.
type SyncFile = Arc<dyn Fn(&File) -> io::Result<()> + Send + Sync>;

/// The host of a client, if the device tells.
pub(crate) type Host = Option<IaAddress>;

/// Where files go.
pub(crate) trait Shelf {
    /// Makes the file of this length that is to get this name, which is a plain one.
    ///
    /// # Errors
    /// Why not.
    fn begin(&mut self, name: &str, length: u64, host: Host) -> Result<Draft, Refusal>;
}

/// A file that a client sends; dropping it removes it.
pub(crate) struct Draft {
    pub(crate) part: Part,
    replace: bool,
    sync: SyncFile,
    reserved: Option<Reserved>,
}

impl Draft {
    /// Puts the file into its place, and returns when it is on the disk.
    ///
    /// # Errors
    /// `Exists`: a file was made there meanwhile. `CannotWrite`: the system refuses.
    pub(crate) fn store(self) -> Result<(), Refusal> {
        let stored = self.part.store(self.replace, self.sync.as_ref());
        stored.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Refusal::Exists,
            _ => Refusal::CannotWrite,
        })?;
        if let Some(mut reserved) = self.reserved {
            reserved.kept = true;
        }
        Ok(())
    }
}

/// How many bytes clients may store while the server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quotas {
    /// The clients of one host.
    pub(crate) host: u64,
    /// All clients.
    pub(crate) all: u64,
}

/// What was stored, and what may still be.
struct Ledger {
    quotas: Quotas,
    all: u64,
    hosts: HashMap<Host, u64>,
}

/// Bytes of the quotas that are given back unless their file is stored.
struct Reserved {
    ledger: Arc<Mutex<Ledger>>,
    host: Host,
    bytes: u64,
    kept: bool,
}

impl Reserved {
    fn new(ledger: &Arc<Mutex<Ledger>>, host: Host, length: u64) -> Result<Self, Refusal> {
        let mut guard = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = length.max(LEAST);
        // Every connection of a host has a port of its own.
        let host = host.map(|host| match host {
            IaAddress::V4(address, _) => IaAddress::V4(address, 0),
            IaAddress::V6(address, _, scope) => IaAddress::V6(address, 0, scope),
            node => node,
        });
        let own = guard.hosts.get(&host).copied().unwrap_or(0);
        let fits = |used: u64, most| used.checked_add(bytes).filter(|sum| *sum <= most);
        let (Some(own), Some(all)) = (
            fits(own, guard.quotas.host),
            fits(guard.all, guard.quotas.all),
        ) else {
            return Err(Refusal::Quota);
        };
        guard.hosts.insert(host, own);
        guard.all = all;
        Ok(Self {
            ledger: ledger.clone(),
            host,
            bytes,
            kept: false,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.all -= self.bytes;
        if let Some(own) = ledger.hosts.get_mut(&self.host) {
            *own -= self.bytes;
        }
        ledger.hosts.retain(|_, own| *own > 0);
    }
}

/// A server that takes no files.
pub(crate) struct NoShelf;

impl Shelf for NoShelf {
    fn begin(&mut self, _: &str, _: u64, _: Host) -> Result<Draft, Refusal> {
        Err(Refusal::NoFolder)
    }
}

/// A folder that files go into.
pub(crate) struct Folder {
    path: PathBuf,
    /// Whether files that exist are replaced.
    replace: bool,
    ledger: Arc<Mutex<Ledger>>,
    sync: SyncFile,
}

impl Folder {
    /// # Errors
    /// The system's: it is no folder.
    pub(crate) fn new(path: &Path, replace: bool, quotas: Quotas) -> io::Result<Self> {
        let ledger = Ledger {
            quotas,
            all: 0,
            hosts: HashMap::new(),
        };
        Ok(Self {
            path: path.canonicalize()?,
            replace,
            ledger: Arc::new(Mutex::new(ledger)),
            sync: Arc::new(File::sync_all),
        })
    }

    /// With another way to write to the disk.
    #[cfg(test)]
    pub(crate) fn synced_by(
        self,
        sync: impl Fn(&File) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let sync = Arc::new(sync);
        Self { sync, ..self }
    }

    /// Whether there may be a file of this name now.
    fn look(&self, path: &Path) -> Result<(), Refusal> {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(_) => Err(Refusal::CannotWrite),
            Ok(_) if !self.replace => Err(Refusal::Exists),
            Ok(_) => Ok(()),
        }
    }
}

impl Shelf for Folder {
    fn begin(&mut self, name: &str, length: u64, host: Host) -> Result<Draft, Refusal> {
        let path = self.path.join(name);
        self.look(&path)?;
        let place = Place::choose(&path).map_err(|_| Refusal::CannotWrite)?;
        // No link is followed.
        if place.path() != path {
            return Err(Refusal::CannotWrite);
        }
        let reserved = Reserved::new(&self.ledger, host, length)?;
        let part = place.begin(None).map_err(|_| Refusal::CannotWrite)?;
        Ok(Draft {
            part,
            replace: self.replace,
            sync: self.sync.clone(),
            reserved: Some(reserved),
        })
    }
}

/// A file that has its place already, for the one client of this process.
pub(crate) struct Single(pub(crate) Option<Part>);

impl Shelf for Single {
    fn begin(&mut self, _: &str, _: u64, _: Host) -> Result<Draft, Refusal> {
        let part = self.0.take().ok_or(Refusal::Busy)?;
        Ok(Draft {
            part,
            replace: true,
            sync: Arc::new(File::sync_all),
            reserved: None,
        })
    }
}
