//! The headers of both editions, compiled in every dialect of C and C++.
//!
//! Those of 2.0 are also compared with the packaged ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use tempfile::TempDir;

/// A program of all that depends on the dialect.
///
/// It uses masks of 64 bits, the empty agent, names of older editions, and functions.
const PROGRAM: &str = r#"
#include <EDITION/udat.h>
#include <EDITION/dat_registry.h>

static DAT_RETURN used(DAT_IA_HANDLE ia)
{
    DAT_OS_WAIT_PROXY_AGENT agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
    DAT_PROVIDER_INFO info;
    DAT_PROVIDER_INFO *list[1];
    DAT_COUNT count = 0;
    DAT_IA_ATTR attributes;
    DAT_EP_ATTR wanted;
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE async = DAT_EVD_ASYNC_EXISTS;
    DAT_CONTEXT context;
    const char *major;
    const char *minor;
    char name[] = "none";
    list[0] = &info;
    context.as_index = 1;
    attributes.max_rdma_read_per_ep = 1;
    wanted.max_mtu_size = attributes.max_mtu_size = 1;
    if (dat_ia_open(name, 1, &async, &ia) == DAT_SUCCESS || async == DAT_EVD_OUT_OF_SCOPE)
        return dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_IA, &major, &minor);
    if (dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &async))
        return dat_pz_free(ia);
    if (DAT_IS_WARNING(dat_registry_list_providers(1, &count, list)) || wanted.max_message_size == DAT_TIMEOUT_INFINITE)
        return dat_set_consumer_context(ia, context);
    if (dat_ia_query(ia, &async, DAT_IA_FIELD_ALL | DAT_IA_FIELD_IA_VENDOR_ATTR, &attributes, DAT_PROVIDER_FIELD_NONE, NULL))
        return dat_registry_remove_provider((DAT_PROVIDER *)ia, &info);
    return dat_cno_create(ia, agent, &cno);
}

int main(void)
{
    return used(DAT_HANDLE_NULL) == DAT_SUCCESS;
}
"#;

/// Additions of 2.0 for the program: calls by the table of a provider, and extensions.
const LATER: &str = r#"
#include <dat2/dat_ib_extensions.h>

DAT_RETURN later(DAT_EP_HANDLE ep, DAT_LMR_TRIPLET *local, DAT_RMR_TRIPLET *remote, DAT_EVD_HANDLE evd, DAT_DTO_COOKIE cookie);
DAT_RETURN later(DAT_EP_HANDLE ep, DAT_LMR_TRIPLET *local, DAT_RMR_TRIPLET *remote, DAT_EVD_HANDLE evd, DAT_DTO_COOKIE cookie)
{
    DAT_EVENT event;
    DAT_CNO_PARAM cno;
    DAT_PROVIDER_ATTR provider;
    DAT_IB_EXTENSION_EVENT_DATA *more = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
    const char *message;
    cno.proxy.fd = 0;
    provider.ha_loadbalancing = DAT_HA_LB_INTRACOMM;
    if (DAT_EP_POST_SEND(ep, 1, local, cookie, DAT_COMPLETION_DEFAULT_FLAG) || cno.proxy.fd == (int)provider.ha_loadbalancing)
        return DAT_EP_POST_RDMA_WRITE(ep, 1, local, cookie, remote, DAT_COMPLETION_SUPPRESS_FLAG);
    if (DAT_EVD_DEQUEUE(evd, &event) || event.event_number == (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT)
        return dat_ib_post_rdma_write_immed(ep, 1, local, cookie, remote, 7, DAT_COMPLETION_DEFAULT_FLAG);
    if (more->type == DAT_IB_RDMA_WRITE_IMMED && more->val.immed.data == 7 && more->remote_ah.qpn)
        return dat_ib_post_cmp_and_swap(ep, 1, 2, local, cookie, remote, DAT_COMPLETION_DEFAULT_FLAG);
    if (dat_strerror_ext_status(more->status, &message) || dat_strerror_extension(DAT_IB_ERR, &message))
        return dat_ib_post_fetch_and_add(ep, 1, local, cookie, remote, DAT_COMPLETION_DEFAULT_FLAG);
    return dat_cr_reject(ep, 0, NULL) | dat_ib_collective_barrier(ep, cookie, DAT_COMPLETION_DEFAULT_FLAG)
        | dat_ib_query_counters(ep, DCNT_EP_RECV, event.event_extension_data, 0);
}
"#;

const EDITIONS: [&str; 2] = ["dat", "dat2"];

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include")
}

