//! The texts agree with the headers and with the documentation of the core.

use super::*;
use std::fs;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dat-ffi")
}

fn manual() -> Manual {
    Manual::read(&folder()).expect("the manual")
}

/// Returns the text of all headers.
fn headers() -> String {
    let names = [
        "dat/dat_registry.h",
        "dat/udat.h",
        "dat_common/calls.h",
        "dat_common/error.h",
        "dat_common/objects.h",
        "dat_common/platform.h",
        "dat_common/types.h",
        RSM,
    ];
    names
        .iter()
        .map(|name| fs::read_to_string(folder().join("include").join(name)).expect("a header"))
        .collect()
}

/// Returns the names of a declaration's parameters, in order.
fn parameters(declaration: &str) -> Vec<&str> {
    let inside = declaration
        .split_once('(')
        .and_then(|(_, rest)| rest.rsplit_once(')'));
    let Some((inside, _)) = inside else {
        return Vec::new();
    };
    let names = inside.split(',').filter_map(|parameter| {
        let parameter = parameter.trim().trim_end_matches([']', ')', '[']);
        let name = parameter
            .rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .next()?;
        (!name.is_empty() && name != "void").then_some(name)
    });
    names.collect()
}

/// Returns the terms of a section, which has items only.
fn items<'p>(page: &'p Page, title: &str) -> impl Iterator<Item = &'p str> {
    let blocks = page.section(title).into_iter();
    let blocks = blocks.flat_map(|section| &section.blocks);
    blocks.map(|block| match block {
        Block::Item(term, _) => term.as_str(),
        _ => panic!("{}: something else than an item", page.name),
    })
}

#[test]
fn every_function_of_the_headers_has_a_page() {
    let manual = manual();
    let declared = manual
        .headers
        .iter()
        .flat_map(|header| header.functions.keys());
    let without: Vec<&String> = declared
        .filter(|name| manual.names().all(|known| known != *name))
        .collect();
    assert!(without.is_empty(), "no pages: {without:?}");
}

#[test]
fn every_page_describes_the_parameters_of_its_function() {
    let manual = manual();
    for page in manual.pages.values().filter(|page| page.number == 3) {
        let described = items(page, "Parameters");
        let described: Vec<&str> = described.map(|term| term.trim_matches('`')).collect();
        let later = declarations_of_2_0(page).map(|lines| lines.join("\n"));
        let declaration = manual
            .declaration(&page.name)
            .map(|(_, declaration)| declaration);
        let declaration = declaration.or(later.as_deref()).expect("a declaration");
        assert_eq!(described, parameters(declaration), "{}", page.name);
    }
}

#[test]
fn every_page_has_all_its_parts() {
    let manual = manual();
    for page in manual.pages.values() {
        let name = &page.name;
        assert!(
            page.summary.ends_with('.') && page.summary.len() < 130,
            "{name}: {}",
            page.summary
        );
        assert!(!page.related().is_empty(), "{name} points nowhere");
        let returns_nothing = manual
            .declaration(name)
            .is_some_and(|(_, declaration)| declaration.starts_with("void"));
        let has_errors = page.section("Errors").is_some();
        assert_eq!(
            has_errors,
            page.number == 3 && !returns_nothing,
            "{name}: errors"
        );
    }
}

#[test]
fn every_error_is_one_of_the_headers() {
    let headers = headers();
    let is_there = |constant: &str| match constant.strip_suffix('*') {
        Some(start) => headers.contains(start),
        None => [" ", ",", "\n"]
            .iter()
            .any(|behind| headers.contains(&format!(" {constant}{behind}"))),
    };
    for page in manual().pages.values() {
        let codes = if page.name.starts_with("rsm") {
            Codes::Rsm
        } else {
            Codes::Dat
        };
        for term in items(page, "Errors") {
            let (types, subtypes) = codes.constants(term);
            for constant in types.iter().chain(&subtypes) {
                assert!(is_there(constant), "{}: {constant}", page.name);
            }
        }
    }
}

#[test]
fn every_constant_in_the_text_is_one_of_the_headers() {
    let headers = headers();
    for entry in fs::read_dir(folder().join("manual")).expect("the texts") {
        let path = entry.expect("a text").path();
        let text = fs::read_to_string(&path).expect("a text");
        // The headers of 2.0 are not compared.
        let text = text.split("# DAT 2.0").next().unwrap_or_default();
        for word in text.split('`').skip(1).step_by(2) {
            let word = word.split('*').next().unwrap_or_default();
            let is_constant = ["DAT_", "RSM_"].iter().any(|start| word.starts_with(start));
            let is_variable = [
                "DAT_DBG_TYPE",
                "DAT_OVERRIDE",
                "RSM_NODE",
                "RSM_NODES",
                "RSM_SEGMENTID",
            ]
            .contains(&word);
            assert!(
                !is_constant || is_variable || headers.contains(word),
                "{}: {word}",
                path.display()
            );
        }
    }
}

