//! The speed over verbs against perftest in the guest, and its page.

mod local;
mod provider;
mod scale;

use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use xshell::{Shell, cmd};

use crate::workspace::Workspace;
use crate::{bench, sections, vm};

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Compare the calls beside 100 and beside 100,000 objects, and write their table to
    /// docs/performance.md
    #[arg(long, conflicts_with = "vm")]
    scale: bool,
    /// Measure two processes of this host, compared with other programs that do the same, and write
    /// docs/performance.md; fail if a bar is missed
    #[arg(long, conflicts_with_all = ["scale", "vm"])]
    local: bool,
    /// Run only the measurements whose name or command contains this text, and write no page
    #[arg(long, requires = "local", value_name = "TEXT")]
    only: Option<String>,
    /// Measure in the guest, compared with perftest and with OFA's provider, and write
    /// docs/performance.md
    #[arg(long)]
    vm: bool,
    /// In the guest, run only the comparison with OFA's provider
    #[arg(long, requires = "vm")]
    provider: bool,
    /// Read the provider comparison from this console log instead of running the guest
    #[arg(long, requires = "provider", value_name = "FILE")]
    console: Option<PathBuf>,
    /// Number of rounds, in the guest or between two processes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
}

/// The page, and the tasks that write its sections.
const PAGE: &str = "docs/performance.md";
const SPEED: &str = "bench --vm";
const PROVIDER: &str = "bench --vm --provider";
const SCALE: &str = "bench --scale";
const LOCAL: &str = "bench --local";

/// The first word of a job's lines that report a measurement.
const MARK: &str = "speed";

/// A comparison with perftest.
struct Comparison {
    /// The name in the job.
    name: &'static str,
    dat: &'static str,
    perftest: &'static str,
}

/// The message sizes of the comparisons, in bytes.
const SIZES: [u64; 3] = [2, 4096, 65536];

const COMPARISONS: [Comparison; 3] = [
    Comparison {
        name: "read",
        dat: "dat perf read --depth 1 --wait poll",
        perftest: "ib_read_lat",
    },
    Comparison {
        name: "write",
        dat: "dat perf write --depth 128 --wait poll",
        perftest: "ib_write_bw",
    },
    Comparison {
        name: "send",
        dat: "dat perf send --depth 1 --wait block",
        perftest: "ib_send_lat -e",
    },
];

/// Counts the instructions of the hot paths, and compares them with the recorded counts.
///
/// With `--scale`, counts beside few and beside many objects instead. With `--vm` measures in the
/// guest, with `--local` between two processes. These write their part of the page.
///
/// # Errors
/// A path takes more than its recorded count, a call takes more beside many objects, something
/// cannot be measured, or the page cannot be written.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.scale {
        return write(workspace, SCALE, &scale::compare(workspace)?);
    }
    if options.local {
        let only = options.only.as_deref();
        let (text, missed) = local::measure(workspace, options.rounds, only)?;
        if only.is_none() {
            write(workspace, LOCAL, &text)?;
        }
        return local::judge(&missed);
    }
    if !options.vm {
        return bench::check(workspace);
    }
    let rounds = [options.rounds.to_string()];
    let console = match &options.console {
        Some(file) => {
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => vm::console(workspace, "provider", &rounds)?,
    };
    let of_providers = Lines::read(&console)?;
    let text = format!(
        "{}\n{}\nInstructions of the two libraries only, with a device that does nothing:\n\n{}",
        conditions_of_providers(&workspace.shell, &of_providers, options.rounds)?,
        provider::compare(&of_providers)?,
        bench::layer::compare(workspace)?
    );
    write(workspace, PROVIDER, &text)?;
    if options.provider {
        return Ok(());
    }
    let counted = Lines::read(&vm::console(workspace, "speed", &rounds)?)?;
    let mut text = conditions(&workspace.shell, &counted, options.rounds)?;
    text += "\n### Transfers\n\n";
    text += &compare(&counted)?;
    text += "\n### Posts of 8 bytes, single and in batches of 16\n\n";
    text += &batches(&counted)?;
    text += "\n### Vectors of 16 entries of 4 KiB\n\n";
    text += &vectors(&counted)?;
    text += "\n### Pollers that share a processor\n\n";
    text += &sharing(&counted)?;
    write(workspace, SPEED, &text)
}

/// Writes the section of a task.
fn write(workspace: &Workspace, task: &str, text: &str) -> Result<()> {
    sections::replace(workspace, PAGE, task, &format!("\n{text}\n"))?;
    println!("wrote {PAGE}");
    Ok(())
}

/// The measurements and versions that the jobs reported.
#[derive(Debug, Default)]
struct Lines {
    /// Nanoseconds of every round, by name, bytes and program.
    times: BTreeMap<(String, u64, String), Vec<f64>>,
    versions: BTreeMap<String, String>,
}

