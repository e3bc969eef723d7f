//! Windows on memory that peers access.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll, ready};

use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::{LmrId, RmrId};
use dat_core::memory::LmrTriplet;
use dat_core::sync::{load_bytes, store_bytes};
use dat_core::{Cause, Error as CoreError, Parameter};

use crate::core::Core;
use crate::endpoint::{Endpoint, check_adapter};
use crate::error::{Error, Failed, Result};
use crate::link::Link;
use crate::memory::{Lent, Object, Region, Registered, Stable};
use crate::remote::{Access, RemoteSlice};
use crate::table::Owner;
use crate::transfer::Operation;
use crate::wait::blocking;

/// A remote region, and the memory that it may be bound to.
///
/// The remote region is freed first, always: so nobody has the memory while a peer can reach it.
struct Bound<B: Stable> {
    rmr: RmrId,
    start: usize,
    length: usize,
    /// Endpoint of the bind.
    link: Arc<Link>,
    /// `None` after `into_region`.
    registered: Option<Box<Registered<B>>>,
}

impl<B: Stable> Bound<B> {
    /// Ends all access of peers; returns the memory.
    fn into_region(mut self) -> Region<B> {
        self.free();
        match self.registered.take() {
            Some(registered) => Region::of(registered),
            None => unreachable!("only this function takes the memory"),
        }
    }

    fn free(&self) {
        // Fails only if the adapter is closed, which has freed it.
        let _ = self.link.core().interface().rmr_free(self.rmr);
    }

    fn atomics(&self) -> &[AtomicU8] {
        match &self.registered {
            Some(registered) => &registered.memory.atomics()[self.start..][..self.length],
            None => &[],
        }
    }
}

impl<B: Stable> Drop for Bound<B> {
    fn drop(&mut self) {
        if self.registered.is_some() {
            self.free();
        }
    }
}

impl<B: Stable> Object for Bound<B> {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn release(self: Box<Self>) {}
}

/// A region to expose; [`to`](Self::to) an endpoint completes the call.
#[must_use = "nothing happens until an endpoint is named"]
pub struct Exposing<B: Stable> {
    region: Region<B>,
    range: Result<(usize, usize)>,
    access: Access,
}

impl<B: Stable> Exposing<B> {
    pub(crate) const fn new(
        region: Region<B>,
        range: Result<(usize, usize)>,
        access: Access,
    ) -> Self {
        Self {
            region,
            range,
            access,
        }
    }

    /// Binds a window for the peer of `endpoint`, in order with its other operations.
    ///
    /// A device may grant access to peers of other endpoints of the zone, too.
    pub fn to(self, endpoint: &Endpoint) -> Expose<B> {
        let link = endpoint.link();
        let core = Arc::clone(link.core());
        Expose {
            state: match self.bind(link) {
                Ok((operation, remote)) => Binding::InFlight(operation, remote),
                Err(failed) => Binding::Refused(core, Some(failed)),
            },
        }
    }

