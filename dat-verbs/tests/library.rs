//! The library as programs meet it: linked, opened by name, and beside rdma-core's own.

#![expect(unsafe_code, reason = "libraries are opened by name")]

mod missing;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::env;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use missing::report_missing;

macro_rules! listed {
    (
        $($version:literal { $($how:ident $sign:tt $($name:ident)*;)* })*
        old { $($old:literal { $($refusal:ident : $($old_name:ident)*;)* })* }
    ) => {
        /// Names and versions of the list.
        const LISTED: &[(&str, &str)] = &[
            $($($((stringify!($name), $version),)*)*)*
            $($($((stringify!($old_name), $old),)*)*)*
        ];
    };
}

dat_verbs::calls_of_verbs!(listed);

/// Names that a program opens, where rdma-core is installed.
const NAMES: [&CStr; 2] = [c"libibverbs.so.1", c"librdmacm.so.1"];

/// Returns the library that cargo built for these tests.
fn library() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let library = test.with_file_name("libdat_verbs.so");
    assert!(library.exists(), "there is no {}", library.display());
    library
}

/// A library that is open, in a scope of its own.
struct Open(*mut c_void);

impl Open {
    fn new(name: &CStr) -> Option<Self> {
        // SAFETY: the name ends with a zero byte; both libraries may be loaded anywhere.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Self(handle))
    }

    fn ours() -> Self {
        let name = CString::new(library().as_os_str().as_bytes()).expect("a path");
        Self::new(&name).expect("the library")
    }

    /// Returns a function of a version; of any on AArch64, where the names have none.
    fn versioned(&self, name: &str, version: &str) -> *mut c_void {
        let text = |text: &str| CString::new(text).expect("a text");
        let (name, version) = (text(name), text(version));
        // SAFETY: the library is open, and the texts end with a zero byte.
        unsafe { libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()) }
    }

    fn function(&self, name: &CStr) -> *mut c_void {
        // SAFETY: as above.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// Calls a function of a number that returns a number.
    fn number(&self, name: &CStr, argument: c_int) -> c_int {
        let function = self.function(name);
        assert!(!function.is_null(), "{name:?}");
        // SAFETY: the functions that the test names have this type.
        let function: extern "C" fn(c_int) -> c_int = unsafe { core::mem::transmute(function) };
        function(argument)
    }

    /// Calls a function of a number that returns a text.
    fn text(&self, name: &CStr, argument: c_int) -> String {
        let function = self.function(name);
        assert!(!function.is_null(), "{name:?}");
        // SAFETY: as above.
        let function: extern "C" fn(c_int) -> *const c_char =
            unsafe { core::mem::transmute(function) };
        // SAFETY: the functions return a text that stays.
        let text = unsafe { CStr::from_ptr(function(argument)) };
        text.to_string_lossy().into_owned()
    }
}

/// Returns the file that an address belongs to.
fn file_of(address: *const c_void) -> PathBuf {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: there is room for what is known of the address.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    assert_ne!(found, 0);
    // SAFETY: the call filled it, with the name of a library that is loaded.
    let name = unsafe { CStr::from_ptr(info.assume_init().dli_fname) };
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).to_owned()
}

#[test]
fn each_function_has_its_version() {
    let ours = Open::ours();
    for (name, version) in LISTED {
        let found = ours.versioned(name, version);
        assert!(!found.is_null(), "{name}@{version}");
        assert_eq!(file_of(found).file_name(), library().file_name(), "{name}");
    }
    assert!(ours.versioned("ibv_open_device", "IBVERBS_1.2").is_null());
    assert!(!ours.function(c"ibv_query_gid_type").is_null());
}

