//! Regions and windows of an adapter, and the keys that name them.
//!
//! Keys are drawn. That of a window of type 2 changes with each bind: its owner chooses the lowest
//! byte, and all keys with the others are the window's (ROCE-276).

use dat_core::backend::{BindRequest, DomainKey, RegionKeys, Registration, Segment};
use dat_core::flags::MemoryPrivileges;
use dat_core::sync::{RegisteredMemory, RegisteredSpan};

use super::numbers;
use super::slab::Slab;
use crate::proto::memory::{AccessError, LocalError, RemoteAddress, Right};
use crate::proto::numbers::{NumberKind, NumberTable};
use crate::reserve::{Secret, Table};

/// Bits of the key of a window of type 2 that its owner chooses with each bind.
const CHOSEN_BITS: u32 = 8;
/// Keys that are drawn for one that no other resembles.
const DRAWS: usize = 16;

/// A queue pair that accesses memory.
#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) domain: DomainKey,
    /// QPN of one that is attached by its attributes.
    pub(crate) qpn: Option<u32>,
}

/// A registered region.
struct Region {
    memory: RegisteredMemory,
    domain: DomainKey,
    privileges: MemoryPrivileges,
    /// Set if peers may use atomics.
    atomics: bool,
    /// Address of its first byte, less the one that requests name.
    shift: u64,
}

impl Region {
    #[expect(unsafe_code, reason = "the device of this backend is its own code")]
    fn new(registration: &Registration, address: u64, atomics: bool) -> Self {
        Self {
            // SAFETY: `deregister`, `replace` and the drop of the backend remove the region under
            // the lock of the adapter, which every copy holds.
            memory: unsafe { RegisteredMemory::new(registration) },
            domain: registration.domain(),
            privileges: registration.privileges(),
            atomics,
            shift: (registration.base().addr() as u64).wrapping_sub(address),
        }
    }

    /// Returns the memory at an address of requests; `None` if it does not lie within.
    fn span(&self, address: u64, length: u64) -> Option<RegisteredSpan<'_>> {
        self.memory.span(address.wrapping_add(self.shift), length)
    }

    fn grants(&self, right: Right) -> bool {
        match right {
            Right::Atomic => self.atomics,
            Right::Read | Right::Write => self.privileges.contains(needed(right)),
        }
    }
}

/// Returns the privileges of a region that an access by a window needs.
fn needed_locally(right: Right) -> MemoryPrivileges {
    match right {
        Right::Read => MemoryPrivileges::LOCAL_READ,
        Right::Write => MemoryPrivileges::LOCAL_WRITE,
        Right::Atomic => MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
    }
}

/// Returns the privileges that an access needs.
fn needed(right: Right) -> MemoryPrivileges {
    match right {
        Right::Read => MemoryPrivileges::REMOTE_READ,
        Right::Write => MemoryPrivileges::REMOTE_WRITE,
        Right::Atomic => MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE,
    }
}

/// A memory window.
struct Window {
    /// Number among all windows that were ever made: another one may have its place later.
    serial: u64,
    domain: DomainKey,
    bound: Option<Binding>,
    /// Keys of a window of type 2.
    own: Option<OwnKeys>,
}

/// Keys of a window of type 2: the upper bits stay.
#[derive(Clone, Copy)]
struct OwnKeys {
    /// The first one, drawn for the window.
    drawn: u32,
    /// The last one.
    last: u32,
}

/// Details of a bind by a device, in addition to the request of the core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Set if the window is of type 2. Without bytes, the bind invalidates the key then.
    pub(crate) is_type_2: bool,
    /// Set if peers may use atomics.
    pub(crate) atomics: bool,
    /// Set if the first byte has the address 0 in requests.
    pub(crate) is_zero_based: bool,
}

/// The binding of a window to a range of a region.
#[derive(Clone, Copy)]
struct Binding {
    /// Key of the window.
    key: u32,
    /// Key of the region.
    region: u32,
    address: u64,
    length: u64,
    /// Address of the first byte in requests.
    first: u64,
    privileges: MemoryPrivileges,
    /// Set if peers may use atomics.
    atomics: bool,
    /// QPN of the only queue pair whose peer may use it, of a window of type 2.
    qpn: Option<u32>,
}

