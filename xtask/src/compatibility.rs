//! Third-party DAT programs, run with OFA's provider and with ours; writes the page of outcomes.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::sections::{self, STATUS};
use crate::vm;
use crate::workspace::Workspace;

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Run only these groups; other rows of the page are unchanged
    #[arg(value_name = "GROUP", value_parser = GROUPS.map(|group| group.name), hide_possible_values = true)]
    groups: Vec<String>,
    /// Run only with these libraries; other columns of the page are unchanged; may be repeated
    #[arg(long, value_name = "LIBRARIES")]
    through: Vec<Through>,
    /// List the groups and exit
    #[arg(long)]
    list: bool,
}

/// Whose libraries the programs call, in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Through {
    /// OFA's provider under Debian's libdat2
    Ofa,
    /// Our provider under Debian's libdat2
    Packaged,
    /// Our provider under our libdat2
    Ours,
}

const COLUMNS: [Through; 3] = [Through::Ofa, Through::Packaged, Through::Ours];

impl Through {
    /// Returns the name that the job uses.
    const fn name(self) -> &'static str {
        match self {
            Self::Ofa => "ofa",
            Self::Packaged => "packaged",
            Self::Ours => "ours",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// A group of runs in the job; each column runs it in one guest.
struct Group {
    /// The name in the job and on the command line.
    name: &'static str,
    title: &'static str,
    columns: &'static [Through],
    /// The page's text below the group's table.
    note: Option<&'static str>,
    /// Set if a guest with our provider runs both ends and reports both.
    mixed: bool,
    seconds: u64,
    memory: Option<u64>,
}

const fn group(name: &'static str, title: &'static str, seconds: u64) -> Group {
    Group {
        name,
        title,
        columns: &COLUMNS,
        note: None,
        mixed: false,
        seconds,
        memory: None,
    }
}

const GROUPS: [Group; 12] = [
    group("functional", "`dapltest -T F`: functional cases", 600),
    Group {
        note: Some(
            "With `-w 8` it opens eight adapters, and gives endpoints of one the dispatchers of another. Objects belong to one open adapter \
             ([GEN-11](../docs/spec/dat-requirements.md)): ours refuses such a call with INVALID_HANDLE, and OFA's does not look.",
        ),
        ..group(
            "limits",
            "`dapltest -T L`: limits, 100 objects of each kind",
            600,
        )
    },
    Group {
        memory: Some(3072),
        ..group("many=20000", "`dapltest -T L`: limits, 20,000 objects", 900)
    },
    group("transactions", "`dapltest -T T`: transactions", 900),
    group("performance", "`dapltest -T P`: performance", 900),
    group("repeated=200", "Two of these 200 times each", 3000),
    Group {
        memory: Some(4096),
        ..group("dtest", "`dtest`: 18 sets of options", 900)
    },
    group("dtestx", "`dtestx`: numbers and atomic operations", 300),
    Group {
        memory: Some(2048),
        ..group("dtestcm", "`dtestcm`: connections", 900)
    },
    group("dtestsrq", "`dtestsrq`: shared receive queues", 300),
    Group {
        columns: &[Through::Packaged, Through::Ours],
        mixed: true,
        ..group("mixed", "One end each", 600)
    },
    Group {
        memory: Some(3072),
        ..group("storm", "24 processes at once", 900)
    },
];

/// The page, in the folder `target`.
const PAGE: &str = "compatibility.md";
/// The task that writes the page and its counts on the page of counts.
const TASK: &str = "compatibility";
const HEAD: &str = "\
# Programs of others

Debian's unmodified DAT programs of `dapl2-utils`, in two processes of a guest with soft-RoCE ([vm.md](../docs/vm.md)). They run with OFA's
provider, and with ours under both registries ([c-libraries.md](../docs/c-libraries.md)). The programs exit with 0 even after a failure, so
their output decides. If a run did not pass, the cell has its end or its first complaint.

Written by `cargo xtask compatibility`, which takes about an hour. `cargo xtask compatibility GROUP --through ours` runs one group with one
set of libraries and replaces only those cells. If a guest dies, only its finished runs are replaced.

A cell with \u{2013} is a run that was not made. An empty cell is a run that is impossible: with one end each, OFA's provider always has
ours at the other end.
";
/// The cell of a run that has not been made.
const NOTHING: &str = "\u{2013}";
/// The cell of a run that cannot be made.
const NEVER: &str = "";

/// A run and its outcomes by column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    name: String,
    outcomes: [Option<String>; 3],
}

/// The rows of each group, in the order of `GROUPS`.
type Rows = Vec<Vec<Row>>;

/// Runs the programs and writes the page.
///
/// # Errors
/// A guest cannot be run, or dies; the page cannot be written; or a program did not pass with our
/// provider. The page then holds the outcomes up to that point.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.list {
        for group in &GROUPS {
            println!("{:14} {}", group.name, group.title);
        }
        return Ok(());
    }
    let file = workspace.target().join(PAGE);
    let kept = file.with_extension("json");
    let mut counts = sections::read(workspace, STATUS, TASK)?;
    let mut rows = read(&kept)?;
    let mut bad = Vec::new();
    for (group, rows_of_group) in GROUPS.iter().zip(0..) {
        if !options.groups.is_empty() && !options.groups.iter().any(|name| name == group.name) {
            continue;
        }
        for &through in group.columns {
            if !options.through.is_empty() && !options.through.contains(&through) {
                continue;
            }
            let arguments = vec![
                "full".to_owned(),
                format!("via={}", through.name()),
                group.name.to_owned(),
            ];
            let attempt = vm::attempt(workspace, "dapl", arguments, group.memory, group.seconds)?;
            let outcomes = outcomes(&attempt.console);
            // OFA's provider may fail: the page records that. A guest that dies is an error with
            // every provider.
            let is_bad = through != Through::Ofa || !attempt.is_whole || outcomes.is_empty();
            let runs = outcomes.len();
            let complaint = attempt
                .complaint
                .or_else(|| (runs == 0).then(|| "its output contains no run".to_owned()));
            if let Some(complaint) = complaint.filter(|_| is_bad) {
                let name = through.name();
                bad.push(match attempt.is_whole {
                    true => format!("{} through {name}: {complaint}", group.name),
                    false => format!(
                        "{} through {name}, after {runs} runs: {complaint}; the page keeps its other results",
                        group.name
                    ),
                });
            }
            if let Some(known) = rows.get_mut(rows_of_group) {
                let all = attempt.is_whole && runs != 0;
                replace(known, through, outcomes, group.mixed, all);
                if all {
                    counts = with_count(&counts, group, through, known);
                    sections::replace(workspace, STATUS, TASK, &counts)?;
                }
            }
            fs::write(&file, page(&rows)).with_context(|| format!("cannot write {PAGE}"))?;
            fs::write(&kept, serde_json::to_string_pretty(&rows)?)?;
        }
    }
    println!("wrote {} and {STATUS}", file.display());
    if !bad.is_empty() {
        bail!("some runs differ from the expectation:\n{}", bad.join("\n"));
    }
    Ok(())
}

