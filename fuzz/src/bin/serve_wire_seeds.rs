//! Writes the seeds of the target `serve_wire`, and runs each.

use std::path::Path;
use std::{fs, io};

use dat_fuzz::serve_wire;

fn main() -> io::Result<()> {
    let folder = Path::new("seeds/serve_wire");
    if folder.is_dir() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    for (name, bytes) in serve_wire::seeds() {
        serve_wire::run(&bytes);
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
