//! The share of the core that the fuzz seeds run, and reasons for the rest.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::tools;
use crate::workspace::Workspace;

/// The measured sources.
const SOURCES: &str = "dat-core/src";
/// The file of reasons why lines are not run.
const KEPT: &str = "tests/checks/assurance/coverage.toml";
/// The least percentage of lines that the seeds must run.
const LEAST: u64 = 95;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    #[serde(default)]
    unrun: Vec<Unrun>,
}

/// Lines of a file that no seed runs, for one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unrun {
    file: String,
    /// Parts of the first lines of items or statements; empty for the whole file.
    ///
    /// Each item extends to the line that closes it.
    #[serde(default)]
    items: Vec<String>,
    /// Set if a seed may run the lines by chance.
    #[serde(default)]
    by_chance: bool,
    /// The number of lines with this reason; `None` if `by_chance` is set.
    ///
    /// A changed number shows that a new line in such an item needs a check.
    lines: Option<u64>,
    /// The reason why no seed runs the lines.
    reason: String,
}

/// One item of an [`Unrun`] entry.
#[derive(Clone, Debug)]
struct Region {
    file: String,
    item: String,
    by_chance: bool,
    /// The line count of the entry; `entry` is the entry's index.
    lines: Option<u64>,
    entry: usize,
}

/// The execution count of each line with code in one file.
type Runs = BTreeMap<usize, u64>;

/// The counts of lines with code, of run lines, and of explained unrun lines.
#[derive(Clone, Copy, Default)]
struct Lines {
    count: u64,
    run: u64,
    explained: u64,
}

impl Lines {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.run += more.run;
        self.explained += more.explained;
    }

    fn row(self, name: &str) -> String {
        let Self {
            count,
            run,
            explained,
        } = self;
        // The count of lines fits an f64 exactly.
        let share = 100.0 * run as f64 / count.max(1) as f64;
        format!("| {name} | {count} | {run} | {share:.1} % | {explained} |\n")
    }
}

/// Fails unless every reason is about existing lines.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    for region in read(workspace)? {
        let path = workspace.root().join(SOURCES).join(&region.file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if region.extents(&text).is_empty() {
            bail!(
                "{KEPT}: {} no longer contains `{}`",
                region.file,
                region.item
            );
        }
    }
    Ok(())
}

fn read(workspace: &Workspace) -> Result<Vec<Region>> {
    let kept: Kept = workspace.read_toml(KEPT)?;
    let mut regions = Vec::new();
    for (entry, unrun) in kept.unrun.into_iter().enumerate() {
        let Unrun {
            file,
            mut items,
            by_chance,
            lines,
            reason,
        } = unrun;
        if reason.trim().is_empty() {
            bail!("{KEPT}: {file}: {items:?} have no reason");
        }
        if by_chance == lines.is_some() {
            bail!("{KEPT}: {file}: {items:?}: how many lines, unless it is by chance");
        }
        if items.is_empty() {
            items.push(String::new());
        }
        let region = |item| Region {
            file: file.clone(),
            item,
            by_chance,
            lines,
            entry,
        };
        regions.extend(items.into_iter().map(region));
    }
    Ok(regions)
}

impl Region {
    /// Returns the first and the last line of each matching item.
    ///
    /// Formatted code closes a bracket in the column of the line that opened it.
    fn extents(&self, text: &str) -> Vec<(usize, usize)> {
        if self.item.is_empty() {
            return vec![(1, text.lines().count())];
        }
        let lines: Vec<&str> = text.lines().collect();
        let column = |line: &str| line.len() - line.trim_start().len();
        let begins =
            |line: &&str| line.contains(&self.item) && !line.trim_start().starts_with("//");
        let found = lines.iter().enumerate().filter(|(_, line)| begins(line));
        found
            .map(|(at, first)| {
                let mut end = at;
                let rest = lines.iter().enumerate().skip(at + 1);
                for (next, line) in rest.filter(|(_, line)| !line.trim().is_empty()) {
                    // A `where` clause and a brace on its own line belong to the line above.
                    let bounds = line.trim_start() == "where";
                    let closes = bounds || line.trim_start().starts_with([')', ']', '}', '{']);
                    if column(line) < column(first) || column(line) == column(first) && !closes {
                        break;
                    }
                    end = next;
                    // A signature and a condition continue in the same column.
                    if column(line) == column(first) && !bounds && !line.ends_with('{') {
                        break;
                    }
                }
                (at + 1, end + 1)
            })
            .collect()
    }
}

