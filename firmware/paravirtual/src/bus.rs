//! Devices on the first bus of the machine.

use crate::machine::{self, WINDOWS};

const COMMAND: u8 = 4;
/// Answers in its windows, and reaches memory by itself.
const MEMORY_AND_MASTER: u32 = 6;
const FIRST_WINDOW: u8 = 0x10;
const WINDOW_COUNT: u8 = 6;

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

    fn read(self, offset: u8) -> u32 {
        machine::read_configuration(self.0, offset)
    }

    fn write(self, offset: u8, value: u32) {
        machine::write_configuration(self.0, offset, value);
    }

    /// Lets it answer, and reach memory by itself.
    pub(crate) fn enable(self) {
        if let Some(first) = WINDOWS {
            self.place(first);
        }
        let command = self.read(COMMAND) & 0xFFFF | MEMORY_AND_MASTER;
        self.write(COMMAND, command);
    }

    /// Gives its windows places from an address on, each at a multiple of its size; before it answers in any.
    fn place(self, first: u32) {
        let (mut free, mut number) = (first, 0);
        while number < WINDOW_COUNT {
            let offset = FIRST_WINDOW + 4 * number;
            self.write(offset, u32::MAX);
            let answer = self.read(offset);
            // An address of 64 bits takes the place of two.
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

    /// Where a window of it is.
    pub(crate) fn window(self, number: u8) -> usize {
        (self.read(FIRST_WINDOW + 4 * number) & !0xF) as usize
    }
}
