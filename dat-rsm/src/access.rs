//! Access to a segment: nodes, users and rights.

use core::fmt;

use bitflags::bitflags;

use crate::error::{Result, RsmError};
use crate::id::NodeId;

bitflags! {
    /// Rights of a connection (`Spec: RSMIM-01`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Permission: u32 {
        /// Reads: get and getv.
        const READ = 0o400;
        /// Writes: put and putv.
        const WRITE = 0o200;
    }
}

/// Bits that an access entry may have.
const ACCESS_BITS: u32 = 0o666;
/// Bits of a digit for reading and for writing.
const DIGIT_READ: u32 = 0o4;
const DIGIT_WRITE: u32 = 0o2;

/// Rights of one node on a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// The node.
    pub node: NodeId,
    /// Three octal digits: the exporter's user, its group, all others; 4 is reading, 2 writing.
    pub permission: u32,
}

/// The reason for BAD_ACL ([`Rsm::access_fault`](crate::Rsm::access_fault)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessFault {
    /// The list has more entries than the controller has nodes.
    TooLong {
        /// Number of entries.
        entries: usize,
        /// Number of nodes.
        nodes: usize,
    },
    /// An entry names a node that the controller does not have in its list.
    UnknownNode {
        /// Index of the entry, from 0.
        index: usize,
        /// The node.
        node: NodeId,
    },
    /// An entry has bits outside of 0666.
    Permission {
        /// Index of the entry, from 0.
        index: usize,
        /// The bits.
        permission: u32,
    },
}

impl fmt::Display for AccessFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Texts count entries from 1, as those of vectors do.
        match *self {
            Self::TooLong { entries, nodes } => {
                write!(formatter, "{entries} entries, but only {nodes} nodes")
            }
            Self::UnknownNode { index, node } => write!(
                formatter,
                "entry {}: node {node} is not in the list of nodes",
                index.saturating_add(1)
            ),
            Self::Permission { index, permission } => write!(
                formatter,
                "entry {}: permission {permission:#o} has bits outside of {ACCESS_BITS:#o}",
                index.saturating_add(1)
            ),
        }
    }
}

/// User and group of a process; the peer's node vouches for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

impl Permission {
    /// Converts a number to rights.
    ///
    /// # Errors
    /// PERM_DENIED: the number is 0 or has a bit that is no right.
    ///
    /// Spec: RSMIM-01
    pub fn from_number(number: u32) -> Result<Self> {
        Self::from_bits(number)
            .filter(|permission| !permission.is_empty())
            .ok_or(RsmError::PermissionDenied)
    }

    /// Returns the index of the rights in [`Export::keys`](crate::export::Export::keys).
    pub(crate) fn class(self) -> usize {
        match (self.contains(Self::READ), self.contains(Self::WRITE)) {
            (true, true) => 2,
            (false, true) => 1,
            _ => 0,
        }
    }
}

/// Returns the first fault of an access list: in its length, nodes or rights.
///
/// Spec: RSMPB-03
pub(crate) fn fault_of_list(
    list: &[AccessEntry],
    knows: impl Fn(NodeId) -> bool,
    nodes: usize,
) -> Option<AccessFault> {
    let entries = list.len();
    if entries > nodes {
        return Some(AccessFault::TooLong { entries, nodes });
    }
    list.iter().enumerate().find_map(|(index, entry)| {
        let AccessEntry { node, permission } = *entry;
        if permission & !ACCESS_BITS != 0 {
            Some(AccessFault::Permission { index, permission })
        } else if !knows(node) {
            Some(AccessFault::UnknownNode { index, node })
        } else {
            None
        }
    })
}

