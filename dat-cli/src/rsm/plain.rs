//! Plain RDMA Writes into a segment, to compare vectors with.
//!
//! The endpoint speaks the control protocol without an engine.

use std::collections::VecDeque;
use std::time::Duration;

use dat_core::attributes::EpAttributes;
use dat_core::backend::HostBackend;
use dat_core::event::{DtoOperation, Event};
use dat_core::flags::{CompletionFlags, DtoStatus};
use dat_core::memory::RmrTriplet;
use dat_host::{Adapter, Buffer, Endpoint, Error, Events, Receive, Zone};
use dat_rsm::wire::{Body, GREETING_SIZE, Greeting, MESSAGE_SIZE, Message, WireError};
use dat_rsm::{NodeId, Permission, SegmentId};

use super::exporter::Listening;
use super::importer::Shape;
use crate::failure::{During, Failure, FailureKind, Result};
use crate::remote::connection::posted;
use crate::remote::host_adapter::{Core, Drive, core};
use crate::remote::registered::Registered;

/// Messages that the exporter may send.
const CREDITS: usize = 16;
/// Bytes that a flush reads.
const FLUSH: usize = 8;
/// Time without an event after which a wait fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that follows, for what comes when a stopped process goes on.
const LATE: Duration = Duration::from_secs(2);
/// The endpoint's incarnation, in its greeting and messages.
const INCARNATION: u64 = 1;

/// The address of the exporter, the segment, and the node number of this endpoint.
#[derive(Clone, Copy)]
pub(crate) struct ExporterAddress {
    pub(crate) listening: Listening,
    /// The node number of this endpoint.
    pub(crate) node: NodeId,
    pub(crate) segment: SegmentId,
}

/// A connected endpoint with the key of a segment.
pub(crate) struct Plain<'a, B: HostBackend> {
    core: &'a Core<B>,
    drive: Drive,
    zone: Zone,
    endpoint: Endpoint,
    /// Completions of requests.
    events: Events,
    /// Posted receives, in the order of the messages.
    receives: VecDeque<Receive<Buffer>>,
    /// The bytes that a flush reads.
    flushed: Registered,
    source: Registered,
    importer: u64,
    segment: RmrTriplet,
    flush: RmrTriplet,
    shape: Shape,
}

impl<'a, B: HostBackend> Plain<'a, B> {
    /// Connects to the exporter of a segment.
    ///
    /// # Errors
    /// - Operation: the exporter refused access to the segment, or a call failed.
    pub(crate) fn connect(
        adapter: &'a Adapter,
        mut drive: Drive,
        exporter: ExporterAddress,
        shape: Shape,
    ) -> Result<Self> {
        let core = core::<B>(adapter)?;
        let zone = adapter.zone().during("dat_pz_create")?;
        let events = zone.events().during("dat_evd_create")?;
        let flushed = Registered::new(core, &zone, FLUSH)?;
        let source = Registered::new(core, &zone, shape.vector())?;
        let own = flushed.window.remote();
        let greeting = Greeting {
            node: exporter.node,
            incarnation: INCARNATION,
            read_back_address: own.address(),
            read_back_key: own.context(),
            credits: CREDITS as u16,
            big_endian: cfg!(target_endian = "big"),
            non_coherent: false,
        };
        let attributes = EpAttributes {
            max_recv_dtos: CREDITS as i32,
            max_request_dtos: shape.entries as i32 + 2,
            max_rdma_read_in: 1,
            max_rdma_read_out: 1,
            max_message_size: MESSAGE_SIZE as u64,
            max_rdma_size: shape.entry_size.max(FLUSH) as u64,
            ..EpAttributes::DEFAULT
        };
        let endpoint = zone.endpoint_with_events(Some(attributes), &events);
        let endpoint = endpoint.during("dat_ep_create")?;
        // Before the first message, which the exporter answers.
        let buffers = zone.buffers(CREDITS, MESSAGE_SIZE);
        let buffers = buffers.during("dat_lmr_create")?.into_iter();
        let receives = buffers.map(|buffer| endpoint.recv(buffer)).collect();
        let connecting = zone.connect(exporter.listening);
        let connecting = connecting
            .private_data(&greeting.encode())
            .start_on(endpoint);
        let endpoint = wait_for(&mut drive, connecting)?.during("connecting to the exporter")?;
        let mut plain = Self {
            flush: answered(&endpoint.private_data())?,
            core,
            drive,
            zone,
            endpoint,
            events,
            receives,
            flushed,
            source,
            importer: 0,
            segment: RmrTriplet::default(),
            shape,
        };
        plain.ask(exporter)?;
        Ok(plain)
    }

    fn ask(&mut self, exporter: ExporterAddress) -> Result<()> {
        self.say(Body::Connect {
            import: 1,
            segment: exporter.segment,
            permission: Permission::all().bits(),
            user: 0,
            group: 0,
            resume: 0,
        })?;
        // An exporter that answers has at most so many messages under way.
        while let Some(next) = self.receives.pop_front() {
            let received = wait_for(&mut self.drive, next)?;
            let received = received.map_err(Error::from).during("dat_ep_post_recv")?;
            let bytes = received.memory.first_chunk();
            let message = bytes.map_or(Err(WireError::Short), Message::decode);
            match message.map(|message| message.body) {
                Ok(Body::Accept {
                    importer,
                    address,
                    key,
                    length,
                    ..
                }) => {
                    self.importer = importer;
                    self.segment = RmrTriplet {
                        context: key,
                        address,
                        length,
                    };
                    return Ok(());
                }
                Ok(Body::Credit) => {}
                other => {
                    return Err(by_exporter(
                        "the exporter refused access to the segment",
                        format!("{other:?}"),
                    ));
                }
            }
        }
        Err(silent())
    }

