//! The process at the other end of QEMU's `ivshmem`: it is an adapter for a machine without an operating system, and has an endpoint of
//! its own that the machine connects to. The image is `firmware/ivshmem`; `cargo xtask firmware` runs both.
//!
//! ```text
//! ivshmem serve SOCKET           the server of the memory: who takes part, and how they ring each other
//! ivshmem device SOCKET leave    the adapter; it asks the machine to leave without a word, and sees it go
//! ivshmem device SOCKET stay     the adapter; it ends without a word itself
//! ```

#[cfg(target_os = "linux")]
mod peers;
#[cfg(target_os = "linux")]
mod scenes;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod shared;
#[cfg(target_os = "linux")]
mod world;

use std::error::Error;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", socket] => server::serve(socket),
        ["device", socket, "leave"] => scenes::until_the_machine_leaves(socket),
        ["device", socket, "stay"] => scenes::leave_the_machine(socket),
        _ => Err("serve SOCKET, or device SOCKET leave, or device SOCKET stay".into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> Result<(), Box<dyn Error>> {
    Err("QEMU's shared memory is reached on Linux alone".into())
}
