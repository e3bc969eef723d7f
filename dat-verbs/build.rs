//! Defines the version nodes of the exports, and prevents unloading of the library.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

/// The list of the exports, which names their versions.
const LIST: &str = "src/list.rs";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LIST}");
    let list = fs::read_to_string(LIST).expect("the list of the exports");
    let versions: BTreeSet<&str> = list
        .split('"')
        .filter(|text| text.starts_with("IBVERBS_") || text.starts_with("RDMACM_"))
        .collect();
    let nodes: String = versions
        .iter()
        .map(|version| format!("{version} {{ }};\n"))
        .collect();
    // There is no soname: a process that links libibverbs still loads the original, and finds every
    // function here first. The thread of the adapter may run when a program unloads the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    let folder = env::var("OUT_DIR").expect("cargo says where to write");
    let script = Path::new(&folder).join("versions.map");
    fs::write(&script, nodes).expect("the script of the linker");
    // The assembler says which symbols have which version. LLD, Rust's own linker, accepts this
    // script in addition to the compiler's list.
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,--version-script={}",
        script.display()
    );
}
