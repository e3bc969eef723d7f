//! Plausibility of recovered identifications.

/// Largest step between the identifications of two packets of one sender (ROCE-36).
const STEP_MAX: u16 = 4095;

/// Relation of an identification to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likelihood {
    /// A small step after the last one, or the first one.
    Likely,
    /// Any other: a damaged packet passes with a probability of 2^-16.
    Unlikely,
}

/// The identifications of one sender, which counts them (ROCE-36).
#[derive(Clone, Copy, Debug, Default)]
pub struct Identifications {
    last: Option<u16>,
    unlikely: u64,
}

impl Identifications {
    /// A sender before its first packet.
    pub const NONE: Self = Self {
        last: None,
        unlikely: 0,
    };

    /// Judges a recovered identification and remembers it.
    pub fn judge(&mut self, identification: u16) -> Likelihood {
        let step = self.last.map(|last| identification.wrapping_sub(last));
        self.last = Some(identification);
        if step.is_none_or(|step| (1..=STEP_MAX).contains(&step)) {
            return Likelihood::Likely;
        }
        self.unlikely = self.unlikely.saturating_add(1);
        Likelihood::Unlikely
    }

    /// Returns the number of unlikely identifications.
    pub const fn unlikely(&self) -> u64 {
        self.unlikely
    }
}
