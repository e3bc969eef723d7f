//! Texts for return codes.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use dat_core::{Error, Result, Subtype, strerror};

use super::result::{Code, code};
use super::{Edition, names};
use crate::boundary::{Inherited, Out, StaticText};

/// Texts that were asked for, as C strings; at most one for each type and each subtype.
static WORDS: Inherited<BTreeMap<String, &'static CStr>> = Inherited::new(BTreeMap::new());

fn as_c(words: String) -> StaticText {
    let mut known = WORDS.lock();
    if let Some(made) = known.get(&words) {
        return StaticText::new(made);
    }
    // No text has a zero byte.
    let made = CString::new(words.as_str()).unwrap_or_default();
    let made = Box::leak(made.into_boxed_c_str());
    known.insert(words, made);
    StaticText::new(made)
}

/// Stores both texts; the second pointer may be null.
fn put(
    (major, minor): (Out<StaticText>, Out<StaticText>),
    texts: impl FnOnce() -> Result<(String, String)>,
) -> Result<()> {
    let output = major.required(2)?;
    let (kind, subtype) = texts()?;
    output.put(as_c(kind));
    minor.offer(as_c(subtype));
    Ok(())
}

/// Returns type and subtype of a code in words.
///
/// Spec: STR-01..03
pub(crate) extern "C" fn of<E: Edition>(
    value: u32,
    major: Out<StaticText>,
    minor: Out<StaticText>,
) -> Code {
    code::<E>(put((major, minor), || {
        let (kind, subtype) = strerror(value, E::ABI)?;
        Ok((kind.to_owned(), subtype.to_owned()))
    }))
}

/// Returns type and subtype of a code by their names in the headers.
///
/// Programs for 2.0 have printed these so far. Without a subtype the second text is empty.
///
/// Spec: STR-01..03
pub(crate) extern "C" fn named<E: Edition>(
    value: u32,
    major: Out<StaticText>,
    minor: Out<StaticText>,
) -> Code {
    code::<E>(put((major, minor), || {
        let known = Error::from_code(value, E::ABI).ok_or(Error::invalid_argument(1))?;
        Ok(match known {
            Ok(()) => ("DAT_SUCCESS".to_owned(), String::new()),
            Err(error) => {
                let subtype =
                    Some(error.subtype()).filter(|subtype| *subtype != Subtype::NoSubtype);
                let subtype = subtype.map(names::of_subtype);
                (names::of_kind(error.kind()), subtype.unwrap_or_default())
            }
        })
    }))
}
