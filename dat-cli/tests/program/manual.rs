//! Tests of completions, man pages and the version.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{dat, json, refused, text};

/// The commands that have a page, with an option of each, if it has one of its own.
const COMMANDS: [(&str, &str); 14] = [
    ("", "--quiet"),
    ("tour", "--quiet"),
    ("copy", "--token-file"),
    ("perf", "--yield-after"),
    ("serve", "--client-quota"),
    ("rsm", "--quiet"),
    ("rsm export", "--permission"),
    ("rsm put", "--connect"),
    ("rsm get", "--from"),
    ("rsm bench", "--iterations"),
    ("run", "--print-env"),
    ("devices", "--verbose"),
    ("completions", "--quiet"),
    ("man", "--output"),
];

fn printed(arguments: &[&str]) -> String {
    let output = dat(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    text(&output.stdout)
}

#[test]
fn every_shell_gets_a_script_with_all_commands_and_options() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for (command, option) in COMMANDS {
            let words = command.split(' ').chain([option.trim_start_matches('-')]);
            for word in words {
                assert!(script.contains(word), "{shell}: no {word}");
            }
        }
        let document = json(&["completions", shell], 0);
        assert_eq!(document["text"], script, "{shell}");
    }
    refused(&["completions"], 2, &["<SHELL>"]);
    refused(&["completions", "csh"], 2, &["csh", "bash"]);
}

/// The script is code for a shell, so a shell runs it.
#[test]
fn bash_completes_commands_and_options() {
    for (line, expected) in [
        ("dat pe", "perf"),
        ("dat rsm ex", "export"),
        ("dat copy --dep", "--depth"),
        ("dat completions fi", "fish"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let (last, position) = (words.len() - 1, words.len() - 2);
        let script = format!(
            "{}\nCOMP_WORDS=({line}); COMP_CWORD={last}; _dat dat {} {}; echo \"${{COMPREPLY[*]}}\"",
            printed(&["completions", "bash"]),
            words[last],
            words[position],
        );
        let bash = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(text(&bash.stdout).trim(), expected, "{line}: {bash:?}");
    }
}

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("new/man1");
    let written = printed(&["man", "--output", directory.to_str().unwrap()]);
    assert_eq!(written.lines().count(), COMMANDS.len(), "{written}");
    for (command, option) in COMMANDS {
        let words = command.split_whitespace();
        let page = printed(&["man"].into_iter().chain(words.clone()).collect::<Vec<_>>());
        let name = ["dat"]
            .into_iter()
            .chain(words)
            .collect::<Vec<_>>()
            .join("-");
        let title = format!(".TH {} 1", name.to_uppercase().replace('-', "\\-"));
        let title = [title.replace('\\', ""), title];
        assert!(
            title.iter().any(|title| page.contains(title)),
            "{name}: {page}"
        );
        assert!(page.contains(&option.replace('-', "\\-")), "{name}: {page}");
        let file = directory.join(format!("{name}.1"));
        assert_eq!(fs::read_to_string(file).unwrap(), page, "{name}");
    }
    // `--output` is for all pages.
    refused(&["man", "copy", "--output", "x"], 2, &["cannot be used"]);
    refused(&["man", "zzz"], 2, &["zzz", "tour, copy", "man"]);
    refused(&["man", "rsm", "zzz"], 2, &["zzz", "export, put"]);
    refused(&["man", "copy", "zzz"], 2, &["`dat copy`"]);
    let file = directory.join("dat.1/man1");
    refused(&["man", "--output", file.to_str().unwrap()], 3, &["dat.1"]);
}

#[test]
fn a_document_has_the_pages_and_quiet_prints_none() {
    let page = printed(&["man", "copy"]);
    assert_eq!(json(&["man", "copy"], 0)["text"], page);
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let files = json(&["man", "--output", directory], 0);
    let files = files["files"].as_array().unwrap();
    assert_eq!(files.len(), COMMANDS.len());
    for file in files {
        assert!(Path::new(file.as_str().unwrap()).is_file(), "{file}");
    }
    for arguments in [&["man"][..], &["completions", "zsh"]] {
        assert_eq!(printed(&[arguments, &["--quiet"]].concat()), "");
    }
}

/// A reader that has enough closes the pipe, which is no failure.
#[test]
fn a_closed_pipe_is_no_failure() {
    for arguments in [&["man"][..], &["completions", "bash"], &["--version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_dat"))
            .args(arguments)
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        assert!(output.status.success(), "{arguments:?}");
    }
}

/// The version names a commit of this repository, and nothing without one.
#[test]
fn the_version_names_the_commit() {
    let version = printed(&["--version"]);
    let version = version.trim();
    let number = concat!("dat ", env!("CARGO_PKG_VERSION"));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        let output = git.args(["-C", root]).args(arguments).output().ok()?;
        let is_done = output.status.success();
        is_done.then(|| text(&output.stdout).trim().to_owned())
    };
    let is_repository = Path::new(root).join(".git").exists();
    if !is_repository || git(&["rev-parse", "HEAD"]).is_none() {
        assert_eq!(version, number);
        return;
    }
    let commit = version.strip_prefix(&format!("{number} (")).unwrap();
    let (commit, date) = commit.strip_suffix(')').unwrap().split_once(' ').unwrap();
    let hash = commit.strip_suffix("-dirty").unwrap_or(commit);
    assert!(hash.len() >= 10, "{version}");
    let shown = git(&["show", "--no-patch", "--format=%H %cs", hash]).unwrap();
    assert!(shown.starts_with(hash), "{version}: {shown}");
    assert!(shown.ends_with(&format!(" {date}")), "{version}: {shown}");
}
