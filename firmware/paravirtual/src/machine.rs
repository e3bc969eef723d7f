//! The machine around the processor: ports, the configuration of its bus, log and end.
#![expect(
    unsafe_code,
    reason = "ports reach beyond memory, and the log is one for all; a room of its own"
)]

use core::arch::asm;
use core::cell::UnsafeCell;
use core::panic::PanicInfo;

const SERIAL: u16 = 0x3F8;
const EXIT: u16 = 0xF4;
const BUS_ADDRESS: u16 = 0xCF8;
const BUS_DATA: u16 = 0xCFC;

fn write_byte(port: u16, value: u8) {
    // SAFETY: the ports that this module names have no effect on memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) }
}

fn write_port(port: u16, value: u32) {
    // SAFETY: as above, but for windows of the adapter, which are where the firmware of the machine put them.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack)) }
}

fn read_port(port: u16) -> u32 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack)) }
    value
}

/// Ends the machine; QEMU ends with one more than twice the code.
pub(crate) fn exit(code: u32) -> ! {
    write_port(EXIT, code);
    loop {
        core::hint::spin_loop();
    }
}

/// A function of a device on the first bus.
#[derive(Clone, Copy)]
pub(crate) struct Function(u8);

impl Function {
    /// The one that is this product of this vendor.
    pub(crate) fn find(vendor: u16, product: u16) -> Option<Self> {
        let wanted = u32::from(product) << 16 | u32::from(vendor);
        (0..=255)
            .map(Self)
            .find(|function| function.read(0) == wanted)
    }

    fn address(self, offset: u8) {
        let function = u32::from(self.0) << 8;
        write_port(BUS_ADDRESS, 1 << 31 | function | u32::from(offset));
    }

    fn read(self, offset: u8) -> u32 {
        self.address(offset);
        read_port(BUS_DATA)
    }

    /// Lets it answer, and reach memory by itself.
    pub(crate) fn enable(self) {
        let command = self.read(4) & 0xFFFF | 6;
        self.address(4);
        write_port(BUS_DATA, command);
    }

    /// Where a window of it is.
    pub(crate) fn window(self, number: u8) -> usize {
        (self.read(0x10 + 4 * number) & !0xF) as usize
    }
}

/// Frames of the log go out by the serial line.
struct Frames(UnsafeCell<defmt::Encoder>);

// SAFETY: there is one processor, and no interrupt.
unsafe impl Sync for Frames {}

static FRAMES: Frames = Frames(UnsafeCell::new(defmt::Encoder::new()));

fn send(bytes: &[u8]) {
    for byte in bytes {
        write_byte(SERIAL, *byte);
    }
}

#[defmt::global_logger]
struct Log;

// SAFETY: frames are begun and ended by one processor without interrupts, so that they do not mix.
unsafe impl defmt::Logger for Log {
    fn acquire() {
        // SAFETY: nobody else has a reference to it.
        unsafe { (*FRAMES.0.get()).start_frame(send) }
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: nobody else has a reference to it.
        unsafe { (*FRAMES.0.get()).end_frame(send) }
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: nobody else has a reference to it.
        unsafe { (*FRAMES.0.get()).write(bytes, send) }
    }
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    defmt::error!("panicked");
    exit(2)
}
