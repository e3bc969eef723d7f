//! Handles as C has them: addresses of cells of this library.
//!
//! A registry reads the first word at a handle, the address of the provider's table, before it
//! calls this library. So a handle must be an address of memory that stays. This library never
//! follows a handle. A value is a handle if it is the address of a cell, which a subtraction tells,
//! and it names the object that the cell holds. The cell holds a handle of the core with kind,
//! generation and adapter, which the core checks.
//!
//! A cell whose object is gone is used again only after [`QUARANTINE`] other cells. Until then a
//! stale handle differs from all live ones.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_core::flags::HandleKind;
use dat_core::id::{EpId, Handle};
use dat_core::{Error, Result, Subtype};
use dat_storage::{Arena, Words};

use crate::adapter::Openable;
use crate::boundary::{PerProcess, Place, Placed, ToCell, has_memory};

/// Maximum number of objects of this process, including the cells in quarantine.
const CELLS: usize = 1 << 18;
/// Number of cells that are free before the first of them is used again.
const QUARANTINE: usize = 1 << 16;

/// A handle as C has it; C may pass any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct CHandle(usize);

impl CHandle {
    /// The null handle.
    pub(crate) const NULL: Self = Self(0);
    /// Stands for an asynchronous event dispatcher that exists elsewhere; no other is wanted.
    pub(crate) const ASYNC_EXISTS: Self = Self(1);
    /// Stands for an asynchronous event dispatcher that the caller cannot have.
    pub(crate) const OUT_OF_SCOPE: Self = Self(2);

    /// Makes the handle with this value.
    pub(crate) const fn from_address(address: usize) -> Self {
        Self(address)
    }

    /// Returns the value.
    pub(crate) const fn address(self) -> usize {
        self.0
    }

    pub(crate) const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the core's handle of the object, or one that names nothing.
    #[inline]
    pub(crate) fn named(self) -> Handle {
        match self.cell() {
            Some(cell) => cell.handle(),
            None if self.is_null() => Handle::NULL,
            None => NOTHING,
        }
    }

    /// Returns as `named` does, but `None` for the null handle.
    #[inline]
    pub(crate) fn named_or_none(self) -> Option<Handle> {
        (!self.is_null()).then(|| self.named())
    }

    /// Returns the core's handle of an object of `kind`, and the slot of its adapter.
    ///
    /// `None` if the handle names no object of that kind.
    #[inline]
    pub(crate) fn object(self, kind: HandleKind) -> Option<(Handle, usize)> {
        let cell = self.cell()?;
        // The null handle of a cell without an object has no kind.
        let object = cell.object();
        (object.kind() == Some(kind)).then(|| (object, cell.slot()))
    }

    /// Returns true if posts and dequeues of the object are those of this backend.
    pub(crate) fn is_of<B: Openable>(self) -> bool {
        self.cell().is_some_and(|cell| cell.place.is_of::<B>())
    }

    /// Returns the cell at this address.
    #[inline]
    pub(crate) fn cell(self) -> Option<&'static Cell> {
        ARENA.at(self.0)
    }
}

/// A handle that names nothing anywhere: no kind has its number.
const NOTHING: Handle = Handle::from_raw(u64::MAX);

/// Memory that a handle points to; all zero until it is first used.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Cell {
    /// Address of the table that a registry calls through. It stays when the object is gone, so
    /// that a call with a stale handle still reaches this library.
    provider: AtomicUsize,
    /// The core's handle of the object; null if there is none.
    object: AtomicU64,
    /// The object or else the former one, also for late events.
    place: Place,
    /// Slot of the object's adapter.
    slot: AtomicU32,
    /// Value set by the creator of the object; 0 at first.
    mark: AtomicU32,
}

static ARENA: Arena<Cell> = Arena::new(CELLS);

