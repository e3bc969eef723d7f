//! Peers that hardly answer, beside one that answers at once.

use backend_roce::proto::PathMtu;
use dat_core::backend::{Backend as _, RemoteRange, Segment, SendOperation};
use dat_core::flags::DtoStatus;
use dat_tests::fixture::Testbed as _;
use std::net::{Ipv4Addr, SocketAddr};

use crate::crowd::{End, connect};
use crate::network::RoceBed;

const QUALIFIER: u64 = 7174;

/// Time between two packets of a slow peer, and time that a packet takes, in microseconds.
const SLOW: u32 = 150_000;
const TRAVEL: u32 = 250;

/// A period that does not end in a test.
const NEVER: u32 = 1_000_000_000;

/// Steps of [`TRAVEL`] before the rate of the honest peer is counted beside slow ones and without
/// them, and while it is.
const BEFORE: usize = 400;
const BEFORE_ALONE: usize = 50;
const COUNTED: usize = 160;

/// Steps between two ports of a peer that moves.
const MOVES: usize = 3;

/// Requests that each connection has under way.
const UNDER_WAY: usize = 32;

/// Requests of the adapter under test to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Finds no receive.
    Send,
    Write,
    Read,
}

/// A load: requests of a kind and a length, with a path MTU.
#[derive(Clone, Copy, Debug)]
struct Load(Kind, usize, PathMtu);

/// Peers that are not honest.
#[derive(Clone, Copy, Debug)]
struct Slow {
    /// Adapters, and connections of each.
    peers: usize,
    connections: usize,
    /// Time after which each packet leaves, and between two packets.
    delay: u32,
    period: u32,
    load: Load,
    /// Set if the first peer is behind a translator that gives it one port after another.
    moves: bool,
}

/// One connection of the adapter under test.
struct Lane {
    operation: SendOperation,
    segment: Segment,
    under_way: usize,
    done: usize,
}

impl Lane {
    fn new(own: &mut End, peer: &mut End, load: Load) -> Self {
        let Load(kind, length, _) = load;
        let (_, segment, _) = own.memory(vec![1; length]);
        let (_, _, remote) = peer.memory(vec![2; length]);
        Self {
            operation: kind.operation(remote),
            segment,
            under_way: 0,
            done: 0,
        }
    }
}

impl Kind {
    fn operation(self, remote: RemoteRange) -> SendOperation {
        match self {
            Self::Send => SendOperation::Send,
            Self::Write => SendOperation::RdmaWrite(remote),
            Self::Read => SendOperation::RdmaRead(remote),
        }
    }
}

/// Returns how many requests to the honest peer complete beside slow ones.
///
/// The adapter under test accepts all connections if `listens` is set, and makes them otherwise.
fn rate(honest: Load, slow: Option<Slow>, listens: bool) -> usize {
    let bed = RoceBed::new();
    let device = |mtu| {
        let device = bed.device();
        let address = device.ia_attributes().ia_address.socket_address().unwrap();
        bed.set_path_mtu(address.ip(), mtu);
        (device, address.ip())
    };
    let lanes = 1 + slow.map_or(0, |slow| slow.peers * slow.connections);
    let mut own = End::new(device(PathMtu::Bytes4096).0, lanes);
    let mut loads = vec![(honest, 1, None)];
    if let Some(slow) = slow {
        // The honest peer comes last.
        loads.splice(
            0..0,
            (0..slow.peers).map(|_| (slow.load, slow.connections, Some(slow))),
        );
    }
    if listens {
        own.device.listen(1, Some(QUALIFIER)).unwrap();
    }
    let mut inside = None;
    let outside = |port| SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), port);
    let mut works = Vec::new();
    let mut peers = Vec::new();
    for (load, connections, slow) in loads {
        let (device, address) = device(load.2);
        if works.is_empty() && slow.is_some_and(|slow| slow.moves) {
            inside = device.ia_attributes().ia_address.socket_address();
            bed.translate(inside.unwrap(), outside(1));
            bed.keep_ports();
        }
        let mut peer = End::new(device, connections);
        if !listens {
            peer.device.listen(1, Some(QUALIFIER)).unwrap();
        }
        for number in 0..connections {
            let lane = works.len();
            if listens {
                connect(&bed, (&mut peer, number), (&mut own, lane), QUALIFIER);
            } else {
                connect(&bed, (&mut own, lane), (&mut peer, number), QUALIFIER);
            }
            works.push(Lane::new(&mut own, &mut peer, load));
        }
        if let Some(slow) = slow {
            bed.slow_down(address, slow.delay, slow.period);
        }
        peers.push(peer);
    }
    let start = slow.map_or(BEFORE_ALONE, |_| BEFORE);
    let mut before = 0;
    for step in 0..start + COUNTED {
        if step == start {
            before = works[lanes - 1].done;
        }
        for (number, lane) in works.iter_mut().enumerate() {
            while lane.under_way < UNDER_WAY {
                own.post(number, number as u64, lane.operation, lane.segment);
                lane.under_way += 1;
            }
        }
        // Often enough that nothing is due for long at one port.
        if let Some(inside) = inside.filter(|_| step % MOVES == 0) {
            bed.translate(inside, outside(2 + step as u16));
        }
        bed.pass(TRAVEL);
        while let Some((number, status)) = own.poll() {
            let lane = &mut works[number as usize];
            let is_honest = number as usize == lanes - 1;
            assert!(!is_honest || status == DtoStatus::Success, "{status:?}");
            lane.under_way -= 1;
            lane.done += 1;
        }
    }
    works[lanes - 1].done - before
}

