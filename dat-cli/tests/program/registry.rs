//! Tests of `dat registry`.

use std::process::Command;

use super::{dat, json, refused, text};

#[test]
fn lines_for_the_registry_name_the_provider() {
    let line = "mock0 u2.0 nonthreadsafe default libdat_provider.so.2 dat.0.1 \"mock\" \"\"";
    let report = json(&["registry"], 0);
    assert_eq!(report["lines"][0]["line"], line);
    assert_eq!(report["lines"][0]["name"], "mock0");
    let out = text(&dat(&["registry"]).stdout);
    assert_eq!(out.lines().next(), Some(line));
    let other = text(&dat(&["registry", "--library", "./a.so", "--thread-safe"]).stdout);
    assert!(other.starts_with("mock0 u2.0 threadsafe default ./a.so "));
    // A missing provider is reported in comment lines of `dat.conf`.
    assert!(out.contains("\n# libdat_provider.so.2 is "), "{out}");
    assert!(!other.contains("libdat_provider"), "{other}");
    for out in [&out, &other] {
        let known = |line: &str| line.starts_with("# ") || line.contains(" u2.0 ");
        assert!(out.lines().all(known), "{out}");
        let missing = out.contains("# RDMA devices are not in this build");
        assert_eq!(missing, cfg!(not(feature = "verbs")), "{out}");
    }
    let notes = report["notes"].as_array().unwrap();
    assert_eq!(
        notes.len(),
        out.lines().filter(|line| line.starts_with('#')).count()
    );
    for library in ["", " ", "a\nb"] {
        refused(
            &["registry", "--library", library],
            2,
            &["--library", "path"],
        );
    }
}

#[cfg(unix)]
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
    let report = json(&["registry", "--check", &bad], 1);
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
    let out = dat(&["registry", "--check", &bad]);
    assert_eq!(out.status.code(), Some(1));
    let out = text(&out.stdout);
    assert!(
        out.contains("line 2: libc.so.6: dat_provider_init: "),
        "{out}"
    );
    assert_eq!(json(&["registry", "--check", &empty], 0)["ok"], true);
    refused(&["registry", "--check", &missing], 3, &[&missing]);
    refused(
        &["registry", "--check", &empty, "--thread-safe"],
        2,
        &["--check"],
    );
}

/// Compiles a source with `cc` to a shared library.
#[cfg(unix)]
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

/// Creates a folder for the loader in which `libdat.so.1` is not a library.
///
/// The loader then finds no other `libdat.so.1` either.
#[cfg(unix)]
fn without_libdat(directory: &std::path::Path) -> std::path::PathBuf {
    let folder = directory.join("loader");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("libdat.so.1"), [b'#'; 4096]).unwrap();
    folder
}

/// The effects of loading a library stay in a separate process.
#[cfg(unix)]
#[test]
fn libraries_that_a_file_names_are_loaded_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let functions = "void dat_provider_init(void) {} void dat_provider_fini(void) {}\n";
    let make = |name: &str, source: &str| {
        compiled(directory.path(), name, &format!("{functions}{source}"))
    };
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
    let out = Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(["--json", "registry", "--check"])
        .arg(&file)
        .env("DAT_OVERRIDE", &broken)
        .env("LD_LIBRARY_PATH", without_libdat(directory.path()))
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
        reason(0).starts_with("a process that loads it is ended by signal "),
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
        reason(3).starts_with("no registry is for version 3 "),
        "{report}"
    );
    assert_eq!(problems[4]["line"], 7);
}

/// A slow library does not delay the reports of earlier lines.
#[cfg(unix)]
#[test]
fn each_line_is_judged_before_the_next_library_is_loaded() {
    use std::io::{BufRead, BufReader};

    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let waits = compiled(
        directory.path(),
        "waits.so",
        &format!(
            "int access(const char *, int); int usleep(unsigned);\n\
             void dat_provider_init(void) {{}} void dat_provider_fini(void) {{}}\n\
             __attribute__((constructor)) static void begin(void) {{ while (access(\"{}\", 0)) usleep(1000); }}",
            gate.display()
        ),
    );
    let file = directory.path().join("dat.conf");
    let lines = format!(
        "a u2.0 nonthreadsafe default libc.so.6 dat.0.1 \"\" \"\"\n\
         b u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n\
         broken\n\
         c u2.0 nonthreadsafe default {waits} dat.0.1 \"\" \"\"\n"
    );
    std::fs::write(&file, lines).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(["registry", "--check"])
        .arg(&file)
        .env("LD_LIBRARY_PATH", without_libdat(directory.path()))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || said.next().unwrap().unwrap();
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
