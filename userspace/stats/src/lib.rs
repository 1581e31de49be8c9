//! Samples and what may be said of them.
