//! Events as C has them.

use dat_core::backend::PRIVATE_DATA_MAX;
use dat_core::event::Event;
use dat_core::flags::HandleKind;

use super::result::ia_of;
use crate::adapter::{Adapter, with_device};
use crate::boundary::{
    self, ArrivalData, AsyncData, BindData, ConnectionData, EventData, TransferData, lent,
};
use crate::handles::CHandle;

/// The number of a software event.
pub(super) const SOFTWARE: u32 = 0x1_0001;

/// An event of a dispatcher.
#[inline(always)]
pub(super) fn made_of(event: &Event, adapter: &Adapter, evd: CHandle) -> boundary::Event {
    boundary::Event {
        number: event.number(),
        evd,
        data: data_of(event, adapter),
        extension: [0; 8],
    }
}

#[inline(always)]
fn data_of(event: &Event, adapter: &Adapter) -> EventData {
    match event {
        Event::Dto(completion) => EventData {
            transfer: TransferData {
                ep: adapter.cells.of(completion.ep.into()),
                cookie: completion.cookie,
                status: completion.status.value(),
                // No message of 2.0 is longer.
                transferred_length: completion.transferred_length as u32,
                operation: completion.operation as u32,
                rmr_context: 0,
            },
        },
        other => other_data_of(other, adapter),
    }
}

#[inline(never)]
fn other_data_of(event: &Event, adapter: &Adapter) -> EventData {
    match *event {
        Event::Dto(_) => boundary::Event::zeroed().data,
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
                truncated: 0,
            },
        },
        Event::Connection {
            ep,
            private_data_size,
            ..
        } => {
            let mut data = [0; PRIVATE_DATA_MAX];
            // Of an endpoint that is gone there is none, and nothing is kept for it.
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
                    Some(HandleKind::Ia) => ia_of(adapter),
                    _ => adapter.cells.of(handle),
                },
                reason: i32::try_from(reason).unwrap_or(i32::MAX),
            },
        },
        Event::Software { pointer } => EventData { software: pointer },
    }
}
