//! Calls on the adapter itself, error texts, and the adapter's close.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use dat_core::attributes::IaAddress;
use dat_core::error::{Abi, Cause, ErrorKind, Subtype};
use dat_core::flags::{CloseFlags, HandleKind, IaFields, ProviderFields};
use dat_core::{Error, strerror};

use super::extended::extensions;
use super::{Outcome, Runner};
use crate::expect::{Checks, Verdict};
use crate::op::{AdapterOp, Side};
use crate::world::{DISPATCHERS, ENDPOINTS, Key, SHARED_QUEUES, ZONES};

/// Counts wake-ups.
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn choose<T: Copy>(all: &[T], choice: u8) -> T {
    all[usize::from(choice) % all.len()]
}

const fn abi(other: bool) -> Abi {
    if other { Abi::V2_0 } else { Abi::V1_2 }
}

/// Error class in a return code (GEN-01).
const CLASS_ERROR: u32 = 0x8000_0000;
/// Masks of the class and of the kind.
const CLASS: u32 = 0xC000_0000;
const TYPE: u32 = 0x3FFF_0000;

impl Runner {
    pub(super) fn adapter(&mut self, side: Side, op: &AdapterOp) -> Outcome {
        match *op {
            AdapterOp::Query {
                unknown_mask,
                unknown_provider_mask,
            } => self.ia_query(side, unknown_mask, unknown_provider_mask),
            AdapterOp::Extensions => {
                let known = extensions(side);
                let reported = self.with(side, |ia| ia.extensions());
                self.expect(reported == known, format_args!("{known:?}"), reported)
            }
            AdapterOp::Context { value } => self.own_context(side, u64::from(value)),
            AdapterOp::DirectAccess => {
                let outcome =
                    self.with(side, |ia| ia.with_direct_access(|access| access.is_some()));
                let some = self.judge(&Checks::default().verdict(), outcome)?;
                self.expect(some == Some(true), "direct access", some)
            }
            AdapterOp::Interrupt { times, waker } => self.interrupt(side, times, waker),
            AdapterOp::Strerror {
                kind,
                subtype,
                cause,
                other_abi,
            } => {
                self.value(u32::from(kind))?;
                let kind = choose(ErrorKind::ALL, kind);
                let subtype = choose(Subtype::ALL, subtype);
                let error = Error::new(kind, subtype).because(choose(Cause::ALL, cause));
                self.error_words(error, abi(other_abi))
            }
            AdapterOp::Address {
                octets,
                port,
                scope,
            } => self.address(octets, port, scope),
            AdapterOp::StrerrorOf { code, other_abi } => self.code_words(code, abi(other_abi)),
            AdapterOp::Cramped => self.cramped(),
        }
    }

    /// Checks the adapter's own consumer context (CTX-01 to CTX-04, HTY-01).
    fn own_context(&mut self, side: Side, value: u64) -> Outcome {
        let before = std::mem::replace(&mut self.contexts[side.index()], value);
        let handles = [side, side.other()].map(|side| self.with(side, |ia| ia.handle()));
        let fine = Checks::default().verdict();
        let dead = Verdict::refused(ErrorKind::InvalidHandle, None);
        for (handle, verdict) in handles.into_iter().zip([fine, dead]) {
            let outcome = self.with(side, |ia| {
                let found = ia.get_consumer_context(handle)?;
                ia.set_consumer_context(handle, value)?;
                Ok((found, ia.get_handle_type(handle)?))
            });
            let found = self.judge(&verdict, outcome)?;
            self.expect(
                found.is_none_or(|found| found == (before, HandleKind::Ia)),
                format_args!("context {before} of an adapter (CTX-04)"),
                found,
            )?;
        }
        Ok(())
    }

