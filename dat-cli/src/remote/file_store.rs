//! Storage of a server's files, with quotas for its clients.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dat_core::attributes::IaAddress;

use super::protocol::Refusal;
use crate::failure::Failure;
use crate::limits;
use crate::output_file::{OutputPath, Part};
use crate::source::fill;

/// Minimum number of bytes that a file counts for.
///
/// Its directory entry takes room too.
const LEAST: u64 = 4096;

/// Writes a file, or the entries of a directory, to the disk.
type SyncFile = Arc<dyn Fn(&File) -> io::Result<()> + Send + Sync>;

/// The host of a client, if the device reports it.
pub(crate) type Host = Option<IaAddress>;

/// The reason why a file is not stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unstored {
    /// The answer to the client.
    pub(crate) refusal: Refusal,
    /// The reason for the output of the server, if a call of the system failed.
    pub(crate) why: Option<String>,
}

impl Unstored {
    /// Returns the reason of an error of the system, which happened when `doing` that.
    pub(crate) fn from_error(doing: &str, error: &io::Error) -> Self {
        let refusal = match error.kind() {
            _ if limits::is_for_descriptors(error) => Refusal::NoDescriptor,
            io::ErrorKind::AlreadyExists => Refusal::Exists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::NoSpace,
            io::ErrorKind::FileTooLarge => Refusal::TooLong,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Refusal::NotPermitted
            }
            io::ErrorKind::NotFound => Refusal::NoDirectory,
            io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => Refusal::Overloaded,
            _ => Refusal::CannotWrite,
        };
        Self {
            refusal,
            why: Some(format!("cannot {doing}: {error}")),
        }
    }
}

impl From<Refusal> for Unstored {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, why: None }
    }
}

/// Storage for the files that clients send.
pub(crate) trait FileStore: Sync {
    /// Creates the temporary file for a copy with this plain name and length.
    ///
    /// # Errors
    /// The reason why the file cannot be created.
    fn begin(&self, name: &str, length: u64, host: Host) -> Result<Draft, Unstored>;
}

/// The first failure of a file, for a client in this process.
type Told = Arc<Mutex<Option<Failure>>>;

/// A file that a client sends; dropping it removes it.
pub(crate) struct Draft {
    part: Part,
    replace: bool,
    sync: SyncFile,
    reserved: Option<Reserved>,
    told: Told,
}

impl Draft {
    /// Appends bytes.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Unstored> {
        let written = self.part.append(bytes);
        written.map_err(|error| failed(&self.told, self.name(), WRITE, &error))
    }

    /// Goes back to the start, for [`read`](Self::read).
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn rewind(&mut self) -> Result<(), Unstored> {
        let rewound = self.part.file().rewind();
        rewound.map_err(|error| failed(&self.told, self.name(), READ_BACK, &error))
    }

    /// Reads the next bytes; returns 0 at the end.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Unstored> {
        let read = fill(self.part.file(), bytes);
        read.map_err(|error| failed(&self.told, self.name(), READ_BACK, &error))
    }

    /// Returns the refusal of a file that was not read back as it was sent.
    pub(crate) fn differs(&self, read_back: u128, checksum: u128) -> Refusal {
        let failure = Failure::operation(
            format!(
                "the copy {} differs from the original",
                self.name().display()
            ),
            format!("its checksum is {read_back:032x}, expected {checksum:032x}"),
        );
        tell(&self.told, failure);
        Refusal::Different
    }

    fn name(&self) -> &Path {
        self.part.target().name()
    }

    /// Moves the file to its path and returns when it is on the disk.
    ///
    /// # Errors
    /// - `Exists`: another file has taken the path meanwhile.
    /// - Others: the system refuses.
    pub(crate) fn store(self) -> Result<(), Unstored> {
        let Self {
            part,
            replace,
            sync,
            mut reserved,
            told,
        } = self;
        let name = part.target().name().to_path_buf();
        // From then on the file takes room, even if its directory cannot be written to the disk.
        let keep = || {
            if let Some(reserved) = &mut reserved {
                reserved.kept = true;
            }
        };
        let stored = part.store(replace, sync.as_ref(), keep);
        stored.map_err(|error| failed(&told, &name, STORE, &error))
    }
}

/// A step with a file that the system refused, in words for its owner and for the server.
type Refused = (&'static str, &'static str);

const WRITE: Refused = ("write", "write the file");
const READ_BACK: Refused = ("read back", "read the file back");
const STORE: Refused = ("replace", "store the file");

/// Tells an error of the system, and returns it for the client.
fn failed(told: &Told, name: &Path, refused: Refused, error: &io::Error) -> Unstored {
    tell(told, Failure::file(refused.0, name, error));
    Unstored::from_error(refused.1, error)
}

fn tell(told: &Told, failure: Failure) {
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    told.get_or_insert(failure);
}

