//! The providers of a registry: those of `dat.conf`, own devices, and self-registered ones.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dat_core::{Cause, Error, ErrorKind, Result, Subtype};

use dat_devices::DeviceAddress;

use super::{Candidate, Configuration, Entry, Problem, Reason, Wanted};
use crate::adapter::Registered;
use crate::boundary::{
    In, Inherited, InheritedGuard, Library, List, Out, PerProcess, Provider, ProviderInfo, begin,
    end, system_has_memory,
};
use crate::calls::result::check_memory;
use crate::devices::may_open_nothing;
use crate::diagnostic::report;

/// The differences between the registries.
pub(crate) struct Rules {
    /// Name of this library for the loader.
    pub(crate) library: &'static CStr,
    /// Paths where `dat.conf` may be if no environment variable names it.
    pub(crate) paths: &'static [&'static str],
    /// Lines added to a usual `dat.conf` unless it has their names, or used without one.
    pub(crate) default: &'static str,
    /// Returns true for an entry that concerns the registry, whether it is used or not.
    pub(crate) concerns: fn(&Entry) -> bool,
    /// Lists the devices for the case that no entry concerns the registry.
    ///
    /// Entries may name this library itself only if this is set.
    pub(crate) devices: Option<fn() -> Result<Vec<Discovered>>>,
}

/// A device of this host: registered version and thread safety, name, and the device itself.
pub(crate) type Discovered = (Registered, CString, DeviceAddress);

/// The names that are known without any registration.
struct Read {
    /// The `dat.conf`; empty if there is none.
    file: PathBuf,
    known: Vec<Known>,
}

/// A name of `dat.conf` or of a device.
struct Known {
    name: CString,
    registered: Registered,
    source: Source,
}

enum Source {
    /// A line of `dat.conf`.
    Entry(Entry),
    /// A discovered device. Nothing states its thread safety: it is thread-safe, and consumers may
    /// ask for either.
    Device(DeviceAddress),
}

impl Known {
    fn candidate(&self) -> Candidate<'_> {
        self.registered.candidate(&self.name)
    }
}

impl Registered {
    fn candidate<'a>(&self, name: &'a CStr) -> Candidate<'a> {
        Candidate {
            name,
            major: self.major,
            minor: self.minor,
            is_thread_safe: self.is_thread_safe,
        }
    }

    fn of(info: &ProviderInfo) -> Self {
        Self {
            major: info.major,
            minor: info.minor,
            is_thread_safe: info.is_thread_safe != 0,
            provider: 0,
        }
    }

    fn info(&self, name: &CStr) -> ProviderInfo {
        ProviderInfo::new(name, self.major, self.minor, self.is_thread_safe)
    }
}

/// A provider that has registered itself.
struct Entered<const N: usize> {
    /// Number that no other provider ever had.
    number: u64,
    name: CString,
    registered: Registered,
    provider: Provider<N>,
    /// Number of adapters that are open or about to be.
    adapters: usize,
}

impl<const N: usize> Entered<N> {
    fn candidate(&self) -> Candidate<'_> {
        self.registered.candidate(&self.name)
    }
}

struct All<const N: usize> {
    last: u64,
    entered: Vec<Entered<N>>,
}

/// All providers of a registry, whose tables have `N` functions.
pub(crate) struct Providers<const N: usize> {
    rules: Rules,
    all: Inherited<All<N>>,
    /// Held while a provider is found, loaded or told to end; not while it opens an adapter.
    turn: PerProcess<Mutex<()>>,
    read: PerProcess<OnceLock<std::result::Result<Read, Problem>>>,
}

/// A provider whose adapter is about to be opened, or is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used<const N: usize> {
    pub(crate) provider: Provider<N>,
    pub(crate) number: u64,
}

/// The opener of the adapter that a consumer wants.
pub(crate) enum Found<const N: usize> {
    /// A provider, which stays until it is released.
    Used(Used<N>),
    /// A device of this library.
    Device(DeviceAddress, Registered),
}

/// A provider or device that fits the request of a consumer.
enum Choice<'a> {
    Entered(u64),
    Known(&'a Known, Registered),
}

/// Returns the problem of a process that can open no file now.
fn not_now() -> Problem {
    Problem {
        file: PathBuf::new(),
        line: None,
        library: None,
        symbol: None,
        reason: Reason::NotNow,
    }
}

const INITIALIZE: &CStr = c"dat_provider_init";
const FINISH: &CStr = c"dat_provider_fini";

impl<const N: usize> Providers<N> {
    pub(crate) const fn new(rules: Rules) -> Self {
        Self {
            rules,
            all: Inherited::new(All {
                last: 0,
                entered: Vec::new(),
            }),
            turn: PerProcess::new(),
            read: PerProcess::new(),
        }
    }

