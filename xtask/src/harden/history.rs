//! The standing of the page's revisions in the git history.

use anyhow::{Context, Result, bail};
use std::fs;
use xshell::cmd;

use super::{AT, FAILED, PAGE};
use crate::workspace::Workspace;

/// The least number of digits of a revision on the page.
const DIGITS: usize = 10;

/// The position of a revision relative to HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The revision is HEAD or an ancestor of it.
    Behind,
    /// The commit exists, but is no ancestor of HEAD in the local history.
    Apart,
    /// The local repository has no such commit.
    Missing,
}

/// The verdict on a revision.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Holds,
    /// The local history is too short for a decision.
    Untold,
    Refused(&'static str),
}

/// Judges a revision; `whole` is set if the history reaches back to the first commit.
fn judge(whole: bool, standing: Standing) -> Verdict {
    match standing {
        Standing::Behind => Verdict::Holds,
        Standing::Apart | Standing::Missing if !whole => Verdict::Untold,
        Standing::Apart => Verdict::Refused("what is checked out did not come of that revision"),
        Standing::Missing => Verdict::Refused("there is no such revision"),
    }
}

/// Returns true for a commit id; false for options, branch names and `, with changes`.
pub(super) fn is_revision(text: &str) -> bool {
    text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the revisions at which the page says that a proof held or failed.
fn named(page: &str) -> Vec<&str> {
    page.lines()
        .filter_map(|line| line.strip_prefix(AT).or_else(|| line.strip_prefix(FAILED)))
        .map(|rest| rest.trim().trim_end_matches('.'))
        .collect()
}

/// The history of the checked-out commit.
pub(super) struct History<'a> {
    workspace: &'a Workspace,
    /// Set if there is a history and it reaches back to the first commit.
    whole: bool,
    untold: u32,
}

impl<'a> History<'a> {
    pub(super) fn of(workspace: &'a Workspace) -> Self {
        let shell = &workspace.shell;
        // An unpacked source archive has no history, and a shallow clone has its last commits only.
        let told = cmd!(shell, "git rev-parse --is-shallow-repository")
            .quiet()
            .ignore_stderr()
            .read();
        Self {
            workspace,
            whole: told.is_ok_and(|told| told == "false"),
            untold: 0,
        }
    }

    /// Returns the reason why results at a revision cannot hold, if any.
    pub(super) fn complaint(&mut self, revision: &str) -> Option<&'static str> {
        if !is_revision(revision) {
            return Some("that is no revision");
        }
        match judge(self.whole, self.standing(revision)) {
            Verdict::Holds => None,
            Verdict::Untold => {
                self.untold += 1;
                None
            }
            Verdict::Refused(why) => Some(why),
        }
    }

    /// Returns true if a file differs from an ancestor revision, or git cannot compare them.
    pub(super) fn has_changed(&self, revision: &str, file: &str) -> bool {
        self.standing(revision) == Standing::Behind
            && !self.agrees(&["diff", "--quiet", revision, "--", file])
    }

    fn standing(&self, revision: &str) -> Standing {
        let commit = format!("{revision}^{{commit}}");
        if !self.agrees(&["cat-file", "-e", &commit]) {
            Standing::Missing
        } else if self.agrees(&["merge-base", "--is-ancestor", revision, "HEAD"]) {
            Standing::Behind
        } else {
            Standing::Apart
        }
    }

    /// Returns true if git succeeds.
    fn agrees(&self, arguments: &[&str]) -> bool {
        cmd!(self.workspace.shell, "git {arguments...}")
            .quiet()
            .ignore_stderr()
            .run()
            .is_ok()
    }

    /// Fails unless every proof on the page was run on an ancestor of HEAD.
    pub(super) fn check(&mut self) -> Result<()> {
        let page = fs::read_to_string(self.workspace.root().join(PAGE)).context(PAGE)?;
        for revision in named(&page) {
            if let Some(why) = self.complaint(revision) {
                bail!("{PAGE}: at revision {revision}: {why}");
            }
        }
        Ok(())
    }

    /// Prints the number of revisions that could not be checked.
    ///
    /// Silence would look like success.
    pub(super) fn tell(&self) {
        if self.untold != 0 {
            println!(
                "{PAGE}: {} revisions were not looked up, since the history is not here, or only the last part of it",
                self.untold
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Standing, Verdict, is_revision, judge, named};

    #[test]
    fn only_a_history_that_is_cut_off_excuses_a_revision_that_is_not_in_it() {
        for whole in [true, false] {
            assert_eq!(judge(whole, Standing::Behind), Verdict::Holds);
        }
        for standing in [Standing::Apart, Standing::Missing] {
            assert!(matches!(judge(true, standing), Verdict::Refused(_)));
            assert_eq!(judge(false, standing), Verdict::Untold);
        }
    }

    #[test]
    fn a_revision_is_digits_and_nothing_else() {
        assert!(is_revision("0123456789"));
        assert!(is_revision("0123456789abcdef0123456789abcdef01234567"));
        for other in [
            "",
            "abc",
            "HEAD",
            "main123456",
            "--quiet123",
            "0123456789, with changes",
        ] {
            assert!(!is_revision(other), "{other}");
        }
    }

    #[test]
    fn the_page_names_where_a_proof_held_and_where_it_failed() {
        let page = "| a | 1 |\n\nAt revision 0123456789.\nIt failed at revision abcdef0123.\nat revision 1.\n";
        assert_eq!(named(page), ["0123456789", "abcdef0123"]);
        assert_eq!(
            named("At revision 0123456789, with changes.\n"),
            ["0123456789, with changes"]
        );
    }
}