impl Cell {
    /// Returns the core's handle of the object; if it is gone, one that names nothing.
    #[inline]
    fn handle(&self) -> Handle {
        match self.object.load(Ordering::Acquire) {
            0 => NOTHING,
            object => Handle::from_raw(object),
        }
    }

    /// Returns the core's handle of the object, or the null handle if it is gone.
    #[inline]
    pub(crate) fn object(&self) -> Handle {
        Handle::from_raw(self.object.load(Ordering::Acquire))
    }

    /// Returns the slot of the object's adapter.
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot.load(Ordering::Relaxed) as usize
    }

    /// Returns the place of the object or else the former one.
    #[inline]
    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    /// Sets the mark of the object, until the object is gone.
    pub(crate) fn set_mark(&self, mark: u32) {
        self.mark.store(mark, Ordering::Relaxed);
    }

    /// Returns the mark of the object.
    #[inline]
    pub(crate) fn mark(&self) -> u32 {
        self.mark.load(Ordering::Relaxed)
    }

    fn c_handle(&self) -> CHandle {
        CHandle(ptr::from_ref(self).expose_provenance())
    }

    fn index(&self) -> Option<u32> {
        u32::try_from(ARENA.index_of(self)).ok()
    }

    fn give_back(&self) {
        if let Some(index) = self.index() {
            free_cells().push_back(index);
        }
    }

    /// Forgets the object, which is gone, and frees the cell.
    fn retire(&self) {
        self.object.store(0, Ordering::Release);
        self.give_back();
    }
}

/// First cell that neither this process nor its parent ever used. Changed under the lock of
/// `free_cells`.
static FRESH: AtomicU32 = AtomicU32::new(0);

/// Indices of free cells that were in use before, longest free first.
type Free = VecDeque<u32>;

fn free_cells() -> MutexGuard<'static, Free> {
    static FREE: PerProcess<Mutex<Free>> = PerProcess::new();
    FREE.this().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the cells of the parent useless in a process that was just forked.
///
/// Takes no lock: the thread that had it may not be in this process.
pub(crate) fn abandon_all() {
    for cell in ARENA.made() {
        cell.place.abandon();
    }
}

/// A cell for an object that is about to be made; freed if it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved(&'static Cell);

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Reserves a cell.
///
/// # Errors
/// INSUFFICIENT_RESOURCES (MEMORY): there are too many objects, or the heap is exhausted.
pub(crate) fn reserve() -> Result<Reserved> {
    let exhausted = Error::insufficient_resources(Subtype::ResourceMemory);
    if !has_memory() {
        return Err(exhausted);
    }
    take_cell().ok_or(exhausted)
}

/// Reserves a cell, even if the heap is exhausted.
fn take_cell() -> Option<Reserved> {
    let mut free = free_cells();
    let fresh = FRESH.load(Ordering::Relaxed);
    if free.len() <= QUARANTINE
        && let Some(cell) = ARENA.make(fresh as usize)
    {
        FRESH.store(fresh + 1, Ordering::Relaxed);
        return Some(Reserved(cell));
    }
    let index = free.pop_front()?;
    ARENA.get(index as usize).map(Reserved)
}

/// Number of entries that are made in advance.
const SPARE: usize = 64;

/// Map from the objects of one adapter to their cells.
#[derive(Debug)]
pub(crate) struct Cells {
    /// Address of the provider's table.
    provider: usize,
    slot: u32,
    /// By kind and index of the core's handle: the cell of the latest object there, which may be
    /// gone.
    tables: [Words<ToCell>; HandleKind::ALL.len()],
    /// Held while an object gets its cell or loses it. A call that makes an object and an event
    /// that names it may run at the same time.
    turn: Mutex<()>,
    /// By kind: end of the entries that were ever filled in. Changed while `turn` is held.
    reached: [AtomicUsize; HandleKind::ALL.len()],
}