/// Runs all targets' seeds; compares the unrun lines of the core with the reasons.
///
/// Returns the counts by module.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    check(workspace)?;
    let sources = workspace.root().join(SOURCES);
    let files = files(&tools::replay(workspace)?, &sources);
    if files.is_empty() {
        bail!("cargo-llvm-cov reports no lines of {SOURCES}");
    }
    let text = |file: &str| fs::read_to_string(sources.join(file)).with_context(|| file.to_owned());
    section(&files, &read(workspace)?, LEAST, text)
}

/// Reads the line counts of each file from `cargo-llvm-cov`.
///
/// A line of a generic function counts as run if any instance ran it.
fn files(lcov: &str, sources: &Path) -> BTreeMap<String, Runs> {
    let mut files: BTreeMap<String, Runs> = BTreeMap::new();
    let mut file = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let inside = Path::new(path).strip_prefix(sources).ok();
            file = inside.map(|path| files.entry(path.to_string_lossy().into()).or_default());
        } else if let Some(counted) = line.strip_prefix("DA:")
            && let Some(file) = &mut file
            && let Some((at, count)) = counted.split_once(',')
            && let (Ok(at), Ok(count)) = (at.parse(), count.parse::<u64>())
        {
            *file.entry(at).or_default() += count;
        }
    }
    files
}

/// Returns a table with a row for each module, and one for all.
///
/// # Errors
/// Unrun lines without a reason; reasons for lines that are run, or for a different number of lines
/// than recorded; fewer than `least` percent of the lines run.
fn section(
    files: &BTreeMap<String, Runs>,
    regions: &[Region],
    least: u64,
    text: impl Fn(&str) -> Result<String>,
) -> Result<String> {
    let mut modules: BTreeMap<&str, Lines> = BTreeMap::new();
    let mut all = Lines::default();
    let mut used = vec![false; regions.len()];
    // The number of lines that have the reason of each entry.
    let mut counted: BTreeMap<usize, u64> = BTreeMap::new();
    let mut faults = String::new();
    for (file, runs) in files {
        let text = text(file)?;
        let extents: Vec<(usize, (usize, usize))> = regions
            .iter()
            .enumerate()
            .filter(|(_, region)| region.file == *file)
            .flat_map(|(which, region)| {
                region.extents(&text).into_iter().map(move |at| (which, at))
            })
            .collect();
        let mut lines = Lines::default();
        for (&at, &count) in runs {
            lines.count += 1;
            if count != 0 {
                lines.run += 1;
                continue;
            }
            let reasons = extents
                .iter()
                .filter(|(_, (from, to))| (*from..=*to).contains(&at));
            let mut entries = BTreeSet::new();
            for (which, _) in reasons {
                used[*which] = true;
                entries.insert(regions[*which].entry);
            }
            for entry in &entries {
                *counted.entry(*entry).or_default() += 1;
            }
            if !entries.is_empty() {
                lines.explained += 1;
            } else {
                let line = text.lines().nth(at - 1).unwrap_or_default();
                writeln!(faults, "{file}:{at}: no seed runs `{}`", line.trim())?;
            }
        }
        let module = file.split('/').next().unwrap_or(file);
        let module = module.strip_suffix(".rs").unwrap_or(module);
        modules.entry(module).or_default().add(lines);
        all.add(lines);
    }
    for (region, used) in regions.iter().zip(used) {
        if !used && !region.by_chance {
            writeln!(faults, "{}: all of `{}` is run", region.file, region.item)?;
        }
    }
    let mut seen = BTreeSet::new();
    for region in regions.iter().filter(|region| seen.insert(region.entry)) {
        let count = counted.get(&region.entry).copied().unwrap_or_default();
        if let Some(lines) = region.lines
            && lines != count
        {
            let Region { file, item, .. } = region;
            writeln!(
                faults,
                "{file}: the reason of `{item}` covers {count} lines, expected {lines}; give new lines a reason"
            )?;
        }
    }
    if all.run * 100 < all.count * least {
        writeln!(faults, "less than {least} % of the lines are run")?;
    }
    let section = table(&modules, all);
    if !faults.is_empty() {
        bail!("{KEPT} does not match the lines that the seeds run:\n{faults}{section}");
    }
    Ok(section)
}

