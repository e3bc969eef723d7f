//! Remote shared memory: a segment from its export to its revocation.

use dat_rsm::{
    AccessEntry, BarrierId, BarrierMode, BarrierScope, ExportFlags, ExportId, GetEntry, ImportId,
    ImportState, LocalAccess, LocalMemoryId, Permission, PutEntry, RsmError, SegmentId, Source,
    Target, VectorError, VectorFlags,
};

use super::pair::{End, Pair};
use super::step::{Chapter, Outcome, Step};
use crate::failure::{Failure, Result};
use crate::host::{Memory, PAGE};
use crate::rsm::failure::DuringRsm;

/// The id under which the segment is published.
const SEGMENT: SegmentId = 0x60_0000;
/// Bytes of A's memory that get a handle.
const LOCAL: usize = 64;

pub(crate) struct Scene {
    pair: Pair,
    /// B's memory.
    memory: Memory,
    /// A's memory.
    local_memory: Memory,
    export: Option<ExportId>,
    import: Option<ImportId>,
    /// A second connection, for reading only.
    reader: Option<ImportId>,
    local: Option<LocalMemoryId>,
    barrier: Option<BarrierId>,
}

fn set() -> Result<Scene> {
    let local_memory = Memory::new(LOCAL);
    local_memory.store(0, b"remote memory");
    Ok(Scene {
        pair: Pair::open()?,
        memory: Memory::new(PAGE),
        local_memory,
        export: None,
        import: None,
        reader: None,
        local: None,
        barrier: None,
    })
}

/// Returns the result of an earlier step, or a failure if that step failed.
fn made<T: Copy>(what: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Failure::operation(format!("{what} is missing"), "an earlier step failed"))
}

/// Returns the text of a segment, up to the first zero byte.
fn text(memory: Memory) -> String {
    let mut bytes = [0; 32];
    memory.load(0, &mut bytes);
    let end = bytes.iter().position(|byte| *byte == 0);
    let shown = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    String::from_utf8_lossy(shown).into_owned()
}

/// Stores the result of a call, and returns the call's outcome.
fn kept<T>(target: &mut Option<T>, result: dat_rsm::Result<T>) -> Outcome {
    Outcome::of_rsm(result.map(|value| *target = Some(value)))
}

fn bytes(source: &[u8], remote_offset: u64) -> PutEntry<'_> {
    PutEntry {
        local: Source::Bytes(source),
        local_offset: 0,
        remote_offset,
        length: source.len() as u64,
    }
}

const MEMORY: &str = "B reads";
const RESIDUAL: &str = "residual count";
const CONNECTION: &str = "A's connection";

impl Scene {
    fn publish(&self, permission: u32) -> [AccessEntry; 1] {
        let _whole = self;
        [AccessEntry {
            node: End::A.node(),
            permission,
        }]
    }

    fn connect(&self, permission: Permission) -> dat_rsm::Result<ImportId> {
        self.pair.engine(End::A).import_connect(
            self.pair.controller(End::A),
            End::B.node(),
            SEGMENT,
            permission,
            &mut self.pair.wait(End::A),
        )
    }

    fn put(
        &self,
        import: ImportId,
        entries: &[PutEntry<'_>],
        flags: VectorFlags,
    ) -> std::result::Result<(), VectorError> {
        let wait = &mut self.pair.wait(End::A);
        self.pair.engine(End::A).putv(import, entries, flags, wait)
    }

    /// Returns a vector's outcome, with the residual count and the text in B's memory.
    fn moved(&self, result: std::result::Result<(), VectorError>) -> Outcome {
        let residual = result.map_or_else(|failure| failure.residual, |()| 0);
        Outcome::of_rsm(result.map_err(RsmError::from))
            .fact(RESIDUAL, residual.to_string())
            .fact(MEMORY, text(self.memory))
    }

    /// Waits at B for a signal, with a deadline of now.
    fn wait(&self) -> Result<Outcome> {
        let export = made("segment", self.export)?;
        self.pair.run_until_idle();
        let result = self.pair.engine(End::B).signal_wait(
            export,
            Some(self.pair.now()),
            &mut self.pair.wait(End::B),
        );
        Ok(Outcome::of_rsm(result).fact(MEMORY, text(self.memory)))
    }

    fn connection(&self) -> Result<&'static str> {
        let import = made("connection", self.import)?;
        let state = self.pair.engine(End::A).import_state(import);
        Ok(match state.during_rsm("querying the connection")? {
            ImportState::Connecting => "connecting",
            ImportState::Connected => "connected",
            ImportState::Aborted => "aborted",
        })
    }
}