/// Returns column, name and outcome of each run that the console reports.
fn outcomes(console: &str) -> Vec<(Through, String, String)> {
    // A guest that dies may do so in the middle of a line.
    let lines = console.split_inclusive('\n');
    let lines = lines.filter_map(|line| Some(line.strip_suffix('\n')?.trim_end_matches('\r')));
    lines
        .filter_map(|line| {
            let mut parts = line.strip_prefix("outcome|")?.splitn(3, '|');
            let through = parts.next()?;
            let through = COLUMNS.into_iter().find(|one| one.name() == through)?;
            Some((through, parts.next()?.to_owned(), parts.next()?.to_owned()))
        })
        .collect()
}

/// Puts a guest's outcomes into the rows; `all` also removes runs it no longer has.
fn replace(
    rows: &mut Vec<Row>,
    through: Through,
    outcomes: Vec<(Through, String, String)>,
    mixed: bool,
    all: bool,
) {
    // In a guest with both providers, the runs of OFA's clients get their own rows, in the column
    // of the registry.
    let named = outcomes
        .into_iter()
        .map(|(client, name, outcome)| match (mixed, client) {
            (false, _) => (name, outcome),
            (true, Through::Ofa) => (format!("server ours, client OFA's: {name}"), outcome),
            (true, _) => (format!("server OFA's, client ours: {name}"), outcome),
        });
    let column = through.index();
    for row in rows.iter_mut().filter(|_| all) {
        if let Some(outcome) = row.outcomes.get_mut(column) {
            *outcome = None;
        }
    }
    for (name, outcome) in named {
        let index = rows.iter().position(|row| row.name == name);
        let index = index.unwrap_or_else(|| {
            rows.push(Row {
                name,
                ..Row::default()
            });
            rows.len() - 1
        });
        if let Some(cell) = rows
            .get_mut(index)
            .and_then(|row| row.outcomes.get_mut(column))
        {
            *cell = Some(outcome);
        }
    }
    rows.retain(|row| row.outcomes.iter().any(Option::is_some));
}

