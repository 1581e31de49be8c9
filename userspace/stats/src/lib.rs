//! Samples and what may be said of them: quantiles, intervals, straight lines, correlations, histograms.
//!
//! Model: a [`Sample`] is a set of independent observations of one quantity under one setting; a
//! [`Histogram`] is the same for so many observations that only their distribution can be kept.
//! An [`Estimate`] carries its point and its interval together, so neither travels alone.
//! Nothing here does I/O, reads a clock or knows where the numbers come from: units are in the
//! names of the caller's variables. What is missing is an error or an empty option, never 0.

#![warn(missing_docs)]

mod components;
mod correlation;
mod estimate;
mod histogram;
mod random;
mod regression;
mod sample;

pub use components::Components;
pub use correlation::{correlation, rank_correlation};
pub use estimate::{Estimate, EstimateError};
pub use histogram::{Bucket, Histogram, HistogramError};
pub use random::SplitMix64;
pub use regression::{Line, RegressionError};
pub use sample::{Sample, SampleError, median};
