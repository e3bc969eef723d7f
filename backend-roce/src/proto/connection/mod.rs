//! Connection management.
