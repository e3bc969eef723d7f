//! Entry point of the program `dat`; calls the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    dat_cli::main()
}
