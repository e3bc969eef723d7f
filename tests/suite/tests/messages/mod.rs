//! Interrupts of paravirtual adapters, written as words of memory.
//!
//! They end waits, false ones are detected, and the driver also works when they are lost.

use backend_mmio::DeviceFault;
use backend_mmio::defs::pvrdma::{Notice, notice};
use backend_mmio::pvrdma::MessageWords;
use backend_mmio::ring::DeviceState;
use dat_core::backend::{Backend, BackendError, ControlEvent};
use dat_core::event::{Event, Wait, WakeReason};
use dat_core::flags::DtoStatus;
use dat_core::time::Instant;
use dat_tests::fixture::{Net, Party, PartyOptions, Testbed};
use mmio_model::pvrdma::{Messages, PvrdmaModel, PvrdmaQuirks};
use std::task::Waker;

use super::PvrdmaBed;

impl PvrdmaBed {
    /// Opens a device with its own way to send messages; returns its state as well.
    fn sending(&self, messages: Messages) -> (PvrdmaModel, &'static DeviceState) {
        let (lent, state) = Box::leak(Box::new(DeviceState::new())).lend();
        let quirks = PvrdmaQuirks {
            messages,
            ..PvrdmaQuirks::default()
        };
        let device = self.fabric.device_with_quirks(self.options(), lent, quirks);
        (device.expect("a device"), state)
    }
}

/// Steps the fabric until an interrupt has written a word.
struct Words<'a> {
    bed: &'a PvrdmaBed,
    words: &'static MessageWords,
    /// Set if an interrupt ended a wait.
    ended: bool,
}

impl Wait for Words<'_> {
    fn now(&mut self) -> Instant {
        self.bed.now()
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        while self.words.is_silent() {
            if until.is_some_and(|until| until <= self.bed.now()) {
                return WakeReason::TimedOut;
            }
            assert!(self.bed.step(), "the wait never ends");
        }
        self.ended = true;
        WakeReason::Woken
    }
}

/// Only words of memory end these waits: for a receive and for a request.
///
/// Spec: EVW-01, DTO-10
#[test]
fn words_written_by_interrupts_end_waits() {
    let bed = PvrdmaBed::new();
    let net = Net::new(&bed);
    let (device, _) = bed.sending(Messages::Sent);
    let words = bed.fabric.messages(0).expect("words");
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter_over(device), &options);
    let right = Party::new(&net.adapter(), &options);
    net.connect(&left, &right);
    let wait = |evd| {
        let mut words = Words {
            bed: &bed,
            words,
            ended: false,
        };
        let waited = left.ia.evd_wait_until(evd, 1, None, &mut words);
        assert!(words.ended, "the wait ended by itself");
        waited.expect("an event").event
    };
    for cookie in 0..40 {
        left.receive_into(&[left.memory.segment(0, 8)], cookie);
        right.send_from(&[right.memory.segment(0, 8)], cookie);
        let Event::Dto(done) = wait(left.receive) else {
            panic!("no completion")
        };
        assert_eq!((done.cookie, done.status), (cookie, DtoStatus::Success));
        net.success(&right, cookie);
        right.receive_into(&[right.memory.segment(0, 8)], cookie);
        left.send_from(&[left.memory.segment(0, 8)], cookie);
        let Event::Dto(done) = wait(left.request) else {
            panic!("no completion")
        };
        assert_eq!((done.cookie, done.status), (cookie, DtoStatus::Success));
        net.receive_completion(&right);
    }
}

/// The first completion queue created after the driver's own.
const FIRST_QUEUE: u32 = 0x12;

