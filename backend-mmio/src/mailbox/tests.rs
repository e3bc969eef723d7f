//! Encoding of commands and answers, and other ends that are silent, gone or faulty.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{Ordering, fence};
use std::boxed::Box;
use std::vec::Vec;

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectFailure, ControlEvent, DisconnectMode, ListenerKey, PrivateData,
    RegionKeys, RequestKey, SyncDirection,
};
use dat_core::flags::{MemoryPrivileges, QualityOfService};
use dat_core::sync::NoLock;
use dat_core::time::Instant;

use super::{Mailbox, MailboxControl, MailboxRegisters, OtherEnd};
use crate::cm::{ConnectionManager, MailboxConnectionManager};
use crate::defs::mailbox::{
    ANSWER, AT, COMMAND, Command, GREETING, LENGTH, Record, UNITS, VERSION,
};
use crate::defs::mlx5::register;
use crate::mlx5::{
    CompletionQueueSpec, Control, CreatedQueuePair, DeviceEvent, QueuePairSpec,
    SharedReceiveQueueSpec,
};
use crate::platform::{DeviceUnit, Hal, RegisterIo};

/// Barriers that are all full fences: the other end runs on this thread.
#[derive(Clone, Debug)]
struct Fences;

#[expect(unsafe_code)]
// SAFETY: no device exists.
unsafe impl Hal for Fences {
    const COHERENT: bool = true;

    fn to_device() {
        fence(Ordering::SeqCst);
    }

    fn from_device() {
        fence(Ordering::SeqCst);
    }

    fn to_register() {
        fence(Ordering::SeqCst);
    }

    fn store_before_load() {
        fence(Ordering::SeqCst);
    }

    fn synchronise(&self, _direction: SyncDirection, _address: u64, _length: u64) {}
}

/// Reaction of the other end to the next command.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Answers with these words.
    Answer(&'static [u32]),
    /// Does not answer.
    Nothing,
    /// Leaves when notified.
    Leave,
}

type Units = &'static [DeviceUnit; UNITS];

/// Another end that follows a script and records its commands.
struct Scripted {
    units: Units,
    next: RefCell<Vec<Next>>,
    commands: RefCell<Vec<Command>>,
    rung: Cell<u32>,
    is_gone: Cell<bool>,
    cut_off: Cell<u32>,
    /// Arms a completion queue while a command waits for its answer.
    during_wait: Cell<Option<Registers>>,
}

type Registers = MailboxRegisters<'static, NoLock, &'static Scripted, Fences>;

fn store(units: Units, position: usize, value: u32) {
    units[position / 4][position % 4].store(value);
}

fn load(units: Units, position: usize) -> u32 {
    units[position / 4][position % 4].load()
}

#[expect(unsafe_code)]
// SAFETY: it accesses only the mailbox.
unsafe impl OtherEnd for &'static Scripted {
    fn ring(&self) {
        self.rung.set(self.rung.get() + 1);
        let serial = load(self.units, COMMAND);
        if serial == load(self.units, ANSWER) {
            return;
        }
        let mut position = COMMAND;
        let command = Command::take(&mut || {
            position += 1;
            load(self.units, position)
        });
        self.commands
            .borrow_mut()
            .push(command.expect("a command that is known"));
        let mut next = self.next.borrow_mut();
        let step = if next.is_empty() {
            Next::Nothing
        } else {
            next.remove(0)
        };
        match step {
            Next::Answer(words) => {
                for (position, word) in (ANSWER + 1..).zip(words) {
                    store(self.units, position, *word);
                }
                store(self.units, ANSWER, serial);
            }
            Next::Nothing => {}
            Next::Leave => self.is_gone.set(true),
        }
    }

    fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    fn keep_waiting(&self, polls: u32) -> bool {
        if let Some(registers) = self.during_wait.take() {
            registers.write(register::COMPLETION_QUEUE, 0x1_0000_0002);
        }
        polls < 100
    }

    fn cut_off(&self) {
        self.cut_off.set(self.cut_off.get() + 1);
    }
}

type Desk = Mailbox<'static, NoLock, &'static Scripted, Fences>;

