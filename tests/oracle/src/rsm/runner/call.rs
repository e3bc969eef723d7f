//! Transfers, on the engines and on the oracle.

use super::arguments::number;
use super::doubt::EndedTransfer;
use super::*;

/// Runs code with the integer type of an item size.
macro_rules! items {
    ($size:expr, $bytes:expr, $number:ident, $items:pat => $act:expr) => {
        match $size {
            1 => items!(@ u8, $bytes, $number, $items => $act),
            2 => items!(@ u16, $bytes, $number, $items => $act),
            4 => items!(@ u32, $bytes, $number, $items => $act),
            _ => items!(@ u64, $bytes, $number, $items => $act),
        }
    };
    (@ $type:ty, $bytes:expr, $number:ident, $items:pat => $act:expr) => {{
        type $number = $type;
        let chunks = $bytes.chunks_exact(size_of::<$type>());
        let $items: Vec<$type> = chunks
            .map(|bytes| <$type>::from_ne_bytes(bytes.try_into().unwrap_or_default()))
            .collect();
        $act
    }};
}

/// Returns an offset, mostly within a segment.
fn segment_offset(offset: u8, step: u64) -> u64 {
    match offset {
        0..200 => number(offset % 48, step),
        offset => number(offset, step),
    }
}

impl Runner {
    pub(super) fn transfer(&mut self, side: Side, op: &TransferOp) -> Outcome {
        match *op {
            TransferOp::PutVector {
                import,
                ref entries,
                flags,
            } => self.vector(side, import, entries, flags, true),
            TransferOp::GetVector {
                import,
                ref entries,
                flags,
            } => self.vector(side, import, entries, flags, false),
            TransferOp::Put {
                import,
                offset,
                length,
            } => self.single(
                side,
                import,
                None,
                segment_offset(offset, 4),
                length.into(),
                true,
            ),
            TransferOp::Get {
                import,
                offset,
                length,
            } => self.single(
                side,
                import,
                None,
                segment_offset(offset, 4),
                length.into(),
                false,
            ),
            TransferOp::PutItems {
                import,
                size,
                offset,
                count,
            } => self.items(side, import, size, offset, count, true),
            TransferOp::GetItems {
                import,
                size,
                offset,
                count,
            } => self.items(side, import, size, offset, count, false),
        }
    }

    /// Returns bytes that differ from those of other calls.
    fn new_buffer(&mut self, length: usize) -> Vec<u8> {
        self.buffers = self.buffers.wrapping_add(1);
        let seed = usize::from(self.buffers);
        (0..length).map(|at| (at * 7 + seed * 31) as u8).collect()
    }

    fn vector(
        &mut self,
        side: Side,
        which: Pick,
        entries: &[Entry],
        flags: u8,
        put: bool,
    ) -> Outcome {
        let mut bits = VectorFlags::empty();
        bits.set(VectorFlags::IMPLICIT_SIGPOST, flags & 3 == 1);
        bits.set(VectorFlags::SIGPOST_NO_ACCUMULATE, flags & 4 != 0);
        let (handle, index) = self.picked_import(side, which);
        let mut buffers = Vec::new();
        let mut iov = Vec::new();
        let mut locals = Vec::new();
        for entry in entries {
            let mut local = Handle::NULL;
            let memory = match entry.local {
                Local::Handle(which) => {
                    let picked = self.picked_local(side, which);
                    local = picked.0;
                    EntryMemory::Registered(picked.1)
                }
                Local::Bytes(length) => {
                    let bytes = self.new_buffer(usize::from(length) % (BUFFER + 1));
                    buffers.push(bytes);
                    let last = buffers.len() - 1;
                    EntryMemory::Buffer(last, buffers[last].len())
                }
                Local::Shared(start, length) => {
                    let start = usize::from(start) * 2;
                    EntryMemory::Shared(start, usize::from(length).min(LOCAL - start))
                }
            };
            locals.push(LocalMemoryId::from_handle(local));
            iov.push(IovEntry {
                memory,
                local_offset: number(entry.local_offset, 1),
                remote_offset: number(entry.remote_offset, 4),
                length: number(entry.length, 1),
            });
        }
        if bits.contains(VectorFlags::IMPLICIT_SIGPOST) {
            // The order in which signals arrive decides their number (RSMSG-04).
            self.run_to_idle()?;
        }
        let form = Form { put, single: None };
        let plan = self.world.plan(side, index, form, &iov);
        self.idle_if_order_matters(&plan, put)?;
        let expected = buffers.clone();
        let shared = self.memory[side.index()][1];
        let import = ImportId::from_handle(handle);
        let done = if put {
            let all: Vec<PutEntry<'_>> = iov
                .iter()
                .zip(&locals)
                .map(|(entry, local)| PutEntry {
                    local: match entry.memory {
                        EntryMemory::Registered(_) => Source::Handle(*local),
                        EntryMemory::Buffer(index, _) => Source::Bytes(&buffers[index]),
                        EntryMemory::Shared(start, length) => {
                            Source::Shared(&shared[start..][..length])
                        }
                    },
                    local_offset: entry.local_offset,
                    remote_offset: entry.remote_offset,
                    length: entry.length,
                })
                .collect();
            self.on(side, |engine, wait| engine.putv(import, &all, bits, wait))
        } else {
            let mut own = buffers.iter_mut();
            let mut all: Vec<GetEntry<'_>> = Vec::new();
            for (entry, local) in iov.iter().zip(&locals) {
                all.push(GetEntry {
                    local: match entry.memory {
                        EntryMemory::Registered(_) => Target::Handle(*local),
                        EntryMemory::Buffer(..) => {
                            Target::Bytes(own.next().map_or(&mut [], |it| it))
                        }
                        EntryMemory::Shared(start, length) => {
                            Target::Shared(&shared[start..][..length])
                        }
                    },
                    local_offset: entry.local_offset,
                    remote_offset: entry.remote_offset,
                    length: entry.length,
                });
            }
            self.on(side, |engine, wait| {
                engine.getv(import, &mut all, bits, wait)
            })
        };
        let count = iov.len();
        let name = if put { "putv" } else { "getv" };
        let signal = bits.contains(VectorFlags::IMPLICIT_SIGPOST);
        let wrong = done.err().filter(|failed| failed.count != count);
        if let Some(failed) = wrong {
            return self.mismatch(count, failed);
        }
        let ended = EndedTransfer {
            name,
            side,
            index,
            put,
            iov: &iov,
            signal: signal.then_some(bits.contains(VectorFlags::SIGPOST_NO_ACCUMULATE)),
            outcome: done.map_err(|failed| (failed.error, failed.residual)),
        };
        self.judge_transfer(&ended, &plan, expected, &buffers)?;
        self.record_pending(plan, put);
        Ok(())
    }

