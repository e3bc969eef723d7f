//! Remote shared memory: a segment from its export to its revocation.

use std::time::Duration;

use dat_host::rsm::{AccessEntry, Export, Get, Moved, Node, Permission, Put, VectorFlags};
use dat_host::{Network, Pages, Result};

use super::record::{Outcome, Tour};
use super::stage::text;

/// The id under which the segment is published.
const SEGMENT: u32 = 0x60_0000;
const NONE: VectorFlags = VectorFlags::empty();

/// Returns the outcome of a call.
fn of<T>(result: Result<T>) -> Result<Outcome> {
    match result {
        Ok(_) => Ok(Outcome::returns("RSM_SUCCESS", None)),
        Err(error) => match error.rsm() {
            Some(code) => Ok(Outcome::returns(code.name(), Some(error.to_string()))),
            None => Err(error),
        },
    }
}

/// Returns the outcome of a vector, with the residual count and the text in B's memory.
fn moved<E>(export: &Export<Pages>, result: Moved<E>) -> Result<Outcome> {
    let residual = result
        .as_ref()
        .err()
        .map_or(0, |failed| failed.error.residual);
    let mut bytes = [0; 32];
    export.load(0, &mut bytes)?;
    let outcome = of(result.map_err(Into::into))?;
    let outcome = outcome.fact("residual count", &residual.to_string());
    Ok(outcome.fact("B reads", &text(&bytes)))
}

fn put<M>(memory: M, offset: u64) -> Put<M> {
    Put { memory, offset }
}

#[expect(
    clippy::too_many_lines,
    reason = "a scene of calls, one after the other"
)]
pub(super) fn play(tour: &mut Tour<'_>) -> Result<()> {
    tour.chapter(
        "Remote shared memory",
        "B exports a page of its memory as a segment. A imports it and transfers vectors of entries; when a \
        call returns, its data is visible at B. If a vector fails, the residual count is the number of \
        entries that are left, from the end. In Rust: the module `rsm` of dat-host.",
    );
    let network = Network::new(Network::options());
    let node = |number| {
        // On a busy host, an answer may take long.
        let node = Node::new(number).connect_timeout(Duration::from_secs(60));
        node.network(&network)
    };
    let b = node(2).listen(7174).peer(1, "A:0").open("mock://B")?;
    let a = node(1).peer(2, "B:7174").open("mock://A")?;
    let export = b.export(Pages::anonymous(4096)?)?;
    let (node, permission) = (1, 0o600);
    let id = export.publish(SEGMENT, &[AccessEntry { node, permission }])?;
    let import = a.import(2, id, Permission::all()).wait()?;
    let length = import.length()?.to_string();
    tour.step(
        "B publishes its segment under an id; A connects to it, and learns its length.",
        "rsm_memseg_export_publish(segment, &0x600000, {{A, 0600}}, 1), \
        rsm_memseg_import_connect(controller, B, 0x600000, RSM_PERM_RDWR, &import)",
        "RSMPB-01 RSMPB-03 RSMIM-02 RSMIM-05",
        "RSM_SUCCESS | id: 0x600000 | length: 4096",
        of(Ok(()))?
            .fact("id", &format!("{id:#x}"))
            .fact("length", &length),
    );
    let local = a.local_memory(b"remote memory".to_vec())?;
    let (begin, end) = (local.slice(0..7)?, local.slice(7..13)?);
    tour.step(
        "A creates a handle for local memory, and puts two entries from it in one call.",
        "rsm_create_localmemory_handle(controller, &local, memory, 13), \
        rsm_memseg_import_putv({{HANDLE local+7, 6 bytes to 7}, {HANDLE local+0, 7 bytes to 0}})",
        "RSMLH-01 RSMLH-03 RSMPV-01 RSMPV-11 RSMPV-20 RSMPV-30 RSMPV-53",
        "RSM_SUCCESS | residual count: 0 | B reads: remote memory",
        moved(
            &export,
            import.putv(vec![put(end, 7), put(begin, 0)], NONE).wait(),
        )?,
    );
    let memory = [0; 6];
    let gets = [7, 0].map(|offset| Get { memory, offset });
    let gets = import.getv(gets.into(), NONE).wait()?;
    let texts: Vec<String> = gets.iter().map(|get| text(&get.memory)).collect();
    tour.step(
        "A gets two entries into plain memory.",
        "rsm_memseg_import_getv({{VA first, 6 bytes from 7}, {VA second, 6 bytes from 0}})",
        "RSMPV-02 RSMPV-11 RSMPV-30",
        "RSM_SUCCESS | residual count: 0 | B reads: remote memory | A got: memory remote",
        moved(&export, Ok(gets))?.fact("A got", &texts.join(" ")),
    );
    let puts = vec![put("REMOTE", 0), put("beyond", 4094), put("MEMORY", 7)];
    tour.step(
        "The second of three entries ends beyond the segment: the first is done, the others are not begun.",
        "rsm_memseg_import_putv({{\"REMOTE\" to 0}, {6 bytes to 4094}, {\"MEMORY\" to 7}})",
        "RSMPV-50 RSMPV-52 RSMPV-56 RSMPV-57 RSMPV-E06",
        "RSMERR_BAD_LENGTH | residual count: 2 | B reads: REMOTE memory",
        moved(&export, import.putv(puts, NONE).wait())?,
    );
    local.free().wait()?;
    tour.step(
        "The handle of an entry must not be freed.",
        "rsm_free_localmemory_handle(controller, local), rsm_memseg_import_putv({{HANDLE local+0, 7 bytes to 0}})",
        "RSMLH-10 RSMPV-58 RSMPV-E01",
        "RSMERR_BAD_SGIO | residual count: 1 | B reads: REMOTE memory",
        moved(&export, import.putv(vec![put(begin, 0)], NONE).wait())?,
    );
    let reader = a.import(2, SEGMENT, Permission::READ).wait()?;
    tour.step(
        "A read-only connection refuses a put.",
        "rsm_memseg_import_connect(..., RSM_PERM_READ, &reader), rsm_memseg_import_putv(reader, {{\"remote\" to 0}})",
        "RSMIM-03 RSMPV-58 RSMPV-81 RSMPV-E07",
        "RSMERR_PERM_DENIED | residual count: 1 | B reads: REMOTE memory",
        moved(&export, reader.putv(vec![put("remote", 0)], NONE).wait())?,
    );
    export.unpublish().wait()?;
    tour.step(
        "B unpublishes the segment and revokes its keys: A's calls fail, and B's memory cannot be accessed.",
        "rsm_memseg_export_unpublish(segment), rsm_memseg_import_putv({{\"late\" to 0}})",
        "RSMPB-20 RSMPV-E09 RSMST-01 RSMST-03",
        "RSMERR_CONN_ABORTED | residual count: 1 | B reads: REMOTE memory",
        moved(&export, import.putv(vec![put("late", 0)], NONE).wait())?,
    );
    Ok(())
}
