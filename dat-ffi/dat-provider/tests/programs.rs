//! C programs of this project, compiled with the packaged headers and the packaged registry.
//!
//! They run with the packaged registry and with this project's; both load the provider.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use tempfile::TempDir;

/// Returns a library that cargo built for these tests.
fn library(name: &str) -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let library = test.with_file_name(name);
    assert!(library.exists(), "there is no {}", library.display());
    library
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// A compiled program in a folder with its `dat.conf`.
struct Built {
    folder: TempDir,
    name: &'static str,
}

/// Compiles a program and writes a `dat.conf` with the mock as `mock0`.
fn build(name: &'static str, arguments: &[&str]) -> Built {
    let folder = TempDir::new().expect("a folder");
    let line = format!(
        "mock0 u2.0 nonthreadsafe default {} dat.0.1 \"mock\" \"\"\n",
        library("libdat_provider.so").display()
    );
    fs::write(folder.path().join("dat.conf"), line).expect("dat.conf");
    let compiled = Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ])
        .args([
            "-Wno-unused-function",
            "-Wno-discarded-qualifiers",
            "-g",
            "-o",
        ])
        .arg(folder.path().join(name))
        .arg(programs().join(name).with_extension("c"))
        .args(arguments)
        .arg("-ldat2")
        .output()
        .expect("a C compiler");
    show(&compiled);
    assert!(compiled.status.success(), "{name}.c does not compile");
    Built { folder, name }
}

/// Checks that the compiler adds: addresses, leaks and undefined behaviour.
const SANITIZED: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Compiles a program with the compiler's checks; runs it with both registries.
fn run(name: &'static str) {
    run_built(&build(name, SANITIZED));
}

fn run_built(built: &Built) {
    // Leaks of the packaged registry are not checked.
    let packaged = run_alone(built, &[("ASAN_OPTIONS", "detect_leaks=0")]);
    show(&packaged);
    assert!(
        packaged.status.success(),
        "{}: {}",
        built.name,
        packaged.status
    );
    run_with_ours(built, &[]);
}

/// Runs a program with this project's registry.
fn run_with_ours(built: &Built, variables: &[(&str, &str)]) -> Output {
    run_with_ours_by(&[], built, variables)
}

/// Runs a program with this project's registry, under the command `by`.
fn run_with_ours_by(by: &[&str], built: &Built, variables: &[(&str, &str)]) -> Output {
    let libraries = built.folder.path().join("libraries");
    fs::create_dir_all(&libraries).expect("a folder");
    fs::copy(library("libdat2.so"), libraries.join("libdat2.so.2")).expect("the registry");
    let path = libraries.to_str().expect("a path of text");
    let variables = [variables, &[("LD_LIBRARY_PATH", path)]].concat();
    let ours = run_by(by, built, &variables);
    show(&ours);
    let (name, status) = (built.name, ours.status);
    assert!(status.success(), "{name} with our registry: {status}");
    ours
}

fn run_alone(built: &Built, variables: &[(&str, &str)]) -> Output {
    run_by(&[], built, variables)
}

fn run_by(by: &[&str], built: &Built, variables: &[(&str, &str)]) -> Output {
    Command::new("timeout")
        .arg("600")
        .args(by)
        .arg(built.folder.path().join(built.name))
        .env("DAT_OVERRIDE", built.folder.path().join("dat.conf"))
        .envs(variables.iter().copied())
        .output()
        .expect("the program runs")
}

fn show(output: &Output) {
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}

/// Spec: IAO-01, IAO-02, IAO-04, IAO-06, IAQ-03, IAQ-05, IAC-01, IAC-06, CTX-01, HTY-01
#[test]
fn adapters_are_opened_queried_and_closed() {
    run("open");
}

/// A post on the mock only wakes threads: it asks the system nothing about pointers or memory.
///
/// Spec: EPW-01
#[test]
fn a_post_on_the_mock_only_wakes_threads() {
    run_with_ours(&build("syscalls", &[]), &[]);
}

/// Spec: EPC-03, EPQ-02, EPM-01, EPS-01, EPV-01, EPW-01, EPW-30, EPW-33, EPB-01, RMB-01, EPD-02,
/// EPR-01
#[test]
fn data_moves_between_two_adapters() {
    run("transfer");
}