/// Answer to the first command of a control interface.
const LIMITS: Next = Next::Answer(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 12, 13]);

fn scripted(next: &[Next]) -> (&'static Scripted, &'static Desk) {
    let units: Units = Box::leak(Box::new([const { DeviceUnit::new() }; UNITS]));
    // An earlier driver used the mailbox.
    store(units, COMMAND, 7);
    store(units, ANSWER, 7);
    let other: &'static Scripted = Box::leak(Box::new(Scripted {
        units,
        next: RefCell::new(next.to_vec()),
        commands: RefCell::default(),
        rung: Cell::new(0),
        is_gone: Cell::new(false),
        cut_off: Cell::new(0),
        during_wait: Cell::new(None),
    }));
    (other, Box::leak(Box::new(mailbox(other))))
}

/// Creates the driver's end of a mailbox.
fn mailbox(other: &'static Scripted) -> Desk {
    // SAFETY: the memory is never freed, and only the two ends access it.
    #[expect(unsafe_code)]
    unsafe {
        Mailbox::new(other.units, other)
    }
}

fn words(record: &impl Record) -> Vec<u32> {
    let mut words = Vec::new();
    record.put(&mut |word| words.push(word));
    words
}

/// Checks that a record survives the conversion, uses all its words, and fits.
fn same<T: Record + PartialEq + core::fmt::Debug>(record: &T) {
    let words = words(record);
    assert!(words.len() < LENGTH, "{record:?}: {} words", words.len());
    let mut left = words.iter().copied();
    let taken = T::take(&mut || left.next().expect("no more words than were put down"));
    assert_eq!(taken.as_ref(), Some(record));
    assert_eq!(left.next(), None, "{record:?}");
}

fn private_data() -> PrivateData {
    let mut data = PrivateData::new();
    while data.push(data.len() as u8).is_ok() {}
    data
}

#[test]
fn commands_survive_encoding() {
    let address = IaAddress::V6([9; 16], 8, 7);
    let spec = QueuePairSpec {
        domain: 1,
        user_index: 2,
        request_queue: Some(3),
        receive_queue: None,
        shared_receive_queue: Some(4),
        ring: 0x1234_5678_9ABC_DEF0,
        receive_entries: 5,
        receive_units: 6,
        send_blocks: 7,
        record: 8,
        reads_in: 9,
        reads_out: 10,
    };
    for command in [
        Command::Limits,
        Command::Register {
            domain: 1,
            address: u64::MAX - 1,
            length: 1 << 40,
            privileges: MemoryPrivileges::ALL,
        },
        Command::Deregister {
            region: RegionKeys {
                object: usize::MAX,
                local: 1,
                remote: 2,
            },
        },
        Command::CreateCompletionQueue {
            spec: CompletionQueueSpec {
                ring: 1,
                entries: 2,
                record: 3,
            },
        },
        Command::CreateSharedReceiveQueue {
            spec: SharedReceiveQueueSpec {
                domain: 1,
                ring: 2,
                entries: 3,
                units: 4,
                record: 5,
            },
        },
        Command::CreateQueuePair { spec },
        Command::Listen {
            token: 1,
            qualifier: Some(u64::MAX),
        },
        Command::StopListening {
            listener: ListenerKey(3),
        },
        Command::Connect {
            queue_pair: 1,
            address,
            qualifier: 2,
            quality: QualityOfService::PREMIUM,
            private_data: private_data(),
        },
        Command::Reject {
            request: RequestKey(1),
            by_consumer: true,
            private_data: PrivateData::from_slice(b"abcde").expect("room"),
        },
        Command::Disconnect {
            queue_pair: 1,
            mode: DisconnectMode::Broken,
        },
    ] {
        same(&command);
    }
}

