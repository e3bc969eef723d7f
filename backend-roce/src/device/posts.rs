//! Requests of a device, and how they are posted.

use dat_core::backend::{BindRequest, RegionKeys, RemoteRange, Segment, SendFlags, WindowKey};
use dat_core::flags::MemoryPrivileges;
use dat_queues::{Change, Request, Segments, Work};

use crate::adapter::{Adapter, Beside, Opening, Receiver, RemoteRights, SEGMENTS, SendEntry};
use crate::proto::PathMtu;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message, with immediate data or without.
    Send(Option<u32>),
    /// A message that invalidates a key of the peer.
    SendInvalidate(u32),
    /// An RDMA Write, with immediate data or without.
    Write(RemoteRange, Option<u32>),
    /// An RDMA Read.
    Read(RemoteRange),
    /// Adds a number to 8 bytes of the peer.
    FetchAdd(RemoteRange, u64),
    /// Replaces 8 bytes of the peer if they are what is expected.
    CompareSwap {
        /// The 8 bytes.
        remote: RemoteRange,
        /// The expected number.
        compare: u64,
        /// The new number.
        swap: u64,
    },
    /// Binds a window of type 2 to a key with the upper bits of its first one.
    ///
    /// It has no data, and the range is not empty.
    Bind(Binding, u32),
    /// Invalidates the key of a window of type 2. It has no data.
    Invalidate(u32),
}

/// The range of a region that a window opens to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The window.
    pub window: WindowKey,
    /// Key of the region.
    pub region: u32,
    /// Address of the first byte, in requests.
    pub address: u64,
    /// Bytes; without any, a window of type 1 is only unbound.
    pub length: u64,
    /// Rights of peers, beside those of their queue pair.
    pub rights: RemoteRights,
    /// Set if peers name the first byte by the address 0, and not by `address`.
    pub is_zero_based: bool,
}

/// Local data of a request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Segments of regions.
    Segments(&'a [Segment]),
    /// Bytes that are copied at once.
    Inline(&'a [&'a [u8]]),
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// Names the request in its completion.
    pub token: u64,
    /// Operation.
    pub operation: Operation,
    /// Local data.
    pub data: Data<'a>,
    /// Receiver of a datagram.
    pub receiver: Option<Receiver>,
    /// Set if no completion reports a success.
    pub silent: bool,
    /// Set if it waits for earlier Reads and atomics.
    pub fence: bool,
    /// Set if the completion of the peer is solicited.
    pub solicited: bool,
}

/// A request that binds a memory window of type 1.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// Names the request in its completion.
    pub token: u64,
    /// The window and its range.
    pub binding: Binding,
    /// Set if no completion reports a success.
    pub silent: bool,
    /// Set if it waits for earlier Reads and atomics.
    pub fence: bool,
}

/// Reason why a request or a receive is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue pair takes none in its state, or does not exist.
    State,
    /// The queue is full, or there is no memory.
    Full,
    /// It has too many segments, too much inline data, or data that it cannot have.
    Invalid,
}

/// Requests on their way to a queue pair; its adapter is locked.
pub struct Posts<'a> {
    pub(super) adapter: &'a mut Adapter,
    pub(super) key: usize,
}