    fn bind(self, link: &Arc<Link>) -> Result<(Operation, RemoteSlice), Failed<Region<B>>> {
        let Self {
            region,
            range,
            access,
        } = self;
        let core = link.core();
        if Access::from_bits(access.bits()).is_none() {
            let unknown = CoreError::invalid_argument(3)
                .about(Parameter::Privileges)
                .because(Cause::UnknownFlags);
            return Err(Failed::new(unknown, region));
        }
        let (start, length) = match range {
            Ok(range) => range,
            Err(error) => return Err(Failed::new(error, region)),
        };
        if length == 0 {
            // A bind of no bytes would be an unbind.
            let empty = CoreError::invalid_argument(2)
                .about(Parameter::Segment)
                .because(Cause::ZeroCount);
            return Err(Failed::new(empty, region));
        }
        if let Err(foreign) = check_adapter(core, &region) {
            return Err(Failed::new(foreign, region));
        }
        let rmr = match core.interface().rmr_create(link.domain().id()) {
            Ok(rmr) => rmr,
            Err(error) => return Err(Failed::new(error, region)),
        };
        let registered = region.into_registered();
        let segment = registered.segment(start, length);
        let bound = Box::new(Bound {
            rmr,
            start,
            length,
            link: Arc::clone(link),
            registered: Some(registered),
        });
        let mut context = 0;
        let ep = link.id();
        let posted = core.post(
            Owner::Endpoint(ep),
            Lent::new(bound, 0, 0),
            |interface, cookie| {
                let (privileges, flags) = (access.privileges(), CompletionFlags::empty());
                context = interface.rmr_bind(rmr, &segment, privileges, ep, cookie, flags)?;
                Ok(())
            },
        );
        let failed =
            |error: Error, lent: Lent| Failed::new(error, lent.take::<Bound<B>>().into_region());
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
}

impl<B: Stable> fmt::Debug for Exposing<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposing")
            .field("region", &self.region)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// A bind in flight: a future of the window. Dropping it frees region and window when it completes.
///
/// # Errors
/// Returns the region, to which no peer has access, and
/// - [`OutOfRange`](Error::OutOfRange): the range reaches outside of the region.
/// - [`Refused`](Error::Refused) INVALID_PARAMETER (`segment`): the range is empty.
/// - INVALID_PARAMETER (`privileges`): the rights have unknown bits.
/// - INVALID_STATE: the endpoint is not connected.
/// - PROTECTION_VIOLATION: region and endpoint are of different zones.
/// - INVALID_HANDLE: they are of different adapters, or the adapter is closed.
/// - INSUFFICIENT_RESOURCES: no remote region is left, or the endpoint has too many operations in
///   flight.
/// - MODEL_NOT_SUPPORTED: the device has no windows.
/// - [`Failed`](Error::Failed): the bind failed, or was flushed as the connection ended.
/// - [`Closed`](Error::Closed): the adapter was closed.
#[must_use = "the bind is posted, but nobody learns of its end"]
pub struct Expose<B: Stable> {
    state: Binding<B>,
}

enum Binding<B: Stable> {
    Refused(Arc<Core>, Option<Failed<Region<B>>>),
    InFlight(Operation, RemoteSlice),
}

impl<B: Stable> Expose<B> {
    const fn core(&self) -> &Arc<Core> {
        match &self.state {
            Binding::Refused(core, _) => core,
            Binding::InFlight(operation, _) => operation.core(),
        }
    }
}

impl<B: Stable> Future for Expose<B> {
    type Output = Result<Window<B>, Failed<Region<B>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            Binding::Refused(_, failed) => match failed.take() {
                Some(failed) => Poll::Ready(Err(failed)),
                None => panic!("polled after it was ready"),
            },
            Binding::InFlight(operation, remote) => {
                let (lent, result) = ready!(operation.poll(context));
                let bound = lent.take::<Bound<B>>();
                Poll::Ready(match result {
                    Ok(_) => Ok(Window {
                        bound,
                        remote: *remote,
                    }),
                    Err(error) => Err(Failed::new(error, bound.into_region())),
                })
            }
        }
    }
}

blocking!([B: Stable] Expose<B>);

impl<B: Stable> fmt::Debug for Expose<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expose").finish_non_exhaustive()
    }
}

/// Memory that peers access (RMR): no slices, only copies and atomics.
///
/// Offsets are those of [`remote`](Self::remote). [`revoke`](Self::revoke) ends the access and
/// returns the region. Dropping the window frees both at once; forgetting it keeps both until the
/// adapter is closed.
///
/// ```
/// # use dat_host::{Access, Adapter, Endpoint, Result};
/// # fn connected(zone: &dat_host::Zone) -> Result<(Endpoint, Endpoint)> {
/// #     let listener = zone.listen_with(None, 1)?;
/// #     let near = zone.connect((zone.address()?, listener.qualifier())).start();
/// #     let far = listener.next().wait()?.accept().wait()?;
/// #     Ok((near.wait()?, far))
/// # }
/// # fn main() -> Result<()> {
/// # let zone = Adapter::open("mock://window")?.zone()?;
/// # let (near, far) = connected(&zone)?;
/// let region = zone.region(vec![0_u8; 4096])?;
/// let window = region.expose(..1024, Access::WRITE).to(&far).wait()?;
/// near.write(zone.copy(b"data")?, window.remote()).wait()?;
/// let region = window.revoke().wait();
/// assert_eq!(&region[..4], b"data");
/// # Ok(())
/// # }
/// ```
///
/// The bytes cannot be borrowed as a slice:
///
/// ```compile_fail,E0608
/// # fn slice(window: dat_host::Window<Vec<u8>>) {
/// println!("{}", window[0]);
/// # }
/// ```
pub struct Window<B: Stable> {
    bound: Box<Bound<B>>,
    remote: RemoteSlice,
}

