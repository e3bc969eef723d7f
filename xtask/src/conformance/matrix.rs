//! The matrix of requirements and backends, and its faults.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::catalogue::Catalogue;
use super::id::{Id, condense, expand};
use super::scan::Citation;

/// The content of `tests/suite/backends.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backends {
    /// The folder of the shared suite.
    pub(crate) suite: PathBuf,
    pub(crate) backend: Vec<Backend>,
}

/// A column of the matrix.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backend {
    pub(crate) name: String,
    /// The test target that runs the shared suite on this backend.
    pub(crate) target: Option<String>,
    /// The features of the test target.
    #[serde(default)]
    pub(crate) features: Vec<String>,
    /// Tests of the shared suite that the backend cannot run.
    #[serde(default)]
    pub(crate) except: Vec<Except>,
    /// Requirements that other backends test and this one does not, with reasons.
    #[serde(default)]
    pub(crate) lacks: Vec<Lack>,
    /// Folders and files whose tests concern this backend only.
    #[serde(default)]
    pub(crate) sources: Vec<PathBuf>,
    /// The names of the target's tests, as the target lists them.
    #[serde(skip)]
    pub(crate) listed: BTreeSet<String>,
    /// The requirements with a test by the published counts; replaces sources and target.
    #[serde(skip)]
    pub(crate) published: Option<BTreeSet<Id>>,
}

/// Returns the requirements that the published counts list as tested on this backend.
pub(crate) fn published_ids(
    counts: &str,
    backend: &str,
    catalogue: &Catalogue,
) -> Result<BTreeSet<Id>> {
    let begin = format!("{backend}: ");
    let list = counts.lines().find_map(|line| line.strip_prefix(&begin));
    let list = list.with_context(|| {
        format!("the published counts do not list the requirements of the backend {backend}")
    })?;
    Ok(expand(list, catalogue.ids())?.into_iter().collect())
}

/// Tests of the shared suite that a backend cannot run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Except {
    pub(crate) tests: Vec<String>,
    /// Vendor of the only devices that cannot run them.
    vendor: Option<String>,
    pub(crate) reason: String,
}

/// Requirements that other backends test and this one does not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lack {
    /// The ids; one without a test elsewhere, or with a test here, is a fault.
    #[serde(default)]
    ids: String,
    /// Prefixes of groups; the backend may lack a test of any requirement in them.
    #[serde(default)]
    groups: Vec<String>,
    reason: String,
}

impl Backend {
    /// Removes the excepted tests from the list; returns those that the target does not have.
    pub(crate) fn leave_out_exceptions(&mut self) -> Vec<String> {
        // Devices of two vendors may have the same exception.
        let mut excepted: Vec<_> = self
            .except
            .iter()
            .flat_map(|except| &except.tests)
            .collect();
        excepted.sort_unstable();
        excepted.dedup();
        let mut unknown = Vec::new();
        for test in excepted {
            let before = self.listed.len();
            self.listed
                .retain(|listed| listed.rsplit("::").next() != Some(test));
            if self.listed.len() == before {
                unknown.push(test.clone());
            }
        }
        unknown
    }
}

/// The content of `docs/spec/exceptions.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exceptions {
    #[serde(default)]
    pub(crate) exception: Vec<Exception>,
}

/// Requirements without a test, with the reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exception {
    ids: String,
    reason: String,
}

/// The names of the tests, by requirement and column.
type Cells = BTreeMap<Id, BTreeMap<usize, BTreeSet<String>>>;

/// The whole matrix.
pub(crate) struct Matrix<'a> {
    catalogue: &'a Catalogue,
    backends: &'a [Backend],
    suite: &'a Path,
    cells: Cells,
    excused: BTreeMap<Id, &'a str>,
    /// The reason why a column has no test of a requirement that others test.
    lacking: BTreeMap<(usize, Id), &'a str>,
    /// The reason why a column cannot run a suite test that cites a requirement.
    left_out: BTreeMap<(usize, Id), &'a str>,
    /// Every fault of the matrix, in the order found.
    pub(crate) faults: Vec<String>,
}

