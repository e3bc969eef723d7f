//! Tests in Miri, which finds undefined behaviour and races.

use anyhow::{Context, Result, bail};
use xshell::cmd;

use crate::test_programs;
use crate::workspace::Workspace;

/// Tests of dat-core: tables that grow while others look for slots, and lists of free slots.
///
/// Miri has no `mprotect`, so tables in reserved address space (`dat-storage`) do not run in it. A
/// registration takes an address, which strict provenance does not allow: tests of regions are left
/// out.
const TESTS: [&str; 2] = ["sync::slots::", "storage::free_"];

/// Runs the tests with strict provenance.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    if cmd!(shell, "rustup run nightly cargo miri --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
        .is_err()
    {
        bail!("Miri is missing; run `rustup component add --toolchain nightly miri rust-src`");
    }
    let output = cmd!(
        shell,
        "rustup run nightly cargo miri test --package dat-core --features std --lib -- {TESTS...}"
    )
    .env(
        "MIRIFLAGS",
        "-Zmiri-strict-provenance -Zmiri-disable-isolation",
    )
    .read()?;
    let passed =
        test_programs::passed(&output).with_context(|| format!("no test ran:\n{output}"))?;
    println!("{passed} tests");
    Ok(format!(
        "{passed} tests of dat-core pass, with strict provenance.\n"
    ))
}
