//! Build script of images: their memory layout.
//!
//! The PC uses the hosted target, without start-up code and libraries.

use std::{env, error::Error};

/// Start of an image on QEMU's `virt`.
///
/// On `aarch64` the machine's description lies before it; on `riscv32` the processor starts there.
const VIRT: &[(&str, &str)] = &[("aarch64", "0x40100000"), ("riscv32", "0x80000000")];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::var("CARGO_MANIFEST_DIR")? + "/../machine/src";
    let processor = env::var("CARGO_CFG_TARGET_ARCH")?;
    println!("cargo:rerun-if-changed={folder}");
    let arguments = match VIRT.iter().find(|(name, _)| *name == processor) {
        Some((_, start)) => vec![
            format!("--defsym=image_start={start}"),
            format!("-T{folder}/virt.ld"),
            "-Tdefmt.x".to_owned(),
            "--nmagic".to_owned(),
        ],
        None => vec![
            "-nostartfiles".to_owned(),
            "-nostdlib".to_owned(),
            "-static".to_owned(),
            "-no-pie".to_owned(),
            "-Wl,--build-id=none".to_owned(),
            format!("-Wl,-T,{folder}/x86_64.ld"),
            "-Wl,-T,defmt.x".to_owned(),
        ],
    };
    for argument in arguments {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    Ok(())
}
