//! Several operations of an endpoint that are posted together.

use std::fmt;
use std::sync::Arc;

use dat_core::endpoint::{BatchOperation, BatchRefused, BatchRequest};
use dat_core::flags::CompletionFlags;

use super::endpoint::{Endpoint, check_adapter, check_read, check_write};
use super::transfer::{Posted, Transfer};
use crate::error::Failed;
use crate::flight::{Operation, Owner};
use crate::memory::{Memory, MemoryMut, total};
use crate::remote::RemoteSlice;

/// Operations of an endpoint, posted in order and with one doorbell.
///
/// They act in this order, except that later ones may overtake an RDMA Read. So a batch with a read
/// has no message that lets the peer reuse the memory.
///
/// It saves a part of the cost of each post; over verbs it is one list and one system call at most.
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
/// # let zone = Adapter::open("mock://batch")?.zone()?;
/// # let (near, far) = connected(&zone)?;
/// # let window = zone.region(vec![0_u8; 64])?.expose(.., Access::WRITE).to(&far).wait()?;
/// # let remote = window.remote();
/// let receive = far.recv(zone.buffer(8)?);
/// let mut batch = near.batch();
/// batch.write(zone.copy(b"one")?, remote.slice(..3)?)?;
/// batch.write(zone.copy(b"two")?, remote.slice(3..6)?)?;
/// batch.send(zone.copy(b"done")?);
/// for transfer in batch.post() {
///     transfer.wait()?;
/// }
/// assert_eq!(&receive.wait()?.memory[..], b"done");
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is posted until `post` is called"]
pub struct Batch<'a, M: Memory> {
    endpoint: &'a Endpoint,
    requests: Vec<(BatchOperation, M)>,
}

impl<'a, M: Memory> Batch<'a, M> {
    pub(crate) const fn new(endpoint: &'a Endpoint) -> Self {
        Self {
            endpoint,
            requests: Vec::new(),
        }
    }

    /// Adds a Send, as [`Endpoint::send`].
    pub fn send(&mut self, memory: M) {
        self.requests.push((BatchOperation::Send, memory));
    }

    /// Adds an RDMA Write, as [`Endpoint::write`].
    ///
    /// # Errors
    /// Returns the memory, and PRIVILEGES_VIOLATION (`remote`): `remote` lacks
    /// [`Access::WRITE`](crate::Access::WRITE). The batch is unchanged.
    pub fn write(&mut self, memory: M, remote: RemoteSlice) -> Result<(), Failed<M>> {
        match check_write(remote) {
            Ok(()) => {
                let operation = BatchOperation::RdmaWrite(remote.triplet());
                self.requests.push((operation, memory));
                Ok(())
            }
            Err(error) => Err(Failed::new(error, memory)),
        }
    }

    /// Adds an RDMA Read, as [`Endpoint::read`].
    ///
    /// # Errors
    /// Returns the memory, and PRIVILEGES_VIOLATION (`remote`): `remote` lacks
    /// [`Access::READ`](crate::Access::READ). The batch is unchanged.
    pub fn read(&mut self, remote: RemoteSlice, memory: M) -> Result<(), Failed<M>>
    where
        M: MemoryMut,
    {
        match check_read(remote) {
            Ok(()) => {
                let operation = BatchOperation::RdmaRead(remote.triplet());
                self.requests.push((operation, memory));
                Ok(())
            }
            Err(error) => Err(Failed::new(error, memory)),
        }
    }

    /// Returns the number of operations.
    pub const fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns true if there are no operations.
    pub const fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Posts the operations; returns a future for each, in order.
    ///
    /// The first one that is refused ends the batch: the ones before it are posted, it and the ones
    /// after it end with its error and return their memory.
    ///
    /// # Errors
    /// Those of the operations, by their futures.
    pub fn post(self) -> Vec<Transfer<M>> {
        let adapter = self.endpoint.state().adapter();
        let ep = self.endpoint.id();
        let (owner, span) = (Owner::Endpoint(ep), self.endpoint.state().span());
        // Foreign memory is refused before the core could take its context for one of its own.
        let foreign = self
            .requests
            .iter()
            .position(|(_, memory)| check_adapter(adapter, memory).is_err());
        let mut requests = self.requests;
        let is_inherited = adapter.is_inherited();
        let posted = match is_inherited {
            true => 0,
            false => foreign.unwrap_or(requests.len()),
        };
        let rest = requests.split_off(posted);
        let segments: Vec<M::Segments> = requests
            .iter()
            .map(|(_, memory)| memory.segments())
            .collect();
        let operations: Vec<BatchOperation> =
            requests.iter().map(|(operation, _)| *operation).collect();
        let keys: Vec<_> = requests
            .into_iter()
            .zip(&segments)
            .map(|((operation, memory), segments)| {
                let span = span.operation(kind(operation), total(segments.as_ref()));
                adapter.table().insert(owner, memory.lend(), span)
            })
            .collect();
        let posts: Vec<_> = operations
            .iter()
            .zip(&segments)
            .zip(&keys)
            .map(|((operation, segments), key)| BatchRequest {
                operation: *operation,
                segments: segments.as_ref(),
                cookie: key.to_cookie(),
                flags: CompletionFlags::empty(),
            })
            .collect();
        let (posted, mut error) = match adapter.interface().post_batch(ep, &posts) {
            Ok(()) => (keys.len(), None),
            Err(BatchRefused { posted, error }) => (posted, Some(error)),
        };
        adapter.called();
        let mut transfers: Vec<Transfer<M>> = Vec::with_capacity(keys.len() + rest.len());
        for (number, key) in keys.into_iter().enumerate() {
            transfers.push(Transfer::new(match error {
                Some(error) if number >= posted => {
                    let Some(lent) = adapter.table().refuse(key, error) else {
                        unreachable!("the table keeps memory until it is taken");
                    };
                    let failed = Failed::new(error, M::take_back(lent));
                    Posted::Refused(Arc::clone(adapter), Some(failed))
                }
                _ => Posted::InFlight(Operation::new(Arc::clone(adapter), key)),
            }));
        }
        for (_, memory) in rest {
            let error = *error.get_or_insert_with(|| {
                // The first of the rest is the foreign one.
                check_adapter(adapter, &memory)
                    .err()
                    .unwrap_or(dat_core::Error::abort())
            });
            let failed = Some(Failed::new(error, memory));
            transfers.push(Transfer::new(Posted::Refused(Arc::clone(adapter), failed)));
        }
        transfers
    }
}

/// Returns the name of an operation in its span.
const fn kind(operation: BatchOperation) -> &'static str {
    match operation {
        BatchOperation::Send => "send",
        BatchOperation::RdmaWrite(_) => "write",
        BatchOperation::RdmaRead(_) => "read",
    }
}

impl<M: Memory> fmt::Debug for Batch<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("endpoint", &self.endpoint)
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}
