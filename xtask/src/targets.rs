//! Builds the crates without std for the processors that firmware runs on.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use xshell::{Cmd, Shell, cmd};

use crate::lanes::side_by_side;
use crate::maintenance;
use crate::workspace::Workspace;

/// A processor, and the features of the core that it supports.
struct Target {
    triple: &'static str,
    features: &'static str,
    why: &'static str,
    /// Set if the driver has cache maintenance for the processor, whose instructions are checked.
    maintains: bool,
}

const TARGETS: &[Target] = &[
    Target {
        triple: "thumbv6m-none-eabi",
        features: "critical-section,defmt",
        why: "32 bits, no compare-and-swap",
        maintains: false,
    },
    Target {
        triple: "thumbv7em-none-eabihf",
        features: "critical-section,defmt,spin",
        why: "32 bits, no 64-bit atomics",
        maintains: false,
    },
    Target {
        triple: "riscv32imac-unknown-none-elf",
        features: "critical-section,defmt,spin",
        why: "32 bits, weak ordering",
        maintains: true,
    },
    Target {
        triple: "riscv64gc-unknown-none-elf",
        features: "critical-section,log,spin",
        why: "64 bits, weak ordering",
        maintains: true,
    },
    Target {
        triple: "aarch64-unknown-none",
        features: "critical-section,log,spin",
        why: "64 bits, weak ordering",
        maintains: true,
    },
];

/// Hosts with 64-bit Arm processors.
const HOST: &str = "aarch64-unknown-linux-gnu";

/// Debian's compiler, of the package `rustc-web`; the package of its sources has the same version.
pub(crate) const DISTRIBUTION: &str = "/usr/bin/rustc";

/// Checks that core, RSM, mmio driver and RoCEv2 compile for each target.
///
/// Where the driver has cache maintenance, it is assembled and its instructions are checked. Images
/// are built for the other targets by the step `firmware`, so that no code is generated here. RSM
/// needs an allocator. The toolchain in use compiles for the targets it has. For others, Debian's
/// compiler first compiles `core` and `alloc` from their sources.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    side_by_side(workspace, TARGETS, |shell, folder, target| {
        let Target {
            triple,
            features,
            why,
            maintains,
        } = target;
        println!(
            "  {triple} ({why}), dat-core with [{features}], dat-rsm, backend-mmio, backend-roce"
        );
        let mut features: Vec<String> = features
            .split(',')
            .map(|feature| format!("dat-core/{feature}"))
            .collect();
        if *maintains {
            features.push("backend-mmio/non-coherent".to_owned());
        }
        let features = features.join(",");
        let command = if *maintains { "build" } else { "check" };
        let compile = cmd!(
            shell,
            "cargo {command} --quiet --target-dir {folder} --target {triple} --package dat-core --package dat-rsm
             --package backend-mmio --package backend-roce --no-default-features --features {features}"
        );
        for_target(shell, triple, compile.quiet())?.run()?;
        if *maintains {
            let driver = folder.join(triple).join("debug/libbackend_mmio.rlib");
            let code = fs::read(&driver).with_context(|| driver.display().to_string())?;
            maintenance::check(&code).with_context(|| triple.to_string())?;
        }
        Ok(())
    })
}

/// Checks that the default members compile for hosts with 64-bit Arm processors.
///
/// Nothing is linked or run. The C libraries are no default members: the symbol versions of
/// `libdat` and `libdat2` are assembler for x86-64.
pub(crate) fn check_host(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    let check = cmd!(shell, "cargo check --target {HOST}");
    with_libraries(shell, HOST, "std,panic_unwind", check)?.run()?;
    Ok(())
}

/// Returns a cargo command for a bare target, with the toolchain in use or Debian's.
///
/// # Errors
/// The toolchain in use lacks the target and Debian's compiler is not installed.
pub(crate) fn for_target<'a>(shell: &Shell, triple: &str, command: Cmd<'a>) -> Result<Cmd<'a>> {
    with_libraries(shell, triple, "core,alloc", command)
}

/// Returns a cargo command for a target whose programs use these libraries of the language.
fn with_libraries<'a>(
    shell: &Shell,
    triple: &str,
    used: &str,
    command: Cmd<'a>,
) -> Result<Cmd<'a>> {
    let libraries = cmd!(shell, "rustc --print target-libdir --target {triple}")
        .quiet()
        .read()?;
    if Path::new(&libraries).is_dir() {
        return Ok(command);
    }
    let version = cmd!(shell, "{DISTRIBUTION} --version").quiet().read();
    if version.is_err() {
        bail!(
            "no standard library for {triple}; run `rustup target add {triple}`, or on Debian `apt-get \
            install rustc-web rust-web-src lld`"
        );
    }
    let linker = format!(
        "CARGO_TARGET_{}_LINKER",
        triple.to_uppercase().replace('-', "_")
    );
    Ok(command
        .arg(format!("-Zbuild-std={used}"))
        .env("RUSTC", DISTRIBUTION)
        // The package's `rust-lld` may name a linker that the package does not contain.
        .env(linker, "ld.lld")
        // A stable compiler cannot build `core` in any other way.
        .env("RUSTC_BOOTSTRAP", "1"))
}
