//! Builds all tests in one call of cargo and runs their programs side by side.

use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use xshell::cmd;

use crate::lanes::{in_lanes, processors};
use crate::process::Running;
use crate::scope::Scope;
use crate::test_programs::{self, TestProgram};
use crate::workspace::Workspace;

/// Test programs that need an RDMA device: that of `libdat_verbs.so` here, others in guests.
const OF_DEVICES: [&str; 2] = ["verbs", "verbs_differential"];
/// Tests of windows in the first of these programs, which run with those of type 2, too.
const OF_WINDOWS: [&str; 4] = ["rmb::", "rmb_refusals::", "rmr::", "lifecycles::"];
/// The folder of C libraries, their test programs, and the tests of these that need a device.
const OF_C: (&str, &str, [&str; 2]) = ("dat-ffi", "programs", ["--ignored", "on_a_device"]);
/// Headers that the backend of these programs is built from, and the folder of headers.
const HEADERS: [&str; 2] = ["infiniband/verbs.h", "rdma/rdma_cma.h"];
const INCLUDED: &str = "/usr/include";
/// Test programs in real time: they run without capabilities, as those of ordinary users do, and
/// most of their threads sleep.
const WITHOUT_CAPABILITIES: [&str; 2] = ["roce_processes", "roce_sockets"];
const THREADS: &str = "4";
/// The command that starts them so.
const UNPRIVILEGED: &str = "setpriv --bounding-set -all --inh-caps -all --no-new-privs";
/// Its options for the user of processes without rights.
const NOBODY: &str = "--reuid 65534 --regid 65534 --clear-groups";
/// Tells tests that all packages are installed, so that a program that is missing is a failure.
const ALL_PROGRAMS: &str = "DAT_TEST_ALL_PROGRAMS";
/// The time after which a test program counts as hanging; the slowest takes half a minute alone.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Builds all programs, libraries, examples and tests of a scope.
pub(super) fn build(workspace: &Workspace, scope: Scope) -> Result<()> {
    built(workspace, scope).map(|_programs| ())
}

fn built(workspace: &Workspace, scope: Scope) -> Result<Vec<TestProgram>> {
    test_programs::built(&mut test_programs::build(workspace, scope), "the tests")
}

/// Runs the tests of a scope: programs and documentation.
pub(super) fn run(workspace: &Workspace, scope: Scope) -> Result<()> {
    let mut programs = built(workspace, scope)?;
    let is_named = |name: &&str| programs.iter().any(|program| program.name == **name);
    if scope == Scope::All
        && let Some(name) = OF_DEVICES
            .iter()
            .chain(&WITHOUT_CAPABILITIES)
            .find(|name| !is_named(name))
    {
        bail!("there is no test program {name}, which is known here");
    }
    programs.retain(|program| !OF_DEVICES.contains(&program.name.as_str()));
    ensure!(!programs.is_empty(), "cargo built no tests");
    // The suites are the largest and take longest; short programs fill the lanes at the end.
    programs.sort_by_cached_key(|test| {
        let length = fs::metadata(&test.program).map_or(0, |file| file.len());
        std::cmp::Reverse(length)
    });
    let folder = workspace.target().join("steps/tests");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let is_unprivileged = |test: &TestProgram| WITHOUT_CAPABILITIES.contains(&test.name.as_str());
    let unprivileged = match programs.iter().find(|test| is_unprivileged(test)) {
        Some(test) => without_capabilities(test),
        None => Vec::new(),
    };
    let lanes = (0..processors()).map(|lane| folder.join(format!("{lane}.log")));
    let variables = match scope {
        Scope::All => &[(ALL_PROGRAMS, "1")][..],
        Scope::Default => &[],
    };
    in_lanes(lanes.collect(), &programs, |log, test| {
        let before = is_unprivileged(test).then_some((&unprivileged[..], THREADS));
        run_program(test, before, &[], variables, log)
    })?;
    let scope = scope.arguments();
    cmd!(workspace.shell, "cargo test --doc {scope...}").run()?;
    Ok(())
}

