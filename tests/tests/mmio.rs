//! The conformance suite on the driver of raw adapters, over model devices that have the mlx5 data path.
//!
//! The seed of the fabric behind the devices decides whatever the rules leave open; `DAT_SEED` sets it, and a failing test
//! prints it. What the data path cannot carry is listed with its reason in `tests/backends.toml`.

use backend_mmio::DeviceFault;
use backend_mmio::mlx5::State;
use backend_mock::{BufferOrder, FabricOptions, NodeOptions};
use core::cell::Cell;
use dat_core::attributes::IaAddress;
use dat_core::error::ErrorKind;
use dat_core::event::{AsyncEventKind, Event};
use dat_core::flags::{DtoStatus, EndpointState, EvdFlags};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::{Net, Party, PartyOptions, RsmTestbed, Testbed, WindowlessTestbed};
use exceptions::exceptions;
use mmio_model::{Lie, ModelBackend, ModelFabric};

mod exceptions;

/// A fabric of its own for each test.
struct MmioBed {
    fabric: ModelFabric,
    nodes: Cell<u64>,
}

impl MmioBed {
    fn new() -> Self {
        let seed = std::env::var("DAT_SEED").map_or(1, |seed| seed.parse().expect("a number"));
        println!("DAT_SEED={seed}");
        Self {
            fabric: ModelFabric::new(FabricOptions {
                seed,
                buffer_order: BufferOrder::Seeded,
                ..FabricOptions::default()
            }),
            nodes: Cell::new(0),
        }
    }

    fn node(&self, change: impl FnOnce(NodeOptions) -> NodeOptions) -> ModelBackend {
        let number = self.nodes.get() + 1;
        self.nodes.set(number);
        self.fabric
            .device(change(NodeOptions::new("model", number)))
    }
}

impl Testbed for MmioBed {
    type Backend = ModelBackend;
    type Lock = HostLock;

    fn device(&self) -> ModelBackend {
        self.node(|options| options)
    }

    fn now(&self) -> Instant {
        self.fabric.now()
    }

    fn step(&self) -> bool {
        self.fabric.step()
    }

    fn advance(&self, to: Instant) {
        self.fabric.run_until(to);
    }

    fn excused(&self, test: &str) -> Option<String> {
        exceptions("mmio").get(test).cloned()
    }
}

impl RsmTestbed for MmioBed {
    fn device_at(&self, address: IaAddress) -> ModelBackend {
        self.node(|options| NodeOptions { address, ..options })
    }
}

impl WindowlessTestbed for MmioBed {
    fn windowless_device(&self) -> ModelBackend {
        self.node(|options| NodeOptions {
            memory_windows: false,
            ..options
        })
    }
}

dat_tests::conformance_suite!(base, MmioBed::new());
dat_tests::conformance_suite!(windowless, MmioBed::new());
dat_tests::conformance_suite!(rsm, MmioBed::new());

/// Two connected parties, the first of which is on a device that may be asked for its fault.
fn suspect<'b>(bed: &'b MmioBed) -> (Net<'b, MmioBed>, [Party<MmioBed>; 2], &'static State) {
    let net = Net::new(bed);
    let state: &State = Box::leak(Box::new(State::new()));
    let device = bed.fabric.device_in(NodeOptions::new("suspect", 99), state);
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter_over(device), &options);
    let right = Party::new(&net.adapter(), &options);
    net.connect(&left, &right);
    (net, [left, right], state)
}

/// The adapter is given up: it says so once, its endpoint is disconnected, and so many requests and receives are flushed, and
/// whatever is posted later.
fn given_up(net: &Net<'_, MmioBed>, left: &Party<MmioBed>, requests: u64, receives: u64) {
    for cookie in 0..requests {
        let flushed = net.request_completion(left);
        assert_eq!(
            (flushed.cookie, flushed.status),
            (cookie, DtoStatus::Flushed)
        );
    }
    for cookie in 0..receives {
        let flushed = net.receive_completion(left);
        assert_eq!(
            (flushed.cookie, flushed.status),
            (cookie, DtoStatus::Flushed)
        );
    }
    let told = net.event(&left.ia, left.ia.async_evd());
    let catastrophe = AsyncEventKind::IaCatastrophic;
    assert!(
        matches!(told, Event::Async { kind, .. } if kind == catastrophe),
        "{told:?}"
    );
    net.connection(left);
    assert_eq!(left.state(), EndpointState::Disconnected);
    left.receive_into(&[], 70);
    left.send_from(&[], 71);
    let late = [net.receive_completion(left), net.request_completion(left)];
    assert_eq!(
        late.map(|late| (late.cookie, late.status)),
        [(70, DtoStatus::Flushed), (71, DtoStatus::Flushed)]
    );
    net.quiet(left);
    net.silent(&left.ia, left.ia.async_evd());
}

