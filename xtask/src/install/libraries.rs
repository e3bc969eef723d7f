//! The C libraries: their names, and the files that are installed with them.

use anyhow::Result;
use std::path::Path;

use super::{Paths, copy, link, write};

/// A library for C programs.
pub(super) struct Library {
    /// The name for the linker: `-lNAME`.
    pub(super) name: &'static str,
    /// The package that it is built from.
    pub(super) package: &'static str,
    /// The soname, by which linked programs look for the library.
    pub(super) loaded_as: &'static str,
    /// Files below `include`, and folders with all their files.
    pub(super) headers: &'static [&'static str],
    pub(super) examples: &'static [&'static str],
    /// The pkg-config module; `None` if programs are not linked with the library.
    module: Option<Module>,
    /// A program of the package.
    program: Option<&'static str>,
}

/// A module of pkg-config.
struct Module {
    description: &'static str,
    /// The version of the interface.
    version: &'static str,
}

/// The program that prints and checks lines of `dat.conf`.
const REGISTRY: &str = "dat-registry";

pub(super) const LIBRARIES: [Library; 4] = [
    Library {
        name: "dat",
        package: "libdat",
        loaded_as: "libdat.so.1",
        headers: &["dat", "dat_common"],
        examples: &["open.c", "write.c", "shared.c"],
        module: Some(Module {
            description: "Direct Access Transport 1.2",
            version: "1.2",
        }),
        program: None,
    },
    Library {
        name: "dat2",
        package: "libdat2",
        loaded_as: "libdat2.so.2",
        headers: &["dat2", "dat_common"],
        examples: &["open2.c"],
        module: Some(Module {
            description: "Registry of the Direct Access Transport 2.0",
            version: "2.0",
        }),
        program: None,
    },
    Library {
        name: "dat_provider",
        package: "dat-provider",
        loaded_as: "libdat_provider.so.2",
        headers: &[],
        examples: &["dat.conf"],
        module: None,
        program: Some(REGISTRY),
    },
    Library {
        name: "rsm",
        package: "librsm",
        loaded_as: "librsm.so.2",
        headers: &["rsmapi.h"],
        examples: &["put.c", "rsm.nodes", "rsm.segmentid"],
        module: Some(Module {
            description: "Remote shared memory",
            version: "2.0",
        }),
        program: None,
    },
];

/// Returns the values of `--library`.
pub(super) fn names() -> Vec<&'static str> {
    LIBRARIES.iter().map(|library| library.name).collect()
}

impl Library {
    /// Returns true if a manual page is about the library.
    ///
    /// Names of pages begin with the name of the interface.
    pub(super) fn has_page(&self, page: &Path) -> bool {
        let interface = if self.name == "rsm" { "rsm" } else { "dat" };
        let file = page.file_name().and_then(|name| name.to_str());
        file.is_some_and(|name| match name.starts_with(REGISTRY) {
            true => self.program == Some(REGISTRY),
            false => name.starts_with(interface),
        })
    }

    /// Installs the library with its links, its pkg-config file and its program.
    ///
    /// The file's name is `loaded_as` with this project's version appended. The name for the loader
    /// is a link to the file; the name for the linker is a link to the name for the loader.
    pub(super) fn install(&self, built: &Path, paths: &Paths) -> Result<()> {
        let file = format!("{}.{}", self.loaded_as, env!("CARGO_PKG_VERSION"));
        let linked = format!("lib{}.so", self.name);
        let folder = paths.written(&paths.libraries);
        copy(&built.join(&linked), &folder.join(&file), 0o755)?;
        link(&folder.join(self.loaded_as), &file)?;
        if let Some(module) = &self.module {
            link(&folder.join(&linked), self.loaded_as)?;
            let file = folder.join(format!("pkgconfig/{}.pc", self.name));
            write(&file, &module.text(self.name, paths))?;
        }
        if let Some(program) = self.program {
            let file = paths.below_prefix("bin").join(program);
            copy(&built.join(program), &file, 0o755)?;
        }
        Ok(())
    }
}

impl Module {
    fn text(&self, name: &str, paths: &Paths) -> String {
        let prefix = paths.prefix.display();
        let libraries = match paths.libraries.strip_prefix(&paths.prefix) {
            Ok(below) => format!("${{prefix}}/{}", below.display()),
            Err(_) => paths.libraries.display().to_string(),
        };
        let Self {
            description,
            version,
        } = self;
        format!(
            "prefix={prefix}\nlibdir={libraries}\nincludedir=${{prefix}}/include\n\nName: {name}\nDescription: {description}\n\
             Version: {version}\nLibs: -L${{libdir}} -l{name}\nCflags: -I${{includedir}}\n"
        )
    }
}
