//! The suites with every access of memory, or every order between threads, looked at.

use anyhow::{Context, Result, bail};
use cargo_metadata::camino::Utf8PathBuf;
use std::fmt::Write as _;
use std::process::Command;
use xshell::cmd;

use crate::artifacts;
use crate::packages;
use crate::targets::DISTRIBUTION;
use crate::tools;
use crate::workspace::Workspace;

/// What looks on.
struct Sanitizer {
    name: &'static str,
    /// Its settings, in the variable that it reads.
    settings: (&'static str, &'static str),
    /// It has to see the standard library too, which is built for that.
    everywhere: bool,
    /// What it looks at beside the packages that both do.
    beside: &'static [&'static str],
}

const ADDRESS: Sanitizer = Sanitizer {
    name: "address",
    // Storage of adapters that live as long as the process is given up for good.
    settings: ("ASAN_OPTIONS", "detect_leaks=0"),
    everywhere: false,
    // Its tests have devices in software, but libibverbs is there, and the thread sanitizer would have to see what that does between threads too.
    beside: &["backend-verbs", "dat-ffi"],
};
const THREAD: Sanitizer = Sanitizer {
    name: "thread",
    settings: ("TSAN_OPTIONS", "halt_on_error=1"),
    everywhere: true,
    beside: &[],
};

/// Those whose tests run in one process without anything of the system.
const PACKAGES: [&str; 7] = [
    "dat-core",
    "dat-rsm",
    "backend-mock",
    "backend-mmio",
    "mmio-model",
    "dat-model",
    "dat-tests",
];

/// What moves bytes of consumers about: the short form looks at every access of memory that its tests make, but for the slow ones.
const MOVES_BYTES: &str = "backend-mock";
/// Tests of that with transfers of megabytes.
const SLOW: &str = "pieces::";
/// The core's tests in which threads meet: the short form looks at the order of all that they do.
const MEET: [&str; 16] = [
    "endpoint::tests::life::events_of_a_dying_endpoint_name_it",
    "event::tests::drivers::a_deadline_is_known_while_another_thread_looks_for_it",
    "event::tests::drivers::every_sleeping_thread_is_reached",
    "event::tests::forged::a_buffer_completes_once_wherever_it_is_told",
    "event::tests::waits::threads_park_until_another_thread_posts",
    "ia::tests::threads::a_close_leaves_nothing_of_what_others_make_meanwhile",
    "memory::tests::bind_threads::a_refused_bind_keeps_no_region_from_being_freed",
    "memory::tests::lookup::a_check_never_mixes_two_registrations",
    "memory::tests::lookup::no_bind_slips_into_a_region_that_is_freed",
    "memory::tests::posts::a_region_is_made_after_the_posts_that_may_have_guessed_it",
    "memory::tests::posts::a_region_outlives_the_posts_that_saw_it",
    "memory::tests::posts::no_post_reads_a_region_that_was_given_back",
    "memory::tests::posts::other_calls_wait_for_no_post",
    "sync::bytes::tests::copies_race_with_byte_atomics",
    "sync::host::tests::a_panic_releases_the_lock",
    "sync::host::tests::threads_that_meet_on_the_lock_exclude_each_other",
];

/// The same of the driver: words that it shares with a device in software.
const SHARED_WORDS: [&str; 1] = ["hal::tests::threads_share_words_and_units"];

/// How many tests one process runs: what storage they give up, and what a sanitizer remembers of it, goes with the process.
const AT_ONCE: usize = 100;

/// Runs the suites under each sanitizer; a finding ends the test that it is of.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    cmd!(shell, "rustup component add --toolchain nightly rust-src").run()?;
    let host = tools::host(workspace)?;
    let mut table = String::from("| sanitizer | tests without a finding |\n|---|---|\n");
    for sanitizer in [&ADDRESS, &THREAD] {
        let name = sanitizer.name;
        let mut passed = 0;
        for suite in build(workspace, sanitizer, &host)? {
            let count = suite.run(sanitizer)?;
            println!("{name}: {count} tests of {}", suite.name);
            passed += count;
        }
        if passed == 0 {
            bail!("no test ran under the {name} sanitizer");
        }
        let _ = writeln!(table, "| {name} | {passed} |");
    }
    Ok(table)
}