impl<'a> Matrix<'a> {
    pub(crate) fn new(
        catalogue: &'a Catalogue,
        backends: &'a Backends,
        exceptions: &'a Exceptions,
        citations: &[(PathBuf, Citation)],
    ) -> Self {
        let mut matrix = Self {
            catalogue,
            backends: &backends.backend,
            suite: &backends.suite,
            cells: Cells::new(),
            excused: BTreeMap::new(),
            lacking: BTreeMap::new(),
            left_out: BTreeMap::new(),
            faults: Vec::new(),
        };
        for (file, citation) in citations {
            matrix.cite(file, citation);
        }
        for (column, backend) in matrix.backends.iter().enumerate() {
            for id in backend.published.iter().flatten() {
                let row = matrix.cells.entry(id.clone()).or_default();
                row.entry(column).or_default();
            }
        }
        for exception in &exceptions.exception {
            matrix.excuse(exception);
        }
        for (column, backend) in matrix.backends.iter().enumerate() {
            if backend.target.is_some() {
                matrix.explain(column, backend);
            }
        }
        let is_bare = |id: &&Id| {
            catalogue.is_seed(id)
                && !matrix.cells.contains_key(id)
                && !matrix.excused.contains_key(id)
        };
        let bare: Vec<&Id> = catalogue.ids().filter(is_bare).collect();
        if !bare.is_empty() {
            let list = matrix.list(bare);
            let fault = format!("seed requirements without a test or an exception: {list}");
            matrix.faults.push(fault);
        }
        matrix
    }

    /// Returns the ids of a list; an error is a fault at `place`.
    fn expanded(&mut self, list: &str, place: &str) -> Vec<Id> {
        expand(list, self.catalogue.ids()).unwrap_or_else(|error| {
            self.faults.push(format!("{place}: {error:#}"));
            Vec::new()
        })
    }

