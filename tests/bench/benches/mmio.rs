//! Counts the instructions of posting and polling on the mlx5 layout of the mmio driver.
//!
//! callgrind counts validation, descriptor, doorbell record and register.

mod count;
mod still;

use std::hint::black_box;

use count::count;
use dat_core::flags::CompletionFlags;
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

mod counted {
    use dat_core::event::Event;

    use crate::still::World;

    #[inline(never)]
    pub(super) fn write(world: &'static World) {
        super::write_once(world);
    }

    #[inline(never)]
    pub(super) fn receive(world: &'static World) {
        super::receive_once(world);
    }

    #[inline(never)]
    pub(super) fn dequeue(world: &'static World) -> Option<Event> {
        world.ia.evd_dequeue(world.evd).ok()
    }
}

fn main() {
    count("mmio_write", warm(), counted::write);
    count("mmio_receive", warm(), counted::receive);
    count("mmio_dequeue:request", written(), counted::dequeue);
    count("mmio_dequeue:receive", received(), counted::dequeue);
}
