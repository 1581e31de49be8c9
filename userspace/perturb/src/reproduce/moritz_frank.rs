//! Moritz and Frank 2001: messages with contention on Alewife's mesh.

mod dag;
mod em3d;
mod live;
mod long;
mod model;

pub(super) use live::FIGURES as LIVE;
pub(super) use model::FIGURES;
