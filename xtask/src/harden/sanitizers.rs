//! The test suites under the address sanitizer and the thread sanitizer.

use anyhow::{Result, bail};
use std::fmt::Write as _;
use std::process::Command;
use xshell::cmd;

use crate::packages;
use crate::targets::DISTRIBUTION;
use crate::test_programs::{self, TestProgram, counted};
use crate::tools;
use crate::workspace::Workspace;

/// A sanitizer and its settings.
struct Sanitizer {
    name: &'static str,
    /// The environment variable of its settings, and their value.
    settings: (&'static str, &'static str),
    /// Set if the standard library must be instrumented too, and so is built.
    everywhere: bool,
    /// Arguments of cargo for packages that it checks in addition to the common ones.
    extra_packages: Option<&'static str>,
}

const ADDRESS: Sanitizer = Sanitizer {
    name: "address",
    // Adapters that live as long as the process leak their storage on purpose.
    settings: ("ASAN_OPTIONS", "detect_leaks=0"),
    everywhere: false,
    // Their tests use software devices but load libibverbs, which the thread sanitizer would have
    // to instrument.
    extra_packages: Some(
        "--package backend-verbs --features backend-verbs/rdma-core --package dat-ffi",
    ),
};
const THREAD: Sanitizer = Sanitizer {
    name: "thread",
    settings: ("TSAN_OPTIONS", "halt_on_error=1"),
    everywhere: true,
    extra_packages: None,
};

/// The packages whose tests run in one process without system devices or libraries.
const PACKAGES: [&str; 10] = [
    "dat-core",
    "dat-host",
    "dat-rsm",
    "dat-queues",
    "backend-mock",
    "backend-mmio",
    "backend-roce",
    "mmio-model",
    "dat-oracle",
    "dat-tests",
];

/// The package that copies the consumers' bytes.
///
/// The short form runs its tests under the address sanitizer, except the slow ones.
const MOVES_BYTES: &str = "backend-mock";
/// The prefix of its tests with transfers of megabytes.
const SLOW: &str = "chunks::";
/// The core's tests with several threads, which the short form runs under the thread sanitizer.
const MEET: [&str; 17] = [
    "endpoint::tests::lifecycle::events_of_a_dying_endpoint_name_it",
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
    "sync::slots::tests::slots_are_found_while_they_are_made",
];

/// The driver's such test, of words that it shares with a software device.
const SHARED_WORDS: [&str; 1] = ["platform::hal::tests::threads_share_words_and_units"];

/// The most tests in one process.
///
/// The end of a process frees the leaked storage and the sanitizer's records of it.
const AT_ONCE: usize = 100;

