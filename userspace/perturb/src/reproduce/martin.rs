//! Martin 1999: presets of its chapters.

mod apparatus;
mod nfs;
mod parallel;
mod pipeline;

use super::figure::Figure;

/// By chapter.
pub(super) static FIGURES: [&[Figure]; 4] = [
    apparatus::FIGURES,
    parallel::FIGURES,
    nfs::FIGURES,
    pipeline::FIGURES,
];
