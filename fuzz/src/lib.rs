//! What the fuzz targets run, and what their seeds are made from.

pub mod rsm_wire;
