//! The verbs backend over libraries that complete and report anything.
//!
//! The whole backend runs, over the model of libibverbs and librdmacm. The consumer makes
//! legitimate calls. Between them the device carries out posts, forges completions, answers polls
//! with nonsense, refuses calls and reports false events; the connection manager does the same.
//! Nothing panics or hangs. No request names unregistered memory or exceeds its queue. A post
//! completes at most once, and exactly once if the device did its part or was caught. Everything
//! can be freed, in an order that the libraries allow, and no object of the libraries is left.

mod script;

use backend_verbs::{VerbsBackend, VerbsOptions, WindowKind};
use dat_core::Ia;
use dat_core::attributes::IaAddress;
use dat_core::flags::{CloseFlags, EndpointState, TIMEOUT_INFINITE};
use dat_core::id::CrId;
use dat_core::memory::RmrTriplet;
use dat_core::time::Instant;

pub use self::script::{FALSE_ATTRIBUTE, ODD_NUMBERS, Operation, SECOND_WINDOWS, SETUP_SIZE};
use crate::consumer::connect_to;
use crate::device::judgement::{Side, Slots, check_guards, fill};
use crate::device::{PAIRS, SUSPECT};
use crate::script::{decode, pick};
use verbs_model::{self as library, CmEvent, Found, Oddities};

/// The most operations of a run.
const OPERATIONS: usize = 64;
/// The most rounds until everything is at rest.
const ROUNDS: usize = 200;
/// The most connection requests without an answer.
const ARRIVED: usize = 16;
/// The values with which a device misreports an attribute.
const NUMBERS: [i32; 8] = [0, -1, 1, 2, 3, i32::MAX, i32::MIN, 1 << 20];
/// The errors of refused calls.
const ERRORS: [i32; 8] = [
    libc::ENOMEM,
    libc::EINVAL,
    libc::EIO,
    libc::ENODEV,
    libc::EADDRINUSE,
    libc::EADDRNOTAVAIL,
    libc::ENOSYS,
    libc::EBUSY,
];

struct World<'t> {
    side: Side<'t, VerbsBackend>,
    arrived: Vec<CrId>,
}

/// Returns the oddities of an input's device.
fn oddities([what, which, number, name]: [u8; SETUP_SIZE]) -> Oddities {
    let number = NUMBERS[usize::from(number) % NUMBERS.len()];
    Oddities {
        second_windows: what & SECOND_WINDOWS != 0,
        attribute: (what & FALSE_ATTRIBUTE != 0).then_some((which, number)),
        number: (what & ODD_NUMBERS != 0).then_some(match name {
            0..0x80 => name.into(),
            _ => u32::from(name) << 17,
        }),
    }
}

/// Runs an input.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    let Some((setup, rest)) = input.split_first_chunk::<SETUP_SIZE>() else {
        return;
    };
    fill();
    let oddities = oddities(*setup);
    library::begin(oddities);
    let may_lack = oddities.attribute.is_some() || oddities.number.is_some();
    play(rest, may_lack);
    check_guards();
    library::end();
}

fn play(operations: &[u8], may_lack: bool) {
    let mut options = VerbsOptions::default();
    options.windows = WindowKind::Domain;
    let backend = VerbsBackend::open(library::STRICT, options).expect("a device");
    backend.on_event(library::alerted).expect("a call");
    let mut slots = Box::new(Slots::default());
    let ia = match Ia::open(backend, slots.lend(), 8) {
        Ok(ia) => ia,
        Err(refused) => {
            assert!(may_lack, "the adapter could not be opened: {refused}");
            return;
        }
    };
    let Some(mut side) = Side::new(SUSPECT, ia, may_lack) else {
        return;
    };
    // The core finds a request by its token. It does not also check the queue, which would take
    // time on every completion.
    side.any_dispatcher = true;
    side.numbers = true;
    let mut world = World {
        side,
        arrived: Vec::new(),
    };
    let polled = library::queues();
    for pair in 0..PAIRS {
        world.connect(pair, 0);
        world.run_to_idle(ROUNDS);
    }
    for operation in decode(operations, OPERATIONS) {
        world.act(operation);
    }
    world.end(&polled);
}