/// Checks that an honest peer keeps 0.8 of its rate beside slow ones.
///
/// The adapter under test accepts the connections of every other run, from the first one on if
/// `listens` is set.
fn check(honest: Load, slow: impl IntoIterator<Item = Slow>, mut listens: bool) {
    let alone = rate(honest, None, listens);
    assert!(alone > 100, "{alone}");
    for slow in slow {
        let beside = rate(honest, Some(slow), listens);
        println!("{honest:?} {slow:?} listens {listens}: {beside} of {alone}");
        assert!(beside * 5 >= alone * 4, "{beside} of {alone}");
        listens = !listens;
    }
}

const fn slow(peers: usize, load: Load) -> Slow {
    Slow {
        peers,
        connections: 1,
        delay: 0,
        period: SLOW,
        load,
        moves: false,
    }
}

/// Peers that acknowledge a packet in 150 ms hold no room that others need.
///
/// Spec: ROCE-183
#[test]
fn peers_that_hardly_acknowledge_starve_nobody() {
    let slow = [1, 3, 30].map(|peers| slow(peers, Load(Kind::Write, 8, PathMtu::Bytes4096)));
    let honest = Load(Kind::Write, 8, PathMtu::Bytes4096);
    check(honest, [slow[0], slow[2], slow[2]], false);
    check(Load(Kind::Read, 3_000, PathMtu::Bytes256), slow, true);
    check(
        Load(Kind::Write, 50_000, PathMtu::Bytes4096),
        [slow[2]],
        true,
    );
}

/// Peers that answer a packet of a Read in 150 ms soon have room of their own.
///
/// Spec: ROCE-183, ROCE-191
#[test]
fn peers_that_hardly_answer_reads_starve_nobody() {
    let slow = [1, 3, 30].map(|peers| slow(peers, Load(Kind::Read, 100_000, PathMtu::Bytes4096)));
    check(Load(Kind::Read, 8, PathMtu::Bytes256), slow, true);
    let honest = Load(Kind::Read, 50_000, PathMtu::Bytes4096);
    check(honest, [slow[0], slow[2], slow[2]], false);
    check(
        Load(Kind::Write, 3_000, PathMtu::Bytes1024),
        [slow[2]],
        true,
    );
}

