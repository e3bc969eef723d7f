//! The program `dat`; everything is in the library of the same package.

use std::process::ExitCode;

fn main() -> ExitCode {
    dat_cli::main()
}