/// A device that lies is found out by what it lies about, and given up: nothing hangs, everything completes, the peer learns of
/// the end.
///
/// Spec: DTO-10, DTO-12
#[test]
fn a_device_that_lies_is_given_up() {
    let lies = [
        (Lie::Index, DeviceFault::WrongIndex),
        (Lie::QueuePair, DeviceFault::UnknownQueuePair),
        (Lie::UserIndex, DeviceFault::UnknownQueuePair),
        (Lie::Kind, DeviceFault::UnknownKind),
        (Lie::Syndrome, DeviceFault::UnknownSyndrome),
        (Lie::Phase, DeviceFault::PhaseJump),
        (Lie::AllOnes, DeviceFault::AllOnes),
    ];
    for (lie, fault) in lies {
        let bed = MmioBed::new();
        let (net, [left, right], state) = suspect(&bed);
        for cookie in 0..3 {
            left.receive_into(&[left.memory.piece(0, 8)], cookie);
            right.receive_into(&[right.memory.piece(0, 8)], cookie);
        }
        bed.fabric.lie(0, lie);
        for cookie in 0..3 {
            left.send_from(&[left.memory.piece(0, 8)], cookie);
        }
        assert_eq!(state.fault(), None, "{lie:?}");
        given_up(&net, &left, 3, 3);
        assert_eq!(state.fault(), Some(fault), "{lie:?}");
        net.connection(&right);
        assert_eq!(right.state(), EndpointState::Disconnected, "{lie:?}");
    }
}

/// A message longer than the buffer that it is said to be in is no message.
///
/// Spec: DTO-10, DTO-12
#[test]
fn a_length_that_cannot_be_is_found_out() {
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    for cookie in 0..2 {
        left.receive_into(&[left.memory.piece(0, 8)], cookie);
    }
    bed.fabric.lie(0, Lie::Length);
    right.send_from(&[right.memory.piece(0, 8)], 5);
    net.success(&right, 5);
    // Nothing that it tells can be believed, so both buffers are flushed.
    given_up(&net, &left, 0, 2);
    assert_eq!(state.fault(), Some(DeviceFault::ImpossibleLength));
}

/// Whether a dispatcher of so many events is made.
fn made(party: &Party<MmioBed>, events: i32) -> Result<(), ErrorKind> {
    let dispatcher = party.ia.evd_create(events, None, EvdFlags::DTO);
    dispatcher.map(drop).map_err(|error| error.kind())
}

/// What needs the device says that the provider has a fault; what the consumer did wrong is said all the same.
///
/// Spec: GEN-02
#[test]
fn calls_tell_a_given_up_device_from_a_wrong_argument() {
    let bed = MmioBed::new();
    let (net, [left, right], _) = suspect(&bed);
    right.receive_into(&[right.memory.piece(0, 8)], 0);
    assert_eq!(made(&left, 8), Ok(()));
    bed.fabric.lie(0, Lie::Index);
    left.send_from(&[left.memory.piece(0, 8)], 0);
    given_up(&net, &left, 1, 0);
    assert_eq!(made(&left, 8), Err(ErrorKind::InternalError));
    assert_eq!(made(&left, -1), Err(ErrorKind::InvalidParameter));
}

/// Everything posted on the first party completes once, in order, and the adapter is given up: nothing else comes.
fn all_complete_once(net: &Net<'_, MmioBed>, left: &Party<MmioBed>, state: &State, posted: u64) {
    let [mut requests, mut receives] = [Vec::new(), Vec::new()];
    // The first look finds the device out, the next thing that is taken in halts it, and then all is flushed.
    for _ in 0..4 {
        net.settle();
        for (evd, seen) in [(left.request, &mut requests), (left.receive, &mut receives)] {
            while let Ok(event) = left.ia.evd_dequeue(evd) {
                match event {
                    Event::Dto(done) => seen.push(done.cookie),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(state.fault().is_some());
    let all: Vec<u64> = (0..posted).collect();
    assert_eq!([requests, receives], [all.clone(), all]);
}

/// Two parties of which the first has posted so many receives and requests, the first completion of which is a lie.
fn lied_to(lie: Lie, posted: u64) {
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    for cookie in 0..posted {
        left.receive_into(&[left.memory.piece(0, 8)], cookie);
        right.receive_into(&[right.memory.piece(0, 8)], cookie);
    }
    bed.fabric.lie(0, lie);
    for cookie in 0..posted {
        left.send_from(&[left.memory.piece(0, 8)], cookie);
    }
    all_complete_once(&net, &left, state, posted);
}

/// Noise in the place of completions is found out, and whatever is posted completes once, in order.
///
/// Spec: DTO-11
#[test]
fn noise_completes_nothing_twice() {
    for seed in 0..200 {
        println!("seed {seed}");
        lied_to(Lie::Noise(seed), 4);
    }
}

/// Each bit of what names the descriptor of a completion counts: the other way round it is found out.
///
/// Spec: DTO-11
#[test]
fn no_bit_of_a_name_may_be_wrong() {
    for bit in 0..Lie::BITS {
        println!("bit {bit}");
        lied_to(Lie::Bit(bit), 4);
    }
}
