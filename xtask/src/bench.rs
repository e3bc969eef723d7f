//! Instruction counts of the hot paths against those that landed.

pub(crate) mod layer;
pub(crate) mod local;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use crate::callgrind::{self, Dump};
use crate::workspace::Workspace;
use crate::{artifacts, packages};

const PACKAGE: &str = "dat-bench";
/// Programs and files of the system that the counts need.
///
/// The headers and libclang are for the verbs backend; the headers of DAT for the program in C.
const NEEDED: [&str; 6] = [
    "valgrind",
    "pkg-config",
    packages::LIBCLANG,
    "/usr/include/infiniband/verbs.h",
    "/usr/include/rdma/rdma_cma.h",
    "/usr/include/dat2/udat.h",
];

/// The programs that count calls, by the features of their build.
///
/// The verbs backend enables `std` in the core, which adds some instructions to each call: the
/// tables of objects grow.
const BUILDS: [(&[&str], &[&str]); 2] = [
    (&["paths", "mmio"], &[]),
    (&["verbs"], &["--features", "verbs"]),
];
/// The options that let callgrind count while a function of a module `counted` runs, and write a
/// dump when it returns.
///
/// Of several options with the same pattern callgrind takes only one.
const COUNTED: [&str; 2] = ["--toggle-collect=*::counted::*", "--dump-after=*counted::*"];

/// The share of a recorded count by which a count may exceed it, for other compilers.
const TOLERANCE: f64 = 0.02;

/// Instructions by the name of the count.
type Counts = BTreeMap<String, f64>;

/// Counts all paths, prints the table, and fails if a path takes more than its recorded count.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    packages::install_for(&workspace.shell, NEEDED)?;
    let budgets = Budgets::read(workspace)?;
    let mut counts = count(workspace)?;
    counts.extend(layer::count(workspace)?);
    counts.extend(local::count(workspace)?);
    let rows = rows(&budgets, &counts)?;
    print!("{}", table(&rows));
    let above: Vec<String> = rows.iter().filter_map(Row::above).collect();
    ensure!(
        above.is_empty(),
        "instruction counts above the recorded ones: {}",
        above.join("; ")
    );
    Ok(())
}

/// Builds the programs and runs them under callgrind.
///
/// The dumps stay in the folder `counts` of the build.
fn count(workspace: &Workspace) -> Result<Counts> {
    let mut counts = Counts::new();
    for (programs, features) in BUILDS {
        let mut command = Command::new("cargo");
        command.current_dir(workspace.root());
        command.args(["bench", "--no-run", "--package", PACKAGE]);
        command.args(features);
        command.args(programs.iter().flat_map(|program| ["--bench", program]));
        let built = artifacts::of(&mut command, "the benchmarks")?;
        for name in programs {
            let program = artifacts::program(&built, name)?;
            let folder = workspace.target().join("counts").join(name);
            let (output, dumps) =
                callgrind::run(&workspace.shell, &folder, &COUNTED, &program, &[])?;
            for (name, count) in named(&output, &dumps)? {
                ensure!(
                    counts.insert(name.to_owned(), count).is_none(),
                    "two counts have the name {name}"
                );
            }
        }
    }
    Ok(counts)
}

/// Returns the name and the instructions of each count.
///
/// A program prints the name of a count before it makes the counted call.
fn named<'a>(output: &'a str, dumps: &[Dump]) -> Result<Vec<(&'a str, f64)>> {
    // Another dump is written when the program ends.
    let dumps = dumps.iter();
    let dumps = dumps.filter(|dump| dump.reason.starts_with("--dump-after="));
    let counts: Vec<f64> = dumps.map(|dump| dump.instructions as f64).collect();
    let names: Vec<&str> = output.lines().collect();
    ensure!(
        names.len() == counts.len(),
        "{} counts were announced and {} made",
        names.len(),
        counts.len()
    );
    Ok(names.into_iter().zip(counts).collect())
}

/// The content of `budgets.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budgets {
    path: BTreeMap<String, Budget>,
}

