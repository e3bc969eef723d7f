//! What the board gives: a heap for the model device, and an end for panics.
#![expect(
    unsafe_code,
    reason = "the heap is told once where it is; a room of its own"
)]

use core::mem::MaybeUninit;
use core::panic::PanicInfo;

use cortex_m_semihosting::debug::{self, EXIT_FAILURE};
use defmt_semihosting as _;
use embedded_alloc::LlffHeap;
use static_cell::ConstStaticCell;

/// The model devices allocate; neither the core nor the driver does.
#[global_allocator]
static HEAP: LlffHeap = LlffHeap::empty();

const HEAP_BYTES: usize = 3 << 20;
static HEAP_MEMORY: ConstStaticCell<[MaybeUninit<u8>; HEAP_BYTES]> =
    ConstStaticCell::new([MaybeUninit::uninit(); HEAP_BYTES]);

/// Makes the heap; once.
pub(crate) fn start() {
    let memory = HEAP_MEMORY.take();
    // SAFETY: the cell gave the memory out once, so that it is nobody else's, and the heap is made once.
    unsafe { HEAP.init(memory.as_mut_ptr().addr(), HEAP_BYTES) }
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    defmt::error!("panicked");
    loop {
        debug::exit(EXIT_FAILURE);
    }
}
