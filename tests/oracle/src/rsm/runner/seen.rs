//! Signals as the engines show them; an observation settles if a doubtful one is there.

use super::*;

impl Runner {
    /// Observes for each segment of a side if a signal is pending.
    pub(super) fn see_signals(&mut self, side: Side) {
        let node = self.world.node(side);
        let exports = node.exports.live();
        let exports = exports.map(|(at, handle, _)| (at, ExportId::from_handle(handle).into()));
        let imports = node.imports.live();
        let imports = imports.map(|(at, handle, _)| (at, ImportId::from_handle(handle).into()));
        let all: [Vec<(usize, SegmentHandle)>; 2] = [exports.collect(), imports.collect()];
        for (segments, export) in all.into_iter().zip([true, false]) {
            for (place, segment) in segments {
                let pending = self.on(side, |engine, _| engine.signal_pending(segment));
                self.saw_signal(side, Some(place), export, pending == Ok(true));
            }
        }
    }

    pub(super) fn saw_signal(&mut self, side: Side, place: Option<usize>, export: bool, any: bool) {
        let signals = place.and_then(|place| self.world.signals(side, place, export));
        if let Some(signals) = signals {
            signals.saw(any);
        }
    }

    /// Judges the taking of a signal.
    pub(super) fn judge_taken(
        &mut self,
        side: Side,
        name: &str,
        (place, export): (Option<usize>, bool),
        taken: Result<bool, RsmError>,
    ) -> Outcome {
        self.hear()?;
        self.saw_signal(side, place, export, taken == Ok(true));
        let expected = self.world.take(side, place, export);
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
