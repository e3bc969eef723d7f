//! `dat completions` and `dat man`: texts made from the description of the command line.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde::Serialize;

use crate::arguments::{Arguments, CompletionsArguments, ManArguments};
use crate::failure::{Failure, Result};
use crate::output::Output;

/// The date of the pages; viewers show a day.
const DATE: &str = "2026-11-28";

#[derive(Serialize)]
struct Text<'a> {
    ok: bool,
    text: &'a str,
}

#[derive(Serialize)]
struct Files {
    ok: bool,
    files: Vec<String>,
}

/// Prints the completion script of a shell.
///
/// # Errors
/// - Operation: the script is not text.
pub(crate) fn completions(arguments: &CompletionsArguments, output: &mut Output) -> Result<bool> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "dat", &mut script);
    print(&utf8(script)?, output);
    Ok(true)
}

/// Prints the page of a command, or writes those of all commands.
///
/// # Errors
/// - Usage: there is no such command.
/// - File: a page cannot be written.
pub(crate) fn man(arguments: &ManArguments, output: &mut Output) -> Result<bool> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    if let Some(directory) = &arguments.output {
        let mut files = Vec::new();
        fs::create_dir_all(directory)
            .map_err(|error| Failure::file("make the directory", directory, &error))?;
        write(&program, directory, &mut files)?;
        files
            .iter()
            .for_each(|file| output.line(format_args!("{file}")));
        output.document(&Files { ok: true, files });
        return Ok(true);
    }
    let mut command = &program;
    for name in &arguments.command {
        let inner = visible(command).find(|inner| inner.get_name() == name);
        command = inner.ok_or_else(|| unknown(command, name))?;
    }
    print(&page(command)?, output);
    Ok(true)
}

fn print(text: &str, output: &mut Output) {
    output.line(format_args!("{}", text.trim_end()));
    output.document(&Text { ok: true, text });
}

fn unknown(command: &Command, name: &str) -> Failure {
    let command_name = command.get_bin_name().unwrap_or(command.get_name());
    let names: Vec<&str> = visible(command).map(Command::get_name).collect();
    let remedy = match names.as_slice() {
        [] => format!("leave out {name}"),
        names => format!("use one of: {}", names.join(", ")),
    };
    let why = format!("{name} is not a command of `{command_name}`");
    Failure::usage("there is no such page", why, remedy)
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let inner = command.get_subcommands();
    inner.filter(|inner| !inner.is_hide_set())
}

/// Writes the pages of a command and of those below it; adds their names.
fn write(command: &Command, directory: &Path, files: &mut Vec<String>) -> Result<()> {
    let file = directory.join(Man::new(command.clone()).get_filename());
    fs::write(&file, page(command)?).map_err(|error| Failure::file("write", &file, &error))?;
    files.push(file.display().to_string());
    visible(command).try_for_each(|inner| write(inner, directory, files))
}

/// Returns the man page of a command.
fn page(command: &Command) -> Result<String> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let page = Man::new(command.clone())
        .title(name.to_uppercase())
        .date(DATE)
        .source(format!("DAT in Rust {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text)
        .map_err(|error| Failure::operation("the page cannot be made", error))?;
    let text = utf8(text)?;
    // Viewers of man pages warn of a line break next to an empty line.
    let lines: Vec<&str> = text.lines().collect();
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
    Ok(kept)
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

fn utf8(text: Vec<u8>) -> Result<String> {
    String::from_utf8(text).map_err(|error| Failure::operation("the text is not UTF-8", error))
}