fn compiles(compiler: &str, dialect: &str, source: &Path) {
    let compiled = Command::new(compiler)
        .arg(format!("-std={dialect}"))
        .args(["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
        .arg("-I")
        .args([&include(), source])
        .output()
        .expect("a compiler");
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(
        compiled.status.success(),
        "{compiler} -std={dialect}: {errors}"
    );
}

#[test]
fn every_c_dialect_compiles_the_headers() {
    let folder = TempDir::new().expect("a folder");
    for edition in EDITIONS {
        let mut program = PROGRAM.replace("EDITION", edition);
        if edition == "dat2" {
            program += LATER;
        }
        let c = folder.path().join("program.c");
        let cpp = folder.path().join("program.cc");
        fs::write(&c, &program).expect("the source");
        fs::write(&cpp, &program).expect("the source");
        for dialect in ["c89", "gnu89", "c99", "c11", "c17", "c2x"] {
            compiles("cc", dialect, &c);
        }
        for dialect in ["c++98", "c++11", "c++14", "c++17", "c++20", "gnu++20"] {
            compiles("c++", dialect, &cpp);
        }
    }
}

/// Each header compiles as the first one that a program includes.
#[test]
fn every_header_compiles_on_its_own() {
    let folder = TempDir::new().expect("a folder");
    let mut counts = [0; EDITIONS.len()];
    for (edition, count) in EDITIONS.iter().zip(&mut counts) {
        for header in fs::read_dir(include().join(edition)).expect("the headers") {
            let name = header.expect("a header").file_name();
            let name = name.to_str().expect("a name");
            let source = folder.path().join("alone.c");
            let text = format!("#include <{edition}/{name}>\nint main(void) {{ return 0; }}\n");
            fs::write(&source, text).expect("the source");
            compiles("cc", "c89", &source);
            *count += 1;
        }
    }
    assert_eq!(counts, [6, 11]);
}

/// All headers of 2.0. The packaged ones need `<netinet/in.h>` for IPv6 addresses.
const ALL: &str = "#include <netinet/in.h>\n#include <dat2/udat.h>\n#include <dat2/dat_redirection.h>\n#include <dat2/dat_registry.h>\n\
    #include <dat2/udat_redirection.h>\n#include <dat2/udat_vendor_specific.h>\n#include <dat2/dat_ib_extensions.h>\n";

/// The origin of headers.
#[derive(Clone, Copy)]
enum Whose {
    Ours,
    Packaged,
}

impl Whose {
    /// Returns the compiler, with these headers of 2.0.
    fn compiler(self) -> Command {
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-w"]);
        if let Self::Ours = self {
            compiler.arg("-I").arg(include());
        }
        compiler
    }

    /// Returns the preprocessed headers, with the definitions of all macros.
    fn preprocessed(self, source: &Path) -> String {
        let mut compiler = self.compiler();
        let out = compiler
            .args(["-x", "c", "-std=gnu17", "-E", "-dD", "-P"])
            .arg(source)
            .output()
            .expect("a compiler");
        assert!(out.status.success(), "the headers are preprocessed");
        String::from_utf8(out.stdout).expect("text")
    }

    fn output(self, folder: &Path, source: &Path) -> Vec<String> {
        let program = folder.join("program");
        let mut compiler = self.compiler();
        let compiled = compiler
            .arg("-o")
            .args([&program, source])
            .output()
            .expect("a compiler");
        let errors = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{errors}");
        let printed = Command::new(&program).output().expect("the program runs");
        let printed = String::from_utf8(printed.stdout).expect("text");
        printed.lines().map(str::to_owned).collect()
    }
}

/// Returns the words of a text in order.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
}

fn is_of_dat(word: &str) -> bool {
    ["DAT_", "DCNT_", "dat_"]
        .iter()
        .any(|prefix| word.starts_with(prefix))
}

/// Returns the names of a structure's members, without those of a union inside.
fn members_of(text: &str) -> Vec<String> {
    let (mut names, mut member, mut depth) = (Vec::new(), String::new(), 0);
    for letter in text.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                let name = words(member.split('[').next().unwrap_or_default()).last();
                names.extend(
                    name.filter(|name| !name.is_empty() && *name != "union")
                        .map(str::to_owned),
                );
                member.clear();
            }
            _ if depth == 0 => member.push(letter),
            _ => {}
        }
    }
    names
}

