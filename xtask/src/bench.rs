//! Instruction counts of the hot paths against their budgets.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use xshell::cmd;

use crate::tools;
use crate::workspace::Workspace;

const PACKAGE: &str = "dat-bench";

/// The benchmarks and their features; each is built separately, so that none affects another.
const BENCHMARKS: &[(&str, &[&str])] = &[
    ("paths", &[]),
    ("mmio", &[]),
    // The verbs backend, which needs the headers of libibverbs and librdmacm.
    ("verbs", &["--features", "verbs"]),
];

/// The limits for the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// The budgets: the intended cost of the paths.
    Budget,
    /// The recorded cost of a path above its budget, plus 5 %; else the budget.
    ///
    /// The 5 % allow for other compilers.
    ///
    /// A path therefore does not get worse unnoticed on its way to the budget.
    Landed,
}

/// Runs the benchmarks, prints the table and fails if a path is above its limit.
///
/// The limits are in `budgets.toml` in the folder of the benchmarks' manifest.
pub(crate) fn run(workspace: &Workspace, against: Against) -> Result<()> {
    let (budgets, counts) = measure(workspace)?;
    let report = Report::new(&budgets, &counts)?;
    print!("{}", report.table());
    let above = report.above(against);
    match against {
        _ if above.is_empty() => Ok(()),
        Against::Budget => bail!("instruction counts above budget"),
        Against::Landed => bail!(
            "instruction counts above the recorded ones (`landed`): {}",
            above.join(", ")
        ),
    }
}

/// Runs the benchmarks; returns the table for a page, and the paths above their budget.
pub(crate) fn page(workspace: &Workspace) -> Result<(String, Vec<String>)> {
    let (budgets, counts) = measure(workspace)?;
    let report = Report::new(&budgets, &counts)?;
    let above = report.above(Against::Budget);
    Ok((
        report.markdown(),
        above.into_iter().map(str::to_owned).collect(),
    ))
}

/// Runs the benchmarks; returns the budgets, and the count of each benchmark.
fn measure(workspace: &Workspace) -> Result<(Budgets, BTreeMap<String, u64>)> {
    let package = workspace
        .member(PACKAGE)
        .with_context(|| format!("the workspace has no package {PACKAGE}"))?;
    let runner = tools::COUNT.install(workspace)?;
    let file = package.manifest_path.with_file_name("budgets.toml");
    let text = workspace.shell.read_file(&file)?;
    let budgets: Budgets = toml::from_str(&text).with_context(|| format!("{file}"))?;

    let shell = &workspace.shell;
    let _runner = shell.push_env("GUNGRAUN_RUNNER", &runner);
    let _format = shell.push_env("GUNGRAUN_OUTPUT_FORMAT", "json");
    let mut output = String::new();
    for &(name, features) in BENCHMARKS {
        let lines = cmd!(
            shell,
            "cargo bench --quiet --package {PACKAGE} {features...} --bench {name}"
        );
        output.push_str(&lines.read()?);
        output.push('\n');
    }
    let counts = counts(&output)?;
    Ok((budgets, counts))
}

/// The content of `budgets.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budgets {
    path: BTreeMap<String, Budget>,
}

/// The measurement of a path, and its limits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// The benchmark: the name of its function, with a colon and its id, if any.
    bench: String,
    /// A benchmark whose count is subtracted, to leave out work outside the path.
    minus: Option<String>,
    /// A benchmark of the arguments' cost in the caller of `bench`; subtracted too.
    ///
    /// Only needed if `minus` does not contain that cost.
    caller: Option<String>,
    /// A benchmark of the arguments' cost in the caller of `minus`; added back.
    minus_caller: Option<String>,
    /// The number of runs of the path in `bench` beyond those in `minus`.
    #[serde(default = "once")]
    per: u64,
    /// The most instructions that one run of the path may take.
    budget: u64,
    /// The recorded instructions of one run, while they are above the budget.
    landed: Option<u64>,
    /// The instructions that other implementations need for the same work.
    reference: String,
}

impl Budget {
    fn limit(&self, against: Against) -> f64 {
        match (against, self.landed) {
            (Against::Landed, Some(landed)) => landed as f64 * 1.05,
            _ => self.budget as f64,
        }
    }
}

fn once() -> u64 {
    1
}

/// The supported version of the runner's output, as gungraun 0.20 writes it.
const SCHEMA: &str = "7";