/// Returns a table with a row for each module, and one for all.
fn table(modules: &BTreeMap<&str, Lines>, all: Lines) -> String {
    let head = "| module | lines | run | | have a reason |\n|---|---|---|---|---|\n";
    let rows = modules.iter();
    let rows: String = rows
        .map(|(name, lines)| lines.row(&format!("`{name}`")))
        .collect();
    format!("{head}{rows}{}", all.row("all"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LCOV: &str = "SF:/w/core/event/queue.rs\nDA:1,4\nDA:2,0\nDA:3,0\nend_of_record\n\
                        SF:/w/core/id.rs\nDA:1,1\nend_of_record\n\
                        SF:/w/other.rs\nDA:1,0\nend_of_record\n\
                        SF:/w/core/event/cno.rs\nDA:1,0\nDA:1,2\nend_of_record\n";
    const QUEUE: &str = "fn seen() {}\nfn unseen() {\n}\n";

    fn regions(items: &[&str]) -> Vec<Region> {
        let region = |(entry, item): (usize, &&str)| Region {
            file: "event/queue.rs".into(),
            item: (*item).into(),
            by_chance: *item == "fn perhaps",
            lines: (*item == "fn unseen").then_some(2),
            entry,
        };
        items.iter().enumerate().map(region).collect()
    }

    fn section_of(items: &[&str]) -> Result<String> {
        let files = files(LCOV, Path::new("/w/core"));
        section(&files, &regions(items), 60, |_| Ok(QUEUE.into()))
    }

    #[test]
    fn too_few_covered_lines_and_more_excused_lines_are_faults() {
        let files = files(LCOV, Path::new("/w/core"));
        let wrong = |regions: &[Region], least| {
            let section = section(&files, regions, least, |_| Ok(QUEUE.into()));
            section.expect_err("a fault").to_string()
        };
        let mut known = regions(&["fn unseen"]);
        let few = wrong(&known, 61);
        assert!(few.contains("less than 61 %"), "{few}");
        known[0].lines = Some(1);
        let more = wrong(&known, 60);
        assert!(
            more.contains("the reason of `fn unseen` covers 2 lines, expected 1"),
            "{more}"
        );
    }

    #[test]
    fn files_of_a_module_are_counted_together() {
        let table = section_of(&["fn unseen"]).expect("a reason for each");
        let rows = "| `event` | 4 | 2 | 50.0 % | 2 |\n| `id` | 1 | 1 | 100.0 % | 0 |\n| all | 5 | 3 | 60.0 % | 2 |\n";
        assert!(table.ends_with(rows), "{table}");
    }

    #[test]
    fn a_line_without_a_reason_and_a_reason_without_a_line_are_faults() {
        let missing = section_of(&[])
            .expect_err("two lines without a reason")
            .to_string();
        assert!(
            missing.contains("event/queue.rs:2: no seed runs `fn unseen() {`"),
            "{missing}"
        );
        let idle = section_of(&["fn seen", "fn unseen"])
            .expect_err("one reason too many")
            .to_string();
        assert!(
            idle.contains("event/queue.rs: all of `fn seen` is run"),
            "{idle}"
        );
    }

    #[test]
    fn a_region_run_by_chance_needs_no_uncovered_line() {
        section_of(&["fn unseen", "fn perhaps"]).expect("a reason that is idle by chance");
    }

    #[test]
    fn a_reason_reaches_to_the_line_that_closes() {
        let text = "impl A {\n    // fn one\n    fn one(\n        a: u8,\n    ) -> u8 {\n        a\n    }\n\n    fn two() {\n        call(1);\n        other()\n            .more();\n        match a {\n            1 => 2,\n        }\n    }\n}\n";
        let extents = |item: &str| regions(&[item])[0].extents(text);
        assert_eq!(extents("fn one("), [(3, 7)]);
        assert_eq!(extents("call(1)"), [(10, 10)]);
        assert_eq!(extents("other()"), [(11, 12)]);
        assert_eq!(extents("match a"), [(13, 15)]);
        assert_eq!(extents("impl A"), [(1, 17)]);
        assert_eq!(extents(""), [(1, 17)]);
        assert_eq!(extents("fn three"), []);
    }
}
