//! The crates without std on machines other than this one: they compile for the processors that firmware runs on.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use xshell::{Cmd, Shell, cmd};

use crate::lanes::side_by_side;
use crate::maintenance;
use crate::workspace::Workspace;

/// A kind of processor, and what of the core it can use.
struct Target {
    triple: &'static str,
    features: &'static str,
    why: &'static str,
    /// Whether the driver brings cache maintenance for it.
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

/// Debian's compiler, of the package `rustc-web`, whose package of sources has the same version.
pub(crate) const DISTRIBUTION: &str = "/usr/bin/rustc";

/// Checks that the core, remote shared memory on it, which needs an allocator, and the driver of raw adapters compile and are assembled for each target, and what cache
/// maintenance is made of: with the toolchain in use where that has the target, or
/// else with Debian's compiler, which builds `core` and `alloc` from their sources first.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    side_by_side(workspace, TARGETS, |shell, folder, target| {
        let Target {
            triple,
            features,
            why,
            maintains,
        } = target;
        println!("  {triple} ({why}), dat-core with [{features}], dat-rsm and backend-mmio");
        let features: Vec<String> = features
            .split(',')
            .map(|feature| format!("dat-core/{feature}"))
            .collect();
        let features = features.join(",");
        let scope = [
            "--package",
            "dat-core",
            "--package",
            "dat-rsm",
            "--package",
            "backend-mmio",
            "--no-default-features",
            "--features",
            &features,
            "--target",
            triple,
        ];
        let build = cmd!(
            shell,
            "cargo build --quiet --target-dir {folder} {scope...}"
        );
        for_target(shell, triple, build.quiet())?.run()?;
        if *maintains {
            let driver = folder.join(triple).join("debug/libbackend_mmio.rlib");
            let code = fs::read(&driver).with_context(|| driver.display().to_string())?;
            maintenance::check(&code).with_context(|| triple.to_string())?;
        }
        Ok(())
    })
}

/// A cargo command for a target, with the toolchain in use where that has the target, or else with Debian's.
///
/// # Errors
/// Neither is there.
pub(crate) fn for_target<'a>(shell: &Shell, triple: &str, command: Cmd<'a>) -> Result<Cmd<'a>> {
    let libraries = cmd!(shell, "rustc --print target-libdir --target {triple}")
        .quiet()
        .read()?;
    if Path::new(&libraries).is_dir() {
        return Ok(command);
    }
    let version = cmd!(shell, "{DISTRIBUTION} --version").quiet().read();
    if version.is_err() {
        bail!(
            "no compiler for {triple}: `rustup target add {triple}`, or on Debian \
             `apt-get install rustc-web rust-web-src lld`"
        );
    }
    let linker = format!(
        "CARGO_TARGET_{}_LINKER",
        triple.to_uppercase().replace('-', "_")
    );
    Ok(command
        .arg("-Zbuild-std=core,alloc")
        .env("RUSTC", DISTRIBUTION)
        // The `rust-lld` of its package may name a linker that the package does not bring.
        .env(linker, "ld.lld")
        // The one way to build `core` with a compiler that is not a nightly.
        .env("RUSTC_BOOTSTRAP", "1"))
}
