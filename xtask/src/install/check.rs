//! Checks an installation: programs compile, link and run with the flags of pkg-config only.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use xshell::cmd;

use super::libraries::LIBRARIES;
use super::pages;
use super::{COMPLETIONS, Options, Paths, Plan};
use crate::workspace::Workspace;

/// Programs, the pkg-config module of each, and the text that it prints first.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("open.c", "dat", "mock0 has "),
    ("write.c", "dat", "status 0, written by RDMA"),
    ("shared.c", "dat", SHARED),
    ("open2.c", "dat2", "mock0: "),
    ("put.c", "rsm", "put into a segment"),
];

/// The whole output of the program with a shared receive queue.
const SHARED: &str = "message 0 of client 0, in buffer 0\nmessage 1 of client 1, in buffer 1\nmessage 2 of client 0, in buffer 2\n\
    low watermark: filled up to 4 buffers";

/// Installs into a temporary folder, as a user would, and checks the result.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let temporary = tempfile::tempdir().context("a folder")?;
    let prefix = temporary.path().join("installed");
    let to = |prefix: PathBuf, destdir: Option<PathBuf>| Options {
        prefix,
        libdir: None,
        destdir,
        features: Vec::new(),
        library: Vec::new(),
        except: Vec::new(),
    };
    let options = to(prefix.clone(), None);
    let plan = Plan::new(&options);
    plan.build(workspace)?;
    plan.install(workspace, &Paths::new(&options)?)?;
    check_names(workspace, &prefix)?;
    for (_, completions) in COMPLETIONS {
        let path = prefix.join("share").join(completions);
        ensure!(path.is_file(), "there is no {}", path.display());
    }
    let (program, library) = (prefix.join("bin/dat"), prefix.join("lib/libdat_verbs.so"));
    let environment = cmd!(workspace.shell, "{program} run --print-env").read()?;
    ensure!(
        environment.contains(&*library.canonicalize()?.to_string_lossy()),
        "`dat run` does not find {}: {environment}",
        library.display()
    );
    pages::check(workspace, &prefix)?;
    for (source, module, expected) in PROGRAMS {
        run(
            workspace,
            temporary.path(),
            &prefix,
            source,
            module,
            expected,
        )?;
    }
    check_page(workspace)?;
    // With a destination, nothing is written outside it and no installed file names it.
    let packed = temporary.path().join("packed");
    let nowhere = PathBuf::from("/usr/nowhere");
    let packing = to(nowhere.clone(), Some(packed.clone()));
    plan.install(workspace, &Paths::new(&packing)?)?;
    ensure!(!nowhere.exists(), "{} was modified", nowhere.display());
    let text = fs::read_to_string(packed.join("usr/nowhere/lib/pkgconfig/dat.pc"))?;
    ensure!(
        text.contains("prefix=/usr/nowhere\n") && !text.contains("packed"),
        "dat.pc names wrong directories: {text}"
    );
    Ok(())
}

/// Checks that the page for newcomers shows the first program unchanged.
fn check_page(workspace: &Workspace) -> Result<()> {
    let read =
        |path: &str| fs::read_to_string(workspace.root().join(path)).context(path.to_owned());
    let program = read("dat-ffi/examples/open.c")?;
    let page = read("docs/c-libraries.md")?;
    ensure!(
        page.contains(&format!("```c\n{program}```\n")),
        "docs/c-libraries.md does not contain the text of open.c"
    );
    Ok(())
}

/// Checks each library's soname, and its symbol versions where the interface has them.
fn check_names(workspace: &Workspace, prefix: &Path) -> Result<()> {
    let shell = &workspace.shell;
    for library in &LIBRARIES {
        let path = prefix.join("lib").join(library.loaded_as);
        ensure!(
            path.is_symlink(),
            "{} is not a symbolic link",
            path.display()
        );
        let dynamic = cmd!(shell, "readelf --dynamic --wide {path}")
            .quiet()
            .read()?;
        let name = format!("Library soname: [{}]", library.loaded_as);
        ensure!(
            dynamic.contains(&name),
            "{} has another soname: {dynamic}",
            path.display()
        );
        let version = match library.name {
            "dat" => "DAT_1.2",
            "dat2" => "DAT_2.0",
            _ => continue,
        };
        for line in pages::exports(workspace, &path)? {
            ensure!(
                line.contains(version),
                "{} has no version {version}: {line}",
                path.display()
            );
        }
    }
    Ok(())
}

/// Compiles a program with the flags of pkg-config only, and runs it.
fn run(
    workspace: &Workspace,
    folder: &Path,
    prefix: &Path,
    source: &str,
    module: &str,
    expected: &str,
) -> Result<()> {
    let shell = &workspace.shell;
    let _modules = shell.push_env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = cmd!(shell, "pkg-config --cflags --libs {module}")
        .quiet()
        .read()?;
    let flags: Vec<OsString> = flags.split_whitespace().map(OsString::from).collect();
    let installed = prefix.join("share/doc/dat/examples").join(source);
    // A program that finds system headers also compiles, so check that it includes ours only.
    let known = flags.clone();
    let included = cmd!(shell, "cc -M {installed} {known...}").quiet().read()?;
    let strange = included.split_whitespace().find(|path| {
        let of_dat = ["/dat/", "/dat2/", "/dat_common/", "/rsmapi.h"];
        of_dat.iter().any(|part| path.contains(part))
            && !path.starts_with(&*prefix.to_string_lossy())
    });
    if let Some(path) = strange {
        bail!("{source} includes {path}");
    }
    let program = folder.join(source.trim_end_matches(".c"));
    cmd!(
        shell,
        "cc -Wall -Wextra -Werror {installed} {flags...} -o {program}"
    )
    .quiet()
    .run()?;
    let out = cmd!(shell, "timeout 60 {program}")
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env(
            "DAT_OVERRIDE",
            prefix.join("share/doc/dat/examples/dat.conf"),
        )
        .quiet()
        .read()?;
    if !out.starts_with(expected) {
        bail!("{source} printed `{out}`, expected `{expected}`");
    }
    println!("  {source}: {out}");
    Ok(())
}
