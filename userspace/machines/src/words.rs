//! What a link and an agent say to each other: JSON, an object a line.

use std::time::Duration;

use perturb_common::abi::ABI_VERSION;
use perturb_profile::Packed;
use serde::{Deserialize, Serialize};

/// Between two signs of life, from either side.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// What an agent is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// A command line of perturb's.
    pub words: Vec<String>,
    /// The profile that is its last word.
    pub profile: Option<Packed>,
    /// Without a sign of the other side for so long, each takes the connection for dead.
    pub patience: Duration,
}

/// What a link says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// What is its clock?
    Time,
    Do(Box<Order>),
    /// Another command while the first one runs, which ends by itself.
    Also(Box<Order>),
    /// It is still there.
    Stay,
}

/// What an agent says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Greeting(Greeting),
    /// CLOCK_REALTIME, ns, and whether somebody keeps it.
    Time(u64, bool),
    /// The command emulates.
    Up,
    /// The other command has ended with this exit code.
    Done(Option<i32>),
    /// A line of the first command's standard output.
    Printed(String),
    /// A command's message.
    Said(String),
    /// The agent is still there.
    Here,
    /// The command has ended with this exit code; none if a signal has ended it.
    Ended(Option<i32>),
}

/// Who an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) version: String,
    pub(crate) abi: u64,
}

impl Greeting {
    /// This perturb's.
    pub(crate) fn ours() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            abi: ABI_VERSION,
        }
    }
}