#[test]
fn answers_survive_encoding() {
    let remote = IaAddress::V6([1; 16], 2, 3);
    same(&Ok::<_, BackendError>(Some(
        ControlEvent::ConnectionRequest {
            listener: 1,
            request: RequestKey(2),
            remote,
            remote_port: 3,
            local: remote,
            private_data: private_data(),
        },
    )));
    same(&Ok::<_, BackendError>(Some(ControlEvent::ConnectFailed {
        queue_pair: 1,
        failure: ConnectFailure::PeerRejected(private_data()),
    })));
    same(&Ok::<_, BackendError>(Some(DeviceEvent::QueuePairFailed(
        7,
    ))));
    same(&Ok::<_, BackendError>(CreatedQueuePair {
        number: 1,
        doorbell: 2,
        takes_blocks: true,
    }));
    same(&Err::<(), _>(BackendError::QualifierInUse));
    same(&Err::<(), _>(BackendError::Device));
    same(&Err::<(), _>(BackendError::Unreachable));
}

#[test]
fn invalid_words_are_no_record() {
    fn refused<T: Record>(words: &[u32]) {
        let mut left = words.iter().copied();
        assert!(
            T::take(&mut || left.next().unwrap_or(0)).is_none(),
            "{words:?}"
        );
    }
    refused::<Command>(&[0]);
    refused::<Command>(&[27]);
    refused::<bool>(&[2]);
    refused::<MemoryPrivileges>(&[0x100]);
    // More private data than its capacity.
    refused::<PrivateData>(&[257]);
    refused::<PrivateData>(&[u32::MAX]);
    refused::<Option<DeviceEvent>>(&[1, 9]);
    refused::<Result<(), BackendError>>(&[9]);
    refused::<u16>(&[1 << 16]);
}

#[test]
fn the_driver_publishes_its_address_of_the_mailbox() {
    let (other, _mailbox) = scripted(&[]);
    assert_eq!(load(other.units, GREETING), VERSION);
    let at = u64::from(load(other.units, AT)) << 32 | u64::from(load(other.units, AT + 1));
    assert_eq!(at, other.units.as_ptr().addr() as u64);
}

#[test]
fn a_command_is_answered() {
    let (other, mailbox) = scripted(&[LIMITS, Next::Answer(&[0, 5]), Next::Answer(&[1])]);
    let mut control = MailboxControl::new(mailbox, "scripted").expect("a device");
    let limits = control.limits();
    assert_eq!(
        (limits.name, limits.domains, limits.inline),
        ("scripted", 1, 13)
    );
    assert_eq!(control.create_domain(), Ok(5));
    assert_eq!(control.create_domain(), Err(BackendError::Resources));
    assert_eq!(
        other.commands.take(),
        [
            Command::Limits,
            Command::CreateDomain,
            Command::CreateDomain
        ]
    );
    assert_eq!(other.cut_off.get(), 0);
}

/// A dropped driver deregisters everything: it halts and cuts off the other end.
#[test]
fn a_dropped_driver_halts_the_other_end() {
    let (other, mailbox) = scripted(&[LIMITS, Next::Answer(&[0])]);
    drop(MailboxControl::new(mailbox, "dropped").expect("a device"));
    assert_eq!(other.commands.take(), [Command::Limits, Command::Halt]);
    assert_eq!(other.cut_off.get(), 1);
}

/// Checks a closed exchange: one failure is reported, and no command is sent.
fn closed(other: &Scripted, control: &mut impl Control) {
    let rung = other.rung.get();
    assert_eq!(control.poll(Instant::ZERO), Some(DeviceEvent::Failed));
    assert_eq!(control.poll(Instant::ZERO), None);
    assert_eq!(control.create_domain(), Err(BackendError::Device));
    control.destroy_domain(3);
    control.halt();
    assert_eq!((other.rung.get(), other.cut_off.get()), (rung, 1));
}

#[test]
fn a_silent_other_end_is_cut_off() {
    let (other, mailbox) = scripted(&[LIMITS, Next::Nothing]);
    let mut control = MailboxControl::new(mailbox, "silent").expect("a device");
    assert_eq!(control.create_domain(), Err(BackendError::Device));
    closed(other, &mut control);
}