impl Window {
    /// Returns true if an attached queue pair has bound it for its peer.
    fn is_of(&self, qpn: u32) -> bool {
        self.bound.is_some_and(|bound| bound.qpn == Some(qpn))
    }
}

impl Binding {
    /// Without `opening`, those may use atomics who may read and write.
    fn new(request: &BindRequest, key: u32, opening: Option<Opening>, qpn: Option<u32>) -> Self {
        let implied = request.privileges.contains(needed(Right::Atomic));
        let is_zero_based = opening.is_some_and(|opening| opening.is_zero_based);
        Self {
            key,
            region: request.region.local,
            address: request.address,
            length: request.length,
            first: if is_zero_based { 0 } else { request.address },
            privileges: request.privileges,
            atomics: opening.map_or(implied, |opening| opening.atomics),
            qpn,
        }
    }

    fn grants(&self, right: Right) -> bool {
        match right {
            Right::Atomic => self.atomics,
            Right::Read | Right::Write => self.privileges.contains(needed(right)),
        }
    }
}

/// Object that a key names.
#[derive(Clone, Copy, PartialEq)]
enum Named {
    Region(usize),
    Window(usize),
    /// The window with this serial number, once a bind is carried out.
    Binding(u64),
}

/// Regions and windows; their keys are drawn from one table (ROCE-130).
pub(crate) struct Memories {
    regions: Slab<Region>,
    windows: Slab<Window>,
    keys: NumberTable<'static, Named>,
    /// Number of windows that were ever made.
    windows_made: u64,
    /// Windows of type 2, by the upper bits of their keys.
    own_keys: Table<u32, usize>,
}

impl Memories {
    /// Makes a table of `keys` slots, 2 to 2^24; `None` if there is no memory for it.
    pub(crate) fn new(secret: [u8; 16], keys: usize) -> Option<Self> {
        Some(Self {
            regions: Slab::new(),
            windows: Slab::new(),
            keys: numbers(NumberKind::Word, secret, keys)?,
            windows_made: 0,
            own_keys: Table::with_hasher(Secret::new(secret)),
        })
    }

    /// Returns how many keys can be valid at a time.
    pub(crate) fn capacity(&self) -> usize {
        self.keys.capacity()
    }

    /// Draws a key for an object; `None` if none is left.
    ///
    /// It is none that the owner of a window of type 2 can choose.
    fn draw(&mut self, object: Named) -> Option<u32> {
        for _ in 0..DRAWS {
            let key = self.keys.draw(object)?;
            if !self.own_keys.contains_key(&(key >> CHOSEN_BITS)) {
                return Some(key);
            }
            self.keys.remove(key);
        }
        None
    }

    /// Registers memory; `None` if all keys are in use, or there is no memory for the entry.
    pub(crate) fn register(&mut self, registration: &Registration) -> Option<RegionKeys> {
        let atomics = registration.privileges().contains(needed(Right::Atomic));
        self.register_at(registration, registration.base().addr() as u64, atomics)
    }

    /// As [`register`](Self::register), for memory whose first byte has `address` in requests.
    pub(crate) fn register_at(
        &mut self,
        registration: &Registration,
        address: u64,
        atomics: bool,
    ) -> Option<RegionKeys> {
        if !self.regions.has_room() {
            return None;
        }
        let object = self.regions.vacant_key();
        let key = self.draw(Named::Region(object))?;
        let privileges = registration.privileges();
        self.regions
            .insert(Region::new(registration, address, atomics));
        let remote_rights = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
        let is_remote = privileges.intersects(remote_rights);
        Some(RegionKeys {
            object,
            local: key,
            remote: if is_remote { key } else { 0 },
        })
    }

    /// Gives a region other memory, rights or another domain; it keeps its key.
    ///
    /// Returns false if there is no such region, or a window is bound to it.
    pub(crate) fn replace(
        &mut self,
        key: u32,
        registration: &Registration,
        address: u64,
        atomics: bool,
    ) -> bool {
        let Some(Named::Region(object)) = self.keys.get(key).copied() else {
            return false;
        };
        if self.window_of(key).is_some() {
            return false;
        }
        let region = self.regions.get_mut(object);
        region
            .map(|region| *region = Region::new(registration, address, atomics))
            .is_some()
    }

