//! Plain RDMA Writes into a segment, to compare vectors with.
//!
//! The endpoint speaks the control protocol without an engine.

use std::time::{Duration, Instant as Clock};

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges,
    QualityOfService,
};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::RmrTriplet;
use dat_core::time::Instant;
use dat_rsm::wire::{Body, GREETING_SIZE, Greeting, MESSAGE_SIZE, Message};
use dat_rsm::{NodeId, Permission, SegmentId};

use super::importer::Shape;
use crate::failure::{During, Failure, FailureKind, Result};
use crate::host::{self, Adapter, HostBackend, Memory, Registered};

/// Messages that the exporter may send.
const CREDITS: usize = 16;
/// Bytes that a flush reads.
const FLUSH: usize = 8;
/// Time without an event after which a wait fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// The endpoint's incarnation, in its greeting and messages.
const INCARNATION: u64 = 1;

/// The address of the exporter, the segment, and the node number of this endpoint.
#[derive(Clone, Copy)]
pub(crate) struct ExporterAddress {
    pub(crate) address: IaAddress,
    pub(crate) qualifier: u64,
    /// The node number of this endpoint.
    pub(crate) node: NodeId,
    pub(crate) segment: SegmentId,
}

/// The clock of a backend, and the step that drives it.
pub(crate) trait Course {
    fn now(&self) -> Instant;
    fn go_on(&self);
}

/// A connected endpoint with the key of a segment.
pub(crate) struct Plain<'c, B: HostBackend, C> {
    ia: Adapter<B>,
    course: &'c C,
    ep: EpId,
    transfers: EvdId,
    connections: EvdId,
    messages: Registered,
    source: Registered,
    importer: u64,
    segment: RmrTriplet,
    flush: RmrTriplet,
    shape: Shape,
}

impl<'c, B: HostBackend, C: Course> Plain<'c, B, C> {
    /// Connects to the exporter of a segment.
    ///
    /// # Errors
    /// - Operation: the exporter refused access to the segment, or a call failed.
    pub(crate) fn connect(
        ia: Adapter<B>,
        course: &'c C,
        exporter: ExporterAddress,
        shape: Shape,
    ) -> Result<Self> {
        let zone = ia.pz_create().during("dat_pz_create")?;
        let dispatcher = |flags| ia.evd_create(32, None, flags).during("dat_evd_create");
        let (transfers, connections) = (
            dispatcher(EvdFlags::DTO)?,
            dispatcher(EvdFlags::CONNECTION)?,
        );
        let attributes = EpAttributes {
            max_recv_dtos: CREDITS as i32,
            max_request_dtos: shape.entries as i32 + 2,
            max_rdma_read_in: 1,
            max_rdma_read_out: 1,
            max_message_size: MESSAGE_SIZE as u64,
            max_rdma_size: shape.entry_size.max(FLUSH) as u64,
            ..EpAttributes::DEFAULT
        };
        let (both, connect) = (Some(transfers), Some(connections));
        let ep = ia
            .ep_create(Some(zone), both, both, connect, Some(&attributes))
            .during("dat_ep_create")?;
        let register = |length| {
            host::register(&ia, zone, Memory::new(length), MemoryPrivileges::ALL)
                .during("dat_lmr_create")
        };
        // Slot 0 holds sent messages and the bytes that a flush reads.
        let messages = register((CREDITS + 1) * MESSAGE_SIZE)?;
        let source = register(shape.vector())?;
        let mut plain = Self {
            ia,
            course,
            ep,
            transfers,
            connections,
            messages,
            source,
            importer: 0,
            segment: RmrTriplet::default(),
            flush: RmrTriplet::default(),
            shape,
        };
        for slot in 1..=CREDITS {
            let segment = plain.messages.segment(slot * MESSAGE_SIZE, MESSAGE_SIZE);
            plain
                .ia
                .post_recv(ep, &[segment], slot as u64, CompletionFlags::empty())
                .during("dat_ep_post_recv")?;
        }
        plain.greet(exporter)?;
        plain.ask(exporter)?;
        Ok(plain)
    }

