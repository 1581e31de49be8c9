//! Exit codes, as `--help` and the reference have them.

/// Done.
pub(crate) const DONE: u8 = 0;
/// Failed; the message says what, where and what to do.
pub(crate) const FAILED: u8 = 1;
/// Usage or invalid input.
pub(crate) const INVALID: u8 = 2;
/// This kernel lacks something.
pub(crate) const LACKING: u8 = 3;
/// A signal has ended it before it was done: 128 and the number of SIGINT, whichever came.
pub(crate) const INTERRUPTED: u8 = 130;
