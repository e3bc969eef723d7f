//! Endpoints: state machine, parameters, life cycle and posts.

mod attributes;
mod batch;
mod changes;
mod common_and_slow;
mod connect;
mod extended;
mod lifecycle;
mod machine;
mod parameters;
mod receive_info;
mod refusals;
mod segments;
