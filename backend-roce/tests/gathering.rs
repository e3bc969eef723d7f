//! Short requests that wait for others, to leave with them.

mod common;

use backend_roce::proto::packet::Opcode;
use backend_roce::proto::requester::RequesterOptions;
use common::requester::{ACK, Bench, OPTIONS, WRITE};

/// Short requests wait while more of them are under way than wait; all that have gathered leave.
///
/// Spec: ROCE-184
#[test]
fn short_requests_gather_while_others_are_under_way() {
    let mut bench = Bench::new(RequesterOptions { run: 64, ..OPTIONS });
    // The first four find fewer than four others.
    for index in 0..4 {
        bench.post(WRITE, 8);
        assert_eq!(bench.drain(), [(Opcode::WriteOnly, index)]);
    }
    for _ in 0..3 {
        bench.post(WRITE, 8);
        assert!(bench.requester.gathers());
        assert!(!bench.requester.has_output());
        assert_eq!(bench.drain(), []);
    }
    // As many as are under way.
    bench.post(WRITE, 8);
    assert!(bench.requester.has_output());
    let run = [4, 5, 6, 7].map(|index| (Opcode::WriteOnly, index));
    assert_eq!(bench.drain(), run);
    // The first four are complete: four are under way, and a fifth one waits.
    bench.answer(3, ACK);
    assert_eq!(bench.completions().len(), 4);
    bench.post(WRITE, 8);
    assert_eq!(bench.drain(), []);
    bench.answer(4, ACK);
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 8)]);
}

/// A long request waits for no others, and takes those before it along.
///
/// Spec: ROCE-184
#[test]
fn a_long_request_gathers_no_others() {
    let mut bench = Bench::new(RequesterOptions { run: 64, ..OPTIONS });
    for _ in 0..5 {
        bench.post(WRITE, 8);
        bench.drain();
    }
    bench.post(WRITE, 1000);
    let sent = bench.drain();
    assert_eq!(sent.first(), Some(&(Opcode::WriteOnly, 4)));
    assert_eq!(sent.last(), Some(&(Opcode::WriteLast, 8)));
}

/// Gathered requests leave after a time-out at the latest; without runs none gather.
///
/// Spec: ROCE-184
#[test]
fn gathered_requests_leave_after_a_time_out() {
    let mut bench = Bench::new(RequesterOptions { run: 64, ..OPTIONS });
    for _ in 0..5 {
        bench.post(WRITE, 8);
        bench.drain();
    }
    bench.expire();
    assert_eq!(bench.drain().len(), 4);
    bench.answer(3, ACK);
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 4)]);

    let mut single = Bench::new(OPTIONS);
    for index in 0..7 {
        single.post(WRITE, 8);
        assert_eq!(single.drain(), [(Opcode::WriteOnly, index)]);
    }
}

/// Short requests wait for a full send while the caller is about to post more.
///
/// Spec: ROCE-185
#[test]
fn short_requests_gather_while_more_are_expected() {
    let mut bench = Bench::new(RequesterOptions { run: 6, ..OPTIONS });
    bench.requester.expect_more(true);
    for _ in 0..5 {
        bench.post(WRITE, 8);
        assert_eq!(bench.drain(), []);
    }
    bench.post(WRITE, 8);
    assert_eq!(bench.drain().len(), 6);
    bench.answer(5, ACK);
    assert_eq!(bench.completions().len(), 6);
    // Nothing is under way, and the caller posts no more.
    bench.post(WRITE, 8);
    assert_eq!(bench.drain(), []);
    bench.requester.expect_more(false);
    assert!(bench.requester.has_output());
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 6)]);
    bench.answer(6, ACK);
    // A long one gathers, too, unless it fills a send.
    bench.requester.expect_more(true);
    bench.post(WRITE, 1000);
    assert_eq!(bench.drain(), []);
    bench.post(WRITE, 60_000);
    assert_eq!(bench.drain().len(), 16);
}
