//! Connects endpoints to peers and ends connections.

use super::limits::check_quality;
use super::{Call, Ending, Legal, Trigger, not_ready, permit};
use crate::adapter::{Control, Ia};
use crate::attributes::IaAddress;
use crate::backend::{Backend, ConnectRequest, DisconnectMode, backend_refused};
use crate::error::{Cause, Error, ErrorKind, Parameter, Result, Subtype};
use crate::event::{ConnectionEventKind, Deferred};
use crate::flags::{CloseFlags, ConnectFlags, QualityOfService};
use crate::id::EpId;
use crate::sync::RawLock;
use crate::time::Instant;

/// Parameters of `ep_connect`.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParam<'a> {
    /// Address of the peer's adapter.
    pub address: IaAddress,
    /// Connection qualifier that the peer listens on.
    pub qualifier: u64,
    /// Timeout in microseconds, at least 1; [`TIMEOUT_INFINITE`](crate::flags::TIMEOUT_INFINITE)
    /// for no limit.
    pub timeout: u32,
    /// Private data for the peer's consumer, at most `max_private_data_size` bytes.
    pub private_data: &'a [u8],
    /// Quality of service.
    pub quality: QualityOfService,
    /// Connection flags.
    pub flags: ConnectFlags,
}

/// Errors of the arguments in a connecting call.
struct Invalid {
    timeout: Error,
    private_data: Error,
    quality: Error,
}

impl Invalid {
    const fn at(timeout: u8, private_data: u8, quality: u8) -> Self {
        Self {
            timeout: Error::invalid_argument(timeout).about(Parameter::Timeout),
            private_data: Error::invalid_argument(private_data).about(Parameter::PrivateData),
            quality: Error::invalid_argument(quality).about(Parameter::Quality),
        }
    }
}

const CONNECT: Invalid = Invalid::at(4, 5, 7);
const FLAGS: Error = Error::invalid_argument(8).about(Parameter::Flags);
const DUPLICATE: Invalid = Invalid::at(3, 4, 6);

