//! Requirement ids and lists of them.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A requirement id such as `EPW-07` or `RSMPV-E03`, or a transition such as `E22`.
///
/// Ids are ordered by group, list and number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    group: String,
    list: Option<char>,
    number: u16,
}

impl Id {
    /// Returns the part before the dash.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Returns true for a transition; the groups of requirements have longer names.
    fn is_transition(&self) -> bool {
        self.group.len() == 1
    }

    /// Returns true if `id` is between this one and `last` inclusive, in the same list.
    ///
    /// Lists of different groups differ.
    fn spans(&self, last: &Self, id: &Self) -> bool {
        id.group == self.group
            && id.list == self.list
            && (self.number..=last.number).contains(&id.number)
    }
}

impl FromStr for Id {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some(parts) = text.split_once('-') else {
            return transition(text).with_context(|| format!("`{text}` is not a requirement id"));
        };
        let parsed = Some(parts).and_then(|(group, rest)| {
            let letters =
                group.len() >= 2 && group.starts_with(|first: char| first.is_ascii_uppercase());
            let plain = group
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
            let (list, number) = list_and_number(rest)?;
            (letters && plain).then(|| Self {
                group: group.to_owned(),
                list,
                number,
            })
        });
        parsed.with_context(|| format!("`{text}` is not a requirement id"))
    }
}

/// Parses a transition such as `E22`: one letter, and a number without leading zeros.
fn transition(text: &str) -> Option<Id> {
    let letter = text.chars().next().filter(char::is_ascii_uppercase)?;
    let digits = &text[letter.len_utf8()..];
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let number = plain.then(|| digits.parse().ok()).flatten()?;
    Some(Id {
        group: letter.to_string(),
        list: None,
        number,
    })
}

/// Parses `07` or `E03`.
fn list_and_number(text: &str) -> Option<(Option<char>, u16)> {
    let list = text.chars().next().filter(char::is_ascii_uppercase);
    let digits = list.map_or(text, |letter| &text[letter.len_utf8()..]);
    let two = digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    two.then(|| digits.parse().ok())
        .flatten()
        .map(|number| (list, number))
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_transition() {
            return write!(formatter, "{}{}", self.group, self.number);
        }
        write!(formatter, "{}-", self.group)?;
        if let Some(list) = self.list {
            write!(formatter, "{list}")?;
        }
        write!(formatter, "{:02}", self.number)
    }
}

/// Expands `EPW-07, DTO-01..04` to the known ids that it names.
///
/// A range stands for the known ids between its ends, and both ends must be known.
pub(crate) fn expand<'a>(
    list: &str,
    known: impl Iterator<Item = &'a Id> + Clone,
) -> Result<Vec<Id>> {
    let find = |id: Id| {
        if known.clone().any(|other| *other == id) {
            Ok(id)
        } else {
            bail!("no catalogue defines {id}")
        }
    };
    let mut ids = Vec::new();
    for item in list.trim().trim_end_matches('.').split(',') {
        let item = item.trim();
        let Some((first, last)) = item.split_once("..") else {
            ids.push(find(item.parse()?)?);
            continue;
        };
        let first: Id = find(first.parse()?)?;
        let last = match list_and_number(last).filter(|_| !first.is_transition()) {
            Some((list, number)) => Id {
                group: first.group.clone(),
                list: list.or(first.list),
                number,
            },
            None => last.parse()?,
        };
        let last = find(last)?;
        let before = ids.len();
        ids.extend(known.clone().filter(|id| first.spans(&last, id)).cloned());
        if ids.len() == before || ids.last().is_none_or(|id| *id != last) {
            bail!("`{item}` is not a range of requirement ids");
        }
    }
    Ok(ids)
}