/// Checks that a caller on a node may connect with these rights.
///
/// The first entry of the node counts. With an empty list, the default rights apply to every node.
///
/// Spec: RSMPB-03, RSMIM-02
pub(crate) fn check_access(
    list: &[AccessEntry],
    default: u32,
    owner: Credentials,
    node: NodeId,
    caller: Credentials,
    permission: Permission,
) -> Result<()> {
    let digits = if list.is_empty() {
        default
    } else {
        list.iter()
            .find(|entry| entry.node == node)
            .ok_or(RsmError::SegmentNotPublishedToNode)?
            .permission
    };
    // Exactly one digit applies; the others are not tried.
    let digit = if caller.user == owner.user {
        digits >> 6
    } else if caller.group == owner.group {
        digits >> 3
    } else {
        digits
    };
    let reads = digit & DIGIT_READ != 0 || !permission.contains(Permission::READ);
    let writes = digit & DIGIT_WRITE != 0 || !permission.contains(Permission::WRITE);
    if reads && writes {
        Ok(())
    } else {
        Err(RsmError::PermissionDenied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const OWNER: Credentials = Credentials {
        user: 10,
        group: 20,
    };

    /// Spec: RSMIM-01
    #[test]
    fn only_three_permissions_exist() {
        for number in 0..0o1000_u32 {
            let known = [0o400, 0o200, 0o600].contains(&number);
            assert_eq!(Permission::from_number(number).is_ok(), known, "{number:o}");
        }
        assert_eq!(Permission::from_number(0), Err(RsmError::PermissionDenied));
    }

    /// Spec: RSMIM-02, RSMPB-03
    #[test]
    fn exactly_one_digit_applies() {
        let callers = [
            (OWNER, 6),
            (Credentials { user: 11, ..OWNER }, 3),
            (
                Credentials {
                    user: 11,
                    group: 21,
                },
                0,
            ),
            // The user decides before the group.
            (
                Credentials {
                    user: 10,
                    group: 21,
                },
                6,
            ),
        ];
        for (caller, shift) in callers {
            for digits in 0..=0o666_u32 {
                if digits & !ACCESS_BITS != 0 {
                    continue;
                }
                let entry = AccessEntry {
                    node: 3,
                    permission: digits,
                };
                let digit = digits >> shift & 7;
                for (permission, needed) in [
                    (Permission::READ, 4),
                    (Permission::WRITE, 2),
                    (Permission::all(), 6),
                ] {
                    let expected = if digit & needed == needed {
                        Ok(())
                    } else {
                        Err(RsmError::PermissionDenied)
                    };
                    let listed = check_access(&[entry], 0, OWNER, 3, caller, permission);
                    assert_eq!(listed, expected, "{digits:o} {caller:?} {permission:?}");
                    let default = check_access(&[], digits, OWNER, 9, caller, permission);
                    assert_eq!(default, expected, "{digits:o} {caller:?} {permission:?}");
                }
            }
        }
    }

    /// Spec: RSMPB-03
    #[test]
    fn the_first_entry_of_a_node_counts_and_others_cannot_connect() {
        let entry = |node, permission| AccessEntry { node, permission };
        let list = [entry(1, 0o444), entry(1, 0o666), entry(2, 0o666)];
        let check = |node, permission| check_access(&list, 0o666, OWNER, node, OWNER, permission);
        assert_eq!(check(1, Permission::READ), Ok(()));
        assert_eq!(check(1, Permission::WRITE), Err(RsmError::PermissionDenied));
        assert_eq!(check(2, Permission::all()), Ok(()));
        assert_eq!(
            check(3, Permission::READ),
            Err(RsmError::SegmentNotPublishedToNode)
        );
    }

    /// Spec: RSMPB-03
    #[test]
    fn lists_name_known_nodes_and_known_bits_and_no_more_entries_than_nodes() {
        let entry = |node, permission| AccessEntry { node, permission };
        let fault = |list: &[AccessEntry]| fault_of_list(list, |node| node <= 2, 2);
        assert_eq!(fault(&[]), None);
        assert_eq!(fault(&[entry(1, 0o666), entry(2, 0)]), None);
        for (bad, text) in [
            (
                &[entry(1, 0), entry(3, 0o666)][..],
                "entry 2: node 3 is not in the list of nodes",
            ),
            (
                &[entry(1, 0o1)],
                "entry 1: permission 0o1 has bits outside of 0o666",
            ),
            (
                &[entry(1, 0), entry(2, 0o1000)],
                "entry 2: permission 0o1000 has bits outside of 0o666",
            ),
            (
                &[entry(1, 0), entry(2, 0), entry(1, 0)],
                "3 entries, but only 2 nodes",
            ),
        ] {
            let fault = fault(bad).map(|fault| fault.to_string());
            assert_eq!(fault.as_deref(), Some(text));
        }
    }
}
