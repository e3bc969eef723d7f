//! Conversion of device completions to events: token, record, queue, endpoint.

use super::event::{DtoCompletion, Event, ExtendedCompletion, RmrBindCompletion};
use crate::backend::{Backend, Completion};
use crate::flags::{DtoStatus, HandleKind};
use crate::id::{EpId, Handle, Index, RmrId};
use crate::operation::{DtoOperation, ExtendedOperation};
use crate::record::{Finished, Owner, Plain, PostedBind, RecordKind, RecordSlot, Report};
use crate::shared::Shared;
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Shared<'_, B, L> {
    /// Claims the record of a completion that has an event.
    ///
    /// `None` if the completion is suppressed, which frees its record, or if its token names
    /// nothing that is posted: it is stale, or the device made it up. With `is_claimed` it is of a
    /// bind that was claimed and counted.
    #[inline]
    fn claim(
        &self,
        completion: &Completion,
        immediate: Option<u32>,
        is_claimed: bool,
    ) -> Option<Claimed<'_>> {
        let index = completion.token as u32;
        let record = self.records.get(index as usize)?;
        if !is_claimed && !record.claim(completion.token) {
            return None;
        }
        let owner = record.owner()?;
        let mut completion = *completion;
        let (endpoint, handle) = match owner {
            Owner::Requests(ep) => {
                if !is_claimed && record.kind() == RecordKind::Bind {
                    self.bind_completed(record.bind(), completion.status);
                }
                let endpoint = self.endpoints.get(ep.index())?;
                (endpoint, endpoint.handle.load())
            }
            Owner::Receives(ep) => {
                if let Some(immediate) = immediate {
                    record.add_immediate(immediate);
                }
                let endpoint = self.endpoints.get(ep.index())?;
                (endpoint, endpoint.handle.load())
            }
            Owner::Shared(srq) => {
                let queue = srq.slot();
                let consuming_endpoint = Handle::from_raw(completion.queue_pair);
                let endpoint = self.endpoints.get(consuming_endpoint.index());
                let Some(endpoint) =
                    endpoint.filter(|endpoint| endpoint.is_consuming(completion.queue_pair, queue))
                else {
                    // The named endpoint is freed or was never on the queue, so no event is due.
                    self.free(record, index, owner);
                    return None;
                };
                // A write with an immediate value takes a buffer and leaves no data in it. The
                // event of a shared buffer cannot carry the value, so it must not look like a
                // message.
                if immediate.is_some() && completion.status == DtoStatus::Success {
                    completion.status = DtoStatus::BadResponse;
                    completion.length = 0;
                }
                // Another core may free the endpoint from here on.
                (endpoint, completion.queue_pair)
            }
        };
        let report = match record.report() {
            Report::CONSUMING_ENDPOINT => endpoint.shared_receive_report(),
            report => report,
        };
        if completion.status == DtoStatus::Success && report.suppresses() {
            self.free(record, index, owner);
            return None;
        }
        Some(Claimed {
            completion,
            index,
            record,
            owner,
            report,
            endpoint: handle,
        })
    }

    /// Returns the record of a token if it is a plain data transfer that is posted.
    #[inline(always)]
    pub(crate) fn plain(&self, token: u64) -> Option<(&RecordSlot, Plain)> {
        let record = self.records.get(token as u32 as usize)?;
        Some((record, record.plain(token)?))
    }

    /// Turns the success of a plain data transfer into its event and frees the record.
    ///
    /// `received` is `u32::MAX` for requests. Take the completion before this call: the device's
    /// queue must have room for the next post.
    #[inline]
    pub(crate) fn finish_plain(
        &self,
        record: &RecordSlot,
        plain: Plain,
        received: u32,
    ) -> DtoCompletion {
        let length = received.min(record.length());
        let cookie = record.cookie();
        record.release_plain(plain);
        DtoCompletion {
            ep: plain.ep,
            cookie,
            status: DtoStatus::Success,
            transferred_length: u64::from(length),
            operation: plain.operation,
        }
    }

    /// Turns the success of a plain transfer into its event; `None` for other completions.
    #[inline(always)]
    pub(crate) fn plain_event_of(
        &self,
        completion: &Completion,
        immediate: Option<u32>,
    ) -> Option<Event> {
        if completion.status != DtoStatus::Success || immediate.is_some() {
            return None;
        }
        let (record, plain) = self.plain(completion.token)?;
        let received = match plain.operation {
            DtoOperation::Receive => completion.length,
            _ => u32::MAX,
        };
        Some(Event::Dto(self.finish_plain(record, plain, received)))
    }

    /// Claims the record of a completed bind; `None` for other completions.
    ///
    /// A bind is claimed under the lock under which its completion was polled. Whoever has polled a
    /// dispatcher after the end of a queue pair counts the posted binds as flushed
    /// (`abandon_binds`).
    pub(crate) fn claim_bind(&self, completion: &Completion) -> Option<PostedBind> {
        let record = self.records.get(completion.token as u32 as usize)?;
        let is_claimed = record.kind() == RecordKind::Bind && record.claim(completion.token);
        is_claimed.then(|| record.bind())
    }

    /// Returns the event of a completion, if any; frees its record.
    ///
    /// `immediate` is the immediate value of a receive; `is_claimed` as for `claim`.
    ///
    /// Needs the lock of the dispatcher that polled it, which may have been released since then. If
    /// the request was rolled back meanwhile, the completion is stale.
    #[cfg_attr(feature = "compact", inline(never))]
    pub(crate) fn event_of(
        &self,
        completion: &Completion,
        immediate: Option<u32>,
        is_claimed: bool,
    ) -> Option<Event> {
        let claimed = self.claim(completion, immediate, is_claimed)?;
        let record = claimed.record;
        let finished = Finished {
            kind: record.kind(),
            cookie: record.cookie(),
            length: moved(record, &claimed.completion),
            extra: record.extra(),
            status: claimed.completion.status,
            owner: Some(claimed.owner),
        };
        if is_claimed {
            // What was read is of the bind if its record is still claimed.
            if !record.release_claimed(completion.token) {
                return None;
            }
        } else {
            self.free(record, claimed.index, claimed.owner);
        }
        Some(self.event(&finished, claimed.endpoint))
    }

    /// Keeps a completion in its record as an event; `None` if it has no event.
    ///
    /// Returns the record's index, and true if the event is a notification.
    pub(crate) fn keep(
        &self,
        completion: &Completion,
        immediate: Option<u32>,
    ) -> Option<(u32, bool)> {
        let claimed = self.claim(completion, immediate, false)?;
        let (record, completion) = (claimed.record, &claimed.completion);
        let notifies = completion.status != DtoStatus::Success
            || match claimed.report {
                Report::QUIET => false,
                Report::SOLICITED => completion.solicited,
                _ => true,
            };
        let extra = match claimed.owner {
            Owner::Shared(_) => Handle::from_raw(completion.queue_pair).slot().get(),
            _ => record.extra(),
        };
        record.make_ready(completion.status, moved(record, completion), extra);
        Some((claimed.index, notifies))
    }

    /// Takes the event out of a ready record and frees the record.
    pub(crate) fn take_event(&self, record: &RecordSlot, index: u32) -> Option<Event> {
        let finished = record.finished();
        let owner = finished.owner?;
        let endpoint = self.endpoints.get(usize::from(self.endpoint_of(record)?))?;
        let event = self.event(&finished, endpoint.handle.load());
        self.free(record, index, owner);
        Some(event)
    }

    /// Returns the index of the endpoint that a ready record's event names.
    pub(crate) fn endpoint_of(&self, record: &RecordSlot) -> Option<Index> {
        Some(match record.owner()? {
            Owner::Requests(ep) | Owner::Receives(ep) => ep.slot(),
            Owner::Shared(_) => Index::from_word(record.extra()),
        })
    }

    #[inline]
    fn event(&self, finished: &Finished, endpoint: u64) -> Event {
        match finished.kind {
            RecordKind::Dto(operation) => Event::Dto(DtoCompletion {
                ep: EpId::from_handle(Handle::from_raw(endpoint)),
                cookie: finished.cookie,
                status: finished.status,
                transferred_length: u64::from(finished.length),
                operation,
            }),
            RecordKind::Extended(operation) => Event::Extended(ExtendedCompletion {
                ep: EpId::from_handle(Handle::from_raw(endpoint)),
                cookie: finished.cookie,
                status: finished.status,
                transferred_length: u64::from(finished.length),
                operation: match operation {
                    ExtendedOperation::ReceiveImmediate { .. } => {
                        ExtendedOperation::ReceiveImmediate {
                            immediate: finished.extra,
                        }
                    }
                    request => request,
                },
            }),
            RecordKind::Bind => Event::RmrBind(RmrBindCompletion {
                rmr: RmrId::from_handle(Handle::new(
                    self.instance,
                    HandleKind::Rmr,
                    finished.extra,
                    Index::from_word(finished.length),
                )),
                ep: EpId::from_handle(Handle::from_raw(endpoint)),
                cookie: finished.cookie,
                status: finished.status,
            }),
        }
    }

    #[inline]
    fn free(&self, record: &RecordSlot, index: u32, owner: Owner) {
        record.release();
        if let Owner::Shared(srq) = owner
            && let Some(shared) = self.shared_receive_queues.get(srq.index())
        {
            record.push_returned(index, &shared.returned);
        }
    }
}

/// A completion whose event is made after the lock of its poll is released.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) completion: Completion,
    /// Immediate value of a receive.
    pub(crate) immediate: Option<u32>,
    /// The bind, whose record is claimed.
    pub(crate) bind: Option<PostedBind>,
}

/// A completion with its record, as the consumer shall see it.
struct Claimed<'s> {
    completion: Completion,
    index: u32,
    record: &'s RecordSlot,
    owner: Owner,
    report: Report,
    /// Handle of the endpoint.
    endpoint: u64,
}

/// Returns the number of bytes moved.
///
/// For a request, this is the length as posted; for a receive, the length that arrived, but at most
/// as posted.
#[inline]
fn moved(record: &RecordSlot, completion: &Completion) -> u32 {
    match record.kind() {
        RecordKind::Dto(DtoOperation::Receive) => completion.length.min(record.length()),
        // The data went to the address of the peer's write.
        RecordKind::Extended(ExtendedOperation::ReceiveImmediate { .. }) => completion.length,
        _ => record.length(),
    }
}
