//! Debian's kernel, fetched once, and the modules that a guest needs.

use anyhow::{Context, Result, bail};
use object::{Object as _, ObjectSection as _};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;
use xshell::{Shell, cmd};

/// The package that always depends on the current kernel of the Debian release.
const CURRENT: &str = "linux-image-amd64";

/// An unpacked kernel package.
pub(crate) struct Kernel {
    /// The image that QEMU boots.
    pub(crate) image: PathBuf,
    /// The modules' files, by name with underscores.
    modules: BTreeMap<String, PathBuf>,
    /// The names of modules that are built into this kernel.
    builtin: Vec<String>,
}

impl Kernel {
    /// Returns the kernel of the cache folder; fetches it if the folder has none.
    pub(crate) fn get(shell: &Shell, cache: &Path) -> Result<Self> {
        let package = match cached(cache)? {
            Some(package) => package,
            None => fetch(shell, cache)?,
        };
        Self::open(&package).with_context(|| {
            format!(
                "the kernel in {} is incomplete; remove that directory",
                package.display()
            )
        })
    }

    fn open(package: &Path) -> Result<Self> {
        let image = only(&package.join("boot"), "vmlinuz-")?;
        let folder = only(&package.join("lib/modules"), "")?;
        let mut modules = BTreeMap::new();
        for entry in WalkDir::new(folder.join("kernel")) {
            let path = entry?.into_path();
            if let Some(name) = module_name(&path) {
                modules.insert(name, path);
            }
        }
        let builtin = fs::read_to_string(folder.join("modules.builtin"))?
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        Ok(Self {
            image,
            modules,
            builtin,
        })
    }

    /// Returns these modules and their dependencies, in an order in which they can be loaded.
    pub(crate) fn modules(&self, shell: &Shell, wanted: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let mut loaded = Vec::new();
        for name in wanted {
            self.load(shell, name, &mut loaded)?;
        }
        Ok(loaded)
    }

    fn load(&self, shell: &Shell, name: &str, loaded: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
        let known = loaded.iter().any(|(other, _)| other == name);
        if known || self.builtin.iter().any(|builtin| builtin == name) {
            return Ok(());
        }
        let Some(file) = self.modules.get(name) else {
            bail!("the kernel has no module {name}");
        };
        let module = read_module(shell, file)?;
        for other in dependencies(&module).with_context(|| format!("module {name}"))? {
            self.load(shell, &other, loaded)?;
        }
        loaded.push((name.to_owned(), module));
        Ok(())
    }
}

/// Returns the kernel that was fetched last, if any.
fn cached(cache: &Path) -> Result<Option<PathBuf>> {
    if !cache.is_dir() {
        return Ok(None);
    }
    let mut packages = Vec::new();
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("linux-image-")
        {
            packages.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    Ok(packages.into_iter().max().map(|(_, package)| package))
}

/// Downloads Debian's current kernel package, verifies and unpacks it.
fn fetch(shell: &Shell, cache: &Path) -> Result<PathBuf> {
    let no_lists = "the list of Debian packages is missing; run this once:\n  sudo apt-get update";
    let depends = cmd!(shell, "apt-cache depends {CURRENT}")
        .quiet()
        .ignore_stderr()
        .read()
        .context(no_lists)?;
    let name = current_kernel(&depends).context(no_lists)?;
    println!("fetching {name}");
    let described = cmd!(shell, "apt-cache show --no-all-versions {name}")
        .quiet()
        .read()?;
    let expected = field(&described, "SHA256").context("the package list has no checksum")?;

    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let work = tempfile::Builder::new()
        .prefix("fetch-")
        .tempdir_in(cache)?;
    {
        let _folder = shell.push_dir(work.path());
        // As root, apt hands its downloads to a sandbox user, who cannot write to this folder.
        cmd!(
            shell,
            "apt-get --quiet --option APT::Sandbox::User=root download {name}"
        )
        .ignore_stdout()
        .run()
        .context("if the package was not found, update the lists:\n  sudo apt-get update")?;
    }
    let archive = only(work.path(), "linux-image-")?;
    let computed = cmd!(shell, "sha256sum {archive}").quiet().read()?;
    if !is_sum_of(&computed, expected) {
        bail!("the checksum of {name} differs from the package list");
    }
    let unpacked = work.path().join("unpacked");
    cmd!(shell, "dpkg-deb --extract {archive} {unpacked}")
        .quiet()
        .run()?;
    let stem = archive.file_stem().context("the name of the package")?;
    let package = cache.join(stem);
    // A concurrent fetch makes the same folder.
    match fs::rename(&unpacked, &package) {
        Err(error) if !package.is_dir() => Err(error).context("cannot keep the kernel"),
        _ => Ok(package),
    }
}

/// Returns the entry of a folder whose name begins with `start`.
fn only(folder: &Path, start: &str) -> Result<PathBuf> {
    fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .filter_map(Result::ok)
        .find(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .with_context(|| format!("{} has no {start}*", folder.display()))
}

/// Returns true if `sha256sum` printed this complete sum.
fn is_sum_of(printed: &str, expected: &str) -> bool {
    expected.len() == 64 && printed.split_whitespace().next() == Some(expected)
}

fn current_kernel(depends: &str) -> Option<&str> {
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
}

fn field<'a>(described: &'a str, name: &str) -> Option<&'a str> {
    described
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(field, _)| *field == name)
        .map(|(_, value)| value.trim())
}

