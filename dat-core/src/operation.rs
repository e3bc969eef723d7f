//! Operations of requests and receives.

/// Operation of a completed data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DtoOperation {
    /// A Send.
    Send,
    /// An RDMA Write.
    RdmaWrite,
    /// An RDMA Read.
    RdmaRead,
    /// A Receive, from the endpoint's queue or a shared one.
    Receive,
}

/// Extended operation of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ExtendedOperation {
    /// An RDMA Write that also delivers an immediate value.
    WriteImmediate,
    /// An atomic addition at the peer.
    FetchAndAdd,
    /// An atomic compare and swap at the peer.
    CompareAndSwap,
    /// A receive that an RDMA Write of the peer completed; its buffer has no data.
    ReceiveImmediate {
        /// Immediate value of the write.
        immediate: u32,
    },
}