/// Spec: GEN-03, GEN-04, GEN-08, IAC-01, IAC-03, CTX-01, CTX-02, HTY-01, PZF-01, CNF-01, EVQ-01,
/// PSQ-01, RSQ-01, SRY-01, LMQ-01, LSW-18, LSW-19
#[test]
fn wrong_handles_are_refused() {
    run("handles");
}

/// Spec: DTO-04, DTO-05, DTO-06, DTO-07, IAQ-11
#[test]
fn extended_operations_work_if_enabled() {
    run_built(&extended(SANITIZED));
}

/// Spec: LSW-01, LSW-02, LSW-04, LSW-05, LSW-08, LSW-12, LSW-13, LSW-14, LSW-17, LSW-18, LSW-19,
/// LSW-20, LSW-22, LSW-28, LSR-01, LSR-02, LSR-03, LSR-05, LSR-06
#[test]
fn memory_that_is_not_coherent_is_synchronised() {
    run_built(&with_device("sync", SANITIZED, "mock 2 non-coherent"));
}

/// Compiles the program of the extended operations, with a device for it in its dat.conf.
fn extended(options: &[&str]) -> Built {
    with_device("extended", options, "mock 2 extended")
}

/// Compiles a program, with a second device in its dat.conf that has the program's name.
fn with_device(name: &'static str, options: &[&str], device: &str) -> Built {
    let built = build(name, options);
    let file = built.folder.path().join("dat.conf");
    let line = fs::read_to_string(&file).expect("dat.conf");
    let second = line
        .replace("mock0", name)
        .replace("\"mock\"", &format!("\"{device}\""));
    fs::write(&file, line + &second).expect("dat.conf");
    built
}

/// Builds a program whose device `mock0` is RoCEv2 in software, at an address of its own.
fn on_roce(name: &'static str, number: u8, options: &[&str]) -> Built {
    on_roce_by(name, number, "", options)
}

/// As `on_roce`, with options of the address.
fn on_roce_by(name: &'static str, number: u8, address: &str, options: &[&str]) -> Built {
    let built = build(name, options);
    let file = built.folder.path().join("dat.conf");
    let line = fs::read_to_string(&file).expect("dat.conf");
    let [.., high, low] = std::process::id().to_be_bytes();
    let device = format!("\"roce 127.{}.{high}.{low}{address}\"", 96 + number);
    fs::write(&file, line.replace("\"mock\"", &device)).expect("dat.conf");
    built
}

/// The programs that move data run on RoCEv2 in software, too.
///
/// Spec: IAO-01, EPC-03, EPS-01, EPV-01, EPW-01, EPB-01, RMB-01, EPD-02, SRC-01, CNW-01, CNW-07,
/// EVW-10, GEN-03
#[test]
fn programs_run_on_roce_in_software() {
    let programs = [
        "transfer",
        "shared",
        "waits",
        "late",
        "handles",
        "agents",
        "interrupted",
    ];
    for (number, name) in (0..).zip(programs) {
        run_built(&on_roce(name, number, SANITIZED));
    }
    // As on the mock: without the sanitizer, and the second only with this project's registry.
    run_built(&on_roce("cancel", 7, &[]));
    run_with_ours(&on_roce("cancelled", 8, &[]), &[]);
}

/// Programs that move data, fork, cancel threads and lack files, on the device that `DAT_DEVICE`
/// names.
///
/// Spec: IAO-01, EPC-03, EPS-01, EPV-01, EPW-01, EPB-01, RMB-01, EPD-02, CNW-01, GEN-01, GEN-03,
/// GEN-04, EVW-01
#[test]
#[ignore = "needs an RDMA device: the step `verbs` of `cargo xtask test` runs it on dat0"]
fn programs_run_on_a_device() {
    let device = env::var("DAT_DEVICE").expect("the name of a device");
    for name in ["transfer", "waits", "late", "fork", "cancelled", "starved"] {
        let built = build(name, &[]);
        let file = built.folder.path().join("dat.conf");
        let line = fs::read_to_string(&file).expect("dat.conf");
        let device = format!("\"{device} 1\"");
        fs::write(&file, line.replace("\"mock\"", &device)).expect("dat.conf");
        run_with_ours(&built, &[]);
    }
}