    fn greet(&mut self, exporter: ExporterAddress) -> Result<()> {
        let greeting = Greeting {
            node: exporter.node,
            incarnation: INCARNATION,
            flush_address: self.messages.remote(0, FLUSH).address,
            flush_key: self.messages.remote_context,
            credits: CREDITS as u16,
            big_endian: cfg!(target_endian = "big"),
        };
        self.ia
            .ep_connect(
                self.ep,
                &ConnectParam {
                    address: exporter.address,
                    qualifier: exporter.qualifier,
                    timeout: 5_000_000,
                    private_data: &greeting.encode(),
                    quality: QualityOfService::BEST_EFFORT,
                    flags: ConnectFlags::empty(),
                },
                self.course.now(),
            )
            .during("dat_ep_connect")?;
        match self.next(self.connections)? {
            Event::Connection {
                kind: ConnectionEventKind::Established,
                ..
            } => {}
            other => {
                return Err(Failure::operation(
                    "connecting to the exporter failed",
                    format!("{other:?}"),
                ));
            }
        }
        let mut answer = [0; dat_core::backend::PRIVATE_DATA_MAX];
        let length = self
            .ia
            .ep_private_data(self.ep, &mut answer)
            .during("reading the exporter's greeting")?;
        let answer = answer.get(..length.max(GREETING_SIZE)).unwrap_or_default();
        let answer = Greeting::decode(answer).map_err(|error| {
            Failure::operation(
                "the exporter uses another protocol version",
                format!("{error:?}"),
            )
        })?;
        self.flush = RmrTriplet {
            context: answer.flush_key,
            address: answer.flush_address,
            length: FLUSH as u64,
        };
        Ok(())
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
        loop {
            let Event::Dto(done) = self.next(self.transfers)? else {
                continue;
            };
            if done.cookie == 0 {
                continue;
            }
            let mut bytes = [0; MESSAGE_SIZE];
            let slot = usize::try_from(done.cookie).unwrap_or(0);
            self.messages.memory.load(slot * MESSAGE_SIZE, &mut bytes);
            match Message::decode(&bytes).map(|message| message.body) {
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
                    return Err(Failure::operation(
                        "the exporter refused access to the segment",
                        format!("{other:?}"),
                    ));
                }
            }
        }
    }

    fn say(&self, body: Body) -> Result<()> {
        let message = Message {
            incarnation: INCARNATION,
            credits: 0,
            body,
        };
        self.messages.memory.store(0, &message.encode());
        let segment = self.messages.segment(0, MESSAGE_SIZE);
        self.ia
            .post_send(self.ep, &[segment], 0, CompletionFlags::empty())
            .during("dat_ep_post_send")
    }

    fn next(&self, evd: EvdId) -> Result<Event> {
        let mut begin = None;
        loop {
            self.ia.progress(self.course.now());
            if let Some(event) = host::dequeue(&self.ia, evd)? {
                return Ok(event);
            }
            self.course.go_on();
            if begin.get_or_insert_with(Clock::now).elapsed() > PATIENCE {
                return Err(Failure::operation(
                    "waiting for the exporter failed",
                    "it did not respond for 10 seconds",
                ));
            }
        }
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
            self.ia
                .post_rdma_write(self.ep, &segment, 0, &remote, CompletionFlags::SUPPRESS)
                .during("dat_ep_post_rdma_write")?;
        }
        let segment = [self.messages.segment(0, FLUSH)];
        let none = CompletionFlags::empty();
        self.ia
            .post_rdma_read(self.ep, &segment, 0, &self.flush, none)
            .during("dat_ep_post_rdma_read")?;
        loop {
            if let Event::Dto(done) = self.next(self.transfers)? {
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
    pub(crate) fn disconnect(self) -> Result<()> {
        self.say(Body::Disconnect {
            importer: self.importer,
        })?;
        while !matches!(self.next(self.transfers)?, Event::Dto(done) if done.cookie == 0) {}
        self.ia
            .ep_disconnect(self.ep, CloseFlags::Abrupt)
            .during("dat_ep_disconnect")?;
        self.next(self.connections)?;
        Ok(())
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
