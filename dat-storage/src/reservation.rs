//! Tables of an adapter in reserved address space.

use std::fmt;
use std::marker::PhantomData;
use std::mem;

use dat_core::backend::Backend;
use dat_core::connection::{CrSlot, PspSlot, RspSlot};
use dat_core::endpoint::{EndpointSlot, SrqSlot};
use dat_core::event::{CnoSlot, EvdSlot, EventSlot};
use dat_core::memory::{LmrSlot, PzSlot, RmrSlot};
use dat_core::sync::{RawLock, Slots};
use dat_core::{Error, FreeLink, RecordSlot, Result, Runs, Storage, Subtype, Table};

use crate::limits::{Limits, above_limit};
use crate::memory::{Memory, RESERVES, access, page_size};

/// Address space for the tables of one adapter; dropping it returns the address space.
pub struct Reservation<B: Backend + 'static, L: RawLock + 'static> {
    memory: Memory,
    limits: Limits,
    places: Places,
    /// The slots are made when the tables are lent.
    _slots: PhantomData<fn() -> (B, L)>,
}

/// Position of an array of values.
#[derive(Clone, Copy, Debug)]
struct Place {
    count: usize,
    /// Offset of the first value, in bytes.
    offset: usize,
}

/// Position of one table of objects: slots, and a link for each.
#[derive(Clone, Copy, Debug)]
struct TablePlace {
    slots: Place,
    links: Place,
}

/// Number of bytes that are laid out so far.
struct Layout {
    end: usize,
    page: usize,
}

impl Layout {
    /// Adds `count` values in pages of their own.
    fn add<T>(&mut self, count: usize) -> Option<Place> {
        if align_of::<T>() > self.page {
            return None;
        }
        let offset = self.end;
        let bytes = size_of::<T>().max(1).checked_mul(count)?;
        self.end = offset.checked_add(bytes.checked_next_multiple_of(self.page)?)?;
        Some(Place { count, offset })
    }

    fn table<T>(&mut self, count: usize) -> Option<TablePlace> {
        Some(TablePlace {
            slots: self.add::<T>(count)?,
            links: self.add::<FreeLink>(count)?,
        })
    }
}

/// Defines the places of all tables and runs: field of `Storage`, limit, slot.
macro_rules! tables {
    (
        tables { $($table:ident: $limit:ident of $slot:ty;)* }
        runs { $($runs:ident: $runs_limit:ident of $run_slot:ty;)* }
    ) => {
        #[derive(Clone, Copy, Debug)]
        struct Places {
            $($table: TablePlace,)*
            $($runs: Place,)*
        }

        impl Places {
            /// Lays out tables of these sizes; returns their total length too.
            ///
            /// `None` if no address space can hold them.
            fn of<B: Backend, L: RawLock>(limits: &Limits) -> Option<(Self, usize)> {
                let mut layout = Layout { end: 0, page: page_size() };
                let places = Self {
                    $($table: layout.table::<$slot>(limits.$limit)?,)*
                    $($runs: layout.add::<$run_slot>(limits.$runs_limit)?,)*
                };
                Some((places, layout.end))
            }
        }

        impl<B: Backend + 'static, L: RawLock + 'static> Reservation<B, L> {
            /// Makes tables without slots.
            ///
            /// # Safety
            /// For `'s`, the address space is reserved, and nothing else uses it. `'s` may end
            /// early for tables that are not used any more.
            #[expect(unsafe_code)]
            // UNSAFETY: the lifetime is the caller's choice.
            unsafe fn tables<'s>(&self) -> Storage<'s, B, L> {
                Storage {
                    $($table: {
                        let place = self.places.$table;
                        #[expect(unsafe_code)]
                        // SAFETY: laid out for `count` values of this type, in pages of their own;
                        // the caller promises the rest.
                        let (slots, links) = unsafe {
                            (
                                self.values(place.slots, || <$slot>::EMPTY),
                                self.values(place.links, || FreeLink::EMPTY),
                            )
                        };
                        Table::growing(slots, links)
                    },)*
                    $($runs: {
                        #[expect(unsafe_code)]
                        // SAFETY: as above.
                        let slots = unsafe { self.values(self.places.$runs, || <$run_slot>::EMPTY) };
                        Runs::growing(slots)
                    },)*
                    fresh: true,
                }
            }
        }
    };
}

tables! {
    tables {
        protection_zones: zones of PzSlot;
        local_regions: local_regions of LmrSlot;
        remote_regions: remote_regions of RmrSlot<L>;
        event_dispatchers: dispatchers of EvdSlot<B::CompletionQueue, L>;
        notification_objects: notification_objects of CnoSlot<L>;
        endpoints: endpoints of EndpointSlot<B::SendQueue, B::ReceiveQueue, L>;
        shared_receive_queues: shared_receive_queues of SrqSlot<B::SharedReceiveQueue, L>;
        public_service_points: service_points of PspSlot;
        reserved_service_points: service_points of RspSlot;
        connection_requests: connection_requests of CrSlot;
    }
    runs {
        events: events of EventSlot;
        records: records of RecordSlot;
    }
}