/// The part of every output line of the benchmark runner that all versions share.
#[derive(Deserialize)]
struct Header {
    version: String,
}

/// One line of the benchmark runner's output.
#[derive(Deserialize)]
struct Summary {
    function_name: String,
    id: Option<String>,
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    tool: String,
    data: ProfileData,
}

#[derive(Deserialize)]
struct ProfileData {
    total: Total,
}

#[derive(Deserialize)]
struct Total {
    metrics: BTreeMap<String, Metric>,
}

#[derive(Deserialize)]
struct Metric {
    values: Values,
}

#[derive(Deserialize)]
struct Values {
    new: Option<serde_json::Number>,
}

/// Reads the instruction count of each benchmark from the runner's lines of JSON.
fn counts(output: &str) -> Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let header: Header =
            serde_json::from_str(line).context("output of the benchmark runner")?;
        if header.version != SCHEMA {
            bail!(
                "the output of the benchmark runner has version {}, expected {SCHEMA}",
                header.version
            );
        }
        let summary: Summary =
            serde_json::from_str(line).context("output of the benchmark runner")?;
        let name = match summary.id {
            Some(id) => format!("{}:{id}", summary.function_name),
            None => summary.function_name,
        };
        let count = summary
            .profiles
            .iter()
            .find(|profile| profile.tool == "Callgrind")
            .and_then(|profile| profile.data.total.metrics.get("Ir"))
            .and_then(|metric| metric.values.new.as_ref())
            .and_then(serde_json::Number::as_u64)
            .with_context(|| format!("the runner reports no instruction count for {name}"))?;
        if counts.insert(name.clone(), count).is_some() {
            bail!("two benchmarks have the name {name}");
        }
    }
    Ok(counts)
}

/// The measured paths, in the order of their names.
struct Report<'a> {
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    path: &'a str,
    count: f64,
    budget: &'a Budget,
}

impl<'a> Report<'a> {
    fn new(budgets: &'a Budgets, counts: &BTreeMap<String, u64>) -> Result<Self> {
        let mut unused: BTreeSet<&String> = counts.keys().collect();
        let mut rows = Vec::new();
        for (path, budget) in &budgets.path {
            let mut measured = |name: &String| {
                unused.remove(name);
                counts
                    .get(name)
                    .copied()
                    .with_context(|| format!("{path}: the benchmark {name} did not run"))
            };
            let total = measured(&budget.bench)?;
            let mut maybe = |name: &Option<String>| name.as_ref().map_or(Ok(0), &mut measured);
            let rest = maybe(&budget.minus)? + maybe(&budget.caller)?;
            let beyond = maybe(&budget.minus_caller)?;
            let own = (total + beyond).checked_sub(rest);
            let Some(own) = own.filter(|_| budget.per > 0) else {
                bail!(
                    "{path}: invalid count: ({total} + {beyond} - {rest}) instructions / {} runs",
                    budget.per
                );
            };
            rows.push(Row {
                path,
                count: own as f64 / budget.per as f64,
                budget,
            });
        }
        if let Some(name) = unused.first() {
            bail!("benchmark {name} has no budget");
        }
        if rows.is_empty() {
            bail!("no path with a budget was found");
        }
        Ok(Self { rows })
    }

    fn above(&self, against: Against) -> Vec<&str> {
        let above = self
            .rows
            .iter()
            .filter(|row| row.count > row.budget.limit(against));
        above.map(|row| row.path).collect()
    }

    /// Returns the table in Markdown.
    fn markdown(&self) -> String {
        let mut table = "| path | instructions | budget | others |\n|---|---|---|---|\n".to_owned();
        for row in &self.rows {
            let _ = writeln!(
                table,
                "| {} | {:.0} | {} | {} |",
                row.path, row.count, row.budget.budget, row.budget.reference
            );
        }
        table
    }

