//! Debian packages that the checks need, and their installation.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::{env, fs};
use xshell::{Shell, cmd};

/// The packages that some check needs: the name, the programs or files that it brings, and why.
///
/// A star stands for a version in the name of a folder.
const NEEDED: &str = "\
valgrind | valgrind | counts instructions of hot paths
qemu-system-x86 | qemu-system-x86_64 | runs the guest that has an RDMA device
busybox-static | busybox | basic programs of the guest
iproute2 | ip rdma | sets up the guest's RDMA device and counts its objects
nftables | nft | translates addresses and drops packets in the guest
conntrack | conntrack | lets a translator of the guest forget its connections
ibverbs-providers | /etc/libibverbs.d/rxe.driver | user-space driver of the guest's RDMA device
ibverbs-utils | ibv_devinfo ibv_devices ibv_rc_pingpong ibv_srq_pingpong ibv_ud_pingpong ibv_xsrq_pingpong | tests RDMA devices
rdmacm-utils | rping ucmatose rdma_client rdma_server rdma_xclient rdma_xserver | tests connections
libibverbs-dev | /usr/include/infiniband/verbs.h | needed to build the verbs backend
librdmacm-dev | /usr/include/rdma/rdma_cma.h | needed to build the verbs backend
python3-pyverbs | /usr/share/doc/rdma-core/tests/run_tests.py | rdma-core's own tests of verbs
pkg-config | pkg-config | finds the libraries of RDMA devices
libclang-dev | /usr/lib/llvm-*/lib/libclang.so | reads the C headers of RDMA devices
rustc-web | /usr/bin/rustc | compiles dat-core for other processors and the thread sanitizer
rust-web-src | /usr/src/rustc-*/library/core/Cargo.toml | its standard library
lld | ld.lld | links images for other processors
qemu-system-arm | qemu-system-arm qemu-system-aarch64 | runs microcontroller and AArch64 images
g++ | c++ | compiles the headers of the C libraries as C++
mandoc | mandoc | checks the man pages
libdapl-dev | /usr/include/dat2/udat.h | headers and registry of DAT 2.0, for programs in C
libdapl2 | /usr/lib/x86_64-linux-gnu/libdat2.so.2 | the registry that loads the provider
dapl2-utils | dapltest dtest dtestcm dtestsrq dtestx | DAT 2.0 programs of OFA
tshark | tshark | reads the packets that two guests exchange
python3-pip | pip3 | installs the linter of workflows
perftest | ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw ib_atomic_lat | plain verbs
ucx-utils | ucx_perftest | a program of UCX; measures shared memory and memory copies
libfabric-bin | fi_pingpong | a program of libfabric; measures its shared memory
qperf | qperf | a program of verbs; measures the latency of TCP
fio | fio | a program of rdma_cm
openmpi-bin | mpirun | runs ranks of MPI
libopenmpi-dev | mpicc | compiles a program of MPI";

/// Packages that only tasks need which are no checks.
const NEEDED_BY_TASKS: &str = "\
qemu-system-misc | qemu-system-riscv32 | runs images for RISC-V
iperf3 | iperf3 | measures a TCP stream";

/// The file of a package that bindings are made with; its folder has a version.
pub(crate) const LIBCLANG: &str = "/usr/lib/llvm-*/lib/libclang.so";

/// A package, and the evidence that the machine has it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SystemPackage {
    name: &'static str,
    brings: &'static str,
    why: &'static str,
}

fn packages(table: &'static str) -> impl Iterator<Item = SystemPackage> {
    table.lines().filter_map(|line| {
        let mut cells = line.split(" | ");
        Some(SystemPackage {
            name: cells.next()?,
            brings: cells.next()?,
            why: cells.next()?,
        })
    })
}

fn known() -> impl Iterator<Item = SystemPackage> {
    packages(NEEDED).chain(packages(NEEDED_BY_TASKS))
}

impl SystemPackage {
    /// Returns the programs, and the paths of files.
    fn evidence(self) -> impl Iterator<Item = &'static str> {
        self.brings.split(' ')
    }

    fn is_there(self) -> bool {
        self.evidence().all(|it| match it.starts_with('/') {
            true => is_file(it),
            false => find(it).is_some(),
        })
    }
}

/// Returns true if there is a file of that path, in which a star ends the name of one folder.
fn is_file(path: &str) -> bool {
    let Some((start, rest)) = path.split_once("*/") else {
        return Path::new(path).is_file();
    };
    let (folder, start) = start.rsplit_once('/').unwrap_or(("", start));
    let begins = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(start);
    fs::read_dir(folder).is_ok_and(|entries| {
        let mut entries = entries.flatten().filter(begins);
        entries.any(|entry| entry.path().join(rest).is_file())
    })
}

/// Returns the packages that some check needs and this machine lacks.
pub(crate) fn missing() -> Vec<&'static str> {
    let missing = packages(NEEDED).filter(|package| !package.is_there());
    missing.map(|package| package.name).collect()
}

/// Installs every package that some check needs.
pub(crate) fn install_all(shell: &Shell) -> Result<()> {
    install(shell, packages(NEEDED))
}

/// Installs the packages that contain these programs or files.
pub(crate) fn install_for<'a>(
    shell: &Shell,
    wanted: impl IntoIterator<Item = &'a str>,
) -> Result<()> {
    install(shell, bringing(wanted)?.into_iter())
}

/// Returns the packages that contain these programs or files, each once.
fn bringing<'a>(wanted: impl IntoIterator<Item = &'a str>) -> Result<Vec<SystemPackage>> {
    let mut packages: Vec<SystemPackage> = Vec::new();
    for wanted in wanted {
        match known().find(|package| package.evidence().any(|it| it == wanted)) {
            Some(package) if packages.contains(&package) => (),
            Some(package) => packages.push(package),
            None if find(wanted).is_some() => (),
            None => bail!("{wanted} was not found, and no known package contains it"),
        }
    }
    Ok(packages)
}

/// Returns the programs of the known packages.
pub(crate) fn known_programs() -> impl Iterator<Item = &'static str> {
    let all = known().flat_map(SystemPackage::evidence);
    all.filter(|it| !it.starts_with('/'))
}

/// Installs the missing packages as root or with sudo.
///
/// Otherwise it fails and names the command.
fn install(shell: &Shell, packages: impl Iterator<Item = SystemPackage>) -> Result<()> {
    let missing: Vec<SystemPackage> = packages.filter(|package| !package.is_there()).collect();
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
            LIBCLANG,
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
        let wanted = format!("{}/llvm-*/lib/it.so", folder.path().display());
        assert!(!is_file(&wanted));
        fs::write(folder.path().join("llvm-14/lib/it.so"), "").expect("file");
        assert!(is_file(&wanted));
    }

    #[test]
    fn every_line_is_a_package() {
        let lines = NEEDED.lines().chain(NEEDED_BY_TASKS.lines());
        assert_eq!(known().count(), lines.count());
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
    }
}
