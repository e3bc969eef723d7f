//! Failures of calls of remote shared memory.

use std::fmt;

use dat_host::Error;
use dat_host::rsm::{RsmError, Unreached};

use crate::failure::{During, Failure, FailureKind, Result};
use crate::limits;
use crate::remote::connection::not_local;

/// The call that connects to a segment.
pub(crate) const CONNECT: &str = "rsm_memseg_import_connect";

/// Names the failed call of remote shared memory in a failure.
pub(crate) trait DuringRsm<T> {
    /// Turns an error of `call` into a failure of the program.
    fn during_rsm(self, call: &str) -> Result<T>;
}

impl<T, E: Into<Error>> DuringRsm<T> for std::result::Result<T, E> {
    fn during_rsm(self, call: &str) -> Result<T> {
        self.or_else(|error| match error.into() {
            Error::SharedMemory(error) => Err(failure(call, error, error)),
            Error::Vector { error, .. } => Err(failure(call, error.error, error)),
            Error::NotLocal(reason) => Err(not_local(reason)),
            Error::NodeUnreachable { reason, .. } => Err(unreachable(call, reason)),
            error => Err(error).during(call),
        })
    }
}

/// Builds the failure of a connection to an exporter that was not reached.
fn unreachable(call: &str, reason: Unreached) -> Failure {
    let (why, remedy) = match reason {
        Unreached::NoListener => (
            "no exporter listens on that port, or it has no room for another importer",
            "start `dat rsm export --device` there, and check the port number",
        ),
        Unreached::NoHost => (
            "its address cannot be reached from this device, or nothing answers there",
            "check the address and firewalls, and select another --device if there are several",
        ),
        Unreached::NotAllowed => (
            "the exporter does not allow this host",
            "allow this host with --importer at the exporter",
        ),
        Unreached::TimedOut => (
            "the exporter does not answer in time",
            "check the address, and that `dat rsm export --device` runs there; if the host is slow, run the \
            command again",
        ),
        Unreached::Rejected => (
            "the exporter rejects the connection, which happens while it ends",
            "check that `dat rsm export --device` runs there on that port, and run the command again",
        ),
        Unreached::NoExporter => (
            "the program that listens on that port is no exporter",
            "check the port number, and that `dat rsm export --device` runs there",
        ),
        Unreached::Broken => (
            "the connection broke during the signal, which may have arrived",
            "check the network and the exporter, and run the command again",
        ),
        _ => (
            "the remote node is unreachable",
            "check that `dat rsm export --device` runs there on that port and allows this host with \
            --importer",
        ),
    };
    // Without free descriptors, no socket finds the way to a host.
    let reached = match reason {
        Unreached::NoHost => limits::descriptors(),
        _ => None,
    };
    let is_elsewhere = matches!(
        reason,
        Unreached::NoListener | Unreached::NoHost | Unreached::TimedOut | Unreached::NotAllowed
    );
    let kind = match call {
        CONNECT if is_elsewhere => FailureKind::Unreached,
        _ => FailureKind::Operation,
    };
    let failure = Failure {
        kind,
        what: format!("{call} failed"),
        why: why.into(),
        remedy: remedy.into(),
    };
    failure.because(reached)
}

/// Builds the failure of a call; `why` is the text of `error`, or names the part that failed.
fn failure(call: &str, error: RsmError, why: impl fmt::Display) -> Failure {
    let what = format!("{call} failed");
    match remedy(error) {
        Some(remedy) => Failure {
            kind: FailureKind::Operation,
            what,
            why: why.to_string(),
            remedy: remedy.into(),
        },
        None => {
            let failure = Failure::operation(what, why);
            match error {
                // The error does not tell which resource is missing.
                RsmError::InsufficientResources => {
                    let reached = limits::descriptors().or_else(limits::locked_memory);
                    let remedy = "free some memory, end other programs that use the device, or use \
                        smaller segments; if the exporter has many importers, try again later";
                    Failure {
                        remedy: remedy.into(),
                        ..failure
                    }
                    .because(reached)
                }
                _ => failure,
            }
        }
    }
}

/// Returns the remedy for errors that have their cause at the exporter.
const fn remedy(error: RsmError) -> Option<&'static str> {
    match error {
        RsmError::RemoteNodeUnreachable => Some(
            "check that `dat rsm export --device` runs there; if the host is slow, run the command \
            again",
        ),
        RsmError::ConnectionAborted => Some(
            "the exporter ended or unpublished the segment: export it again, and run the command again",
        ),
        RsmError::BarrierFailure => Some(
            "check the network and the exporter, and run the command again; part of the data may have been \
            transferred",
        ),
        RsmError::PermissionDenied => {
            Some("export the segment with a --permission that allows this access")
        }
        RsmError::SegmentNotPublished => Some("check --segment: the exporter publishes another id"),
        RsmError::InsufficientMemory => Some("free some memory, or use smaller segments"),
        RsmError::TimedOut => Some("check the network and the exporter, and run the command again"),
        RsmError::SegmentNotPublishedToNode => {
            Some("allow this host with --importer at the exporter")
        }
        _ => None,
    }
}
