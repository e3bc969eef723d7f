//! Programs that run beside this one.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks for the end of a program.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running program; killed on drop.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Waits for the end of the program; kills it and returns `None` if it exceeds the limit.
    pub(crate) fn end_within(mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let begin = Instant::now();
        loop {
            match self.0.try_wait()? {
                None if begin.elapsed() > limit => return Ok(None),
                None => thread::sleep(POLL_INTERVAL),
                ended => return Ok(ended),
            }
        }
    }

    /// Returns true if the program ended by itself.
    pub(crate) fn is_over(&mut self) -> io::Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failure to kill a program that has ended is harmless, and a drop cannot report it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_that_exceeds_its_limit_is_killed() {
        let sleep = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let process = format!("/proc/{}", sleep.id());
        let ended = Running(sleep).end_within(Duration::ZERO).expect("its end");
        assert!(ended.is_none() && !std::path::Path::new(&process).exists());
        let done = Command::new("true").spawn().expect("true");
        let ended = Running(done).end_within(Duration::from_secs(60));
        assert!(
            ended
                .expect("its end")
                .is_some_and(|status| status.success())
        );
    }
}
