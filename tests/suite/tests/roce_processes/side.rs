//! A side of a scenario, in its process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, stdin};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::{env, panic, process, thread};

use backend_roce::{PathChoice, RoceBackend};
use dat_core::Result;
use dat_core::attributes::IaAddress;
use dat_core::endpoint::ConnectParam;
use dat_core::event::ConnectionEventKind;
use dat_core::flags::{
    ConnectFlags, EndpointState, EvdFlags, PspFlags, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{CrId, EvdId, PspId};
use dat_core::memory::RmrTriplet;
use dat_core::time::Instant;
use dat_tests::fixture::{self, Net, PartyOptions, Testbed as _, granted};

use crate::bed::ProcessBed;
use crate::channel::{Order, ProcessControl, Report, Word, write};

/// An endpoint of a side, with all objects that it needs.
pub(crate) type Party = fixture::Party<ProcessBed>;

/// Environment variable with the way of the connections, the number of the side and the qualifiers
/// of all sides.
pub(crate) const SIDE: &str = "DAT_TEST_SIDE";

/// Exit code of a side that found a fault.
const FAULT: i32 = 101;

/// Work of a side while it waits for another one.
type Meanwhile = Box<dyn Fn(Instant)>;

/// A side of a scenario.
pub(crate) struct Side {
    /// The number of this side; the first of two is the near one.
    pub(crate) number: usize,
    /// The adapters of this side.
    pub(crate) net: Net<'static, ProcessBed>,
    /// The connection qualifier that is left to each side.
    qualifiers: Vec<u64>,
    runner: UnixStream,
    orders: Receiver<Order>,
    /// Words of each side that were not awaited yet.
    heard: RefCell<Vec<VecDeque<Word>>>,
    /// Signals that the runner has sent to other sides.
    controls: RefCell<Vec<(ProcessControl, usize)>>,
    meanwhile: RefCell<Vec<Meanwhile>>,
}

/// A service point with its dispatcher.
pub(crate) struct Service {
    pub(crate) requests: EvdId,
    pub(crate) psp: PspId,
}

impl Side {
    /// Returns the side that this process is to be, if the runner started it.
    pub(crate) fn given() -> Option<Self> {
        let given = env::var(SIDE).ok()?;
        let (path, numbers) = given.split_once(',')?;
        let path = match path {
            "Packets" => PathChoice::Packets,
            "Local" => PathChoice::Local,
            other => panic!("no way is called {other}"),
        };
        let mut numbers = numbers.split(',').map(|number| number.parse());
        let number = numbers.next()?.expect("the number of a side") as usize;
        let qualifiers: Vec<u64> = numbers.map(|number| number.expect("a number")).collect();
        let ours = stdin().as_fd().try_clone_to_owned();
        let runner = UnixStream::from(ours.expect("the channel"));
        let (sender, orders) = channel();
        let lines = BufReader::new(runner.try_clone().expect("the channel")).lines();
        thread::spawn(move || {
            for line in lines.map_while(io::Result::ok) {
                let order = Order::parse(&line).expect("an order");
                if sender.send(order).is_err() {
                    return;
                }
            }
            // The runner is gone: nobody needs this side any more.
            process::exit(FAULT);
        });
        let hooked = runner.try_clone().expect("the channel");
        panic::set_hook(Box::new(move |fault| {
            let _ = write(&hooked, &Report::Failed(fault.to_string()));
            process::exit(FAULT);
        }));
        Some(Self {
            number,
            net: Net::new(Box::leak(Box::new(ProcessBed::over(path)))),
            heard: RefCell::new(vec![VecDeque::new(); qualifiers.len()]),
            qualifiers,
            runner,
            orders,
            controls: RefCell::default(),
            meanwhile: RefCell::default(),
        })
    }

    /// Carries out the side, and ends the process.
    pub(crate) fn act(self, act: impl Fn(&Self)) -> ! {
        self.report(&Report::Ready);
        assert_eq!(self.next_order(), Order::Begin);
        act(&self);
        // No side may see the end of another one before it has looked at everything.
        self.meet("the end");
        let Self { net, runner, .. } = self;
        drop(net);
        write(&runner, &Report::Ended).expect("the runner");
        process::exit(0);
    }

    fn report(&self, report: &Report) {
        if write(&self.runner, report).is_err() {
            process::exit(FAULT);
        }
    }

    /// Begins a step, which the runner names if the scenario goes no further.
    pub(crate) fn step(&self, step: &str) {
        self.report(&Report::Step(step.into()));
    }

    /// Returns the next order; the adapters of this side make progress until it comes.
    fn next_order(&self) -> Order {
        loop {
            if let Ok(order) = self.orders.try_recv() {
                return order;
            }
            let now = self.net.bed.now();
            for act in self.meanwhile.borrow().iter() {
                act(now);
            }
            self.net.progress();
            self.net.bed.step();
        }
    }

    /// Calls `act` whenever this side waits for another one.
    pub(crate) fn meanwhile(&self, act: impl Fn(Instant) + 'static) {
        self.meanwhile.borrow_mut().push(Box::new(act));
    }

    /// Returns the numbers of the other sides that live.
    fn others(&self) -> Vec<usize> {
        let all = 0..self.qualifiers.len();
        all.filter(|side| *side != self.number && self.count(ProcessControl::Kill, *side) == 0)
            .collect()
    }

    /// Returns the number of the other one of two sides.
    #[track_caller]
    pub(crate) fn other(&self) -> usize {
        assert_eq!(self.qualifiers.len(), 2, "sides");
        1 - self.number
    }

    /// Tells a side some numbers.
    pub(crate) fn tell_to(&self, peer: usize, name: &str, numbers: &[u64]) {
        self.report(&Report::Tell(Word {
            peer,
            numbers: numbers.to_vec(),
            name: name.into(),
        }));
    }

    /// Waits for the numbers that a side tells under a name.
    ///
    /// # Panics
    /// If the side tells something else.
    #[track_caller]
    pub(crate) fn hear_from(&self, peer: usize, name: &str) -> Vec<u64> {
        let numbers = self.heard_from(peer, name);
        numbers.unwrap_or_else(|| panic!("side {peer} was killed before it said `{name}`"))
    }

    /// As [`hear_from`](Self::hear_from); returns `None` if the side was killed.
    #[track_caller]
    fn heard_from(&self, peer: usize, name: &str) -> Option<Vec<u64>> {
        self.step(&format!("waits for `{name}`"));
        loop {
            let word = self.heard.borrow_mut()[peer].pop_front();
            if let Some(word) = word {
                assert_eq!(word.name, name, "side {peer} is at another step");
                self.step(&format!("heard `{name}`"));
                return Some(word.numbers);
            }
            if self.count(ProcessControl::Kill, peer) != 0 {
                return None;
            }
            self.heed_order();
        }
    }

    /// Takes the next order, which may concern a later step.
    fn heed_order(&self) {
        match self.next_order() {
            Order::Told(word) => self.heard.borrow_mut()[word.peer].push_back(word),
            Order::Done(control, side) => self.controls.borrow_mut().push((control, side)),
            Order::Begin => panic!("begun already"),
        }
    }

    /// Tells the other one of two sides some numbers.
    #[track_caller]
    pub(crate) fn tell(&self, name: &str, numbers: &[u64]) {
        self.tell_to(self.other(), name, numbers);
    }

    /// Waits for the numbers that the other one of two sides tells under a name.
    #[track_caller]
    pub(crate) fn hear(&self, name: &str) -> Vec<u64> {
        self.hear_from(self.other(), name)
    }

    /// Tells the other one of two sides a range of memory.
    #[track_caller]
    pub(crate) fn offer(&self, name: &str, range: &RmrTriplet) {
        self.tell(name, &numbers_of(range));
    }

    /// Waits for a range of memory of the other one of two sides.
    #[track_caller]
    pub(crate) fn offered(&self, name: &str) -> RmrTriplet {
        range_of(&self.hear(name))
    }

    /// Waits until all living sides have come to this point.
    #[track_caller]
    pub(crate) fn meet(&self, name: &str) {
        let others = self.others();
        for side in &others {
            self.tell_to(*side, name, &[]);
        }
        for side in others {
            self.heard_from(side, name);
        }
    }

    /// Returns how often the runner did something to a side.
    fn count(&self, control: ProcessControl, side: usize) -> usize {
        let controls = self.controls.borrow();
        controls
            .iter()
            .filter(|done| **done == (control, side))
            .count()
    }

    /// Lets the runner do something to the process of another side.
    fn ask(&self, control: ProcessControl, side: usize) {
        let before = self.count(control, side);
        self.report(&Report::Ask(control, side));
        while self.count(control, side) == before {
            self.heed_order();
        }
    }

    /// Kills the process of another side, as `kill -9` does.
    pub(crate) fn kill(&self, side: usize) {
        self.ask(ProcessControl::Kill, side);
    }

    /// Stops all threads of the process of another side.
    pub(crate) fn pause(&self, side: usize) {
        self.ask(ProcessControl::Pause, side);
    }

    /// Lets the process of a side go on that was paused.
    pub(crate) fn resume(&self, side: usize) {
        self.ask(ProcessControl::Resume, side);
    }

    /// Waits for its end by the runner.
    pub(crate) fn wait_to_be_killed(&self) -> ! {
        loop {
            self.heed_order();
        }
    }

    /// Makes a party with default options on an adapter of its own.
    pub(crate) fn party(&self) -> Party {
        self.party_with(&PartyOptions::default())
    }

    /// Makes a party on an adapter of its own.
    pub(crate) fn party_with(&self, options: &PartyOptions) -> Party {
        Party::new(&self.net.adapter(), options)
    }

    /// Makes a party on an [alert device](ProcessBed::alert_device).
    pub(crate) fn alert_party(&self) -> Party {
        self.party_on(self.net.bed.alert_device())
    }

    /// Makes a party on an impatient device.
    pub(crate) fn impatient_party(&self) -> Party {
        self.party_on(self.net.bed.impatient_device())
    }

    /// Makes a party with default options on an adapter over this device.
    pub(crate) fn party_on(&self, device: RoceBackend) -> Party {
        Party::new(&self.net.adapter_over(device), &PartyOptions::default())
    }

    /// Returns the connection qualifier that is left to a side.
    pub(crate) fn qualifier(&self, side: usize) -> u64 {
        self.qualifiers[side]
    }

    /// Makes a service point with the qualifier of this side, and tells all other sides.
    pub(crate) fn listen(&self, party: &Party) -> Service {
        self.step("listens");
        let requests = granted(party.ia.evd_create(8, None, EvdFlags::CR));
        let qualifier = self.qualifier(self.number);
        let psp = granted(party.ia.psp_create(qualifier, requests, PspFlags::Consumer));
        for side in self.others() {
            self.tell_to(side, "the listener", &[]);
        }
        Service { requests, psp }
    }

    /// Returns the next connection request at a service point.
    pub(crate) fn request(&self, party: &Party, service: &Service) -> CrId {
        self.step("awaits a connection request");
        self.net.request(&party.ia, service.requests)
    }

    /// Frees a service point.
    pub(crate) fn unlisten(&self, party: &Party, service: Service) {
        granted(party.ia.psp_free(service.psp));
        granted(party.ia.evd_free(service.requests));
    }

    /// Returns parameters to connect to the qualifier of a side.
    pub(crate) fn parameters<'a>(&self, side: usize, private_data: &'a [u8]) -> ConnectParam<'a> {
        ConnectParam {
            address: IaAddress::V4([127, 0, 0, 1], 0),
            qualifier: self.qualifier(side),
            timeout: TIMEOUT_INFINITE,
            private_data,
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        }
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// Those of `ep_connect`.
    pub(crate) fn try_connect(&self, party: &Party, wanted: &ConnectParam<'_>) -> Result<()> {
        party.ia.ep_connect(party.ep, wanted, self.net.bed.now())
    }

    /// Waits for the listener of a side, and begins to connect to it.
    pub(crate) fn begin_connect(&self, party: &Party, side: usize, private_data: &[u8]) {
        self.hear_from(side, "the listener");
        let wanted = self.parameters(side, private_data);
        granted(self.try_connect(party, &wanted));
    }

    /// Expects that the connection of a party is established.
    #[track_caller]
    pub(crate) fn established(&self, party: &Party) {
        self.step("awaits its connection");
        let kind = self.net.connection(party);
        assert_eq!(kind, ConnectionEventKind::Established);
    }

    /// Connects to a side that [accepts](Self::accept).
    pub(crate) fn connect_to(&self, party: &Party, side: usize) {
        self.begin_connect(party, side, &[]);
        self.established(party);
    }

    /// Connects to the other one of two sides, which [accepts](Self::accept).
    pub(crate) fn connect(&self, party: &Party) {
        self.connect_to(party, self.other());
    }

    /// Accepts a connection of each party, in the order of their requests.
    pub(crate) fn accept_all(&self, parties: &[&Party]) {
        let service = self.listen(parties[0]);
        for party in parties {
            let cr = self.request(parties[0], &service);
            granted(party.ia.cr_accept(cr, Some(party.ep), &[]));
            self.established(party);
        }
        self.unlisten(parties[0], service);
    }

    /// Accepts a connection of the other one of two sides, which [connects](Self::connect).
    pub(crate) fn accept(&self, party: &Party) {
        self.accept_all(&[party]);
    }

    /// Connects two parties of an adapter of this side to each other.
    pub(crate) fn connect_own(&self, from: &Party, to: &Party) {
        let requests = granted(to.ia.evd_create(8, None, EvdFlags::CR));
        let (psp, qualifier) = granted(to.ia.psp_create_any(requests, PspFlags::Consumer));
        let wanted = ConnectParam {
            qualifier,
            ..self.parameters(self.number, &[])
        };
        granted(self.try_connect(from, &wanted));
        let cr = self.net.request(&to.ia, requests);
        granted(to.ia.cr_accept(cr, Some(to.ep), &[]));
        self.net.established(from, to);
        self.unlisten(to, Service { requests, psp });
    }

    /// Expects the end of a connection, by this event.
    #[track_caller]
    pub(crate) fn ends(&self, party: &Party, kind: ConnectionEventKind) {
        self.step(&format!("awaits the event {kind:?}"));
        assert_eq!(self.net.connection(party), kind);
        assert_eq!(party.state(), EndpointState::Disconnected);
    }

    /// Expects that the connection of a party is broken.
    #[track_caller]
    pub(crate) fn broken(&self, party: &Party) {
        self.ends(party, ConnectionEventKind::Broken);
    }

    /// Resets a disconnected endpoint, so that it can be connected again.
    pub(crate) fn reset(&self, party: &Party) {
        granted(party.ia.ep_reset(party.ep));
    }
}

/// Returns the numbers that stand for a range of memory.
pub(crate) fn numbers_of(range: &RmrTriplet) -> [u64; 3] {
    [u64::from(range.context), range.address, range.length]
}

/// Returns the range of memory that numbers stand for.
pub(crate) fn range_of(numbers: &[u64]) -> RmrTriplet {
    let &[context, address, length] = numbers else {
        panic!("no range: {numbers:?}");
    };
    RmrTriplet {
        context: u32::try_from(context).expect("a context"),
        address,
        length,
    }
}

/// Returns a part of a range of memory, which may lie outside of it.
pub(crate) fn part(range: &RmrTriplet, offset: u64, length: u64) -> RmrTriplet {
    RmrTriplet {
        context: range.context,
        address: range.address.wrapping_add(offset),
        length,
    }
}
