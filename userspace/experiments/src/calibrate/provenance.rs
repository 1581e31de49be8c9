//! Where, when and how a calibration was made: it stands in every file.

use std::fs;

use serde::Serialize;

use crate::machine;

/// The circumstances.
#[derive(Clone, Debug, Serialize)]
pub struct Provenance {
    /// Of perturb.
    pub version: &'static str,
    /// The command's arguments.
    pub command: String,
    /// When it began, seconds since 1970.
    pub since: u64,
    /// Name and release.
    pub kernel: String,
    /// The processor's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// How many of them.
    pub processors: usize,
    /// What the kernel keeps time by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// What reading the clock costs, subtracted where it counts.
    pub clock_cost_ns: u64,
    /// Offloads of the hosts' interfaces that are on.
    pub offloads: Vec<&'static str>,
    /// What kept the time of held packets.
    pub pacer: &'static str,
    /// Of every profile.
    pub seed: u64,
    /// The share of a processor that other programs took just before.
    pub busy_share: f64,
    /// The profile, that of the control where knobs are turned.
    pub profile: String,
}

impl Provenance {
    /// Those of this machine.
    pub fn here(
        pacer: &'static str,
        offloads: Vec<&'static str>,
        clock_cost_ns: u64,
        busy_share: f64,
        (seed, profile): (u64, String),
    ) -> Self {
        let clock_source =
            fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            command: machine::arguments(),
            since: machine::now_s() as u64,
            kernel: machine::kernel(),
            processor: machine::processor(),
            processors: machine::processors(),
            clock_source: clock_source.map(|text| text.trim().to_owned()),
            clock_cost_ns,
            offloads,
            pacer,
            seed,
            busy_share,
            profile,
        }
    }

    /// Names and values, for people and for headers of files.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("perturb", self.version.to_owned()),
            ("command", format!("perturb {}", self.command)),
            ("since", format!("{} s after 1970", self.since)),
            ("kernel", self.kernel.clone()),
        ];
        facts.extend(self.processor.clone().map(|name| ("processor", name)));
        facts.push(("processors", self.processors.to_string()));
        facts.extend(self.clock_source.clone().map(|name| ("clock source", name)));
        facts.extend([
            ("clock cost", format!("{} ns", self.clock_cost_ns)),
            ("offloads", self.offloads.join(", ")),
            ("pacer", self.pacer.to_owned()),
            ("seed", self.seed.to_string()),
            (
                "taken by others",
                format!("{:.1} % of a processor", 100.0 * self.busy_share),
            ),
        ]);
        facts
    }
}