#[test]
fn every_referenced_page_exists() {
    let manual = manual();
    let others = [("dat", 1)];
    for page in manual.pages.values() {
        for (name, number) in page.related() {
            let is_ours = manual
                .pages
                .values()
                .any(|page| page.number == number && page.names().any(|known| known == name));
            assert!(
                is_ours || others.contains(&(name, number)),
                "{} points to {name}({number})",
                page.name
            );
        }
    }
}

/// Returns the overview pages of each interface, and the types of its headers.
fn matters(manual: &Manual) -> [(Vec<&Page>, &Types); 2] {
    let overviews = |is_rsm: bool| {
        let pages = manual.pages.values();
        let pages = pages.filter(|page| page.number == 7 && page.name.starts_with("rsm") == is_rsm);
        pages.collect::<Vec<_>>()
    };
    [
        (overviews(false), &manual.dat),
        (overviews(true), &manual.rsm),
    ]
}

/// Returns true if a name matches one of `names`, where a star matches any text.
fn is_among(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| match known.split_once('*') {
        Some((start, end)) => name.starts_with(start) && name.ends_with(end),
        None => *known == name,
    })
}

#[test]
fn every_structure_and_every_member_of_the_headers_is_described() {
    let manual = manual();
    for (pages, types) in matters(&manual) {
        let mut described = 0;
        for contents in std::iter::once(&types.first).chain(&types.later) {
            for (name, structure) in &contents.structures {
                let mut sections = pages.iter().flat_map(|page| &page.sections);
                let section =
                    sections.find(|section| section.structures().any(|title| title == name));
                let section = section.unwrap_or_else(|| panic!("no section is about {name}"));
                let terms: Vec<&str> = section.terms().collect();
                for member in &structure.members() {
                    assert!(
                        is_among(&terms, member),
                        "{name}: {member} is not described"
                    );
                    described += 1;
                }
            }
        }
        assert!(
            described > 40,
            "only {described} members were found in the headers"
        );
    }
}

#[test]
fn every_value_and_every_type_of_the_headers_is_described() {
    let manual = manual();
    for (pages, types) in matters(&manual) {
        let sections = || pages.iter().flat_map(|page| &page.sections);
        let mut named: Vec<&str> = sections().flat_map(|section| section.terms()).collect();
        named.extend(sections().flat_map(|section| section.structures()));
        let mut described = 0;
        for contents in std::iter::once(&types.first).chain(&types.later) {
            for name in contents.values.keys().chain(&contents.enumerations) {
                assert!(is_among(&named, name), "{name} is not described");
                described += 1;
            }
        }
        assert!(
            described > 100,
            "only {described} names were found in the headers"
        );
    }
}

/// A name that the headers lose must be removed from the pages too.
#[test]
fn pages_describe_nothing_outside_the_headers() {
    let manual = manual();
    let headers = headers();
    for (pages, types) in matters(&manual) {
        for page in pages {
            for section in &page.sections {
                for name in section.structures() {
                    let is_enumeration = std::iter::once(&types.first)
                        .chain(&types.later)
                        .any(|contents| contents.enumerations.contains(name));
                    assert!(
                        types.has_structure(name) || is_enumeration || types.note(name).is_some(),
                        "{}: {name}",
                        page.name
                    );
                }
                for name in section.terms() {
                    if section.title == "Examples" {
                        let example = folder().join("examples").join(name);
                        assert!(example.is_file(), "{}: {name}", page.name);
                        continue;
                    }
                    let mut parts = name.split('*');
                    assert!(
                        parts.all(|part| headers.contains(part)),
                        "{}: {name}",
                        page.name
                    );
                }
            }
        }
    }
}

#[test]
fn values_stand_on_the_pages_as_the_headers_have_them() {
    let manual = manual();
    let text = |name: &str| {
        let page = manual.pages.get(name).expect("a page");
        manual
            .page(page)
            .expect("a page")
            .replace("\\fB", "")
            .replace("\\fR", "")
            .replace("\\-", "-")
    };
    let events = text("dat_events");
    assert!(events.contains("DAT_DTO_ERR_FLUSHED (1)"), "{events}");
    assert!(events.contains("DAT_CONNECTION_REQUEST_EVENT (0x02001)"));
    assert!(text("rsm_structures").contains("RSM_MAX_SGIOREQS (16)"));
    let call = text("dat_evd_wait");
    assert!(call.contains("dat_events(7)"), "{call}");
}

