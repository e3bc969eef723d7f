//! The node that sends and does anything that an input selects.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use backend_mock::NodeOptions;
use dat_core::attributes::EpAttributes;
use dat_core::event::{ConnectionEventKind, DtoOperation, Event};
use dat_core::flags::{CompletionFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::{LmrCreated, LmrTriplet, RmrTriplet};
use dat_core::time::Instant;
use dat_rsm::wire::{Body, GREETING_SIZE, Greeting, MESSAGE_SIZE, Message};
use dat_rsm::{DEFAULT_QUALIFIER, RsmError};

use super::pages::{BAIT, INTRUDER_PAGES, MESSAGES, SECRET, STOLEN, VICTIM_PAGES, store};
use super::{Adapter, FRIEND, INTRUDER, LIFE, PAGE, SEGMENTS, VICTIM};
use crate::consumer::{address, connect_to, register};
use crate::script::pick;

/// The receives of each endpoint of the intruder.
const RECEIVES: usize = 8;
/// The most endpoints that the intruder creates in a run.
const ENDPOINTS: usize = 6;

/// The intruder.
pub(super) struct Intruder<'s> {
    ia: Adapter<'s>,
    zone: PzId,
    transfers: EvdId,
    connections: EvdId,
    arrivals: EvdId,
    memory: [LmrCreated; 3],
    /// The endpoints, oldest first; true for a connected one.
    endpoints: RefCell<Vec<(EpId, bool)>>,
    /// Words that it received, and well-known words.
    words: RefCell<Vec<u64>>,
    /// Addresses and keys that it received.
    pub(super) keys: RefCell<Vec<(u64, u32)>>,
    /// Its answer to a connection request of the victim, if any.
    pub(super) answer: Cell<Option<u8>>,
}

impl<'s> Intruder<'s> {
    pub(super) fn new(ia: Adapter<'s>) -> Self {
        let zone = ia.pz_create().expect("a zone");
        let dispatcher = |flags| ia.evd_create(64, None, flags).expect("a dispatcher");
        let transfers = dispatcher(EvdFlags::DTO);
        let connections = dispatcher(EvdFlags::CONNECTION);
        let arrivals = dispatcher(EvdFlags::CR);
        ia.psp_create(DEFAULT_QUALIFIER, arrivals, PspFlags::Consumer)
            .expect("a service point");
        let memory = [MESSAGES, STOLEN, BAIT].map(|page| {
            let made = register(&ia, zone, &INTRUDER_PAGES.0[page], MemoryPrivileges::ALL);
            made.expect("memory")
        });
        Self {
            ia,
            zone,
            transfers,
            connections,
            arrivals,
            memory,
            endpoints: RefCell::default(),
            words: RefCell::new(vec![0, 1, 2, u64::MAX]),
            keys: RefCell::new(vec![(0, 0), (0, 1)]),
            answer: Cell::new(None),
        }
    }

    fn segment(&self, page: usize, offset: usize, length: usize) -> LmrTriplet {
        LmrTriplet {
            context: self.memory[page].lmr_context,
            address: address(&INTRUDER_PAGES.0[page]) + offset as u64,
            length: length as u64,
        }
    }

    fn endpoint(&self) -> Option<EpId> {
        let number = self.endpoints.borrow().len();
        if number == ENDPOINTS {
            return None;
        }
        let attributes = EpAttributes {
            max_message_size: 1 << 20,
            max_rdma_size: 1 << 20,
            max_request_dtos: 16,
            max_recv_dtos: RECEIVES as i32,
            max_rdma_read_in: 16,
            max_rdma_read_out: 16,
            ..EpAttributes::DEFAULT
        };
        let (both, connect) = (Some(self.transfers), Some(self.connections));
        let ep = self
            .ia
            .ep_create(Some(self.zone), both, both, connect, Some(&attributes))
            .expect("an endpoint");
        for index in 0..RECEIVES {
            self.listen(ep, number * RECEIVES + index);
        }
        self.endpoints.borrow_mut().push((ep, false));
        Some(ep)
    }

    fn listen(&self, ep: EpId, index: usize) {
        // The first slot is for sends.
        let segment = self.segment(MESSAGES, (index + 1) * MESSAGE_SIZE, MESSAGE_SIZE);
        let flags = CompletionFlags::empty();
        let _over = self.ia.post_recv(ep, &[segment], index as u64, flags);
    }

