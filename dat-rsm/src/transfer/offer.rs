//! The next entry of a vector: its checks, its registration, its post.

use dat_core::backend::Backend;
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, RmrTriplet};
use dat_core::sync::RawLock;
use dat_core::{Error, ErrorKind};

use super::Direction;
use super::entry::{Entries, EntryArgs, Local};
use super::vector::Vector;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::flight::{Owner, Request, WINDOW};
use crate::id::{Handle, LocalMemoryId};
use crate::import::{Attach, Import};

/// Outcome of the attempt to post the next part of a vector.
pub(super) enum Offer {
    /// Posted: the number of bytes, and the local address of the first.
    Posted(u64, u64),
    /// The entry has no bytes.
    Nothing,
    /// The entry needs a registration.
    Pin,
    /// There is no room, or no link, at the moment.
    Later,
    /// The entry shares bytes with an earlier one, which has to finish first.
    Depends,
    Refused(RsmError),
    Aborted,
}

impl<B: Backend, L: RawLock, E: Entries> Vector<'_, '_, B, L, E> {
    /// Registers the memory of the next entry for the call.
    ///
    /// Spec: RSMPV-11
    pub(super) fn pin(&mut self) -> Result<()> {
        let region = self.entries.region(self.next).ok_or(RsmError::BadAddress)?;
        let privileges = match self.direction {
            Direction::Put => MemoryPrivileges::LOCAL_READ,
            Direction::Get => self.port.target_privileges,
        };
        let made = self.port.ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(region),
            pz: self.pz,
            privileges,
        });
        match made {
            Ok(made) => {
                self.pins.keep(self.next, made);
                Ok(())
            }
            Err(error) => Err(match RsmError::from(error) {
                RsmError::InsufficientResources | RsmError::InsufficientMemory => {
                    RsmError::InsufficientResources
                }
                _ => RsmError::BadAddress,
            }),
        }
    }

    /// Checks the next entry and posts it, or a part of it.
    ///
    /// Spec: RSMPV-57, RSMPV-21
    pub(super) fn offer(&self, state: &mut State, args: &EntryArgs) -> Offer {
        let Some(import) = state.imports.get(self.import.handle()) else {
            return Offer::Aborted;
        };
        if import.generation != self.generation {
            return Offer::Aborted;
        }
        if self.waits_for_disconnect(import) {
            return Offer::Later;
        }
        let (attach, remote) = (import.attach, import.remote(args, self.part));
        let segment = (import.address, import.length);
        if let Err(error) = self.check(state, import, args) {
            return Offer::Refused(error);
        }
        let done = match self.turn(state, args) {
            Ok(done) => done,
            Err(offer) => return offer,
        };
        let Attach::Attached(link_handle) = attach else {
            return Offer::Later;
        };
        let ready = state
            .links
            .get(link_handle)
            .filter(|link| link.takes_transfer(self.port.max_transfers));
        let (Some(link), true) = (ready, state.requests.has_room()) else {
            return Offer::Later;
        };
        let ep = link.ep;
        let bytes = args
            .length
            .saturating_sub(self.part)
            .min(self.port.max_transfer);
        let last = self.part.saturating_add(bytes) >= args.length;
        let (context, base, local) = match self.local_memory(state, args) {
            Ok(found) => found,
            Err(offer) => return offer,
        };
        if self.part == 0 && self.depends(done, segment, base, args) {
            return Offer::Depends;
        }
        let triplet = LmrTriplet {
            context,
            address: base.wrapping_add(self.part),
            length: bytes,
        };
        let remote = RmrTriplet {
            length: bytes,
            ..remote
        };
        // Only a barrier waits for an entry from a handle in explicit mode.
        let spans = self.explicit && local.is_some();
        let owner = if spans {
            Owner::Span
        } else {
            Owner::Entry {
                flight: self.flight,
                index: self.next as u32,
                last,
            }
        };
        let request = Request {
            owner,
            link: link_handle,
            import: self.import.handle(),
            local,
            flight: Handle::NULL,
            bytes,
        };
        match self.post(state, ep, request, &triplet, &remote) {
            Ok(()) => {
                if spans
                    && last
                    && let Some(flight) = state.flights.get_mut(self.flight)
                {
                    flight.skip(self.next as u32);
                }
                Offer::Posted(bytes, triplet.address)
            }
            Err(error) => not_posted(state, link_handle, error),
        }
    }

    /// Returns the number of entries that are done, if it is the turn of the next one.
    ///
    /// # Errors
    /// The outcome of an entry that is not posted now.
    fn turn(&self, state: &mut State, args: &EntryArgs) -> core::result::Result<usize, Offer> {
        let flight = state.flights.get_mut(self.flight).ok_or(Offer::Aborted)?;
        let done = flight.done as usize;
        if flight.failure.is_some() || self.next.saturating_sub(done) >= WINDOW {
            return Err(Offer::Later);
        }
        if args.length == 0 {
            flight.skip(self.next as u32);
            return Err(Offer::Nothing);
        }
        if !self.has_posted && !(self.engine.has_memory)() {
            return Err(Offer::Refused(RsmError::InsufficientResources));
        }
        Ok(done)
    }

    /// Returns context and address of an entry's local memory, and its handle if it has one.
    ///
    /// # Errors
    /// The outcome of an entry without registered memory.
    fn local_memory(
        &self,
        state: &State,
        args: &EntryArgs,
    ) -> core::result::Result<(u32, u64, Option<LocalMemoryId>), Offer> {
        match args.local {
            Local::Handle(local) => {
                let slot = state.locals.get(local.handle());
                let refused = Offer::Refused(RsmError::BadScatterGather);
                let made = &slot.ok_or(refused)?.made;
                let base = made.registered_address.wrapping_add(args.local_offset);
                Ok((made.lmr_context, base, Some(local)))
            }
            Local::Immediate(_) => {
                let made = self.pins.of(self.next).ok_or(Offer::Pin)?;
                Ok((made.lmr_context, made.registered_address, None))
            }
        }
    }

    /// Returns true if an entry must wait for an earlier one.
    ///
    /// It waits if it writes bytes that the earlier one reads, reads bytes that the earlier one
    /// writes, or gets to the same bytes. A segment of this process has the same addresses here as
    /// at its exporter. A read-back makes writes to the segment visible to other requests. Writes
    /// to the same bytes arrive in order; reads arrive in any order. After [`WINDOW`] writes
    /// without a read-back, an entry that reads from the segment waits for one, so the search stays
    /// short.
    ///
    /// Spec: RSMPV-31, RSMPV-32, RSMPV-33, RSMPV-82
    fn depends(&self, done: usize, segment: (u64, u64), base: u64, args: &EntryArgs) -> bool {
        if self.explicit {
            return false;
        }
        let reads = self.direction == Direction::Get;
        let of_segment = |args: &EntryArgs| {
            let first = segment.0.wrapping_add(args.remote_offset);
            (first, args.length)
        };
        let (local, remote) = ((base, args.length), of_segment(args));
        let meets = (done..self.next)
            .filter_map(|index| self.locals.get(index % WINDOW))
            .any(|other| overlap(remote, *other) || (reads && overlap(local, *other)));
        if meets || !overlap(local, segment) {
            return meets;
        }
        let unseen = if reads { done } else { self.visible };
        if self.next.saturating_sub(unseen) > WINDOW {
            return true;
        }
        (unseen..self.next)
            .filter_map(|index| self.entries.args(index))
            .any(|other| overlap(local, of_segment(&other)))
    }

    /// Posts one request and counts it.
    fn post(
        &self,
        state: &mut State,
        ep: dat_core::id::EpId,
        request: Request,
        triplet: &LmrTriplet,
        remote: &RmrTriplet,
    ) -> core::result::Result<(), Error> {
        let Some(cookie) = state.requests.insert(request) else {
            return Err(Error::queue_full());
        };
        let (ia, flags) = (&self.port.ia, CompletionFlags::empty());
        let triplets = core::slice::from_ref(triplet);
        let posted = match self.direction {
            Direction::Put => ia.post_rdma_write(ep, triplets, cookie.to_raw(), remote, flags),
            Direction::Get => ia.post_rdma_read(ep, triplets, cookie.to_raw(), remote, flags),
        };
        if let Err(error) = posted {
            state.requests.remove(cookie);
            return Err(error);
        }
        state.count_posted(&request);
        if let Some(import) = state.imports.get_mut(request.import)
            && self.direction == Direction::Put
        {
            import.written = import.posted;
            if import.non_coherent {
                let offset = remote.address.wrapping_sub(import.address);
                import.unseen.add(offset, remote.length);
            }
        }
        Ok(())
    }

    /// Checks an entry against its local memory and the segment.
    ///
    /// Spec: RSMPV-03, RSMPV-13, RSMPV-15, RSMPV-61
    fn check(&self, state: &State, import: &Import, args: &EntryArgs) -> Result<()> {
        let available = match args.local {
            Local::Handle(local) => self.local_length(state, local)?,
            Local::Immediate(length) => length,
        };
        for (offset, length) in [
            (args.local_offset, available),
            (args.remote_offset, import.length),
        ] {
            if offset > length {
                return Err(RsmError::BadOffset);
            }
        }
        for (offset, length) in [
            (args.local_offset, available),
            (args.remote_offset, import.length),
        ] {
            let end = offset.checked_add(args.length);
            if end.is_none_or(|end| end > length) {
                return Err(RsmError::BadLength);
            }
        }
        let outside = import
            .mapping
            .is_some_and(|mapping| !mapping.covers(args.remote_offset, args.length));
        if self.single && outside {
            return Err(RsmError::BadOffset);
        }
        if self.single && !self.explicit && import.barriers == 0 {
            return Err(RsmError::BarrierUninitialized);
        }
        Ok(())
    }

    fn local_length(&self, state: &State, local: LocalMemoryId) -> Result<u64> {
        let slot = state
            .locals
            .get(local.handle())
            .filter(|slot| {
                slot.closing.is_none() || (self.waited && !slot.began_after_free(self.ticket))
            })
            .ok_or(RsmError::BadScatterGather)?;
        if self.port_index() != Some(slot.port) {
            return Err(RsmError::BadScatterGather);
        }
        if self.direction == Direction::Get && !slot.writable {
            return Err(RsmError::BadAddress);
        }
        Ok(slot.length)
    }

    fn port_index(&self) -> Option<usize> {
        Some(self.controller.handle().index())
    }
}

/// Returns true if two ranges, each a first byte and a length, share a byte.
fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    let within = |first: u64, range: (u64, u64)| first.wrapping_sub(range.0) < range.1;
    (one.1 != 0 && within(one.0, other)) || (other.1 != 0 && within(other.0, one))
}

impl Import {
    /// Returns the key and remote address of an entry from byte `part` on.
    ///
    /// The length is left 0.
    fn remote(&self, args: &EntryArgs, part: u64) -> RmrTriplet {
        RmrTriplet {
            context: self.key,
            address: self
                .address
                .wrapping_add(args.remote_offset)
                .wrapping_add(part),
            length: 0,
        }
    }
}

/// Returns the outcome of a refused post; it may succeed once other requests of the link end.
fn not_posted(state: &State, link: Handle, error: Error) -> Offer {
    if error.kind() != ErrorKind::InsufficientResources {
        return Offer::Refused(error.into());
    }
    let link = state.links.get(link);
    if link.is_some_and(|link| link.requests != 0) {
        Offer::Later
    } else {
        Offer::Refused(RsmError::InsufficientResources)
    }
}
