//! Sources that are no regular files, or that change while they are read.
//!
//! Every command that reads a file refuses or reads them in the same way.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::between::{Other, address, name};
use super::{json, refused, text};

/// Nobody writes to the pipe, so that to open it would wait for ever.
#[test]
fn a_pipe_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let pipe = path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let nobody = ["--connect", "127.0.0.1:9"];
    for source in [pipe.as_str(), "/dev/zero"] {
        let (new, words) = (path("new"), ["devices, pipes and sockets"]);
        refused(&["copy", source, &new], 2, &words);
        refused(&["copy", source, &new, "--device", "roce"], 2, &words);
        refused(&[&["copy", source, "new"], &nobody[..]].concat(), 2, &words);
        refused(&["rsm", "export", source], 2, &words);
        refused(&["rsm", "put", source], 2, &words);
        refused(&[&["rsm", "put", source], &nobody[..]].concat(), 2, &words);
        refused(&["rsm", "get", &new, "--from", source], 2, &words);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The system says that the file has no bytes; it has some.
#[test]
fn a_file_whose_length_is_not_known_is_copied_whole() {
    let source = "/proc/version";
    let content = fs::read(source).unwrap();
    assert_eq!(fs::metadata(source).unwrap().len(), 0);
    let folder = tempfile::tempdir().unwrap();
    let stored = folder.path().join("stored");
    fs::create_dir(&stored).unwrap();
    let address = address(20);
    let device = format!("roce://{address}");
    let _server = Other::start(&["serve", "--device", &device, "--into", name(&stored)]);
    let (here, there) = (folder.path().join("here"), stored.join("there"));
    json(&["copy", source, name(&here)], 0);
    json(&["copy", source, "there", "--connect", &address], 0);
    for copy in [here, there] {
        assert_eq!(fs::read(&copy).unwrap(), content, "{}", copy.display());
    }
    let report = json(&["rsm", "put", source], 0);
    assert_eq!(report["bytes"], content.len());
}

/// A file that grows during the copy is told, and nothing is left of the copy.
#[test]
fn a_file_that_grows_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (source, stored) = (folder.path().join("source"), folder.path().join("stored"));
    fs::create_dir(&stored).unwrap();
    fs::write(&source, vec![1; 1 << 20]).unwrap();
    let address = address(21);
    let device = format!("roce://{address}");
    let _server = Other::start(&["serve", "--device", &device, "--into", name(&stored)]);
    let files = || fs::read_dir(&stored).unwrap().count();
    let here = stored.join("copy");
    // Small chunks, so that the copy is under way for long.
    let slow = ["--depth", "1", "--segments", "1", "--chunk", "64"];
    for arguments in [
        &["copy", name(&source), name(&here)][..],
        &["copy", name(&source), "copy", "--connect", &address],
    ] {
        let copy = Command::new(env!("CARGO_BIN_EXE_dat"))
            .args(arguments)
            .args(slow)
            .arg("--json")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        while files() == 0 {
            std::thread::yield_now();
        }
        append(&source);
        let output = copy.wait_with_output().unwrap();
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(said.contains("its length changed"), "{said}");
        while files() > 0 {
            std::thread::yield_now();
        }
    }
}

fn append(path: &Path) {
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(b"more").unwrap();
}
