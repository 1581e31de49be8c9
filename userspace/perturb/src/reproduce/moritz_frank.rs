//! Moritz and Frank 2001: messages with contention on Alewife's mesh.

mod dag;
mod live;
mod model;

pub(super) use live::FIGURES as LIVE;
pub(super) use model::FIGURES;