    fn greeting(&self, variant: u8) -> Vec<u8> {
        let mut greeting = Greeting {
            node: INTRUDER,
            incarnation: LIFE,
            read_back_address: address(&INTRUDER_PAGES.0[BAIT]),
            read_back_key: self.memory[BAIT].rmr_context,
            credits: RECEIVES as u16,
            big_endian: false,
            non_coherent: false,
        };
        match variant % 10 {
            1 => greeting.node = FRIEND,
            2 => greeting.node = VICTIM,
            3 => greeting.node = 77,
            4 => greeting.credits = 1,
            5 => greeting.credits = u16::MAX,
            6 => greeting.read_back_key = 1,
            7 => greeting.read_back_address = u64::MAX,
            8 => greeting.big_endian = true,
            _ => {}
        }
        let mut bytes = greeting.encode().to_vec();
        if variant % 10 == 9 {
            bytes.truncate(usize::from(variant) % GREETING_SIZE);
        }
        bytes
    }

    pub(super) fn connect(&self, variant: u8, now: Instant) {
        let Some(ep) = self.endpoint() else {
            return;
        };
        let victim = NodeOptions::new("", u64::from(VICTIM)).address;
        let greeting = self.greeting(variant);
        let to = connect_to(victim, DEFAULT_QUALIFIER, 1_000_000, &greeting);
        self.ia
            .ep_connect(ep, &to, now)
            .expect("a connection attempt");
    }

    /// Returns a connected endpoint by its distance from the newest one.
    fn connected(&self, choice: u8) -> Option<EpId> {
        let endpoints = self.endpoints.borrow();
        let connected: Vec<EpId> = endpoints
            .iter()
            .rev()
            .filter(|(_, connected)| *connected)
            .map(|(ep, _)| *ep)
            .collect();
        pick(&connected, choice.into())
    }

    pub(super) fn send(&self, bytes: &[u8]) {
        if let Some(ep) = self.connected(0) {
            store(&INTRUDER_PAGES.0[MESSAGES], bytes);
            let segment = self.segment(MESSAGES, 0, bytes.len());
            let flags = CompletionFlags::empty();
            let _full = self.ia.post_send(ep, &[segment], u64::MAX, flags);
        }
    }

    fn word(&self, choice: u8) -> u64 {
        let words = self.words.borrow();
        // The newest comes first.
        let index = usize::from(choice & 0x3F) % words.len();
        let word = words[words.len() - 1 - index];
        match choice >> 6 {
            2 => word.wrapping_add(1),
            3 => word.wrapping_sub(1),
            _ => word,
        }
    }

    pub(super) fn message(&self, kind: u8, word: u8, other: u8, half: u8) -> Message {
        let (first, second) = (self.word(word), self.word(other));
        let key = self.memory[BAIT].rmr_context;
        let bait = address(&INTRUDER_PAGES.0[BAIT]);
        let (address, key) = match half % 4 {
            0 => (bait, key),
            1 => (u64::MAX - 7, key),
            2 => (address(&VICTIM_PAGES.0[SECRET]), key),
            _ => (bait, u32::MAX),
        };
        let no_accumulate = half & 1 == 1;
        let body = match kind % 12 {
            0 => Body::Credit,
            1 => Body::Connect {
                import: first,
                segment: SEGMENTS[usize::from(half) % SEGMENTS.len()],
                permission: [0o400, 0o200, 0o600, 0, 0o777, u32::MAX][usize::from(half >> 2) % 6],
                user: u32::from(half >> 6),
                group: 0,
                resume: if other & 0x80 == 0 { 0 } else { second },
            },
            2 => Body::Accept {
                import: first,
                importer: second,
                length: [PAGE as u64, 0, u64::MAX, 7][usize::from(half >> 2) % 4],
                address,
                key,
                publication: second | 1,
            },
            3 => Body::Refuse {
                import: first,
                error: RsmError::ALL[usize::from(half) % RsmError::ALL.len()],
            },
            4 => Body::Disconnect { importer: first },
            5 => Body::Revoke {
                import: first,
                importer: second,
            },
            6 => Body::Rebind {
                import: first,
                importer: second,
                address,
                key,
            },
            7 => Body::Acknowledge { importer: first },
            8 => Body::Signal {
                importer: first,
                no_accumulate,
            },
            9 => Body::SignalImporters {
                publication: first,
                no_accumulate,
            },
            10 => Body::Synchronise {
                importer: first,
                call: second,
                offset: address,
                length: u64::from(half) << 8,
                writes: no_accumulate,
            },
            _ => Body::Synchronised { call: first },
        };
        Message {
            incarnation: LIFE,
            credits: u16::from(half & 3),
            body,
        }
    }

