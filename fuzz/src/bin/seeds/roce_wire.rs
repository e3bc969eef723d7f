//! Seeds of `roce_wire`: packets in order of each kind, and calls of the consumer between them.

use dat_fuzz::roce_wire::OPERATION;

use super::Seed;

type Operation = [u8; OPERATION];

const RECEIVE: Operation = [10, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const POLL: Operation = [14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const PASS: Operation = [13, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A packet that asks for an acknowledgement, at an offset of a region, with `payload` bytes.
const fn packet(
    opcode: u8,
    psn: u8,
    region: u8,
    offset: u16,
    length: u16,
    payload: u8,
) -> Operation {
    let [high, low] = offset.to_be_bytes();
    let [more, less] = length.to_be_bytes();
    let fill = 0x42;
    [
        0, opcode, psn, 0x40, region, 0, high, low, more, less, payload, fill, 0, 0, 0, 0,
    ]
}

const fn post(kind: u8, length: u8) -> Operation {
    [11, kind, 0, length, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

const fn deregister(region: u8) -> Operation {
    [12, region, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

const fn message(kind: u8, qpn: u8) -> Operation {
    [9, kind, qpn, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Returns the seeds.
pub(super) fn seeds() -> Vec<Seed> {
    const FULL: u8 = 0x80;
    let scenarios: [(&str, Vec<Operation>); 12] = [
        ("write", vec![packet(0x0A, 0, 0, 0, 8, 8), POLL]),
        (
            "long-write",
            vec![
                packet(0x06, 0, 0, 0, 520, FULL),
                packet(0x07, 1, 0, 0, 0, FULL),
                packet(0x08, 2, 0, 0, 0, 8),
            ],
        ),
        ("write-at-the-end", vec![packet(0x0A, 0, 0, 2040, 8, 8)]),
        ("write-beyond-the-end", vec![packet(0x0A, 0, 0, 2041, 8, 8)]),
        ("write-to-read-only", vec![packet(0x0A, 0, 1, 0, 8, 8)]),
        (
            "write-after-deregistration",
            vec![
                packet(0x06, 0, 0, 0, 264, FULL),
                deregister(0),
                packet(0x08, 1, 0, 0, 0, 8),
            ],
        ),
        (
            "read",
            vec![packet(0x0C, 0, 1, 0, 600, 0), packet(0x0C, 0, 1, 0, 600, 0)],
        ),
        ("read-of-a-secret", vec![packet(0x0C, 0, 2, 0, 8, 0)]),
        (
            "atomics",
            vec![
                packet(0x14, 0, 0, 8, 0, 0),
                packet(0x13, 1, 0, 8, 0, 0),
                packet(0x14, 0, 0, 8, 0, 0),
            ],
        ),
        (
            "send",
            vec![
                RECEIVE,
                packet(0x04, 0, 0, 0, 0, 100),
                packet(0x04, 1, 0, 0, 0, 100),
                POLL,
                PASS,
            ],
        ),
        (
            "responses",
            vec![
                post(0, 10),
                post(2, 10),
                packet(0x11, 0, 0, 0, 0, 0),
                packet(0x10, 1, 0, 0, 0, 80),
                PASS,
                POLL,
            ],
        ),
        (
            "disconnect",
            vec![message(0, 0), RECEIVE, message(2, 0), POLL],
        ),
    ];
    let seeds = scenarios.into_iter();
    seeds
        .map(|(name, operations)| (name.to_owned(), operations.concat()))
        .collect()
}
