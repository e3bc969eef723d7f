//! Debian packages that the checks need, and their installation.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::{env, fs};
use xshell::{Shell, cmd};

/// A package, and the evidence that the machine has it.
pub(crate) struct SystemPackage {
    name: &'static str,
    brings: Brings,
    why: &'static str,
}

enum Brings {
    /// Programs of the search path.
    Programs(&'static [&'static str]),
    /// A file, for a package without a program.
    File(&'static str),
    /// A file in one of several folders whose names differ by a version.
    FileOfVersion {
        folder: &'static str,
        start: &'static str,
        file: &'static str,
    },
}

const NEEDED: &[SystemPackage] = &[
    programs(
        "valgrind",
        &["valgrind"],
        "counts instructions of hot paths",
    ),
    programs(
        "qemu-system-x86",
        &["qemu-system-x86_64"],
        "runs the guest that has an RDMA device",
    ),
    programs(
        "busybox-static",
        &["busybox"],
        "basic programs of the guest",
    ),
    programs(
        "iproute2",
        &["ip", "rdma"],
        "sets up the guest's RDMA device and counts its objects",
    ),
    programs(
        "nftables",
        &["nft"],
        "translates addresses and drops packets in the guest",
    ),
    programs(
        "conntrack",
        &["conntrack"],
        "lets a translator of the guest forget its connections",
    ),
    file(
        "ibverbs-providers",
        "/etc/libibverbs.d/rxe.driver",
        "user-space driver of the guest's RDMA device",
    ),
    programs(
        "ibverbs-utils",
        &["ibv_devinfo", "ibv_devices", "ibv_rc_pingpong"],
        "tests the guest's RDMA device",
    ),
    programs("rdmacm-utils", &["rping"], "tests connections in the guest"),
    file(
        "libibverbs-dev",
        "/usr/include/infiniband/verbs.h",
        "needed to build the verbs backend",
    ),
    file(
        "librdmacm-dev",
        "/usr/include/rdma/rdma_cma.h",
        "needed to build the verbs backend",
    ),
    programs(
        "pkg-config",
        &["pkg-config"],
        "finds the libraries of RDMA devices",
    ),
    SystemPackage {
        name: "libclang-dev",
        brings: Brings::FileOfVersion {
            folder: "/usr/lib",
            start: "llvm-",
            file: "lib/libclang.so",
        },
        why: "reads the C headers of RDMA devices",
    },
    file(
        "rustc-web",
        "/usr/bin/rustc",
        "compiles dat-core for other processors and the thread sanitizer",
    ),
    SystemPackage {
        name: "rust-web-src",
        brings: Brings::FileOfVersion {
            folder: "/usr/src",
            start: "rustc-",
            file: "library/core/Cargo.toml",
        },
        why: "the standard library for other processors and the thread sanitizer",
    },
    programs("lld", &["ld.lld"], "links images for other processors"),
    programs(
        "qemu-system-arm",
        &["qemu-system-arm", "qemu-system-aarch64"],
        "runs microcontroller and AArch64 images",
    ),
    programs(
        "g++",
        &["c++"],
        "compiles the headers of the C libraries as C++",
    ),
    programs("mandoc", &["mandoc"], "checks the man pages"),
    file(
        "libdapl-dev",
        "/usr/include/dat2/udat.h",
        "the headers and the registry of DAT 2.0, for C programs that use the provider",
    ),
    file(
        "libdapl2",
        "/usr/lib/x86_64-linux-gnu/libdat2.so.2",
        "the registry that loads the provider",
    ),
    programs(
        "dapl2-utils",
        &["dapltest", "dtest", "dtestcm", "dtestsrq", "dtestx"],
        "DAT 2.0 programs of OFA",
    ),
    programs(
        "tshark",
        &["tshark"],
        "reads the packets that two guests exchange",
    ),
    programs("python3-pip", &["pip3"], "installs the linter of workflows"),
    programs(
        "perftest",
        &[
            "ib_write_bw",
            "ib_write_lat",
            "ib_read_bw",
            "ib_read_lat",
            "ib_send_bw",
            "ib_send_lat",
        ],
        "reference measurements of plain verbs",
    ),
];

/// Packages that only tasks need which are no checks.
const NEEDED_BY_TASKS: &[SystemPackage] = &[programs(
    "qemu-system-misc",
    &["qemu-system-riscv32"],
    "runs images for RISC-V",
)];

fn known() -> impl Iterator<Item = &'static SystemPackage> {
    NEEDED.iter().chain(NEEDED_BY_TASKS)
}

const fn programs(
    name: &'static str,
    brings: &'static [&'static str],
    why: &'static str,
) -> SystemPackage {
    SystemPackage {
        name,
        brings: Brings::Programs(brings),
        why,
    }
}

const fn file(name: &'static str, brings: &'static str, why: &'static str) -> SystemPackage {
    SystemPackage {
        name,
        brings: Brings::File(brings),
        why,
    }
}

impl SystemPackage {
    fn is_there(&self) -> bool {
        match self.brings {
            Brings::Programs(programs) => programs.iter().all(|program| find(program).is_some()),
            Brings::File(file) => Path::new(file).is_file(),
            Brings::FileOfVersion {
                folder,
                start,
                file,
            } => fs::read_dir(folder).is_ok_and(|entries| {
                entries
                    .flatten()
                    .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
                    .any(|entry| entry.path().join(file).is_file())
            }),
        }
    }