impl<B: Stable> Window<B> {
    /// Returns the value that gives a peer access.
    pub const fn remote(&self) -> RemoteSlice {
        self.remote
    }

    /// Returns the remote region of the core.
    pub const fn id(&self) -> RmrId {
        self.bound.rmr
    }

    /// Returns the local region of the core.
    pub fn region_id(&self) -> LmrId {
        match &self.bound.registered {
            Some(registered) => registered.id(),
            None => LmrId::NULL,
        }
    }

    /// Returns the exposed bytes as atomics, which peers change at any moment.
    ///
    /// A device may write them in any order. A message that the peer sends after its write tells
    /// that the write has arrived.
    pub fn atomics(&self) -> &[AtomicU8] {
        self.bound.atomics()
    }

    /// Returns the number of exposed bytes.
    pub fn len(&self) -> usize {
        self.bound.length
    }

    /// Returns true if no byte is exposed, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out, from `offset` on; all of `into`.
    ///
    /// # Errors
    /// [`OutOfRange`](Error::OutOfRange): the window has fewer bytes. Nothing is copied.
    pub fn load(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let from = self.range(offset, into.len())?;
        load_bytes(from, into);
        Ok(())
    }

    /// Copies bytes in, to `offset`; all of `from`.
    ///
    /// # Errors
    /// [`OutOfRange`](Error::OutOfRange): the window has fewer bytes. Nothing is copied.
    pub fn store(&self, offset: usize, from: &[u8]) -> Result<()> {
        let into = self.range(offset, from.len())?;
        store_bytes(into, from);
        Ok(())
    }

    fn range(&self, offset: usize, length: usize) -> Result<&[AtomicU8]> {
        let end = offset.saturating_add(length);
        self.atomics()
            .get(offset..end)
            .ok_or_else(|| Error::OutOfRange {
                start: offset as u64,
                end: end as u64,
                length: self.len() as u64,
            })
    }

    /// Ends the access of peers; a future of the region.
    ///
    /// The unbind comes after the operations that the endpoint has in flight. Without a connection,
    /// and if the unbind is flushed, the window is freed instead: it ends in any case.
    pub fn revoke(self) -> Revoke<B> {
        let link = Arc::clone(&self.bound.link);
        let (core, ep, rmr) = (link.core(), link.id(), self.bound.rmr);
        let posted = core.post(
            Owner::Endpoint(ep),
            Lent::new(self.bound, 0, 0),
            |interface, cookie| {
                let (segment, none) = (LmrTriplet::default(), MemoryPrivileges::empty());
                let flags = CompletionFlags::empty();
                interface
                    .rmr_bind(rmr, &segment, none, ep, cookie, flags)
                    .map(|_| ())
            },
        );
        Revoke {
            state: match posted {
                Ok(key) => Revoking::InFlight(Operation::new(Arc::clone(core), key)),
                Err((_, Some(lent))) => {
                    let region = lent.take::<Bound<B>>().into_region();
                    Revoking::Done(Arc::clone(core), Some(region))
                }
                Err((_, None)) => unreachable!("the table keeps memory until it is taken"),
            },
        }
    }
}

impl<B: Stable> fmt::Debug for Window<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("id", &self.id())
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// An unbind in flight: a future of the region. Dropping it frees the region when it completes.
#[must_use = "the unbind is posted, but nobody gets the region"]
pub struct Revoke<B: Stable> {
    state: Revoking<B>,
}

enum Revoking<B: Stable> {
    Done(Arc<Core>, Option<Region<B>>),
    InFlight(Operation),
}

impl<B: Stable> Revoke<B> {
    const fn core(&self) -> &Arc<Core> {
        match &self.state {
            Revoking::Done(core, _) => core,
            Revoking::InFlight(operation) => operation.core(),
        }
    }
}

impl<B: Stable> Future for Revoke<B> {
    type Output = Region<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            Revoking::Done(_, region) => match region.take() {
                Some(region) => Poll::Ready(region),
                None => panic!("polled after it was ready"),
            },
            Revoking::InFlight(operation) => {
                // However the unbind ended, the window is freed.
                let (lent, _) = ready!(operation.poll(context));
                Poll::Ready(lent.take::<Bound<B>>().into_region())
            }
        }
    }
}

blocking!([B: Stable] Revoke<B>);

impl<B: Stable> fmt::Debug for Revoke<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revoke").finish_non_exhaustive()
    }
}
