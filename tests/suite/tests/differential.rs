//! The same random lists on the mock and on the driver of raw adapters.
//!
//! The driver runs over models of both layouts. `DAT_SEED` is the seed of the first list; a failing
//! test prints the seed of its own. `DAT_LISTS` is the number of lists.
//! `tests/suite/src/differential/differences.rs` lists the permitted differences with reasons.

use backend_mock::{Fabric, MockBackend};
use bed::{Bed, network};
use lists::lists;
use mmio_model::pvrdma::{PvrdmaFabric, PvrdmaModel};
use mmio_model::{ModelBackend, ModelFabric};

mod bed;
mod lists;

network!(Fabric, MockBackend, "mock", node, |_| None);
network!(ModelFabric, ModelBackend, "model", device, |_| None);
network!(PvrdmaFabric, PvrdmaModel, "pvrdma", device, |_| None);

#[test]
fn the_mlx5_layout_behaves_like_the_mock() {
    lists("mlx5", Bed::<Fabric>::new, Bed::<ModelFabric>::new);
}

#[test]
fn the_paravirtual_layout_behaves_like_the_mock() {
    lists("pvrdma", Bed::<Fabric>::new, Bed::<PvrdmaFabric>::new);
}
