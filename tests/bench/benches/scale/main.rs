//! Counts the instructions of calls beside few and beside many objects.
//!
//! Runs under callgrind, with instrumentation and collection off at the start: `cargo xtask bench
//! --scale` does so and compares the dumps. The argument is the number of objects of a kind.

mod bed;
mod count;
mod local;
mod memory;
mod posts;
mod rows;
mod world;

use std::env;
use std::process::ExitCode;

use count::Counter;
use world::World;

fn main() -> ExitCode {
    let number = env::args().skip(1).find_map(|word| word.parse().ok());
    let Some(number) = number else {
        eprintln!("usage: scale NUMBER");
        return ExitCode::FAILURE;
    };
    if !count::is_counted() {
        eprintln!("not under callgrind: the calls run, and nothing is counted");
    }
    for line in memory::lines() {
        println!("{line}");
    }
    let counter = Counter::new();
    posts::count(number, &counter);
    local::count(number, &counter);
    let world = World::new(number);
    rows::count(&world, &counter);
    rows::close(&world, &counter);
    ExitCode::SUCCESS
}
