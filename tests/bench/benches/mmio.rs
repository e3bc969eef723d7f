//! Counts the instructions of posting and polling on the mlx5 layout of the mmio driver.
//!
//! callgrind counts validation, descriptor, doorbell record and register.
#![expect(
    missing_docs,
    reason = "the attribute of each benchmark generates a module"
)]

mod still;

use std::hint::black_box;

use dat_core::event::Event;
use dat_core::flags::CompletionFlags;
use gungraun::{library_benchmark, library_benchmark_group, main};
use still::World;

/// Returns a connected world in which every path has run.
fn warm() -> &'static World {
    let world: &World = Box::leak(Box::new(World::new()));
    for _ in 0..4 {
        write_once(world);
        world.complete_request();
        assert!(world.ia.evd_dequeue(world.evd).is_ok());
        receive_once(world);
        world.complete_receive();
        assert!(world.ia.evd_dequeue(world.evd).is_ok());
    }
    assert!(world.ia.evd_dequeue(world.evd).is_err());
    world
}

fn written() -> &'static World {
    let world = warm();
    write_once(world);
    world.complete_request();
    world
}

fn received() -> &'static World {
    let world = warm();
    receive_once(world);
    world.complete_receive();
    world
}

#[inline(always)]
fn write_once(world: &World) {
    let flags = black_box(CompletionFlags::empty());
    let segments = &world.segments;
    let posted = world
        .ia
        .post_rdma_write(world.ep, segments, black_box(7), &world.remote, flags);
    assert!(posted.is_ok());
}

#[inline(always)]
fn receive_once(world: &World) {
    let flags = black_box(CompletionFlags::empty());
    let segments = &world.segments;
    let posted = world.ia.post_recv(world.ep, segments, black_box(7), flags);
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(warm())]
fn mmio_write(world: &'static World) {
    write_once(world);
}

#[library_benchmark]
#[bench::one(warm())]
fn mmio_receive(world: &'static World) {
    receive_once(world);
}

#[library_benchmark]
#[bench::request(written())]
#[bench::receive(received())]
fn mmio_dequeue(world: &'static World) -> Option<Event> {
    world.ia.evd_dequeue(world.evd).ok()
}

library_benchmark_group!(name = mmio; benchmarks = mmio_write, mmio_receive, mmio_dequeue);

main!(library_benchmark_groups = mmio);
