//! Scenarios whose sides are processes of their own, over sockets of the loop-back interface, and
//! over queues in memory.
//!
//! The text of a scenario has its sides next to each other, as closures of one test. The runner
//! starts this program once for each side, with the name of the test; there the test carries out
//! its side. The sides of a scenario have one address, 127.0.0.1, and wait for each other over a
//! channel of the runner. No time is asserted; the runner gives up only if no side takes a step
//! for a minute.
//!
//! `cargo test -p dat-tests --features sockets --test roce_processes`.

#[path = "roce_processes/bed.rs"]
mod bed;
#[path = "roce_processes/channel.rs"]
mod channel;
#[path = "roce_processes/connections.rs"]
mod connections;
#[path = "roce_processes/crowd.rs"]
mod crowd;
#[path = "roce_processes/endings.rs"]
mod endings;
#[path = "roce_processes/extended.rs"]
mod extended;
#[path = "roce_processes/kills.rs"]
mod kills;
#[path = "roce_processes/messages.rs"]
mod messages;
#[path = "roce_processes/misbehaviour.rs"]
mod misbehaviour;
#[path = "roce_processes/node.rs"]
mod node;
#[path = "roce_processes/notifications.rs"]
mod notifications;
#[path = "roce_processes/refusals.rs"]
mod refusals;
#[path = "roce_processes/remote_shared_memory.rs"]
mod remote_shared_memory;
#[path = "roce_processes/runner.rs"]
mod runner;
#[path = "roce_processes/shared_receives.rs"]
mod shared_receives;
#[path = "roce_processes/side.rs"]
mod side;
#[path = "roce_processes/transfers.rs"]
mod transfers;
#[path = "roce_processes/windows.rs"]
mod windows;
