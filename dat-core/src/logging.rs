//! The macro for messages to an operator, written to `log` and to `defmt` by feature.
//!
//! Not for the data path. Without a feature the arguments are still type-checked.

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