    fn list<'i>(&self, ids: impl IntoIterator<Item = &'i Id>) -> String {
        condense(ids, self.catalogue.ids())
    }

    fn cite(&mut self, file: &Path, citation: &Citation) {
        let location = format!("{}:{}", file.display(), citation.line);
        let mut ids = Vec::new();
        for list in &citation.lists {
            ids.extend(self.expanded(list, &location));
        }
        let in_suite = file.starts_with(self.suite);
        let is_test = in_suite || citation.is_test;
        let Some(name) = citation.function.as_ref().filter(|_| is_test) else {
            return;
        };
        let runs = |backend: &Backend| match in_suite && !citation.is_test {
            _ if backend.published.is_some() => false,
            true => {
                let mut listed = backend.listed.iter();
                listed.any(|test| test.rsplit("::").next() == Some(name))
            }
            false => backend
                .sources
                .iter()
                .any(|source| file.starts_with(source)),
        };
        let backends = self.backends.iter().enumerate();
        let runs_on: Vec<usize> = backends
            .clone()
            .filter_map(|(column, backend)| runs(backend).then_some(column))
            .collect();
        // With published columns, a test of such a column looks like a test that runs nowhere.
        let is_whole = self
            .backends
            .iter()
            .all(|backend| backend.published.is_none());
        if runs_on.is_empty() && is_whole {
            self.faults.push(format!(
                "{location}: {name} cites requirements but runs on no backend"
            ));
        }
        for (column, backend) in backends.filter(|_| in_suite) {
            if let Some(out) = backend.except.iter().find(|out| out.tests.contains(name)) {
                let entries = ids.iter().map(|id| ((column, id.clone()), &*out.reason));
                self.left_out.extend(entries);
            }
        }
        for id in ids.into_iter().filter(|_| !runs_on.is_empty()) {
            let row = self.cells.entry(id).or_default();
            for column in &runs_on {
                row.entry(*column).or_default().insert(name.clone());
            }
        }
    }

    /// Finds the reason for each requirement that another suite backend tests and this one lacks.
    fn explain(&mut self, column: usize, backend: &'a Backend) {
        let name = &backend.name;
        let mut given = BTreeMap::new();
        for Lack { ids, reason, .. } in backend.lacks.iter().filter(|lack| !lack.ids.is_empty()) {
            let ids = self.expanded(ids, name).into_iter();
            given.extend(ids.map(|id| (id, reason.as_str())));
        }
        let of_group = |id: &Id| {
            let has = |lack: &&Lack| {
                lack.groups
                    .iter()
                    .any(|group| id.group().starts_with(group))
            };
            Some(backend.lacks.iter().find(has)?.reason.as_str())
        };
        let shared = |other: &usize| self.backends[*other].target.is_some();
        let (mut bare, mut faults) = (Vec::new(), Vec::new());
        for (id, row) in &self.cells {
            let known = given.remove(id);
            if row.contains_key(&column) {
                let stale = format!("{id}: has a test on {name}, so its exception is stale");
                faults.extend(known.map(|_reason| stale));
                continue;
            }
            let cell = (column, id.clone());
            let left_out = self.left_out.get(&cell).copied();
            match known.or(left_out).or_else(|| of_group(id)) {
                Some(reason) => {
                    self.lacking.insert(cell, reason);
                }
                None if row.keys().any(shared) => bare.push(id),
                None => {}
            }
        }
        if !bare.is_empty() {
            let list = self.list(bare);
            faults.push(format!("{name} has no test and no exception for {list}"));
        }
        faults.extend(given.keys().map(|id| {
            format!("{id}: no backend has a test, so the exception of {name} is unused")
        }));
        self.faults.extend(faults);
    }

    fn excuse(&mut self, exception: &'a Exception) {
        let Exception { ids, reason } = exception;
        if reason.trim().is_empty() {
            self.faults.push(format!("exception for {ids}: no reason"));
        }
        for id in self.expanded(ids, "exception") {
            if self.cells.contains_key(&id) {
                self.faults
                    .push(format!("{id}: has a test, so its exception is stale"));
            }
            if self.excused.insert(id.clone(), reason).is_some() {
                self.faults.push(format!("{id}: has two exceptions"));
            }
        }
    }

    /// Returns one line of counts over all requirements.
    pub(crate) fn summary(&self) -> String {
        let all = self.catalogue.ids().count();
        let seeds = || self.catalogue.ids().filter(|id| self.catalogue.is_seed(id));
        let tested = seeds().filter(|id| self.cells.contains_key(id)).count();
        let excused = seeds().filter(|id| self.excused.contains_key(id)).count();
        format!(
            "{} of {all} requirements tested; of {} that the manual pages state (seed) {tested} tested, {excused} excused",
            self.cells.len(),
            seeds().count(),
        )
    }

    /// Returns the names of each requirement's tests, one line for each column.
    pub(crate) fn tests(&self) -> String {
        let mut text = String::new();
        for (id, row) in &self.cells {
            for (column, names) in row {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let column = &self.backends[*column].name;
                let _ = writeln!(text, "{id} {column}: {}", names.join(", "));
            }
        }
        text
    }

    /// Returns the published counts, and the requirements of backends that need system libraries.
    pub(crate) fn counts(&self) -> String {
        let mut text = format!(
            "{}.\n\n| backend | requirements with a test | with a reason instead | tests of the suite left out |\n\
             |---|---|---|---|\n",
            self.summary()
        );
        let mut lists = String::new();
        for (column, backend) in self.backends.iter().enumerate() {
            let tested = || self.catalogue.ids().filter(|id| self.is_tested(id, column));
            let reasons = self.lacking.keys().filter(|(at, _)| *at == column).count();
            let left_out: usize = backend.except.iter().map(|except| except.tests.len()).sum();
            let (name, count) = (&backend.name, tested().count());
            let _ = writeln!(text, "| {name} | {count} | {reasons} | {left_out} |");
            if !backend.features.is_empty() {
                let _ = writeln!(lists, "{name}: {}", self.list(tested()));
            }
        }
        if !lists.is_empty() {
            let _ = write!(
                text,
                "\nTested on a backend that needs system libraries:\n\n```text\n{lists}```\n"
            );
        }
        text
    }

    /// Returns the page of the matrix.
    pub(crate) fn markdown(&self) -> String {
        let names: Vec<&str> = self.backends.iter().map(|it| it.name.as_str()).collect();
        let (columns, rule) = (names.join(" | "), "---|".repeat(names.len()));
        let mut page = format!(
            "# Conformance\n\nThe requirements of the [catalogues](../docs/spec/README.md) and the backends on which each is tested. \
             Written by `cargo xtask conformance`.\n\n{}.\n\n\
             ## By group\n\nThe number of requirements of each group, and of those with a test on each backend and on any.\n\n\
             | group | requirements | {columns} | any | seed | seed tested |\n|---|---|{rule}---|---|---|\n",
            self.summary()
        );
        let each = |cell: &dyn Fn(usize) -> String| {
            let cells: Vec<String> = (0..names.len()).map(cell).collect();
            cells.join(" | ")
        };
        for (group, ids) in self.catalogue.groups() {
            let count = |is: &dyn Fn(&Id) -> bool| ids.iter().filter(|id| is(id)).count();
            let any = |id: &Id| self.cells.contains_key(id);
            let is_seed = |id: &Id| self.catalogue.is_seed(id);
            let _ = writeln!(
                page,
                "| {group} | {} | {} | {} | {} | {} |",
                ids.len(),
                each(&|column| count(&|id| self.is_tested(id, column)).to_string()),
                count(&any),
                count(&is_seed),
                count(&|id| is_seed(id) && any(id))
            );
        }
        let _ = write!(
            page,
            "\n## By requirement\n\n| id | seed | {columns} |\n|---|---|{rule}\n"
        );
        for id in self.catalogue.ids() {
            let cell = |column| match self.is_tested(id, column) {
                true => "tested",
                false if self.lacking.contains_key(&(column, id.clone())) => "see below",
                false => "",
            };
            let seed = if self.catalogue.is_seed(id) {
                "seed"
            } else {
                ""
            };
            let cells = each(&|column| cell(column).to_owned());
            let _ = writeln!(page, "| {id} | {seed} | {cells} |");
        }
        let excused = self.excused.iter().map(|(id, reason)| (id, *reason));
        page += &self.by_reason("Requirements without a test", excused);
        for (column, backend) in self.backends.iter().enumerate() {
            let title = format!("Requirements without a test on {}", backend.name);
            let lacking = self.lacking.iter().filter(|((at, _), _)| *at == column);
            page += &self.by_reason(&title, lacking.map(|((_, id), reason)| (id, *reason)));
            if !backend.except.is_empty() {
                let title = format!("Tests that do not run on {}", backend.name);
                let _ = write!(page, "\n## {title}, by reason\n\n");
            }
            for except in &backend.except {
                let vendor = except
                    .vendor
                    .as_ref()
                    .map(|vendor| format!("{vendor} only: "));
                let (vendor, tests) = (vendor.unwrap_or_default(), except.tests.join("`, `"));
                let _ = writeln!(page, "- {vendor}{} `{tests}`", except.reason);
            }
        }
        page
    }

    /// Returns a section of requirements with the same reasons; nothing without any.
    fn by_reason<'i>(&self, title: &str, all: impl Iterator<Item = (&'i Id, &'i str)>) -> String {
        let mut by_reason: BTreeMap<&str, Vec<&Id>> = BTreeMap::new();
        for (id, reason) in all {
            by_reason.entry(reason).or_default().push(id);
        }
        let mut section = String::new();
        for (reason, ids) in by_reason {
            if section.is_empty() {
                section = format!("\n## {title}, by reason\n\n");
            }
            let _ = writeln!(section, "- {reason} {}", self.list(ids));
        }
        section
    }

    fn is_tested(&self, id: &Id, column: usize) -> bool {
        let row = self.cells.get(id);
        row.is_some_and(|row| row.contains_key(&column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::scan::citations;

    const PAGE: &str =
        "| EPW-01 | [seed] |\n| EPW-02 | [seed] |\n| EPW-03 | [hdr] |\n| GEN-01 | |\n";
    const BACKENDS: &str = r#"
        suite = "tests/suite/src/suite"
        [[backend]]
        name = "core"
        sources = ["core"]
        [[backend]]
        name = "mock"
        target = "mock"
        sources = ["mock", "tests/suite/tests/mock_only.rs"]
    "#;

    /// Returns the matrix's faults for sources given as path and text.
    fn faults(exceptions: &str, sources: &[(&str, &str)]) -> Vec<String> {
        with_matrix(exceptions, sources, |matrix| matrix.faults.clone())
    }

    fn with_matrix<T>(
        exceptions: &str,
        sources: &[(&str, &str)],
        look: impl Fn(&Matrix<'_>) -> T,
    ) -> T {
        with_columns("", exceptions, sources, look)
    }

    /// Builds a matrix with more columns than the usual ones.
    fn with_columns<T>(
        more: &str,
        exceptions: &str,
        sources: &[(&str, &str)],
        look: impl Fn(&Matrix<'_>) -> T,
    ) -> T {
        let mut catalogue = Catalogue::default();
        catalogue.add(PAGE).expect("page");
        let columns = format!("{BACKENDS}{more}");
        let mut backends: Backends = toml::from_str(&columns).expect("backends");
        for backend in backends
            .backend
            .iter_mut()
            .filter(|backend| backend.target.is_some())
        {
            backend.listed = ["mock::writes".to_owned(), "refuses".to_owned()].into();
            backend.leave_out_exceptions();
        }
        let exceptions: Exceptions = toml::from_str(exceptions).expect("exceptions");
        let mut found = Vec::new();
        for (path, source) in sources {
            let citations = citations(source).expect("source");
            found.extend(
                citations
                    .into_iter()
                    .map(|citation| (PathBuf::from(path), citation)),
            );
        }
        look(&Matrix::new(&catalogue, &backends, &exceptions, &found))
    }

    const COVERED: (&str, &str) = (
        "tests/suite/src/suite/write.rs",
        "/// Spec: EPW-01..02\npub fn writes<B>() {}",
    );

    #[test]
    fn a_covered_catalogue_has_no_faults() {
        assert_eq!(faults("", &[COVERED]), Vec::<String>::new());
        assert_eq!(
            faults(
                "",
                &[(
                    "mock/src/lib.rs",
                    "/// Spec: EPW-01, EPW-02\n#[test] fn name() {}"
                )]
            ),
            Vec::<String>::new()
        );
    }

    #[test]
    fn an_uncovered_seed_requirement_is_a_fault() {
        let source = ("core/src/lib.rs", "/// Spec: EPW-01\n#[test] fn name() {}");
        assert_eq!(
            faults("", &[source]),
            ["seed requirements without a test or an exception: EPW-02"]
        );
    }

    #[test]
    fn a_written_reason_excuses_a_missing_test() {
        let source = ("core/src/lib.rs", "/// Spec: EPW-01\n#[test] fn name() {}");
        let excuse = "[[exception]]\nids = \"EPW-02..03\"\nreason = \"not local\"\n";
        assert_eq!(faults(excuse, &[source]), Vec::<String>::new());
        assert_eq!(
            faults(&excuse.replace("not local", " "), &[source]).len(),
            1
        );
    }

    #[test]
    fn a_stale_unknown_or_double_exception_is_a_fault() {
        for ids in ["EPW-02", "EPW-09", "EPW-03, EPW-03"] {
            let excuse = format!("[[exception]]\nids = \"{ids}\"\nreason = \"why\"\n");
            assert_eq!(faults(&excuse, &[COVERED]).len(), 1, "{ids}");
        }
    }

    /// A requirement that another suite backend tests needs a test or a reason here.
    ///
    /// The reason is the exception of the test, or its own entry. An entry is stale once there is a
    /// test, or if no backend has one.
    #[test]
    fn a_backend_may_give_a_reason_for_a_missing_test() {
        let only_mock = ("mock/src/lib.rs", "/// Spec: GEN-01\n#[test] fn name() {}");
        let verbs =
            |text: &str| format!("[[backend]]\nname = \"verbs\"\ntarget = \"verbs\"\n{text}");
        let lacks = |covered: &str| verbs(&format!("lacks = [{{ {covered}, reason = \"why\" }}]"));
        let except = "except = [{ tests = [\"refuses\"], reason = \"cannot\" }]";
        let refused = (
            "tests/suite/src/suite/write.rs",
            "/// Spec: GEN-01\npub fn refuses<B>() {}",
        );
        for (column, source, is_explained, faults) in [
            (verbs(""), only_mock, false, 1),
            (lacks("ids = \"GEN-01\""), only_mock, true, 0),
            (lacks("groups = [\"GE\"]"), only_mock, true, 0),
            (lacks("groups = [\"EP\"]"), only_mock, false, 1),
            (lacks("ids = \"GEN-01, EPW-01\""), only_mock, true, 1),
            (lacks("ids = \"GEN-01, EPW-03\""), only_mock, true, 1),
            (lacks("ids = \"GEN-09\""), only_mock, false, 2),
            (verbs(except), refused, true, 0),
        ] {
            let found = with_columns(&column, "", &[COVERED, source], |matrix| {
                (matrix.faults.clone(), matrix.markdown())
            });
            assert_eq!(found.0.len(), faults, "{column}: {found:?}");
            let explained = found.1.contains("| GEN-01 |  |  | tested | see below |");
            assert_eq!(explained, is_explained, "{}", found.1);
        }
    }

    #[test]
    fn an_unknown_id_is_a_fault_in_tests_and_in_code() {
        for source in [
            "/// Spec: EPW-04\n#[test] fn name() {}",
            "/// Spec: EPW-04\npub fn post() {}",
            "/// Spec: everything\nstruct S;",
        ] {
            let found = faults("", &[COVERED, ("core/src/lib.rs", source)]);
            assert!(
                found.len() == 1
                    && found
                        .iter()
                        .all(|fault| fault.starts_with("core/src/lib.rs:1:")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_citation_in_code_is_no_test() {
        let code = (
            "core/src/lib.rs",
            "/// Spec: EPW-01, EPW-02\npub fn post() {}",
        );
        assert_eq!(
            faults("", &[code]),
            ["seed requirements without a test or an exception: EPW-01..02"]
        );
    }

    #[test]
    fn a_suite_function_that_no_backend_lists_is_a_fault() {
        let (path, source) = COVERED;
        let found = faults(
            "",
            &[
                COVERED,
                (path, &source.replace("writes", "is_never_called")),
            ],
        );
        assert_eq!(
            found,
            [
                "tests/suite/src/suite/write.rs:1: is_never_called cites requirements but runs on no backend"
            ]
        );
    }

    #[test]
    fn a_test_outside_all_sources_is_a_fault() {
        let stray = (
            "elsewhere/src/lib.rs",
            "/// Spec: EPW-03\n#[test] fn name() {}",
        );
        assert_eq!(faults("", &[COVERED, stray]).len(), 1);
    }

    /// The published requirements of a column are parsed as they were written.
    #[test]
    fn requirements_of_published_counts_are_read_back() {
        let column =
            "[[backend]]\nname = \"verbs\"\nfeatures = [\"verbs\"]\nsources = [\"verbs\"]\n";
        let source = (
            "verbs/src/lib.rs",
            "/// Spec: EPW-01, GEN-01\n#[test] fn name() {}",
        );
        let counts = with_columns(column, "", &[COVERED, source], |matrix| matrix.counts());
        assert!(
            counts.contains("| mock | 2 | 0 | 0 |\n| verbs | 2 | 0 | 0 |\n"),
            "{counts}"
        );
        let mut catalogue = Catalogue::default();
        catalogue.add(PAGE).expect("page");
        let ids = published_ids(&counts, "verbs", &catalogue).expect("a list");
        let ids: Vec<String> = ids.iter().map(Id::to_string).collect();
        assert_eq!(ids, ["EPW-01", "GEN-01"]);
        assert!(published_ids(&counts, "mock", &catalogue).is_err());
    }

    #[test]
    fn the_page_shows_columns_and_sums() {
        let core = ("core/src/lib.rs", "/// Spec: EPW-03\n#[test] fn name() {}");
        let (page, tests) = with_matrix("", &[COVERED, core], |matrix| {
            (matrix.markdown(), matrix.tests())
        });
        assert!(
            page.contains(
                "3 of 4 requirements tested; of 2 that the manual pages state (seed) 2 tested, 0 excused."
            ),
            "{page}"
        );
        assert!(page.contains("| group | requirements | core | mock | any | seed | seed tested |"));
        assert!(page.contains("| EPW | 3 | 1 | 2 | 3 | 2 | 2 |"), "{page}");
        assert!(page.contains("| EPW-01 | seed |  | tested |"), "{page}");
        assert!(page.contains("| EPW-03 |  | tested |  |"), "{page}");
        assert!(tests.contains("EPW-02 mock: writes"), "{tests}");
    }
}