impl<B: Backend + 'static, L: RawLock + 'static> Reservation<B, L> {
    /// Reserves address space for tables that start with `limits`.
    ///
    /// It first asks for the [maxima](Limits::MAXIMA). If the system refuses them, it halves them,
    /// but not below `limits`, until they take an eighth of the address space that is left. The
    /// rest is for the other memory of the process.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (MEMORY), above limit: more than 2^20 objects of a kind, 2^16
    ///   zones, or 2^31 events or records; or more bytes than there are addresses.
    /// - INSUFFICIENT_RESOURCES (MEMORY): the system refuses the address space.
    pub fn new(limits: &Limits) -> Result<Self> {
        limits.check()?;
        let least = *limits;
        let maxima = if RESERVES { least.maxima() } else { least };
        let mut limits = maxima;
        loop {
            let laid_out = Places::of::<B, L>(&limits);
            let leaves_room = |length: usize| {
                limits == maxima || limits == least || {
                    let all = length.checked_mul(8).and_then(Memory::reserve);
                    all.is_some()
                }
            };
            let reserved = laid_out
                .filter(|(_, length)| leaves_room(*length))
                .and_then(|(places, length)| Memory::reserve(length).zip(Some(places)));
            if let Some((memory, places)) = reserved {
                return Ok(Self {
                    memory,
                    limits,
                    places,
                    _slots: PhantomData,
                });
            }
            limits = limits.halved(least).ok_or_else(|| match laid_out {
                Some(_) => Error::insufficient_resources(Subtype::ResourceMemory),
                None => above_limit(),
            })?;
        }
    }

    /// Returns the sizes up to which the tables grow.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of bytes of address space.
    pub const fn length(&self) -> usize {
        self.memory.length()
    }

    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn start(&self) -> usize {
        self.memory.start().addr().get()
    }

    /// Lends empty tables. A later call lends them empty again.
    pub fn lend(&mut self) -> Storage<'_, B, L> {
        #[expect(unsafe_code)]
        // SAFETY: the reservation is borrowed exclusively for the lifetime of the result.
        unsafe {
            self.tables()
        }
    }

    /// Lends empty tables that stay as long as the process.
    pub fn leak(self) -> Storage<'static, B, L> {
        #[expect(unsafe_code)]
        // SAFETY: the reservation is forgotten, so that nothing returns or lends it again.
        let storage = unsafe { self.tables() };
        mem::forget(self);
        storage
    }

    /// Lends empty tables to `make`; they stay as long as the process only if it succeeds.
    ///
    /// # Errors
    /// Those of `make`; the address space is then returned.
    ///
    /// # Safety
    /// When `make` fails or panics, it has dropped the storage and everything that borrows it, and
    /// nothing uses them any more.
    #[expect(unsafe_code)]
    // UNSAFETY: what `make` keeps cannot be checked here.
    pub unsafe fn leak_if_ok<T, E>(
        self,
        make: impl FnOnce(Storage<'static, B, L>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        #[expect(unsafe_code)]
        // SAFETY: `self` is forgotten if the tables are used further on; else it is dropped after
        // them, by the caller's promise.
        let made = make(unsafe { self.tables() })?;
        mem::forget(self);
        Ok(made)
    }

    /// Lends empty tables for a lifetime that the caller ends.
    ///
    /// # Safety
    /// The storage and everything that borrows it are dropped or leaked unused before the
    /// reservation is dropped or lent again.
    #[expect(unsafe_code)]
    // UNSAFETY: the function cannot check how long the caller uses the result.
    pub unsafe fn lend_unbounded(&self) -> Storage<'static, B, L> {
        #[expect(unsafe_code)]
        // SAFETY: as the caller promises.
        unsafe {
            self.tables()
        }
    }

    /// Makes slots at a place, none of them made yet.
    ///
    /// # Safety
    /// The place is laid out for aligned values of this type, in pages of their own; and as for
    /// `tables`.
    #[expect(unsafe_code)]
    // UNSAFETY: the lifetime and the place are the caller's choice.
    unsafe fn values<'s, T>(&self, place: Place, empty: fn() -> T) -> Slots<'s, T> {
        #[expect(unsafe_code)]
        // SAFETY: the offset is inside the memory, as the caller promises. All bytes for which
        // `access` returns true can be read and written as long as the memory is mapped.
        unsafe {
            Slots::reserved(
                self.memory.start().add(place.offset).cast(),
                place.count,
                empty,
                access,
            )
        }
    }
}

impl<B: Backend + 'static, L: RawLock + 'static> fmt::Debug for Reservation<B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("limits", &self.limits)
            .field("length", &self.memory.length())
            .finish_non_exhaustive()
    }
}