/// Runs the tests of RDMA devices on the device of `libdat_verbs.so`, without capabilities.
///
/// The scope of all members has those of C libraries, too. They share the ports of the device, so
/// they run one at a time.
pub(super) fn run_on_library(workspace: &Workspace, scope: Scope) -> Result<()> {
    if let Some(missing) = HEADERS
        .iter()
        .find(|name| !Path::new(INCLUDED).join(name).exists())
    {
        println!(
            "{} not run: rdma-core's {missing} is not installed (Debian's libibverbs-dev and \
            librdmacm-dev)",
            OF_DEVICES.join(" and ")
        );
        return Ok(());
    }
    let mut command = test_programs::build(workspace, scope);
    if scope == Scope::Default {
        cmd!(workspace.shell, "cargo build --package dat-verbs").run()?;
        command.args(["--package", "dat-tests", "--features", "verbs"]);
        command.args(OF_DEVICES.iter().flat_map(|name| ["--test", name]));
    }
    let programs = test_programs::built(&mut command, "the tests of devices")?;
    let (in_folder, of_c, with) = OF_C;
    let arguments = |test: &TestProgram| -> Option<&[&str]> {
        let is_of_c = test.name == of_c && test.folder.iter().any(|part| part == in_folder);
        let is_of_device = OF_DEVICES.contains(&test.name.as_str());
        is_of_c.then_some(&with[..]).or(is_of_device.then_some(&[]))
    };
    let chosen = programs
        .iter()
        .filter_map(|test| Some((test, arguments(test)?)));
    let chosen: Vec<_> = chosen.collect();
    let libraries = if scope == Scope::All { 3 } else { 0 };
    ensure!(
        chosen.len() == OF_DEVICES.len() + libraries,
        "cargo built {} of the tests of devices",
        chosen.len()
    );
    let folder = workspace.target().join("steps/tests");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (test, arguments) in chosen {
        let on_library = test
            .on_library()
            .map(|(name, value)| format!("{name}={value}"));
        let mut before = without_capabilities(test);
        before.push("env");
        before.extend(on_library.iter().map(String::as_str));
        let log = folder.join("library.log");
        run_program(test, Some((&before, "1")), arguments, &[], &log)?;
        if test.name == OF_DEVICES[0] {
            before.push("DAT_WINDOWS=2");
            run_program(test, Some((&before, "1")), &OF_WINDOWS, &[], &log)?;
        }
    }
    Ok(())
}

/// Runs a test program and prints its output at its end, so that outputs do not mix.
///
/// For a program in real time, `before` are the words that precede its command, and the number of
/// its threads; `arguments` names the tests to run, if not all.
fn run_program(
    test: &TestProgram,
    before: Option<(&[&str], &str)>,
    arguments: &[&str],
    variables: &[(&str, &str)],
    log: &Path,
) -> Result<()> {
    let mut command = match before.and_then(|(words, _)| words.split_first()) {
        None => test.command(),
        Some((first, words)) => {
            let mut command = test.command_of(first);
            command.args(words).arg(&test.program);
            command
        }
    };
    command.envs(variables.iter().copied());
    if let Some((_, threads)) = before {
        command.env("RUST_TEST_THREADS", threads);
    }
    let name = &test.name;
    let (begin, output) = (Instant::now(), File::create(log)?);
    let process = command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot run the tests {name}"))?;
    let status = Running(process).end_within(PATIENCE)?;
    let text = fs::read(log)?;
    let text = String::from_utf8_lossy(&text);
    let seconds = begin.elapsed().as_secs_f64();
    // One call, so that the outputs of two lanes do not mix.
    print!(
        "\n     Ran {name} of {} in {seconds:.1} s\n{text}",
        test.folder
    );
    match status {
        None => bail!("tests {name} did not end within {} s", PATIENCE.as_secs()),
        Some(status) if !status.success() => bail!("tests {name} failed ({status})"),
        // A program that ends early, without the harness, would pass with no test.
        Some(_) if !text.contains("test result: ok. ") => bail!("tests {name} have no result"),
        Some(_) => Ok(()),
    }
}

/// Returns the words that start a program without capabilities, also if root runs this one.
///
/// There are none where this user may not drop them: an ordinary user has none, and in some
/// containers root may not.
fn without_capabilities(test: &TestProgram) -> Vec<&'static str> {
    // That user also stands for users that a namespace does not map. Shared memory takes it only
    // where there are none (ROCE-218).
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let options: &[&str] = match map.split_whitespace().nth(2) {
        Some("4294967295") => &[NOBODY, ""],
        _ => &[""],
    };
    for options in options {
        let words = UNPRIVILEGED.split(' ').chain(options.split_whitespace());
        let words: Vec<&str> = words.collect();
        let mut lists = test.command_of("env");
        lists.args(&words).arg(&test.program).arg("--list");
        let listed = lists.stdin(Stdio::null()).output();
        // Another user may have no way to the program.
        if listed.is_ok_and(|listed| listed.status.success()) {
            println!("  without capabilities: {}", words.join(" "));
            return words;
        }
    }
    println!("  this user may not drop capabilities: the tests run with those that it has");
    Vec::new()
}
