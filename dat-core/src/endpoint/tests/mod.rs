//! Endpoints: state machine, parameters, life cycle and posts.

mod asked;
mod batch;
mod changes;
mod common_and_slow;
mod connect;
mod extended;
mod life;
mod machine;
mod parameters;
mod refusals;
mod segments;
mod told;
