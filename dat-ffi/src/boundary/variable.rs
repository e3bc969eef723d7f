//! Variable arguments of C: `va_list` of x86-64.

use std::ffi::c_void;
use std::ptr;

use super::{In, List};

/// A list of arguments as C passes `va_list`: its address.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct VariableArguments(*mut c_void);

/// The `va_list` of the processor's binary interface.
#[repr(C)]
struct Reader {
    /// Offset of the next argument in the saved general registers, in bytes.
    general: u32,
    _floating: u32,
    /// The next argument on the stack.
    stack: *const u64,
    /// Start of the saved registers.
    registers: *const u64,
}

/// Bytes of the general registers that pass arguments.
const GENERAL: u32 = 6 * 8;

impl VariableArguments {
    /// Takes the next argument, a number of at most 64 bits or an address.
    ///
    /// The upper bits of a shorter argument have no meaning.
    pub(crate) fn number(self) -> u64 {
        let list = self.0.cast::<Reader>();
        // SAFETY: the C caller promises a list with all arguments of the operation. None of them is
        // a floating-point number or larger than a register. So the layout is that of the
        // processor's binary interface. The arguments that came in the six general registers are at
        // `registers`, and the others follow each other on the stack.
        unsafe {
            let read = (*list).general;
            if read < GENERAL {
                (*list).general = read + 8;
                return (*list).registers.byte_add(read as usize).read();
            }
            let next = (*list).stack;
            (*list).stack = next.add(1);
            next.read()
        }
    }

    /// Takes the next argument, the address of a value, or null.
    pub(crate) fn address<T>(self) -> In<T> {
        In::at(ptr::with_exposed_provenance(self.number() as usize))
    }

    /// Takes the next argument, the address of several values, or null.
    pub(crate) fn list<T>(self) -> List<T> {
        List::at(ptr::with_exposed_provenance(self.number() as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_from_registers_and_then_from_the_stack() {
        let registers: [u64; 6] = [0, 1, 2, 3, 4, 5];
        let stack: [u64; 3] = [6, 7, 8];
        let mut list = Reader {
            general: 16,
            _floating: 48,
            stack: stack.as_ptr(),
            registers: registers.as_ptr(),
        };
        let arguments = VariableArguments((&raw mut list).cast());
        let read: Vec<u64> = std::iter::repeat_with(|| arguments.number())
            .take(7)
            .collect();
        assert_eq!(read, [2, 3, 4, 5, 6, 7, 8]);
    }
}
