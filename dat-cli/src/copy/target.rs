//! The target of a file copy.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::failure::{Failure, Result};
use crate::output_file::{OutputPath, Part};
use crate::source::Source;

/// The path for a copy, and the metadata of its source.
pub(crate) struct Target {
    output: OutputPath,
    source: Metadata,
}

impl Target {
    /// Checks that the source can be copied to the target.
    pub(crate) fn choose(source: &Source<'_>, target: &Path) -> Result<Self> {
        let mut path = target.to_path_buf();
        if path.is_dir() {
            path.push(source.path().file_name().unwrap_or_default());
        }
        let output = OutputPath::choose(&path)?;
        if is_same(source, &output) {
            return Err(Failure::usage(
                format!("{} cannot be copied onto itself", source.path().display()),
                format!("both names are the same file: {}", path.display()),
                "choose another destination",
            ));
        }
        Ok(Self {
            output,
            source: source.about().clone(),
        })
    }

    /// Creates the temporary file for the copy.
    pub(crate) fn begin(self) -> Result<Part> {
        self.output.begin(Some(&self.source))
    }
}

fn is_same(source: &Source<'_>, output: &OutputPath) -> bool {
    let from = source.about();
    output
        .replaced()
        .is_some_and(|to| (from.dev(), from.ino()) == (to.dev(), to.ino()))
}
