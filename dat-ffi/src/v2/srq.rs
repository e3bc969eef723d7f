//! Shared receive queues.

use dat_core::Error;
use dat_core::attributes::SrqAttributes;
use dat_core::flags::{HandleKind, SrqFields, SrqState};
use dat_core::id::{PzId, SrqId};

use super::result::{Code, adapter, adapter_of, code, ia_of};
use crate::adapter::with_device;
use crate::boundary::{self, In, Out, SrqParam};
use crate::handles::{CHandle, reserve};

/// Spec: SRC-01..07
pub(super) extern "C" fn create(
    ia: CHandle,
    pz: CHandle,
    attributes: In<boundary::SrqAttributes>,
    srq: Out<CHandle>,
) -> Code {
    code((|| {
        let adapter = adapter(ia)?;
        let given = attributes.get().ok_or(Error::invalid_argument(3))?;
        let place = srq.required(4)?;
        let cell = reserve()?;
        let attributes = SrqAttributes {
            max_recv_dtos: given.max_recv_dtos,
            max_recv_iov: given.max_recv_iov,
            low_watermark: given.low_watermark,
        };
        let pz = PzId::from_handle(pz.named());
        let made = with_device!(adapter, opened => opened.ia.srq_create(pz, &attributes))?;
        place.put(adapter.cells.publish(cell, made.into()));
        Ok(())
    })())
}

/// 2.0 numbers the states the other way round.
const fn state_of(state: SrqState) -> u32 {
    match state {
        SrqState::Error => 0,
        SrqState::Operational => 1,
    }
}

/// Spec: SRY-01..03
pub(super) extern "C" fn query(srq: CHandle, mask: u32, param: Out<SrqParam>) -> Code {
    code((|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        let mask = SrqFields::from_bits_retain(mask);
        let told = with_device!(adapter, opened => opened.ia.srq_query(id, mask))?;
        param.required(3)?.put(SrqParam {
            ia: ia_of(&adapter),
            state: state_of(told.state),
            pz: adapter.cells.of(told.pz.into()),
            max_recv_dtos: told.max_recv_dtos,
            max_recv_iov: told.max_recv_iov,
            low_watermark: told.low_watermark,
            available: told.available,
            outstanding: told.outstanding,
        });
        Ok(())
    })())
}

/// Spec: SRZ-01..04
pub(super) extern "C" fn resize(srq: CHandle, max_recv_dtos: i32) -> Code {
    code((|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        with_device!(adapter, opened => opened.ia.srq_resize(id, max_recv_dtos))
    })())
}

/// Spec: SRL-01..05
pub(super) extern "C" fn set_low_watermark(srq: CHandle, low_watermark: i32) -> Code {
    code((|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        with_device!(adapter, opened => opened.ia.srq_set_lw(id, low_watermark))
    })())
}

/// Spec: SRF-01, SRF-02
pub(super) extern "C" fn free(srq: CHandle) -> Code {
    code((|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        with_device!(adapter, opened => opened.ia.srq_free(id))?;
        adapter.retire(id);
        Ok(())
    })())
}
