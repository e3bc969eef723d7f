//! The catalogue of requirements, read from the specification pages.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

use super::id::Id;

/// Every requirement by id; the value is true for a seed requirement.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    requirements: BTreeMap<Id, bool>,
}

impl Catalogue {
    /// Adds the definitions of a page.
    ///
    /// They are first cells of table rows, and bold starts of list entries.
    pub(crate) fn add(&mut self, page: &str) -> Result<()> {
        for (index, line) in page.lines().enumerate() {
            let Some(head) = head(line) else { continue };
            let Some(Ok(id)) = head.split_whitespace().next().map(str::parse::<Id>) else {
                continue;
            };
            if self
                .requirements
                .insert(id.clone(), is_seed(line))
                .is_some()
            {
                bail!("line {}: {id} is defined twice", index + 1);
            }
        }
        Ok(())
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &Id> + Clone {
        self.requirements.keys()
    }

    pub(crate) fn is_seed(&self, id: &Id) -> bool {
        self.requirements.get(id).copied().unwrap_or_default()
    }

    /// Returns the groups in order, each with its ids.
    pub(crate) fn groups(&self) -> BTreeMap<&str, Vec<&Id>> {
        let mut groups: BTreeMap<&str, Vec<&Id>> = BTreeMap::new();
        for id in self.requirements.keys() {
            groups.entry(id.group()).or_default().push(id);
        }
        groups
    }

    /// Refuses a catalogue without seed requirements, which cannot be the real one.
    pub(crate) fn require_seed(self) -> Result<Self> {
        let seeds = self.requirements.values().filter(|seed| **seed).count();
        (seeds > 0)
            .then_some(self)
            .context("the catalogues define no seed requirement")
    }
}

/// Returns the part of a line that may define an id.
fn head(line: &str) -> Option<&str> {
    let cell = line.strip_prefix("| ").and_then(|row| row.split_once('|'));
    let bold = line
        .strip_prefix("- **")
        .and_then(|entry| entry.split_once("**"));
    cell.or(bold).map(|(head, _)| head)
}

/// Returns true if a tag in square brackets contains the word `seed`.
fn is_seed(line: &str) -> bool {
    line.split('[')
        .skip(1)
        .filter_map(|rest| rest.split_once(']'))
        .any(|(tag, _)| {
            tag.split(|character: char| !character.is_ascii_alphanumeric())
                .any(|word| word == "seed")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found_and_references_are_not() {
        let mut catalogue = Catalogue::default();
        catalogue
            .add(
                "| ID | Requirement |\n|---|---|\n| EPW-01 | [seed] One. |\n| EPW-02 | Two, see EPW-09 [hdr]. |\n\
                 | cookies | twice | EPW-08 |\n| PV-E01 [seed] | BAD |\n- **PV-03** The seed says [man, seed].\n- see **PV-04**\n",
            )
            .expect("page");
        let found: Vec<(String, bool)> = catalogue
            .ids()
            .map(|id| (id.to_string(), catalogue.is_seed(id)))
            .collect();
        let expected = [
            ("EPW-01", true),
            ("EPW-02", false),
            ("PV-03", true),
            ("PV-E01", true),
        ];
        assert_eq!(found, expected.map(|(id, seed)| (id.to_owned(), seed)));
    }

    #[test]
    fn the_seed_tag_is_a_word_in_brackets() {
        assert!(is_seed("[partly seed; rest choice]"));
        assert!(is_seed("[seed: by omission][code]"));
        assert!(!is_seed("The seed lists it. [choice]"));
        assert!(!is_seed("[seeded] seed"));
    }

    #[test]
    fn a_second_definition_is_refused() {
        assert!(
            Catalogue::default()
                .add("| EPW-01 | a |\n| EPW-01 | b |\n")
                .is_err()
        );
    }

    #[test]
    fn a_catalogue_without_seed_is_refused() {
        let mut catalogue = Catalogue::default();
        catalogue.add("| EPW-01 | a |\n").expect("page");
        assert!(catalogue.require_seed().is_err());
    }
}
