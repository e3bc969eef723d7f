//! The echo of a client's messages: a task on the thread that drives the adapter.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use dat_host::{Buffer, Endpoint, Events, Receive, Transfer};
use futures_channel::mpsc::UnboundedSender;
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, BoxFuture, abortable};

/// A task of the thread that drives the adapter; it does not block.
pub(super) type Task = BoxFuture<'static, ()>;

/// An echo that runs; dropping it ends the connection.
///
/// A switch to another thread costs more than the answer to a short message. So messages are
/// answered on the thread that takes the completions.
pub(super) struct Echo {
    messages: Arc<AtomicU64>,
    abort: AbortHandle,
    /// Disconnected when the task and its resources are gone.
    over: Receiver<()>,
}

impl Echo {
    /// Starts the task; without a thread that drives, it is over at once.
    pub(super) fn start(
        tasks: &UnboundedSender<Task>,
        endpoint: Endpoint,
        requests: Events,
        receives: VecDeque<Receive<Buffer>>,
    ) -> Self {
        let messages = Arc::default();
        let (running, over) = channel();
        let echo = echo(endpoint, requests, receives, Arc::clone(&messages));
        let (echo, abort) = abortable(echo);
        let task = echo.map(move |_| drop(running));
        // Dropping a task that was not sent ends it.
        let _ = tasks.unbounded_send(task.boxed());
        Self {
            messages,
            abort,
            over,
        }
    }

    /// Returns the number of messages that have come.
    pub(super) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Waits for the end of the connection, for at most `timeout`; returns true at the end.
    pub(super) fn is_over_after(&self, timeout: Duration) -> bool {
        self.over.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Drop for Echo {
    /// Waits until the task's resources are free, for the next client.
    fn drop(&mut self) {
        self.abort.abort();
        let _disconnected = self.over.recv();
    }
}

/// Sends each message back from the buffer that received it, until the connection ends.
async fn echo(
    endpoint: Endpoint,
    requests: Events,
    mut receives: VecDeque<Receive<Buffer>>,
    messages: Arc<AtomicU64>,
) -> dat_host::Result<()> {
    let half = receives.len() / 2;
    let mut echoes: VecDeque<Transfer<Buffer>> = VecDeque::with_capacity(receives.len());
    loop {
        match receives.pop_front() {
            Some(next) => {
                let message = next.await?.memory;
                messages.fetch_add(1, Ordering::Relaxed);
                echoes.push_back(endpoint.send(message));
            }
            // Only a client that has more under way than it asked for fills all buffers.
            None => {
                requests.next().await?;
            }
        }
        if receives.len() > half {
            // The client has at most so many messages under way. Later, more ends come at once.
            continue;
        }
        while requests.try_next().is_some() {}
        while let Some(sent) = echoes.front_mut().and_then(FutureExt::now_or_never) {
            echoes.pop_front();
            let mut buffer = sent?;
            buffer.resize(buffer.capacity());
            receives.push_back(endpoint.recv(buffer));
        }
    }
}