impl Lines {
    fn read(console: &str) -> Result<Self> {
        let mut lines = Self::default();
        for line in console.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [MARK, "time", name, bytes, program, nanoseconds] => {
                    let time: f64 = nanoseconds.parse().with_context(|| line.to_owned())?;
                    // perftest prints infinity when its own clock was disturbed; the other rounds
                    // count.
                    if *program == "perftest" && time == f64::INFINITY {
                        continue;
                    }
                    if !time.is_finite() || time <= 0.0 {
                        bail!("missing time: {line}");
                    }
                    let bytes = bytes.parse().with_context(|| line.to_owned())?;
                    let key = ((*name).to_owned(), bytes, (*program).to_owned());
                    lines.times.entry(key).or_default().push(time);
                }
                [MARK, "version", name, version] => {
                    lines
                        .versions
                        .insert((*name).to_owned(), (*version).to_owned());
                }
                [MARK, ..] => bail!("cannot parse: {line}"),
                _ => {}
            }
        }
        Ok(lines)
    }

    fn version(&self, name: &str) -> Result<&str> {
        let version = self.versions.get(name).map(String::as_str);
        version.with_context(|| format!("the guest did not report the version of {name}"))
    }

    /// Returns the median of the rounds.
    fn time(&self, name: &str, bytes: u64, program: &str) -> Result<f64> {
        let key = (name.to_owned(), bytes, program.to_owned());
        let times = self.times.get(&key);
        let times = times
            .with_context(|| format!("{name} of {bytes} bytes was not measured with {program}"))?;
        Ok(median(times))
    }
}

/// Returns the median of at least one value.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len() - 1;
    f64::midpoint(values[last / 2], values[last.div_ceil(2)])
}

/// Returns a table of the comparisons.
fn compare(lines: &Lines) -> Result<String> {
    let mut table =
        "| dat | perftest | bytes | perftest, ns | dat, ns | ratio |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for Comparison {
        name,
        dat,
        perftest,
    } in COMPARISONS
    {
        for bytes in SIZES {
            let theirs = lines.time(name, bytes, "perftest")?;
            let ours = lines.time(name, bytes, "dat")?;
            let ratio = ours / theirs;
            writeln!(
                table,
                "| `{dat}` | `{perftest}` | {bytes} | {theirs:.0} | {ours:.0} | {ratio:.3} |"
            )?;
        }
    }
    Ok(table)
}

/// Returns a table of batched posts against single posts.
fn batches(lines: &Lines) -> Result<String> {
    let single = lines.time("single", 8, "dat")?;
    let batch = lines.time("batch", 8, "dat")?;
    let gain = single / batch;
    Ok(format!(
        "| dat | single, ns | batch, ns | gain |\n|---|---|---|---|\n\
         | `dat perf write --size 8 --depth 128 --wait poll --batch 16` | {single:.0} | {batch:.0} | {gain:.3} |\n"
    ))
}

/// Returns a table of RSM vectors against their plain transfers.
fn vectors(lines: &Lines) -> Result<String> {
    let mut table =
        "| dat | writes and a flush, ns | putv, ns | ratio |\n|---|---|---|---|\n".to_owned();
    for mode in ["implicit", "explicit"] {
        let plain = lines.time(mode, 4096, "plain")?;
        let vector = lines.time(mode, 4096, "dat")?;
        let ratio = vector / plain;
        writeln!(
            table,
            "| `dat rsm bench --piece 4K --mode {mode}` | {plain:.0} | {vector:.0} | {ratio:.3} |"
        )?;
    }
    Ok(table)
}

/// Returns a table of the cost of polling where processes share a processor.
fn sharing(lines: &Lines) -> Result<String> {
    let mut table = "| 2 bytes, one way | ns |\n|---|---|\n".to_owned();
    for (label, name, program) in [
        ("`ib_send_lat`, both ends polling", "polled", "perftest"),
        (
            "`dat perf send --wait poll`, both ends polling",
            "polled",
            "dat",
        ),
        ("the same, with another pair doing so", "two-polled", "dat"),
        ("`dat perf send --wait block`", "send", "dat"),
    ] {
        writeln!(table, "| {label} | {:.0} |", lines.time(name, 2, program)?)?;
    }
    Ok(table)
}

/// Describes the measurement: rounds, and versions of emulator, kernel and programs.
fn conditions(shell: &Shell, lines: &Lines, rounds: u32) -> Result<String> {
    let programs = format!("perftest {}", lines.version("perftest")?);
    described(shell, lines, rounds, "program", &programs)
}

/// Describes the comparison of providers in the manner of `conditions`.
fn conditions_of_providers(shell: &Shell, lines: &Lines, rounds: u32) -> Result<String> {
    let [theirs, programs] = ["libdapl2", "dapl2-utils"].map(|name| installed(shell, name));
    let programs = format!("libdapl2 {}; dapl2-utils {}", theirs?, programs?);
    described(shell, lines, rounds, "provider", &programs)
}