fn page(rows: &Rows) -> String {
    let mut text = HEAD.to_owned();
    for (group, rows) in GROUPS.iter().zip(rows) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {}\n\n", group.title);
        if rows.is_empty() {
            text += "Not run yet.\n";
            continue;
        }
        text +=
            "| run | OFA's | ours, Debian's `libdat2` | ours, our `libdat2` |\n|---|---|---|---|\n";
        for row in rows {
            let _ = write!(text, "| `{}` |", row.name);
            for (outcome, through) in row.outcomes.iter().zip(COLUMNS) {
                let nothing = match group.columns.contains(&through) {
                    true => NOTHING,
                    false => NEVER,
                };
                let _ = write!(text, " {} |", outcome.as_deref().unwrap_or(nothing));
            }
            text += "\n";
        }
        if let Some(note) = group.note {
            let _ = write!(text, "\n{note}\n");
        }
    }
    text
}

/// Returns the table of counts with a group's number of passed runs in one column.
fn with_count(counts: &str, group: &Group, through: Through, rows: &[Row]) -> String {
    let outcomes = || {
        rows.iter()
            .filter_map(|row| row.outcomes.get(through.index())?.as_deref())
    };
    let passed = outcomes()
        .filter(|outcome| outcome.starts_with("passes"))
        .count();
    let count = format!(" {passed} of {} ", outcomes().count());
    let begin = format!("| {} |", group.title);
    let mut table = String::new();
    for line in counts.lines() {
        let mut cells: Vec<&str> = line.split('|').collect();
        // The first two cells are the text left of the first bar and the group.
        if let Some(cell) = cells
            .get_mut(through.index() + 2)
            .filter(|_| line.starts_with(&begin))
        {
            *cell = &count;
        }
        table += &cells.join("|");
        table += "\n";
    }
    table
}

