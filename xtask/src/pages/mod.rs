//! Man pages for C programs, made from the texts that are also the Rust documentation.

mod headers;
mod roff;
mod source;
mod types;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headers::Header;
use roff::{Codes, Synopsis};
use source::{Block, Page};
use types::Types;

use crate::install;
use crate::workspace::Workspace;

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Output directory, created if missing [default: `man` in the build's directory]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

/// Writes all pages, into the folders `man1`, `man3`, `man5` and `man7`.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let usual = || workspace.target().join("man");
    let folder = options.output.clone().unwrap_or_else(usual);
    for (path, text) in Manual::read(&workspace.root().join("dat-ffi"))?.render()? {
        install::write(&folder.join(path), &text)?;
    }
    println!("{}", folder.display());
    Ok(())
}

/// The headers of DAT 1.2 that declare functions, and the header to include for each.
const DAT: [(&str, &str); 3] = [
    ("dat/udat.h", "dat/udat.h"),
    ("dat_common/calls.h", "dat/udat.h"),
    ("dat/dat_registry.h", "dat/dat_registry.h"),
];
const RSM: &str = "rsmapi.h";

/// All texts, and the headers that declare their functions and types.
pub(crate) struct Manual {
    pages: BTreeMap<String, Page>,
    headers: Vec<Header>,
    dat: Types,
    rsm: Types,
}

impl Manual {
    /// Reads the manual from the folder `dat-ffi`.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let include = folder.join("include");
        let headers = DAT.into_iter().chain([(RSM, RSM)]);
        let headers = headers.map(|(file, included)| Header::read(&include, file, included));
        Ok(Self {
            pages: source::read_all(&folder.join("manual"))?,
            headers: headers.collect::<Result<_>>()?,
            dat: Types::of_dat(&include)?,
            rsm: Types::of_rsm(&include)?,
        })
    }

    /// Returns all pages: the path of each below `share/man`, and its text.
    pub(crate) fn render(&self) -> Result<Vec<(PathBuf, String)>> {
        let mut rendered = Vec::new();
        for page in self.pages.values() {
            let text = self
                .page(page)
                .with_context(|| format!("the page of {}", page.name))?;
            // Each name gets its own copy, for readers that follow no links.
            let paths = page.names().map(|name| path_of(name, page.number));
            rendered.extend(paths.map(|path| (path, text.clone())));
        }
        Ok(rendered)
    }

    fn page(&self, page: &Page) -> Result<String> {
        let known = |word: &str| self.names().any(|name| name == word);
        let (codes, types) = if page.name.starts_with("rsm") {
            (Codes::Rsm, &self.rsm)
        } else {
            (Codes::Dat, &self.dat)
        };
        let synopses = self.synopses(page)?;
        Ok(roff::page(page, &synopses, codes, types, &known))
    }

    /// Returns the program examples of the overview pages, with the names of the pages.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, String)> {
        let pages = self.pages.values().filter(|page| page.number == 7);
        pages.flat_map(|page| {
            let blocks = page.sections.iter().flat_map(|section| &section.blocks);
            blocks.filter_map(|block| match block {
                Block::Code(lines) => Some((page.name.as_str(), lines.join("\n") + "\n")),
                _ => None,
            })
        })
    }

    /// Returns all functions that have a page.
    fn names(&self) -> impl Iterator<Item = &str> {
        let functions = self.pages.values().filter(|page| page.number == 3);
        functions.flat_map(Page::names)
    }

    fn declaration(&self, name: &str) -> Option<(&'static str, &str)> {
        let mut declared = self
            .headers
            .iter()
            .filter_map(|header| Some((header.included, header.functions.get(name)?.as_str())));
        declared.next()
    }

    fn synopses<'a>(&'a self, page: &'a Page) -> Result<Vec<Synopsis<'a>>> {
        let mut synopses = Vec::new();
        if page.number != 3 {
            return Ok(synopses);
        }
        let declared = page.names().map(|name| self.declaration(name));
        let declared: Option<Vec<_>> = declared.collect();
        let is_rsm = page.name.starts_with("rsm");
        let later = declarations_of_2_0(page);
        if let Some(declared) = declared {
            let behind = match (is_rsm, later) {
                (true, _) => "Link with -lrsm.",
                (false, Some(_)) => "Link with -ldat.",
                (false, None) => {
                    "Link with -ldat. DAT 2.0 has the same, in headers below <dat2/>; link with -ldat2."
                }
            };
            synopses.push(Synopsis {
                before: None,
                included: declared.first().map(|(included, _)| *included),
                declarations: declared
                    .iter()
                    .map(|(_, declaration)| *declaration)
                    .collect(),
                behind: Some(behind.to_owned()),
            });
        } else if later.is_none() {
            bail!("no header declares it");
        }
        if let Some(lines) = later {
            let is_only = synopses.is_empty();
            synopses.push(Synopsis {
                before: (!is_only).then_some("In DAT 2.0:"),
                included: Some("dat2/udat.h"),
                declarations: lines.iter().map(String::as_str).collect(),
                behind: Some("Link with -ldat2.".to_owned()),
            });
        }
        Ok(synopses)
    }
}

/// Returns the declarations that differ in DAT 2.0.
fn declarations_of_2_0(page: &Page) -> Option<&Vec<String>> {
    let blocks = &page.section("DAT 2.0")?.blocks;
    blocks.iter().find_map(|block| match block {
        Block::Code(lines) => Some(lines),
        _ => None,
    })
}

fn path_of(name: &str, number: u8) -> PathBuf {
    PathBuf::from(format!("man{number}/{name}.{number}"))
}

/// Returns a page's declarations: of DAT 1.2 or RSM, and those that differ in 2.0.
///
/// # Errors
/// The page has no synopsis.
pub(crate) fn declarations(text: &str) -> Result<(Vec<String>, Vec<String>)> {
    let synopsis = text
        .split_once(".SH SYNOPSIS\n")
        .and_then(|(_, rest)| rest.split_once("\n.SH "));
    let (synopsis, _) = synopsis.context("there is no synopsis")?;
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for block in synopsis.split(".nf\n").skip(1) {
        let (block, _) = block
            .split_once("\n.fi")
            .context("the declaration does not end")?;
        let lines = block.lines().map(|line| {
            line.replace("\\fB", "")
                .replace("\\fR", "")
                .replace("\\-", "-")
                .replace("\\&", "")
        });
        let lines: Vec<String> = lines.filter(|line| !line.starts_with(".sp")).collect();
        let is_later = lines.iter().any(|line| line.contains("<dat2/"));
        let declared = lines
            .into_iter()
            .filter(|line| !line.starts_with("#include"));
        if is_later { &mut later } else { &mut first }.extend(declared);
    }
    ensure!(
        !first.is_empty() || !later.is_empty(),
        "the synopsis declares nothing"
    );
    Ok((first, later))
}

#[cfg(test)]
mod tests;
