//! Endpoints: creation, changes and queries.

use dat_core::Error;
use dat_core::attributes::{EpAttributes, IaAddress, IaAttributes};
use dat_core::endpoint::EpParam;
use dat_core::flags::{
    CompletionFlags, EndpointState, EpFields, HandleKind, IaFields, ProviderFields,
    QualityOfService, ServiceType,
};
use dat_core::id::{EpId, EvdId, Handle, PzId, SrqId};

use super::edition::{Edition, Length};
use super::result::{Code, adapter, adapter_of, sheltered};
use crate::adapter::{Adapter, with_device};
use crate::boundary::{self, In, Out, SocketAddress, lent};
use crate::handles::CHandle;

fn evd_of(evd: CHandle) -> Option<EvdId> {
    evd.named_or_none().map(EvdId::from_handle)
}

fn pz_of(pz: CHandle) -> Option<PzId> {
    pz.named_or_none().map(PzId::from_handle)
}

/// Converts attributes for the core; `position` is that of the argument.
fn attributes_of<E: Edition>(
    given: &boundary::EpAttributes<E>,
    position: u8,
) -> Result<EpAttributes, Error> {
    Ok(EpAttributes {
        service_type: ServiceType::try_from(given.service_type)
            .map_err(|unknown| unknown.in_argument(position))?,
        max_message_size: given.max_message_size.into(),
        max_rdma_size: given.max_rdma_size.into(),
        qos: QualityOfService::from_bits_retain(given.qos),
        recv_completion_flags: CompletionFlags::from_bits_retain(given.recv_completion_flags),
        request_completion_flags: CompletionFlags::from_bits_retain(given.request_completion_flags),
        max_recv_dtos: given.max_recv_dtos,
        max_request_dtos: given.max_request_dtos,
        max_recv_iov: given.max_recv_iov,
        max_request_iov: given.max_request_iov,
        max_rdma_read_in: given.max_rdma_read_in,
        max_rdma_read_out: given.max_rdma_read_out,
        srq_soft_hw: given.srq_soft_hw,
        max_rdma_read_iov: given.max_rdma_read_iov,
        max_rdma_write_iov: given.max_rdma_write_iov,
    })
}

fn c_attributes<E: Edition>(queried: &EpAttributes) -> boundary::EpAttributes<E> {
    boundary::EpAttributes {
        service_type: queried.service_type.value(),
        max_message_size: E::Length::of(queried.max_message_size),
        max_rdma_size: E::Length::of(queried.max_rdma_size),
        qos: queried.qos.bits(),
        recv_completion_flags: queried.recv_completion_flags.bits(),
        request_completion_flags: queried.request_completion_flags.bits(),
        max_recv_dtos: queried.max_recv_dtos,
        max_request_dtos: queried.max_request_dtos,
        max_recv_iov: queried.max_recv_iov,
        max_request_iov: queried.max_request_iov,
        max_rdma_read_in: queried.max_rdma_read_in,
        max_rdma_read_out: queried.max_rdma_read_out,
        srq_soft_hw: queried.srq_soft_hw,
        max_rdma_read_iov: queried.max_rdma_read_iov,
        max_rdma_write_iov: queried.max_rdma_write_iov,
        // Transports and providers define no attributes.
        ..boundary::EpAttributes::zeroed()
    }
}

/// Concurrent RDMA Reads in each direction, for endpoints that are made without attributes.
const READS: i32 = 16;

fn limits_of(adapter: &Adapter) -> Result<IaAttributes, Error> {
    let queried = with_device!(adapter, opened => {
        opened.ia.ia_query(IaFields::empty(), ProviderFields::empty())
    })?;
    Ok(queried.ia)
}

/// Returns the attributes of an endpoint that is made without any.
///
/// Programs post RDMA Reads to such endpoints, though EPC-10 does not promise that these are
/// allowed.
fn defaults(adapter: &Adapter) -> Result<EpAttributes, Error> {
    let limits = limits_of(adapter)?;
    Ok(EpAttributes {
        max_rdma_read_in: READS.min(limits.max_rdma_read_per_ep_in),
        max_rdma_read_out: READS.min(limits.max_rdma_read_per_ep_out),
        ..EpAttributes::default_for(&limits)
    })
}

