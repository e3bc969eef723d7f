//! Seeds of `roce_queue`: an honest peer, and one of each kind of lie.

use dat_fuzz::roce_queue::Operation::{self, *};
use dat_fuzz::script::encode;

use super::{Scenario, Seed};

/// Words, in the target's order; of the queue that the product writes.
const TAIL: u8 = 0;
const HEAD: u8 = 1;
const SLEEPS: u8 = 2;
const WAITS: u8 = 3;
const OUTGOING: u8 = 4;

/// Adds a byte in place of lines.
const ONE_BYTE: u8 = 129;

short_forms! {
    write(length) = Write { length, segment: 0 };
    answer(length) = Answer { length, segment: 200 };
    add(word, lines) = Word { word, lines, backwards: 0 };
    take_away(word, lines) = Word { word, lines, backwards: 1 };
    split(payload) = Split { payload, headers: 16 };
    set(offset, value) = Byte { line: 0, offset, value };
}

/// Returns the seeds.
pub(super) fn seeds() -> Vec<Seed> {
    let scenarios: Vec<Scenario<[u8; 0], Operation>> = scenarios! {
        "records" => write(0), write(40), Read, write(255), Read, Read, Read;
        "answers" => answer(0), Take, answer(255), answer(100), Take, Take, Take;
        "round" => write(255), write(255), write(255), Read, Read, Read, write(255), write(255), Read, Read;
        "full" => answer(255), answer(255), answer(255), answer(255), Wait { length: 255 }, Take, Take,
            Take, answer(255);
        "room" => answer(255), answer(255), Wait { length: 9 }, Take, Take, Take;
        "sleep" => Sleep, write(3), Read, Read, Sleep, Sleep, write(4), write(5), Read, Read;
        "awake" => write(3), Sleep, Read, write(4), Read;
        "peer-sleeps" => PeerSleep, answer(3), Take, Take, PeerSleep, answer(4), Take;
        "tail-beyond" => write(0), add(TAIL, 17), Read;
        "tail-unwritten" => write(0), add(TAIL, 1), Read, Read;
        "tail-backwards" => write(0), Read, take_away(TAIL, 1), Read;
        "tail-between" => write(0), add(TAIL, ONE_BYTE), Read;
        "tail-any" => write(0), Any { word: TAIL, low: 0xC0, high: 0xFF }, Read;
        "head-beyond" => answer(255), answer(255), answer(255), add(HEAD | OUTGOING, 40), answer(255);
        "head-backwards" => answer(255), answer(255), answer(255), take_away(HEAD | OUTGOING, 1),
            answer(255), Wait { length: 255 };
        "head-early" => answer(255), answer(255), answer(255), add(HEAD | OUTGOING, 10), answer(255);
        "flags" => Sleep, Any { word: SLEEPS, low: 0, high: 0 }, write(0), Read,
            Any { word: WAITS | OUTGOING, low: 1, high: 9 }, answer(0), add(WAITS, 1), Read, Sleep;
        "length-none" => write(0), set(0, 0), Read;
        "length-more" => write(0), set(0, 80), Read;
        "length-most" => write(255), write(255), set(1, 3), Read;
        "length-huge" => write(0), set(3, 0xFF), Read;
        "segment-none" => write(0), set(4, 0), Read;
        "segment-more" => write(0), set(4, 13), Read;
        "payload" => write(9), set(20, 9), Read, Read;
        "split" => split(200), split(0), Read, write(9), Read, Read, split(255), Read, split(100), Read;
        "split-answers" => AnswerSplit { payload: 255, headers: 36 }, Take, answer(9),
            AnswerSplit { payload: 0, headers: 0 }, Take, Take;
        "split-short" => split(100), set(0, 100), Read, Read;
        "split-headers" => split(100), set(4, 49), Read;
        "split-of-a-line" => write(36), set(8, 2), set(9, 0), Read, Read;
    };
    let seeds = scenarios.into_iter();
    seeds
        .map(|(name, setup, operations)| (name.to_owned(), encode(&setup, &operations)))
        .collect()
}