impl Cells {
    /// Makes the map for the adapter of a slot, with up to `lengths(kind)` entries for each kind.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): there is no address space for them.
    pub(crate) fn new(
        provider: usize,
        slot: u32,
        lengths: impl Fn(HandleKind) -> usize,
    ) -> Result<Self> {
        let tables: Result<Vec<_>> = HandleKind::ALL
            .iter()
            .map(|kind| Words::new(lengths(*kind)))
            .collect();
        let none = Error::insufficient_resources(Subtype::ResourceMemory);
        Ok(Self {
            provider,
            slot,
            tables: tables?.try_into().map_err(|_| none)?,
            turn: Mutex::new(()),
            reached: [const { AtomicUsize::new(0) }; HandleKind::ALL.len()],
        })
    }

    #[inline]
    fn table(&self, kind: HandleKind) -> Option<&Words<ToCell>> {
        self.tables.get(kind.value() as usize)
    }

    /// Reserves a cell for an object that is about to be made, and an entry for it.
    ///
    /// # Errors
    /// Those of the function [`reserve`], and of `make_room`.
    pub(crate) fn reserve(&self, kind: HandleKind) -> Result<Reserved> {
        let cell = reserve()?;
        self.make_room(kind)?;
        Ok(cell)
    }

    /// Makes an entry for the next object.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): there is no memory for it.
    pub(crate) fn make_room(&self, kind: HandleKind) -> Result<()> {
        let reached = self.reached.get(kind.value() as usize);
        let next = reached.map_or(0, |reached| reached.load(Ordering::Relaxed));
        let refused = self.table(kind).is_some_and(|table| {
            // Calls of other threads may take the next entries.
            let last = next
                .saturating_add(SPARE)
                .min(table.len().saturating_sub(1));
            !table.is_empty() && table.make(last).is_none()
        });
        if refused {
            return Err(Error::insufficient_resources(Subtype::ResourceMemory));
        }
        Ok(())
    }

    #[inline]
    fn entry(&self, object: Handle) -> Option<&ToCell> {
        self.entry_of(object.kind()?, object)
    }

