//! The calls, as far as both editions of the interface share them: nearly all.

pub(crate) mod cno;
pub(crate) mod connect;
pub(crate) mod context;
pub(crate) mod cr;
pub(crate) mod edition;
pub(crate) mod ep;
pub(crate) mod evd;
pub(crate) mod event;
pub(crate) mod ia;
pub(crate) mod lmr;
pub(crate) mod names;
pub(crate) mod post;
pub(crate) mod psp;
pub(crate) mod pz;
pub(crate) mod result;
pub(crate) mod rmr;
pub(crate) mod rsp;
pub(crate) mod srq;
pub(crate) mod text;

pub(crate) use edition::{Edition, Form};
pub(crate) use result::check_memory;