/// The measurement of a path, and what it may take.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// The name of the count.
    bench: String,
    /// A count that is subtracted, to leave out work outside the path.
    minus: Option<String>,
    /// A count of the arguments' cost in the caller of `bench`; subtracted too.
    ///
    /// Only needed if `minus` does not contain that cost.
    caller: Option<String>,
    /// A count of the arguments' cost in the caller of `minus`; added back.
    minus_caller: Option<String>,
    /// The number of runs of the path in `bench` beyond those in `minus`.
    #[serde(default = "once")]
    per: u64,
    /// The instructions of one run when the path last changed.
    landed: u64,
    /// The instructions that one run is designed for.
    goal: Option<u64>,
    /// The instructions that other implementations need for the same work.
    reference: String,
}

fn once() -> u64 {
    1
}

impl Budgets {
    /// Reads the file beside the manifest of the benchmarks.
    fn read(workspace: &Workspace) -> Result<Self> {
        let package = workspace.package(PACKAGE)?;
        let file = package.manifest_path.with_file_name("budgets.toml");
        workspace.read_toml(file.as_str())
    }
}

/// A measured path.
struct Row<'a> {
    path: &'a str,
    count: f64,
    budget: &'a Budget,
}

impl Row<'_> {
    /// Names the path if it takes more than its recorded count allows.
    fn above(&self) -> Option<String> {
        let (path, count, landed) = (self.path, self.count, self.budget.landed);
        let most = landed as f64 * (1.0 + TOLERANCE);
        (count > most).then(|| format!("{path}: {count:.1}, landed {landed}"))
    }

    /// Returns the value to record if the path takes clearly less than its recorded count.
    fn lower(&self) -> Option<u64> {
        let least = self.budget.landed as f64 * (1.0 - TOLERANCE);
        let count = self.count.ceil();
        (count < least).then_some(count as u64)
    }
}

/// Returns the measured paths, in the order of their names.
fn rows<'a>(budgets: &'a Budgets, counts: &Counts) -> Result<Vec<Row<'a>>> {
    let mut unused: BTreeSet<&String> = counts.keys().collect();
    let mut rows = Vec::new();
    for (path, budget) in &budgets.path {
        let mut counted = |name: &String| {
            unused.remove(name);
            let count = counts.get(name).copied();
            count.with_context(|| format!("{path}: {name} was not counted"))
        };
        let total = counted(&budget.bench)?;
        let mut maybe = |name: &Option<String>| name.as_ref().map_or(Ok(0.0), &mut counted);
        let rest = maybe(&budget.minus)? + maybe(&budget.caller)?;
        let beyond = maybe(&budget.minus_caller)?;
        let count = (total + beyond - rest) / budget.per as f64;
        ensure!(
            count.is_finite() && count > 0.0,
            "{path}: invalid count: ({total} + {beyond} - {rest}) instructions / {} runs",
            budget.per
        );
        rows.push(Row {
            path,
            count,
            budget,
        });
    }
    if let Some(name) = unused.first() {
        bail!("no path uses the count {name}");
    }
    ensure!(!rows.is_empty(), "no path was found");
    Ok(rows)
}