    /// Waits until idle if this call's order among pending ones matters for a byte.
    fn idle_if_order_matters(&mut self, plan: &Plan, put: bool) -> Outcome {
        let touched = plan
            .moves
            .iter()
            .flat_map(|step| [(&step.local, !put), (&step.remote, put)]);
        let meets = touched.into_iter().any(|(range, written)| {
            self.outstanding
                .iter()
                .any(|(other, other_written)| (written || *other_written) && overlap(range, other))
        });
        if meets { self.run_to_idle() } else { Ok(()) }
    }

    /// Records the ranges that a call in explicit mode leaves pending.
    fn record_pending(&mut self, plan: Plan, put: bool) {
        if !plan.explicit {
            return;
        }
        if !put {
            for (index, step) in plan.moves.iter().enumerate() {
                let others = plan.moves.iter().enumerate();
                let overlaps = others
                    .filter(|(other, _)| *other != index)
                    .any(|(_, other)| overlap(&step.local, &other.local));
                if overlaps {
                    self.undefined.push(step.local.clone());
                }
            }
        }
        for step in plan.moves {
            self.outstanding.push((step.remote, put));
            self.outstanding.push((step.local, !put));
        }
    }

    /// Plans a single access, which transfers a buffer of the caller.
    fn expect_single(
        &mut self,
        side: Side,
        index: Option<usize>,
        form: Form,
        entry: IovEntry,
    ) -> Outcome<Plan> {
        let plan = self.world.plan(side, index, form, &[entry]);
        self.idle_if_order_matters(&plan, form.put)?;
        Ok(plan)
    }

    fn single(
        &mut self,
        side: Side,
        which: Pick,
        size: Option<usize>,
        offset: u64,
        length: usize,
        put: bool,
    ) -> Outcome {
        let (handle, index) = self.picked_import(side, which);
        let import = ImportId::from_handle(handle);
        let form = Form {
            put,
            single: Some(size.unwrap_or(1) as u64),
        };
        let entry = IovEntry {
            memory: EntryMemory::Buffer(0, length),
            local_offset: 0,
            remote_offset: offset,
            length: length as u64,
        };
        let plan = self.expect_single(side, index, form, entry)?;
        let mut bytes = self.new_buffer(length);
        let expected = vec![bytes.clone()];
        let done = self.on(side, |engine, wait| match (size, put) {
            (None, true) => engine.put(import, offset, &bytes, wait),
            (None, false) => engine.get(import, offset, &mut bytes, wait),
            (Some(size), true) => items!(size, bytes, Number, items => {
                engine.put_items::<Number, _>(import, offset, &items, wait)
            }),
            (Some(size), false) => items!(size, bytes, Number, mut items => {
                let done = engine.get_items::<Number, _>(import, offset, &mut items, wait);
                bytes = items.iter().flat_map(|item| item.to_ne_bytes()).collect();
                done
            }),
        });
        let name = match (size, put) {
            (None, true) => "put",
            (None, false) => "get",
            (Some(_), true) => "put_items",
            (Some(_), false) => "get_items",
        };
        let ended = EndedTransfer {
            name,
            side,
            index,
            put,
            iov: &[entry],
            signal: None,
            outcome: done.map_err(|error| (error, 1)),
        };
        self.judge_transfer(&ended, &plan, expected, &[bytes])?;
        self.record_pending(plan, put);
        Ok(())
    }

    fn items(
        &mut self,
        side: Side,
        which: Pick,
        size: u8,
        offset: u8,
        count: u8,
        put: bool,
    ) -> Outcome {
        let size = 1 << (size & 3);
        let length = usize::from(count % 48) * size;
        let step = if offset < 200 { size as u64 } else { 1 };
        self.single(
            side,
            which,
            Some(size),
            segment_offset(offset, step),
            length,
            put,
        )
    }
}
