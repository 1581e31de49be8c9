//! Martin 1999: presets of its chapters.

mod apparatus;
mod nfs;
mod nfs_measured;
mod parallel;
mod pipeline;
mod sweeps;

use super::figure::Figure;

/// By chapter.
pub(super) static FIGURES: [&[Figure]; 6] = [
    apparatus::FIGURES,
    parallel::FIGURES,
    sweeps::FIGURES,
    nfs::FIGURES,
    nfs_measured::FIGURES,
    pipeline::FIGURES,
];
