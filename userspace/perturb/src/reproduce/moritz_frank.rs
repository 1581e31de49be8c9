//! Moritz and Frank 2001: messages with contention on Alewife's mesh.

mod model;

pub(super) use model::FIGURES;
