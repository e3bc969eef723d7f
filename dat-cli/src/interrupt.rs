//! Signals that end the program, caught by commands that clean up first.

use std::os::raw::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
    SIGXFSZ,
};
use signal_hook::{flag, low_level};

use crate::failure::{Failure, FailureKind, Result};

/// Signals that terminate a program and do not report corrupt memory.
const ENDS: [c_int; 10] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF, SIGXCPU,
];

/// The signals caught since [`Signals::catch`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// The number of the last signal, or 0.
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Starts to catch signals; a second one ends the program at once.
    ///
    /// Signals that the program's caller ignores, as `nohup` does, stay ignored. A signal that
    /// cannot be caught keeps its default effect.
    pub(crate) fn catch() -> Self {
        let signals = Self::default();
        let again = Arc::new(AtomicBool::new(false));
        let ignored = ignored();
        for signal in ENDS {
            if ignored & (1 << (signal - 1)) == 0 {
                let _ = flag::register_conditional_default(signal, Arc::clone(&again))
                    .and_then(|_| flag::register(signal, Arc::clone(&again)))
                    .and_then(|_| {
                        let last = Arc::clone(&signals.last);
                        flag::register_usize(signal, last, signal as usize)
                    });
            }
        }
        // SIGXFSZ, a file that exceeds its size limit: when it is caught, the write fails with
        // an error.
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
        signals
    }

    /// Returns an error if a signal has come.
    pub(crate) fn check(&self) -> Result<()> {
        match self.last.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Failure {
                kind: FailureKind::Interrupted,
                what: "interrupted".into(),
                why: format!(
                    "{} came",
                    low_level::signal_name(signal as c_int).unwrap_or("a signal")
                ),
                remedy: "run the command again; no file was changed".into(),
            }),
        }
    }

    /// Ends the program by the caught signal; returns if none came.
    ///
    /// The shell that runs the program then sees the signal.
    pub(crate) fn pass_on(&self) {
        let signal = self.last.load(Ordering::Relaxed);
        if signal != 0 {
            // If that fails, the exit code reports the interruption.
            let _ = low_level::emulate_default_handler(signal as c_int);
        }
    }
}

/// Returns the set of ignored signals, empty if the system does not report it.
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let set = status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(set.trim(), 16).ok()
        })
        .unwrap_or(0)
}