/// The short form: moving bytes under the address sanitizer, threads of the core and of the driver under the thread sanitizer.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let host = tools::host(workspace)?;
    let mut passed = 0;
    for suite in programs(&mut mock_with_addresses(workspace, &host), &ADDRESS)? {
        let mut names = suite.names()?;
        names.retain(|name| !name.starts_with(SLOW));
        passed += suite.run_these(&ADDRESS, &names)?;
    }
    if passed == 0 {
        bail!("no test ran under the address sanitizer");
    }
    println!("address: {passed} tests of {MOVES_BYTES}");
    let suites = programs(&mut core_with_threads(workspace, &host)?, &THREAD)?;
    for (package, tests) in [("dat-core", &MEET[..]), ("backend-mmio", &SHARED_WORDS[..])] {
        let of_it = |suite: &&Suite| suite.name.replace('_', "-") == package;
        let [suite] = suites.iter().filter(of_it).collect::<Vec<_>>()[..] else {
            bail!("{package} has not one program of tests");
        };
        run_threads(suite, tests)?;
        println!("thread: {} tests of {package}", tests.len());
    }
    Ok(())
}

/// Runs tests of a program in which threads meet under the thread sanitizer.
fn run_threads(suite: &Suite, tests: &[&str]) -> Result<()> {
    let (names, package) = (suite.names()?, &suite.name);
    if let Some(gone) = tests
        .iter()
        .find(|name| !names.iter().any(|it| it == *name))
    {
        bail!("{package} has no test {gone} any more, which the thread sanitizer is to look at");
    }
    let tests: Vec<String> = tests.iter().map(|name| (*name).to_owned()).collect();
    // An ignored test is none that ran.
    if suite.run_these(&THREAD, &tests)? != tests.len() as u64 {
        bail!("a test of threads in {package} is ignored");
    }
    Ok(())
}

/// Builds for a sanitizer, as little of it as can be: where a finding is says the line.
fn short(workspace: &Workspace, sanitizer: &Sanitizer, host: &str) -> Command {
    let folder = workspace.target().join("sanitizers/short");
    let mut command = Command::new("cargo");
    command
        .current_dir(workspace.root())
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        .args(["test", "--no-run", "--lib"])
        .args(["--target", host, "--target-dir"])
        .arg(folder.join(sanitizer.name));
    command
}

fn mock_with_addresses(workspace: &Workspace, host: &str) -> Command {
    let mut command = short(workspace, &ADDRESS, host);
    command
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .args(["--tests", "--package", MOVES_BYTES]);
    command
}

/// The thread sanitizer has to see the standard library too, or takes its locks for none. A nightly compiler may be without the library's sources, and nothing may bring
/// them; Debian's compiler always has them here, and lacks the sanitizer's own library, which every nightly has.
fn core_with_threads(workspace: &Workspace, host: &str) -> Result<Command> {
    let shell = &workspace.shell;
    packages::install_all(shell)?;
    let folder = cmd!(shell, "rustup run nightly rustc --print target-libdir")
        .quiet()
        .read()?;
    let runtime = format!("{folder}/librustc-nightly_rt.tsan.a");
    let mut flags = vec![
        "-Zsanitizer=thread".to_owned(),
        "-Zexternal-clangrt".to_owned(),
    ];
    // Before what it uses of the C library.
    for word in ["-Wl,--whole-archive", &runtime, "-Wl,--no-whole-archive"] {
        flags.push(format!("-Zpre-link-arg={word}"));
    }
    let mut command = short(workspace, &THREAD, host);
    command
        .env("RUSTC", DISTRIBUTION)
        // The one way to build the standard library with a compiler that is not a nightly.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        // Nobody looks at back-traces, whose crates take as long to build as the rest of `std`.
        .args([
            "-Zbuild-std=std,panic_unwind,test",
            "-Zbuild-std-features=panic-unwind",
        ])
        .args(["--package", "dat-core", "--features", "dat-core/std"])
        .args(["--package", "backend-mmio"]);
    Ok(command)
}