fn moved(residual: usize, memory: &str) -> Outcome {
    vector(Ok(()), residual, memory)
}

fn refused(error: RsmError, residual: usize, memory: &str) -> Outcome {
    vector(Err(error), residual, memory)
}

fn vector(result: dat_rsm::Result<()>, residual: usize, memory: &str) -> Outcome {
    Outcome::of_rsm(result)
        .fact(RESIDUAL, residual.to_string())
        .fact(MEMORY, memory)
}

pub(crate) fn chapter() -> Chapter<Scene> {
    Chapter {
        title: "Remote shared memory",
        introduction: "B exports a page of its memory as a segment. A imports it and transfers vectors of \
        entries; when a call returns, its data is visible at B. If a vector fails, the residual count is \
        the number of entries that are left, from the end.",
        scene: set,
        steps: [
            exporting(),
            importing(),
            vectors(),
            refusals(),
            signals(),
            barriers(),
            closing(),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}

fn exporting() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "B creates a segment from a page. It is not published, so no node can connect.",
            call: "rsm_memseg_export_create(controller, &segment, page, 4096, 0)",
            expected: Outcome::of_rsm(Ok(())),
            requirements: &["RSMEX-01"],
            run: |scene| {
                let result = scene.pair.engine(End::B).export_create(
                    scene.pair.controller(End::B),
                    scene.memory.region(),
                    ExportFlags::empty(),
                );
                Ok(kept(&mut scene.export, result))
            },
        },
        Step {
            shows: "B publishes it under an id: A is allowed to connect and read.",
            call: "rsm_memseg_export_publish(segment, &0x600000, {{A, 0400}}, 1)",
            expected: Outcome::of_rsm(Ok(())).fact("id", "0x600000"),
            requirements: &["RSMPB-01", "RSMPB-03"],
            run: |scene| {
                let (export, list) = (made("segment", scene.export)?, scene.publish(0o400));
                let engine = scene.pair.engine(End::B);
                let result = engine.export_publish(export, SEGMENT, &list);
                let id = result.unwrap_or(0);
                Ok(Outcome::of_rsm(result.map(|_| ())).fact("id", format!("{id:#x}")))
            },
        },
        Step {
            shows: "A requests write access, which the access list does not grant.",
            call: "rsm_memseg_import_connect(controller, B, 0x600000, RSM_PERM_RDWR, &import)",
            expected: Outcome::of_rsm(Err(RsmError::PermissionDenied)),
            requirements: &["RSMIM-01", "RSMIM-02"],
            run: |scene| {
                let result = scene.connect(Permission::all());
                Ok(kept(&mut scene.import, result))
            },
        },
        Step {
            shows: "B replaces the access list.",
            call: "rsm_memseg_export_republish(segment, {{A, 0600}}, 1)",
            expected: Outcome::of_rsm(Ok(())),
            requirements: &["RSMPB-10"],
            run: |scene| {
                let (export, list) = (made("segment", scene.export)?, scene.publish(0o600));
                let result = scene.pair.engine(End::B).export_republish(export, &list);
                Ok(Outcome::of_rsm(result))
            },
        },
    ]
}

fn importing() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "Now A connects, and learns the length of the segment.",
            call: "rsm_memseg_import_connect(controller, B, 0x600000, RSM_PERM_RDWR, &import)",
            expected: Outcome::of_rsm(Ok(())).fact("length", "4096"),
            requirements: &["RSMIM-02", "RSMIM-05"],
            run: |scene| {
                let result = scene.connect(Permission::all());
                let outcome = kept(&mut scene.import, result);
                let import = made("connection", scene.import)?;
                let length = scene.pair.engine(End::A).import_length(import);
                let length = length.during_rsm("asking for the length")?;
                Ok(outcome.fact("length", length.to_string()))
            },
        },
        Step {
            shows: "A creates a handle for local memory: vectors that use it need no registration.",
            call: "rsm_create_localmemory_handle(controller, &local, memory, 64)",
            expected: Outcome::of_rsm(Ok(())),
            requirements: &["RSMLH-01", "RSMLH-03"],
            run: |scene| {
                let result = scene.pair.engine(End::A).create_local_memory(
                    scene.pair.controller(End::A),
                    scene.local_memory.region(),
                    LocalAccess::ReadWrite,
                );
                Ok(kept(&mut scene.local, result))
            },
        },
    ]
}

