//! Connection requests.

use dat_core::Result;
use dat_core::backend::PRIVATE_DATA_MAX;
use dat_core::flags::{CrFields, HandleKind};
use dat_core::id::{CrId, EpId};

use super::edition::Edition;
use super::result::{Code, adapter_of, check_mask, check_memory, sheltered};
use crate::adapter::with_device;
use crate::boundary::{CrParam, List, Out, SocketAddress, lent};
use crate::handles::CHandle;

/// Bytes of a buffer for private data, one above the limit to notice an excess.
pub(crate) const ROOM: usize = PRIVATE_DATA_MAX + 1;

/// Queries a request; address and private data stay until it is accepted, rejected or handed off.
///
/// Spec: CRQ-01
pub(crate) extern "C-unwind" fn query<E: Edition>(
    cr: CHandle,
    mask: u32,
    param: Out<CrParam>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(cr, HandleKind::Cr)?;
        let id = CrId::from_handle(cr.named());
        let queried = with_device!(adapter, opened => opened.ia.cr_query(id, CrFields::empty()))?;
        check_mask(mask, 0x1F)?;
        let output = param.required(3)?;
        let (remote_address, private_data) = adapter.attach(id, |attachment| {
            if let Some(address) = queried.remote_address {
                attachment.remote = SocketAddress::new(address);
            }
            for (to, byte) in attachment
                .private_data
                .iter_mut()
                .zip(&queried.private_data)
            {
                *to = *byte;
            }
            (
                lent(queried.remote_address.map(|_| &attachment.remote)),
                lent((!queried.private_data.is_empty()).then_some(&attachment.private_data)),
            )
        });
        output.put(CrParam {
            remote_address,
            remote_port: queried.remote_port,
            private_data_size: i32::try_from(queried.private_data.len()).unwrap_or(0),
            private_data,
            ep: adapter.cells.of_some(queried.local_ep),
        });
        Ok(())
    })
}

/// Spec: CRA-01..06
pub(crate) extern "C-unwind" fn accept<E: Edition>(
    cr: CHandle,
    ep: CHandle,
    private_data_size: i32,
    private_data: List<u8>,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(cr, HandleKind::Cr)?;
        let id = CrId::from_handle(cr.named());
        let ep = ep.named_or_none().map(EpId::from_handle);
        let mut data = [0; ROOM];
        let size = private_data.copy(private_data_size, 3, &mut data)?;
        let data = data.get(..size).unwrap_or_default();
        check_memory()?;
        with_device!(adapter, opened => opened.ia.cr_accept(id, ep, data))?;
        adapter.retire(id);
        Ok(())
    })
}

/// Spec: CRR-01, CRR-02
pub(crate) fn reject(cr: CHandle, private_data: &[u8]) -> Result<()> {
    let adapter = adapter_of(cr, HandleKind::Cr)?;
    let id = CrId::from_handle(cr.named());
    with_device!(adapter, opened => opened.ia.cr_reject(id, private_data))?;
    adapter.retire(id);
    Ok(())
}

/// Spec: CRH-01
pub(crate) extern "C-unwind" fn handoff<E: Edition>(cr: CHandle, qualifier: u64) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(cr, HandleKind::Cr)?;
        let id = CrId::from_handle(cr.named());
        with_device!(adapter, opened => opened.ia.cr_handoff(id, qualifier))?;
        adapter.retire(id);
        Ok(())
    })
}