    pub(super) fn access(&self, write: bool, remote: &RmrTriplet, choice: u8) {
        let Some(ep) = self.connected(choice & 1) else {
            return;
        };
        let length = usize::try_from(remote.length).expect("small");
        let flags = CompletionFlags::empty();
        let _full = if write {
            let segment = [self.segment(BAIT, 0, length)];
            self.ia
                .post_rdma_write(ep, &segment, u64::MAX, remote, flags)
        } else {
            let segment = [self.segment(STOLEN, 0, length)];
            self.ia
                .post_rdma_read(ep, &segment, u64::MAX, remote, flags)
        };
    }

    /// Handles its events: records words and keys, and answers connections.
    pub(super) fn progress(&self, now: Instant) -> usize {
        let mut handled = self.ia.progress(now);
        while let Ok(Event::ConnectionRequest { cr, .. }) = self.ia.evd_dequeue(self.arrivals) {
            handled += 1;
            match self.endpoint() {
                Some(ep) => {
                    let _gone = self.ia.cr_accept(cr, Some(ep), &self.greeting(0));
                }
                None => {
                    let _gone = self.ia.cr_reject(cr, &[]);
                }
            }
        }
        while let Ok(event) = self.ia.evd_dequeue(self.connections) {
            handled += 1;
            if let Event::Connection { kind, ep, .. } = event {
                let mut endpoints = self.endpoints.borrow_mut();
                if let Some(entry) = endpoints.iter_mut().find(|(other, _)| *other == ep) {
                    entry.1 = kind == ConnectionEventKind::Established;
                }
            }
        }
        while let Ok(event) = self.ia.evd_dequeue(self.transfers) {
            handled += 1;
            let Event::Dto(done) = event else {
                continue;
            };
            if done.operation != DtoOperation::Receive || done.status != DtoStatus::Success {
                continue;
            }
            let index = done.cookie as usize;
            let from = &INTRUDER_PAGES.0[MESSAGES][(index + 1) * MESSAGE_SIZE..];
            let mut bytes = [0; MESSAGE_SIZE];
            for (byte, cell) in bytes.iter_mut().zip(from) {
                *byte = cell.load(Ordering::Relaxed);
            }
            let message = Message::decode(&bytes).expect("the victim keeps to the protocol");
            self.note_keys(message.body);
            self.listen(done.ep, index);
            if let (Body::Connect { .. }, Some(answer)) = (message.body, self.answer.get()) {
                // A grant or a refusal of the newest word that it received.
                let kind = if answer & 0x40 == 0 { 2 } else { 3 };
                self.send(&self.message(kind, 0, 1, answer).encode());
            }
        }
        handled
    }

    fn note_keys(&self, body: Body) {
        let mut words = self.words.borrow_mut();
        match body {
            Body::Connect { import, resume, .. } => words.extend([resume, import]),
            Body::Accept {
                importer,
                address,
                key,
                publication,
                ..
            } => {
                words.extend([publication, importer]);
                self.keys.borrow_mut().push((address, key));
            }
            Body::Rebind {
                importer,
                address,
                key,
                ..
            } => {
                words.push(importer);
                self.keys.borrow_mut().push((address, key));
            }
            Body::Revoke { importer, .. }
            | Body::Disconnect { importer }
            | Body::Acknowledge { importer }
            | Body::Signal { importer, .. } => words.push(importer),
            Body::SignalImporters { publication, .. } => words.push(publication),
            Body::Synchronise { importer, call, .. } => words.extend([importer, call]),
            Body::Synchronised { call } => words.push(call),
            Body::Credit | Body::Refuse { .. } => {}
        }
    }
}
