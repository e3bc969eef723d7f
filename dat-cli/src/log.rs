//! Lines of the log for people: why packets go through sockets.

use log::{LevelFilter, Log, Metadata, Record};

/// Prints what the backend for RDMA in software notes, on standard error.
struct ToError;

impl Log for ToError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "backend_roce"
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // Without standard error, nobody reads it.
            let _ = std::io::Write::write_fmt(
                &mut anstream::stderr().lock(),
                format_args!("{}\n", record.args()),
            );
        }
    }

    fn flush(&self) {}
}

/// Lets notes of the backend be printed from now on.
pub(crate) fn begin() {
    // The process has no other logger.
    if log::set_logger(&ToError).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}
