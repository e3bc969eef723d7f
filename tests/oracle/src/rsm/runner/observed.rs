//! Signals as the engines show them; an observation settles if a doubtful one is there.

use super::*;

impl Runner {
    /// Observes for each segment of a side if a signal is pending.
    pub(super) fn observe_signals(&mut self, side: Side) {
        let node = self.world.node(side);
        let exports = node.exports.live();
        let exports = exports.map(|(at, handle, _)| (at, ExportId::from_handle(handle).into()));
        let imports = node.imports.live();
        let imports = imports.map(|(at, handle, _)| (at, ImportId::from_handle(handle).into()));
        let all: [Vec<(usize, SegmentHandle)>; 2] = [exports.collect(), imports.collect()];
        for (segments, export) in all.into_iter().zip([true, false]) {
            for (index, segment) in segments {
                let pending = self.on(side, |engine, _| engine.signal_pending(segment));
                self.observed_signal(side, Some(index), export, pending == Ok(true));
            }
        }
    }

    pub(super) fn observed_signal(
        &mut self,
        side: Side,
        index: Option<usize>,
        export: bool,
        any: bool,
    ) {
        let signals = index.and_then(|index| self.world.signals(side, index, export));
        if let Some(signals) = signals {
            signals.observed(any);
        }
    }

    /// Judges the taking of a signal.
    pub(super) fn judge_taken(
        &mut self,
        side: Side,
        name: &str,
        (index, export): (Option<usize>, bool),
        taken: Result<bool, RsmError>,
    ) -> Outcome {
        self.process_reports()?;
        self.observed_signal(side, index, export, taken == Ok(true));
        let expected = self.world.take(side, index, export);
        if taken != expected {
            return self.mismatch(expected, taken);
        }
        self.count(
            name,
            taken.is_ok_and(|taken| taken || name == "signal_take"),
        );
        Ok(())
    }
}