/// Definitions of headers under names of DAT.
#[derive(Default)]
struct Contents {
    names: BTreeSet<String>,
    /// Names of constants: macros without parameters, and members of enumerations.
    values: Vec<String>,
    types: Vec<String>,
    /// Names and members.
    structures: Vec<(String, Vec<String>)>,
    functions: Vec<String>,
    /// Macros with parameters, and the number of these.
    macros: BTreeMap<String, usize>,
}

impl Contents {
    fn of(preprocessed: &str) -> Self {
        let mut all = Self {
            names: words(preprocessed)
                .filter(|word| is_of_dat(word))
                .map(str::to_owned)
                .collect(),
            ..Self::default()
        };
        let mut code = String::new();
        for line in preprocessed.lines() {
            match line.strip_prefix("#define ") {
                Some(definition) => all.define(definition),
                None if line.starts_with('#') => {}
                None => code = code + line + " ",
            }
        }
        // A declaration ends where no brace is open, and so does a function with a body.
        let (mut declaration, mut depth) = (String::new(), 0);
        for letter in code.chars() {
            declaration.push(letter);
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            let has_body = || {
                declaration
                    .split('{')
                    .next()
                    .is_some_and(|before| before.contains('('))
            };
            if depth == 0 && (letter == ';' || letter == '}' && has_body()) {
                all.declare(declaration.trim());
                declaration.clear();
            }
        }
        all
    }

    fn define(&mut self, definition: &str) {
        let (name, value) = definition.split_once(' ').unwrap_or((definition, ""));
        if let Some((name, _)) = name.split_once('(') {
            let inside = definition
                .split_once('(')
                .and_then(|all| all.1.split_once(')'));
            let count = inside.map_or(0, |(inside, _)| inside.split(',').count());
            if is_of_dat(name) {
                self.macros.insert(name.to_owned(), count);
            }
            return;
        }
        let is_value = value.starts_with(['(', '"', '0', '1', '2', '4', 'U'])
            || (value.starts_with("DAT_") && !value.ends_with("_STATUS"));
        if name.starts_with("DAT_") && is_value && !name.ends_with("AGENT_NULL") {
            self.values.push(name.to_owned());
        }
    }

    fn declare(&mut self, declaration: &str) {
        let plain = declaration.strip_prefix("typedef ").unwrap_or(declaration);
        let body = plain
            .split_once('{')
            .and_then(|(_, rest)| rest.rsplit_once('}'));
        let last = |text: &str| {
            words(text)
                .filter(|word| !word.is_empty())
                .last()
                .map(str::to_owned)
        };
        if let Some((members, behind)) = body.filter(|_| plain.starts_with("enum ")) {
            let members = members
                .split(',')
                .filter_map(|member| words(member.trim()).next());
            self.values
                .extend(members.filter(|name| is_of_dat(name)).map(str::to_owned));
            self.types
                .extend(last(behind).filter(|name| is_of_dat(name)));
        } else if let Some((members, behind)) = body.filter(|_| !plain.contains(") {")) {
            let name = words(plain).find(|word| word.starts_with("dat_"));
            self.types
                .extend(last(behind).filter(|name| is_of_dat(name)));
            self.structures
                .extend(name.map(|name| (name.to_owned(), members_of(members))));
        } else if declaration.starts_with("typedef ") {
            let name = match declaration.split_once("(*DAT_") {
                Some((_, rest)) => words(rest).next().map(|name| format!("DAT_{name}")),
                None if declaration.contains("(*") => {
                    last(declaration.split(')').next().unwrap_or_default())
                }
                None => last(declaration.split('[').next().unwrap_or_default()),
            };
            self.types.extend(name.filter(|name| is_of_dat(name)));
        } else {
            let name = declaration.split_once('(').and_then(|parts| last(parts.0));
            self.functions
                .extend(name.filter(|name| name.starts_with("dat_")));
        }
    }

