//! Exit codes, as `--help` and the reference have them.

use perturb_emulator::{causes, prepared::ProfileError, switched::Unfit};
use perturb_experiments::sweep::report::{InputError, JudgeError, RuleError};

use super::{Contradiction, Lacking};
use crate::{apply, locality, nfs, pattern, predict, reproduce, sweep};

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

/// The exit code that an error means.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(code) = reproduce::exit_code(error) {
        code
    } else if let Some(failed) = error.downcast_ref::<apply::containers::Failed>() {
        failed.code
    } else if error.is::<ProfileError>()
        || error.is::<Unfit>()
        || error.is::<perturb_profile::netem::NetemError>()
        || error.is::<Contradiction>()
        || nfs::is_invalid_input(error)
        || predict::is_invalid_input(error)
        || locality::is_invalid_input(error)
        || sweep::is_invalid_input(error)
        || error.is::<perturb_emulator::sights::NoClass>()
        || error.is::<pattern::RemapError>()
        || error.is::<InputError>()
        || error.is::<JudgeError>()
        || error.is::<RuleError>()
    {
        INVALID
    } else if causes::lacks_fq(error) || error.is::<Lacking>() || causes::lacks_hosts(error) {
        LACKING
    } else {
        FAILED
    }
}
