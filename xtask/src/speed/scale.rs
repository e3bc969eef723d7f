//! Instructions of calls beside few and beside many objects, counted with callgrind.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use xshell::Shell;

use crate::callgrind::{self, Dump};
use crate::workspace::Workspace;
use crate::{artifacts, packages};

/// The numbers of objects of a kind: few and many.
const NUMBERS: [usize; 2] = [100, 100_000];
/// The highest ratio of the instructions beside many objects to those beside few.
const MOST: f64 = 1.1;

/// The benchmark; it names each dump after its row.
const BENCHMARK: &str = "scale";
/// The reason of a dump that the program asked for; the number of calls and the row follow.
const REQUEST: &str = "Client Request: ";

/// The objects whose size in the core has a limit, and the limit in bytes.
const MEMORY: [(&str, u64); 2] = [("idle endpoint", 1024), ("region", 132)];

/// The rows, each of which must be measured.
const ROWS: &str = "\
ia_query|ep_create|ep_query|ep_free|evd_create|evd_query|evd_free|cno_create|cno_query
cno_free|pz_create|pz_query|pz_free|lmr_create|lmr_query|lmr_free|lmr_create, READS_AT_POST
lmr_free, READS_AT_POST|lmr_create after a post, READS_AT_POST
lmr_free after a post, READS_AT_POST|rmr_create|rmr_query|rmr_free|srq_create|srq_query
srq_free|ep_create_with_srq|ep_free with a shared queue|srq_query with endpoints
srq_resize to more|srq_resize to fewer|psp_create|psp_query|psp_free|rsp_create|rsp_query
rsp_free|ep_connect|progress with a connection request|cr_accept|cr_handoff
connect and accept, both sides and the mock|ep_disconnect, graceful
ep_disconnect, graceful, both sides and the mock
ep_disconnect, abrupt, both sides and the mock|ep_reset|post_rdma_write|post_recv|rmr_bind
message, both sides and the mock|evd_dequeue|evd_dequeue, empty|evd_post_se and evd_dequeue
evd_wait, pending|evd_wait, until a message has arrived|evd_wait_until, an event is ready
evd_wait_until, expired|progress, nothing to do|progress with a message
write by the local way, both sides|message by the local way, both sides|close, each object";

/// The instructions of a call, by row.
type Counts = BTreeMap<String, f64>;

/// The measurements beside one number of objects.
struct Measured {
    counts: Counts,
    /// The lines that the program wrote.
    output: String,
}

/// Counts; prints the tables, and returns them for a page.
///
/// # Errors
/// A call takes more beside many objects, or an object takes more memory than its limit.
///
/// The dumps stay in the folder `scale` of the build, where `callgrind_annotate` reads them.
pub(super) fn compare(workspace: &Workspace) -> Result<String> {
    packages::install_for(&workspace.shell, ["valgrind", packages::LIBCLANG])?;
    let program = build(workspace)?;
    let mut measured = Vec::new();
    for number in NUMBERS {
        println!("beside {number} objects of a kind:");
        let folder = workspace.target().join(BENCHMARK).join(number.to_string());
        measured.push(measure(&workspace.shell, &program, &folder, number)?);
    }
    let [few, many] = measured.as_slice() else {
        bail!("two measurements are compared");
    };
    let rows: Vec<&str> = ROWS.split(['\n', '|']).collect();
    let (calls, mut failures) = table(&few.counts, &many.counts, &rows);
    let (sizes, large) = memory(&many.output)?;
    failures.extend(large);
    print!("{calls}\n{sizes}");
    ensure!(
        failures.is_empty(),
        "calls depend on the number of objects, or an object is too large: {}",
        failures.join(", ")
    );
    Ok(format!("{}\n{sizes}", differing(&calls)))
}

/// Returns the rows whose ratio is not 1, and the number of the others.
fn differing(calls: &str) -> String {
    let (same, rows): (Vec<&str>, Vec<&str>) =
        calls.lines().partition(|row| row.ends_with("| 1.000 |"));
    format!(
        "{}\n\n{} other calls have a ratio of 1.000.\n",
        rows.join("\n"),
        same.len()
    )
}

