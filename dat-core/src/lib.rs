//! The Direct Access Transport as a `no_std` state machine.
#![no_std]