    /// Returns a window that is bound to a region.
    pub(crate) fn window_of(&self, region: u32) -> Option<usize> {
        let is_bound = |window: &Window| window.bound.is_some_and(|bound| bound.region == region);
        let mut windows = self.windows.iter();
        windows.find_map(|(index, window)| is_bound(window).then_some(index))
    }

    /// Removes a region, and unbinds its windows.
    pub(crate) fn deregister(&mut self, region: RegionKeys) {
        if let Some(Named::Region(object)) = self.keys.get(region.local).copied() {
            while let Some(window) = self.window_of(region.local) {
                self.set_binding(window, None);
            }
            self.keys.remove(region.local);
            self.regions.remove(object);
        }
    }

    pub(crate) fn deregister_all(&mut self) {
        self.regions.clear();
        self.windows.clear();
        self.own_keys.clear();
    }

    /// Makes a window; `None` if there is no memory for it.
    pub(crate) fn create_window(&mut self, domain: DomainKey) -> Option<usize> {
        let has_room = self.windows.has_room();
        has_room.then(|| self.insert_window(domain, None))
    }

    /// Inserts a window into a table that has room.
    fn insert_window(&mut self, domain: DomainKey, own: Option<OwnKeys>) -> usize {
        self.windows_made += 1;
        self.windows.insert(Window {
            serial: self.windows_made,
            domain,
            bound: None,
            own,
        })
    }

    /// Makes a window of type 2; returns it with its key, which grants nothing.
    ///
    /// `None` if no key is left, or there is no memory.
    pub(crate) fn create_type_2_window(&mut self, domain: DomainKey) -> Option<(usize, u32)> {
        if !self.windows.has_room() || self.own_keys.try_reserve(1).is_err() {
            return None;
        }
        let object = Named::Window(self.windows.vacant_key());
        for _ in 0..DRAWS {
            let drawn = self.draw(object)?;
            let first = drawn >> CHOSEN_BITS << CHOSEN_BITS;
            let mut others = (first..=first | ((1 << CHOSEN_BITS) - 1)).filter(|key| *key != drawn);
            if others.all(|key| self.keys.get(key).is_none()) {
                let last = drawn;
                let window = self.insert_window(domain, Some(OwnKeys { drawn, last }));
                self.own_keys.insert(drawn >> CHOSEN_BITS, window);
                return Some((window, drawn));
            }
            self.keys.remove(drawn);
        }
        None
    }

    pub(crate) fn windows(&self) -> usize {
        self.windows.len()
    }

    /// Removes a window; its key is invalid at once.
    pub(crate) fn destroy_window(&mut self, window: usize) {
        let Some(Window { bound, own, .. }) = self.windows.remove(window) else {
            return;
        };
        let drawn = own.map(|own| own.drawn);
        if let Some(drawn) = drawn {
            self.own_keys.remove(&(drawn >> CHOSEN_BITS));
        }
        if let Some(key) = drawn.or(bound.map(|bound| bound.key)) {
            self.keys.remove(key);
        }
    }

    /// Draws the key of a window for a bind; `None` if no key is left, or there is no such window
    /// of type 1.
    pub(crate) fn begin_bind(&mut self, window: usize) -> Option<u32> {
        let window = self.windows.get(window)?;
        if window.own.is_some() {
            return None;
        }
        let serial = window.serial;
        self.draw(Named::Binding(serial))
    }

    /// Returns the key of a bind that is not carried out.
    pub(crate) fn cancel_bind(&mut self, key: u32) {
        self.keys.remove(key);
    }

