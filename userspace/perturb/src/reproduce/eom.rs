//! Eom and Hollingsworth 2000: predictions of a traced run beside the run itself.

mod lab;
mod live;
mod shares;

pub(super) use live::FIGURES as LIVE;