fn described(
    shell: &Shell,
    lines: &Lines,
    rounds: u32,
    each: &str,
    programs: &str,
) -> Result<String> {
    let (kernel, library) = (lines.version("kernel")?, installed(shell, "libibverbs1")?);
    let [qemu, compiler] = tools(shell)?;
    Ok(format!(
        "Medians of {rounds} rounds, in which each {each} had its turn. {qemu}; kernel {kernel}; {programs}; rdma-core {library}; {compiler}.\n"
    ))
}

/// Returns the version of an installed Debian package.
fn installed(shell: &Shell, package: &str) -> Result<String> {
    let format = "--showformat=${Version}";
    Ok(cmd!(shell, "dpkg-query --show {format} {package}")
        .quiet()
        .read()?)
}

/// Returns the first version lines of the emulator and the compiler.
fn tools(shell: &Shell) -> Result<[String; 2]> {
    let first = |output: String| output.lines().next().unwrap_or_default().to_owned();
    let qemu = cmd!(shell, "qemu-system-x86_64 --version").quiet().read()?;
    let compiler = cmd!(shell, "rustc --version").quiet().read()?;
    Ok([first(qemu), first(compiler)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "\
        booting\n\
        speed version kernel 6.1.0\n\
        speed time read 2 perftest 100.0\n\
        speed time read 2 dat 105.0\n\
        [    1.0] speed of something\n\
        speed time read 2 dat 101.0\n\
        speed time read 2 perftest 102.0\n\
        speed time read 2 dat 102.0\n";

    #[test]
    fn only_lines_of_the_job_are_read() {
        let lines = Lines::read(CONSOLE).expect("lines");
        assert_eq!(lines.versions["kernel"], "6.1.0");
        assert_eq!(lines.time("read", 2, "dat").expect("odd"), 102.0);
        assert_eq!(lines.time("read", 2, "perftest").expect("even"), 101.0);
        assert!(lines.time("read", 3, "dat").is_err());
        assert!(lines.time("write", 2, "dat").is_err());
    }

    #[test]
    fn an_invalid_time_is_an_error() {
        for line in ["0.0", "-1", "inf", "nan", "", "much", "1 2"] {
            let line = format!("speed time read 2 dat {line}");
            assert!(Lines::read(&line).is_err(), "{line}");
        }
        assert!(Lines::read("speed").is_err());
    }

    #[test]
    fn a_disturbed_round_of_perftest_does_not_count() {
        let console = format!("{CONSOLE}speed time read 2 perftest inf\n");
        let lines = Lines::read(&console).expect("lines");
        assert_eq!(lines.time("read", 2, "perftest").expect("two"), 101.0);
        let lines = Lines::read("speed time read 2 perftest inf").expect("lines");
        assert!(lines.time("read", 2, "perftest").is_err());
    }

    #[test]
    fn ratios_are_of_the_medians() {
        let mut console = String::new();
        for (comparison, ours) in COMPARISONS.iter().zip([101, 102, 90]) {
            for bytes in SIZES {
                let line = format!("speed time {} {bytes}", comparison.name);
                console += &format!("{line} perftest 100.0\n{line} dat {ours}.0\n");
            }
        }
        let table = compare(&Lines::read(&console).expect("lines")).expect("a table");
        assert_eq!(
            table.matches("| 4096 | 100 | 102 | 1.020 |").count(),
            1,
            "{table}"
        );
        assert_eq!(table.lines().count(), 2 + 9, "{table}");
        let lines = Lines::read(CONSOLE).expect("lines");
        assert!(compare(&lines).is_err(), "a size was not measured");
    }

    #[test]
    fn batches_and_vectors_are_compared_with_single_transfers() {
        let console = "\
            speed time single 8 dat 300.0\n\
            speed time batch 8 dat 200.0\n\
            speed time implicit 4096 plain 100.0\n\
            speed time implicit 4096 dat 105.0\n\
            speed time explicit 4096 plain 100.0\n\
            speed time explicit 4096 dat 98.0\n";
        let lines = Lines::read(console).expect("lines");
        let gain = batches(&lines).expect("a table");
        assert!(gain.contains("| 300 | 200 | 1.500 |"), "{gain}");
        let vectors = vectors(&lines).expect("a table");
        assert!(
            vectors.contains("implicit` | 100 | 105 | 1.050 |"),
            "{vectors}"
        );
        assert!(
            vectors.contains("explicit` | 100 | 98 | 0.980 |"),
            "{vectors}"
        );
        assert!(batches(&Lines::default()).is_err());
    }

    #[test]
    fn the_page_has_all_sections() {
        let workspace = Workspace::load().expect("workspace");
        for task in [SPEED, PROVIDER, SCALE, LOCAL] {
            assert!(sections::read(&workspace, PAGE, task).is_ok(), "{task}");
        }
    }
}
