//! `dat registry`: prints or checks lines of `dat.conf`.
//!
//! `libdat2` finds the provider by these lines; there is one for each device.

#[cfg(unix)]
mod check;
#[cfg(unix)]
mod look;

use serde::Serialize;

use crate::arguments::{PROVIDER, RegistryArguments};
use crate::failure::Result;
use crate::output::Output;

/// A line of `dat.conf`, with its name and device.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line {
    /// Name that programs pass to `dat_ia_open`.
    name: String,
    /// Device that the provider opens.
    device: String,
    line: String,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    lines: Vec<Line>,
    /// Hints for the users of the lines.
    notes: Vec<String>,
}

/// Prints the lines, or checks a file of them.
///
/// # Errors
/// The file to check cannot be read.
pub(crate) fn run(arguments: &RegistryArguments, output: &mut Output) -> Result<bool> {
    #[cfg(unix)]
    if let Some(line) = &arguments.look {
        return look::run(line);
    }
    #[cfg(unix)]
    if let Some(file) = &arguments.check {
        return check::run(file.as_deref(), output);
    }
    let devices = crate::remote::device::devices();
    // The provider opens the others by names of their own.
    let ports = devices.iter().filter(|device| device.is_rdma());
    let ports = ports.filter_map(|device| device.name());
    let named = ports.map(|name| (name.to_owned(), instance_data(name)));
    let software = ["mock", "roce"].map(|device| (format!("{device}0"), device.to_owned()));
    let lines: Vec<Line> = software
        .into_iter()
        .chain(named)
        .map(|(name, device)| line(name, device, arguments))
        .collect();
    for line in &lines {
        output.line(format_args!("{}", line.line));
    }
    let notes = notes(arguments);
    for note in &notes {
        // As comments, so that the output is a valid `dat.conf`.
        output.line(format_args!("# {note}"));
    }
    output.document(&Report {
        ok: true,
        lines,
        notes,
    });
    Ok(true)
}

/// Returns a note of one line for each thing that is missing.
fn notes(arguments: &RegistryArguments) -> Vec<String> {
    let library = (arguments.library == PROVIDER).then(|| {
        format!(
            "install target/release/libdat_provider.so as {PROVIDER} in a directory that the dynamic loader \
            searches, or pass its path with --library"
        )
    });
    library
        .into_iter()
        .chain(crate::remote::device::note())
        .collect()
}

/// Returns the instance data that names a port to the provider: device and number.
fn instance_data(name: &str) -> String {
    let (device, port) = name.rsplit_once(':').unwrap_or((name, "1"));
    format!("{device} {port}")
}

fn line(name: String, device: String, arguments: &RegistryArguments) -> Line {
    let threads = if arguments.thread_safe {
        "threadsafe"
    } else {
        "nonthreadsafe"
    };
    let library = field(arguments.library.as_bytes());
    let library = String::from_utf8_lossy(&library);
    let line = format!("{name} u2.0 {threads} default {library} dat.0.1 \"{device}\" \"\"");
    Line { name, device, line }
}

/// Returns a field of `dat.conf`, in quotes if it would be several fields without them.
fn field(text: &[u8]) -> Vec<u8> {
    let special = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\\' | b'#');
    match text.iter().any(special) {
        true => quoted(text),
        false => text.to_owned(),
    }
}

/// Returns a field in quotes, as the last two are, which may be empty.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(byte);
    }
    quoted.push(b'"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_device_and_port() {
        let arguments = RegistryArguments {
            library: "/opt/my libraries/a.so".into(),
            thread_safe: true,
            #[cfg(unix)]
            check: None,
            #[cfg(unix)]
            look: None,
        };
        for (name, device) in [("rxe0", "rxe0 1"), ("mlx5_0:2", "mlx5_0 2")] {
            let made = line(name.into(), instance_data(name), &arguments);
            assert_eq!(made.device, device);
            assert_eq!(
                made.line,
                format!(
                    "{name} u2.0 threadsafe default \"/opt/my libraries/a.so\" dat.0.1 \"{device}\" \"\""
                )
            );
        }
    }

    #[test]
    fn fields_are_quoted_if_needed() {
        for (text, expected) in [
            ("a.so.2", "a.so.2"),
            ("a b", "\"a b\""),
            ("a\"b\\", "\"a\\\"b\\\\\""),
            ("#a", "\"#a\""),
        ] {
            assert_eq!(field(text.as_bytes()), expected.as_bytes());
        }
    }
}
