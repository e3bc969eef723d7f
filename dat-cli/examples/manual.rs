//! Writes shell completions or man pages: `cargo xtask completions`, `cargo xtask man`.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

/// The date of the texts; man page viewers show a day.
const DATE: &str = "2026-11-21";

/// Writes the man page of a command, and those of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> Result<(), Box<dyn Error>> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write_pages(below, directory)?;
    }
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let page = Man::new(command.clone())
        .title(name.to_uppercase())
        .date(DATE);
    let source = format!("DAT in Rust {}", env!("CARGO_PKG_VERSION"));
    let page = page.source(source);
    let mut text = Vec::new();
    page.render(&mut text)?;
    // Viewers of man pages warn of a line break next to an empty line.
    let lines: Vec<&str> = std::str::from_utf8(&text)?.lines().collect();
    let mut kept = String::new();
    for (index, line) in lines.iter().enumerate() {
        let line = &match lines.get(index.wrapping_sub(1)) {
            Some(&".SH SYNOPSIS") => with_values(command, line),
            _ if *line == ".SH EXTRA" => ".SH NOTES".to_owned(),
            _ => (*line).to_owned(),
        };
        let neighbours = [index.wrapping_sub(1), index + 1];
        let is_empty = |index: &usize| lines.get(*index).is_some_and(|line| line.is_empty());
        if line != ".br" || !neighbours.iter().any(is_empty) {
            kept.push_str(if line.is_empty() { ".sp" } else { line });
            kept.push('\n');
        }
    }
    std::fs::write(directory.join(page.get_filename()), kept)?;
    Ok(())
}

/// Adds the value names of options to a synopsis.
fn with_values(command: &Command, synopsis: &str) -> String {
    let mut text = synopsis.to_owned();
    for option in command.get_opts() {
        let name = option.get_long().zip(option.get_value_names());
        if let Some((long, [value, ..])) = name {
            let option = format!("\\fB\\-\\-{}\\fR", long.replace('-', "\\-"));
            let valued = format!("{option} \\fI{}\\fR", value.replace('-', "\\-"));
            text = text.replace(&format!("{option}]"), &format!("{valued}]"));
        }
    }
    text
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [kind, directory] = arguments.as_slice() else {
        return Err("usage: manual completions|man DIRECTORY".into());
    };
    let directory = PathBuf::from(directory);
    match kind.to_str() {
        Some("completions") => {
            for shell in Shell::value_variants() {
                let mut command = dat_cli::command();
                let path = clap_complete::generate_to(*shell, &mut command, "dat", &directory)?;
                println!("{}", path.display());
            }
        }
        Some("man") => {
            let mut command = dat_cli::command().disable_help_subcommand(true);
            command.build();
            write_pages(&command, &directory)?;
            println!("{}", directory.display());
        }
        _ => return Err("neither completions nor man".into()),
    }
    Ok(())
}
