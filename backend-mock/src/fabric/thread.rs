//! The fabric's own thread.

use alloc::boxed::Box;
use std::thread::JoinHandle;

use dat_queues::Arc;

use super::Fabric;
use crate::shared::Shared;

impl Fabric {
    /// Starts a thread that steps the fabric by the clock until the handle is dropped.
    ///
    /// Runs are not reproducible then. While the thread is late with an action, time stands still.
    ///
    /// # Errors
    /// That of the system if it cannot start the thread; `AlreadyExists` if the fabric has one.
    pub fn spawn_thread(&self) -> std::io::Result<FabricThread> {
        let mut thread = None;
        let mut driven = self.drive_with(|drive| {
            let builder = std::thread::Builder::new().name("fabric".into());
            thread = Some(builder.spawn(drive)?);
            Ok(())
        })?;
        driven.thread = thread;
        Ok(driven)
    }

    /// As [`Fabric::spawn_thread`], on a thread that `start` starts.
    ///
    /// For hosts that have reason to start their threads by themselves. Dropping the handle ends
    /// the thread and does not wait for that.
    ///
    /// # Errors
    /// Those of `start`. A fabric that has a thread already gives an error of kind `AlreadyExists`.
    pub fn drive_with(
        &self,
        start: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<()>,
    ) -> std::io::Result<FabricThread> {
        if !self.shared.begin_thread() {
            return Err(std::io::ErrorKind::AlreadyExists.into());
        }
        let shared = Arc::clone(&self.shared);
        start(Box::new(move || shared.drive())).inspect_err(|_| self.shared.end_thread())?;
        Ok(FabricThread {
            shared: Arc::clone(&self.shared),
            thread: None,
        })
    }
}

/// The thread of a fabric; dropping it ends the thread.
#[derive(Debug)]
pub struct FabricThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for FabricThread {
    fn drop(&mut self) {
        self.shared.end_thread();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}
