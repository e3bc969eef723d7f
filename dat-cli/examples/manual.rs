//! Writes shell completions or man pages of the program: `cargo xtask completions`, `cargo xtask man`.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;
use clap_complete::Shell;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [kind, directory] = arguments.as_slice() else {
        return Err("usage: manual completions|man DIRECTORY".into());
    };
    let directory = PathBuf::from(directory);
    match kind.to_str() {
        Some("completions") => {
            for shell in Shell::value_variants() {
                let mut command = dat_cli::command();
                let path = clap_complete::generate_to(*shell, &mut command, "dat", &directory)?;
                println!("{}", path.display());
            }
        }
        Some("man") => {
            clap_mangen::generate_to(dat_cli::command(), &directory)?;
            println!("{}", directory.display());
        }
        _ => return Err("neither completions nor man".into()),
    }
    Ok(())
}
