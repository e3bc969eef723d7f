//! Lines of `dat.conf`, and the fields that they consist of.

use dat_ffi::registry;
use serde::Serialize;

use crate::output::{Output, Result, Style};

/// The provider's file name on the loader's search path.
pub(crate) const PROVIDER: &str = "libdat_provider.so.2";

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

/// Prints a line for each device of this host.
///
/// # Errors
/// None; all actions share this signature.
pub(crate) fn print(library: &str, is_thread_safe: bool, output: &mut Output) -> Result<bool> {
    let (devices, missing) = registry::devices();
    let lines: Vec<Line> = devices
        .into_iter()
        .map(|(name, device)| line(name, device, library, is_thread_safe))
        .collect();
    for line in &lines {
        output.line(&[(Style::Plain, &line.line)]);
    }
    let install = (library == PROVIDER).then(|| {
        format!(
            "install target/release/libdat_provider.so as {PROVIDER} in a directory that the dynamic loader \
            searches, or pass its path with --library"
        )
    });
    let notes: Vec<String> = install.into_iter().chain(missing).collect();
    for note in &notes {
        // As comments, so that the output is a valid `dat.conf`.
        output.line(&[(Style::Plain, &format!("# {note}"))]);
    }
    output.document(&Report {
        ok: true,
        lines,
        notes,
    });
    Ok(true)
}

fn line(name: String, device: String, library: &str, is_thread_safe: bool) -> Line {
    let threads = match is_thread_safe {
        true => "threadsafe",
        false => "nonthreadsafe",
    };
    let library = field(library.as_bytes());
    let library = String::from_utf8_lossy(&library);
    let line = format!("{name} u2.0 {threads} default {library} dat.0.1 \"{device}\" \"\"");
    Line { name, device, line }
}

/// Returns a field of `dat.conf`, in quotes if it would be several fields without them.
pub(crate) fn field(text: &[u8]) -> Vec<u8> {
    let special = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\\' | b'#');
    match text.iter().any(special) {
        true => quoted(text),
        false => text.to_owned(),
    }
}

/// Returns a field in quotes, as the last two are, which may be empty.
pub(crate) fn quoted(text: &[u8]) -> Vec<u8> {
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
    fn a_line_names_library_and_device() {
        let made = line("a".into(), "rxe0 1".into(), "/opt/my libraries/a.so", true);
        let text = "a u2.0 threadsafe default \"/opt/my libraries/a.so\" dat.0.1 \"rxe0 1\" \"\"";
        assert_eq!(made.line, text);
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
