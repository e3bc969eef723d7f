//! A note on each crate that members of the workspace name themselves.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;

use crate::workspace::Workspace;

/// The notes, one row for each crate.
const PAGE: &str = "docs/dependencies.md";

/// Fails unless the page has one row for each direct dependency, and none for others.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let page = fs::read_to_string(workspace.root().join(PAGE)).context(PAGE)?;
    let mut noted = BTreeSet::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // The first cell is in front of the first bar.
        let [_, name, rest @ ..] = &cells[..] else {
            continue;
        };
        if let Some(name) = name
            .strip_prefix('`')
            .and_then(|name| name.strip_suffix('`'))
        {
            if !noted.insert(name.to_owned()) {
                bail!("{PAGE} has two rows for {name}");
            }
            if rest.iter().take(3).any(|cell| cell.is_empty()) {
                bail!("{PAGE} leaves something open about {name}");
            }
        }
    }
    let named = workspace.direct_dependencies()?;
    let differ = |these: &BTreeSet<String>, those: &BTreeSet<String>| {
        these
            .difference(those)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (missing, gone) = (differ(&named, &noted), differ(&noted, &named));
    if !missing.is_empty() || !gone.is_empty() {
        bail!("{PAGE} lacks a row for [{missing}], and has one too many for [{gone}]");
    }
    Ok(())
}