/// Returns the kernel's name for a module, from the name of its file.
fn module_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let (stem, packed) = name.split_once(".ko")?;
    ["", ".xz", ".zst"]
        .contains(&packed)
        .then(|| stem.replace('-', "_"))
}

fn read_module(shell: &Shell, file: &Path) -> Result<Vec<u8>> {
    let unpack = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(file).with_context(|| format!("cannot read {}", file.display())),
    };
    let output = cmd!(shell, "{unpack} --quiet --decompress --stdout {file}")
        .quiet()
        .output()?;
    Ok(output.stdout)
}

/// Returns the modules that this module depends on, from its `.modinfo` section.
fn dependencies(module: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(module)?;
    let section = file
        .section_by_name(".modinfo")
        .context("no section .modinfo")?;
    Ok(listed_dependencies(section.data()?))
}

fn listed_dependencies(information: &[u8]) -> Vec<String> {
    information
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(b"depends="))
        .flat_map(|names| names.split(|byte| *byte == b','))
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_kernel_is_the_one_of_the_metapackage() {
        let depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(current_kernel(depends), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(
            current_kernel("linux-image-amd64\n  Recommends: firmware\n"),
            None
        );
    }

    #[test]
    fn a_field_is_found_by_its_full_name() {
        let described = "Package: it\nDescription-SHA256: 1\nSHA256: abc\n";
        assert_eq!(field(described, "SHA256"), Some("abc"));
        assert_eq!(field(described, "SHA512"), None);
    }

    #[test]
    fn a_checksum_must_match_completely() {
        let sum = "0123456789abcdef".repeat(4);
        let printed = format!("{sum}  linux-image.deb");
        assert!(is_sum_of(&printed, &sum));
        assert!(!is_sum_of(&printed, &sum.replace('0', "1")));
        for part in ["", "0", &sum[..63], &format!("{sum} "), &printed] {
            assert!(!is_sum_of(&printed, part), "{part:?}");
        }
        assert!(!is_sum_of("", "") && !is_sum_of("", &sum));
    }

    #[test]
    fn modules_have_underscores_and_may_be_packed() {
        let name = |file| module_name(Path::new(file));
        assert_eq!(
            name("kernel/a/crc32-pclmul.ko").as_deref(),
            Some("crc32_pclmul")
        );
        assert_eq!(name("kernel/rdma_rxe.ko.xz").as_deref(), Some("rdma_rxe"));
        assert_eq!(name("kernel/notes.txt"), None);
        assert_eq!(name("kernel/old.ko.orig"), None);
    }

    #[test]
    fn dependencies_are_listed_in_the_module() {
        let information = b"license=GPL\0depends=ib_core,udp-tunnel\0name=rdma_rxe\0";
        assert_eq!(listed_dependencies(information), ["ib_core", "udp_tunnel"]);
        assert!(listed_dependencies(b"depends=\0license=GPL\0").is_empty());
        assert!(dependencies(b"no module").is_err());
    }

    #[test]
    fn a_module_that_is_built_in_is_not_loaded_and_an_unknown_one_is_named() {
        let package = tempfile::tempdir().expect("folder");
        let modules = package.path().join("lib/modules/1.0");
        fs::create_dir_all(modules.join("kernel")).expect("folder");
        fs::create_dir_all(package.path().join("boot")).expect("folder");
        fs::write(package.path().join("boot/vmlinuz-1.0"), "").expect("file");
        fs::write(modules.join("modules.builtin"), "kernel/net/inside.ko\n").expect("file");
        let kernel = Kernel::open(package.path()).expect("kernel");
        let shell = Shell::new().expect("shell");
        assert!(
            kernel
                .modules(&shell, &["inside"])
                .is_ok_and(|list| list.is_empty())
        );
        let error = kernel.modules(&shell, &["outside"]).expect_err("unknown");
        assert!(error.to_string().contains("outside"));
    }

    #[test]
    fn without_a_cache_nothing_is_cached() {
        let folder = tempfile::tempdir().expect("folder");
        assert_eq!(cached(&folder.path().join("none")).expect("read"), None);
        fs::create_dir(folder.path().join("fetch-half")).expect("folder");
        assert_eq!(
            cached(folder.path()).expect("read"),
            None,
            "a fetch that is under way"
        );
        let package = folder.path().join("linux-image-6_6_amd64");
        fs::create_dir(&package).expect("folder");
        assert_eq!(cached(folder.path()).expect("read"), Some(package));
    }
}
