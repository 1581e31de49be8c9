//! How a sweep was made.

use serde::{Deserialize, Serialize};

use crate::sweep::{experiment::Summary, plan::Task};

/// Where and how a sweep was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::sweep) struct Provenance {
    /// Of this file.
    pub version: u32,
    /// Of perturb.
    pub perturb: String,
    /// Kernel release.
    pub kernel: String,
    /// The machine's name; older sweeps have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Processor.
    pub processor: String,
    pub processors: usize,
    /// Whether the kernel compiles programs, if it says so.
    pub jit: Option<bool>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// First start, seconds since 1970.
    pub started: f64,
    /// How many times it was gone on with.
    pub resumed: u32,
    /// Which part of the plan this is.
    pub task: Option<Task>,
    /// What was measured.
    pub experiment: Summary,
}

impl Provenance {
    /// Why runs made in two such ways are not one sweep's: what a calibration holds for differs. Without a word they may be joined.
    pub(in crate::sweep) fn differs(&self, other: &Self) -> Option<String> {
        let jit = |one: &Self| one.jit.map_or("unknown", |jit| if jit { "on" } else { "off" });
        [
            ("perturb", self.perturb.as_str(), other.perturb.as_str()),
            ("the kernel", &self.kernel, &other.kernel),
            ("the kernel's compiler of eBPF", jit(self), jit(other)),
        ]
        .into_iter()
        .find(|(_, first, second)| first != second)
        .map(|(what, first, second)| format!("{what}: {first} and {second}"))
    }
}
