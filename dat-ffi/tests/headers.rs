//! The parts of the C headers that the list of calls makes.
//!
//! The test compares them; with `DAT_WRITE_HEADERS=1` it writes them instead.

use std::path::Path;
use std::{env, fs};

/// Names of arguments, and their types in the list.
type Arguments = &'static [(&'static str, &'static str)];

/// A call of the list.
struct Call {
    name: &'static str,
    arguments: Arguments,
    /// The arguments of 2.0 if they differ.
    later: Option<Arguments>,
    slot: usize,
}

macro_rules! collect {
    (
        calls {
            $($name:ident($($argument:ident: $type:ty),*) $(/ ($($later:ident: $later_type:ty),*))?
                $($gone:ident)? $slot:literal = $module:ident::$function:ident;)*
        }
        later { $($added:ident($($added_argument:ident: $added_type:ty),*) $added_slot:literal = $($_added:ident)::+;)* }
        table { $($entry:ident($($entry_argument:ident: $entry_type:ty),*) $entry_slot:literal = $($_entry:ident)::+;)* }
        registry { $($none:tt)* }
    ) => {
        const CALLS: &[Call] = &[$(Call {
            name: stringify!($name),
            arguments: &[$((stringify!($argument), stringify!($type))),*],
            later: collect!(@ $(&[$((stringify!($later), stringify!($later_type))),*])?),
            slot: $slot,
        }),*];
        const LATER: &[Call] = &[$(Call {
            name: stringify!($added),
            arguments: &[$((stringify!($added_argument), stringify!($added_type))),*],
            later: None,
            slot: $added_slot,
        }),*];
        const TABLE: &[Call] = &[$(Call {
            name: stringify!($entry),
            arguments: &[$((stringify!($entry_argument), stringify!($entry_type))),*],
            later: None,
            slot: $entry_slot,
        }),*];
    };
    (@) => { None };
    (@ $later:expr) => { Some($later) };
}

dat_ffi::calls_of_dat!(collect);

/// An edition of the interface.
#[derive(Clone, Copy, PartialEq)]
enum Edition {
    V1,
    V2,
}

use Edition::{V1, V2};

/// The number of slots of 1.2.
const SLOTS_OF_1_2: usize = 68;
/// The longest line.
const WIDTH: usize = 118;

/// Returns the name in C of a type of the list: `EvdFlags` is `DAT_EVD_FLAGS`.
fn named(name: &str) -> String {
    let mut text = String::from("DAT");
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text.replace("_ATTRIBUTES", "_ATTR")
}

/// Returns the name in C of the handle of a role: that of `RequestEvd` is `DAT_EVD_HANDLE`.
fn handle(role: &str) -> String {
    let kind = if role.ends_with("Evd") { "Evd" } else { role };
    named(&format!("{kind}Handle"))
}

/// Returns a parameter as the headers declare it.
fn parameter((name, kind): &(&str, &str), edition: Edition) -> String {
    let kind = kind.replace(' ', "");
    let (outer, inner) = kind.split_once('<').unwrap_or((&kind, ""));
    let inner = inner.trim_end_matches('>');
    let (kind, of_1_2) = match outer {
        "Ia" => (named("IaHandle"), None),
        "Any" => (named("Handle"), None),
        "Object" | "Maybe" => (handle(inner), None),
        "Made" => (handle(inner) + " *", None),
        "Out" | "List" | "NonConst" => (named(inner) + " *", None),
        "In" | "ConstList" => (format!("const {} *", named(inner)), None),
        "EventOut" => (named("Event") + " *", None),
        "RequestOut" => (named("CrParam") + " *", None),
        "EndpointParam" => (format!("const {} *", named("EpParam")), None),
        "VariableArguments" => ("va_list".to_owned(), None),
        "PrivateData" => ("const DAT_PVOID".to_owned(), Some("const void *")),
        "Text" => ("const DAT_NAME_PTR".to_owned(), Some("const char *")),
        plain => (named(plain), None),
    };
    let kind = match of_1_2 {
        Some(other) if edition == V1 => other.to_owned(),
        _ => kind,
    };
    let space = if kind.ends_with('*') { "" } else { " " };
    format!("{kind}{space}{name}")
}

