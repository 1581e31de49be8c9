//! Causes of errors that have a way out.

use std::io;

use perturb_dataplane::{emulation::EmulationError, hold::HoldError, netlink::NetlinkError};

use crate::{lab::LabError, own_namespace::Unavailable};

/// Whether the kernel has no sch_fq.
#[must_use]
pub fn lacks_fq(error: &anyhow::Error) -> bool {
    let hold = |error: &HoldError| matches!(error, HoldError::NoFq);
    error.chain().any(|cause| {
        cause.downcast_ref::<HoldError>().is_some_and(hold)
            || matches!(cause.downcast_ref::<EmulationError>(), Some(EmulationError::Hold(error)) if hold(error))
    })
}

/// Whether private hosts cannot be made without root here; the message says what helps.
#[must_use]
pub fn lacks_hosts(error: &anyhow::Error) -> bool {
    let lab = |error: &LabError| matches!(error, LabError::Unavailable(_));
    error
        .chain()
        .any(|cause| cause.is::<Unavailable>() || cause.downcast_ref::<LabError>().is_some_and(lab))
}

/// Whether the kernel has refused something to this user.
#[must_use]
pub fn is_denied(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let file = cause.downcast_ref::<io::Error>();
        let netlink = cause.downcast_ref::<NetlinkError>();
        file.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            || netlink.is_some_and(|error| error.is(libc::EPERM))
    })
}
