//! Devices on the first PCI bus of the machine.

use core::ptr::{NonNull, with_exposed_provenance_mut};

use backend_mmio::{DeviceWord, MappedWords, RegisterWords};

#[cfg(not(target_arch = "x86_64"))]
use crate::configuration as config_access;
#[cfg(target_arch = "x86_64")]
use crate::processor as config_access;
use crate::processor::WINDOWS;

const COMMAND: u8 = 4;
/// Enables memory windows and bus mastering.
const MEMORY_AND_MASTER: u32 = 6;
const STATUS_HAS_CAPABILITIES: u32 = 1 << 20;
const CAPABILITIES: u8 = 0x34;
/// MSI-X capability; offset of its table register; its enable and mask bits.
const MESSAGES: u8 = 0x11;
const MESSAGES_TABLE: u8 = 4;
const MESSAGES_ON: u32 = 1 << 31;
const MESSAGES_MASKED: u32 = 1 << 30;
/// Mask of the last interrupt's index in the capability's upper half.
const MESSAGES_LAST: u32 = 0x7FF;
/// Bytes of a table entry.
const MESSAGE: u32 = 16;
const FIRST_WINDOW: u8 = 0x10;
const WINDOW_COUNT: u8 = 6;

/// Function of a device on the first bus.
#[derive(Clone, Copy)]
pub struct Function(u8);

impl Function {
    /// Finds the function with this vendor and product.
    #[must_use]
    pub fn find(vendor: u16, product: u16) -> Option<Self> {
        let identity = u32::from(product) << 16 | u32::from(vendor);
        (0..=255)
            .map(Self)
            .find(|function| function.read(0) == identity)
    }

    fn read(self, offset: u8) -> u32 {
        config_access::read_configuration(self.0, offset)
    }

    fn write(self, offset: u8, value: u32) {
        config_access::write_configuration(self.0, offset, value);
    }

    /// Enables the windows and bus mastering; places the windows if no firmware did.
    pub fn enable(self) {
        if let Some(first) = WINDOWS {
            self.assign_windows(first);
        }
        let command = self.read(COMMAND) & 0xFFFF | MEMORY_AND_MASTER;
        self.write(COMMAND, command);
    }

    /// Assigns addresses to the windows, each aligned to its size; called before they are enabled.
    fn assign_windows(self, first: u32) {
        let (mut free, mut number) = (first, 0);
        while number < WINDOW_COUNT {
            let offset = FIRST_WINDOW + 4 * number;
            self.write(offset, u32::MAX);
            let answer = self.read(offset);
            // An address of 64 bits takes two registers.
            let wide = answer & 7 == 4;
            let size = (answer & !0xF).wrapping_neg();
            if size != 0 {
                let at = free.next_multiple_of(size);
                self.write(offset, at);
                if wide {
                    self.write(offset + 4, 0);
                }
                free = at + size;
            }
            number += if wide { 2 } else { 1 };
        }
    }

    /// Returns the address of a window.
    #[must_use]
    pub fn window(self, number: u8) -> usize {
        (self.read(FIRST_WINDOW + 4 * number) & !0xF) as usize
    }

    /// Returns the first `length` bytes of a window as registers.
    ///
    /// # Safety
    /// The window is at least that long. Its registers affect only memory that was shared with the
    /// device.
    #[must_use]
    #[expect(unsafe_code)]
    pub unsafe fn registers(self, number: u8, length: u32) -> Option<MappedWords> {
        let base = NonNull::new(with_exposed_provenance_mut(self.window(number)))?;
        // SAFETY: the machine's firmware or this image assigned the window to the device, and Rust
        // uses no memory there.
        Some(unsafe { MappedWords::new(base, length) })
    }

    /// Makes the first interrupts of the device write values into words of memory.
    ///
    /// Each entry of `table` serves one interrupt. This needs no interrupt controller. Returns
    /// false if the device has fewer interrupts.
    pub fn send_messages(self, table: &[(&'static DeviceWord, u32)]) -> bool {
        let Some(capability) = self.capability(MESSAGES) else {
            return false;
        };
        let control = self.read(capability);
        let last = (control >> 16) & MESSAGES_LAST;
        if table.len() > last as usize + 1 {
            return false;
        }
        let location = self.read(capability + MESSAGES_TABLE);
        let (number, first) = ((location & 7) as u8, location & !7);
        let length = first + MESSAGE * table.len() as u32;
        #[expect(unsafe_code)]
        // SAFETY: the device says that its table is there. Its entries reach only the words that
        // they name.
        let Some(entries) = (unsafe { self.registers(number, length) }) else {
            return false;
        };
        let entries = &entries;
        for (offset, (word, value)) in (first..).step_by(MESSAGE as usize).zip(table) {
            let address = core::ptr::from_ref(*word).expose_provenance() as u64;
            // Address in two halves, value, and control word 0: not masked.
            let entry = [address as u32, (address >> 32) as u32, *value, 0];
            for (at, value) in (offset..).step_by(4).zip(entry) {
                entries.write(at, value);
            }
        }
        self.write(capability, control & !MESSAGES_MASKED | MESSAGES_ON);
        true
    }

    /// Returns the offset of a capability.
    fn capability(self, id: u8) -> Option<u8> {
        if self.read(COMMAND) & STATUS_HAS_CAPABILITIES == 0 {
            return None;
        }
        let mut at = self.read(CAPABILITIES) as u8 & !3;
        // The configuration space has room for 48 capabilities at most.
        for _ in 0..48 {
            if at == 0 {
                return None;
            }
            let head = self.read(at);
            if head as u8 == id {
                return Some(at);
            }
            at = (head >> 8) as u8 & !3;
        }
        None
    }
}