/// Formats ids as a list, with a range for consecutive ones among the known.
pub(crate) fn condense<'a, 'k>(
    ids: impl IntoIterator<Item = &'a Id>,
    known: impl Iterator<Item = &'k Id>,
) -> String {
    let positions: BTreeMap<&Id, usize> = known
        .enumerate()
        .map(|(position, id)| (id, position))
        .collect();
    let mut runs: Vec<(&Id, &Id)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((first, last)) if first.spans(id, id) && positions[id] == positions[*last] + 1 => {
                *last = id
            }
            _ => runs.push((id, id)),
        }
    }
    let written = runs
        .into_iter()
        .map(|(first, last)| match (first == last, last.list) {
            (true, _) => first.to_string(),
            (false, _) if last.is_transition() => format!("{first}..{last}"),
            (false, Some(list)) => format!("{first}..{list}{:02}", last.number),
            (false, None) => format!("{first}..{:02}", last.number),
        });
    written.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(ids: &[&str]) -> Vec<Id> {
        ids.iter().map(|id| id.parse().expect("id")).collect()
    }

    fn expanded(list: &str) -> Result<String> {
        let known = known(&[
            "DTO-01", "EPW-01", "EPW-02", "EPW-04", "EPW-05", "PV-01", "PV-E01", "PV-E02", "E1",
            "E2", "E10",
        ]);
        let ids = expand(list, known.iter())?;
        Ok(ids.iter().map(Id::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn ids_are_read_and_printed() {
        for text in ["EPW-07", "RSMPV-E03", "RSM2-01", "GEN-100", "E1", "E22"] {
            assert_eq!(text.parse::<Id>().expect("id").to_string(), text);
        }
        for text in [
            "EPW", "E", "E01", "EE1", "e1", "E1x", "EPW-", "EPW-7", "epw-07", "EPW-07a", "-07",
            "2-07", "E-07", "EPW-EE1", "EPW 07", "EPW-é1",
        ] {
            assert!(text.parse::<Id>().is_err(), "{text}");
        }
    }

    #[test]
    fn lists_and_ranges_expand() {
        assert_eq!(expanded("EPW-01").expect("list"), "EPW-01");
        assert_eq!(expanded(" EPW-02,DTO-01. ").expect("list"), "EPW-02 DTO-01");
        assert_eq!(
            expanded("EPW-01..05").expect("list"),
            "EPW-01 EPW-02 EPW-04 EPW-05"
        );
        assert_eq!(
            expanded("EPW-02..EPW-04, DTO-01").expect("list"),
            "EPW-02 EPW-04 DTO-01"
        );
        assert_eq!(
            expanded("E1..E10, EPW-01").expect("list"),
            "E1 E2 E10 EPW-01"
        );
        assert_eq!(expanded("PV-E01..02").expect("list"), "PV-E01 PV-E02");
        assert_eq!(expanded("PV-E01..E02").expect("list"), "PV-E01 PV-E02");
    }

    #[test]
    fn unknown_ids_and_false_ranges_are_refused() {
        for list in [
            "EPW-03",
            "EPW-01..03",
            "EPW-01..06",
            "EPW-05..01",
            "E2..E1",
            "E1..E3",
            "E1..02",
            "EPW-01..DTO-01",
            "PV-01..E02",
            "",
            "EPW-01,",
            "EPW-01 DTO-01",
        ] {
            assert!(expanded(list).is_err(), "{list}");
        }
    }

    #[test]
    fn condensed_lists_expand_to_the_same_ids() {
        let known = known(&[
            "DTO-01", "EPW-01", "EPW-02", "EPW-04", "EPW-05", "PV-01", "PV-E01", "PV-E02", "E1",
            "E2", "E10",
        ]);
        for list in [
            "DTO-01, EPW-01..05, PV-01, PV-E01..E02",
            "DTO-01, EPW-02..04, PV-E02",
            "EPW-01, EPW-04",
            "E1..E10",
            "",
        ] {
            let ids: Vec<Id> = if list.is_empty() {
                Vec::new()
            } else {
                expand(list, known.iter()).expect("list")
            };
            assert_eq!(condense(&ids, known.iter()), list);
        }
    }
}
