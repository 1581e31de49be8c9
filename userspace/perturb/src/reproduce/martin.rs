//! Martin 1999: presets of its chapters.

mod apparatus;
mod balance;
mod nfs;
mod nfs_measured;
mod parallel;
mod pipeline;
mod sweeps;

use super::figure::Figure;

/// By chapter.
pub(super) static FIGURES: [&[Figure]; 7] = [
    apparatus::FIGURES,
    parallel::FIGURES,
    balance::FIGURES,
    sweeps::FIGURES,
    nfs::FIGURES,
    nfs_measured::FIGURES,
    pipeline::FIGURES,
];