/// Runs a test of this program alone, with the library preloaded.
fn preloaded(test: &str) -> Output {
    Command::new(env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env("LD_PRELOAD", library())
        .output()
        .expect("this program runs")
}

#[test]
fn a_program_that_opens_by_name_gets_it() {
    if env::var_os("LD_PRELOAD").is_none() {
        let output = preloaded("a_program_that_opens_by_name_gets_it");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    for name in NAMES {
        let open = Open::new(name).expect("the library");
        for (function, version) in [
            ("ibv_get_device_list", "IBVERBS_1.1"),
            ("rdma_create_id", "RDMACM_1.0"),
        ] {
            let found = open.versioned(function, version);
            assert_eq!(file_of(found).file_name(), library().file_name());
        }
    }
    let other = Open::new(c"libm.so.6").expect("the library of mathematics");
    let found = file_of(other.function(c"cos"));
    assert!(found.ends_with("libm.so.6"), "{}", found.display());
    assert!(Open::new(c"libibverbs.so.9").is_none());
}

#[test]
fn the_file_of_the_device_is_there() {
    if env::var_os("LD_PRELOAD").is_none() {
        let output = preloaded("the_file_of_the_device_is_there");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let stat = |path: &CStr| {
        let mut found = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the path ends with a zero byte, and there is room for the answer.
        let failed = unsafe { libc::stat(path.as_ptr(), found.as_mut_ptr()) };
        // SAFETY: all bits are zero, or the answer of the system.
        (failed == 0).then(|| unsafe { found.assume_init() }.st_mode & libc::S_IFMT)
    };
    let is_accessible = |path: &CStr| {
        // SAFETY: the path ends with a zero byte.
        unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
    };
    let device = c"/dev/infiniband/uverbs0";
    assert_eq!(stat(device), Some(libc::S_IFCHR));
    assert!(is_accessible(device));
    assert_eq!(stat(c"/sys/class/infiniband"), Some(libc::S_IFDIR));
    assert_eq!(stat(c"/dev"), Some(libc::S_IFDIR));
    for missing in [c"/dev/infiniband/uverbs99", c""] {
        assert!(stat(missing).is_none() && !is_accessible(missing));
    }
}

/// Returns the folder with libraries of rdma-core; says so if there is none.
fn installed() -> Option<PathBuf> {
    let folder = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ]
    .map(Path::new)
    .into_iter()
    .find(|folder| folder.join("libibverbs.so.1").exists());
    if folder.is_none() {
        report_missing("libibverbs");
    }
    folder.map(Path::to_owned)
}

/// Returns names and versions of the public functions of a library of rdma-core.
fn public(library: &Path) -> Vec<(String, String)> {
    let output = Command::new("nm")
        .args(["--dynamic", "--with-symbol-versions", "--defined-only"])
        .arg(library)
        .output()
        .expect("nm");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.split_once('@'))
        .map(|(name, version)| (name.to_owned(), version.trim_start_matches('@').to_owned()))
        .filter(|(_, version)| !version.contains("PRIVATE"))
        .collect()
}

#[test]
fn no_function_of_rdma_core_is_missing() {
    let Some(folder) = installed() else {
        return;
    };
    for (name, last) in [
        ("libibverbs.so.1", "IBVERBS_1.14"),
        ("librdmacm.so.1", "RDMACM_1.3"),
    ] {
        let public = public(&folder.join(name));
        assert!(public.len() > 50, "{name}: {public:?}");
        let lacks: Vec<_> = public
            .iter()
            .filter(|(name, version)| !LISTED.contains(&(name, version)))
            .collect();
        // Later releases have further versions.
        let is_later = lacks.iter().all(|(_, version)| is_after(version, last));
        assert!(is_later, "{lacks:?}");
        if !lacks.is_empty() {
            println!("{name} of a later release has also {lacks:?}");
        }
    }
}

/// Returns true if a version is of a later release.
fn is_after(version: &str, last: &str) -> bool {
    let number = |version: &str| version.rsplit('.').next()?.parse::<u32>().ok();
    number(version) > number(last)
}

#[test]
fn names_and_rates_are_those_of_rdma_core() {
    let Some(folder) = installed() else {
        return;
    };
    let theirs = |name: &str| {
        let path = folder.join(name);
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
        Open::new(&path).expect("a library of rdma-core")
    };
    let (verbs, connections) = (theirs("libibverbs.so.1"), theirs("librdmacm.so.1"));
    let ours = Open::ours();
    for argument in -2..60 {
        for name in [
            c"ibv_node_type_str",
            c"ibv_port_state_str",
            c"ibv_event_type_str",
            c"ibv_wc_status_str",
        ] {
            let its = verbs.text(name, argument);
            assert_eq!(ours.text(name, argument), its, "{name:?} {argument}");
        }
        let its = connections.text(c"rdma_event_str", argument);
        assert_eq!(ours.text(c"rdma_event_str", argument), its, "{argument}");
    }
    let multiples = -1..500;
    let megabits = (0..1_300_000)
        .step_by(1)
        .filter(|number| number % 25 == 0 || number % 31 < 3);
    for (name, arguments) in [
        (c"ibv_rate_to_mult", (-2..60).collect::<Vec<c_int>>()),
        (c"ibv_rate_to_mbps", (-2..60).collect()),
        (c"mult_to_ibv_rate", multiples.collect()),
        (c"mbps_to_ibv_rate", megabits.collect()),
    ] {
        for argument in arguments {
            let its = verbs.number(name, argument);
            assert_eq!(ours.number(name, argument), its, "{name:?} {argument}");
        }
    }
}

/// Runs a program of rdma-core over the library; `None` if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env("DAT_VERBS_ADDRESS", "127.0.0.1")
        .output();
    let Ok(output) = output else {
        report_missing(program);
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

type List = extern "C" fn(*mut c_int) -> *mut *mut c_void;
type Make = extern "C" fn(*mut c_void) -> *mut c_void;
type End = extern "C" fn(*mut c_void) -> c_int;

/// Calls of the library.
struct Calls {
    list: List,
    open: Make,
    make: Make,
    end: End,
}

impl Calls {
    fn of(library: &Open) -> Self {
        let function = |name| {
            let function = library.function(name);
            assert!(!function.is_null(), "{name:?}");
            function
        };
        let list = function(c"ibv_get_device_list");
        let (open, make) = (function(c"ibv_open_device"), function(c"ibv_alloc_pd"));
        let end = function(c"ibv_dealloc_pd");
        // SAFETY: the functions of these names have these types.
        unsafe {
            Self {
                list: core::mem::transmute::<*mut c_void, List>(list),
                open: core::mem::transmute::<*mut c_void, Make>(open),
                make: core::mem::transmute::<*mut c_void, Make>(make),
                end: core::mem::transmute::<*mut c_void, End>(end),
            }
        }
    }

    fn open(&self) -> *mut c_void {
        let list = (self.list)(core::ptr::null_mut());
        // SAFETY: the list ends with null, and has the device before that.
        (self.open)(unsafe { *list })
    }

    /// Opens the device and makes a protection domain; returns false if that fails.
    fn make_a_domain(&self) -> bool {
        !(self.make)(self.open()).is_null()
    }
}

/// Locks of the library may be held by another thread at the time of the fork.
#[test]
fn a_child_has_an_adapter_of_its_own() {
    const CHILDREN: usize = 20;
    let calls = Calls::of(&Open::ours());
    assert!(calls.make_a_domain());
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let context = calls.open();
            while !ends.load(Ordering::Relaxed) {
                assert_eq!((calls.end)((calls.make)(context)), 0);
            }
        });
        for _ in 0..CHILDREN {
            check_child(&calls);
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert!(calls.make_a_domain(), "the parent's is as it was");
}

/// Forks a child, which opens the device, and expects its end.
fn check_child(calls: &Calls) {
    // SAFETY: the child makes calls of the library, which take no lock of the parent, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that waits for ever is ended.
        unsafe { libc::alarm(20) };
        let code = if calls.make_a_domain() { 7 } else { 1 };
        // SAFETY: the call ends the process.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the status is a variable of this function.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    assert!(libc::WIFEXITED(status), "{status}");
    assert_eq!(libc::WEXITSTATUS(status), 7);
}

/// Modules of rdma-core's own tests that the library passes.
const PASSED: [&str; 12] = [
    "test_addr",
    "test_atomic",
    "test_cq",
    "test_cq_events",
    "test_cqex",
    "test_device",
    "test_fork",
    "test_mr",
    "test_pd",
    "test_qp",
    "test_qpex",
    "test_relaxed_ordering",
];

/// Some of their tests that are not skipped.
const RUN: [&str; 5] = [
    "test_mw_type1",
    "test_mw_type2",
    "test_mw_type2_invalidate_dealloc",
    "test_mw_type2_invalidate_local",
    "test_mw_type2_invalidate_remote",
];

/// They skip what the library lacks.
#[test]
fn rdma_cores_own_tests_pass() {
    let tests = Path::new("/usr/share/doc/rdma-core/tests");
    if !tests.join("run_tests.py").exists() {
        report_missing("python3-pyverbs");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let copies = folder.path().join("tests");
    std::fs::create_dir(&copies).expect("a folder");
    for entry in std::fs::read_dir(tests).expect("the tests").flatten() {
        std::fs::copy(entry.path(), copies.join(entry.file_name())).expect("a copy");
    }
    let packed = Command::new("sh")
        .args(["-c", "gunzip *.gz"])
        .current_dir(&copies)
        .status();
    assert!(packed.expect("gunzip").success());
    let output = Command::new("timeout")
        .args([
            "300",
            "/usr/bin/python3",
            "tests/run_tests.py",
            "--dev",
            "dat0",
            "--verbose",
        ])
        .args(PASSED)
        .current_dir(folder.path())
        .env("PYTHONPATH", &copies)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LD_PRELOAD", library())
        .output()
        .expect("Python");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("\nRan "), "{errors}");
    for name in RUN {
        let name = format!("{name} (");
        let mut lines = errors.lines().filter(|line| line.starts_with(&name));
        assert!(lines.any(|line| line.ends_with("... ok")), "{name}{errors}");
    }
}

#[test]
fn programs_of_rdma_core_show_the_device() {
    if let Some(list) = run("ibv_devices", &[]) {
        assert!(list.contains("dat0"), "{list}");
    }
    if let Some(device) = run("ibv_devinfo", &["-v"]) {
        for line in [
            "hca_id:\tdat0",
            "state:\t\t\tPORT_ACTIVE (4)",
            "active_mtu:\t\t4096 (5)",
            "GID[  0]:\t\t::ffff:127.0.0.1, RoCE v2",
        ] {
            assert!(device.contains(line), "no {line:?} in {device}");
        }
    }
}
