//! One macro for what an operator may want to know; it goes to `log` and to `defmt` as features ask.
//!
//! Never on the data path. Without a feature the arguments are still type-checked.

macro_rules! notice {
    ($format:literal $(, $argument:expr)* $(,)?) => {{
        #[cfg(feature = "log")]
        ::log::warn!($format $(, $argument)*);
        #[cfg(feature = "defmt")]
        ::defmt::warn!($format $(, $argument)*);
        #[cfg(not(any(feature = "log", feature = "defmt")))]
        {
            $(let _ = &$argument;)*
        }
    }};
}

pub(crate) use notice;
