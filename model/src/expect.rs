//! What a call must return.

use dat_core::error::{ErrorKind, Subtype};
use dat_core::{Error, Result};

/// An error by what the interface can express; no subtype = the catalogue names none, so any will do.
pub(crate) type Refusal = (ErrorKind, Option<Subtype>);

/// Whether an error says something of the arguments alone, and of objects that only calls make and free. Connection requests, service points that
/// take one alone, and endpoints that the provider makes come and go with what arrives; who else uses a dispatcher, for which the catalogue names
/// no argument, goes with them.
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
    /// There is a reason to refuse the call that nothing below can take away: a handle, an argument, what regions allow.
    firm: bool,
    pub(crate) refusals: Vec<Refusal>,
}

impl Verdict {
    /// The call must fail like this.
    pub(crate) fn refused(kind: ErrorKind, subtype: impl Into<Option<Subtype>>) -> Self {
        let subtype = subtype.into();
        Self {
            may_succeed: false,
            firm: is_firm(kind, subtype),
            refusals: vec![(kind, subtype)],
        }
    }

    /// Whether an outcome is legal where faults had effects: states of endpoints, what is queued and what is left may be others by now, but what is
    /// wrong with a handle or an argument still is, and is looked at in the same order.
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

    /// Whether an outcome is legal.
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

/// Faults found in a call. The catalogue orders the checks of posts (DTO-07); of any other call with several faults it
/// does not say which is reported.
#[derive(Default)]
pub(crate) struct Checks {
    certain: Vec<Refusal>,
    possible: Vec<Refusal>,
    bad_handle: bool,
}

impl Checks {
    /// No subtype: an event dispatcher named without a role (GEN-03 has subtypes for roles only).
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

    /// `position` 0: the catalogue names no argument.
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

    /// The catalogue leaves open whether this is refused.
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
