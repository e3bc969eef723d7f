//! Build script of all Cortex-M images: their memory layout on QEMU's `mps2-an386`.

use std::{env, error::Error, fs, path::PathBuf};

const MEMORY: &str =
    "MEMORY { FLASH : ORIGIN = 0, LENGTH = 4M\nRAM : ORIGIN = 0x20000000, LENGTH = 4M }\n";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no folder")?);
    fs::write(folder.join("memory.x"), MEMORY)?;
    println!("cargo:rustc-link-search={}", folder.display());
    println!("cargo:rustc-link-arg-bins=--nmagic");
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
    if env::var_os("CARGO_FEATURE_DEFMT").is_some() {
        println!("cargo:rustc-link-arg-bins=-Tdefmt.x");
    }
    Ok(())
}
