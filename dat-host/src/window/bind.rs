//! Binds and unbinds of remote regions, for windows of both kinds.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dat_core::backend::SyncDirection;
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::RmrId;
use dat_core::memory::LmrTriplet;
use dat_core::{Cause, Error as CoreError, Parameter};

use crate::connection::EndpointState;
use crate::error::{Error, Failed, Result};
use crate::flight::{AdapterState, EndpointEvents, Lent, Object, Operation, Owner};
use crate::memory::{Bindable, check_same_adapter};
use crate::remote::{Access, RemoteSlice};

/// A remote region, and the memory that it may be bound to.
///
/// The remote region is freed first, always: so nobody has the memory while a peer can reach it.
pub(crate) struct Bound<O: Bindable> {
    pub(crate) rmr: RmrId,
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// Endpoint of the bind.
    endpoint: Arc<EndpointState>,
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
                owner
                    .adapter()
                    .synchronise(SyncDirection::RdmaWrite, segment);
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
        let _ = self.endpoint.adapter().interface().rmr_free(self.rmr);
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
    endpoint: &Arc<EndpointState>,
    owner: O,
    range: Result<(usize, usize)>,
    access: Access,
) -> Result<(Operation, RemoteSlice), Failed<O>> {
    let adapter = endpoint.adapter();
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
    if let Err(foreign) = check_same_adapter(adapter, owner.adapter()) {
        return Err(Failed::new(foreign, owner));
    }
    let rmr = match adapter.interface().rmr_create(endpoint.domain().id()) {
        Ok(rmr) => rmr,
        Err(error) => return Err(Failed::new(error, owner)),
    };
    let segment = owner.segment(start, length);
    adapter.synchronise_both(segment);
    let bound = Box::new(Bound {
        rmr,
        start,
        length,
        endpoint: Arc::clone(endpoint),
        owner: Some(owner),
    });
    let mut context = 0;
    let ep = endpoint.id();
    let posted = adapter.post(
        Owner::Endpoint(ep),
        Lent::new(bound, 0, 0),
        endpoint.span().operation("bind", segment.length),
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
    let operation = Operation::new(Arc::clone(adapter), key);
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
    Refused(Arc<AdapterState>, Option<Failed<O>>),
    InFlight(Operation, RemoteSlice),
}

impl<O: Bindable> Binding<O> {
    /// Binds a range of memory for the peer of an endpoint.
    pub(crate) fn start(
        endpoint: &Arc<EndpointState>,
        owner: O,
        range: Result<(usize, usize)>,
        access: Access,
    ) -> Self {
        match bind(endpoint, owner, range, access) {
            Ok((operation, remote)) => Self::InFlight(operation, remote),
            Err(failed) => Self::Refused(Arc::clone(endpoint.adapter()), Some(failed)),
        }
    }

    pub(crate) const fn adapter(&self) -> &Arc<AdapterState> {
        match self {
            Self::Refused(adapter, _) => adapter,
            Self::InFlight(operation, _) => operation.adapter(),
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
    Done(Arc<AdapterState>, Option<O>),
    InFlight(Operation),
}

impl<O: Bindable> Revoking<O> {
    /// Unbinds; without a connection, frees the remote region instead.
    pub(crate) fn start(bound: Box<Bound<O>>) -> Self {
        let endpoint = Arc::clone(&bound.endpoint);
        let (adapter, ep, rmr) = (endpoint.adapter(), endpoint.id(), bound.rmr);
        let posted = adapter.post(
            Owner::Endpoint(ep),
            Lent::new(bound, 0, 0),
            endpoint.span().operation("unbind", 0),
            |interface, cookie| {
                let (segment, none) = (LmrTriplet::default(), MemoryPrivileges::empty());
                let flags = CompletionFlags::empty();
                interface
                    .rmr_bind(rmr, &segment, none, ep, cookie, flags)
                    .map(|_| ())
            },
        );
        match posted {
            Ok(key) => Self::InFlight(Operation::new(Arc::clone(adapter), key)),
            Err((_, Some(lent))) => {
                let owner = lent.take::<Bound<O>>().into_owner();
                Self::Done(Arc::clone(adapter), Some(owner))
            }
            Err((_, None)) => unreachable!("the table keeps memory until it is taken"),
        }
    }

    pub(crate) const fn adapter(&self) -> &Arc<AdapterState> {
        match self {
            Self::Done(adapter, _) => adapter,
            Self::InFlight(operation) => operation.adapter(),
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
