//! The remap live, on an emulated mesh: `perturb pattern remap`.
//!
//! T_c is a time that the program measures. C_n is the emulator's: what a class's frames were delayed, less what the channels on
//! their path take of a frame that never waits. Barriers are TCP and pass the mesh untouched, so no other frame counts.

use std::{env, fs};

use anyhow::{Context as _, ensure};
use perturb_models::{
    logpc::{Kind, Parameters, network::Wiring, predict},
    mesh::{
        Mesh,
        comparison::settings,
        simulation::{Seen, Settings, Traffic, simulate},
    },
    published::{logpc::remap, tables},
};
use perturb_present::{Table, computed};
use serde_json::Value;

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Outcome, Row},
};

pub(super) const STORED: Differs = Differs {
    what: "channels store and forward: each takes a whole frame's time, where Alewife's let the head through",
    why: "the emulator's servers are packets'; the simulation beside it does the same",
};

pub(super) const PROCESSORS: Differs = Differs {
    what: "overheads are waited for, a FIFO server per host, not burnt",
    why: "32 hosts share this machine's processors",
};

pub(crate) static FIGURES: &[Figure] = &[
    super::dag::FIGURE,
    super::em3d::FIGURE,
    Figure::emulation(
        Paper::MoritzFrank,
        "moritz-frank-table-4-live",
        "an iteration of the remap on an emulated mesh of 32 hosts",
        2.0,
        table_4,
    )
    .quick(1.0)
    .differs(&[
        STORED,
        PROCESSORS,
        Differs {
            what: "frames have 88 B, at 2 B per cycle",
            why: "they occupy a channel for 44 cycles, as the equations' 44 B do",
        },
        Differs {
            what: "asynchronous C_n is above equation and simulation",
            why: "a processor to which nothing has come sends at once, so that sends come in bursts; both take one send for each receive",
        },
    ]),
    Figure::emulation(
        Paper::MoritzFrank,
        "moritz-frank-fig-6-live",
        "interval of long messages on an emulated mesh, by mapping; Figs 4 and 5 without contention",
        8.0,
        super::long::fig_6,
    )
    .quick(1.0)
    .differs(&[
        STORED,
        Differs {
            what: "the next message waits for this one's arrival, and blocks no other",
            why: "nothing holds up a send on the emulated network; Alewife's wormholes hold the channels behind",
        },
        Differs {
            what: "the input queue of Fig. 3 is not live",
            why: "emulated hosts have no DMA engine that empties it: a long message hides o_r",
        },
    ]),
];

/// An emulated machine.
pub(super) struct Machine {
    name: &'static str,
    profile: &'static str,
    pub(super) shape: [u32; 2],
}

pub(super) const ALEWIFE: Machine = Machine {
    name: "alewife-4x8",
    profile: include_str!("../../../../../configs/alewife-4x8.yaml"),
    shape: [8, 4],
};

pub(super) const SMALL: Machine = Machine {
    name: "alewife-4x4",
    profile: include_str!("../../../../../configs/alewife-4x4.yaml"),
    shape: [4, 4],
};

/// Of a cycle, here: both profiles' factor.
pub(super) const CYCLE_US: f64 = 40.0;
/// Cycles per byte of a channel, and from the end of a frame on one to its arrival at the next.
pub(super) const PER_BYTE: f64 = 0.5;
pub(super) const LATENCY: f64 = 2.0;
/// Ethernet, IPv4 and UDP.
pub(super) const HEADERS: u64 = 42;
/// Payload of a part of a long message.
pub(super) const PART: u64 = 256;

/// What a run found, in cycles.
pub(super) struct Live {
    pub(super) interval: f64,
    /// Of styles that wait for an answer.
    pub(super) round_trip: Option<f64>,
    /// Per frame, over all channels: C_n of a message of one frame.
    pub(super) wait: f64,
    pub(super) hops: f64,
}

impl Machine {
    pub(super) fn mesh(&self) -> anyhow::Result<Mesh> {
        Mesh::new(&self.shape, Wiring::Mesh).context("the mesh")
    }