/// Bytes that clients may store while the server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quotas {
    /// Limit for the clients of one host.
    pub(crate) host: u64,
    /// Limit for all clients.
    pub(crate) all: u64,
}

/// The quotas and the bytes that count against them.
struct Ledger {
    quotas: Quotas,
    all: u64,
    hosts: HashMap<Host, u64>,
}

/// A reservation of quota; dropping it returns the bytes unless the file was stored.
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
        // The port is ignored: each connection of a host has its own.
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

/// A server that stores no files.
pub(crate) struct NoFiles;

impl FileStore for NoFiles {
    fn begin(&self, _: &str, _: u64, _: Host) -> Result<Draft, Unstored> {
        Err(Refusal::NoFolder.into())
    }
}

/// A directory that files are stored in.
pub(crate) struct Folder {
    path: PathBuf,
    /// True if existing files are replaced.
    replace: bool,
    ledger: Arc<Mutex<Ledger>>,
    sync: SyncFile,
}

impl Folder {
    /// # Errors
    /// - Those of the system: the path does not exist.
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

    /// Replaces the function that writes to the disk.
    #[cfg(test)]
    pub(crate) fn synced_by(
        self,
        sync: impl Fn(&File) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let sync = Arc::new(sync);
        Self { sync, ..self }
    }

    /// Checks that a file of this name may be stored now.
    fn look(&self, path: &Path) -> Result<(), Unstored> {
        let cannot = |error| Unstored::from_error("use the directory", &error);
        self.path.metadata().map_err(cannot)?;
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(cannot(error)),
            Ok(_) if !self.replace => Err(Refusal::Exists.into()),
            Ok(_) => Ok(()),
        }
    }
}

impl FileStore for Folder {
    fn begin(&self, name: &str, length: u64, host: Host) -> Result<Draft, Unstored> {
        let path = self.path.join(name);
        self.look(&path)?;
        let target = OutputPath::choose(&path).map_err(|failure| Unstored {
            refusal: Refusal::CannotWrite,
            why: Some(failure.to_string()),
        })?;
        // Symbolic links are not followed.
        if target.path() != path {
            return Err(Unstored {
                refusal: Refusal::CannotWrite,
                why: Some("a symbolic link has the name of the file".into()),
            });
        }
        let reserved = Reserved::new(&self.ledger, host, length)?;
        let part = target.try_begin();
        let part = part.map_err(|error| Unstored::from_error("create a file", &error))?;
        Ok(Draft {
            part,
            replace: self.replace,
            sync: self.sync.clone(),
            reserved: Some(reserved),
            told: Told::default(),
        })
    }
}

/// A file whose destination is chosen already, for the only client of an in-process server.
pub(crate) struct Single {
    part: Mutex<Option<Part>>,
    sync: SyncFile,
    told: Told,
}

impl Single {
    /// A file that is brought to the disk if it `is_synced`.
    pub(crate) fn new(part: Part, is_synced: bool) -> Self {
        let sync: SyncFile = match is_synced {
            true => Arc::new(File::sync_all),
            false => Arc::new(|_| Ok(())),
        };
        Self {
            part: Mutex::new(Some(part)),
            sync,
            told: Told::default(),
        }
    }

    /// Returns the failure of the file, if it failed.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.take()
    }
}

impl FileStore for Single {
    fn begin(&self, _: &str, _: u64, _: Host) -> Result<Draft, Unstored> {
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        let part = part.take().ok_or(Refusal::Busy)?;
        Ok(Draft {
            part,
            replace: true,
            sync: Arc::clone(&self.sync),
            reserved: None,
            told: Arc::clone(&self.told),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client hears the cause, and the output of the server has the error of the system.
    #[test]
    fn each_error_of_the_system_has_its_refusal() {
        for (number, refusal) in [
            (libc::ENOSPC, Refusal::NoSpace),
            (libc::EDQUOT, Refusal::NoSpace),
            (libc::EFBIG, Refusal::TooLong),
            (libc::EACCES, Refusal::NotPermitted),
            (libc::EPERM, Refusal::NotPermitted),
            (libc::EROFS, Refusal::NotPermitted),
            (libc::ENOENT, Refusal::NoDirectory),
            (libc::EMFILE, Refusal::NoDescriptor),
            (libc::ENFILE, Refusal::NoDescriptor),
            (libc::ENOMEM, Refusal::Overloaded),
            (libc::EAGAIN, Refusal::Overloaded),
            (libc::EEXIST, Refusal::Exists),
            (libc::EIO, Refusal::CannotWrite),
        ] {
            let error = io::Error::from_raw_os_error(number);
            let unstored = Unstored::from_error("write", &error);
            assert_eq!(unstored.refusal, refusal, "{error}");
            let why = unstored.why.unwrap();
            assert!(why.contains(&format!("os error {number}")), "{why}");
        }
    }
}
