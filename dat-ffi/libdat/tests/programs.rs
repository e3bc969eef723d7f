//! C programs of this project, compiled with its header and run on the mock.
//!
//! Some also test the provider for 2.0; they are written for both editions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use tempfile::TempDir;

/// Programs for both editions.
const BOTH: &str = "../dat-provider/tests/programs";
/// Programs that run in a guest, on a device.
const GUEST: &str = "../../xtask/vm/programs";
/// Programs for 1.2.
const OWN: &str = "tests/programs";

macro_rules! names {
    (
        calls {
            $($name:ident($($argument:ident: $type:ty),*) $(/ ($($later:ident: $later_type:ty),*))?
                $($gone:ident)? $slot:literal = $module:ident::$function:ident;)*
        }
        later { $($none:tt)* }
        table { $($table:tt)* }
        registry { $($own:ident($($own_argument:ident: $own_type:ty),*) = $does:path;)* }
    ) => {
        /// Names of all calls.
        const CALLS: &[&str] = &[$(stringify!($name),)* $(stringify!($own)),*];
    };
}

dat_ffi::calls_of_dat!(names);

/// Returns the library that cargo built for these tests.
fn library() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let library = test.with_file_name("libdat.so");
    assert!(library.exists(), "there is no {}", library.display());
    library
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Makes a folder with the library as it is installed.
fn installed() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for name in ["libdat.so", "libdat.so.1"] {
        std::os::unix::fs::symlink(library(), folder.path().join(name)).expect("a link");
    }
    folder
}

/// A compiled program in a folder with the library.
struct Program {
    folder: TempDir,
    name: &'static str,
    configuration: PathBuf,
}

/// Checks that the compiler adds: none, or addresses, leaks and undefined behaviour.
const PLAIN: &[&str] = &[];
const SANITIZED: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Compiles a source of a folder with this project's headers and library.
fn compile(folder: &TempDir, programs: &str, source: &str, to: &str, options: &[&str]) {
    let compiled = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-DEDITION_1_2", "-pthread"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-g"])
        .args(options)
        .arg("-o")
        .arg(folder.path().join(to))
        .arg(package().join(programs).join(source))
        .args(["../include", OWN, BOTH].map(|folder| format!("-I{folder}")))
        .arg("-L")
        .arg(folder.path())
        .args(["-ldat", "-ldl"])
        .current_dir(package())
        .output()
        .expect("a C compiler");
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{source}: {errors}");
}

impl Program {
    /// Compiles a program. Its `dat.conf` has no line for 1.x.
    fn new(programs: &str, name: &'static str, options: &[&str]) -> Self {
        let folder = installed();
        compile(&folder, programs, &format!("{name}.c"), name, options);
        let program = Self {
            configuration: folder.path().join("dat.conf"),
            folder,
            name,
        };
        program.configure("# The devices are found.\n");
        program
    }

    fn configure(&self, lines: &str) {
        fs::write(&self.configuration, lines).expect("dat.conf");
    }

    /// Runs the program under the command `by`; returns its output.
    fn run(&self, by: &[&str], arguments: &[&str]) -> String {
        let ran = Command::new("timeout")
            .arg("600")
            .args(by)
            .arg(self.folder.path().join(self.name))
            .args(arguments)
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("DAT_OVERRIDE", &self.configuration)
            .output()
            .expect("the program runs");
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success(),
            "{}: {}: {errors}",
            self.name,
            ran.status
        );
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }
}

