//! Signals that ask for an end, for commands that have something to clean up.

#[cfg(unix)]
mod signals {
    use std::os::raw::c_int;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use signal_hook::consts::{
        SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
        SIGXFSZ,
    };
    use signal_hook::{flag, low_level};

    use crate::failure::{Failure, FailureKind, Result};

    /// Those that end a program and say nothing of its memory being broken.
    const ENDS: [c_int; 10] = [
        SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF, SIGXCPU,
    ];

    /// The signals that came since they are caught.
    #[derive(Debug, Default)]
    pub(crate) struct Signals {
        /// The number of the last one, or 0.
        last: Arc<AtomicUsize>,
    }

    impl Signals {
        /// Notes from now on that a signal came; a second one ends the program at once.
        ///
        /// Signals that the caller of the program has it ignore, as `nohup` does, stay ignored. One that cannot be caught
        /// does what it always does.
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
            // A file that gets too long: where this signal ends nothing, writing fails and says so.
            let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
            signals
        }

        /// An error once a signal came.
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

        /// Ends the program as the signal would have done, so that the shell that runs it knows; returns if none came.
        pub(crate) fn pass_on(&self) {
            let signal = self.last.load(Ordering::Relaxed);
            if signal != 0 {
                // If that fails, the exit code has to do.
                let _ = low_level::emulate_default_handler(signal as c_int);
            }
        }
    }

    /// The set of ignored signals, where the system tells it.
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
}

#[cfg(unix)]
pub(crate) use signals::Signals;

#[cfg(not(unix))]
mod no_signals {
    use crate::failure::Result;

    /// There are no signals.
    #[derive(Debug)]
    pub(crate) struct Signals;

    impl Signals {
        pub(crate) fn catch() -> Self {
            Self
        }

        pub(crate) fn check(&self) -> Result<()> {
            Ok(())
        }

        pub(crate) fn pass_on(&self) {}
    }
}

#[cfg(not(unix))]
pub(crate) use no_signals::Signals;
