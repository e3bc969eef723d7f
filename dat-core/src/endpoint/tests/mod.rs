//! Endpoints: the machine, their parameters, their life.

mod life;
mod machine;
mod parameters;
