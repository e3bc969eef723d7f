//! Installs the C libraries with their files, and the program, below a prefix.

mod check;
mod libraries;
mod pages;

pub(crate) use check::check;

use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use xshell::{Shell, cmd};

use crate::pages::Manual;
use crate::workspace::Workspace;
use libraries::{LIBRARIES, Library};

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Installation prefix, an absolute path
    #[arg(long, value_name = "DIRECTORY", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Directory of the libraries [default: PREFIX/lib]
    #[arg(long, value_name = "DIRECTORY")]
    libdir: Option<PathBuf>,
    /// Staging directory that is prepended to every path, for packaging
    #[arg(long, value_name = "DIRECTORY")]
    destdir: Option<PathBuf>,
    /// Cargo features; `verbs` adds RDMA devices, without it only the mock is available
    #[arg(long, value_name = "FEATURES")]
    features: Vec<String>,
    /// Install only this library, with its program, and not `dat`; may be repeated [default: all,
    /// and `dat`]
    #[arg(long, value_name = "LIBRARY", value_parser = libraries::names())]
    library: Vec<String>,
    /// Skip this library; may be repeated; `dat2` would replace a packaged libdat2 in loader
    /// directories
    #[arg(long, value_name = "LIBRARY", value_parser = libraries::names(), conflicts_with = "library")]
    except: Vec<String>,
}

/// The build folder of installed files, in cargo's.
const RELEASE: &str = "release";

/// The package of the program `dat`.
const PROGRAM: &str = "dat-cli";
/// The package and the file of the library that `dat run` preloads.
const PRELOADED: (&str, &str) = ("dat-verbs", "libdat_verbs.so");

/// The shells with completions, and the path below `share` where each looks for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/dat"),
    ("zsh", "zsh/site-functions/_dat"),
    ("fish", "fish/vendor_completions.d/dat.fish"),
];

/// The destinations of the files.
struct Paths {
    /// The prefix from which the installed files are used.
    prefix: PathBuf,
    libraries: PathBuf,
    /// The folder that precedes every path (`--destdir`).
    before: Option<PathBuf>,
}

impl Paths {
    fn new(options: &Options) -> Result<Self> {
        let absolute = |path: &Path| match path.is_absolute() {
            true => Ok(path.to_path_buf()),
            false => bail!("{} is not an absolute path", path.display()),
        };
        let prefix = absolute(&options.prefix)?;
        let libraries = match &options.libdir {
            Some(folder) => absolute(folder)?,
            None => prefix.join("lib"),
        };
        let before = options.destdir.as_deref().map(std::path::absolute);
        Ok(Self {
            prefix,
            libraries,
            before: before.transpose().context("the destination")?,
        })
    }

    /// Returns the path at which a file is written that is used as `path`.
    fn written(&self, path: &Path) -> PathBuf {
        match &self.before {
            None => path.to_path_buf(),
            Some(before) => {
                let below = path.components();
                let below = below.filter(|part| matches!(part, Component::Normal(_)));
                before.join(below.collect::<PathBuf>())
            }
        }
    }

    fn below_prefix(&self, path: &str) -> PathBuf {
        self.written(&self.prefix.join(path))
    }
}

/// Builds and installs the chosen libraries and the program.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let paths = Paths::new(options)?;
    let plan = Plan::new(options);
    plan.build(workspace)?;
    plan.install(workspace, &paths)?;
    if options.destdir.is_none() && options.library.is_empty() {
        let libraries = paths.libraries.display();
        println!("run `ldconfig` so that the loader finds new libraries in its directories");
        if plan.libraries.iter().any(|library| library.name == "dat2") {
            println!(
                "libdat2.so.2 then replaces a packaged one for all programs; `--except dat2` skips it"
            );
            println!(
                "with LD_LIBRARY_PATH={libraries} or after `ldconfig`, programs for DAT 2.0 can open \
                `mock0` without a dat.conf"
            );
        }
        println!(
            "a packaged libdat2 needs a dat.conf: `dat-registry --library {libraries}/libdat_provider.so.2 \
            > FILE`, and DAT_OVERRIDE=FILE in the environment"
        );
    }
    Ok(())
}

/// The parts to install.
struct Plan<'a> {
    libraries: Vec<&'static Library>,
    has_program: bool,
    features: &'a [String],
}

impl<'a> Plan<'a> {
    fn new(options: &'a Options) -> Self {
        let all = options.library.is_empty();
        let is_chosen = |library: &&Library| {
            let has = |names: &[String]| names.iter().any(|name| name == library.name);
            (all || has(&options.library)) && !has(&options.except)
        };
        let chosen = LIBRARIES.iter().filter(is_chosen);
        Self {
            libraries: chosen.collect(),
            has_program: all,
            features: &options.features,
        }
    }

    /// Builds all parts, optimised.
    ///
    /// This precedes the first write, so a failed build leaves no partial installation.
    ///
    /// The program is built separately. Its dependencies are then optimised for a program, as in
    /// `cargo run --release`, which reuses that build, except for crates that depend on the
    /// features of all default members.
    fn build(&self, workspace: &Workspace) -> Result<()> {
        let libraries: Vec<&str> = self
            .libraries
            .iter()
            .map(|library| library.package)
            .collect();
        let program: &[&str] = if self.has_program { &[PROGRAM] } else { &[] };
        let all = [&libraries, program].concat();
        for feature in self.features.iter().flat_map(|list| list.split(',')) {
            if !all.iter().any(|package| has(workspace, package, feature)) {
                bail!("unknown feature `{feature}`; the only feature is `verbs`");
            }
        }
        if self.has_program {
            self.build_packages(workspace, program, &["--bin", "dat"])?;
            self.build_packages(workspace, &[PRELOADED.0], &[])?;
        }
        self.build_packages(workspace, &libraries, &[])
    }