impl World<'_> {
    fn act(&mut self, operation: Operation) {
        match operation {
            Operation::Post {
                at,
                kind,
                offset,
                length,
                flags,
            } => {
                // A peer checks its own memory.
                let to = RmrTriplet {
                    context: 5,
                    address: u64::from(offset),
                    length: u64::from(length) * 8,
                };
                self.side.post(&to, at, kind, offset, length, flags);
            }
            Operation::Take { from } => self.take(usize::from(from) % 4),
            Operation::Wait { from, threshold } => {
                self.side.wait(usize::from(from) % 3, threshold);
            }
            Operation::Advance { rounds } => {
                for _ in 0..rounds % 8 {
                    self.side.ia.progress(Instant::ZERO);
                }
            }
            Operation::CarryOut {
                pair,
                count,
                length,
            } => {
                let (which, receives) = (usize::from(pair >> 1), pair & 1 != 0);
                library::carry_out(which, receives, count.into(), u32::from(length) * 8);
            }
            Operation::Forge {
                queue,
                which,
                how,
                status,
                opcode,
                length,
                pair,
            } => {
                let known = library::outstanding();
                let (token, number) = pick(&known, which.into())
                    .unwrap_or((u64::from(which) << 32 | u64::from(which), 1));
                let bit = u64::from(how & 63);
                let found = Found {
                    token: match how >> 6 {
                        0 | 1 => token,
                        2 => token ^ 1 << bit,
                        _ => token.wrapping_add(bit).rotate_left(u32::from(how & 31)),
                    },
                    status: match status {
                        0..0xF0 => u32::from(status % 24),
                        _ => u32::MAX - u32::from(status),
                    },
                    opcode: [0, 1, 2, 5, 6, 128, 129, u32::MAX][usize::from(opcode % 8)],
                    length: [0, 8, 2048, 4096, 1 << 16, 1 << 31, u32::MAX][usize::from(length % 7)],
                    pair: match pair {
                        0..0x80 => number,
                        0x80..0xC0 => u32::from(pair & 63),
                        _ => u32::from(pair) << 17,
                    },
                };
                library::forge(queue.into(), found);
            }
            Operation::Answer { queue, number } => {
                let nonsense = [-1, 17, i32::MAX, i32::MIN][usize::from(number % 4)];
                library::answer(queue.into(), nonsense);
            }
            Operation::Follow { which, data } => {
                library::follow(which.into(), private_data(data, 200));
            }
            Operation::FalseCmEvent {
                which,
                kind,
                status,
                data,
                length,
                depths,
                peer,
            } => {
                let event = CmEvent {
                    kind: match kind {
                        0..0xF0 => u32::from(kind % 18),
                        _ => u32::from(kind) << 20,
                    },
                    status: [0, 28, -110, 1, i32::MIN, 24][usize::from(status % 6)],
                    data: private_data(data, length),
                    depths,
                    peer,
                };
                library::report_cm_event(which.into(), event);
            }
            Operation::FalseEvent { kind, which } => {
                let kind = match kind {
                    0..0xF0 => u32::from(kind % 20),
                    _ => u32::from(kind) << 20,
                };
                library::report_event(kind, which.into());
            }
            Operation::Refuse { count, error } => {
                let error = ERRORS[usize::from(error) % ERRORS.len()];
                library::refuse(u32::from(count % 8), error);
            }
            Operation::Connection { pair, how, which } => {
                self.connection(usize::from(pair) % PAIRS, how, which);
            }
            Operation::Make { kind } => self.side.make(kind),
            Operation::Notify { queue } => library::notify_of_nothing(queue.into()),
            Operation::Keep => library::keep(),
        }
    }

    fn connection(&mut self, pair: usize, how: u8, which: u8) {
        let ep = self.side.endpoints[pair];
        let flags = [CloseFlags::Abrupt, CloseFlags::Graceful][usize::from(how >> 3) % 2];
        let request = usize::from(which) % self.arrived.len().max(1);
        let known = request < self.arrived.len();
        match how % 6 {
            0 => {
                let _anything = self.side.ia.ep_disconnect(ep, flags);
            }
            1 => {
                let _anything = self.side.reset(pair);
            }
            2 => self.connect(pair, which),
            3 if known => {
                let cr = self.arrived.remove(request);
                let data = [7; 64];
                let data = &data[..usize::from(which) % 65];
                if self.side.ia.cr_accept(cr, Some(ep), data).is_err() {
                    let _gone = self.side.ia.cr_reject(cr, &[]);
                }
            }
            4 if known => {
                let cr = self.arrived.remove(request);
                let _gone = self.side.ia.cr_reject(cr, &[1; 9]);
            }
            _ => self.run_to_idle(usize::from(which)),
        }
    }

    fn connect(&mut self, pair: usize, which: u8) {
        let data = [3; 64];
        let _anything = self.side.ia.ep_connect(
            self.side.endpoints[pair],
            &connect_to(
                IaAddress::V4([127, 0, 0, 1], 0),
                4000,
                TIMEOUT_INFINITE,
                &data[..[0, 20, 55, 56, 64][usize::from(which % 5)]],
            ),
            Instant::ZERO,
        );
    }

    fn take(&mut self, from: usize) {
        while let Ok(event) = self.side.next(from) {
            let Some(request) = self.side.taken(from, event) else {
                continue;
            };
            if self.arrived.len() == ARRIVED {
                let _gone = self.side.ia.cr_reject(request, &[]);
            } else {
                self.arrived.push(request);
            }
        }
    }

    /// Advances the adapter and the pending connection events until rest, or for `rounds`.
    fn run_to_idle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let handled = self.side.ia.progress(Instant::ZERO);
            let mut followed = false;
            for which in 0..library::ids() {
                followed |= library::follow(which, private_data(0, 0));
            }
            if handled == 0 && !followed {
                return;
            }
        }
    }

    fn end(mut self, polled: &[u64]) {
        // From here on failed requests are flushed, including those that failed before.
        library::behave();
        for from in 0..4 {
            self.take(from);
        }
        self.run_to_idle(ROUNDS);
        let caught = library::caught(polled);
        for ep in self.side.endpoints {
            let state = self.side.ia.ep_get_status(ep).expect("an endpoint").state;
            let is_connected = state == EndpointState::Connected;
            assert!(
                !(caught && is_connected),
                "connected over a device that was caught"
            );
        }
        for pair in 0..PAIRS {
            let ep = self.side.endpoints[pair];
            let _anything = self.side.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        }
        for _ in 0..4 {
            self.run_to_idle(ROUNDS);
            for from in 0..4 {
                self.take(from);
            }
            for request in self.arrived.drain(..) {
                let _gone = self.side.ia.cr_reject(request, &[]);
            }
        }
        // Completions after nonsense are lost, as the dispatcher reports.
        self.side.end(caught, library::has_behaved());
    }
}

/// Returns private data: data that was sent, a changed copy of it, or any data.
fn private_data(how: u8, length: u8) -> Vec<u8> {
    let sent = library::sent();
    match (how % 4, sent.len()) {
        (0, _) => Vec::new(),
        (1, _) | (_, 0) => {
            let mut data = vec![how; length.into()];
            if let Some(last) = data.last_mut() {
                *last = how >> 2;
            }
            data
        }
        (kind, count) => {
            let mut data = sent[usize::from(how >> 2) % count].clone();
            let bits = data.len() * 8;
            if kind == 3 && bits != 0 {
                let bit = usize::from(length) % bits;
                data[bit / 8] ^= 1 << (bit % 8);
            }
            data
        }
    }
}
