//! Ids that are reserved for applications: the file `rsm.segmentid`.

use std::path::PathBuf;

use dat_rsm::RsmError;
use dat_rsm::segment_id::find_range_in_file;

use super::{Code, code, place};
use crate::boundary::{Out, Text, trusted_variable};

/// The variable that names the file.
const FILE: &str = "RSM_SEGMENTID";
/// The file without it.
const CUSTOMARY: &str = "/etc/rsm/rsm.segmentid";

/// `rsm_get_segmentid_range`.
///
/// Spec: RSMID-01, RSMID-02, RSMID-03
pub fn segment_id_range(application: Text, base: Out<u32>, length: Out<u32>) -> Code {
    code(|| {
        let application = application.get().ok_or(RsmError::BadAddress)?;
        let base = place(base, RsmError::BadAddress)?;
        let length = place(length, RsmError::BadAddress)?;
        let application = application
            .to_str()
            .map_err(|_| RsmError::BadApplicationId)?;
        let file = trusted_variable(FILE).map_or_else(|| PathBuf::from(CUSTOMARY), PathBuf::from);
        let range = find_range_in_file(&file, application)?;
        base.put(range.base);
        length.put(range.length);
        Ok(())
    })
}
