//! Counts of instructions, as dumps of callgrind.

use std::ffi::CString;
use std::hint::black_box;
use std::time::Instant;

use valgrind_requests::{callgrind, valgrind};

/// Number of counted calls of a row.
pub(crate) const CALLS: usize = 16;

/// Returns true if callgrind can count.
pub(crate) fn is_counted() -> bool {
    valgrind::running_on_valgrind() != 0
}

/// Counts calls; prints when each part begins and ends.
pub(crate) struct Counter {
    start: Instant,
}

impl Counter {
    /// Creates a counter without instrumentation.
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Starts instrumentation, once the objects are created.
    pub(crate) fn start(&self, part: &str) {
        self.say(part, "objects created");
        callgrind::start_instrumentation();
    }

    /// Ends instrumentation.
    pub(crate) fn stop(&self, part: &str) {
        callgrind::stop_instrumentation();
        self.say(part, "counted");
    }

    fn say(&self, part: &str, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!("{seconds:7.1} s  {part}: {what}");
    }

    /// Dumps the instructions of `call`: of several calls, after one that does not count.
    ///
    /// `prepare` comes before each call and `after` follows it; neither is counted.
    pub(crate) fn row<T, R>(
        &self,
        row: &str,
        mut prepare: impl FnMut() -> T,
        mut call: impl FnMut(T) -> R,
        mut after: impl FnMut(R),
    ) {
        let warm = call(prepare());
        after(warm);
        callgrind::zero_stats();
        for _ in 0..CALLS {
            let arguments = black_box(prepare());
            callgrind::toggle_collect();
            let result = call(arguments);
            callgrind::toggle_collect();
            after(black_box(result));
        }
        dump(row, CALLS);
    }

    /// Dumps the instructions of one call that does `times` things.
    pub(crate) fn once<R>(&self, row: &str, times: usize, call: impl FnOnce() -> R) -> R {
        callgrind::zero_stats();
        callgrind::toggle_collect();
        let result = call();
        callgrind::toggle_collect();
        dump(row, times);
        result
    }
}

/// Writes a dump; its description is the number of calls and the name of the row.
fn dump(row: &str, calls: usize) {
    let description = CString::new(format!("{calls} {row}")).expect("a name without zeros");
    callgrind::dump_stats_at(description);
}