fn vectors() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "A puts three entries in one call: from the handle, from a plain address, from the handle again.",
            call: "rsm_memseg_import_putv({{HANDLE local+7, 6 bytes to 7}, {VA \"shared \", 7 bytes to 0}, {HANDLE local+6, 1 byte to 13}})",
            expected: moved(0, "shared memory "),
            requirements: &["RSMPV-01", "RSMPV-11", "RSMPV-20", "RSMPV-30", "RSMPV-53"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let local = Source::Handle(made("handle", scene.local)?);
                let entries = [
                    PutEntry {
                        local,
                        local_offset: 7,
                        remote_offset: 7,
                        length: 6,
                    },
                    bytes(b"shared ", 0),
                    PutEntry {
                        local,
                        local_offset: 6,
                        remote_offset: 13,
                        length: 1,
                    },
                ];
                Ok(scene.moved(scene.put(import, &entries, VectorFlags::empty())))
            },
        },
        Step {
            shows: "A gets two entries: into a plain address, and into the handle's memory.",
            call: "rsm_memseg_import_getv({{VA address, 6 bytes from 7}, {HANDLE local+32, 6 bytes from 0}})",
            expected: moved(0, "shared memory ")
                .fact("at the address", "memory")
                .fact("in the handle's memory", "shared"),
            requirements: &["RSMPV-02", "RSMPV-11", "RSMPV-30"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let local = made("handle", scene.local)?;
                let mut plain = [0; 6];
                let mut entries = [
                    GetEntry {
                        local: Target::Bytes(&mut plain),
                        local_offset: 0,
                        remote_offset: 7,
                        length: 6,
                    },
                    GetEntry {
                        local: Target::Handle(local),
                        local_offset: 32,
                        remote_offset: 0,
                        length: 6,
                    },
                ];
                let result = scene.pair.engine(End::A).getv(
                    import,
                    &mut entries,
                    VectorFlags::empty(),
                    &mut scene.pair.wait(End::A),
                );
                let mut behind = [0; 6];
                scene.local_memory.load(32, &mut behind);
                Ok(scene
                    .moved(result)
                    .fact("at the address", String::from_utf8_lossy(&plain))
                    .fact("in the handle's memory", String::from_utf8_lossy(&behind)))
            },
        },
    ]
}

fn refusals() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "The second of three entries ends beyond the segment: the first is done, the others are \
            not begun, and no signal is sent. The error is found before the entry is posted, so the \
            connection survives.",
            call: "rsm_memseg_import_putv({{\"SHARED\" to 0}, {6 bytes to 4094}, {\"MEMORY\" to 7}}, RSM_IMPLICIT_SIGPOST)",
            expected: refused(RsmError::BadLength, 2, "SHARED memory ")
                .fact(CONNECTION, "connected"),
            requirements: &["RSMPV-50", "RSMPV-52", "RSMPV-56", "RSMPV-57", "RSMPV-E06"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let entries = [
                    bytes(b"SHARED", 0),
                    bytes(b"beyond", 4094),
                    bytes(b"MEMORY", 7),
                ];
                let result = scene.put(import, &entries, VectorFlags::IMPLICIT_SIGPOST);
                Ok(scene.moved(result).fact(CONNECTION, scene.connection()?))
            },
        },
        Step {
            shows: "B finds no signal.",
            call: "rsm_intr_signal_wait(segment, 0)",
            expected: Outcome::of_rsm(Err(RsmError::TimedOut)).fact(MEMORY, "SHARED memory "),
            requirements: &["RSMPV-71", "RSMSG-07"],
            run: |scene| scene.wait(),
        },
        Step {
            shows: "A puts the remaining entry.",
            call: "rsm_memseg_import_putv({{\"MEMORY\" to 7}})",
            expected: moved(0, "SHARED MEMORY "),
            requirements: &["RSMPV-60"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let entries = [bytes(b"MEMORY", 7)];
                Ok(scene.moved(scene.put(import, &entries, VectorFlags::empty())))
            },
        },
        Step {
            shows: "A read-only connection refuses a put; the other connection is not affected.",
            call: "rsm_memseg_import_connect(..., RSM_PERM_READ, &reader), rsm_memseg_import_putv({{\"shared\" to 0}})",
            expected: refused(RsmError::PermissionDenied, 1, "SHARED MEMORY ")
                .fact(CONNECTION, "connected"),
            requirements: &["RSMIM-03", "RSMPV-58", "RSMPV-81", "RSMPV-E07"],
            run: |scene| {
                let reader = scene.connect(Permission::READ);
                let reader = reader.during_rsm("rsm_memseg_import_connect")?;
                scene.reader = Some(reader);
                let entries = [bytes(b"shared", 0)];
                let result = scene.put(reader, &entries, VectorFlags::empty());
                Ok(scene.moved(result).fact(CONNECTION, scene.connection()?))
            },
        },
    ]
}

