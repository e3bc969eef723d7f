//! Tests of `dat run`, with a copy of the program beside a library.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::{refused, text};

/// A directory with the program.
struct Installed(TempDir);

impl Installed {
    /// Installs the program, and a library below the directory if a place for it is given.
    fn new(library: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        // A link would be followed to the directory of the build.
        if fs::hard_link(env!("CARGO_BIN_EXE_dat"), bin.join("dat")).is_err() {
            fs::copy(env!("CARGO_BIN_EXE_dat"), bin.join("dat")).unwrap();
        }
        let installed = Self(folder);
        if let Some(place) = library {
            let file = installed.path(place);
            fs::create_dir_all(Path::new(&file).parent().unwrap()).unwrap();
            // The loader only says so if it cannot load a library.
            fs::write(&file, "").unwrap();
        }
        installed
    }

    fn path(&self, below: &str) -> String {
        let folder = self.0.path().canonicalize().unwrap();
        folder.join(below).to_str().unwrap().to_owned()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(self.path("bin/dat"))
            .arg("run")
            .args(arguments)
            .env_remove("LD_PRELOAD")
            .output()
            .unwrap()
    }
}

#[test]
fn the_library_is_found_beside_the_program_and_in_the_usual_directory() {
    for place in [
        "bin/libdat_verbs.so",
        "lib/libdat_verbs.so",
        "lib64/libdat_verbs.so",
    ] {
        let installed = Installed::new(Some(place));
        let output = installed.run(&["--print-env"]);
        assert!(output.status.success(), "{output:?}");
        let expected = format!("LD_PRELOAD={}\n", installed.path(place));
        assert_eq!(text(&output.stdout), expected);
    }
    let output = Installed::new(None).run(&["true"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let errors = text(&output.stderr);
    for word in ["libdat_verbs.so", "bin", "lib", "cargo build"] {
        assert!(errors.contains(word), "no {word} in {errors}");
    }
}

#[test]
fn scripts_read_the_environment() {
    let installed = Installed::new(Some("lib/libdat_verbs.so"));
    let output = installed.run(&["--address", "127.0.0.1", "--path", "any", "--print-env"]);
    let lines = text(&output.stdout);
    assert!(lines.ends_with("\nDAT_VERBS_ADDRESS=127.0.0.1\nDAT_VERBS_PATH=any\n"));
    let output = installed.run(&["--print-env", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["ok"], true);
    assert_eq!(document["environment"][0]["name"], "LD_PRELOAD");
}

#[test]
fn a_program_runs_with_its_arguments_and_environment() {
    let installed = Installed::new(Some("lib/libdat_verbs.so"));
    let script = "echo \"$LD_PRELOAD $DAT_VERBS_ADDRESS $DAT_VERBS_PATH $*\"; exit 7";
    for separator in [&[][..], &["--"]] {
        let output = installed.run(
            &[
                &["--address", "::1", "--path", "local"],
                separator,
                &["sh", "-c", script, "sh", "--quiet", "-x", "--", "a b"],
            ]
            .concat(),
        );
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let library = installed.path("lib/libdat_verbs.so");
        let expected = format!("{library} ::1 local --quiet -x -- a b\n");
        assert_eq!(text(&output.stdout), expected);
    }
    // What stands behind the program is its own, also if `dat` has an option of that name.
    let own = [
        "--json",
        "-q",
        "4",
        "--help",
        "--address",
        "x",
        "--print-env",
    ];
    let output = installed.run(&[&["echo"][..], &own].concat());
    assert_eq!(text(&output.stdout), format!("{}\n", own.join(" ")));
    let output = installed.run(&["--address", "192.0.2.199", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("cannot use the address 192.0.2.199"));
    assert!(errors.contains("check the address"), "{errors}");
    let output = installed.run(&["no-such-program"]);
    assert_eq!(output.status.code(), Some(3));
    let errors = text(&output.stderr);
    assert!(errors.contains("cannot run no-such-program") && errors.contains("PATH"));
}

#[test]
fn other_preloaded_libraries_stay() {
    let installed = Installed::new(Some("lib/libdat_verbs.so"));
    let library = installed.path("lib/libdat_verbs.so");
    for (before, after) in [
        ("/a/b.so", format!("/a/b.so:{library}")),
        ("/a/b.so /c.so", format!("/a/b.so:/c.so:{library}")),
        (library.as_str(), library.clone()),
        (
            format!("{library}:/a/b.so").as_str(),
            format!("{library}:/a/b.so"),
        ),
    ] {
        let output = Command::new(installed.path("bin/dat"))
            .args(["run", "--print-env"])
            .env("LD_PRELOAD", before)
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), format!("LD_PRELOAD={after}\n"));
    }
}

#[test]
fn arguments_are_checked() {
    for (arguments, words) in [
        (&["run"][..], &["<PROGRAM|--print-env>"][..]),
        (&["run", "--print-env", "true"], &["cannot be used with"]),
        (&["run", "--address", "lo", "true"], &["10.9.0.1"]),
        (&["run", "--path", "both", "true"], &["any, local, packets"]),
    ] {
        refused(arguments, 2, words);
    }
}
