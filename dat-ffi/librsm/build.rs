//! Names the library, and keeps it in the process that has loaded it once.

fn main() {
    // Threads of the library run as long as the process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The name that the library has where the interface comes from. Its symbols have no versions there either.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librsm.so.2");
    // Functions of dependencies with names of C, which builds of the whole workspace bring in, are nobody's but the library's.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo::rerun-if-changed=build.rs");
}
