//! Verdicts: the legal outcomes of a call.

use dat_core::error::{ErrorKind, Subtype};
use dat_core::{Error, Result};

/// Kind and subtype of an error; `None` allows any subtype because the catalogue names none.
pub(crate) type Refusal = (ErrorKind, Option<Subtype>);

/// Returns true if only arguments, and objects that calls manage, cause the error.
///
/// Connection requests, reserved service points and provider-made endpoints do not count: arrivals
/// create and consume them. Other uses of a dispatcher do not count either; the catalogue names no
/// argument for them.
fn is_firm(kind: ErrorKind, subtype: Option<Subtype>) -> bool {
    match kind {
        ErrorKind::InvalidHandle => !matches!(
            subtype,
            Some(Subtype::InvalidHandleCr | Subtype::InvalidHandleRsp | Subtype::InvalidHandleEp)
                | None
        ),
        ErrorKind::InvalidParameter => subtype.is_some(),
        ErrorKind::InvalidAddress
        | ErrorKind::PrivilegesViolation
        | ErrorKind::ProtectionViolation
        | ErrorKind::LengthError
        | ErrorKind::ModelNotSupported
        | ErrorKind::NotImplemented => true,
        _ => false,
    }
}

/// All legal outcomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) may_succeed: bool,
    /// Set if the refusal has a reason that no fault removes.
    ///
    /// Such a reason is a handle, an argument or a region's rights.
    firm: bool,
    pub(crate) refusals: Vec<Refusal>,
}

impl Verdict {
    /// Requires that the call fails with this error.
    pub(crate) fn refused(kind: ErrorKind, subtype: impl Into<Option<Subtype>>) -> Self {
        let subtype = subtype.into();
        Self {
            may_succeed: false,
            firm: is_firm(kind, subtype),
            refusals: vec![(kind, subtype)],
        }
    }

    /// Returns true if an outcome is legal after faults had effects.
    ///
    /// Endpoint states, queue contents and free resources may differ by then. A bad handle or
    /// argument stays bad, and is checked in the same order.
    pub(crate) fn allows_with_faults<T>(&self, outcome: &Result<T>) -> bool {
        self.allows(outcome)
            || match outcome {
                Ok(_) => !self.firm,
                Err(error) => {
                    !is_firm(error.kind(), Some(error.subtype()))
                        || !(self.firm || self.may_succeed)
                }
            }
    }

    /// Returns true if an outcome is legal.
    pub(crate) fn allows<T>(&self, outcome: &Result<T>) -> bool {
        match outcome {
            Ok(_) => self.may_succeed,
            Err(error) => self.names(*error),
        }
    }

    fn names(&self, error: Error) -> bool {
        self.refusals.iter().any(|&(kind, subtype)| {
            kind == error.kind() && subtype.is_none_or(|subtype| subtype == error.subtype())
        })
    }
}

/// Faults found in a call.
///
/// The catalogue orders the checks of posts (DTO-07). For other calls with several faults it leaves
/// open which one is reported.
#[derive(Default)]
pub(crate) struct Checks {
    certain: Vec<Refusal>,
    possible: Vec<Refusal>,
    bad_handle: bool,
}

impl Checks {
    /// Adds a bad handle.
    ///
    /// It has no subtype for a dispatcher without a role: GEN-03 has subtypes for roles only.
    pub(crate) fn handle(&mut self, bad: bool, subtype: impl Into<Option<Subtype>>) {
        if bad {
            self.certain
                .push((ErrorKind::InvalidHandle, subtype.into()));
            self.bad_handle = true;
        }
    }

    pub(crate) fn state(&mut self, bad: bool, subtype: impl Into<Option<Subtype>>) {
        if bad {
            self.certain.push((ErrorKind::InvalidState, subtype.into()));
        }
    }

    /// Adds a bad argument; `position` 0: the catalogue names no argument.
    pub(crate) fn parameter(&mut self, bad: bool, position: u8) {
        if bad {
            let subtype = (position != 0).then_some(Subtype::argument(position));
            self.certain.push((ErrorKind::InvalidParameter, subtype));
        }
    }

    pub(crate) fn other(&mut self, bad: bool, kind: ErrorKind) {
        if bad {
            self.certain.push((kind, None));
        }
    }

    pub(crate) fn resource(&mut self, bad: bool) {
        if bad {
            self.certain.push((ErrorKind::InsufficientResources, None));
        }
    }

    /// Adds an error that the catalogue permits but does not require.
    pub(crate) fn possible(&mut self, kind: ErrorKind) {
        self.possible.push((kind, None));
    }

    pub(crate) fn has_bad_handle(&self) -> bool {
        self.bad_handle
    }

    pub(crate) fn verdict(self) -> Verdict {
        let may_succeed = self.certain.is_empty();
        let firm = self
            .certain
            .iter()
            .any(|&(kind, subtype)| is_firm(kind, subtype));
        let mut refusals = self.certain;
        refusals.extend(self.possible);
        Verdict {
            may_succeed,
            firm,
            refusals,
        }
    }
}
