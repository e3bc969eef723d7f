//! Segment ids that are reserved for applications: the file `rsm.segmentid`.

use std::fs;
use std::path::{Path, PathBuf};

use dat_rsm::segment_id::{SegmentIdRange, look_up_range};
use dat_rsm::{Result, RsmError};

use super::process::LIBRARY;
use super::{Code, code, required};
use crate::boundary::{Out, Text, trusted_variable};
use crate::diagnostic::report;

/// The environment variable that names the file.
const FILE: &str = "RSM_SEGMENTID";
/// Path of the file if the variable is not set.
const CUSTOMARY: &str = "/etc/rsm/rsm.segmentid";

/// `rsm_get_segmentid_range`.
///
/// Spec: RSMID-01, RSMID-02, RSMID-03
pub fn segment_id_range(application: Text, base: Out<u32>, length: Out<u32>) -> Code {
    code(|| {
        if !application.is_readable() {
            return Err(RsmError::BadAddress);
        }
        let application = application.get().ok_or(RsmError::BadAddress)?;
        let base = required(base, RsmError::BadAddress)?;
        let length = required(length, RsmError::BadAddress)?;
        let application = application
            .to_str()
            .map_err(|_| RsmError::BadApplicationId)?;
        let file = trusted_variable(FILE).map_or_else(|| PathBuf::from(CUSTOMARY), PathBuf::from);
        let range = range_in(&file, application)?;
        base.put(range.base);
        length.put(range.length);
        Ok(())
    })
}

/// Finds the ids of an application; prints the problem of the file if that is wanted.
///
/// # Errors
/// - BAD_APPID: the file does not have the application.
/// - BAD_CONF: the file cannot be read, or a line is malformed.
fn range_in(file: &Path, application: &str) -> Result<SegmentIdRange> {
    let path = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        report(LIBRARY, format_args!("{path}: it cannot be read: {error}"));
        RsmError::BadConfiguration
    })?;
    let found = look_up_range(&text, application).map_err(|bad| {
        report(LIBRARY, format_args!("{path}:{}: {}", bad.line, bad.reason));
        RsmError::BadConfiguration
    })?;
    found.ok_or(RsmError::BadApplicationId)
}
