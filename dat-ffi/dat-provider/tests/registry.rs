//! Tests of the program `dat-registry`.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat-registry"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs the program with `--json`, expects an exit code, and returns the document.
fn json(arguments: &[&str], code: i32) -> serde_json::Value {
    let output = run(&[&["--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs the program; expects an exit code, and words among the errors.
fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = run(arguments);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{err}");
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    for word in words {
        assert!(err.contains(word), "{arguments:?}: no {word:?} in\n{err}");
    }
}

#[test]
fn lines_for_the_registry_name_the_provider() {
    let line = "mock0 u2.0 nonthreadsafe default libdat_provider.so.2 dat.0.1 \"mock\" \"\"";
    let report = json(&[], 0);
    assert_eq!(report["lines"][0]["line"], line);
    assert_eq!(report["lines"][0]["name"], "mock0");
    assert_eq!(report["lines"][1]["name"], "roce0");
    let roce = "roce0 u2.0 nonthreadsafe default libdat_provider.so.2 dat.0.1 \"roce\" \"\"";
    assert_eq!(report["lines"][1]["line"], roce);
    let out = text(&run(&[]).stdout);
    assert_eq!(out.lines().next(), Some(line));
    let other = text(&run(&["--library", "./a.so", "--thread-safe"]).stdout);
    assert!(other.starts_with("mock0 u2.0 threadsafe default ./a.so "));
    // A missing provider is reported in comment lines of `dat.conf`.
    assert!(
        out.contains("\n# install target/release/libdat_provider.so as libdat_provider.so.2 "),
        "{out}"
    );
    assert!(!other.contains("libdat_provider"), "{other}");
    for out in [&out, &other] {
        let known = |line: &str| line.starts_with("# ") || line.contains(" u2.0 ");
        assert!(out.lines().all(known), "{out}");
        let missing = out.contains("# this build does not support RDMA devices");
        assert_eq!(missing, cfg!(not(feature = "verbs")), "{out}");
    }
    let notes = report["notes"].as_array().unwrap();
    assert_eq!(
        notes.len(),
        out.lines().filter(|line| line.starts_with('#')).count()
    );
    for library in ["", " ", "a\nb"] {
        refused(&["--library", library], 2, &["--library", "path"]);
    }
}

#[test]
fn files_of_the_registry_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (bad, empty, missing) = (path("bad"), path("empty"), path("missing"));
    let lines = "mock0 u2.0\n\
         a u2.0 nonthreadsafe default libc.so.6 dat.0.1 \"mock\" \"\"\n\
         b k2.0 nonthreadsafe default libc.so.6 dat.0.1 \"mock\" \"\"\n";
    std::fs::write(&bad, lines).unwrap();
    std::fs::write(&empty, "# nothing\n").unwrap();
    let report = json(&["--check", &bad], 1);
    assert_eq!(report["ok"], false);
    assert_eq!(report["file"], bad);
    let problems = &report["problems"];
    assert_eq!(problems[0]["line"], 1);
    assert_eq!(problems[0]["reason"], "2 fields instead of 8");
    assert_eq!(problems[1]["line"], 2);
    assert_eq!(problems[1]["library"], "libc.so.6");
    assert_eq!(problems[1]["symbol"], "dat_provider_init");
    assert_eq!(problems[2], serde_json::Value::Null);
    assert_eq!(report["entries"][0]["good"], false);
    assert_eq!(report["entries"][1]["ignored"], true);
    let out = run(&["--check", &bad]);
    assert_eq!(out.status.code(), Some(1));
    let out = text(&out.stdout);
    assert!(
        out.contains("line 2: libc.so.6: dat_provider_init: "),
        "{out}"
    );
    assert_eq!(json(&["--check", &empty], 0)["ok"], true);
    refused(&["--check", &missing], 3, &[&missing]);
    refused(&["--check", &empty, "--thread-safe"], 2, &["--check"]);
}

/// Compiles a source with `cc` to a shared library.
fn compiled(directory: &std::path::Path, name: &str, source: &str) -> String {
    let library = directory.join(name).to_str().unwrap().to_owned();
    let code = directory.join(name).with_extension("c");
    std::fs::write(&code, source).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o", &library])
        .arg(&code)
        .status()
        .unwrap();
    assert!(made.success(), "{name}");
    library
}

/// Creates a folder for the loader in which the registries are not libraries.
///
/// The loader then finds no other registries either.
fn without_registries(directory: &std::path::Path) -> std::path::PathBuf {
    let folder = directory.join("loader");
    std::fs::create_dir(&folder).unwrap();
    for registry in ["libdat.so.1", "libdat2.so.2"] {
        std::fs::write(folder.join(registry), [b'#'; 4096]).unwrap();
    }
    folder
}

/// Creates a folder for the loader with a small registry of 2.0 and none of 1.2.
fn with_a_registry(directory: &std::path::Path) -> std::path::PathBuf {
    let folder = without_registries(directory);
    compiled(&folder, "libdat2.so.2", REGISTRY);
    folder
}

/// A registry that opens the only line of the `dat.conf` in `DAT_OVERRIDE`, if its name is asked
/// for.
const REGISTRY: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct info { char name[256]; unsigned major, minor; int is_thread_safe; };
typedef unsigned (*open_t)(const char *, int, void **, void **);
static open_t entered;
void dat_registry_add_provider(open_t open, const struct info *info) { entered = open; }
unsigned dat_ia_openv(const char *name, int events, void **async, void **ia, unsigned major, unsigned minor, int safe)
{
    struct info info = {.major = major, .minor = minor, .is_thread_safe = safe};
    char line[4096], rest[4096], begin[300], library[1024], device[256];
    FILE *file = fopen(getenv("DAT_OVERRIDE"), "r");
    if (!fgets(line, sizeof line, file) || fgets(rest, sizeof rest, file))
        exit(90);
    snprintf(begin, sizeof begin, "%s u%u.%u %s default ", name, major, minor, safe ? "threadsafe" : "nonthreadsafe");
    if (strncmp(line, begin, strlen(begin)))
        exit(91);
    if (sscanf(line + strlen(begin), "%1023s dat.0.1 \"%255[^\"]\" \"\"\n", library, device) != 2)
        exit(92);
    strcpy(info.name, name);
    void (*init)(const struct info *, const char *) = dlsym(dlopen(library, RTLD_NOW | RTLD_GLOBAL), "dat_provider_init");
    init(&info, device);
    /* DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED */
    return entered ? entered(name, events, async, ia) : 0x800A0000 | 100;
}
unsigned dat_ia_close(void *ia, int flags)
{
    if (ia != (void *)7 || flags)
        exit(93);
    return 0;
}
"#;

/// A foreign provider; the name of each device says how opening it ends.
const PROVIDER: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned (*open_t)(const char *, int, void **, void **);
void dat_registry_add_provider(open_t, const void *);
static char device[256];
static unsigned open_device(const char *name, int events, void **async, void **ia)
{
    if (!strcmp(device, "it refuses"))
        return 0x80120000; /* DAT_INVALID_ADDRESS */
    if (!strcmp(device, "it makes up"))
        return 0x8EEE0000;
    if (!strcmp(device, "it crashes"))
        __builtin_trap();
    if (!strcmp(device, "it ends"))
        _exit(3);
    while (!strcmp(device, "it hangs"))
        pause();
    *ia = (void *)7;
    return 0;
}
void dat_provider_init(const void *info, const char *instance_data)
{
    strcpy(device, instance_data);
    if (strcmp(device, "it says nothing"))
        dat_registry_add_provider(open_device, info);
}
void dat_provider_fini(const void *info) {}
"#;

/// Runs `dat-registry --check` on a file and returns its JSON; `loader` is the loader's folder.
fn checked(file: &std::path::Path, loader: &std::path::Path) -> serde_json::Value {
    let out = Command::new(env!("CARGO_BIN_EXE_dat-registry"))
        .args(["--json", "--check"])
        .arg(file)
        .env("LD_LIBRARY_PATH", loader)
        .output()
        .unwrap();
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Devices of foreign providers are opened in a separate process with a time limit.
#[test]
fn devices_of_other_providers_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    let library = compiled(directory.path(), "other.so", PROVIDER);
    let refusal = "it loads, but its device cannot be opened: dat_ia_open returned ";
    let process = "it loads, but a process that opens its device ";
    let expected = [
        ("it opens", None),
        ("it refuses", Some(format!("{refusal}DAT_INVALID_ADDRESS"))),
        (
            "it says nothing",
            Some(format!(
                "{refusal}DAT_PROVIDER_NOT_FOUND (DAT_NAME_NOT_REGISTERED)"
            )),
        ),
        (
            "it makes up",
            Some(format!(
                "{refusal}0x8eee0000, which the interface does not define"
            )),
        ),
        (
            "it crashes",
            Some(format!("{process}was killed by signal ")),
        ),
        ("it ends", Some(format!("{process}exited with code 3"))),
        (
            "it hangs",
            Some(format!("{process}did not finish within 20 s")),
        ),
        ("it opens", None),
    ];
    let line = |(index, (device, _)): (usize, &(&str, Option<String>))| {
        let threads = ["nonthreadsafe", "threadsafe"][index % 2];
        format!("name{index} u2.{index} {threads} default {library} dat.0.1 \"{device}\" \"\"\n")
    };
    let lines: String = expected.iter().enumerate().map(line).collect();
    let file = directory.path().join("dat.conf");
    std::fs::write(&file, lines).unwrap();
    let report = checked(&file, &with_a_registry(directory.path()));
    assert_eq!(report["ok"], false);
    let mut problems = report["problems"].as_array().unwrap().iter();
    for (index, (device, reason)) in expected.iter().enumerate() {
        let entry = &report["entries"][index];
        assert_eq!(entry["good"], reason.is_none(), "{device}: {report}");
        if let Some(reason) = reason {
            let problem = problems.next().unwrap();
            assert_eq!(problem["line"], index + 1);
            assert_eq!(problem["error"], true);
            let printed = problem["reason"].as_str().unwrap();
            assert!(printed.starts_with(reason), "{device}: {printed}");
        }
    }
    assert_eq!(problems.next(), None);
}

/// Without the registry that programs use, the check says that it cannot open the device.
#[test]
fn a_device_that_cannot_be_opened_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    // It needs nothing of a registry until its device is opened.
    let stands_alone = format!("#pragma weak dat_registry_add_provider\n{PROVIDER}");
    let library = compiled(directory.path(), "other.so", &stands_alone);
    let file = directory.path().join("dat.conf");
    let line = format!("a u2.0 nonthreadsafe default {library} dat.0.1 \"it opens\" \"\"\n");
    std::fs::write(&file, line).unwrap();
    let loader = without_registries(directory.path());
    let report = checked(&file, &loader);
    let reason = report["problems"][0]["reason"].as_str().unwrap();
    let words = "it loads; its device was not checked, because the registry ";
    assert!(reason.starts_with(words), "{report}");
    assert!(reason.contains("libdat2.so.2"), "{report}");
    assert_eq!(report["problems"][0]["error"], false);
    assert_eq!(report["entries"][0]["good"], false);
    assert_eq!(report["ok"], true);
    let other = "int dat_ia_openv;";
    compiled(&loader, "libdat2.so.2", other);
    let report = checked(&file, &loader);
    let reason = report["problems"][0]["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("libdat2.so.2 has no symbol dat_ia_close"),
        "{report}"
    );
}

/// The effects of loading a library stay in a separate process.
#[test]
fn libraries_of_a_file_are_loaded_in_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let make =
        |name: &str, source: &str| compiled(directory.path(), name, &format!("{PROVIDER}{source}"));
    let ends = make(
        "ends.so",
        "__attribute__((constructor)) static void begin(void) { __builtin_trap(); }",
    );
    let talks = make(
        "talks.so",
        "int puts(const char *);\n__attribute__((constructor)) static void begin(void) { puts(\"{noise\"); }",
    );
    let explains = make(
        "explains.so",
        "const char *dat_provider_explain(const char *name, const char *device) { return *device == 'b' ? \"no such device\" : 0; }",
    );
    let lines = format!(
        "a u2.0 nonthreadsafe default {ends} dat.0.1 \"\" \"\"\n\
         b u2.0 nonthreadsafe default {talks} dat.0.1 \"-x\" \"\"\n\
         c u2.0 nonthreadsafe default {explains} dat.0.1 \"bad\" \"\"\n\
         d u2.0 nonthreadsafe default {explains} dat.0.1 \"good\" \"\"\n\
         e u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n\
         f u3.0 nonthreadsafe default {talks} dat.0.1 \"\" \"\"\n\
         g u2.0 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n"
    );
    let file = directory.path().join("dat.conf");
    std::fs::write(&file, lines).unwrap();
    let broken = directory.path().join("broken");
    std::fs::write(&broken, "\"\\\n a u2.0 x\n\"").unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_dat-registry"))
        .args(["--json", "--check"])
        .arg(&file)
        .env("DAT_OVERRIDE", &broken)
        .env("LD_LIBRARY_PATH", with_a_registry(directory.path()))
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let good: Vec<bool> = report["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["good"].as_bool().unwrap())
        .collect();
    assert_eq!(
        good,
        [false, true, false, true, false, false, false],
        "{report}"
    );
    let problems = &report["problems"];
    let reason = |index: usize| problems[index]["reason"].as_str().unwrap();
    assert!(
        reason(0).starts_with("a process that loads it was killed by signal "),
        "{report}"
    );
    assert_eq!(problems[1]["line"], 3);
    assert_eq!(reason(1), "no such device");
    // Programs linked with the library may find it by a path of their own, so it is no error.
    assert_eq!(problems[2]["line"], 5);
    assert_eq!(problems[2]["error"], false);
    let words = ["it cannot be loaded here: ", "LD_LIBRARY_PATH"];
    assert!(
        words.iter().all(|word| reason(2).contains(word)),
        "{report}"
    );
    assert!(
        reason(3).starts_with("no registry supports interface version 3"),
        "{report}"
    );
    assert_eq!(problems[4]["line"], 7);
}

/// A slow library does not delay the reports of earlier lines.
#[test]
fn each_line_is_reported_before_the_next_library_is_loaded() {
    use std::io::{BufRead, BufReader};

    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let waits = compiled(
        directory.path(),
        "waits.so",
        &format!(
            "{PROVIDER}\
             __attribute__((constructor)) static void begin(void) {{ while (access(\"{}\", 0)) usleep(1000); }}",
            gate.display()
        ),
    );
    let file = directory.path().join("dat.conf");
    let lines = format!(
        "a u2.0 nonthreadsafe default libc.so.6 dat.0.1 \"\" \"\"\n\
         b u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n\
         broken\n\
         c u2.0 nonthreadsafe default {waits} dat.0.1 \"it opens\" \"\"\n"
    );
    std::fs::write(&file, lines).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_dat-registry"))
        .args(["--check"])
        .arg(&file)
        .env("LD_LIBRARY_PATH", with_a_registry(directory.path()))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), file.to_str().unwrap());
    for begin in [
        "line 1    bad      a u2.0 ",
        "line 1: libc.so.6: dat_provider_init: ",
        "line 2    unseen   b u1.2 ",
        "line 2: libdat.so.1: it cannot be loaded here: ",
        "line 3: 1 field ",
    ] {
        let line = next();
        assert!(line.starts_with(begin), "{line}");
    }
    // The library of the last line can be loaded from here on.
    std::fs::write(&gate, "").unwrap();
    assert!(next().starts_with("line 4    good     c u2.0 "));
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