/// Builds the benchmark; returns its program.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.current_dir(workspace.root());
    command.args(["bench", "--no-run", "--package", "dat-bench"]);
    command.args(["--features", BENCHMARK, "--bench", BENCHMARK]);
    artifacts::program(&artifacts::of(&mut command, "the benchmark")?, BENCHMARK)
}

/// Runs the program under callgrind, and reads its dumps.
fn measure(shell: &Shell, program: &Path, folder: &Path, number: usize) -> Result<Measured> {
    // Lists by size in place of the bins of the C library's heap: a search of the bins takes longer
    // beside many objects.
    let lists = "glibc.malloc.tcache_count=65535:glibc.malloc.tcache_max=65536";
    let _lists = shell.push_env("GLIBC_TUNABLES", lists);
    let options = ["--instr-atstart=no"];
    let number = number.to_string();
    let (output, dumps) = callgrind::run(shell, folder, &options, program, &[&number])?;
    let mut counts = Counts::new();
    for dump in dumps {
        if let Some((row, count)) = of_row(&dump)?
            && counts.insert(row.clone(), count).is_some()
        {
            bail!("two dumps have the name {row}");
        }
    }
    Ok(Measured { counts, output })
}

/// Reads row and instructions of a call from a dump.
///
/// `None` for a dump that the program did not ask for.
fn of_row(dump: &Dump) -> Result<Option<(String, f64)>> {
    let Some(name) = dump.reason.strip_prefix(REQUEST) else {
        return Ok(None);
    };
    let (calls, row) = name.split_once(' ').context("the dump names no row")?;
    let calls: u32 = calls.parse().with_context(|| name.to_owned())?;
    if calls == 0 {
        bail!("{row}: no call was counted");
    }
    let count = dump.instructions as f64 / f64::from(calls);
    Ok(Some((row.to_owned(), count)))
}

/// Compares the counts of the expected rows; returns a table, and the failures.
fn table(few: &Counts, many: &Counts, rows: &[&str]) -> (String, Vec<String>) {
    let [few_objects, many_objects] = NUMBERS;
    let mut table = format!(
        "| call | beside {few_objects} | beside {many_objects} | ratio |\n|---|---|---|---|\n"
    );
    let mut failures = Vec::new();
    for row in rows {
        let (Some(few), Some(many)) = (few.get(*row), many.get(*row)) else {
            failures.push(format!("{row} was not measured"));
            continue;
        };
        if *few < 1.0 || *many < 1.0 {
            failures.push(format!("{row} has no instructions"));
            continue;
        }
        let ratio = many / few;
        if ratio > MOST {
            failures.push(format!("{row} ({ratio:.3} of {MOST})"));
        }
        let _ = writeln!(table, "| {row} | {few:.0} | {many:.0} | {ratio:.3} |");
    }
    let is_unknown = |row: &&String| !rows.contains(&row.as_str());
    let unknown = few.keys().chain(many.keys()).filter(is_unknown);
    failures.extend(unknown.map(|row| format!("{row} is not an expected row")));
    (table, failures)
}

