//! Sums of the calls of random runs.

use dat_oracle::Tally;

/// Adds the calls of a run to the total.
pub(crate) fn add(total: &mut Tally, run: &Tally) {
    for (call, [done, refused]) in run {
        let sum = total.entry(call.clone()).or_default();
        sum[0] += done;
        sum[1] += refused;
    }
}