/// Compiles a program with the compiler's checks and runs it.
fn run(programs: &str, name: &'static str, arguments: &[&str]) {
    Program::new(programs, name, SANITIZED).run(&[], arguments);
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

/// Spec: EPC-03, EPQ-02, EPM-01, EPS-01, EPV-01, EPW-01, EPW-30, EPW-33, EPB-01, RMB-01, EPD-02,
/// EPR-01
#[test]
fn data_moves_between_two_adapters() {
    run(BOTH, "transfer", &[]);
}

/// Spec: GEN-03, GEN-04, GEN-08, IAC-01, IAC-03, CTX-01, CTX-02, HTY-01, PZF-01, CNF-01, EVQ-01,
/// PSQ-01, RSQ-01, SRY-01, LMQ-01, LSW-18, LSW-19
#[test]
fn wrong_handles_are_refused() {
    run(BOTH, "handles", &[]);
}

/// Spec: LSW-01, LSW-02, LSW-04, LSW-05, LSW-08, LSW-12, LSW-13, LSW-14, LSW-17, LSW-18, LSW-19,
/// LSW-20, LSW-22, LSW-28, LSR-01, LSR-02, LSR-03, LSR-05, LSR-06
#[test]
fn memory_that_is_not_coherent_is_synchronised() {
    synchronised(SANITIZED).run(&[], &[]);
}

/// Compiles the program of synchronising calls, with devices for it in its dat.conf.
fn synchronised(options: &[&str]) -> Program {
    let program = Program::new(BOTH, "sync", options);
    program.configure(
        "mock0 u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n\
         sync u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"mock 2 non-coherent\" \"\"\n",
    );
    program
}

/// Spec: SRC-01, SRF-01, SRQR-01, EPX-01, RSC-03, CRR-01, CRR-02, PSC-02, PSA-01
#[test]
fn buffers_are_shared_and_requests_answered() {
    run(BOTH, "shared", &[]);
}

/// Spec: CNC-01, CNC-02, CNM-01, CNW-01, CNW-04, EVS-01, EVS-03, EVW-02, EVW-06, EVW-07, EVN-04,
/// EVN-05, IAC-02
#[test]
fn threads_wait_and_are_called() {
    run(BOTH, "waits", &[]);
}

/// Spec: EVW-10, CNW-07
#[test]
fn signals_end_waits() {
    run(BOTH, "interrupted", &[]);
}

/// Spec: EVW-02, EVW-06, CNW-01, CNW-06, GEN-03
#[test]
fn threads_are_cancelled_while_they_wait() {
    // AddressSanitizer would still count the frames that a cancelled thread left.
    Program::new(BOTH, "cancel", PLAIN).run(&[], &[]);
}

/// Spec: GEN-03, EPF-01, PSC-02, CNC-02, IAC-02
#[test]
fn late_events_do_not_affect_other_objects() {
    run(BOTH, "late", &[]);
}

/// Spec: GEN-01, GEN-03, GEN-04, GEN-05, GEN-08, GEN-14, EVC-02, EVC-03, EVZ-01, EPK-03, EPD-07,
/// RMB-43, LSW-28, SRC-02, SRC-03, STR-02
#[test]
fn every_call_succeeds_and_is_refused() {
    assert_eq!(CALLS.len(), 72);
    run(OWN, "calls", CALLS);
}

#[test]
fn valgrind_finds_nothing() {
    Program::new(OWN, "calls", PLAIN).run(VALGRIND, CALLS);
    synchronised(PLAIN).run(VALGRIND, &[]);
    for name in ["transfer", "handles", "shared", "waits", "late", "any"] {
        Program::new(BOTH, name, PLAIN).run(VALGRIND, &[]);
    }
}

/// Makes each call as the first one of a thread, with failing allocations.
///
/// Every allocation from the nth on fails, for all n. Then all allocations fail, while the program
/// goes on making objects.
///
/// Spec: IAO-06, PZC-01, LMC-10, RMC-01, CNC-03, EVC-04, EPC-08, EPK-14, EPS-03, EPV-05, EPB-04
#[test]
fn calls_are_refused_while_the_heap_is_exhausted() {
    let swept = Program::new(BOTH, "exhausted", PLAIN).run(&[], &[]);
    let names: Vec<&str> = swept
        .lines()
        .filter_map(|line| line.split([':', ',']).next())
        .collect();
    let missing: Vec<_> = CALLS.iter().filter(|call| !names.contains(call)).collect();
    assert!(missing.is_empty(), "not swept: {missing:?}");
}

/// As on the mock, on RoCEv2 in software.
///
/// Spec: IAO-06, PZC-01, LMC-10, RMC-01, CNC-03, EVC-04, EPC-08, EPK-14, EPS-03, EPV-05, EPB-04
#[test]
fn calls_are_refused_on_roce_while_the_heap_is_exhausted() {
    let program = Program::new(BOTH, "exhausted", PLAIN);
    let [.., high, low] = std::process::id().to_be_bytes();
    program.configure(&format!(
        "mock0 u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"roce 127.95.{high}.{low}\" \"\"\n"
    ));
    program.run(&[], &[]);
}

/// Spec: GEN-01, IAO-01, IAC-01, EPS-01, EPW-01, EPB-01, EPV-01, RMB-01
#[test]
fn no_thread_is_cancelled_in_a_call_that_does_not_wait() {
    Program::new(BOTH, "cancelled", PLAIN).run(&[], &[]);
}

/// Spec: GEN-03, GEN-04, IAO-01
#[test]
fn a_child_cannot_use_the_adapters_of_its_parent() {
    Program::new(BOTH, "fork", PLAIN).run(&[], &[]);
}

/// Spec: GEN-03, GEN-04, IAO-01
#[test]
fn a_child_waits_for_no_thread_of_its_parent() {
    Program::new(BOTH, "forks", PLAIN).run(&[], &[]);
}

/// Programs that move data, fork, cancel threads and lack files, on the device that `DAT_DEVICE`
/// names.
///
/// Spec: IAO-01, EPC-03, EPS-01, EPV-01, EPW-01, EPB-01, RMB-01, EPD-02, GEN-01, GEN-03, GEN-04,
/// EVW-01
#[test]
#[ignore = "needs an RDMA device: the step `verbs` of `cargo xtask test` runs it on dat0"]
fn programs_run_on_a_device() {
    let device = env::var("DAT_DEVICE").expect("the name of a device");
    for name in ["transfer", "fork", "cancelled", "starved"] {
        let program = Program::new(BOTH, name, PLAIN);
        program.configure(&format!(
            "mock0 u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"{device} 1\" \"\"\n"
        ));
        program.run(&[], &[]);
    }
}

/// Spec: GEN-03, GEN-04, IAO-06
#[test]
fn any_value_may_be_given_for_any_handle() {
    run(BOTH, "any", &[]);
}

/// A process with one file left can read the registry and open the mock.
///
/// Once eight had to be free before the registry was read at all.
///
/// Spec: IAO-06, REGL-05
#[test]
fn the_registry_needs_one_file_descriptor() {
    run(GUEST, "exhaust", &["mock0", "descriptors", "1"]);
}

/// Spec: REGL-01, REGL-05, IAO-06, REGA-01, REGA-02, REGR-01, GEN-12
#[test]
fn devices_are_found_without_a_line() {
    run(OWN, "registry", &["found"]);
    run(OWN, "registry", &["threads"]);
}

/// Spec: REGL-02, REGL-05, IAO-06, IAO-07, IAC-07, PINI-01, PINI-02, PINI-03, REGA-01, REGR-01,
/// GEN-03
#[test]
fn lines_name_the_libraries_to_load() {
    let program = Program::new(OWN, "registry", SANITIZED);
    let shared = [SANITIZED, &["-shared", "-fPIC"]].concat();
    compile(&program.folder, OWN, "guest.c", "guest.so", &shared);
    let guest = program.folder.path().join("guest.so");
    let guest = guest.to_str().expect("a path of text");
    program.configure(&format!(
        "ours u1.2 threadsafe default libdat.so.1 dat.0.1 \"mock 7\" \"\"\n\
         guest u1.1 nonthreadsafe default {guest} guest.0.1 \"register me\" \"\"\n\
         silent u1.2 nonthreadsafe default {guest} guest.0.1 \"\" \"\"\n\
         nowhere u1.2 nonthreadsafe default /nowhere/none.so guest.0.1 \"\" \"\"\n\
         none u1.2 nonthreadsafe default libc.so.6 guest.0.1 \"\" \"\"\n\
         twice u1.2 nonthreadsafe default /nowhere/none.so guest.0.1 \"\" \"\"\n\
         twice u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"mock 9\" \"\"\n\
         two u2.0 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n\
         other u1.2 nonthreadsafe nondefault libdat.so.1 dat.0.1 \"mock\" \"\"\n\
         kernel k1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n\
         this is no line\n"
    ));
    program.run(&[], &["configured", guest]);
}

/// Spec: REGL-04, IAO-06
#[test]
fn an_unreadable_file_is_not_replaced_by_a_default() {
    let program = Program::new(OWN, "registry", PLAIN);
    fs::remove_file(&program.configuration).expect("dat.conf was there");
    program.run(&[], &["unreadable"]);
}