    fn all(&self) -> InheritedGuard<'_, All<N>> {
        self.all.lock()
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.this().lock();
        turn.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the known names of this process, read once.
    fn known(&self) -> std::result::Result<&[Known], Problem> {
        self.read().map(|read| read.known.as_slice())
    }

    fn read(&self) -> std::result::Result<&Read, Problem> {
        let known = self.read.this();
        if known.get().is_none() {
            match self.read_now() {
                // A failure for lack of descriptors may pass, so it is not kept.
                Err(problem) if problem.reason == Reason::NotNow => return Err(problem),
                read => {
                    let _known = known.set(read);
                }
            }
        }
        match known.get() {
            Some(read) => read.as_ref().map_err(Problem::clone),
            None => Err(not_now()),
        }
    }

    fn read_now(&self) -> std::result::Result<Read, Problem> {
        let configuration = Configuration::of_process(self.rules.paths)?;
        if let Some(configuration) = &configuration {
            // A consumer that asks for a lost entry is only told that the name is not registered.
            let problems = configuration.problems.iter();
            problems.for_each(|problem| self.explain(problem));
        }
        // A file that the environment names is used without additions.
        let is_usual = configuration.as_ref().is_none_or(|read| {
            let mut paths = self.rules.paths.iter();
            paths.any(|path| read.file == Path::new(path))
        });
        let (file, mut entries) = configuration
            .map(|read| (read.file, read.entries))
            .unwrap_or_default();
        if is_usual {
            let added = Configuration::parse(&file, self.rules.default.as_bytes()).entries;
            let names: Vec<CString> = entries.iter().map(|entry| entry.name.clone()).collect();
            entries.extend(added.into_iter().filter(|it| !names.contains(&it.name)));
        }
        let known = self.look(entries).map_err(|_| not_now())?;
        Ok(Read { file, known })
    }

    /// # Errors
    /// INSUFFICIENT_RESOURCES (DEVICE): there are no descriptors to list the devices with.
    fn look(&self, entries: Vec<Entry>) -> Result<Vec<Known>> {
        let mut ours = entries.into_iter().filter(self.rules.concerns).peekable();
        if let (None, Some(devices)) = (ours.peek(), self.rules.devices) {
            let found = devices()?.into_iter();
            let found = found.map(|(registered, name, device)| Known {
                name,
                registered,
                source: Source::Device(device),
            });
            return Ok(found.collect());
        }
        let usable = ours.filter(Entry::is_usable);
        let known = usable.map(|entry| Known {
            name: entry.name.clone(),
            registered: Registered {
                major: entry.major,
                minor: entry.minor,
                is_thread_safe: entry.is_thread_safe,
                provider: 0,
            },
            source: Source::Entry(entry),
        });
        Ok(known.collect())
    }

