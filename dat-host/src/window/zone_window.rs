//! Windows of a zone: memory that peers access by the context of the region itself.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use dat_core::backend::SyncDirection;
use dat_core::id::LmrId;

use super::exposed::Exposed;
use crate::connection::Zone;
use crate::error::{Failed, Result};
use crate::memory::{Domain, Registered, Stable, copies};
use crate::remote::{Access, RemoteSlice, resolve_range};

impl Zone {
    /// Registers the memory of `value` and opens it to the peers of all endpoints of the zone.
    ///
    /// [`remote()`](ZoneWindow::remote) is known before there is a connection, so it can be sent in
    /// the private data of one.
    ///
    /// A peer that guesses the value has access, too. Memory that all clients may read belongs into
    /// one zone, with [`Access::READ`]. Memory that only one client may touch belongs into a zone
    /// of its own, with its own listener, or with an endpoint for
    /// [`Accepting::start_on`](crate::Accepting::start_on). Endpoints of a zone may use a
    /// [`SharedReceive`](crate::SharedReceive) of another one, except on soft-RoCE of a kernel
    /// (`verbs://rxe0`).
    ///
    /// # Errors
    /// Returns the value, with the errors of [`region`](Self::region), and INVALID_PARAMETER
    /// (`privileges`): `access` has unknown bits.
    pub fn window<B: Stable>(&self, value: B, access: Access) -> Result<ZoneWindow<B>, Failed<B>> {
        ZoneWindow::new(&self.domain, value, access)
    }
}

/// Memory that the peers of all endpoints of a zone access: no slices, only copies and atomics.
///
/// Unlike a [`Window`](crate::Window) it needs no connection, so its [`remote`](Self::remote) may
/// be private data of one. The [table of windows](crate#windows) compares the kinds. The access
/// lasts until the value is dropped, or closed ([`into_inner`](Self::into_inner)); forgetting it
/// keeps the memory until the adapter is closed.
///
/// ```
/// # fn main() -> dat_host::Result<()> {
/// # let near = dat_host::Adapter::open("mock://zone-window-near")?.zone()?;
/// # let far = dat_host::Adapter::open("mock://zone-window-far")?.zone()?;
/// use dat_host::{Access, RemoteSlice};
///
/// let listener = far.listen(7174)?;
/// let client = near.connect("zone-window-far:7174").start();
/// let window = far.window(vec![0_u8; 64], Access::WRITE)?;
/// let access = window.remote().to_bytes();
/// let server = listener.next().wait()?.accept().private_data(&access).wait()?;
/// let client = client.wait()?;
/// let data = client.private_data();
/// let remote = RemoteSlice::from_bytes(&data[..RemoteSlice::ENCODED])?;
/// client.write(near.copy(b"hello")?, remote).wait()?;
/// # drop(server);
/// assert_eq!(&window.into_inner()[..5], b"hello");
/// # Ok(())
/// # }
/// ```
pub struct ZoneWindow<B: Stable> {
    registered: Box<Registered<B>>,
    remote: RemoteSlice,
}

impl<B: Stable> ZoneWindow<B> {
    pub(crate) fn new(domain: &Arc<Domain>, value: B, access: Access) -> Result<Self, Failed<B>> {
        let registered = Registered::for_peers(domain, value, access)?;
        let memory = registered.segment(0, registered.memory.len());
        // Before a peer can know the context.
        domain.adapter().synchronise_both(memory);
        let context = registered.remote_context();
        match RemoteSlice::new(context, memory.address, memory.length, access) {
            Ok(remote) => Ok(Self { registered, remote }),
            // The rights are known, and the core has checked the range.
            Err(_) => unreachable!("a registered range is inside of the address space"),
        }
    }

    /// Returns the value that gives a peer access.
    pub const fn remote(&self) -> RemoteSlice {
        self.remote
    }

    /// Returns the local region of the core.
    pub fn id(&self) -> LmrId {
        self.registered.id()
    }

    /// Returns the bytes as atomics, which peers change at any moment.
    ///
    /// A device may write them in any order. A message that the peer sends after its write tells
    /// that the write has arrived.
    ///
    /// Where the adapter has `lmr_sync_req`, accesses to them need
    /// [`sync_rdma_read`](crate::Adapter::sync_rdma_read) and
    /// [`sync_rdma_write`](crate::Adapter::sync_rdma_write); [`load`](Self::load) and
    /// [`store`](Self::store) do without.
    pub fn atomics(&self) -> &[AtomicU8] {
        self.registered.memory.atomics()
    }

    /// Returns a range to synchronise, for programs that use the [atomics](Self::atomics).
    ///
    /// # Errors
    /// [`OutOfRange`](crate::Error::OutOfRange): the range reaches outside of the window.
    pub fn exposed(&self, range: impl RangeBounds<usize>) -> Result<Exposed<'_>> {
        let (start, length) = resolve_range(range, self.len())?;
        let segment = self.registered.segment(start, length);
        Ok(Exposed::new(self.registered.domain().adapter(), segment))
    }

    #[inline]
    fn synchronise(&self, direction: SyncDirection, offset: usize, length: usize) {
        self.registered.synchronise(direction, offset, length);
    }

    /// Ends the access of peers, at once; returns the owner of the memory.
    ///
    /// Later operations of peers break their connections.
    ///
    /// # Panics
    /// As [`Region::into_inner`](crate::Region::into_inner).
    pub fn into_inner(self) -> B {
        self.synchronise(SyncDirection::RdmaWrite, 0, self.len());
        match self.registered.into_value() {
            Some(value) => value,
            None => panic!("a remote region is bound to the region by the core's own calls"),
        }
    }
}

copies!([B: Stable] ZoneWindow<B>);

impl<B: Stable> fmt::Debug for ZoneWindow<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZoneWindow")
            .field("id", &self.id())
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}