/// Runs the suites under each sanitizer; a finding ends its test.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    cmd!(shell, "rustup component add --toolchain nightly rust-src").run()?;
    let host = tools::host(workspace)?;
    let mut table = String::from("| sanitizer | tests without a finding |\n|---|---|\n");
    for sanitizer in [&ADDRESS, &THREAD] {
        let name = sanitizer.name;
        let mut passed = 0;
        for suite in build(workspace, sanitizer, &host)? {
            let count = run_all(&suite, sanitizer)?;
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

/// Runs the short form: the mock under the address sanitizer, threads under the thread sanitizer.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let host = tools::host(workspace)?;
    let mut passed = 0;
    for suite in programs(&mut mock_with_addresses(workspace, &host), &ADDRESS)? {
        let mut names = suite.names()?;
        names.retain(|name| !name.starts_with(SLOW));
        passed += run_these(&suite, &ADDRESS, &names)?;
    }
    if passed == 0 {
        bail!("no test ran under the address sanitizer");
    }
    println!("address: {passed} tests of {MOVES_BYTES}");
    let suites = programs(&mut core_with_threads(workspace, &host)?, &THREAD)?;
    for (package, tests) in [("dat-core", &MEET[..]), ("backend-mmio", &SHARED_WORDS[..])] {
        let of_it = |suite: &&TestProgram| suite.name.replace('_', "-") == package;
        let [suite] = suites.iter().filter(of_it).collect::<Vec<_>>()[..] else {
            bail!("{package} does not have exactly one test program");
        };
        run_threads(suite, tests)?;
        println!("thread: {} tests of {package}", tests.len());
    }
    Ok(())
}

/// Runs a program's tests of several threads under the thread sanitizer.
fn run_threads(suite: &TestProgram, tests: &[&str]) -> Result<()> {
    let (names, package) = (suite.names()?, &suite.name);
    if let Some(gone) = tests
        .iter()
        .find(|name| !names.iter().any(|it| it == *name))
    {
        bail!("{package} no longer has the test {gone}, which the thread sanitizer needs");
    }
    let tests: Vec<String> = tests.iter().map(|name| (*name).to_owned()).collect();
    // An ignored test did not run.
    if run_these(suite, &THREAD, &tests)? != tests.len() as u64 {
        bail!("{package} ignores a thread test");
    }
    Ok(())
}

/// Returns a build for a sanitizer with line tables only, enough to locate a finding.
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

/// Returns a build of core and driver for the thread sanitizer, with Debian's compiler.
///
/// The thread sanitizer must instrument the standard library too, or it does not recognise its
/// locks. A nightly toolchain may lack the library's sources, and nothing may download them.
/// Debian's compiler always has the sources here, but lacks the sanitizer's runtime library, which
/// every nightly has.
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
    // Linked before the parts of the C library that it uses.
    for word in ["-Wl,--whole-archive", &runtime, "-Wl,--no-whole-archive"] {
        flags.push(format!("-Zpre-link-arg={word}"));
    }
    let mut command = short(workspace, &THREAD, host);
    command
        .env("RUSTC", DISTRIBUTION)
        // A stable compiler cannot build the standard library in any other way.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        // No back-traces: their crates take as long to build as the rest of `std`.
        .args([
            "-Zbuild-std=std,panic_unwind,test",
            "-Zbuild-std-features=panic-unwind",
        ])
        .args(["--package", "dat-core", "--features", "dat-core/std"])
        .args(["--package", "backend-mmio"]);
    Ok(command)
}

/// Builds the tests of all packages for the sanitizer.
fn build(workspace: &Workspace, sanitizer: &Sanitizer, host: &str) -> Result<Vec<TestProgram>> {
    let name = sanitizer.name;
    let mut command = Command::new("cargo");
    command
        .current_dir(workspace.root())
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("RUSTFLAGS", format!("-Zsanitizer={name}"))
        // The sanitizer makes the code many times slower.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .args(["test", "--no-run", "--lib", "--tests"])
        .args(["--target", host, "--target-dir"])
        .arg(workspace.target().join("sanitizers").join(name));
    if sanitizer.everywhere {
        command.arg("-Zbuild-std");
    }
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    let extra_packages = sanitizer.extra_packages.into_iter();
    command.args(extra_packages.flat_map(|words| words.split(' ')));
    programs(&mut command, sanitizer)
}

/// Builds test programs.
fn programs(command: &mut Command, sanitizer: &Sanitizer) -> Result<Vec<TestProgram>> {
    let label = format!("the suite for the {} sanitizer", sanitizer.name);
    test_programs::built(command, &label)
}

/// Runs all tests of a program; returns the number that passed.
fn run_all(suite: &TestProgram, sanitizer: &Sanitizer) -> Result<u64> {
    run_these(suite, sanitizer, &suite.names()?)
}

/// Runs these tests in groups of `AT_ONCE`; returns the number that passed.
fn run_these(suite: &TestProgram, sanitizer: &Sanitizer, names: &[String]) -> Result<u64> {
    let (variable, settings) = sanitizer.settings;
    let mut sum = 0;
    for some in names.chunks(AT_ONCE) {
        let output = suite
            .command()
            .env(variable, settings)
            .arg("--exact")
            .args(some)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let wrong = String::from_utf8_lossy(&output.stderr);
        let passed = counted(&text, " passed");
        // Each named test ran or is ignored.
        let all = passed + counted(&text, " ignored") == some.len() as u64;
        if !output.status.success() || !all {
            bail!(
                "{} under the {} sanitizer:\n{text}\n{wrong}",
                suite.name,
                sanitizer.name
            );
        }
        sum += passed;
    }
    Ok(sum)
}