    /// Finds a provider, and loads it if needed.
    ///
    /// # Errors
    /// - PROVIDER_NOT_FOUND, with the missing part. The problem of `dat.conf` is printed on
    ///   standard error if `DAT_DBG_TYPE` is set and not 0.
    /// - INSUFFICIENT_RESOURCES (DEVICE, MEMORY): no provider was found for lack of descriptors or
    ///   memory.
    ///
    /// Spec: IAO-06, REGL-05
    pub(crate) fn find(&self, wanted: Wanted<'_>) -> Result<Found<N>> {
        check_memory()?;
        let _turn = self.turn();
        let chosen = self.choose(wanted);
        let found = chosen.as_ref().ok().and_then(|choices| {
            let mut found = choices.iter().map(|choice| match choice {
                Choice::Entered(number) => self.use_entered(|one| one.number == *number),
                Choice::Known(known, registered) => self.take(known, registered),
            });
            found.find_map(|found| found)
        });
        found.ok_or_else(|| {
            let mut is_for_want = may_open_nothing();
            if let Err(problem) = self.known() {
                self.explain(&problem);
                is_for_want |= problem.reason == Reason::NotNow;
            }
            if is_for_want {
                return Error::insufficient_resources(Subtype::ResourceDevice);
            }
            if !system_has_memory() {
                return Error::insufficient_resources(Subtype::ResourceMemory);
            }
            let nothing = Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered);
            chosen.err().unwrap_or(nothing)
        })
    }

    fn choose(&self, wanted: Wanted<'_>) -> Result<Vec<Choice<'_>>> {
        let known = self.known().unwrap_or_default();
        let all = self.all();
        let entered = all
            .entered
            .iter()
            .map(|one| (one.candidate(), Choice::Entered(one.number)));
        let known = known.iter().map(|known| {
            let registered = match known.source {
                Source::Entry(_) => known.registered,
                Source::Device(_) => Registered {
                    is_thread_safe: wanted.is_thread_safe,
                    ..known.registered
                },
            };
            let candidate = registered.candidate(&known.name);
            (candidate, Choice::Known(known, registered))
        });
        let chosen = wanted.choose(entered.chain(known), |one| one.0)?;
        Ok(chosen.into_iter().map(|one| one.1).collect())
    }

    fn use_entered(&self, is_meant: impl Fn(&Entered<N>) -> bool) -> Option<Found<N>> {
        let mut all = self.all();
        let entered = all.entered.iter_mut().find(|one| is_meant(one))?;
        entered.adapters += 1;
        Some(Found::Used(Used {
            provider: entered.provider,
            number: entered.number,
        }))
    }

    /// Returns a device, or the provider that the library of an entry registers.
    fn take(&self, known: &Known, registered: &Registered) -> Option<Found<N>> {
        let entry = match &known.source {
            Source::Device(device) => return Some(Found::Device(device.clone(), *registered)),
            Source::Entry(entry) => entry,
        };
        match self.load(entry) {
            Ok(Some(device)) => Some(Found::Device(device, *registered)),
            Ok(None) => self.use_entered(|one| one.candidate() == known.candidate()),
            Err(problem) => {
                self.explain(&problem);
                None
            }
        }
    }

    /// Loads the library of an entry, which registers its provider.
    ///
    /// Returns the device if the library is this one.
    fn load(&self, entry: &Entry) -> std::result::Result<Option<DeviceAddress>, Problem> {
        let problem = |symbol: Option<&CStr>, reason| Problem {
            library: Some(entry.library.to_string_lossy().into_owned()),
            symbol: symbol.map(|symbol| symbol.to_string_lossy().into_owned()),
            ..Problem::of_line(&self.file(), entry.line, reason)
        };
        let library = Library::load(&entry.library)
            .or_else(|error| {
                // A program may have loaded this library without its names in the global scope,
                // where providers need them.
                Library::load(self.rules.library)
                    .map_err(|_| error)
                    .and_then(|_| Library::load(&entry.library))
            })
            .map_err(|error| problem(None, Reason::Library(error)))?;
        if self.rules.devices.is_some() && Library::of_this_code() == Some(library) {
            let (instance_data, name) = (&entry.instance_data, &entry.name);
            let device = DeviceAddress::from_configuration(
                &instance_data.to_string_lossy(),
                &name.to_string_lossy(),
            );
            return Ok(Some(device));
        }
        let function = library
            .find(INITIALIZE)
            .ok_or_else(|| problem(Some(INITIALIZE), Reason::Symbol))?;
        let registered = entry.candidate();
        let info = ProviderInfo::new(
            registered.name,
            registered.major,
            registered.minor,
            registered.is_thread_safe,
        );
        begin(function, &info, &entry.instance_data);
        Ok(None)
    }

    /// Returns the path of `dat.conf`.
    fn file(&self) -> PathBuf {
        self.read()
            .map(|read| read.file.clone())
            .unwrap_or_default()
    }

    /// Prints the problem of `dat.conf`, if that is wanted.
    fn explain(&self, problem: &Problem) {
        report(self.rules.library.to_string_lossy(), problem);
    }

    /// Releases a provider after its adapter was closed or could not be opened.
    ///
    /// After the last adapter, a provider of `dat.conf` gets its call to end. Its library stays
    /// loaded, because its threads may not have ended.
    ///
    /// Spec: IAO-07, IAC-07
    pub(crate) fn release(&self, number: u64) {
        let _turn = self.turn();
        let mut all = self.all();
        let Some(entered) = all.entered.iter_mut().find(|one| one.number == number) else {
            return;
        };
        entered.adapters = entered.adapters.saturating_sub(1);
        if entered.adapters != 0 {
            return;
        }
        let (name, registered) = (entered.name.clone(), entered.registered);
        // `dat_provider_fini` removes the provider, for which it needs the lock.
        drop(all);
        let mut known = self.known().unwrap_or_default().iter();
        let known = known.find(|known| known.candidate() == registered.candidate(&name));
        if let Some(Source::Entry(entry)) = known.map(|known| &known.source)
            && let Ok(library) = Library::load(&entry.library)
            && let Some(function) = library.find(FINISH)
        {
            end(function, &registered.info(&name));
        }
    }

    /// Returns the registered provider with its table at this address.
    pub(crate) fn entered_at(&self, address: usize) -> Option<Provider<N>> {
        let all = self.all();
        let mut providers = all.entered.iter().map(|entered| entered.provider);
        providers.find(|provider| provider.address() == address)
    }

    /// Registers a provider.
    ///
    /// # Errors
    /// - INVALID_PARAMETER: an argument is null (ARG1, ARG2), or there is no name (ARG2).
    /// - PROVIDER_ALREADY_REGISTERED: a provider or a device has this name, version and thread
    ///   safety.
    /// - INSUFFICIENT_RESOURCES (MEMORY): the heap is exhausted.
    ///
    /// Spec: REGA-01, REGA-02
    pub(crate) fn add(&self, provider: Option<Provider<N>>, info: In<ProviderInfo>) -> Result<()> {
        let provider = provider.ok_or(Error::invalid_argument(1))?;
        let info = info.get().ok_or(Error::invalid_argument(2))?;
        let name = info.name().filter(|name| !name.is_empty());
        let name = name.ok_or(Error::invalid_argument(2))?;
        check_memory()?;
        let registered = Registered::of(&info);
        let is_same = |candidate: Candidate<'_>| candidate == registered.candidate(&name);
        let is_device =
            |known: &Known| matches!(known.source, Source::Device(_)) && is_same(known.candidate());
        let known = self.known().unwrap_or_default();
        let mut all = self.all();
        let is_taken =
            all.entered.iter().any(|one| is_same(one.candidate())) || known.iter().any(is_device);
        if is_taken {
            let kind = ErrorKind::ProviderAlreadyRegistered;
            return Err(Error::new(kind, Subtype::NoSubtype));
        }
        all.last += 1;
        let number = all.last;
        all.entered.push(Entered {
            number,
            name,
            registered,
            provider,
            adapters: 0,
        });
        Ok(())
    }

    /// Removes a provider.
    ///
    /// # Errors
    /// - INVALID_PARAMETER: an argument is null (ARG1, ARG2), or the provider is not registered
    ///   (ARG2).
    /// - PROVIDER_IN_USE: an adapter is open.
    ///
    /// Spec: REGR-01
    pub(crate) fn remove(
        &self,
        provider: Option<Provider<N>>,
        info: In<ProviderInfo>,
    ) -> Result<()> {
        let provider = provider.ok_or(Error::invalid_argument(1))?;
        let info = info.get().ok_or(Error::invalid_argument(2))?;
        let name = info.name().ok_or(Error::invalid_argument(2))?;
        let candidate = Registered::of(&info).candidate(&name);
        let mut all = self.all();
        let mut entered = all.entered.iter();
        let is_meant = |one: &Entered<N>| one.provider == provider && one.candidate() == candidate;
        let index = entered.position(is_meant);
        let index = index.ok_or(Error::invalid_argument(2))?;
        if all.entered.get(index).is_some_and(|one| one.adapters != 0) {
            let kind = ErrorKind::ProviderInUse;
            return Err(Error::new(kind, Subtype::NoSubtype));
        }
        all.entered.remove(index);
        Ok(())
    }

    /// Lists providers, as many as there is room for.
    ///
    /// First come those of `dat.conf` or the devices, then other ones that registered themselves.
    /// If the call fails, the count is that of all.
    ///
    /// # Errors
    /// - INVALID_PARAMETER with the position: there is no room, or an output is null.
    /// - INTERNAL_ERROR: `dat.conf` cannot be read.
    ///
    /// Spec: REGL-01..05
    pub(crate) fn list(
        &self,
        most: i32,
        count: Out<i32>,
        outputs: List<Out<ProviderInfo>>,
    ) -> Result<()> {
        let written = count.required(2)?;
        let all = self.list_all();
        let number = |length| i32::try_from(length).unwrap_or(i32::MAX);
        let outputs = (|| {
            self.known().map_err(|_| Error::internal(Cause::None))?;
            let room = usize::try_from(most).ok().filter(|most| *most != 0);
            let room = room.ok_or(Error::invalid_argument(1))?;
            let output = |index| {
                let output = outputs.nth(index).ok_or(Error::invalid_argument(3))?;
                output.required(3)
            };
            (0..room.min(all.len()))
                .map(output)
                .collect::<Result<Vec<_>>>()
        })();
        written.put(number(outputs.as_ref().map_or(all.len(), Vec::len)));
        for (output, info) in outputs?.into_iter().zip(all) {
            output.put(info);
        }
        Ok(())
    }

    fn list_all(&self) -> Vec<ProviderInfo> {
        let known = self.known().unwrap_or_default();
        let all = self.all();
        let unlisted = all.entered.iter().filter(|one| {
            let mut same = known.iter();
            !same.any(|known| known.candidate() == one.candidate())
        });
        let unlisted = unlisted.map(|one| one.registered.info(&one.name));
        let known = known.iter().map(|one| one.registered.info(&one.name));
        known.chain(unlisted).collect()
    }
}
