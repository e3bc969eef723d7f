//! What random runs did together.

use dat_model::Tally;

/// Adds the calls of a run to those of all.
pub(crate) fn add(total: &mut Tally, run: &Tally) {
    for (call, [done, refused]) in run {
        let sum = total.entry(call.clone()).or_default();
        sum[0] += done;
        sum[1] += refused;
    }
}