    /// Binds a window of the domain of `user` to its new key; the old key becomes invalid.
    ///
    /// An empty range only unbinds. After an error a window of type 1 is unbound, unless it is of
    /// another domain, or in the place of the one that the bind was posted for.
    pub(crate) fn bind(
        &mut self,
        request: &BindRequest,
        key: u32,
        opening: Option<Opening>,
        user: User,
    ) -> Result<(), LocalError> {
        if opening.is_some_and(|opening| opening.is_type_2) {
            return self.bind_type_2(request, key, opening, user);
        }
        let window = self.windows.get(request.window.0);
        let named = window.map(|window| Named::Binding(window.serial));
        let is_own = window.is_some_and(|window| window.domain == user.domain);
        if !is_own || self.keys.get(key) != named.as_ref() {
            self.cancel_bind(key);
            return Err(LocalError);
        }
        let binding = Binding::new(request, key, opening, None);
        let allowed = self.may_bind(request.window.0, &binding, user.domain);
        let binds = allowed && request.length > 0;
        self.set_binding(request.window.0, binds.then_some(binding));
        match self.keys.get_mut(key).filter(|_| binds) {
            Some(named) => *named = Named::Window(request.window.0),
            None => self.cancel_bind(key),
        }
        allowed.then_some(()).ok_or(LocalError)
    }

    /// Binds a window of type 2 to a key of its own, for the peer of `user` only.
    ///
    /// An empty range invalidates the key, whatever window the request names. After an error the
    /// window is as it was.
    fn bind_type_2(
        &mut self,
        request: &BindRequest,
        key: u32,
        opening: Option<Opening>,
        user: User,
    ) -> Result<(), LocalError> {
        if request.length == 0 {
            return self.invalidate(key, user);
        }
        let index = request.window.0;
        let binding = Binding::new(request, key, opening, user.qpn);
        let allowed = self.may_bind(index, &binding, user.domain);
        let is_named = self.own_keys.get(&(key >> CHOSEN_BITS)) == Some(&index);
        let window = self.windows.get_mut(index).ok_or(LocalError)?;
        let own = window.own.as_mut().ok_or(LocalError)?;
        if !allowed || !is_named || window.bound.is_some() {
            return Err(LocalError);
        }
        own.last = key;
        window.bound = Some(binding);
        Ok(())
    }

    /// Returns the window of type 2 whose key a queue pair, or its peer, may invalidate.
    ///
    /// The queue pair has bound it, or nobody has.
    pub(crate) fn may_invalidate(&self, key: u32, user: User) -> Result<usize, AccessError> {
        let index = *self
            .own_keys
            .get(&(key >> CHOSEN_BITS))
            .ok_or(AccessError)?;
        let window = self.windows.get(index).ok_or(AccessError)?;
        let is_last = window.own.is_some_and(|own| own.last == key);
        let is_others = window.bound.is_some_and(|bound| bound.qpn != user.qpn);
        let may = is_last && !is_others && window.domain == user.domain;
        may.then_some(index).ok_or(AccessError)
    }

    /// Unbinds the window of type 2 whose key a queue pair, or its peer, invalidates.
    pub(crate) fn invalidate(&mut self, key: u32, user: User) -> Result<(), LocalError> {
        let index = self.may_invalidate(key, user).map_err(|_| LocalError)?;
        self.set_binding(index, None);
        Ok(())
    }

    /// Unbinds the windows that an attached queue pair has bound for its peer.
    pub(crate) fn unbind_all_of(&mut self, qpn: u32) {
        for index in self.own_keys.values() {
            let window = self.windows.get_mut(*index);
            if let Some(window) = window.filter(|window| window.is_of(qpn)) {
                window.bound = None;
            }
        }
    }

    /// Replaces the binding of a window; a drawn key of the old one becomes invalid.
    fn set_binding(&mut self, window: usize, bound: Option<Binding>) {
        let Some(window) = self.windows.get_mut(window) else {
            return;
        };
        let old = core::mem::replace(&mut window.bound, bound);
        if let Some(old) = old.filter(|_| window.own.is_none()) {
            self.keys.remove(old.key);
        }
    }

    fn may_bind(&self, window: usize, binding: &Binding, domain: DomainKey) -> bool {
        let window = self.windows.get(window);
        if window.is_none_or(|window| window.domain != domain) {
            return false;
        }
        if binding.length == 0 {
            return true;
        }
        let rights = [Right::Read, Right::Write, Right::Atomic].into_iter();
        let granted = rights.filter(|right| binding.grants(*right));
        let needed = granted.fold(MemoryPrivileges::empty(), |needed, right| {
            needed | needed_locally(right)
        });
        self.region(binding.region, domain, needed)
            .and_then(|region| region.span(binding.address, binding.length))
            .is_some()
    }

