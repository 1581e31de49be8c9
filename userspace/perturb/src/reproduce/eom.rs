//! Eom and Hollingsworth 2000: predictions of a traced run beside the run itself, and the paper's worked example.

mod lab;
mod live;
mod shares;

use super::{
    figure::{Figure, Paper},
    outcome::Outcome,
};

pub(super) use live::FIGURES as LIVE;

pub(super) static FIGURES: &[Figure] = &[Figure::model(
    Paper::Eom,
    "eom-fig-5",
    "the worked example: events held, and when each process goes on",
    |_| {
        Ok(Outcome::printed(
            "whatif",
            &["Eom and Hollingsworth 2000, Fig. 5"],
        ))
    },
)];
