//! C programs of ours, compiled against the packaged headers and run with the packaged registry, which loads the provider.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use tempfile::TempDir;

/// The provider, beside the tests that cargo built it for.
fn provider() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let library = test.with_file_name("libdat_provider.so");
    assert!(library.exists(), "there is no {}", library.display());
    library
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Where a program and its `dat.conf` are.
struct Built {
    folder: TempDir,
    name: &'static str,
}

/// Compiles a program and writes a `dat.conf` with the mock as `mock0`.
fn build(name: &'static str, arguments: &[&str]) -> Built {
    let folder = TempDir::new().expect("a folder");
    let line = format!(
        "mock0 u2.0 nonthreadsafe default {} dat.0.1 \"mock\" \"\"\n",
        provider().display()
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

fn run(built: &Built) -> Output {
    let ran = Command::new("timeout")
        .arg("60")
        .arg(built.folder.path().join(built.name))
        .env("DAT_OVERRIDE", built.folder.path().join("dat.conf"))
        .output()
        .expect("the program runs");
    show(&ran);
    assert!(ran.status.success(), "{}: {}", built.name, ran.status);
    ran
}

fn show(output: &Output) {
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}

/// Spec: IAO-01, IAO-02, IAO-04, IAO-06, IAQ-03, IAQ-05, IAC-01, IAC-06, CTX-01, HTY-01
#[test]
fn adapters_are_opened_asked_and_closed() {
    run(&build("open", &[]));
}

/// Spec: EPC-03, EPQ-02, EPM-01, EPS-01, EPV-01, EPW-01, EPW-30, EPW-33, EPB-01, RMB-01, EPD-02, EPR-01
#[test]
fn data_moves_between_two_adapters() {
    run(&build("transfer", &[]));
}

/// Spec: GEN-03, GEN-04, GEN-08, IAC-01, IAC-03, CTX-01, CTX-02, HTY-01, PZF-01, CNF-01, EVQ-01, PSQ-01, RSQ-01, SRY-01, LMQ-01, LSW-18, LSW-19
#[test]
fn wrong_handles_are_refused() {
    run(&build("handles", &[]));
}

/// Spec: SRC-01, SRF-01, SRQR-01, EPX-01, RSC-03, CRR-01, CRR-02, PSC-02, PSA-01
#[test]
fn buffers_are_shared_and_requests_answered() {
    run(&build("shared", &[]));
}

/// Spec: CNC-01, CNC-02, CNM-01, CNW-01, CNW-04, EVS-01, EVS-03, EVW-02, EVW-06, EVW-07, EVN-04, EVN-05, IAC-02
#[test]
fn threads_wait_and_are_called() {
    run(&build("waits", &[]));
}

/// Spec: GEN-03, EPF-01, PSC-02, CNC-02, IAC-02
#[test]
fn what_comes_late_leaves_others_alone() {
    run(&build("late", &[]));
}