impl Posts<'_> {
    /// Returns how many requests have room.
    #[must_use]
    pub fn room(&self) -> usize {
        let pair = self.adapter.pairs.get(self.key);
        pair.map_or(0, |pair| {
            pair.setup.request_depth.saturating_sub(pair.posted())
        })
    }

    /// Posts a request.
    ///
    /// # Errors
    /// The request is not taken: [`PostError::Full`], [`PostError::Invalid`].
    pub fn post(&mut self, post: &Post<'_>) -> Result<(), PostError> {
        let pair = self.adapter.pairs.get(self.key).ok_or(PostError::State)?;
        let (longest, is_datagram) = (pair.longest_inline(), pair.datagrams.is_some());
        let has_receiver = post.receiver.is_some();
        let sends_only = matches!(post.operation, Operation::Send(_));
        if is_datagram != has_receiver || is_datagram && !sends_only {
            return Err(PostError::Invalid);
        }
        let (segments, inline) = match post.data {
            Data::Segments(segments) => (taken(segments)?, None),
            Data::Inline(parts) => {
                let lengths = parts.iter().map(|part| part.len());
                let length = lengths.fold(0, usize::saturating_add);
                if length > longest || !post.operation.may_be_inline() {
                    return Err(PostError::Invalid);
                }
                (Segments::new(), Some(parts))
            }
        };
        let mut beside = Beside::Nothing;
        let work = match post.operation {
            Operation::Send(number) => {
                beside = number.map_or(Beside::Nothing, Beside::Immediate);
                Work::Send
            }
            Operation::SendInvalidate(key) => {
                beside = Beside::Invalidate(key);
                Work::Send
            }
            Operation::Write(at, None) => Work::Write(at),
            Operation::Write(at, Some(number)) => Work::WriteImmediate(at, number),
            Operation::Read(at) => Work::Read(at),
            Operation::FetchAdd(at, add) => Work::Atomic(at, Change::Add(add)),
            Operation::CompareSwap {
                remote,
                compare,
                swap,
            } => Work::Atomic(remote, Change::Swap { compare, swap }),
            Operation::Bind(..) | Operation::Invalidate(_) if !segments.is_empty() => {
                return Err(PostError::Invalid);
            }
            Operation::Bind(binding, _) if binding.length == 0 => return Err(PostError::Invalid),
            Operation::Bind(binding, key) => {
                beside = Beside::Opening(binding.opening(true));
                Work::Bind(binding.request(post.token, post.fence), key)
            }
            Operation::Invalidate(key) => {
                beside = Beside::Opening(Binding::NONE.opening(true));
                Work::Bind(Binding::NONE.request(post.token, post.fence), key)
            }
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, post.fence);
        flags.set(SendFlags::SOLICITED, post.solicited);
        let mut request = Request::new(post.token, work, flags, segments);
        let lengths = request.segments.iter().map(|segment| segment.length);
        request.length = lengths.fold(0, u32::saturating_add);
        let entry = SendEntry {
            is_silent: post.silent,
            beside,
            ..SendEntry::from(request)
        };
        let inline_length = inline.map_or(0, |parts| parts.iter().map(|part| part.len()).sum());
        let length = inline_length.max(entry.request.length as usize);
        if is_datagram && length > PathMtu::Bytes4096.bytes() as usize {
            return Err(PostError::Invalid);
        }
        let (adapter, receiver) = (&mut *self.adapter, post.receiver);
        let is_taken = adapter.post_attached(self.key, entry, inline, receiver);
        is_taken.then_some(()).ok_or(PostError::Full)
    }

    /// Posts a bind of a window of type 1; returns the key that the window then has.
    ///
    /// The former key is invalid once the request is carried out.
    ///
    /// # Errors
    /// - [`PostError::Full`]: also if there is no such window of type 1, or no key is left.
    /// - [`PostError::Invalid`]: the queue pair is for datagrams.
    pub fn bind(&mut self, bind: &Bind) -> Result<u32, PostError> {
        let pair = self.adapter.pairs.get(self.key).ok_or(PostError::State)?;
        if pair.datagrams.is_some() {
            return Err(PostError::Invalid);
        }
        let memories = &mut self.adapter.memories;
        let Bind { token, binding, .. } = *bind;
        let key = memories.begin_bind(binding.window.0);
        let key = key.ok_or(PostError::Full)?;
        let request = binding.request(token, bind.fence);
        let work = Work::Bind(request, key);
        let entry = SendEntry {
            is_silent: bind.silent,
            beside: Beside::Opening(binding.opening(false)),
            ..SendEntry::from(Request::new(token, work, request.flags, Segments::new()))
        };
        if self.adapter.post_attached(self.key, entry, None, None) {
            return Ok(key);
        }
        self.adapter.memories.cancel_bind(key);
        Err(PostError::Full)
    }
}

impl Operation {
    /// Returns true if it may bring its data itself.
    #[must_use]
    pub const fn may_be_inline(&self) -> bool {
        matches!(
            self,
            Self::Send(_) | Self::SendInvalidate(_) | Self::Write(..)
        )
    }
}

impl Binding {
    /// No window, and no range.
    const NONE: Self = Self {
        window: WindowKey(usize::MAX),
        region: 0,
        address: 0,
        length: 0,
        rights: RemoteRights {
            read: false,
            write: false,
            atomic: false,
        },
        is_zero_based: false,
    };

    const fn opening(&self, is_type_2: bool) -> Opening {
        Opening {
            is_type_2,
            atomics: self.rights.atomic,
            is_zero_based: self.is_zero_based,
        }
    }

    /// Returns the request of the core.
    fn request(&self, token: u64, fence: bool) -> BindRequest {
        let mut privileges = MemoryPrivileges::empty();
        privileges.set(MemoryPrivileges::REMOTE_READ, self.rights.read);
        privileges.set(MemoryPrivileges::REMOTE_WRITE, self.rights.write);
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, fence);
        BindRequest {
            token,
            window: self.window,
            region: RegionKeys {
                object: 0,
                local: self.region,
                remote: self.region,
            },
            address: self.address,
            length: self.length,
            privileges,
            flags,
            is_only: false,
        }
    }
}

/// Copies segments; those without bytes need no key.
pub(super) fn taken(segments: &[Segment]) -> Result<Segments, PostError> {
    let mut list = Segments::new();
    if segments.len() > SEGMENTS {
        return Err(PostError::Invalid);
    }
    let has_room = list.try_reserve(segments.len());
    has_room.map_err(|_| PostError::Full)?;
    list.extend(segments.iter().copied().filter(|part| part.length > 0));
    Ok(list)
}