    /// Returns a program that prints all definitions.
    fn program(&self) -> String {
        let mut text = format!(
            "{ALL}#include <stddef.h>\n#include <stdio.h>\n#include <type_traits>\n#include <typeinfo>\n\
             static void value(const char *name, const char *text) {{ printf(\"%s %s\\n\", name, text); }}\n\
             static void value(const char *name, void *place) {{ printf(\"%s %p\\n\", name, place); }}\n\
             template <class T> static void value(const char *name, T number) {{ printf(\"%s %lld\\n\", name, (long long)number); }}\n\
             #define TYPE(what) printf(\"%s %s\\n\", #what, typeid(what).name());\n\
             #define MEMBER(in, what) printf(\"%s.%s at %zu of %zu: %s\\n\", #in, #what, offsetof(in, what), sizeof(in::what), typeid(std::remove_cv_t<std::remove_all_extents_t<decltype(in::what)>>).name());\n\
             int main() {{\n"
        );
        for name in &self.values {
            let _ = writeln!(text, "value(\"{name}\", {name});");
        }
        for name in &self.types {
            let _ = writeln!(text, "TYPE({name})");
        }
        for name in &self.functions {
            let _ = writeln!(text, "TYPE(decltype(&{name}))");
        }
        for (name, members) in &self.structures {
            let _ = writeln!(text, "printf(\"{name} %zu\\n\", sizeof({name}));");
            for member in members {
                let _ = writeln!(text, "MEMBER({name}, {member})");
            }
        }
        text + "}\n"
    }
}

/// Names that macros of the packaged headers use and no header defines.
const NOT_OURS: [&str; 2] = ["DAT_COUNTER_TYPE", "DAT_IA_FIELD_IA_MAX_DTO_PER_EP_IN"];
/// Names that only this project's headers have or define.
const OURS_ALONE: [&str; 4] = [
    "DAT_RETURN_CLASS",
    "DAT_IA_FIELD_IA_MAX_DTO_PER_OP",
    "dat_provider_init",
    "dat_provider_fini",
];

/// Spec: GEN-08, HTY-01, EPM-01
#[test]
fn headers_of_2_0_match_the_packaged_ones() {
    let folder = TempDir::new().expect("a folder");
    let all = folder.path().join("all.c");
    fs::write(&all, ALL).expect("the source");
    let mut ours = Contents::of(&Whose::Ours.preprocessed(&all));
    let packaged = Contents::of(&Whose::Packaged.preprocessed(&all));
    let missing: Vec<_> = packaged
        .names
        .difference(&ours.names)
        .filter(|name| !NOT_OURS.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in our headers: {missing:?}");
    for (name, count) in &packaged.macros {
        assert_eq!(ours.macros.get(name), Some(count), "parameters of {name}");
    }
    let is_compared =
        |name: &String| !name.starts_with("DAT_COMMON_") && !OURS_ALONE.contains(&name.as_str());
    ours.values.retain(is_compared);
    ours.types.retain(is_compared);
    ours.functions.retain(is_compared);
    for (name, members) in &mut ours.structures {
        if name == "dat_ib_extension_event_data" {
            members.extend(["remote_ah", "coll"].map(str::to_owned));
        }
    }
    let counts = [
        ours.values.len(),
        ours.types.len(),
        ours.structures.len(),
        ours.functions.len(),
    ];
    println!("values, types, structures, functions: {counts:?}");
    assert!(
        counts
            .iter()
            .zip([760, 220, 39, 85])
            .all(|(count, least)| *count >= least),
        "{counts:?}"
    );
    let program = folder.path().join("contents.cc");
    fs::write(&program, ours.program()).expect("the source");
    let [one, other] =
        [Whose::Ours, Whose::Packaged].map(|whose| whose.output(folder.path(), &program));
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one, other);
    }
    assert_eq!(one.len(), other.len());
}