/// Peers with many connections, without a word, of the smallest packets, or just slow.
///
/// Spec: ROCE-183, ROCE-191
#[test]
fn peers_of_every_kind_starve_nobody() {
    let honest = Load(Kind::Read, 20_000, PathMtu::Bytes1024);
    let reads = |mtu| Load(Kind::Read, 100_000, mtu);
    let slow = [
        Slow {
            connections: 10,
            ..slow(3, reads(PathMtu::Bytes1024))
        },
        Slow {
            period: NEVER,
            ..slow(10, reads(PathMtu::Bytes4096))
        },
        Slow {
            period: 9_000,
            ..slow(3, reads(PathMtu::Bytes4096))
        },
        slow(10, reads(PathMtu::Bytes256)),
        slow(10, Load(Kind::Read, 8, PathMtu::Bytes4096)),
        Slow {
            period: NEVER,
            ..slow(10, Load(Kind::Write, 20_000, PathMtu::Bytes4096))
        },
        // Nobody posts their receives.
        slow(10, Load(Kind::Send, 20_000, PathMtu::Bytes4096)),
    ];
    check(honest, slow, true);
}

/// Peers far away that answer each packet, but late.
///
/// Spec: ROCE-183, ROCE-191
#[test]
fn peers_that_are_far_starve_nobody() {
    let far = |peers, delay| Slow {
        delay,
        period: 0,
        ..slow(peers, Load(Kind::Read, 100_000, PathMtu::Bytes4096))
    };
    let far = [far(3, 1_000), far(3, 5_000), far(10, 30_000)];
    check(Load(Kind::Read, 50_000, PathMtu::Bytes4096), far, true);
    check(Load(Kind::Read, 3_000, PathMtu::Bytes1024), far, false);
}

/// A peer that comes from one port after another is as slow as it was.
///
/// Spec: ROCE-52, ROCE-191
#[test]
fn a_slow_peer_that_moves_starves_nobody() {
    let honest = Load(Kind::Read, 20_000, PathMtu::Bytes1024);
    let alone = rate(honest, None, true);
    let moving = Slow {
        connections: 10,
        period: 200,
        moves: true,
        ..slow(1, Load(Kind::Read, 100_000, PathMtu::Bytes4096))
    };
    let beside = rate(honest, Some(moving), true);
    println!("{beside} of {alone}");
    assert!(beside * 5 >= alone * 4, "{beside} of {alone}");
}

/// The responses of a slow peer are counted apart, for 10 s.
///
/// Spec: ROCE-191
#[test]
fn a_slow_peer_is_counted_apart_for_a_time() {
    let bed = RoceBed::new();
    let mut own = End::new(bed.device(), 2);
    let mut lanes = Vec::new();
    let mut peers = [(); 2].map(|()| End::new(bed.device(), 1));
    let addresses = peers.each_ref().map(|peer| {
        let address = peer.device.ia_attributes().ia_address;
        address.socket_address().unwrap().ip()
    });
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.device.listen(1, Some(QUALIFIER)).unwrap();
        connect(&bed, (&mut own, number), (peer, 0), QUALIFIER);
        let load = Load(Kind::Read, 20_000, PathMtu::Bytes1024);
        lanes.push(Lane::new(&mut own, peer, load));
    }
    let [slow, _] = addresses;
    // Returns how many requests to the other peer complete, of which so many are under way.
    let mut run = |steps, period, most| {
        let mut done = 0;
        for _ in 0..steps {
            for (number, lane) in lanes.iter_mut().enumerate() {
                while lane.under_way < most {
                    own.post(number, number as u64, lane.operation, lane.segment);
                    lane.under_way += 1;
                }
            }
            bed.pass(period);
            while let Some((number, status)) = own.poll() {
                assert_eq!(status, DtoStatus::Success);
                lanes[number as usize].under_way -= 1;
                done += number;
            }
        }
        done
    };
    // 2 ms: patience lasts for half of it.
    let soon = 8;
    let both = run(soon, TRAVEL, UNDER_WAY);
    bed.slow_down(slow, 0, SLOW);
    run(400, TRAVEL, UNDER_WAY);
    let alone = run(soon, TRAVEL, UNDER_WAY);
    assert!(alone > both, "{alone} {both}");
    for (seconds, is_slow) in [(5, true), (6, false)] {
        bed.speed_up(slow);
        run(400, TRAVEL, 0);
        run(1, seconds * 1_000_000, 0);
        bed.slow_down(slow, 0, SLOW);
        let beside = run(soon, TRAVEL, UNDER_WAY);
        assert_eq!(beside * 5 >= alone * 4, is_slow, "{beside} of {alone}");
    }
}
