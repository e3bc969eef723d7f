//! `dat.conf`: the file that names the provider library of each interface adapter.
//!
//! ```text
//! # name  API   threads        section  library              version  instance data  platform data
//! mock0   u2.0  nonthreadsafe  default  libdat_provider.so.2 dat.0.1  "mock"         ""
//! ```
//!
//! Each line is one entry of eight fields, separated by white space. A field in double quotes may
//! have spaces, and `\"` and `\\`. A `#` outside of quotes begins a comment. Files of DAT 1.2 have
//! the same form and other field values.
//!
//! [`Configuration`] has the entries and the problems of a file. [`Wanted`] finds the entry that a
//! consumer asks for. [`diagnose`] also checks the libraries. A [`Problem`] names file, line,
//! library and symbol, and the reason.

mod configuration;
mod diagnosis;
mod entry;
mod problem;
mod providers;
mod tokens;
mod wanted;

pub use crate::boundary::{Library, Symbol};
pub use crate::devices::devices;
pub use configuration::Configuration;
pub use diagnosis::{Diagnosis, Fault, Whose, diagnose, diagnose_entry, look, open};
pub use entry::{Entry, Level};
pub use problem::{Problem, Reason};
pub(crate) use providers::{Discovered, Found, Providers, Rules, Used};
pub use wanted::{Candidate, Wanted};
