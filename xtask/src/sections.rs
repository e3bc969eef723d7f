//! The sections of pages that tasks write, each between two marks.

use anyhow::{Context, Result};
use std::fs;

use crate::workspace::Workspace;

/// The page of counts; the full reports are in the folder `target`.
pub(crate) const STATUS: &str = "docs/status.md";

/// Returns the lines that begin and end the section of a task.
pub(crate) fn marks(task: &str) -> (String, String) {
    let name = task.rsplit(' ').next().unwrap_or(task);
    (
        format!("<!-- written by `cargo xtask {task}` -->\n"),
        format!("<!-- end of {name} -->\n"),
    )
}

/// Returns the current text of a task's section.
pub(crate) fn read(workspace: &Workspace, page: &str, task: &str) -> Result<String> {
    let text = fs::read_to_string(workspace.root().join(page)).context(page.to_owned())?;
    let parts = Parts::of(&text, task).context(page.to_owned())?;
    Ok(parts.section.to_owned())
}

/// Replaces a task's section of a page.
pub(crate) fn replace(workspace: &Workspace, page: &str, task: &str, section: &str) -> Result<()> {
    let path = workspace.root().join(page);
    let text = fs::read_to_string(&path).with_context(|| page.to_owned())?;
    let Parts { before, after, .. } = Parts::of(&text, task).with_context(|| page.to_owned())?;
    let (begin, end) = marks(task);
    fs::write(path, format!("{before}{begin}{section}{end}{after}"))?;
    Ok(())
}

/// A page, split at the marks of a section.
pub(crate) struct Parts<'p> {
    pub(crate) before: &'p str,
    pub(crate) section: &'p str,
    after: &'p str,
}

impl<'p> Parts<'p> {
    pub(crate) fn of(page: &'p str, task: &str) -> Result<Self> {
        let (begin, end) = marks(task);
        let parts = page.split_once(&begin).and_then(|(before, rest)| {
            let (section, after) = rest.split_once(&end)?;
            Some(Self {
                before,
                section,
                after,
            })
        });
        parts.with_context(|| format!("there is no section of `cargo xtask {task}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_split_at_its_marks() {
        let (begin, end) = marks("task --only a");
        let page = format!("1\n{begin}2\n{end}3\n");
        let parts = Parts::of(&page, "task --only a").expect("a section");
        assert_eq!(
            (parts.before, parts.section, parts.after),
            ("1\n", "2\n", "3\n")
        );
        assert!(Parts::of(&page, "task --only b").is_err());
        assert!(Parts::of(&begin, "task --only a").is_err());
    }
}
