//! A program of verbs and librdmacm at its limits: memory, descriptors, queue pairs.

mod missing;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Headers of the libraries that the program calls.
const HEADERS: [&str; 2] = [
    "/usr/include/infiniband/verbs.h",
    "/usr/include/rdma/rdma_cma.h",
];
/// Result of the program if no call was refused.
const NOTHING_REFUSED: i32 = 3;

/// The program, compiled.
struct Scarce {
    folder: TempDir,
    library: PathBuf,
}

impl Scarce {
    /// Compiles the program; `None` if a header is missing.
    fn new() -> Option<Self> {
        if HEADERS.iter().any(|header| !Path::new(header).exists()) {
            missing::report_missing("a header of libibverbs or librdmacm");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/scarce.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Werror", "-O1", source, "-o"]);
        compiler.arg(folder.path().join("scarce"));
        let compiled = compiler.args(["-libverbs", "-lrdmacm"]).status();
        assert!(compiled.expect("a C compiler").success());
        let test = std::env::current_exe().expect("the path of this test");
        let library = test.with_file_name("libdat_verbs.so");
        Some(Self { folder, library })
    }

    /// Runs it with one thing scarce; returns true if a call was refused.
    fn run(&self, mode: &str, number: u32) -> bool {
        let output = Command::new("timeout")
            .arg("60")
            .arg(self.folder.path().join("scarce"))
            .args([mode, &number.to_string()])
            .env("LD_PRELOAD", &self.library)
            .output()
            .expect("the program");
        match output.status.code() {
            Some(0) => true,
            Some(NOTHING_REFUSED) => false,
            _ => panic!("{mode} {number}: {output:?}"),
        }
    }

    /// Runs it with some of the numbers below `end`: the first are refused, the last are not.
    fn sweep(&self, mode: &str, end: u32, step: usize) {
        let refused: Vec<bool> = (0..end)
            .step_by(step)
            .map(|number| self.run(mode, number))
            .collect();
        assert_eq!(
            (refused.first(), refused.last()),
            (Some(&true), Some(&false)),
            "{mode}"
        );
    }
}

/// The reserve carries a call to its end; calls that make an object are refused before it is used
/// up.
#[test]
fn without_memory_calls_are_refused() {
    let Some(program) = Scarce::new() else {
        return;
    };
    // The program makes some 250 allocations.
    program.sweep("from", 330, 7);
    for number in (0..260).step_by(3) {
        program.run("once", number);
    }
}

#[test]
fn without_descriptors_calls_are_refused() {
    let Some(program) = Scarce::new() else {
        return;
    };
    program.sweep("files", 32, 1);
}

#[test]
fn a_process_has_ten_thousand_queue_pairs() {
    let Some(program) = Scarce::new() else {
        return;
    };
    program.run("pairs", 10_000);
}
