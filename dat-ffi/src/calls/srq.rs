//! Shared receive queues.

use dat_core::Error;
use dat_core::attributes::SrqAttributes;
use dat_core::flags::{HandleKind, SrqFields};
use dat_core::id::{PzId, SrqId};

use super::edition::Edition;
use super::result::{Code, adapter, adapter_of, sheltered};
use crate::adapter::{Adapter, with_device};
use crate::boundary::{self, In, Out, SrqParam};
use crate::handles::CHandle;

/// Spec: SRC-01..07
pub(crate) extern "C-unwind" fn create<E: Edition>(
    ia: CHandle,
    pz: CHandle,
    attributes: In<boundary::SrqAttributes>,
    srq: Out<CHandle>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter(ia)?;
        let given = attributes.get().ok_or(Error::invalid_argument(3))?;
        let output = srq.required(4)?;
        let cell = adapter.cells.reserve(HandleKind::Srq)?;
        let attributes = SrqAttributes {
            max_recv_dtos: given.max_recv_dtos,
            max_recv_iov: given.max_recv_iov,
            low_watermark: given.low_watermark,
        };
        let pz = PzId::from_handle(pz.named());
        let made = with_device!(adapter, opened => opened.ia.srq_create(pz, &attributes))?;
        output.put(Adapter::publish(&adapter, cell, made.into()));
        Ok(())
    })
}

/// Spec: SRY-01..03
pub(crate) extern "C-unwind" fn query<E: Edition>(
    srq: CHandle,
    mask: u32,
    param: Out<SrqParam>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        let mask = SrqFields::from_bits_retain(mask);
        let queried = with_device!(adapter, opened => opened.ia.srq_query(id, mask))?;
        param.required(3)?.put(SrqParam {
            ia: E::ia_of(&adapter),
            state: E::srq_state(queried.state),
            pz: adapter.cells.of(queried.pz.into()),
            max_recv_dtos: queried.max_recv_dtos,
            max_recv_iov: queried.max_recv_iov,
            low_watermark: queried.low_watermark,
            available: queried.available,
            outstanding: queried.outstanding,
        });
        Ok(())
    })
}

/// Spec: SRZ-01..04
pub(crate) extern "C-unwind" fn resize<E: Edition>(srq: CHandle, max_recv_dtos: i32) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        with_device!(adapter, opened => opened.ia.srq_resize(id, max_recv_dtos))
    })
}

/// Spec: SRL-01..05
pub(crate) extern "C-unwind" fn set_low_watermark<E: Edition>(
    srq: CHandle,
    low_watermark: i32,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        with_device!(adapter, opened => opened.ia.srq_set_lw(id, low_watermark))
    })
}

/// Spec: SRF-01, SRF-02
pub(crate) extern "C-unwind" fn free<E: Edition>(srq: CHandle) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        with_device!(adapter, opened => opened.ia.srq_free(id))?;
        adapter.retire(id);
        Ok(())
    })
}