/// A program of tests.
struct Suite {
    name: String,
    program: Utf8PathBuf,
    /// The folder of its package, where its tests run.
    folder: Utf8PathBuf,
}

/// Builds the tests of all packages for the sanitizer.
fn build(workspace: &Workspace, sanitizer: &Sanitizer, host: &str) -> Result<Vec<Suite>> {
    let name = sanitizer.name;
    let mut command = Command::new("cargo");
    command
        .current_dir(workspace.root())
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("RUSTFLAGS", format!("-Zsanitizer={name}"))
        // What looks on makes everything many times slower.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .args(["test", "--no-run", "--lib", "--tests"])
        .args(["--target", host, "--target-dir"])
        .arg(workspace.target().join("sanitizers").join(name));
    if sanitizer.everywhere {
        command.arg("-Zbuild-std");
    }
    for package in PACKAGES.iter().chain(sanitizer.beside) {
        command.args(["--package", package]);
    }
    programs(&mut command, sanitizer)
}

/// Builds programs of tests.
fn programs(command: &mut Command, sanitizer: &Sanitizer) -> Result<Vec<Suite>> {
    let what = format!("the suite for the {} sanitizer", sanitizer.name);
    let built = artifacts::of(command, &what)?;
    let tests = built.into_iter().filter(|artifact| artifact.profile.test);
    tests
        .filter_map(|artifact| {
            Some((
                artifact.executable?,
                artifact.target.name,
                artifact.manifest_path,
            ))
        })
        .map(|(program, name, manifest)| {
            let folder = manifest.parent().context("a package is in a folder")?;
            Ok(Suite {
                name,
                program,
                folder: folder.to_owned(),
            })
        })
        .collect()
}

impl Suite {
    /// Runs all tests; how many passed.
    fn run(&self, sanitizer: &Sanitizer) -> Result<u64> {
        self.run_these(sanitizer, &self.names()?)
    }

    /// The names of its tests.
    fn names(&self) -> Result<Vec<String>> {
        let listed = self.command().args(["--list", "--format=terse"]).output()?;
        if !listed.status.success() {
            bail!("{} does not list its tests", self.name);
        }
        let listed = String::from_utf8(listed.stdout)?;
        let names = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Runs these tests, so many at once; how many passed.
    fn run_these(&self, sanitizer: &Sanitizer, names: &[String]) -> Result<u64> {
        let (variable, settings) = sanitizer.settings;
        let mut sum = 0;
        for some in names.chunks(AT_ONCE) {
            let output = self
                .command()
                .env(variable, settings)
                .arg("--exact")
                .args(some)
                .output()?;
            let told = String::from_utf8_lossy(&output.stdout);
            let wrong = String::from_utf8_lossy(&output.stderr);
            let passed = counted(&told, " passed");
            // Each of those that were named ran, or is one to be ignored.
            let all = passed + counted(&told, " ignored") == some.len() as u64;
            if !output.status.success() || !all {
                bail!(
                    "{} under the {} sanitizer:\n{told}\n{wrong}",
                    self.name,
                    sanitizer.name
                );
            }
            sum += passed;
        }
        Ok(sum)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// How many tests passed, if any.
pub(super) fn passed(told: &str) -> Option<u64> {
    Some(counted(told, " passed")).filter(|sum| *sum != 0)
}

/// How many tests all programs say of that they are so.
fn counted(told: &str, what: &str) -> u64 {
    let results = told.lines().filter_map(|line| {
        let counts = line.strip_prefix("test result: ok. ")?;
        let mut counts = counts.split("; ");
        counts.find_map(|count| count.strip_suffix(what)?.parse::<u64>().ok())
    });
    results.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_all_programs_are_counted_together() {
        let told = "test result: ok. 40 passed; 0 failed; 1 ignored\ntest a ... ok\ntest result: ok. 2 passed; 0 failed\n";
        assert_eq!(passed(told), Some(42));
        assert_eq!(counted(told, " ignored"), 1);
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed\n"), None);
    }
}