/// Events are reported also if interrupts are lost or crossed: the rings count.
///
/// A driver that got an interrupt has work to do at once. One that got none has no deadline.
///
/// Spec: DTO-10, DTO-11
#[test]
fn lost_interrupts_hide_no_events() {
    let all = [
        (Messages::Sent, 1),
        (Messages::Crossed, 1),
        (Messages::Unwanted, 1),
        (Messages::Lost, 64),
    ];
    for (messages, looks) in all {
        let bed = PvrdmaBed::new();
        let (mut device, state) = bed.sending(messages);
        let _queue = device.create_completion_queue(0, 8).expect("a queue");
        // The message of the last answer may still be there.
        assert_eq!(device.poll_control(bed.now()), None);
        assert_eq!(device.next_deadline(), None, "{messages:?}");
        bed.fabric.report_completions(0, FIRST_QUEUE);
        bed.step();
        let param = matches!(messages, Messages::Sent | Messages::Crossed);
        let due = param.then_some(Instant::ZERO);
        assert_eq!(device.next_deadline(), due, "{messages:?}");
        let mut polled = (0..looks).filter_map(|_| device.poll_control(bed.now()));
        let expected = ControlEvent::Completions { queue: 0 };
        assert_eq!(polled.next(), Some(expected), "{messages:?}");
        assert_eq!(device.poll_control(bed.now()), None);
        assert_eq!(device.next_deadline(), None, "{messages:?}");
        assert_eq!(state.fault(), None);
    }
}

/// A command that takes a notice's message for its answer's hides no notice.
///
/// The driver then has work to do at once.
///
/// Spec: DTO-10, DTO-11
#[test]
fn a_command_does_not_hide_a_notice() {
    for messages in [Messages::Sent, Messages::Crossed, Messages::First] {
        let bed = PvrdmaBed::new();
        let (mut device, state) = bed.sending(messages);
        let words = bed.fabric.messages(0).expect("words");
        let _queue = device.create_completion_queue(0, 8).expect("a queue");
        assert_eq!(device.poll_control(bed.now()), None);
        assert_eq!(device.next_deadline(), None, "{messages:?}");
        bed.fabric.report_completions(0, FIRST_QUEUE);
        bed.step();
        device.create_domain().expect("a domain");
        if messages == Messages::First {
            assert!(words.is_silent(), "the command took it");
        }
        assert_eq!(device.next_deadline(), Some(Instant::ZERO), "{messages:?}");
        let expected = ControlEvent::Completions { queue: 0 };
        assert_eq!(device.poll_control(bed.now()), Some(expected));
        assert_eq!(device.poll_control(bed.now()), None);
        assert_eq!(device.next_deadline(), None, "{messages:?}");
        assert_eq!(state.fault(), None);
    }
}

/// A wrong word from any interrupt gives the device up; no work is left then.
///
/// Spec: DTO-11
#[test]
fn a_device_that_writes_other_words_is_abandoned() {
    for bit in 0..u32::BITS {
        for what in 0..4 {
            let bed = PvrdmaBed::new();
            let (mut device, state) = bed.sending(Messages::Sent);
            let domain = device.create_domain().expect("a domain");
            device.poll_control(bed.now());
            bed.fabric.corrupt_message(0, 1 << bit);
            match what {
                0 => assert_eq!(device.create_domain(), Err(BackendError::Device)),
                1 => device.destroy_domain(domain),
                2 => bed.fabric.report_event(
                    0,
                    Notice {
                        kind: notice::SHARED_LIMIT,
                        handle: 0,
                    },
                ),
                _ => bed.fabric.report_completions(0, FIRST_QUEUE),
            }
            bed.step();
            // The call that detects the fault leaves it to the next one to halt the device.
            let param = (0..2).find_map(|_| device.poll_control(bed.now()));
            assert_eq!(param, Some(ControlEvent::DeviceFailed), "{what}, {bit}");
            assert_eq!(state.fault(), Some(DeviceFault::WrongMessage));
            assert_eq!(bed.fabric.active(), 0);
            assert_eq!(device.poll_control(bed.now()), None);
            assert_eq!(device.next_deadline(), None);
        }
    }
}