    /// Returns the region of a key, if it is in `domain` and has the privileges.
    fn region(&self, key: u32, domain: DomainKey, needed: MemoryPrivileges) -> Option<&Region> {
        let Named::Region(object) = *self.keys.get(key)? else {
            return None;
        };
        self.region_at(object, domain, needed)
    }

    fn region_at(
        &self,
        object: usize,
        domain: DomainKey,
        needed: MemoryPrivileges,
    ) -> Option<&Region> {
        let region = self.regions.get(object)?;
        (region.domain == domain && region.privileges.contains(needed)).then_some(region)
    }

    /// Returns the memory of a local segment.
    fn local(
        &self,
        segment: &Segment,
        domain: DomainKey,
        needed: MemoryPrivileges,
    ) -> Option<RegisteredSpan<'_>> {
        let region = self.region(segment.key, domain, needed)?;
        region.span(segment.address, u64::from(segment.length))
    }

    /// Returns the memory that a peer names on a queue pair (ROCE-109, ROCE-110).
    pub(crate) fn remote(
        &self,
        at: RemoteAddress,
        length: u32,
        right: Right,
        user: &User,
    ) -> Result<RegisteredSpan<'_>, AccessError> {
        let span = match self.keys.get(at.key) {
            Some(Named::Region(object)) => {
                let region = self.region_at(*object, user.domain, MemoryPrivileges::empty());
                let region = region.filter(|region| region.grants(right));
                region.and_then(|region| region.span(at.address, length.into()))
            }
            named => self.through_window(named, &(at, length.into(), right), user),
        };
        span.ok_or(AccessError)
    }

    /// Returns the memory that a window opens by its key.
    #[inline(never)]
    fn through_window(
        &self,
        named: Option<&Named>,
        &(at, length, right): &(RemoteAddress, u64, Right),
        user: &User,
    ) -> Option<RegisteredSpan<'_>> {
        let window = match named {
            Some(Named::Window(window)) => window,
            Some(_) => return None,
            None => self.own_keys.get(&(at.key >> CHOSEN_BITS))?,
        };
        let window = self.windows.get(*window)?;
        let bound = window.bound.as_ref()?;
        let start = at.address.checked_sub(bound.first)?;
        let inside = start <= bound.length && length <= bound.length - start;
        let is_others = bound.qpn.is_some() && bound.qpn != user.qpn;
        let is_named = bound.key == at.key && !is_others && window.domain == user.domain;
        if !inside || !is_named || !bound.grants(right) {
            return None;
        }
        let region = self.region(bound.region, user.domain, needed_locally(right))?;
        region.span(bound.address.wrapping_add(start), length)
    }

    /// Calls `each` with the memory of `length` bytes from `offset` of the segments on, part by
    /// part, and the position of the part.
    ///
    /// Ends with an error if `each` returns false, or the segments do not have the bytes.
    pub(crate) fn each_part(
        &self,
        segments: &[Segment],
        domain: DomainKey,
        (offset, length): (u32, usize),
        needed: MemoryPrivileges,
        mut each: impl FnMut(usize, RegisteredSpan<'_>) -> bool,
    ) -> Result<(), LocalError> {
        let mut done = 0;
        for part in parts(segments, offset, length) {
            let span = self.local(&part, domain, needed).ok_or(LocalError)?;
            if !each(done, span) {
                return Err(LocalError);
            }
            done += part.length as usize;
        }
        (done == length).then_some(()).ok_or(LocalError)
    }
}

/// Returns the parts of the segments that `length` bytes from `offset` on take.
fn parts(segments: &[Segment], offset: u32, length: usize) -> impl Iterator<Item = Segment> + '_ {
    let mut skip = offset;
    let mut left = length;
    segments.iter().filter_map(move |segment| {
        let skipped = skip.min(segment.length);
        skip -= skipped;
        let room = segment.length - skipped;
        let taken = (room as usize).min(left) as u32;
        left -= taken as usize;
        (taken > 0).then_some(Segment {
            address: segment.address.wrapping_add(u64::from(skipped)),
            length: taken,
            key: segment.key,
        })
    })
}
