//! The hosted target is used for a bare machine: no start-up code, no libraries, the layout of this image.

use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::var("CARGO_MANIFEST_DIR")?;
    println!("cargo:rerun-if-changed=image.ld");
    for argument in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        &format!("-Wl,-T,{folder}/image.ld"),
        "-Wl,-T,defmt.x",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    Ok(())
}