/// # Connections
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Starts a connection; the endpoint is ACTIVE_CONNECTION_PENDING until the answer arrives.
    ///
    /// Later, `progress` queues ESTABLISHED, PEER_REJECTED, NON_PEER_REJECTED, UNREACHABLE or
    /// TIMED_OUT on the endpoint's connection dispatcher. The timeout starts at `now`.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): the endpoint is not UNCONNECTED.
    /// - INVALID_STATE (EP_NOTREADY): the endpoint has no queue pair, as its zone is missing.
    /// - INVALID_PARAMETER (ARG4): the timeout is 0.
    /// - INVALID_PARAMETER (ARG5): the private data is too long.
    /// - INVALID_PARAMETER (ARG7): the quality of service is unknown or more than one.
    /// - INVALID_PARAMETER (ARG8): the flags are unknown.
    /// - INVALID_ADDRESS: the address is not that of one peer on this fabric.
    /// - MODEL_NOT_SUPPORTED: the provider lacks the quality of service or multipath.
    /// - INSUFFICIENT_RESOURCES (TEP), INTERNAL_ERROR: the device refused.
    ///
    /// Spec: EPK-01..05, EPK-12, EPK-14, GEN-09, GEN-10, EPC-09
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { apart(|fabric, a, b| {
    /// # b.ia.psp_create(7, b.evd, PspFlags::Consumer)?;
    /// # let (ia, ep, evd) = (&a.ia, a.ep, a.evd);
    /// let request = ConnectParam {
    ///     address: IaAddress::Node(2),
    ///     qualifier: 7,
    ///     timeout: TIMEOUT_INFINITE,
    ///     private_data: b"hello",
    ///     quality: QualityOfService::BEST_EFFORT,
    ///     flags: ConnectFlags::empty(),
    /// };
    /// ia.ep_connect(ep, &request, fabric.now())?;
    /// # let Event::ConnectionRequest { cr, .. } = b.next(fabric)? else { panic!("no request") };
    /// # b.ia.cr_accept(cr, Some(b.ep), b"")?;
    /// fabric.run_until_idle(100); // the peer accepts meanwhile
    ///
    /// ia.progress(fabric.now());
    /// let Event::Connection { kind, .. } = ia.evd_dequeue(evd)? else {
    ///     panic!("no answer");
    /// };
    /// assert_eq!(kind, ConnectionEventKind::Established);
    /// # Ok(()) }) }
    /// ```
    pub fn ep_connect(&self, ep: EpId, param: &ConnectParam<'_>, now: Instant) -> Result<()> {
        self.controlled(|control| self.start_connection(control, ep, param, now, &CONNECT))?;
        // The thread that drives `progress` may sleep towards a later deadline.
        self.wake_progress();
        Ok(())
    }

    /// As `ep_connect`, to the peer of the connected endpoint `model`.
    ///
    /// # Errors
    /// As `ep_connect`, with INVALID_PARAMETER (ARG3) for the timeout, (ARG4) for the private data
    /// and (ARG6) for the quality; and
    /// - INVALID_HANDLE (EP): `model` is not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): `model` is not CONNECTED.
    ///
    /// Spec: EPU-01..03
    pub fn ep_dup_connect(
        &self,
        ep: EpId,
        model: EpId,
        timeout: u32,
        private_data: &[u8],
        quality: QualityOfService,
        now: Instant,
    ) -> Result<()> {
        self.controlled(|control| {
            self.with_endpoint(ep, |_, _| Ok(()))?;
            let (address, qualifier) = self.with_endpoint(model, |_, endpoint| {
                permit(Call::ConnectModel, endpoint.state)?;
                let peer = endpoint.connection.remote.ok_or_else(not_ready)?;
                Ok((peer, endpoint.connection.qualifier))
            })?;
            let param = ConnectParam {
                address,
                qualifier,
                timeout,
                private_data,
                quality,
                flags: ConnectFlags::empty(),
            };
            self.start_connection(control, ep, &param, now, &DUPLICATE)
        })?;
        self.wake_progress();
        Ok(())
    }

    /// Ends a connection or aborts a connection attempt.
    ///
    /// An abrupt disconnect leaves the endpoint DISCONNECTED on return; outstanding work completes,
    /// flushed unless it was done. A graceful one leaves a CONNECTED endpoint DISCONNECT_PENDING
    /// until `progress` finds all requests complete. It aborts an attempt as an abrupt one does and
    /// changes nothing if the endpoint is DISCONNECT_PENDING. DISCONNECTED is queued on the
    /// connection dispatcher, after the successful completions that share it.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): the endpoint is UNCONNECTED or RESERVED, or a passive or
    ///   tentative connection is pending.
    ///
    /// Spec: EPD-01..10
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { connected(|fabric, a, b| {
    /// # let (ia, ep, evd) = (&a.ia, a.ep, a.evd);
    /// ia.ep_disconnect(ep, CloseFlags::Graceful)?;
    /// let Event::Connection { kind, .. } = ia.evd_dequeue(evd)? else {
    ///     panic!("no end");
    /// };
    /// assert_eq!(kind, ConnectionEventKind::Disconnected);
    /// # Ok(()) }) }
    /// ```
    pub fn ep_disconnect(&self, ep: EpId, flags: CloseFlags) -> Result<()> {
        let call = match flags {
            CloseFlags::Abrupt => Call::DisconnectAbrupt,
            CloseFlags::Graceful => Call::DisconnectGraceful,
        };
        let mut deferred = Deferred::default();
        let drains = self.controlled(|control| {
            self.with_parked_endpoint(ep, |slot, endpoint| {
                match (permit(call, endpoint.state)?, call) {
                    (Legal::NoOp, _) => Ok(false),
                    (Legal::Yes, Call::DisconnectGraceful) => {
                        control.watch.add(slot, ep.slot(), None);
                        Ok(endpoint.step(Trigger::Drain))
                    }
                    _ => {
                        let ending = Ending {
                            trigger: Trigger::DisconnectAbruptly,
                            mode: Some(DisconnectMode::Abrupt),
                            kind: ConnectionEventKind::Disconnected,
                        };
                        self.end_connection(control, endpoint, ending, &mut deferred);
                        Ok(false)
                    }
                }
            })
        });
        self.run_deferred(&mut deferred);
        if drains? {
            // Usually no request is outstanding; otherwise, `progress` retries.
            self.drain(ep);
        }
        Ok(())
    }

    fn start_connection(
        &self,
        control: &mut Control<'_, B>,
        ep: EpId,
        param: &ConnectParam<'_>,
        now: Instant,
        invalid: &Invalid,
    ) -> Result<()> {
        self.with_parked_endpoint(ep, |slot, endpoint| {
            permit(Call::Connect, endpoint.state)?;
            let key = endpoint.queue_pair.ok_or_else(not_ready)?;
            if param.timeout == 0 {
                return Err(invalid.timeout.because(Cause::BadTimeout));
            }
            Self::check_private_data(control, param.private_data, invalid.private_data)?;
            if ConnectFlags::from_bits(param.flags.bits()).is_none() {
                return Err(FLAGS.because(Cause::UnknownFlags));
            }
            let backend = control.backend()?;
            let provider = backend.provider_attributes();
            check_quality(param.quality, &provider, invalid.quality)?;
            if param.flags.contains(ConnectFlags::MULTIPATH) && !provider.supports_multipath {
                return Err(Error::model_not_supported().because(Cause::Unsupported));
            }
            check_address(param.address, backend.ia_attributes().ia_address)?;
            let request = ConnectRequest {
                address: param.address,
                qualifier: param.qualifier,
                private_data: param.private_data,
                quality: param.quality,
            };
            let local_port = backend
                .connect(key, &request)
                .map_err(|error| backend_refused(error, Subtype::ResourceTep))?;
            endpoint.step(Trigger::Connect);
            let connection = &mut endpoint.connection;
            connection.clear();
            connection.remote = Some(param.address);
            connection.qualifier = param.qualifier;
            connection.remote_port = param.qualifier;
            connection.local_port = local_port;
            connection.deadline = now.after(param.timeout);
            if connection.deadline.is_some() {
                control.watch.add(slot, ep.slot(), connection.deadline);
            }
            Ok(())
        })
    }
}

/// Refuses an address that cannot be one peer on the fabric of `own` (EPK-05).
fn check_address(peer: IaAddress, own: IaAddress) -> Result<()> {
    let refused = |subtype| Err(Error::new(ErrorKind::InvalidAddress, subtype));
    let node = |address| matches!(address, IaAddress::Node(_));
    if node(peer) != node(own) {
        return refused(Subtype::InvalidAddressUnsupported);
    }
    match peer.socket_address() {
        Some(address) if address.ip().is_unspecified() || address.ip().is_multicast() => {
            refused(Subtype::InvalidAddressMalformed)
        }
        _ => Ok(()),
    }
}
