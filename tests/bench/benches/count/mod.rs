//! Counts calls with callgrind.
//!
//! The counted functions are in a module `counted`, and are not inlined. `cargo xtask bench` lets
//! callgrind count while one of them runs, and write a dump when it returns. The names that the
//! program prints are those of the dumps, in the same order.

use std::hint::black_box;

/// Prints the name of a count, and makes the counted call.
pub(crate) fn count<T, R>(name: &str, arguments: T, call: fn(T) -> R) {
    println!("{name}");
    black_box(call(black_box(arguments)));
}