    /// Returns the table for a terminal; its last line is the summary.
    fn table(&self) -> String {
        let width = self
            .rows
            .iter()
            .map(|row| row.path.len())
            .max()
            .unwrap_or(0)
            .max("path".len());
        let mut table = format!(
            "{:width$}  {:>9}  {:>7}  reference\n",
            "path", "count", "budget"
        );
        for Row {
            path,
            count,
            budget,
        } in &self.rows
        {
            let _ = writeln!(
                table,
                "{path:width$}  {count:>9.1}  {:>7}  {}",
                budget.budget, budget.reference
            );
        }
        let measured = self.rows.len();
        let above = self.above(Against::Budget);
        let _ = if above.is_empty() {
            writeln!(table, "{measured} paths measured, all within budget")
        } else {
            writeln!(
                table,
                "{measured} paths measured, above budget: {}",
                above.join(", ")
            )
        };
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(function: &str, id: &str, count: u64) -> String {
        format!(
            r#"{{"version":"7","function_name":"{function}","id":{id},"kind":"LibraryBenchmark","profiles":[{{"tool":"Callgrind",
            "data":{{"parts":[],"total":{{"metrics":{{"Ir":{{"values":{{"new":{count},"old":9}}}},
            "L1HitRate":{{"values":{{"new":98.5}}}}}}}}}}}}]}}"#
        )
        .replace('\n', " ")
    }

    fn budgets(text: &str) -> Budgets {
        toml::from_str(text).expect("budgets")
    }

    const TWO: &str = r#"
        [path.post]
        bench = "post:one"
        minus = "post:none"
        per = 10
        budget = 120
        reference = "165"
        [path.empty]
        bench = "empty"
        budget = 40
        reference = "154"
    "#;

    #[test]
    fn counts_are_read_and_other_lines_skipped() {
        let output = format!(
            "running 0 tests\n\n{}\n{}\n",
            line("post", "\"one\"", 7),
            line("empty", "null", 5)
        );
        let counts = counts(&output).expect("counts");
        assert_eq!(
            counts.into_iter().collect::<Vec<_>>(),
            [("empty".into(), 5), ("post:one".into(), 7)]
        );
    }

    #[test]
    fn a_benchmark_without_a_count_is_refused() {
        let output = line("post", "null", 7).replace("\"Ir\"", "\"Dr\"");
        assert!(counts(&output).is_err());
        assert!(counts("{\"version\":\"7\",\"function_name\":\"cut").is_err());
        let other = line("post", "null", 7).replace("\"version\":\"7\"", "\"version\":\"6\"");
        assert!(counts(&other).is_err_and(|error| error.to_string().contains("version 6")));
    }

    #[test]
    fn the_last_line_reports_that_all_are_within_budget() {
        let counts = BTreeMap::from([
            ("post:one".into(), 1300),
            ("post:none".into(), 100),
            ("empty".into(), 40),
        ]);
        let budgets = budgets(TWO);
        let report = Report::new(&budgets, &counts).expect("report");
        assert!(report.above(Against::Budget).is_empty());
        assert_eq!(
            report.table().lines().last(),
            Some("2 paths measured, all within budget")
        );
        assert!(report.table().contains("120.0"));
    }

    #[test]
    fn a_path_above_its_budget_is_named() {
        let counts = BTreeMap::from([
            ("post:one".into(), 1301),
            ("post:none".into(), 100),
            ("empty".into(), 40),
        ]);
        let budgets = budgets(TWO);
        let report = Report::new(&budgets, &counts).expect("report");
        assert_eq!(report.above(Against::Budget), ["post"]);
        assert_eq!(
            report.table().lines().last(),
            Some("2 paths measured, above budget: post")
        );
    }

    #[test]
    fn recorded_counts_may_not_be_exceeded() {
        let text = TWO.replace("budget = 40", "budget = 40\nlanded = 100");
        let budgets = budgets(&text);
        let above = |empty| {
            let counts = BTreeMap::from([
                ("post:one".into(), 1300),
                ("post:none".into(), 100),
                ("empty".into(), empty),
            ]);
            let report = Report::new(&budgets, &counts).expect("report");
            (
                report.above(Against::Budget).len(),
                report.above(Against::Landed).len(),
            )
        };
        assert_eq!(above(40), (0, 0));
        assert_eq!(above(105), (1, 0));
        assert_eq!(above(106), (1, 1));
    }

    #[test]
    fn budgets_and_benchmarks_must_match() {
        let budgets = budgets(TWO);
        let missing = BTreeMap::from([("post:one".into(), 1), ("post:none".into(), 0)]);
        assert!(Report::new(&budgets, &missing).is_err());
        let surplus = BTreeMap::from([
            ("post:one".into(), 1),
            ("post:none".into(), 0),
            ("empty".into(), 1),
            ("new".into(), 1),
        ]);
        assert!(Report::new(&budgets, &surplus).is_err());
        let negative = BTreeMap::from([
            ("post:one".into(), 1),
            ("post:none".into(), 2),
            ("empty".into(), 1),
        ]);
        assert!(Report::new(&budgets, &negative).is_err());
    }
}
