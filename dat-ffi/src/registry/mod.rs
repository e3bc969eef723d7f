//! `dat.conf`: the file that says which library is the provider of an interface adapter.
//!
//! ```text
//! # name  API   threads        section  library               version  instance data  platform data
//! mock0   u2.0  nonthreadsafe  default  libdat_provider.so.2  dat.0.1  "mock"         ""
//! ```
//!
//! One entry a line, eight fields between white space; a field in double quotes may have spaces, and `\"` and `\\`. What follows a
//! `#` outside of quotes is a comment. Files of DAT 1.2 differ in what the fields say, not in their form.
//!
//! [`Configuration`] has the entries of a file and what is wrong with it, [`Wanted`] finds the entry that a consumer asks for, and
//! [`diagnose`] has the libraries looked at as well. A [`Problem`] says in which file, line, library and symbol it is, and what it is.

mod configuration;
mod diagnosis;
mod entry;
mod problem;
mod providers;
mod tokens;
mod wanted;

pub use crate::boundary::{Library, Symbol};
pub use configuration::Configuration;
pub use diagnosis::{Diagnosis, Fault, Whose, diagnose, diagnose_entry, look, open};
pub use entry::{Entry, Level};
pub use problem::{Problem, Reason};
pub(crate) use providers::{Discovered, Found, Providers, Rules, Used};
pub use wanted::{Candidate, Wanted};
