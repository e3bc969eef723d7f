//! Endpoints: connect and disconnect.

use dat_core::endpoint::ConnectParam;
use dat_core::flags::{CloseFlags, ConnectFlags, HandleKind, QualityOfService};
use dat_core::id::EpId;

use super::cr::ROOM;
use super::edition::Edition;
use super::result::{Code, adapter_of, check_memory, sheltered};
use crate::adapter::with_device;
use crate::boundary::{Address, List};
use crate::handles::CHandle;

/// Spec: EPK-01..14
pub(crate) extern "C-unwind" fn connect<E: Edition>(
    ep: CHandle,
    address: Address,
    qualifier: u64,
    timeout: u32,
    private_data_size: i32,
    private_data: List<u8>,
    quality: u32,
    flags: u32,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let mut data = [0; ROOM];
        let size = private_data.copy(private_data_size, 5, &mut data)?;
        let param = ConnectParam {
            address: address.get(2)?,
            qualifier,
            timeout,
            private_data: data.get(..size).unwrap_or_default(),
            quality: QualityOfService::from_bits_retain(quality),
            flags: ConnectFlags::from_bits_retain(flags),
        };
        check_memory()?;
        with_device!(adapter, opened => opened.ia.ep_connect(id, &param, opened.now()))?;
        adapter.note_connections();
        Ok(())
    })
}

/// Spec: EPU-01..03
pub(crate) extern "C-unwind" fn duplicate<E: Edition>(
    ep: CHandle,
    model: CHandle,
    timeout: u32,
    private_data_size: i32,
    private_data: List<u8>,
    quality: u32,
) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let model = EpId::from_handle(model.named());
        let mut data = [0; ROOM];
        let size = private_data.copy(private_data_size, 4, &mut data)?;
        let data = data.get(..size).unwrap_or_default();
        let quality = QualityOfService::from_bits_retain(quality);
        check_memory()?;
        with_device!(adapter, opened => {
            opened.ia.ep_dup_connect(id, model, timeout, data, quality, opened.now())
        })?;
        adapter.note_connections();
        Ok(())
    })
}

/// Spec: EPD-01..10
pub(crate) extern "C-unwind" fn disconnect<E: Edition>(ep: CHandle, flags: u32) -> Code {
    sheltered::<E>(|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let flags = CloseFlags::try_from(flags).map_err(|unknown| unknown.in_argument(2))?;
        with_device!(adapter, opened => opened.ia.ep_disconnect(id, flags))
    })
}