    /// Runs a pattern with these options, and reads the counters before the emulation ends: what it printed, and the mean wait
    /// of a frame with the channels that it crossed.
    pub(super) fn run(
        &self,
        setting: &Setting,
        outcome: &mut Outcome,
        options: &str,
    ) -> anyhow::Result<(Value, (f64, f64))> {
        fs::create_dir_all(&setting.directory)?;
        let path = setting.directory.join(format!("{}.yaml", self.name));
        let barriers = "classes:\n  - { name: barriers, match: { protocol: tcp }, bypass: true }\n";
        fs::write(&path, [self.profile, barriers].concat())
            .with_context(|| format!("writing {}", path.display()))?;
        let hosts = self.mesh()?.nodes().to_string();
        let script = format!("\"$0\" pattern {options} && \"$0\" status --json");
        let program = env::current_exe().context("finding this executable")?;
        let (path, program) = (path.to_string_lossy(), program.to_string_lossy());
        let words = [
            "run", &path, "--hosts", &hosts, "--", "sh", "-c", &script, &program,
        ];
        let printed = setting.perturb(outcome, &words)?;
        let (seen, counters) = printed.split_once('\n').context("two JSON values")?;
        let seen: Value = serde_json::from_str(seen).context("reading what the program printed")?;
        let counters: Value = serde_json::from_str(counters).context("reading the counters")?;
        // Others may emulate on this machine: the report of this one says on which of its hosts it was asked for.
        let own = |report: &&Value| report["host"].is_string();
        let report = counters.as_array().and_then(|all| all.iter().find(own));
        let report = report.context("counters of this emulation")?;
        let unintended = report["unintended"].as_object().context("unintended drops")?;
        ensure!(
            unintended.values().all(|count| *count == 0),
            "packets were dropped that should not: {unintended:?}"
        );
        let waits = self.waits(&report["classes"])?;
        Ok((seen, waits))
    }

    pub(super) fn remap(
        &self,
        setting: &Setting,
        outcome: &mut Outcome,
        options: &str,
    ) -> anyhow::Result<Live> {
        let (seen, (wait, hops)) = self.run(setting, outcome, &format!("remap {options}"))?;
        let cycles = |key: &str| seen[key].as_f64().map(|time| time / CYCLE_US);
        Ok(Live {
            interval: cycles("interval_us").context("an interval")?,
            round_trip: cycles("round_trip_us"),
            wait,
            hops,
        })
    }

    /// Mean wait of a frame in cycles, and channels that it crossed, from the classes of the pairs of hosts.
    fn waits(&self, classes: &Value) -> anyhow::Result<(f64, f64)> {
        let mesh = self.mesh()?;
        let (mut frames, mut waits, mut channels) = (0.0, 0.0, 0.0);
        for class in classes.as_array().into_iter().flatten() {
            let pair = class["name"].as_str().and_then(|name| name.split_once('-'));
            let host = |name: &str| name.strip_prefix('h')?.parse::<u32>().ok();
            let Some((Some(from), Some(to))) = pair.map(|(from, to)| (host(from), host(to))) else {
                continue;
            };
            let sent = &class["egress"];
            let number = |key: &str| sent[key].as_f64().unwrap_or_default();
            let (packets, hops) = (number("packets"), mesh.path(from - 1, to - 1).len() as f64);
            let never_waiting = hops * (number("bytes") * PER_BYTE + packets * LATENCY);
            waits += packets * number("mean_delay_us") / CYCLE_US - never_waiting;
            frames += packets;
            channels += packets * hops;
        }
        ensure!(frames > 0.0, "no frame crossed the mesh");
        Ok((waits / frames, channels / frames))
    }
}

/// The same traffic on a mesh whose channels store a message before they let it go on.
fn stored(mesh: &Mesh, parameters: &Parameters, messages: u64) -> Seen {
    let mut settings: Settings = settings(parameters, messages, 1);
    settings.hop = settings.message.bytes + LATENCY;
    settings.message.latency = 0.0;
    if let Traffic::RequestReply { work } = &mut settings.traffic {
        // The last channel's, of the request and of the reply.
        *work += 2.0 * settings.hop;
    }
    simulate(mesh, settings)
}

/// What a short message takes of channels and processors, as options of `pattern remap`.
pub(super) fn short(parameters: &Parameters) -> String {
    let [send, receive] =
        [parameters.message.send, parameters.message.receive].map(|cycles| cycles * CYCLE_US);
    format!(
        "--message {}B --send {send}us --receive {receive}us",
        2 * 44 - HEADERS
    )
}