/// Returns the table for a terminal; its last lines are the summary.
fn table(rows: &[Row<'_>]) -> String {
    let width = rows.iter().map(|row| row.path.len()).max().unwrap_or(0);
    let mut table = format!(
        "{:width$}  {:>9}  {:>7}  {:>5}  reference\n",
        "path", "count", "landed", "goal"
    );
    for row in rows {
        let Budget {
            landed,
            goal,
            reference,
            ..
        } = row.budget;
        let goal = goal.map_or("-".to_owned(), |goal| goal.to_string());
        let (path, count) = (row.path, row.count);
        let _ = writeln!(
            table,
            "{path:width$}  {count:>9.1}  {landed:>7}  {goal:>5}  {reference}"
        );
    }
    for row in rows {
        if let Some(count) = row.lower() {
            let _ = writeln!(table, "{}: lower `landed` to {count}", row.path);
        }
    }
    let above = rows.iter().filter(|row| row.above().is_some()).count();
    let _ = writeln!(
        table,
        "{} paths counted, {above} more than {} % above `landed`",
        rows.len(),
        TOLERANCE * 100.0
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TWO: &str = r#"
        [path.post]
        bench = "post:one"
        minus = "post:none"
        per = 10
        landed = 100
        goal = 90
        reference = "165"
        [path.empty]
        bench = "empty"
        landed = 40
        reference = "154"
    "#;

    fn budgets() -> Budgets {
        toml::from_str(TWO).expect("budgets")
    }

    fn counts(counts: &[(&str, f64)]) -> Counts {
        let counts = counts.iter();
        counts
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    /// The paths above their recorded counts, and the last lines of the table.
    fn judged(post: f64) -> (Vec<String>, Vec<String>) {
        let counts = counts(&[("post:one", post), ("post:none", 100.0), ("empty", 40.0)]);
        let budgets = budgets();
        let rows = rows(&budgets, &counts).expect("rows");
        let summary = table(&rows).lines().skip(3).map(str::to_owned).collect();
        (rows.iter().filter_map(Row::above).collect(), summary)
    }

    #[test]
    fn two_percent_above_the_recorded_count_are_allowed() {
        for count in [1080.0, 1100.0, 1120.0] {
            let (above, summary) = judged(count);
            assert_eq!(above, [""; 0]);
            assert_eq!(summary, ["2 paths counted, 0 more than 2 % above `landed`"]);
        }
        let (above, summary) = judged(1121.0);
        assert_eq!(above, ["post: 102.1, landed 100"]);
        assert_eq!(summary, ["2 paths counted, 1 more than 2 % above `landed`"]);
    }

    #[test]
    fn a_count_that_can_be_lowered_is_told() {
        let (above, summary) = judged(1079.0);
        assert_eq!(above, [""; 0]);
        // 97.9 instructions would not stay within 97.
        assert_eq!(summary.len(), 1);
        let (above, summary) = judged(1070.0);
        assert_eq!(above, [""; 0]);
        assert_eq!(summary[0], "post: lower `landed` to 97");
    }

    #[test]
    fn goals_and_references_are_in_the_table() {
        let counts = counts(&[("post:one", 1100.0), ("post:none", 100.0), ("empty", 40.0)]);
        let budgets = budgets();
        let table = table(&rows(&budgets, &counts).expect("rows"));
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let mut lines = table.lines().map(words);
        assert_eq!(lines.next().expect("a head").len(), 5);
        assert_eq!(
            lines.next().expect("empty"),
            ["empty", "40.0", "40", "-", "154"]
        );
        assert_eq!(
            lines.next().expect("post"),
            ["post", "100.0", "100", "90", "165"]
        );
    }

    #[test]
    fn the_counts_of_a_program_have_its_names() {
        let dump = |reason: &str, instructions| Dump {
            part: 1,
            reason: reason.to_owned(),
            instructions,
            text: String::new(),
        };
        let mut dumps = vec![
            dump("--dump-after=paths::counted::write", 156),
            dump("--dump-after=paths::counted::write", 212),
            dump("Program termination", 0),
        ];
        let counts = named("write:one\nwrite:two\n", &dumps).expect("counts");
        assert_eq!(counts, [("write:one", 156.0), ("write:two", 212.0)]);
        // Callgrind took the function for another one.
        dumps.remove(1);
        assert!(named("write:one\nwrite:two\n", &dumps).is_err());
    }

    #[test]
    fn paths_and_counts_must_match() {
        let budgets = budgets();
        let names = |names: &[(&str, f64)]| rows(&budgets, &counts(names)).map(|rows| rows.len());
        let all = [("post:one", 11.0), ("post:none", 1.0), ("empty", 1.0)];
        assert_eq!(names(&all).expect("rows"), 2);
        assert!(names(&all[..2]).is_err());
        assert!(names(&[&all[..], &[("new", 1.0)]].concat()).is_err());
        for nothing in [1.0, 2.0] {
            let all = [("post:one", 1.0), ("post:none", nothing), ("empty", 1.0)];
            assert!(names(&all).is_err(), "{nothing}");
        }
    }

    #[test]
    fn the_page_has_the_recorded_counts() {
        let workspace = Workspace::load().expect("workspace");
        let page = workspace.root().join("docs/performance.md");
        let page = fs::read_to_string(page).expect("the page");
        for (path, budget) in Budgets::read(&workspace).expect("budgets").path {
            let Budget {
                landed, reference, ..
            } = budget;
            let row = format!("\n| {path} | {landed} | {reference} |\n");
            assert!(
                page.contains(&row),
                "docs/performance.md needs the line{row}"
            );
        }
    }
}
