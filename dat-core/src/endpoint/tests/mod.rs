//! Endpoints: state machine, parameters, life cycle and posts.

mod asked;
mod batch;
mod changes;
mod connect;
mod extended;
mod life;
mod machine;
mod parameters;
mod refusals;
mod segments;
mod short_ways;
mod told;
