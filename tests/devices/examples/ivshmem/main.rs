//! Device process for a machine that is attached by QEMU's `ivshmem`.
//!
//! The process provides the adapter of a machine without an operating system. It also has an
//! endpoint of its own, which the machine connects to. The machine's image is `firmware/ivshmem`;
//! `cargo xtask firmware` runs both.
//!
//! ```text
//! ivshmem serve SOCKET           the memory server: connects the peers and their interrupts
//! ivshmem device SOCKET leave    the adapter; tells the machine to leave without a disconnect
//! ivshmem device SOCKET stay     the adapter; ends without a disconnect
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