#[test]
fn declarations_are_found_in_rendered_pages() {
    let manual = manual();
    let page = manual.pages.get("dat_cr_reject").expect("a page");
    let text = manual.page(page).expect("a page");
    let (first, later) = declarations(&text).expect("declarations");
    assert_eq!(
        first,
        ["DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr_handle);"]
    );
    assert_eq!(later.len(), 1);
}

#[test]
fn parameters_are_found_in_declarations() {
    assert_eq!(
        parameters("int one(void *a[],\n    const char *b);"),
        ["a", "b"]
    );
    assert_eq!(parameters("void two(void);"), Vec::<&str>::new());
    assert_eq!(parameters("int f(T *(list[]));"), ["list"]);
}

/// Pages of calls that no signal of the system ends, though the core's calls have INTERRUPTED.
const UNINTERRUPTED: [&str; 5] = [
    "rsm_intr_signal_post",
    "rsm_memseg_import_close_barrier",
    "rsm_memseg_import_disconnect",
    "rsm_memseg_import_put",
    "rsm_release_controller",
];

/// A new error of a core call needs an entry in the manual too.
#[test]
fn every_error_of_the_core_is_on_the_page() {
    let documented = core_errors();
    assert!(
        documented.len() > 90,
        "only {} functions have errors",
        documented.len()
    );
    let (mut compared, mut missing) = (0, Vec::new());
    for page in manual().pages.values().filter(|page| page.number == 3) {
        let documented_here: Vec<&str> = items(page, "Errors").collect();
        let shortened = [
            "dat_",
            "dat_ep_",
            "rsm_",
            "rsm_memseg_",
            "rsm_intr_",
            "rsm_memseg_import_",
        ];
        let shortened = shortened
            .iter()
            .filter_map(|start| page.name.strip_prefix(start));
        for (name, codes) in shortened.filter_map(|name| documented.get_key_value(name)) {
            compared += 1;
            for code in codes {
                let is_listed = documented_here
                    .iter()
                    .any(|term| term.split([' ', ',', '(']).any(|word| word == code));
                // C has no wait of the caller's to interrupt there (RSMGEN-11).
                let is_uninterrupted =
                    code == "INTERRUPTED" && UNINTERRUPTED.contains(&page.name.as_str());
                if is_listed == is_uninterrupted {
                    missing.push(format!("{}: {code}, which `{name}` documents", page.name));
                }
            }
        }
    }
    assert!(compared > 70, "only {compared} pages were compared");
    assert!(
        missing.is_empty(),
        "pages lack, or must not have, {missing:#?}"
    );
}

/// Returns the documented error types of each function of dat-core and dat-rsm.
fn core_errors() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for package in ["dat-core", "dat-rsm"] {
        for entry in walkdir::WalkDir::new(root.join(package).join("src")) {
            let entry = entry.expect("a file");
            let path = entry.path().to_str().expect("UTF-8");
            let of_backends = ["/testing/", "/tests/", "/backend/"];
            if !path.ends_with(".rs") || of_backends.iter().any(|part| path.contains(part)) {
                continue;
            }
            let text = fs::read_to_string(path).expect("a source");
            let mut errors: Option<Vec<String>> = None;
            for line in text.lines().map(str::trim) {
                if let Some(text) = line.strip_prefix("///") {
                    if text.trim() == "# Errors" {
                        errors = Some(Vec::new());
                    } else if text.trim().is_empty()
                        && errors.as_ref().is_some_and(|errors| !errors.is_empty())
                    {
                        // A blank line ends the list; the text after it does not count.
                    } else if let Some(errors) = &mut errors
                        && let Some((head, _)) =
                            text.trim().trim_start_matches("- ").split_once(": ")
                    {
                        let head = head.split_once(" (").map_or(head, |(head, _)| head);
                        let is_code = |word: &&str| {
                            word.len() > 4
                                && word
                                    .chars()
                                    .all(|letter| letter.is_ascii_uppercase() || letter == '_')
                        };
                        errors.extend(head.split(", ").filter(is_code).map(str::to_owned));
                    }
                } else if let Some(rest) = line.strip_prefix("pub fn ") {
                    let name: String = rest
                        .chars()
                        .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
                        .collect();
                    if let Some(errors) = errors.take() {
                        found.insert(name, errors);
                    }
                } else if !line.starts_with("#[") {
                    errors = None;
                }
            }
        }
    }
    found
}