/// Reads the rows of earlier runs; without a file every cell is empty.
fn read(kept: &Path) -> Result<Rows> {
    let mut rows: Rows = match fs::read_to_string(kept) {
        Ok(text) => serde_json::from_str(&text).with_context(|| kept.display().to_string())?,
        Err(_) => Rows::new(),
    };
    rows.resize_with(GROUPS.len(), Vec::new);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "-- limits\r\noutcome|packaged|limit_ia|passes: 100\r\noutcome|packaged|limit_evd|crashes\r\nlimit_ia passed\r\noutcome|packaged|limit_pz|pas";

    fn empty() -> Rows {
        vec![Vec::new(); GROUPS.len()]
    }

    #[test]
    fn outcomes_of_a_job_stay_in_their_column() {
        let mut rows = empty();
        replace(
            &mut rows[1],
            Through::Packaged,
            outcomes(CONSOLE),
            false,
            true,
        );
        let other = vec![(
            Through::Ofa,
            "limit_evd".to_owned(),
            "does not end".to_owned(),
        )];
        replace(&mut rows[1], Through::Ofa, other, false, true);
        let text = page(&rows);
        assert!(
            text.contains("| `limit_ia` | \u{2013} | passes: 100 | \u{2013} |\n"),
            "{text}"
        );
        assert!(
            text.contains("| `limit_evd` | does not end | crashes | \u{2013} |\n"),
            "{text}"
        );
        // A run that the job no longer has is removed.
        let one = vec![(
            Through::Packaged,
            "limit_evd".to_owned(),
            "passes".to_owned(),
        )];
        replace(&mut rows[1], Through::Packaged, one, false, true);
        assert_eq!(rows[1].len(), 1);
    }

    #[test]
    fn missing_outcomes_keep_the_earlier_ones() {
        let mut rows = empty();
        replace(
            &mut rows[1],
            Through::Packaged,
            outcomes(CONSOLE),
            false,
            true,
        );
        let one = vec![(
            Through::Packaged,
            "limit_evd".to_owned(),
            "passes".to_owned(),
        )];
        replace(&mut rows[1], Through::Packaged, one, false, false);
        let text = page(&rows);
        assert!(
            text.contains("| `limit_ia` | \u{2013} | passes: 100 | \u{2013} |\n")
                && text.contains("| `limit_evd` | \u{2013} | passes | \u{2013} |\n"),
            "{text}"
        );
    }

    #[test]
    fn both_ends_of_a_mixture_are_rows_of_their_own() {
        let mut rows = Vec::new();
        let outcomes = vec![
            (Through::Ofa, "dtest".to_owned(), "passes".to_owned()),
            (Through::Ours, "dtest".to_owned(), "passes".to_owned()),
        ];
        replace(&mut rows, Through::Ours, outcomes, true, true);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "server ours, client OFA's: dtest",
                "server OFA's, client ours: dtest"
            ]
        );
        assert!(rows.iter().all(|row| row.outcomes[2].is_some()));
    }

    #[test]
    fn a_count_replaces_one_cell_of_its_group() {
        let row = |outcome: &str| Row {
            outcomes: [None, Some(outcome.to_owned()), None],
            ..Row::default()
        };
        let rows = [row("passes: 100"), row("crashes")];
        let counts = format!(
            "| group | a | b | c |\n| {} | 1 of 1 | | |\n",
            GROUPS[1].title
        );
        let counted = with_count(&counts, &GROUPS[1], Through::Packaged, &rows);
        assert_eq!(counted, counts.replace("| | |", "| 1 of 2 | |"));
        assert_eq!(
            with_count(&counts, &GROUPS[2], Through::Packaged, &rows),
            counts
        );
    }

    #[test]
    fn the_published_counts_have_a_row_for_each_group() {
        let workspace = Workspace::load().expect("workspace");
        let counts = sections::read(&workspace, STATUS, TASK).expect("the counts");
        let rows: Vec<&str> = counts.lines().skip(2).collect();
        assert_eq!(rows.len(), GROUPS.len());
        for (group, row) in GROUPS.iter().zip(rows) {
            assert!(row.starts_with(&format!("| {} |", group.title)), "{row}");
        }
    }

    #[test]
    fn rows_of_earlier_runs_are_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = folder.path().join("kept.json");
        assert_eq!(read(&kept).expect("no rows"), empty());
        let mut rows = empty();
        replace(
            &mut rows[1],
            Through::Packaged,
            outcomes(CONSOLE),
            false,
            true,
        );
        fs::write(&kept, serde_json::to_string(&rows).expect("rows")).expect("a file");
        assert_eq!(read(&kept).expect("rows"), rows);
        fs::write(&kept, "[").expect("a file");
        assert!(read(&kept).is_err());
    }
}
