//! The fields of a line.

use super::problem::Reason;

/// Splits a line into its fields, without quotes and escapes.
///
/// A blank line or a comment has no fields.
pub(super) fn fields(line: &[u8]) -> Result<Vec<Vec<u8>>, Reason> {
    let mut fields = Vec::new();
    let mut field: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'#' => break,
            b'"' => quoted(&mut bytes, field.get_or_insert_default())?,
            _ if byte.is_ascii_whitespace() => fields.extend(field.take()),
            _ => field.get_or_insert_default().push(byte),
        }
    }
    fields.extend(field);
    Ok(fields)
}

/// Reads up to the closing quote.
fn quoted(bytes: &mut impl Iterator<Item = u8>, field: &mut Vec<u8>) -> Result<(), Reason> {
    loop {
        match bytes.next().ok_or(Reason::Quote)? {
            b'"' => return Ok(()),
            b'\\' => match bytes.next().ok_or(Reason::Quote)? {
                escaped @ (b'"' | b'\\') => field.push(escaped),
                other => field.extend([b'\\', other]),
            },
            byte => field.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Result<Vec<String>, Reason> {
        let text = |field: Vec<u8>| String::from_utf8(field).expect("is text");
        fields(line.as_bytes()).map(|fields| fields.into_iter().map(text).collect())
    }

    #[test]
    fn fields_are_between_white_space() {
        assert_eq!(split(""), Ok(vec![]));
        assert_eq!(split(" \t\r"), Ok(vec![]));
        assert_eq!(split(" # a b"), Ok(vec![]));
        assert_eq!(
            split("a\tb  c\r"),
            Ok(vec!["a".into(), "b".into(), "c".into()])
        );
        assert_eq!(split("a b#c d"), Ok(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn quotes_keep_white_space_and_comments() {
        assert_eq!(split(r#""a b" """#), Ok(vec!["a b".into(), String::new()]));
        assert_eq!(split(r##""#" b"##), Ok(vec!["#".into(), "b".into()]));
        assert_eq!(split(r#""a\"b\\c\d""#), Ok(vec![r#"a"b\c\d"#.into()]));
        assert_eq!(split(r#"a" b"c"#), Ok(vec!["a bc".into()]));
    }

    #[test]
    fn quotes_end_on_their_line() {
        for line in [r#"a "b"#, r#"""""#, r#""a\"#, r#""a\""#] {
            assert_eq!(split(line), Err(Reason::Quote), "{line}");
        }
    }
}
