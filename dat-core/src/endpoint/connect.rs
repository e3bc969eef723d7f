//! Connecting to a peer.

use super::limits::check_quality;
use super::{Call, Trigger, not_ready, permit};
use crate::attributes::IaAddress;
use crate::backend::{Backend, ConnectRequest};
use crate::error::{Cause, Error, ErrorKind, Result, Subtype};
use crate::event::backend_refused;
use crate::flags::{ConnectFlags, QualityOfService};
use crate::ia::{Control, Ia};
use crate::id::EpId;
use crate::sync::RawLock;
use crate::time::Instant;

/// What `ep_connect` asks for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParam<'a> {
    /// The peer's adapter.
    pub address: IaAddress,
    /// The connection qualifier it listens on.
    pub qualifier: u64,
    /// Microseconds, at least 1; [`TIMEOUT_INFINITE`](crate::flags::TIMEOUT_INFINITE) for no limit.
    pub timeout: u32,
    /// For the peer's consumer, at most `max_private_data_size` bytes.
    pub private_data: &'a [u8],
    /// Quality of service.
    pub quality: QualityOfService,
    /// How to connect.
    pub flags: ConnectFlags,
}

/// Positions of the arguments in a connecting call.
struct Positions {
    timeout: u8,
    private_data: u8,
    quality: u8,
}

const CONNECT: Positions = Positions {
    timeout: 4,
    private_data: 5,
    quality: 7,
};
const FLAGS: u8 = 8;
const DUPLICATE: Positions = Positions {
    timeout: 3,
    private_data: 4,
    quality: 6,
};

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Starts a connection; the endpoint is ACTIVE_CONNECTION_PENDING until the answer arrives.
    ///
    /// ESTABLISHED, PEER_REJECTED, NON_PEER_REJECTED, UNREACHABLE or TIMED_OUT follows on the
    /// endpoint's connection dispatcher, found by `progress`. `now` is when the timeout starts.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): not UNCONNECTED. (EP_NOTREADY): the endpoint has no zone yet.
    /// - INVALID_PARAMETER (ARG4): timeout 0. (ARG5): too much private data. (ARG7): more than one, or an
    ///   unknown, quality of service. (ARG8): unknown flags.
    /// - INVALID_ADDRESS: no address of a peer, or not one of this fabric.
    /// - MODEL_NOT_SUPPORTED: quality of service or multipath.
    /// - INSUFFICIENT_RESOURCES (TEP), INTERNAL_ERROR: the device cannot.
    ///
    /// Spec: EPK-01..05, EPK-12, EPK-14, GEN-09, GEN-10, EPC-09
    pub fn ep_connect(&self, ep: EpId, param: &ConnectParam<'_>, now: Instant) -> Result<()> {
        self.control
            .with(|control| self.start_connection(control, ep, param, now, &CONNECT))?;
        // There may be an earlier deadline than whoever drives `progress` sleeps towards.
        self.wake_progress();
        Ok(())
    }

    /// As `ep_connect`, to where the connected endpoint `model` is connected.
    ///
    /// # Errors
    /// As `ep_connect` with INVALID_PARAMETER (ARG3) for the timeout, (ARG4) private data, (ARG6) quality; and
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
        self.control.with(|control| {
            self.with_endpoint(ep, |_, _| Ok(()))?;
            let (address, qualifier) = self.with_endpoint(model, |_, endpoint| {
                permit(Call::ConnectModel, endpoint.state)?;
                let peer = endpoint.link.remote.ok_or_else(not_ready)?;
                Ok((peer, endpoint.link.qualifier))
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

    fn start_connection(
        &self,
        control: &mut Control<'_, B>,
        ep: EpId,
        param: &ConnectParam<'_>,
        now: Instant,
        positions: &Positions,
    ) -> Result<()> {
        self.with_endpoint(ep, |_, endpoint| {
            permit(Call::Connect, endpoint.state)?;
            let key = endpoint.queue_pair.ok_or_else(not_ready)?;
            if param.timeout == 0 {
                return Err(Error::invalid_argument(positions.timeout).because(Cause::BadTimeout));
            }
            Self::check_private_data(control, param.private_data, positions.private_data)?;
            if ConnectFlags::from_bits(param.flags.bits()).is_none() {
                return Err(Error::invalid_argument(FLAGS).because(Cause::UnknownFlags));
            }
            let backend = control.backend()?;
            let provider = backend.provider_attributes();
            check_quality(param.quality, &provider, positions.quality)?;
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
            let link = &mut endpoint.link;
            link.clear();
            link.remote = Some(param.address);
            link.qualifier = param.qualifier;
            link.remote_port = param.qualifier;
            link.local_port = local_port;
            link.deadline = now.after(param.timeout);
            if link.deadline.is_some() {
                control.watch(link.deadline);
            }
            Ok(())
        })
    }
}

/// Refuses what cannot be the address of one peer on the fabric of `own` (EPK-05).
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