fn signals() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "One signal follows a whole vector.",
            call: "rsm_memseg_import_putv({{\"signal\" to 0}, {\" sent \" to 6}}, RSM_IMPLICIT_SIGPOST)",
            expected: moved(0, "signal sent  "),
            requirements: &["RSMPV-70", "RSMPV-72"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let entries = [bytes(b"signal", 0), bytes(b" sent  \0", 6)];
                let result = scene.put(import, &entries, VectorFlags::IMPLICIT_SIGPOST);
                Ok(scene.moved(result))
            },
        },
        Step {
            shows: "B waits for it and then sees all of the data.",
            call: "rsm_intr_signal_wait(segment, -1)",
            expected: Outcome::of_rsm(Ok(())).fact(MEMORY, "signal sent  "),
            requirements: &["RSMPV-72", "RSMSG-02", "RSMSG-05"],
            run: |scene| {
                let export = made("segment", scene.export)?;
                let wait = &mut scene.pair.wait(End::B);
                let result = scene.pair.engine(End::B).signal_wait(export, None, wait);
                Ok(Outcome::of_rsm(result).fact(MEMORY, text(scene.memory)))
            },
        },
        Step {
            shows: "It was one signal, not one per entry.",
            call: "rsm_intr_signal_wait(segment, 0)",
            expected: Outcome::of_rsm(Err(RsmError::TimedOut)).fact(MEMORY, "signal sent  "),
            requirements: &["RSMPV-70", "RSMSG-07"],
            run: |scene| scene.wait(),
        },
        Step {
            shows: "Signals that do not accumulate: of two, one is pending.",
            call: "rsm_memseg_import_putv(..., RSM_IMPLICIT_SIGPOST | RSM_SIGPOST_NO_ACCUMULATE), twice",
            expected: moved(0, "signal sent  ").fact("signals at B", "1"),
            requirements: &["RSMPV-73", "RSMSG-04"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let flags = VectorFlags::IMPLICIT_SIGPOST | VectorFlags::SIGPOST_NO_ACCUMULATE;
                let entries = [bytes(b"signal", 0)];
                let first = scene.put(import, &entries, flags);
                let result = first.and_then(|()| scene.put(import, &entries, flags));
                scene.pair.run_until_idle();
                let export = made("segment", scene.export)?;
                let mut signals = 0;
                while scene
                    .pair
                    .engine(End::B)
                    .signal_take(export)
                    .during_rsm("rsm_intr_signal_wait")?
                {
                    signals += 1;
                }
                Ok(scene
                    .moved(result)
                    .fact("signals at B", signals.to_string()))
            },
        },
    ]
}

fn barriers() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "A selects explicit mode: a barrier reports the completion of transfers.",
            call: "rsm_memseg_import_set_mode(import, RSM_BARRIER_MODE_EXPLICIT), rsm_memseg_import_init_barrier(import, RSM_BAR_DEFAULT, &barrier)",
            expected: Outcome::of_rsm(Ok(())).fact("mode", "explicit"),
            requirements: &["RSMMD-01", "RSMMD-03", "RSMBR-01"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let engine = scene.pair.engine(End::A);
                engine
                    .set_mode(import, BarrierMode::Explicit)
                    .during_rsm("rsm_memseg_import_set_mode")?;
                let barrier = engine.init_barrier(import, BarrierScope::default());
                let outcome = kept(&mut scene.barrier, barrier);
                let mode = match scene.pair.engine(End::A).mode(import) {
                    Ok(BarrierMode::Explicit) => "explicit",
                    Ok(BarrierMode::Implicit) => "implicit",
                    Err(_) => "none",
                };
                Ok(outcome.fact("mode", mode))
            },
        },
        Step {
            shows: "Closing a barrier that is not open is refused.",
            call: "rsm_memseg_import_close_barrier(&barrier)",
            expected: Outcome::of_rsm(Err(RsmError::BarrierNotOpened)),
            requirements: &["RSMBR-11"],
            run: |scene| {
                let barrier = made("barrier", scene.barrier)?;
                let wait = &mut scene.pair.wait(End::A);
                let result = scene.pair.engine(End::A).close_barrier(barrier, wait);
                Ok(Outcome::of_rsm(result))
            },
        },
        Step {
            shows: "Two puts between opening and closing the barrier: after the close, both are visible at B.",
            call: "rsm_memseg_import_open_barrier(&barrier), rsm_memseg_import_putv({{\"a span\" to 0}}), rsm_memseg_import_putv({{\" closed\" to 6}}), rsm_memseg_import_close_barrier(&barrier)",
            expected: moved(0, "a span closed"),
            requirements: &["RSMPV-40", "RSMBR-04", "RSMBR-05"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let barrier = made("barrier", scene.barrier)?;
                let engine = scene.pair.engine(End::A);
                engine
                    .open_barrier(barrier)
                    .during_rsm("rsm_memseg_import_open_barrier")?;
                for entry in [bytes(b"a span", 0), bytes(b" closed\0", 6)] {
                    scene
                        .put(import, &[entry], VectorFlags::empty())
                        .map_err(RsmError::from)
                        .during_rsm("rsm_memseg_import_putv")?;
                }
                let result = engine.close_barrier(barrier, &mut scene.pair.wait(End::A));
                let result = result.map_err(|error| VectorError {
                    error,
                    residual: 0,
                    count: 1,
                });
                Ok(scene.moved(result))
            },
        },
    ]
}

