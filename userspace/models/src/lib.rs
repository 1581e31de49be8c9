//! The predictors of the five papers: pure functions of their inputs.

#![warn(missing_docs)]

pub mod frames;
pub mod locality;
pub mod loggp;
pub mod logpc;
pub mod mesh;
pub mod pipeline;
pub mod plogpt;
pub mod published;
pub mod queueing;
pub mod route;
pub mod whatif;
