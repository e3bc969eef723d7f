//! What codes mean.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

use dat_core::{Result, strerror};

use super::Edition;
use super::result::{Code, code};
use crate::boundary::{Out, StaticText};

/// The words that were asked for, as C has them. There are as many as there are types and subtypes.
static WORDS: Mutex<Option<HashMap<&'static str, &'static CStr>>> = Mutex::new(None);

fn as_c(words: &'static str) -> StaticText {
    let mut known = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let made = known.get_or_insert_default().entry(words);
    StaticText::new(made.or_insert_with(|| {
        // No words have a zero byte.
        let words = CString::new(words).unwrap_or_default();
        Box::leak(words.into_boxed_c_str())
    }))
}

/// The second place may be null.
///
/// Spec: STR-01..03
pub(crate) extern "C" fn of<E: Edition>(
    value: u32,
    major: Out<StaticText>,
    minor: Out<StaticText>,
) -> Code {
    code::<E>((|| -> Result<()> {
        let place = major.required(2)?;
        let (kind, subtype) = strerror(value, E::ABI)?;
        place.put(as_c(kind));
        minor.offer(as_c(subtype));
        Ok(())
    })())
}