    fn brings(&self, wanted: &str) -> bool {
        match self.brings {
            Brings::Programs(programs) => programs.contains(&wanted),
            Brings::File(file) | Brings::FileOfVersion { file, .. } => file == wanted,
        }
    }
}

/// Returns the packages that some check needs and this machine lacks.
pub(crate) fn missing() -> Vec<&'static str> {
    let missing = NEEDED.iter().filter(|package| !package.is_there());
    missing.map(|package| package.name).collect()
}

/// Installs every package that some check needs.
pub(crate) fn install_all(shell: &Shell) -> Result<()> {
    install(shell, NEEDED.iter())
}

/// Installs the packages that contain these programs or files.
pub(crate) fn install_for<'a>(
    shell: &Shell,
    wanted: impl IntoIterator<Item = &'a str>,
) -> Result<()> {
    install(shell, bringing(wanted)?.into_iter())
}

/// Returns the packages that contain these programs or files, each once.
fn bringing<'a>(wanted: impl IntoIterator<Item = &'a str>) -> Result<Vec<&'static SystemPackage>> {
    let mut packages: Vec<&SystemPackage> = Vec::new();
    for wanted in wanted {
        match known().find(|package| package.brings(wanted)) {
            Some(package) if packages.iter().any(|other| other.name == package.name) => (),
            Some(package) => packages.push(package),
            None if find(wanted).is_some() => (),
            None => bail!("{wanted} was not found, and no known package contains it"),
        }
    }
    Ok(packages)
}

/// Returns the programs of the known packages.
pub(crate) fn known_programs() -> impl Iterator<Item = &'static str> {
    known()
        .flat_map(|package| match package.brings {
            Brings::Programs(programs) => programs,
            Brings::File(_) | Brings::FileOfVersion { .. } => &[],
        })
        .copied()
}

/// Installs the missing packages as root or with sudo.
///
/// Otherwise it fails and names the command.
fn install<'a>(shell: &Shell, packages: impl Iterator<Item = &'a SystemPackage>) -> Result<()> {
    let missing: Vec<&SystemPackage> = packages.filter(|package| !package.is_there()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("missing: {} ({})", package.name, package.why);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let Some((program, before)) = as_root(shell)? else {
        bail!(advice(&names));
    };
    let quiet = ["env", "DEBIAN_FRONTEND=noninteractive"];
    let options = ["--yes", "--no-install-recommends"];
    cmd!(shell, "{program} {before...} {quiet...} apt-get update").run()?;
    cmd!(
        shell,
        "{program} {before...} {quiet...} apt-get install {options...} {names...}"
    )
    .run()?;
    if let Some(package) = missing.iter().find(|package| !package.is_there()) {
        bail!(
            "{} is installed, but does not provide the needed file",
            package.name
        );
    }
    Ok(())
}

/// Returns the command for a user who must install the packages by hand.
fn advice(names: &[&str]) -> String {
    format!(
        "install the missing packages, then run this again:\n  \
         sudo apt-get update && sudo apt-get install --yes {}",
        names.join(" ")
    )
}

/// Returns the program and options to run a command as root; `None` without one.
fn as_root(shell: &Shell) -> Result<Option<(&'static str, &'static [&'static str])>> {
    const SUDO: (&str, &[&str]) = ("sudo", &["--non-interactive"]);
    if find("apt-get").is_none() {
        return Ok(None);
    }
    if cmd!(shell, "id --user").quiet().read()? == "0" {
        return Ok(Some(("env", &[])));
    }
    let (sudo, options) = SUDO;
    let works = find(sudo).is_some()
        && cmd!(shell, "{sudo} {options...} true")
            .quiet()
            .ignore_stderr()
            .run()
            .is_ok();
    Ok(works.then_some(SUDO))
}

/// Returns the path of a program in the search path or in the `sbin` folders.
///
/// An ordinary user's search path lacks the `sbin` folders.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_once_for_all_its_programs() {
        let packages = bringing([
            "ibv_devinfo",
            "ibv_rc_pingpong",
            "rping",
            "/etc/libibverbs.d/rxe.driver",
            "lib/libclang.so",
        ]);
        let names: Vec<&str> = packages
            .expect("known")
            .iter()
            .map(|package| package.name)
            .collect();
        assert_eq!(
            names,
            [
                "ibverbs-utils",
                "rdmacm-utils",
                "ibverbs-providers",
                "libclang-dev"
            ]
        );
    }

    #[test]
    fn a_program_of_no_known_package_is_refused_unless_the_machine_has_it() {
        assert!(bringing(["sh"]).is_ok_and(|packages| packages.is_empty()));
        let refused = bringing(["no-such-program"]).err().expect("refused");
        assert!(refused.to_string().contains("no-such-program"));
    }

    #[test]
    fn the_user_gets_one_command() {
        assert!(
            advice(&["perftest", "valgrind"])
                .ends_with("sudo apt-get update && sudo apt-get install --yes perftest valgrind")
        );
    }

    #[test]
    fn a_package_is_found_by_a_file_of_any_version() {
        let folder = tempfile::tempdir().expect("folder");
        fs::create_dir_all(folder.path().join("llvm-14/lib")).expect("folder");
        let name = folder.path().to_str().expect("text").to_owned();
        let package = SystemPackage {
            name: "it",
            brings: Brings::FileOfVersion {
                folder: name.leak(),
                start: "llvm-",
                file: "lib/it.so",
            },
            why: "a test",
        };
        assert!(!package.is_there());
        fs::write(folder.path().join("llvm-14/lib/it.so"), "").expect("file");
        assert!(package.is_there());
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
    }
}