/// Returns a text whose parts stand behind each other, in lines of the width.
///
/// `end` is behind all lines but the last, and `indent` before all but the first.
fn wrapped(start: &str, parts: &[String], close: &str, [end, indent]: [&str; 2]) -> String {
    let (mut text, mut line) = (String::new(), start.to_owned());
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        let part = part.clone() + if is_last { close } else { "," };
        let begins = index == 0;
        let reserve = if is_last { 0 } else { end.len() };
        if !begins && line.len() + 1 + part.len() + reserve > WIDTH {
            text += &format!("{line}{end}\n");
            line = format!("{indent}{part}");
        } else {
            line += if begins { "" } else { " " };
            line += &part;
        }
    }
    text + &line + "\n"
}

impl Call {
    /// Returns the name without its prefix.
    fn short(&self) -> &'static str {
        self.name.strip_prefix("dat_").expect("the prefix")
    }

    fn arguments(&self, edition: Edition) -> Arguments {
        match (edition, self.later) {
            (V2, Some(later)) => later,
            _ => self.arguments,
        }
    }

    fn parameters(&self, edition: Edition) -> Vec<String> {
        let arguments = self.arguments(edition).iter();
        arguments
            .map(|argument| parameter(argument, edition))
            .collect()
    }

    fn is_shared(&self) -> bool {
        self.slot < SLOTS_OF_1_2 && self.parameters(V1) == self.parameters(V2)
    }

    fn prototype(&self, edition: Edition) -> String {
        let start = format!("DAT_RETURN {}(", self.name);
        wrapped(&start, &self.parameters(edition), ");", ["", "    "])
    }

    /// Returns the type of the function in a table.
    fn function_type(&self, edition: Edition) -> String {
        let start = format!(
            "typedef DAT_RETURN (*{}_FUNC)(",
            self.name.to_ascii_uppercase()
        );
        wrapped(&start, &self.parameters(edition), ");", ["", "    "])
    }

    fn member(&self) -> String {
        let (upper, lower) = (self.name.to_ascii_uppercase(), self.short());
        format!("    {upper}_FUNC {lower}_func;\n")
    }

    /// Returns the macro that calls a provider.
    fn call(&self) -> String {
        let names = self
            .arguments(V2)
            .iter()
            .map(|(name, _)| (*name).to_owned());
        let names: Vec<String> = names.collect();
        let start = format!("#define {}(", self.name.to_ascii_uppercase());
        let lines = [" \\", "    "];
        let head = wrapped(&start, &names, ") \\", lines);
        let head = head.trim_end_matches([' ', '\\', '\n']);
        let first = &names[0];
        let start = format!("(DAT_HANDLE_TO_PROVIDER({first})->{}_func(", self.short());
        let values: Vec<String> = names.iter().map(|name| format!("({name})")).collect();
        let on_one_line = format!("{head} {start}{}))", values.join(", "));
        if on_one_line.len() <= WIDTH {
            return on_one_line + "\n";
        }
        let body = wrapped(&format!("    {start}"), &values, "))", [" \\", "        "]);
        format!("{head} \\\n{body}")
    }
}

/// All calls of a table, by slot.
fn table() -> Vec<&'static Call> {
    let mut all: Vec<&Call> = CALLS.iter().chain(LATER).chain(TABLE).collect();
    all.sort_by_key(|call| call.slot);
    assert!(all.iter().enumerate().all(|(slot, call)| slot == call.slot));
    all
}

fn joined<'a>(calls: impl Iterator<Item = &'a Call>, text: impl Fn(&Call) -> String) -> String {
    calls.map(text).collect()
}

