//! What the history says of the revisions that the page names.

use anyhow::{Context, Result, bail};
use std::fs;
use xshell::cmd;

use super::{AT, FAILED, PAGE};
use crate::workspace::Workspace;

/// How many digits of a revision the page has at least.
const DIGITS: usize = 10;

/// Where a revision stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// What is checked out came of it.
    Behind,
    /// It is there, and what is checked out did not come of it as far as the history that is here goes.
    Apart,
    /// There is no such commit here.
    Missing,
}

/// What to say of a revision.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Holds,
    /// The history that would say it is not here.
    Untold,
    Refused(&'static str),
}

/// Whether what was found at a revision may stand; `whole`: the history goes back to the begin.
fn judge(whole: bool, standing: Standing) -> Verdict {
    match standing {
        Standing::Behind => Verdict::Holds,
        Standing::Apart | Standing::Missing if !whole => Verdict::Untold,
        Standing::Apart => Verdict::Refused("what is checked out did not come of that revision"),
        Standing::Missing => Verdict::Refused("there is no such revision"),
    }
}

/// Whether it is what git calls a commit, and nothing else: no option, no name of a branch, no `, with changes`.
pub(super) fn is_revision(text: &str) -> bool {
    text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The revisions at which the page says that a proof held, or did not.
fn named(page: &str) -> Vec<&str> {
    page.lines()
        .filter_map(|line| line.strip_prefix(AT).or_else(|| line.strip_prefix(FAILED)))
        .map(|rest| rest.trim().trim_end_matches('.'))
        .collect()
}

/// The history of what is checked out.
pub(super) struct History<'a> {
    workspace: &'a Workspace,
    /// Whether it is here at all, and goes back to the begin.
    whole: bool,
    untold: u32,
}

impl<'a> History<'a> {
    pub(super) fn of(workspace: &'a Workspace) -> Self {
        let shell = &workspace.shell;
        // Sources that were unpacked have none, and a checkout may have been made with the last commits alone.
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

    /// Why nothing that was found at a revision can hold, if so.
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

    /// Whether a file is another than at a revision that is here, or git does not say that it is the same.
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

    /// Whether git says yes.
    fn agrees(&self, arguments: &[&str]) -> bool {
        cmd!(self.workspace.shell, "git {arguments...}")
            .quiet()
            .ignore_stderr()
            .run()
            .is_ok()
    }

    /// Fails unless every proof on the page was run on what this came of.
    pub(super) fn check(&mut self) -> Result<()> {
        let page = fs::read_to_string(self.workspace.root().join(PAGE)).context(PAGE)?;
        for revision in named(&page) {
            if let Some(why) = self.complaint(revision) {
                bail!("{PAGE}: at revision {revision}: {why}");
            }
        }
        Ok(())
    }

    /// Says what could not be looked up: silence would look like an answer.
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