    /// Builds some packages, or only the `targets` of each.
    fn build_packages(
        &self,
        workspace: &Workspace,
        packages: &[&str],
        targets: &[&str],
    ) -> Result<()> {
        if packages.is_empty() {
            // Without a package, cargo would build the default members.
            return Ok(());
        }
        let scope = packages.iter().flat_map(|package| ["--package", package]);
        let features = self.features_of(workspace, packages);
        cmd!(
            workspace.shell,
            "cargo build --release {scope...} {targets...} {features...}"
        )
        .run()?;
        Ok(())
    }

    /// Returns the requested features that the packages have, as arguments of cargo.
    fn features_of(&self, workspace: &Workspace, packages: &[&str]) -> Vec<String> {
        let wanted = self.features.iter().flat_map(|list| list.split(','));
        let of_each = wanted.flat_map(|feature| {
            let having = packages
                .iter()
                .filter(move |it| has(workspace, it, feature));
            having.map(move |package| format!("--features={package}/{feature}"))
        });
        of_each.collect()
    }

    /// Installs the built parts.
    fn install(&self, workspace: &Workspace, paths: &Paths) -> Result<()> {
        let built = workspace.target().join(RELEASE);
        let sources = workspace.root().join("dat-ffi");
        for library in &self.libraries {
            library.install(&built, paths)?;
            for header in library.headers {
                let from = sources.join("include").join(header);
                copy_all(&from, &paths.below_prefix("include").join(header))?;
            }
            for example in library.examples {
                let from = sources.join("examples").join(example);
                let folder = paths.below_prefix("share/doc/dat/examples");
                copy(&from, &folder.join(example), 0o644)?;
            }
        }
        if self.has_program {
            install_program(&workspace.shell, &built.join("dat"), paths)?;
            let (_, file) = PRELOADED;
            let folder = paths.written(&paths.libraries);
            copy(&built.join(file), &folder.join(file), 0o755)?;
        }
        for (path, text) in Manual::read(&sources)?.render()? {
            let concerns = |library: &&Library| library.has_page(&path);
            if self.libraries.iter().any(concerns) {
                write(&paths.below_prefix("share/man").join(&path), &text)?;
            }
        }
        let prefix = paths.written(&paths.prefix);
        println!("installed in {}", prefix.display());
        Ok(())
    }
}

/// Installs the program, and the man pages and completions that it writes.
fn install_program(shell: &Shell, program: &Path, paths: &Paths) -> Result<()> {
    copy(program, &paths.below_prefix("bin/dat"), 0o755)?;
    let folder = paths.below_prefix("share/man/man1");
    cmd!(shell, "{program} man --quiet --output {folder}")
        .quiet()
        .run()?;
    for (name, installed) in COMPLETIONS {
        let script = cmd!(shell, "{program} completions {name}").quiet().read()?;
        let target = paths.below_prefix("share").join(installed);
        // The last line break is not read.
        write(&target, &(script + "\n"))?;
    }
    Ok(())
}

/// Returns true if a package has a feature.
fn has(workspace: &Workspace, package: &str, feature: &str) -> bool {
    let member = workspace.member(package);
    member.is_some_and(|member| member.features.contains_key(feature))
}

fn cannot(act: &str, path: &Path) -> String {
    format!("cannot {act} {}", path.display())
}

/// Makes the folder of a file and removes an existing file.
///
/// Running programs keep the old library.
fn make_room(path: &Path) -> Result<()> {
    let folder = path.parent().context("a file in no folder")?;
    fs::create_dir_all(folder).with_context(|| cannot("make", folder))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| cannot("replace", path))
        }
        _ => Ok(()),
    }
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    make_room(to)?;
    fs::copy(from, to).with_context(|| cannot("copy", from))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(|| cannot("permit", to))
}

/// Copies a file, or the files of a folder.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        return copy(from, to, 0o644);
    }
    for entry in fs::read_dir(from).with_context(|| cannot("read", from))? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), 0o644)?;
    }
    Ok(())
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    make_room(path)?;
    fs::write(path, text).with_context(|| cannot("write", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
        .with_context(|| cannot("permit", path))
}

/// Makes a link to another file of the same folder.
fn link(name: &Path, to: &str) -> Result<()> {
    make_room(name)?;
    symlink(to, name).with_context(|| cannot("make", name))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn chosen(arguments: &[&str]) -> Option<(Vec<&'static str>, bool)> {
        let line = [&["install"], arguments].concat();
        let options = Line::try_parse_from(line).ok()?.options;
        let plan = Plan::new(&options);
        let names = plan.libraries.iter().map(|library| library.name);
        Some((names.collect(), plan.has_program))
    }

    #[test]
    fn parts_are_chosen_or_left_out() {
        let all = vec!["dat", "dat2", "dat_provider", "rsm"];
        assert_eq!(chosen(&[]), Some((all, true)));
        let without = vec!["dat", "dat_provider", "rsm"];
        assert_eq!(chosen(&["--except", "dat2"]), Some((without, true)));
        let two = vec!["dat", "rsm"];
        let except = ["--except", "dat2", "--except", "dat_provider"];
        assert_eq!(chosen(&except), Some((two, true)));
        assert_eq!(chosen(&["--library", "rsm"]), Some((vec!["rsm"], false)));
        assert_eq!(chosen(&["--except", "dat3"]), None);
        assert_eq!(chosen(&["--library", "rsm", "--except", "dat2"]), None);
    }
}