/// The sections of the calls' declarations, by the start of the names.
const SECTIONS: [(&str, &str); 12] = [
    ("dat_ia_query", "Interface adapters."),
    ("dat_set_ dat_get_", "Objects of any kind."),
    ("dat_cno_", "Notification objects."),
    ("dat_evd_", "Event dispatchers."),
    ("dat_psp_", "Public service points."),
    ("dat_rsp_", "Reserved service points."),
    ("dat_cr_", "Connection requests."),
    ("dat_ep_", "Endpoints."),
    ("dat_srq_", "Shared receive queues."),
    ("dat_pz_", "Protection zones."),
    ("dat_lmr_", "Local memory regions."),
    ("dat_rmr_", "Remote memory regions."),
];

fn shared_declarations() -> String {
    let mut text = String::new();
    for (starts, title) in SECTIONS {
        let is_here = |call: &&Call| starts.split(' ').any(|start| call.name.starts_with(start));
        text += &format!("/* {title} */\n");
        let here = CALLS.iter().filter(is_here).filter(|call| call.is_shared());
        text += &joined(here, |call| call.prototype(V1));
        text += "\n";
    }
    let count = text.matches("DAT_RETURN").count();
    assert_eq!(count, CALLS.iter().filter(|call| call.is_shared()).count());
    text.trim_end().to_owned() + "\n"
}

fn own_declarations(edition: Edition) -> String {
    joined(CALLS.iter().filter(|call| !call.is_shared()), |call| {
        call.prototype(edition)
    })
}

fn function_types() -> String {
    let (shared, own): (Vec<_>, Vec<_>) = table().into_iter().partition(|call| call.is_shared());
    let text = |calls: &[&Call], edition, most| {
        let calls = calls.iter().copied().filter(|call| call.slot < most);
        joined(calls, |call| call.function_type(edition))
    };
    format!(
        "{}\n#if DAT_COMMON_EDITION >= 20\n{}#else\n{}#endif\n",
        text(&shared, V1, usize::MAX),
        text(&own, V2, usize::MAX),
        text(&own, V1, SLOTS_OF_1_2),
    )
}

fn members() -> String {
    let all = table();
    let (both, later) = all.split_at(SLOTS_OF_1_2);
    let text = |calls: &[&'static Call]| joined(calls.iter().copied(), Call::member);
    format!(
        "{}#if DAT_COMMON_EDITION >= 20\n{}#endif\n",
        text(both),
        text(later)
    )
}

fn calls_by_table() -> String {
    // The registry opens and closes.
    let calls = table()
        .into_iter()
        .filter(|call| !matches!(call.slot, 0 | 2));
    joined(calls, Call::call)
}

const BEGIN: &str = "/* Generated from dat-ffi/src/list.rs, until the end mark. */\n";
const END: &str = "/* End of what is generated. */\n";

/// Replaces the generated parts of a header, which are as many as the texts.
fn with_parts(header: &str, parts: &[String]) -> String {
    let mut rest = header;
    let mut text = String::new();
    for part in parts {
        let (before, after) = rest.split_once(BEGIN).expect("a mark of the begin");
        let (_, after) = after.split_once(END).expect("a mark of the end");
        text += &format!("{before}{BEGIN}{part}{END}");
        rest = after;
    }
    assert!(!rest.contains(BEGIN), "a part without a text");
    text + rest
}

#[test]
fn the_list_of_calls_makes_the_headers() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let later = joined(LATER.iter(), |call| call.prototype(V2));
    for (header, parts) in [
        ("dat_common/calls.h", vec![shared_declarations()]),
        ("dat/udat.h", vec![own_declarations(V1)]),
        ("dat2/udat.h", vec![own_declarations(V2), later]),
        (
            "dat_common/redirection.h",
            vec![function_types(), members()],
        ),
        ("dat2/dat_redirection.h", vec![calls_by_table()]),
    ] {
        let path = include.join(header);
        let found = fs::read_to_string(&path).expect("a header");
        let wanted = with_parts(&found, &parts);
        if env::var_os("DAT_WRITE_HEADERS").is_some() {
            fs::write(&path, wanted).expect("the header is written");
            continue;
        }
        let difference = found
            .lines()
            .zip(wanted.lines())
            .find(|(one, other)| one != other);
        assert!(
            found == wanted,
            "{header} is not what the list makes, from here on: {difference:?}; run this test with DAT_WRITE_HEADERS=1"
        );
    }
}