#[test]
fn an_other_end_that_leaves_is_cut_off_at_once() {
    let (other, mailbox) = scripted(&[LIMITS, Next::Leave]);
    let mut control = MailboxControl::new(mailbox, "leaving").expect("a device");
    assert_eq!(control.create_domain(), Err(BackendError::Device));
    closed(other, &mut control);

    // The failure is also detected without a command.
    let (other, mailbox) = scripted(&[LIMITS]);
    let mut control = MailboxControl::new(mailbox, "left").expect("a device");
    other.is_gone.set(true);
    closed(other, &mut control);
}

#[test]
fn an_invalid_answer_counts_as_none() {
    // An invalid status, an invalid event, an invalid option, and a refused poll.
    for answer in [&[9][..], &[0, 1, 9], &[0, 2], &[1]] {
        let next = [LIMITS, Next::Answer(Box::leak(answer.into()))];
        let (other, mailbox) = scripted(&next);
        let mut control = MailboxControl::new(mailbox, "senseless").expect("a device");
        assert_eq!(control.poll(Instant::ZERO), Some(DeviceEvent::Failed));
        assert_eq!(control.poll(Instant::ZERO), None);
        assert_eq!(control.create_domain(), Err(BackendError::Device));
        assert_eq!(other.cut_off.get(), 1, "{answer:?}");
    }
}

#[test]
fn an_other_end_that_refuses_a_connection_poll_is_cut_off() {
    let (other, mailbox) = scripted(&[LIMITS, Next::Answer(&[0, 3, 0, 1, 64]), Next::Answer(&[1])]);
    let mut control = MailboxControl::new(mailbox, "reticent").expect("a device");
    let mut cm = MailboxConnectionManager::new(mailbox).expect("a device");
    assert_eq!(cm.poll(Instant::ZERO), None);
    assert_eq!(other.cut_off.get(), 1);
    closed(other, &mut control);
}

/// A new driver must not take an earlier driver's pending answer.
#[test]
fn an_answer_to_an_earlier_driver_is_ignored() {
    let (other, _gone) = scripted(&[Next::Answer(&[0, 5])]);
    store(other.units, COMMAND, 8);
    assert_eq!(
        load(other.units, ANSWER),
        7,
        "it died before the answer came"
    );
    let mailbox = mailbox(other);
    assert_eq!(load(other.units, GREETING), VERSION);
    store(other.units, ANSWER, 8);
    assert_eq!(mailbox.execute::<u32>(&Command::CreateDomain), Ok(5));
    assert_eq!(load(other.units, COMMAND), 9);
}

#[test]
fn events_are_polled_after_a_notice() {
    let none = Next::Answer(&[0, 0]);
    let (other, mailbox) = scripted(&[LIMITS, Next::Answer(&[0, 3, 0, 1, 64]), none, none, none]);
    let mut control = MailboxControl::new(mailbox, "quiet").expect("a device");
    let mut cm = MailboxConnectionManager::new(mailbox).expect("a device");
    assert_eq!(cm.address(), IaAddress::Node(1));
    for _ in 0..3 {
        assert_eq!(control.poll(Instant::ZERO), None);
        assert_eq!(cm.poll(Instant::ZERO), None);
    }
    assert_eq!(other.commands.borrow().len(), 4);
    store(other.units, crate::defs::mailbox::NOTICE, 1);
    assert_eq!(control.poll(Instant::ZERO), None);
    assert_eq!(other.commands.borrow().len(), 5);
}

/// An arming under a lock that masks interrupts waits for no answer, and may interrupt a command.
#[test]
fn doorbells_and_armings_ring_and_give_no_command() {
    let (other, mailbox) = scripted(&[Next::Nothing]);
    let registers = MailboxRegisters::new(mailbox);
    registers.write(0x800, 1 << 32);
    registers.write(register::COMPLETION_QUEUE, 0x1_0000_0002);
    assert_eq!((other.rung.get(), other.commands.borrow().len()), (2, 0));
    // The lock of the commands is not taken.
    other.during_wait.set(Some(registers));
    let unanswered = mailbox.execute::<()>(&Command::Halt);
    assert_eq!(unanswered, Err(BackendError::Device));
    assert_eq!(other.rung.get(), 4);
    // The other end has read the unanswered command again.
    assert_eq!(other.commands.take(), [Command::Halt, Command::Halt]);
}