/// Spec: SRC-01, SRF-01, SRQR-01, EPX-01, RSC-03, CRR-01, CRR-02, PSC-02, PSA-01
#[test]
fn buffers_are_shared_and_requests_answered() {
    run("shared");
}

/// Spec: CNC-01, CNC-02, CNM-01, CNW-01, CNW-04, EVS-01, EVS-03, EVW-02, EVW-06, EVW-07, EVN-04,
/// EVN-05, IAC-02
#[test]
fn threads_wait_and_are_called() {
    run("waits");
}

/// Spec: EVW-10, CNW-07
#[test]
fn signals_end_waits() {
    run("interrupted");
}

/// Makes each call as the first one of a thread, with failing allocations.
///
/// Every allocation from the nth on fails, for all n. Then all allocations fail, while the program
/// goes on making objects.
///
/// Spec: IAO-06, PZC-01, LMC-10, RMC-01, CNC-03, EVC-04, EPC-08, EPK-14, EPS-03, EPV-05, EPB-04
#[test]
fn calls_are_refused_while_the_heap_is_exhausted() {
    run_with_ours(&build("exhausted", &[]), &[]);
}

/// As on the mock, on RoCEv2 in software, whose tables are larger and whose thread is its own.
///
/// Spec: IAO-06, PZC-01, LMC-10, RMC-01, CNC-03, EVC-04, EPC-08, EPK-14, EPS-03, EPV-05, EPB-04
#[test]
fn calls_are_refused_on_roce_while_the_heap_is_exhausted() {
    run_with_ours(&on_roce("exhausted", 8, &[]), &[]);
}

/// As above, for connections through queues in memory.
///
/// Spec: IAO-06, PZC-01, LMC-10, RMC-01, CNC-03, EVC-04, EPC-08, EPK-14, EPS-03, EPV-05, EPB-04
#[test]
fn calls_are_refused_on_queues_in_memory_while_the_heap_is_exhausted() {
    run_with_ours(&on_roce_by("exhausted", 9, "?path=local", &[]), &[]);
}

/// Spec: EVW-02, EVW-06, CNW-01, CNW-06, GEN-03
#[test]
fn threads_are_cancelled_while_they_wait() {
    // AddressSanitizer would still count the frames that a cancelled thread left.
    run_built(&build("cancel", &[]));
}

/// Not with the packaged registry, which opens its files itself and may be cancelled there.
///
/// Spec: GEN-01, IAO-01, IAC-01, EPS-01, EPW-01, EPB-01, EPV-01, RMB-01
#[test]
fn no_thread_is_cancelled_in_a_call_that_does_not_wait() {
    run_with_ours(&build("cancelled", &[]), &[]);
}

/// On the mock a wait needs no file; `programs_run_on_a_device` has another wait.
///
/// Spec: EVW-01, CNW-01
#[test]
fn waits_go_on_while_no_file_can_be_opened() {
    run_built(&build("starved", &[]));
}

/// Spec: CNC-02, CNW-05, CNF-01, IAC-01, IAC-02
#[test]
fn agents_are_called_once_and_not_after_the_free() {
    run("agents");
}

/// Spec: GEN-03, EPF-01, PSC-02, CNC-02, IAC-02
#[test]
fn late_events_do_not_affect_other_objects() {
    run("late");
}

/// Without a line in dat.conf, this project's registry finds the provider by its name.
///
/// Spec: IAO-06, REGL-05
#[test]
fn our_registry_finds_our_provider_without_a_line() {
    let built = build("fork", &[]);
    let libraries = built.folder.path().join("libraries");
    fs::create_dir_all(&libraries).expect("a folder");
    for (from, to) in [
        ("libdat2.so", "libdat2.so.2"),
        ("libdat_provider.so", "libdat_provider.so.2"),
    ] {
        fs::copy(library(from), libraries.join(to)).expect("a library");
    }
    let ran = Command::new("timeout")
        .arg("600")
        .arg(built.folder.path().join(built.name))
        .env_remove("DAT_OVERRIDE")
        .env("LD_LIBRARY_PATH", &libraries)
        .output()
        .expect("the program runs");
    show(&ran);
    assert!(ran.status.success(), "{}", ran.status);
}

