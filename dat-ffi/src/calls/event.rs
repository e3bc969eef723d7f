//! Events as C has them.

use dat_core::backend::PRIVATE_DATA_MAX;
use dat_core::event::{DtoCompletion, Event, ExtendedCompletion};
use dat_core::flags::HandleKind;

use super::edition::{Added, Edition, Length};
use crate::adapter::{Adapter, with_device};
use crate::boundary::{
    self, ArrivalData, AsyncData, BindData, ConnectionData, EventData, Output, TransferData, lent,
};
use crate::handles::{CHandle, Cells};
use crate::v2::extension::event_fields;

/// Number of a software event.
pub(crate) const SOFTWARE: u32 = 0x1_0001;
/// Number of a completed transfer.
const TRANSFER: u32 = 1;

/// Makes the event of a dispatcher.
#[inline(always)]
pub(crate) fn made_of<E: Edition>(
    event: &Event,
    adapter: &Adapter,
    evd: CHandle,
) -> boundary::Event<E> {
    if let Event::Extended(completion) = event {
        return extended::<E>(completion, adapter, evd);
    }
    boundary::Event {
        number: event.number(),
        evd,
        data: data_of(event, adapter),
        extension: Added::of([0; 8]),
    }
}

/// Makes the event of an extended operation.
///
/// In an edition without such operations it is a transfer: a peer has completed a receive by one.
#[cold]
fn extended<E: Edition>(
    completion: &ExtendedCompletion,
    adapter: &Adapter,
    evd: CHandle,
) -> boundary::Event<E> {
    let event = Event::Extended(*completion);
    let (operation, extension) = event_fields(completion);
    boundary::Event {
        number: if E::EXTENDED {
            event.number()
        } else {
            TRANSFER
        },
        evd,
        data: EventData {
            transfer: TransferData {
                ep: adapter.cells.of_endpoint(completion.ep),
                cookie: completion.cookie,
                status: completion.status.value(),
                transferred_length: E::Length::of(completion.transferred_length),
                operation: Added::of(operation),
                rmr_context: Added::of(0),
            },
        },
        extension: Added::of(extension),
    }
}

/// Stores the event of a completed transfer.
#[inline(always)]
pub(crate) fn put_transfer<E: Edition>(
    output: Output<boundary::Event<E>>,
    transfer: TransferData<E>,
    evd: CHandle,
) {
    output.put_transfer(TRANSFER, evd, transfer);
}

/// Converts a completed transfer.
#[inline(always)]
pub(crate) fn transfer_of<E: Edition>(
    cells: &Cells,
    completion: &DtoCompletion,
) -> TransferData<E> {
    TransferData {
        ep: cells.of_endpoint(completion.ep),
        cookie: completion.cookie,
        status: completion.status.value(),
        transferred_length: E::Length::of(completion.transferred_length),
        operation: Added::of(completion.operation as u32),
        rmr_context: Added::of(0),
    }
}

#[inline(always)]
fn data_of<E: Edition>(event: &Event, adapter: &Adapter) -> EventData<E> {
    match event {
        Event::Dto(completion) => EventData {
            transfer: transfer_of(&adapter.cells, completion),
        },
        other => other_data_of(other, adapter),
    }
}

#[inline(never)]
fn other_data_of<E: Edition>(event: &Event, adapter: &Adapter) -> EventData<E> {
    match *event {
        Event::Dto(_) | Event::Extended(_) => boundary::Event::<E>::zeroed().data,
        Event::RmrBind(completion) => EventData {
            bind: BindData {
                rmr: adapter.cells.of(completion.rmr.into()),
                cookie: completion.cookie,
                status: completion.status.value(),
            },
        },
        Event::ConnectionRequest {
            service_point,
            qualifier,
            cr,
        } => EventData {
            arrival: ArrivalData {
                service_point: adapter.cells.of_some(service_point),
                local_address: lent(Some(&adapter.address)),
                qualifier,
                cr: adapter.cells.of(cr.into()),
                truncated: Added::of(0),
            },
        },
        Event::Connection {
            ep,
            private_data_size,
            ..
        } => {
            let mut data = [0; PRIVATE_DATA_MAX];
            // An endpoint that is gone has no private data, and no attachment is made for it.
            let size = if private_data_size == 0 {
                None
            } else {
                with_device!(adapter, opened => opened.ia.ep_private_data(ep, &mut data)).ok()
            };
            let private_data = size.map(|_| {
                adapter.attach(ep, |attachment| {
                    attachment.private_data = data;
                    lent(Some(&attachment.private_data))
                })
            });
            EventData {
                connection: ConnectionData {
                    ep: adapter.cells.of(ep.into()),
                    private_data_size: size.and_then(|size| i32::try_from(size).ok()).unwrap_or(0),
                    private_data: private_data.unwrap_or(lent::<u8>(None)),
                },
            }
        }
        Event::Async { handle, reason, .. } => EventData {
            asynchronous: AsyncData {
                handle: match handle.kind() {
                    Some(HandleKind::Ia) => E::ia_of(adapter),
                    _ => adapter.cells.of(handle),
                },
                reason: i32::try_from(reason).unwrap_or(i32::MAX),
            },
        },
        Event::Software { pointer } => EventData { software: pointer },
    }
}