    fn say(&self, body: Body) -> Result<()> {
        let message = Message {
            incarnation: INCARNATION,
            credits: 0,
            body,
        };
        let message = self.zone.copy(&message.encode());
        let message = message.during("dat_lmr_create")?;
        posted(self.endpoint.send(message), "dat_ep_post_send").map(drop)
    }

    fn next(&mut self) -> Result<Event> {
        let events = self.events.id();
        for longest in [PATIENCE, LATE] {
            if let Some(event) = self.drive.next_event(self.core, events, longest)? {
                return Ok(event);
            }
        }
        Err(silent())
    }

    /// Writes each entry of a vector, then flushes.
    ///
    /// The flush is a read; when it completes, the writes are visible.
    ///
    /// # Errors
    /// - Operation: one of them failed.
    pub(crate) fn write(&mut self) -> Result<()> {
        for entry in 0..self.shape.entries {
            let offset = entry * self.shape.entry_size;
            let remote = RmrTriplet {
                address: self.segment.address.wrapping_add(offset as u64),
                length: self.shape.entry_size as u64,
                ..self.segment
            };
            let segment = [self.source.segment(offset, self.shape.entry_size)];
            self.core
                .post_rdma_write(
                    self.endpoint.id(),
                    &segment,
                    0,
                    &remote,
                    CompletionFlags::SUPPRESS,
                )
                .during("dat_ep_post_rdma_write")?;
        }
        let segment = [self.flushed.segment(0, FLUSH)];
        let none = CompletionFlags::empty();
        self.core
            .post_rdma_read(self.endpoint.id(), &segment, 0, &self.flush, none)
            .during("dat_ep_post_rdma_read")?;
        loop {
            if let Event::Dto(done) = self.next()? {
                if done.status != DtoStatus::Success {
                    return Err(failed(done.status));
                }
                if done.cookie == 0 {
                    return Ok(());
                }
            }
        }
    }

    /// Ends the connection.
    ///
    /// # Errors
    /// - Operation: a call failed.
    pub(crate) fn disconnect(mut self) -> Result<()> {
        self.say(Body::Disconnect {
            importer: self.importer,
        })?;
        while !matches!(self.next()?, Event::Dto(done) if done.operation == DtoOperation::Send) {}
        match wait_for(&mut self.drive, self.endpoint.disconnect())? {
            // The exporter may be first.
            Ok(()) | Err(Error::Connection(_)) => Ok(()),
            Err(error) => Err(error).during("dat_ep_disconnect"),
        }
    }
}

/// Waits for a future of the connection.
///
/// # Errors
/// - Operation: it is not ready in time.
fn wait_for<F: Future + Unpin>(drive: &mut Drive, future: F) -> Result<F::Output> {
    let waited = match drive.wait_for(future, PATIENCE) {
        Err(pending) => drive.wait_for(pending, LATE),
        done => done,
    };
    waited.map_err(|_| silent())
}

/// Returns the memory that a flush reads, from the exporter's greeting.
fn answered(data: &[u8]) -> Result<RmrTriplet> {
    let answer = data.get(..GREETING_SIZE).unwrap_or_default();
    let answer = Greeting::decode(answer).map_err(|error| {
        by_exporter(
            "the exporter uses another protocol version",
            format!("{error:?}"),
        )
    })?;
    Ok(RmrTriplet {
        context: answer.read_back_key,
        address: answer.read_back_address,
        length: FLUSH as u64,
    })
}

fn silent() -> Failure {
    by_exporter(
        "waiting for the exporter failed",
        "it did not respond for 10 seconds".into(),
    )
}

/// Builds the failure of an exporter that does not do its part.
fn by_exporter(what: &str, why: String) -> Failure {
    Failure {
        kind: FailureKind::Operation,
        what: what.into(),
        why,
        remedy: "check the network, that the exporter runs, and that it has the same version of \
            `dat`"
            .into(),
    }
}

/// Builds the failure of a transfer that completed with this status.
fn failed(status: DtoStatus) -> Failure {
    let why = format!("an operation completed as {status:?}");
    match status {
        DtoStatus::Flushed | DtoStatus::Transport => Failure {
            kind: FailureKind::Operation,
            what: "the connection to the exporter was lost".into(),
            why,
            remedy: "check the network and the exporter, and run the command again".into(),
        },
        _ => Failure::operation("a plain transfer failed", why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_not_reported_as_a_broken_build() {
        for status in [DtoStatus::Flushed, DtoStatus::Transport] {
            let lost = failed(status);
            assert_eq!(lost.what, "the connection to the exporter was lost");
            assert!(lost.remedy.contains("network"), "{}", lost.remedy);
        }
        let odd = failed(DtoStatus::RemoteAccess);
        assert_eq!(odd.what, "a plain transfer failed");
        assert_eq!(odd.why, "an operation completed as RemoteAccess");
    }
}