/// Completes the attributes that an endpoint is made with.
///
/// Programs leave unknown ones at zero: sizes, segments of RDMA transfers, the watermark. Zero
/// means the default, or the limit of other requests.
fn completed<E: Edition>(
    given: &boundary::EpAttributes<E>,
    position: u8,
    adapter: &Adapter,
) -> Result<EpAttributes, Error> {
    let mut requested = attributes_of(given, position)?;
    let limits = limits_of(adapter)?;
    let default = EpAttributes::default_for(&limits);
    if requested.max_message_size == 0 {
        requested.max_message_size = default.max_message_size;
    }
    if E::EXTENDED {
        // Programs for 2.0 pass any number here and transfer more.
        requested.max_rdma_size = requested.max_rdma_size.max(limits.max_rdma_size);
    } else if requested.max_rdma_size == 0 {
        requested.max_rdma_size = default.max_rdma_size;
    }
    if requested.max_rdma_read_iov == 0 {
        requested.max_rdma_read_iov = requested
            .max_request_iov
            .min(limits.max_iov_segments_per_rdma_read);
    }
    if requested.max_rdma_write_iov == 0 {
        requested.max_rdma_write_iov = requested
            .max_request_iov
            .min(limits.max_iov_segments_per_rdma_write);
    }
    if requested.srq_soft_hw == 0 {
        requested.srq_soft_hw = default.srq_soft_hw;
    }
    Ok(requested)
}

/// Spec: EPC-01..10
pub(crate) extern "C-unwind" fn create<E: Edition>(
    ia: CHandle,
    pz: CHandle,
    receive: CHandle,
    request: CHandle,
    connect: CHandle,
    attributes: In<boundary::EpAttributes<E>>,
    ep: Out<CHandle>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let output = ep.required(7)?;
        let attributes = match attributes.get() {
            Some(given) => completed(&given, 6, &adapter)?,
            None => defaults(&adapter)?,
        };
        let cell = adapter.cells.reserve(HandleKind::Ep)?;
        let (pz, receive, request, connect) =
            (pz_of(pz), evd_of(receive), evd_of(request), evd_of(connect));
        let made = with_device!(adapter, opened => {
            opened.ia.ep_create(pz, receive, request, connect, Some(&attributes))
        })?;
        output.put(Adapter::publish(&adapter, cell, made.into()));
        Ok(())
    })
}

/// Spec: EPX-01..09
pub(crate) extern "C-unwind" fn create_with_srq<E: Edition>(
    ia: CHandle,
    pz: CHandle,
    receive: CHandle,
    request: CHandle,
    connect: CHandle,
    srq: CHandle,
    attributes: In<boundary::EpAttributes<E>>,
    ep: Out<CHandle>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let output = ep.required(8)?;
        let given = attributes.get().ok_or(Error::invalid_argument(7))?;
        let attributes = completed(&given, 7, &adapter)?;
        let cell = adapter.cells.reserve(HandleKind::Ep)?;
        let (pz, receive, request, connect) =
            (pz_of(pz), evd_of(receive), evd_of(request), evd_of(connect));
        let srq = SrqId::from_handle(srq.named());
        let made = with_device!(adapter, opened => {
            opened.ia.ep_create_with_srq(pz, receive, request, connect, srq, &attributes)
        })?;
        output.put(Adapter::publish(&adapter, cell, made.into()));
        Ok(())
    })
}

/// Spec: EPQ-01..03
pub(crate) extern "C-unwind" fn query<E: Edition>(
    ep: CHandle,
    mask: u64,
    param: Out<boundary::EpParam<E>>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let queried = with_device!(adapter, opened => opened.ia.ep_query(id, E::ep_fields(mask)))?;
        param.required(3)?.put(c_param(&queried, id, &adapter));
        Ok(())
    })
}

