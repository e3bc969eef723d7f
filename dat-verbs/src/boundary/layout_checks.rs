//! Compares the layouts of the compiler with those of C.

/// Takes a line for each type: its name, size and alignment, and the offset of each field.
///
/// Types of the C library have other sizes on other processors.
macro_rules! layouts {
    ($($name:ident $size:literal $align:literal: $($field:ident $offset:literal),*;)*) => {
        #[cfg(target_arch = "x86_64")]
        const _: () = {
            $(
                assert!(size_of::<$name>() == $size && align_of::<$name>() == $align);
                $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
            )*
        };
    };
}
pub(crate) use layouts;