fn table_4(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (iterations, messages) = if setting.quick {
        (40, 10_000)
    } else {
        (300, 50_000)
    };
    let mesh = ALEWIFE.mesh()?;
    let header = [
        "remap",
        "cycles",
        "on Alewife",
        "LoGPC",
        "simulated",
        "simulated, stored",
        "live",
    ];
    let mut table = Table::new(2, &header);
    let printed = tables::LOGPC_TABLE4.table();
    for row in printed.rows() {
        let kind = row.text("type");
        let parameters = remap(kind).context("Table 4")?;
        let run = |mapping: &str, outcome: &mut Outcome| {
            let options = format!(
                "--style {kind} --mapping {mapping} --iterations {iterations} {}",
                short(&parameters)
            );
            ALEWIFE.remap(setting, outcome, &options)
        };
        let live = run("random", &mut outcome)?;
        let (model, exact) = (
            predict(&parameters),
            simulate(&mesh, settings(&parameters, messages, 1)),
        );
        let stored = stored(&mesh, &parameters, messages);
        let number = |column: &str| row.number(column).context("Table 4");
        let measured = number("measured_cycles")?;
        let is_closed = parameters.pattern.kind == Kind::RequestReply;
        // An open load's period is its input.
        let period = |seen: &Seen| computed(is_closed.then_some(seen.period_cycles));
        table.row(vec![
            kind.into(),
            "an iteration".into(),
            computed(measured),
            computed(model.logpc_cycles),
            period(&exact),
            period(&stored),
            computed(live.interval),
        ]);
        table.row(vec![
            kind.into(),
            "C_n, by the emulator's counters".into(),
            computed(None),
            computed(model.network_contention_cycles),
            computed(exact.network_contention_cycles),
            computed(stored.network_contention_cycles),
            computed(live.wait),
        ]);
        let case = |what: &str| format!("{kind}, {what}");
        let row = Row::measured(case("an iteration"), "cycles", measured, live.interval);
        outcome.rows.push(if is_closed {
            row.fitted("given: the paper does not print the message size")
        } else {
            row
        });
        let contention = number("network_contention_cycles")?;
        let row = Row::measured(case("C_n"), "cycles", contention, live.wait);
        outcome
            .rows
            .push(row.fitted("fitted: the paper's C_n is its equation's for 44 B and k_d = 2"));
        if is_closed {
            let alone = run("perfect", &mut outcome)?;
            table.row(vec![
                kind.into(),
                "an iteration between neighbors, which share no channel".into(),
                computed(None),
                computed(None),
                computed(None),
                computed(None),
                computed(alone.interval),
            ]);
            // LogP's cycle, but that each of the two frames is stored once on its way instead of L.
            let free = 2.0 * (parameters.message.send + parameters.message.receive + 44.0 + LATENCY);
            table.row(vec![
                kind.into(),
                "the same by LogP, with the frame's time in the place of L".into(),
                computed(None),
                computed(free),
                computed(None),
                computed(None),
                computed(None),
            ]);
        }
    }
    let caption = "Cycles of the remap: measured on Alewife, by equation, simulated with cut-through and with stored messages, and live";
    outcome.tables.push((caption.into(), table));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::long::payload;
    use super::*;

    #[test]
    fn waits_are_delays_beyond_the_channels() {
        // Hosts 1 and 3 are two channels apart: 2 (44 + 2) cycles, and 10 of waiting.
        let class = |name: &str, packets: u64, cycles: f64| json!({"name": name, "egress": {"packets": packets, "bytes": 88 * packets, "mean_delay_us": cycles * CYCLE_US}});
        let classes = json!([
            class("barriers", 7, 0.0),
            class("h1-h3", 10, 102.0),
            class("h1-h9", 30, 46.0),
            json!({"name": "h2-h1", "egress": {"packets": 0, "bytes": 0}}),
        ]);
        let (wait, hops) = ALEWIFE.waits(&classes).unwrap();
        assert!(
            (wait - 2.5).abs() < 1e-9 && (hops - 1.25).abs() < 1e-9,
            "{wait} {hops}"
        );
        assert!(ALEWIFE.waits(&json!([])).is_err());
    }

    #[test]
    fn the_profiles_are_what_is_computed_with() {
        for machine in [ALEWIFE, SMALL] {
            let profile = perturb_profile::parse(machine.profile).unwrap();
            let Some(perturb_profile::Layout::Mesh { dimensions, link, .. }) =
                profile.topology.map(|topology| topology.layout)
            else {
                panic!("no mesh");
            };
            let shape: Vec<u32> = dimensions.into_iter().map(u32::from).collect();
            assert_eq!(shape, machine.shape);
            let us_per_byte = 8e6 / link.bandwidth.unwrap().bits_per_second() as f64;
            assert!((us_per_byte - PER_BYTE * CYCLE_US).abs() < 1e-9);
            assert_eq!(link.latency, format!("{}us", LATENCY * CYCLE_US).parse().unwrap());
        }
    }

    #[test]
    fn a_payload_fills_its_frames() {
        for (bytes, expected) in [(298, 256), (596, 512), (1000, 3 * 256 + 64)] {
            assert_eq!(payload(bytes), expected, "{bytes}");
        }
    }
}