    /// Returns the entry of an object whose kind is known.
    #[inline]
    fn entry_of(&self, kind: HandleKind, object: Handle) -> Option<&ToCell> {
        self.table(kind)?.get(object.index())
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the handle of an object that was just made.
    pub(crate) fn publish(&self, cell: Reserved, object: Handle) -> CHandle {
        self.publish_at(cell, Placed::nowhere(object))
    }

    /// Returns the handle of an object that was just made, for calls that use its place.
    pub(crate) fn publish_at(&self, cell: Reserved, placed: Placed) -> CHandle {
        let _turn = self.turn();
        // An event may have named the object already, so that it has a cell. It may even be gone
        // again.
        self.known(placed.object())
            .unwrap_or_else(|| self.assign(cell, placed))
    }

    /// Puts an object into a cell; the caller holds `turn`.
    fn assign(&self, cell: Reserved, placed: Placed) -> CHandle {
        let object = placed.object();
        let entry = object
            .kind()
            .and_then(|kind| self.table(kind)?.make(object.index()));
        let Some(entry) = entry else {
            // The core makes no more objects than it has slots; the system refuses memory.
            return CHandle::NULL;
        };
        if let Some(before) = entry
            .get()
            .filter(|before| self.is_at(before, before.place.object(), entry))
        {
            if before.place.object().load(Ordering::Relaxed) > object.to_raw() {
                // Generations grow: a later object has this index by now.
                return CHandle::NULL;
            }
            // The former object went without a call: a reserved service point, or a request of a
            // peer that left.
            if self.is_at(before, &before.object, entry) {
                before.retire();
            }
        }
        let made = cell.0;
        std::mem::forget(cell);
        made.provider.store(self.provider, Ordering::Relaxed);
        made.slot.store(self.slot, Ordering::Relaxed);
        made.mark.store(0, Ordering::Relaxed);
        made.place.set(placed);
        made.object.store(object.to_raw(), Ordering::Release);
        entry.set(Some(made));
        let kind = object.kind().map(|kind| kind.value() as usize);
        if let Some(reached) = kind.and_then(|kind| self.reached.get(kind)) {
            reached.fetch_max(object.index() + 1, Ordering::Relaxed);
        }
        made.c_handle()
    }

    /// Returns true if `word` of a cell, names an object with this entry.
    ///
    /// The cell may belong to another adapter by now; then the result is false.
    fn is_at(&self, cell: &Cell, word: &AtomicU64, entry: &ToCell) -> bool {
        let object = Handle::from_raw(word.load(Ordering::Acquire));
        let at = self.entry(object);
        at.is_some_and(|at| ptr::eq(at, entry)) && cell.slot.load(Ordering::Relaxed) == self.slot
    }

    /// Returns the handle of an object of the core, even if it is gone.
    ///
    /// Null if the core names no object, if no cell is free for an object that the provider made,
    /// or if an object that is gone has a successor.
    #[inline]
    pub(crate) fn of(&self, object: Handle) -> CHandle {
        match self.known(object) {
            Some(handle) => handle,
            None => self.make(object),
        }
    }

    /// Returns the handle of an endpoint, as `of` does.
    #[inline]
    pub(crate) fn of_endpoint(&self, endpoint: EpId) -> CHandle {
        let object = endpoint.handle();
        match self.known_at(self.entry_of(HandleKind::Ep, object), object) {
            Some(handle) => handle,
            None => self.make(object),
        }
    }

    /// Returns the handle of an object as `of` does, null for `None`.
    pub(crate) fn of_some(&self, object: Option<impl Into<Handle>>) -> CHandle {
        object.map_or(CHandle::NULL, |object| self.of(object.into()))
    }

    #[inline]
    fn known(&self, object: Handle) -> Option<CHandle> {
        self.known_at(self.entry(object), object)
    }

    #[inline]
    fn known_at(&self, entry: Option<&ToCell>, object: Handle) -> Option<CHandle> {
        let cell = entry?.get()?;
        (cell.place.object().load(Ordering::Relaxed) == object.to_raw()).then(|| cell.c_handle())
    }

    #[cold]
    fn make(&self, object: Handle) -> CHandle {
        if object.is_null() {
            return CHandle::NULL;
        }
        let _turn = self.turn();
        match (self.known(object), take_cell()) {
            (Some(handle), _) => handle,
            (None, Some(cell)) => self.assign(cell, Placed::nowhere(object)),
            (None, None) => CHandle::NULL,
        }
    }

    /// Retires the handle of an object that is gone.
    pub(crate) fn retire(&self, object: Handle) {
        let _turn = self.turn();
        let cell = self.entry(object).and_then(ToCell::get);
        if let Some(cell) = cell.filter(|cell| cell.handle() == object) {
            cell.retire();
        }
    }

    /// Retires the handles of all objects, which are gone.
    pub(crate) fn retire_all(&self) {
        let _turn = self.turn();
        let reached = self.reached.iter().map(|end| end.load(Ordering::Relaxed));
        let tables = self.tables.iter().zip(reached);
        for entry in
            tables.flat_map(|(table, reached)| (0..reached).map_while(|index| table.get(index)))
        {
            let cell = entry.set(None);
            if let Some(cell) = cell.filter(|cell| self.is_at(cell, &cell.object, entry)) {
                cell.retire();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(kind: HandleKind, generation: u64, index: u64) -> Handle {
        let kind = u64::from(kind.value()) + 1;
        Handle::from_raw(7 << 48 | kind << 44 | generation << 20 | index)
    }

    /// Spec: GEN-03
    #[test]
    fn only_addresses_of_cells_are_handles() {
        let cells = Cells::new(64, 5, |_| 4).expect("address space");
        let object = handle(HandleKind::Ep, 1, 2);
        let made = cells.publish(reserve().expect("a cell"), object);
        assert_eq!(made.named(), object);
        assert_eq!(made.cell().expect("a cell").slot(), 5);
        assert_eq!(cells.of(object), made);
        for offset in [1, 4, 8, 31] {
            let between = CHandle(made.0 + offset);
            assert_eq!(between.named(), NOTHING);
        }
        let first = ptr::from_ref(ARENA.get(0).expect("is made")).addr();
        for outside in [
            1,
            2,
            usize::MAX,
            first - size_of::<Cell>(),
            first + CELLS * size_of::<Cell>(),
        ] {
            assert_eq!(CHandle(outside).named(), NOTHING);
        }
        assert_eq!(CHandle::NULL.named(), Handle::NULL);
        assert_eq!(NOTHING.kind(), None);
    }

    /// Spec: GEN-03
    #[test]
    fn a_stale_handle_is_invalid_and_keeps_its_provider() {
        let cells = Cells::new(4096, 1, |_| 4).expect("address space");
        let object = handle(HandleKind::Pz, 1, 0);
        let stale = cells.publish(reserve().expect("a cell"), object);
        cells.retire(object);
        assert_eq!(stale.named(), NOTHING);
        let next = cells.publish(reserve().expect("a cell"), handle(HandleKind::Pz, 2, 0));
        assert_ne!(next, stale);
        assert_eq!(stale.named(), NOTHING);
        let provider = &stale.cell().expect("a cell").provider;
        assert_eq!(provider.load(Ordering::Relaxed), 4096);
    }

    #[test]
    fn a_newer_object_invalidates_the_handle_of_its_index() {
        let cells = Cells::new(0, 1, |_| 4).expect("address space");
        let first = cells.of(handle(HandleKind::Cr, 1, 3));
        let second = cells.of(handle(HandleKind::Cr, 2, 3));
        assert_ne!(first, second);
        assert_eq!(first.named(), NOTHING);
        cells.retire_all();
        assert_eq!(second.named(), NOTHING);
    }

    /// A queued event may name a freed object whose index now belongs to another one.
    ///
    /// Spec: GEN-03
    #[test]
    fn late_events_do_not_affect_the_successor() {
        let cells = Cells::new(0, 1, |_| 4).expect("address space");
        let (old, new) = (handle(HandleKind::Ep, 1, 2), handle(HandleKind::Ep, 2, 2));
        let freed = cells.publish(reserve().expect("a cell"), old);
        cells.retire(old);
        assert_eq!((cells.of(old), freed.named()), (freed, NOTHING));
        let next = cells.publish(reserve().expect("a cell"), new);
        assert_eq!(cells.of(old), CHandle::NULL);
        cells.retire(old);
        assert_eq!((cells.of(new), next.named()), (next, new));
    }

    /// A peer may connect to a service point before the call that makes it returns.
    #[test]
    fn an_event_may_come_before_the_call_returns() {
        let cells = Cells::new(0, 1, |_| 4).expect("address space");
        let (first, second) = (handle(HandleKind::Psp, 1, 0), handle(HandleKind::Psp, 2, 0));
        let published = cells.of(first);
        assert_eq!(cells.publish(reserve().expect("a cell"), first), published);
        assert_eq!(published.named(), first);
        cells.retire(first);
        // The same if it was freed meanwhile, and even if it has a successor.
        assert_eq!(cells.publish(reserve().expect("a cell"), first), published);
        let next = cells.of(second);
        assert_eq!(
            cells.publish(reserve().expect("a cell"), first),
            CHandle::NULL
        );
        assert_eq!((published.named(), next.named()), (NOTHING, second));
    }

    #[test]
    fn unknown_objects_have_the_null_handle() {
        let cells = Cells::new(0, 1, |_| 4).expect("address space");
        assert_eq!(cells.of(Handle::NULL), CHandle::NULL);
        assert_eq!(cells.of(handle(HandleKind::Ep, 1, 4)), CHandle::NULL);
    }
}
