//! Binds and unbinds of remote regions, for windows of both kinds.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dat_core::backend::SyncDirection;
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::RmrId;
use dat_core::memory::LmrTriplet;
use dat_core::{Cause, Error as CoreError, Parameter};

use crate::connection::Link;
use crate::error::{Error, Failed, Result};
use crate::flight::{Core, EndpointEvents, Lent, Object, Operation, Owner};
use crate::memory::{Bindable, check_core};
use crate::remote::{Access, RemoteSlice};

/// A remote region, and the memory that it may be bound to.
///
/// The remote region is freed first, always: so nobody has the memory while a peer can reach it.
pub(crate) struct Bound<O: Bindable> {
    pub(crate) rmr: RmrId,
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// Endpoint of the bind.
    link: Arc<Link>,
    /// `None` after `into_owner`.
    owner: Option<O>,
}

impl<O: Bindable> Bound<O> {
    /// Ends all access of peers; returns the memory, with what they wrote.
    fn into_owner(mut self) -> O {
        self.free();
        match self.owner.take() {
            Some(owner) => {
                let segment = owner.segment(self.start, self.length);
                owner.core().synchronise(SyncDirection::RdmaWrite, segment);
                owner
            }
            None => unreachable!("only this function takes the memory"),
        }
    }

    pub(crate) const fn owner(&self) -> &O {
        match &self.owner {
            Some(owner) => owner,
            None => unreachable!(),
        }
    }

    fn free(&self) {
        // Fails only if the adapter is closed, which has freed it.
        let _ = self.link.core().interface().rmr_free(self.rmr);
    }
}

impl<O: Bindable> Drop for Bound<O> {
    fn drop(&mut self) {
        if self.owner.is_some() {
            self.free();
        }
    }
}

impl<O: Bindable> Object for Bound<O> {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn release(self: Box<Self>) {}
}

/// Posts the bind of a range of memory.
fn bind<O: Bindable>(
    link: &Arc<Link>,
    owner: O,
    range: Result<(usize, usize)>,
    access: Access,
) -> Result<(Operation, RemoteSlice), Failed<O>> {
    let core = link.core();
    if let Err(unknown) = access.check() {
        return Err(Failed::new(unknown, owner));
    }
    let (start, length) = match range {
        Ok(range) => range,
        Err(error) => return Err(Failed::new(error, owner)),
    };
    if length == 0 {
        // A bind of no bytes would be an unbind.
        let empty = CoreError::invalid_argument(2)
            .about(Parameter::Segment)
            .because(Cause::ZeroCount);
        return Err(Failed::new(empty, owner));
    }
    if let Err(foreign) = check_core(core, owner.core()) {
        return Err(Failed::new(foreign, owner));
    }
    let rmr = match core.interface().rmr_create(link.domain().id()) {
        Ok(rmr) => rmr,
        Err(error) => return Err(Failed::new(error, owner)),
    };
    let segment = owner.segment(start, length);
    core.synchronise_both(segment);
    let bound = Box::new(Bound {
        rmr,
        start,
        length,
        link: Arc::clone(link),
        owner: Some(owner),
    });
    let mut context = 0;
    let ep = link.id();
    let posted = core.post(
        Owner::Endpoint(ep),
        Lent::new(bound, 0, 0),
        link.span().operation("bind", segment.length),
        |interface, cookie| {
            let (privileges, flags) = (access.privileges(), CompletionFlags::empty());
            context = interface.rmr_bind(rmr, &segment, privileges, ep, cookie, flags)?;
            Ok(())
        },
    );
    let failed =
        |error: Error, lent: Lent| Failed::new(error, lent.take::<Bound<O>>().into_owner());
    let key = match posted {
        Ok(key) => key,
        Err((error, Some(lent))) => return Err(failed(error.into(), lent)),
        Err((_, None)) => unreachable!("the table keeps memory until it is taken"),
    };
    let operation = Operation::new(Arc::clone(core), key);
    match RemoteSlice::new(context, segment.address, segment.length, access) {
        Ok(remote) => Ok((operation, remote)),
        // The rights are known, and the core has checked the range.
        Err(_) => unreachable!("a bound segment is inside of the address space"),
    }
}

/// A bound window, and the value that gives a peer access.
pub(crate) type Opened<O> = (Box<Bound<O>>, RemoteSlice);

/// A bind that was refused, or is in flight.
pub(crate) enum Binding<O: Bindable> {
    Refused(Arc<Core>, Option<Failed<O>>),
    InFlight(Operation, RemoteSlice),
}

impl<O: Bindable> Binding<O> {
    /// Binds a range of memory for the peer of an endpoint.
    pub(crate) fn start(
        link: &Arc<Link>,
        owner: O,
        range: Result<(usize, usize)>,
        access: Access,
    ) -> Self {
        match bind(link, owner, range, access) {
            Ok((operation, remote)) => Self::InFlight(operation, remote),
            Err(failed) => Self::Refused(Arc::clone(link.core()), Some(failed)),
        }
    }

    pub(crate) const fn core(&self) -> &Arc<Core> {
        match self {
            Self::Refused(core, _) => core,
            Self::InFlight(operation, _) => operation.core(),
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Opened<O>, Failed<O>>> {
        match self {
            Self::Refused(_, failed) => match failed.take() {
                Some(failed) => Poll::Ready(Err(failed)),
                None => panic!("polled after it was ready"),
            },
            Self::InFlight(operation, remote) => {
                let (lent, result) = ready!(operation.poll(context));
                let bound = lent.take::<Bound<O>>();
                Poll::Ready(match result {
                    Ok(_) => Ok((bound, *remote)),
                    Err(error) => Err(Failed::new(error, bound.into_owner())),
                })
            }
        }
    }
}

/// An unbind that is done, or in flight.
pub(crate) enum Revoking<O: Bindable> {
    Done(Arc<Core>, Option<O>),
    InFlight(Operation),
}

impl<O: Bindable> Revoking<O> {
    /// Unbinds; without a connection, frees the remote region instead.
    pub(crate) fn start(bound: Box<Bound<O>>) -> Self {
        let link = Arc::clone(&bound.link);
        let (core, ep, rmr) = (link.core(), link.id(), bound.rmr);
        let posted = core.post(
            Owner::Endpoint(ep),
            Lent::new(bound, 0, 0),
            link.span().operation("unbind", 0),
            |interface, cookie| {
                let (segment, none) = (LmrTriplet::default(), MemoryPrivileges::empty());
                let flags = CompletionFlags::empty();
                interface
                    .rmr_bind(rmr, &segment, none, ep, cookie, flags)
                    .map(|_| ())
            },
        );
        match posted {
            Ok(key) => Self::InFlight(Operation::new(Arc::clone(core), key)),
            Err((_, Some(lent))) => {
                let owner = lent.take::<Bound<O>>().into_owner();
                Self::Done(Arc::clone(core), Some(owner))
            }
            Err((_, None)) => unreachable!("the table keeps memory until it is taken"),
        }
    }

    pub(crate) const fn core(&self) -> &Arc<Core> {
        match self {
            Self::Done(core, _) => core,
            Self::InFlight(operation) => operation.core(),
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<O> {
        match self {
            Self::Done(_, owner) => match owner.take() {
                Some(owner) => Poll::Ready(owner),
                None => panic!("polled after it was ready"),
            },
            Self::InFlight(operation) => {
                // However the unbind ended, the window is freed.
                let (lent, _) = ready!(operation.poll(context));
                Poll::Ready(lent.take::<Bound<O>>().into_owner())
            }
        }
    }
}
