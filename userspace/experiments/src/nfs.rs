//! The response-time curve of an NFS server, on this machine or on private hosts, beside the queueing model.
//!
//! ```text
//! curve ─► measure (levels one by one, into a file) ──► perturb_workloads::nfs::load
//!   ├────► emulated: `perturb nfs part …` as a command on private hosts ──► measure
//!   └────► report (table, CSV, JSON, charts) ──► overlay (model), effect (lines over a knob), reference (published)
//! ```
//!
//! A curve under emulation is measured by another process of this program on private hosts, so
//! the workloads do not know that emulation is on; the two share a file of settings and one of results.

mod curve;
mod effect;
mod emulated;
mod measure;
mod outcome;
mod overlay;
mod packets;
mod processors;
mod reference;
mod results;

use std::path::PathBuf;

use perturb_profile::Knob;

pub use self::{
    curve::{Curves, Network, Request, embedded_model, measure},
    emulated::Part,
    measure::Levels,
    outcome::{is_late, is_whole, said},
    reference::Reference,
};

/// The input is not valid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidInput {
    /// A file cannot be read.
    #[error("{path}: {reason}")]
    Unreadable { path: PathBuf, reason: std::io::Error },
    /// A knob cannot be varied.
    #[error(
        "--vary {text}: {reason}; write KNOB=LEVEL,LEVEL,… with KNOB one of {knobs}",
        knobs = Knob::ALL.map(Knob::key).join(", ")
    )]
    Vary {
        text: String,
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The model knows nothing of it.
    #[error("--model predicts an added latency or overhead; leave --model out to vary {0}")]
    NotModeled(Knob),
    /// A table has no curves.
    #[error("{0}: no curves; the table needs columns throughput_op_s and response_ms with numbers")]
    Reference(String),
    /// Neither a table nor a file.
    #[error("--reference {name}: there is no such file, and no table of that name; the tables are {names}")]
    NoTable {
        name: String,
        /// What could have been.
        names: String,
    },
    /// Two networks would write the same file.
    #[error("two networks are called `{0}`; rename one of the profiles")]
    SameName(String),
}
