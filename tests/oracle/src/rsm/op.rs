//! Operations of remote shared memory as data.

use arbitrary::{Arbitrary, Unstructured};

use crate::op::{Pick, Side};

/// Access list entry of a node, by numbers; some are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
pub struct Access {
    /// Node: the first, the second, rarely an unknown one.
    pub node: u8,
    /// Permission digits.
    pub permission: u8,
}

/// Local memory of an iov entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// Registered memory.
    Handle(Pick),
    /// Buffer of the caller, of this length.
    Bytes(u8),
    /// Range of the memory that handles are made of: start and length.
    Shared(u8, u8),
}

/// One iov entry; numbers from 250 on are out of any range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Local memory, source or destination.
    pub local: Local,
    /// Offset in the local memory.
    pub local_offset: u8,
    /// Offset in the segment, in units of four bytes.
    pub remote_offset: u8,
    /// Length in bytes.
    pub length: u8,
}

impl<'a> Arbitrary<'a> for Entry {
    /// Mostly draws entries within bounds.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let (kind, local_offset, remote_offset, length): (u8, u8, u8, u8) = u.arbitrary()?;
        let local = match kind & 3 {
            0 | 1 => Local::Handle(u.arbitrary()?),
            2 => Local::Bytes(u.arbitrary()?),
            _ => {
                let (start, length) = u.arbitrary()?;
                Local::Shared(start, length)
            }
        };
        let tame = |number: u8, most: u8| if number < 248 { number % most } else { number };
        Ok(Self {
            local,
            local_offset: tame(local_offset, 48),
            remote_offset: tame(remote_offset, 60),
            length: tame(length, 24),
        })
    }
}

/// Operations on segments by their exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum ExportOp {
    Create {
        start: u8,
        length: u8,
        flags: u8,
    },
    Publish {
        export: Pick,
        id: u8,
        access: Vec<Access>,
    },
    Republish {
        export: Pick,
        access: Vec<Access>,
    },
    Unpublish {
        export: Pick,
    },
    Rebind {
        export: Pick,
        start: u8,
        length: u8,
    },
    Destroy {
        export: Pick,
    },
}

impl<'a> Arbitrary<'a> for ExportOp {
    /// Mostly draws operations that keep segments alive.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let what = u8::arbitrary(u)?;
        let export = u.arbitrary()?;
        Ok(match what {
            0..=69 => {
                let (start, length, flags) = u.arbitrary()?;
                Self::Create {
                    start,
                    length,
                    flags,
                }
            }
            70..=149 => Self::Publish {
                export,
                id: u.arbitrary()?,
                access: access(u)?,
            },
            150..=179 => Self::Republish {
                export,
                access: access(u)?,
            },
            180..=219 => {
                let (start, length) = u.arbitrary()?;
                Self::Rebind {
                    export,
                    start,
                    length,
                }
            }
            220..=237 => Self::Unpublish { export },
            _ => Self::Destroy { export },
        })
    }
}

/// Draws an access list; most are empty.
fn access(u: &mut Unstructured<'_>) -> arbitrary::Result<Vec<Access>> {
    let count = match u8::arbitrary(u)? {
        0..=139 => 0,
        140..=219 => 2,
        220..=249 => 1,
        _ => 3,
    };
    (0..count).map(|_| u.arbitrary()).collect()
}

/// Operations on connections.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum ImportOp {
    Connect { node: u8, id: u8, permission: u8 },
    SetMode { import: Pick, explicit: bool },
    Disconnect { import: Pick },
}

impl<'a> Arbitrary<'a> for ImportOp {
    /// Mostly draws operations that keep connections alive.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            0..=149 => {
                let (node, id, permission) = u.arbitrary()?;
                Self::Connect {
                    node,
                    id,
                    permission,
                }
            }
            150..=219 => Self::SetMode {
                import: u.arbitrary()?,
                explicit: u.arbitrary()?,
            },
            _ => Self::Disconnect {
                import: u.arbitrary()?,
            },
        })
    }
}

/// Operations on local memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum LocalOp {
    Create {
        start: u8,
        length: u8,
        read_only: bool,
    },
    Free {
        local: Pick,
    },
    /// Plain stores.
    Store {
        at: u8,
        value: u8,
        count: u8,
    },
}

impl<'a> Arbitrary<'a> for LocalOp {
    /// Mostly draws operations that keep memory alive.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            0..=119 => {
                let (start, length, read_only) = u.arbitrary()?;
                Self::Create {
                    start,
                    length,
                    read_only,
                }
            }
            120..=199 => {
                let (at, value, count) = u.arbitrary()?;
                Self::Store { at, value, count }
            }
            _ => Self::Free {
                local: u.arbitrary()?,
            },
        })
    }
}