/// Calls of a child on its parent's objects are refused; the child may open its own.
///
/// Spec: GEN-03, GEN-04, IAO-01
#[test]
fn a_child_cannot_use_the_adapters_of_its_parent() {
    // The sanitizer's allocator does not unlock its locks in a child.
    run_built(&build("fork", &[]));
}

/// Not with the packaged registry, which has locks of its own.
///
/// Spec: GEN-03, GEN-04, IAO-01
#[test]
fn a_child_waits_for_no_thread_of_its_parent() {
    run_with_ours(&build("forks", &[]), &[]);
}

const VALGRIND: &[&str] = &[
    "valgrind",
    "--quiet",
    // A thread that spins could otherwise keep all others from running for minutes.
    "--fair-sched=yes",
    "--error-exitcode=9",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
];

/// Spec: GEN-03, IAC-05
#[test]
fn valgrind_finds_nothing() {
    for name in [
        "transfer", "handles", "shared", "waits", "late", "agents", "cancel",
    ] {
        run_with_ours_by(VALGRIND, &build(name, &[]), &[]);
    }
    run_with_ours_by(VALGRIND, &extended(&[]), &[]);
    let sync = with_device("sync", &[], "mock 2 non-coherent");
    run_with_ours_by(VALGRIND, &sync, &[]);
}

/// This project's registry refuses handles that the packaged one would follow to unmapped memory.
///
/// Spec: GEN-03, GEN-04
#[test]
fn any_value_may_be_given_for_any_handle() {
    run_with_ours(&build("any", SANITIZED), &[]);
}

/// Spec: IAO-01, IAO-06, REGL-01, REGL-02, REGL-03, REGL-05, REGA-01, REGA-02, REGR-01, PINI-01,
/// PINI-02, STR-01, STR-02
#[test]
fn our_registry_finds_providers_and_says_why_not() {
    let built = build("registry", &[]);
    let file = built.folder.path().join("dat.conf");
    let mut lines = fs::read_to_string(&file).expect("dat.conf");
    let far = lines
        .replace("mock0", "far")
        .replace("\"mock\"", "\"mock 300\"");
    lines += "broken\n\
              nowhere u2.0 nonthreadsafe default /nowhere/at-all.so dat.0.1 \"\" \"\"\n\
              no-provider u2.0 nonthreadsafe default libc.so.6 dat.0.1 \"\" \"\"\n\
              one u1.2 nonthreadsafe default libc.so.6 dat.0.1 \"\" \"\"\n\
              kernel k2.0 nonthreadsafe default libc.so.6 dat.0.1 \"\" \"\"\n\
              ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"127.0.0.1 0\" \"\"\n";
    // The entry whose library can be loaded comes second.
    lines = format!(
        "mock0 u2.0 nonthreadsafe default /nowhere/first.so dat.0.1 \"\" \"\"\n{lines}{far}"
    );
    fs::write(&file, lines).expect("dat.conf");
    let ran = run_with_ours(&built, &[("DAT_DBG_TYPE", "1")]);
    let errors = String::from_utf8_lossy(&ran.stderr);
    for line in [
        "dat.conf:1: /nowhere/first.so: it cannot be loaded: ",
        "dat.conf:3: 1 field instead of 8",
        "dat.conf:4: /nowhere/at-all.so: it cannot be loaded: ",
        "dat.conf:5: libc.so.6: dat_provider_init: the library does not export this symbol",
        "a mock device needs a host number from 1 to 254",
    ] {
        assert!(errors.contains(line), "no {line} in\n{errors}");
    }
    // If messages cannot be written, the results are the same.
    let full = fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("what is always full");
    let ran = Command::new("timeout")
        .arg("60")
        .arg(built.folder.path().join(built.name))
        .env("DAT_OVERRIDE", &file)
        .env("DAT_DBG_TYPE", "1")
        .env("LD_LIBRARY_PATH", built.folder.path().join("libraries"))
        .stderr(full)
        .status()
        .expect("the program runs");
    assert!(ran.success(), "with nobody to tell: {ran}");
}