fn closing() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "B unpublishes the segment and revokes its keys.",
            call: "rsm_memseg_export_unpublish(segment)",
            expected: Outcome::of_rsm(Ok(())).fact(CONNECTION, "aborted"),
            requirements: &["RSMPB-20", "RSMST-03"],
            run: |scene| {
                let export = made("segment", scene.export)?;
                let wait = &mut scene.pair.wait(End::B);
                let result = scene.pair.engine(End::B).export_unpublish(export, wait);
                scene.pair.run_until_idle();
                Ok(Outcome::of_rsm(result).fact(CONNECTION, scene.connection()?))
            },
        },
        Step {
            shows: "From now on A's calls fail, and B's memory cannot be accessed.",
            call: "rsm_memseg_import_putv({{\"too late\" to 0}})",
            expected: refused(RsmError::ConnectionAborted, 1, "a span closed"),
            requirements: &["RSMPV-E09", "RSMST-01", "RSMST-03"],
            run: |scene| {
                let import = made("connection", scene.import)?;
                let entries = [bytes(b"too late", 0)];
                Ok(scene.moved(scene.put(import, &entries, VectorFlags::empty())))
            },
        },
        Step {
            shows: "Closing a barrier fails with the same error.",
            call: "rsm_memseg_import_open_barrier(&barrier), rsm_memseg_import_close_barrier(&barrier)",
            expected: Outcome::of_rsm(Err(RsmError::ConnectionAborted)),
            requirements: &["RSMBR-04", "RSMST-01"],
            run: |scene| {
                let barrier = made("barrier", scene.barrier)?;
                let engine = scene.pair.engine(End::A);
                engine
                    .open_barrier(barrier)
                    .during_rsm("rsm_memseg_import_open_barrier")?;
                let wait = &mut scene.pair.wait(End::A);
                Ok(Outcome::of_rsm(engine.close_barrier(barrier, wait)))
            },
        },
        Step {
            shows: "A frees all its objects, aborted or not.",
            call: "rsm_memseg_import_destroy_barrier(&barrier), rsm_memseg_import_disconnect(import), rsm_free_localmemory_handle(controller, local)",
            expected: Outcome::of_rsm(Ok(())),
            requirements: &["RSMBR-10", "RSMIM-11", "RSMLH-10"],
            run: |scene| {
                let engine = scene.pair.engine(End::A);
                let wait = &mut scene.pair.wait(End::A);
                engine
                    .destroy_barrier(made("barrier", scene.barrier)?)
                    .during_rsm("rsm_memseg_import_destroy_barrier")?;
                for import in [scene.import, scene.reader] {
                    engine
                        .import_disconnect(made("connection", import)?, wait)
                        .during_rsm("rsm_memseg_import_disconnect")?;
                }
                let local = made("handle", scene.local)?;
                let controller = scene.pair.controller(End::A);
                Ok(Outcome::of_rsm(
                    engine.free_local_memory(controller, local, wait),
                ))
            },
        },
        Step {
            shows: "B's page is no longer shared.",
            call: "rsm_memseg_export_destroy(segment)",
            expected: Outcome::of_rsm(Ok(())),
            requirements: &["RSMEX-10"],
            run: |scene| {
                let export = made("segment", scene.export)?;
                let wait = &mut scene.pair.wait(End::B);
                let result = scene.pair.engine(End::B).export_destroy(export, wait);
                Ok(Outcome::of_rsm(result))
            },
        },
    ]
}