    /// Checks that an adapter address prints like its socket address or node number.
    fn address(&mut self, octets: u64, port: u16, scope: u32) -> Outcome {
        let [.., a, b, c, d] = octets.to_be_bytes();
        let upper = u128::from(octets) << 64;
        let sockets = [
            SocketAddr::from(([a, b, c, d], port)),
            SocketAddrV6::new(Ipv6Addr::from(upper | u128::from(octets)), port, 0, scope).into(),
        ];
        for socket in sockets {
            let address = IaAddress::from(socket);
            self.expect(
                address.socket_address() == Some(socket)
                    && address.to_string() == socket.to_string(),
                format_args!("the address {socket}"),
                address,
            )?;
        }
        let node = IaAddress::Node(octets);
        self.expect(
            node.socket_address().is_none() && node.to_string() == format!("node {octets}"),
            "the number of a node",
            node,
        )
    }

    /// Checks `ia_query` (IAQ-01 to IAQ-12, GEN-08).
    ///
    /// Each limit is the smaller of the device's limit and of the lent storage.
    fn ia_query(&mut self, side: Side, unknown: bool, unknown_provider: bool) -> Outcome {
        let mut checks = Checks::default();
        checks.parameter(unknown, 3);
        checks.parameter(unknown_provider, 5);
        let with = |all: u64, unknown: bool| if unknown { all | 1 << 62 } else { all };
        let fields = IaFields::from_bits_retain(with(IaFields::all().bits(), unknown));
        let all = ProviderFields::all().bits();
        let provider = ProviderFields::from_bits_retain(with(all, unknown_provider));
        let outcome = self.with(side, |ia| ia.ia_query(fields, provider));
        if let Some(param) = self.judge(&checks.verdict(), outcome)? {
            let most = |limit: i32, slots: usize| usize::try_from(limit) == Ok(slots);
            let holds = self.key(param.async_evd) == Some(self.world.async_evds[side.index()])
                && most(param.ia.max_eps, ENDPOINTS)
                && most(param.ia.max_evds, DISPATCHERS)
                && most(param.ia.max_pzs, ZONES)
                && most(param.ia.max_srqs, SHARED_QUEUES)
                && param.provider.lmr_sync_req
                    == (side == Side::B && !self.world.arena(side).coherent);
            self.expect(holds, "the limits of what was lent (IAQ-01)", param)?;
        }
        Ok(())
    }

    /// Checks that interrupts are counted until taken, and wake the thread that drives progress.
    fn interrupt(&mut self, side: Side, times: u8, register: bool) -> Outcome {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let (left, taken, again) = self.with(side, |ia| {
            let left = ia.take_interrupts();
            if register {
                ia.register_progress_waker(&waker);
            }
            let handle = ia.interrupt_handle();
            for _ in 0..times {
                handle.notify();
            }
            (left, ia.take_interrupts(), ia.take_interrupts())
        });
        let woken = count.0.load(Ordering::Relaxed);
        // A waker is used once.
        let due = u32::from(register && times != 0);
        self.expect(
            left == 0 && taken == u32::from(times) && again == 0 && woken == due,
            format_args!("{times} interrupts, and {due} wake-ups"),
            (left, taken, again, woken),
        )
    }

    /// Checks the conversion of numbers to values of an enumeration (GEN-04, GEN-07).
    ///
    /// An unknown number gives an error that names it.
    fn value(&mut self, number: u32) -> Outcome {
        let value = HandleKind::try_from(number);
        let holds = match value {
            Ok(value) => u32::from(value) == number && HandleKind::ALL.contains(&value),
            Err(unknown) => {
                HandleKind::ALL.iter().all(|kind| kind.value() != number)
                    && unknown.to_string().contains(&number.to_string())
                    && unknown.in_argument(2).subtype() == Subtype::InvalidArg2
            }
        };
        self.expect(holds, format_args!("the value {number}"), value)
    }