/// Compares the sizes that the program wrote with their limits; returns a table, and the failures.
fn memory(output: &str) -> Result<(String, Vec<String>)> {
    let mut table = "| object in the core | bytes | at most |\n|---|---|---|\n".to_owned();
    let mut failures = Vec::new();
    for (object, most) in MEMORY {
        let found = output.lines().find_map(|line| {
            let (bytes, name) = line.strip_prefix("memory ")?.split_once(' ')?;
            name.starts_with(object).then_some((bytes, name))
        });
        let (bytes, name) = found.with_context(|| format!("no size of {object}"))?;
        let bytes: u64 = bytes.parse().with_context(|| bytes.to_owned())?;
        if bytes == 0 || bytes > most {
            failures.push(format!("{name} ({bytes} bytes of {most})"));
        }
        let _ = writeln!(table, "| {name} | {bytes} | {most} |");
    }
    Ok((table, failures))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(reason: &str) -> Dump {
        Dump {
            part: 1,
            reason: reason.to_owned(),
            instructions: 328,
            text: String::new(),
        }
    }

    fn counts(rows: &[(&str, f64)]) -> Counts {
        let rows = rows.iter();
        rows.map(|(row, count)| ((*row).to_owned(), *count))
            .collect()
    }

    #[test]
    fn a_dump_has_row_and_calls() {
        let read = |reason| of_row(&dump(reason));
        let expected = ("evd_wait_until, expired".to_owned(), 20.5);
        let row = read("Client Request: 16 evd_wait_until, expired");
        assert_eq!(row.expect("a row"), Some(expected));
        assert_eq!(read("Program termination").expect("another dump"), None);
    }

    #[test]
    fn a_dump_without_row_or_calls_is_refused() {
        for name in ["0 evd_wait_until", "evd_wait_until, expired", "16"] {
            assert!(
                of_row(&dump(&format!("{REQUEST}{name}"))).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_ratio_above_the_limit_is_named() {
        let few = counts(&[("post", 100.0), ("free", 50.0)]);
        let rows = ["post", "free"];
        let (text, failures) = table(&few, &counts(&[("post", 110.0), ("free", 40.0)]), &rows);
        assert!(failures.is_empty(), "{failures:?}");
        assert!(text.contains("| post | 100 | 110 | 1.100 |"), "{text}");
        let (text, _) = table(&few, &counts(&[("post", 110.0), ("free", 50.0)]), &rows);
        let text = differing(&text);
        assert!(
            text.ends_with("| 1.100 |\n\n1 other calls have a ratio of 1.000.\n"),
            "{text}"
        );
        let (_, failures) = table(&few, &counts(&[("post", 110.2), ("free", 50.0)]), &rows);
        assert_eq!(failures, ["post (1.102 of 1.1)"]);
    }

    #[test]
    fn a_row_is_neither_missing_nor_empty_nor_new() {
        let all = counts(&[("post", 100.0), ("free", 50.0)]);
        let rows = ["post", "free"];
        let failures = |few: &Counts, many: &Counts| table(few, many, &rows).1;
        assert!(failures(&all, &all).is_empty());
        let one = counts(&[("post", 100.0)]);
        assert_eq!(failures(&one, &all), ["free was not measured"]);
        assert_eq!(failures(&all, &one), ["free was not measured"]);
        for count in [0.0, 0.5] {
            let empty = counts(&[("post", 100.0), ("free", count)]);
            assert_eq!(failures(&empty, &all), ["free has no instructions"]);
            assert_eq!(failures(&all, &empty), ["free has no instructions"]);
        }
        let more = counts(&[("post", 100.0), ("free", 50.0), ("new", 9.0)]);
        assert_eq!(failures(&all, &more), ["new is not an expected row"]);
        assert_eq!(failures(&Counts::new(), &Counts::new()).len(), 2);
    }

    #[test]
    fn sizes_have_limits() {
        let lines = |endpoint, region| {
            format!("memory {endpoint} idle endpoint: slot 9\nmemory {region} region: slot 9\n")
        };
        let (text, failures) = memory(&lines(1024, 132)).expect("sizes");
        assert!(failures.is_empty(), "{failures:?}");
        assert!(text.contains("| region: slot 9 | 132 | 132 |"), "{text}");
        let (_, failures) = memory(&lines(1025, 133)).expect("sizes");
        assert_eq!(failures.len(), 2);
        assert_eq!(failures[1], "region: slot 9 (133 bytes of 132)");
        assert_eq!(memory(&lines(0, 0)).expect("sizes").1.len(), 2);
        assert!(memory("memory 128 region\n").is_err());
        assert!(memory("memory many idle endpoint\nmemory 1 region\n").is_err());
    }
}
