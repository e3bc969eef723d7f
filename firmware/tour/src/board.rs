//! Board support: a heap for the model device, and the panic handler.
#![expect(unsafe_code, reason = "initialises the heap once; only in this module")]

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

/// Initialises the heap; called once.
pub(crate) fn start() {
    let memory = HEAP_MEMORY.take();
    // SAFETY: the cell gave out the memory once, so nothing else uses it, and the heap is
    // initialised once.
    unsafe { HEAP.init(memory.as_mut_ptr().addr(), HEAP_BYTES) }
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    defmt::error!("panicked");
    loop {
        debug::exit(EXIT_FAILURE);
    }
}