fn c_param<E: Edition>(queried: &EpParam, ep: EpId, adapter: &Adapter) -> boundary::EpParam<E> {
    let (local_address, remote_address) = adapter.attach(ep, |attachment| {
        attachment.local = SocketAddress::new(queried.local_address);
        if let Some(address) = queried.remote_address {
            attachment.remote = SocketAddress::new(address);
        }
        (
            lent(Some(&attachment.local)),
            lent(queried.remote_address.map(|_| &attachment.remote)),
        )
    });
    boundary::EpParam {
        ia: E::ia_of(adapter),
        state: queried.state.value(),
        local_address,
        local_port: queried.local_port.unwrap_or(0),
        remote_address,
        remote_port: queried.remote_port.unwrap_or(0),
        pz: adapter.cells.of_some(queried.pz),
        recv_evd: adapter.cells.of_some(queried.recv_evd),
        request_evd: adapter.cells.of_some(queried.request_evd),
        connect_evd: adapter.cells.of_some(queried.connect_evd),
        srq: adapter.cells.of_some(queried.srq),
        attributes: c_attributes(&queried.attributes),
        // Endpoints are not made for a `DAT_COMM`, so it stays zero.
        ..boundary::EpParam::zeroed()
    }
}

/// Spec: EPM-01..07
pub(crate) extern "C-unwind" fn modify<E: Edition>(
    ep: CHandle,
    mask: u64,
    param: In<boundary::EpParam<E>>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        if mask & E::FIXED_EP_FIELDS != 0 {
            return Err(Error::invalid_argument(2));
        }
        let fields = E::ep_fields(mask);
        let given = param.get().ok_or(Error::invalid_argument(3))?;
        let with = |field, given: u32, else_one: u32| match fields.contains(field) {
            true => given,
            false => else_one,
        };
        // A field that is not selected may have any value.
        let attributes = boundary::EpAttributes {
            service_type: with(EpFields::SERVICE_TYPE, given.attributes.service_type, 0),
            ..given.attributes
        };
        let requested = EpParam {
            ia: Handle::NULL,
            state: EndpointState::Unconnected,
            local_address: IaAddress::Node(0),
            local_port: None,
            remote_address: None,
            remote_port: None,
            pz: pz_of(given.pz),
            recv_evd: evd_of(given.recv_evd),
            request_evd: evd_of(given.request_evd),
            connect_evd: evd_of(given.connect_evd),
            srq: None,
            attributes: attributes_of(&attributes, 3)?,
        };
        with_device!(adapter, opened => opened.ia.ep_modify(id, fields, &requested))
    })
}

/// Spec: EPG-01
pub(crate) extern "C-unwind" fn get_status<E: Edition>(
    ep: CHandle,
    state: Out<u32>,
    recv_idle: Out<u32>,
    request_idle: Out<u32>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let queried = with_device!(adapter, opened => {
            opened.ia.progress(opened.now());
            opened.ia.ep_get_status(id)
        })?;
        state.offer(queried.state.value());
        recv_idle.offer(queried.recv_idle.into());
        request_idle.offer(queried.request_idle.into());
        Ok(())
    })
}

/// Spec: EPF-01..03
pub(crate) extern "C-unwind" fn free<E: Edition>(ep: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        with_device!(adapter, opened => opened.ia.ep_free(id))?;
        adapter.retire(id);
        Ok(())
    })
}

/// Spec: EPR-01..03
pub(crate) extern "C-unwind" fn reset<E: Edition>(ep: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        with_device!(adapter, opened => opened.ia.ep_reset(id))
    })
}

/// Spec: EPY-01..03
pub(crate) extern "C-unwind" fn recv_query<E: Edition>(
    ep: CHandle,
    allocated: Out<i32>,
    span: Out<i32>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let queried = with_device!(adapter, opened => opened.ia.ep_recv_query(id))?;
        allocated.offer(queried.allocated);
        span.offer(queried.span);
        Ok(())
    })
}

/// Spec: EPH-01..05
pub(crate) extern "C-unwind" fn set_watermark<E: Edition>(
    ep: CHandle,
    soft: i32,
    hard: i32,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        with_device!(adapter, opened => opened.ia.ep_set_watermark(id, soft, hard))
    })
}