    /// Checks that an error survives conversion to its code (GEN-01, STR-01 to STR-03).
    fn error_words(&mut self, error: Error, abi: Abi) -> Outcome {
        let code = error.code(abi);
        let text = error.to_string();
        let parts = [
            error.kind().text(),
            error.subtype().text(),
            error.cause().text(),
        ];
        let complete = text.starts_with(parts[0])
            && (error.subtype() == Subtype::NoSubtype || text.contains(parts[1]))
            && (error.cause() == Cause::None || text.contains(parts[2]));
        let words = parts.iter().all(|part| !part.is_empty());
        let numbers = Cause::from_number(error.cause() as u8) == Some(error.cause())
            && format!("{error:?}").contains(&format!("{:?}", error.subtype()));
        self.expect(numbers, "the cause of its number", error)?;
        self.expect(
            complete && words,
            "words for type, subtype and cause",
            &text,
        )?;
        let again = Error::from_code(code, abi);
        // The older edition maps what it lacks to something close (GEN-01).
        let close = abi == Abi::V1_2;
        let same = match again {
            Some(Err(again)) => {
                again.same_code(error)
                    || again.kind() == error.kind() && again.subtype() == Subtype::NoSubtype
                    || close
            }
            _ => false,
        };
        self.expect(
            code & CLASS == CLASS_ERROR && same,
            format_args!("a code that means {error:?} (GEN-01)"),
            (code, again),
        )?;
        self.code_words(code, abi)
    }

    /// Checks that the texts of a code are those of its meaning (STR-02, STR-03).
    fn code_words(&mut self, code: u32, abi: Abi) -> Outcome {
        let meaning = Error::from_code(code, abi);
        let verdict = match meaning {
            Some(_) => Checks::default().verdict(),
            None => Verdict::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg1),
        };
        // GEN-01: there are only the classes success and error, and no kind beyond the last.
        let impossible = code & CLASS != CLASS_ERROR && code & CLASS != 0;
        self.expect(
            !(impossible && meaning.is_some()) && (code != 0 || meaning == Some(Ok(()))),
            "no meaning of another class (GEN-01)",
            meaning,
        )?;
        let outcome = strerror(code, abi);
        if let Some((major, minor)) = self.judge(&verdict, outcome)? {
            let expected = match meaning {
                Some(Err(error)) => (error.kind().text(), error.subtype().text()),
                _ => ("success", Subtype::NoSubtype.text()),
            };
            self.expect(
                (major, minor) == expected && (code & TYPE == 0) == (major == "success"),
                format_args!("{expected:?} (STR-02)"),
                (major, minor),
            )?;
        }
        Ok(())
    }

    /// Closes the adapter (IAC-01 to IAC-03): gracefully if no objects are left, else abruptly.
    ///
    /// All handles are then invalid.
    pub(super) fn close(&mut self, side: Side) -> Outcome {
        self.call = "close, at the end of the run".into();
        let own = |(key, object): &(&Key, &crate::world::Object)| {
            object.side == side && object.alive && **key != self.world.async_evds[side.index()]
        };
        let left: Vec<Key> = self
            .world
            .objects
            .iter()
            .filter(own)
            .map(|(key, _)| *key)
            .collect();
        let mut checks = Checks::default();
        checks.state(
            left.iter().any(|key| self.handles.contains_key(key)),
            Subtype::InvalidStateIaInUse,
        );
        if !left.is_empty() {
            checks.possible(ErrorKind::InvalidState);
        }
        let shut = |flags| move |ia: &super::Adapter<'_>| ia.shut(flags).map(drop);
        let outcome = self.with(side, shut(CloseFlags::Graceful));
        if self.judge(&checks.verdict(), outcome)?.is_none() {
            let outcome = self.with(side, shut(CloseFlags::Abrupt));
            self.judge(&Checks::default().verdict(), outcome)?;
        }
        let closed = Verdict::refused(ErrorKind::InvalidHandle, Subtype::InvalidHandleIa);
        for flags in [CloseFlags::Graceful, CloseFlags::Abrupt] {
            let outcome = self.with(side, shut(flags));
            self.judge(&closed, outcome)?;
        }
        let all = (IaFields::all(), ProviderFields::all());
        let outcome = self.with(side, |ia| ia.ia_query(all.0, all.1).map(drop));
        self.judge(&closed, outcome)?;
        for key in left {
            let handle = self.handle(Some(key));
            let outcome = self.with(side, |ia| ia.get_handle_type(handle));
            let dead = Verdict::refused(ErrorKind::InvalidHandle, None);
            self.judge::<HandleKind>(&dead, outcome)?;
        }
        Ok(())
    }
}
