//! What the fabric enforces, tried directly through the backend traits.

mod memory_access;
mod support;