/// Operations that transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum TransferOp {
    PutVector {
        import: Pick,
        entries: Vec<Entry>,
        flags: u8,
    },
    GetVector {
        import: Pick,
        entries: Vec<Entry>,
        flags: u8,
    },
    Put {
        import: Pick,
        offset: u8,
        length: u8,
    },
    Get {
        import: Pick,
        offset: u8,
        length: u8,
    },
    /// Transfers items; `size` chooses the item's size.
    PutItems {
        import: Pick,
        size: u8,
        offset: u8,
        count: u8,
    },
    GetItems {
        import: Pick,
        size: u8,
        offset: u8,
        count: u8,
    },
}

impl<'a> Arbitrary<'a> for TransferOp {
    /// Mostly draws vectors.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let what = u8::arbitrary(u)?;
        let import = u.arbitrary()?;
        Ok(match what {
            0..=79 => Self::PutVector {
                import,
                entries: entries(u)?,
                flags: u.arbitrary()?,
            },
            80..=159 => Self::GetVector {
                import,
                entries: entries(u)?,
                flags: u.arbitrary()?,
            },
            160..=207 => {
                let (offset, length) = u.arbitrary()?;
                let put = what < 184;
                if put {
                    Self::Put {
                        import,
                        offset,
                        length,
                    }
                } else {
                    Self::Get {
                        import,
                        offset,
                        length,
                    }
                }
            }
            _ => {
                let (size, offset, count) = u.arbitrary()?;
                let put = what < 232;
                if put {
                    Self::PutItems {
                        import,
                        size,
                        offset,
                        count,
                    }
                } else {
                    Self::GetItems {
                        import,
                        size,
                        offset,
                        count,
                    }
                }
            }
        })
    }
}

/// Draws iov entries: rarely none, sometimes more than the C interface takes.
fn entries(u: &mut Unstructured<'_>) -> arbitrary::Result<Vec<Entry>> {
    let count = match u8::arbitrary(u)? {
        0..=7 => 0,
        count @ 8..=223 => count % 5 + 1,
        count => count % 20 + 1,
    };
    (0..count).map(|_| u.arbitrary()).collect()
}

/// Operations on barriers.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum BarrierOp {
    Init { import: Pick },
    Open { barrier: Pick },
    Order { barrier: Pick },
    Close { barrier: Pick },
    Destroy { barrier: Pick },
}

/// Segment on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
pub enum Segment {
    /// Exported segment.
    Export(Pick),
    /// Imported segment.
    Import(Pick),
}

/// Operations on signals and polls.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum SignalOp {
    Post {
        segment: Segment,
        no_accumulate: bool,
    },
    Take {
        segment: Segment,
    },
    /// Waits with a deadline of now.
    Wait {
        segment: Segment,
    },
    AcquirePoll {
        segment: Segment,
    },
    ReleasePoll {
        segment: Segment,
    },
}

/// One operation on one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Operation on segments by their exporter.
    Export(Side, ExportOp),
    /// Operation on connections.
    Import(Side, ImportOp),
    /// Operation on local memory.
    Local(Side, LocalOp),
    /// Transfer.
    Transfer(Side, TransferOp),
    /// Operation on barriers.
    Barrier(Side, BarrierOp),
    /// Operation on signals and polls.
    Signal(Side, SignalOp),
    /// Runs the fabric and the engines until they are idle.
    RunToIdle,
}

impl<'a> Arbitrary<'a> for Op {
    /// Mostly draws transfers.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let byte = u8::arbitrary(u)?;
        let side = if byte & 1 == 0 { Side::A } else { Side::B };
        Ok(match byte >> 1 {
            0..=47 => Self::Transfer(side, u.arbitrary()?),
            48..=67 => Self::Import(side, u.arbitrary()?),
            68..=81 => Self::Export(side, u.arbitrary()?),
            82..=103 => Self::Barrier(side, u.arbitrary()?),
            104..=115 => Self::Signal(side, u.arbitrary()?),
            116..=125 => Self::Local(side, u.arbitrary()?),
            _ => Self::RunToIdle,
        })
    }
}

/// Returns the operations that most runs begin with.
pub(crate) fn prologue() -> Vec<Op> {
    const FIRST: Pick = Pick::Live(0);
    let mut ops = Vec::new();
    for side in [Side::A, Side::B] {
        ops.extend([
            Op::Export(
                side,
                ExportOp::Create {
                    start: 0,
                    length: 1,
                    flags: 1,
                },
            ),
            Op::Export(
                side,
                ExportOp::Publish {
                    export: FIRST,
                    id: 1,
                    access: Vec::new(),
                },
            ),
            Op::Local(
                side,
                LocalOp::Create {
                    start: 0,
                    length: 128,
                    read_only: false,
                },
            ),
        ]);
    }
    for (side, node) in [(Side::A, 1), (Side::B, 0), (Side::A, 0)] {
        let connect = ImportOp::Connect {
            node,
            id: 1,
            permission: 0,
        };
        ops.push(Op::Import(side, connect));
    }
    for side in [Side::A, Side::B] {
        ops.extend([
            Op::Barrier(side, BarrierOp::Init { import: FIRST }),
            Op::Barrier(side, BarrierOp::Open { barrier: FIRST }),
        ]);
    }
    ops
}
