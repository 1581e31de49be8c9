//! Bulk TCP between two private hosts over a profile's network: what each congestion control delivers, and how long its
//! packets wait, beside what the servers on their way could carry.
//!
//! A flow has hosts and an emulation of its own, so that the timeline begins with it, unless all go at once. Which servers are on
//! its way is read from what they have served.

mod output;

use std::{
    collections::BTreeMap,
    net::TcpListener,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use perturb_emulator::{
    conduct::Pacing,
    lab,
    prepared::Prepared,
    status::{Fault, Report, ServerReport},
};
use perturb_present::{LiveLine, bar, span};
use perturb_profile::bandwidths;
use perturb_stats::Sample as Values;
use perturb_workloads::bulk::{self, Sample};
use serde::Serialize;

pub use self::output::{Sheet, svg};
use crate::hosts::{self, Hosts};
pub use perturb_workloads::bulk::is_available;

/// Where the receiver listens.
const PORT: u16 = 7118;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Congestion controls, by the kernel's names: a flow for each.
    pub controls: Vec<String>,
    /// How long a flow sends.
    pub length: Duration,
    /// How often its sender is asked.
    pub every: Duration,
    /// h1 sends to h2; otherwise h2 to h1.
    pub upload: bool,
    /// All flows share the network; otherwise each has it for itself, one after the other.
    pub at_once: bool,
}

/// What came of it; the keys of `perturb tcp --json`.
#[derive(Debug, Serialize)]
pub struct Results {
    upload: bool,
    at_once: bool,
    length_s: f64,
    every_s: f64,
    flows: Vec<Flow>,
}

/// A flow.
#[derive(Debug, Serialize)]
struct Flow {
    congestion_control: String,
    /// Payload that has come.
    delivered_bytes: u64,
    /// What the servers on its way could have carried meanwhile in full frames, headers included; absent if nothing limits them.
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<f64>,
    /// The shortest round trip.
    min_rtt_ms: f64,
    /// Segments sent again.
    retransmitted: u32,
    /// How long packets waited: the round trip less the shortest one. A latency that changes counts, and jitter.
    queueing_ms: Queueing,
    samples: Vec<Seen>,
}

/// Of all samples.
#[derive(Debug, Serialize)]
struct Queueing {
    median: f64,
    p95: f64,
    max: f64,
}

/// A sample, and what the network could carry since the one before.
#[derive(Debug, Serialize)]
struct Seen {
    at_s: f64,
    delivered_bytes: u64,
    rtt_ms: f64,
    queueing_ms: f64,
    retransmitted: u32,
    /// The mean bandwidth of the slowest server on the way, for full frames with its gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth_bit_s: Option<f64>,
}

/// Runs the flows, and finds what speaks against them; nothing if a signal came before the end.
pub fn measure(
    prepared: &Prepared,
    pacing: Pacing,
    plan: &Plan,
    line: LiveLine,
) -> anyhow::Result<Option<(Results, Vec<Fault>)>> {
    let line = Arc::new(line);
    let together = if plan.at_once { plan.controls.len() } else { 1 };
    let (mut flows, mut faults) = (Vec::new(), Vec::new());
    let turns = plan.controls.chunks(together.max(1));
    let of = turns.len();
    for (before, controls) in turns.enumerate() {
        let turn = Turn {
            prepared: prepared.clone(),
            plan: plan.clone(),
            controls: controls.to_vec(),
            before,
            of,
            line: Arc::clone(&line),
        };
        let Some((new, against)) = hosts::measure(&prepared.profile, pacing, move |hosts| turn.run(hosts))?
        else {
            return Ok(None);
        };
        flows.extend(new);
        faults.extend(against);
    }
    let results = Results {
        upload: plan.upload,
        at_once: plan.at_once,
        length_s: plan.length.as_secs_f64(),
        every_s: plan.every.as_secs_f64(),
        flows,
    };
    Ok(Some((results, faults)))
}

/// Flows that share an emulation.
struct Turn {
    prepared: Prepared,
    plan: Plan,
    controls: Vec<String>,
    /// Turns before this one, and all of them.
    before: usize,
    of: usize,
    line: Arc<LiveLine>,
}

impl Turn {
    fn run(&self, mut hosts: Hosts) -> anyhow::Result<(Vec<Flow>, Vec<Fault>)> {
        let (from, to) = if self.plan.upload { (1, 2) } else { (2, 1) };
        let address = lab::addresses(to).0;
        let listener = hosts.inside(to, || TcpListener::bind((address, PORT)))??;
        hosts.set(self.prepared.clone())?;
        let connect = |control: &String| {
            let flow = hosts.inside(from, || bulk::Flow::connect((address, PORT).into(), control))?;
            flow.with_context(|| format!("{control}: connecting {} to {}", lab::name(from), lab::name(to)))
        };
        let (begun, samples): (_, Vec<Vec<Sample>>) = thread::scope(|scope| {
            for _ in &self.controls {
                // What goes wrong there, the sender notices.
                scope.spawn(|| bulk::drain(&listener));
            }
            let flows = self.controls.iter().map(connect);
            let flows = flows.collect::<anyhow::Result<Vec<_>>>()?;
            let start = Instant::now();
            let senders = flows.into_iter().zip(&self.controls);
            let senders = senders.map(|(flow, control)| scope.spawn(move || self.send(flow, control, start)));
            let senders: Vec<_> = senders.collect();
            let begun = Begun::of(&hosts.report()?, start.elapsed());
            let samples = senders.into_iter().map(|sender| {
                let sent = sender.join();
                sent.unwrap_or_else(|_| bail!("a sender's thread has panicked"))
            });
            anyhow::Ok((begun, samples.collect::<anyhow::Result<Vec<_>>>()?))
        })?;
        let report = hosts.settled()?.context("nothing is emulated")?;
        let delivered = samples.iter().flat_map(|samples| samples.last());
        let delivered: u64 = delivered.map(|sample| sample.delivered).sum();
        let bandwidths = self.bandwidths(&begun, &report, delivered);
        let flows = self.controls.iter().zip(samples);
        let flows = flows.map(|(control, samples)| self.flow(control, &samples, &bandwidths));
        Ok((flows.collect::<anyhow::Result<_>>()?, report.faults()))
    }

    fn send(&self, flow: bulk::Flow, control: &str, start: Instant) -> anyhow::Result<Vec<Sample>> {
        let mut samples: Vec<Sample> = Vec::new();
        let sent = flow.send(start, self.plan.length, self.plan.every, |sample| {
            let mbits = sample.delivered as f64 * 8e-6 / sample.at.as_secs_f64();
            let (at, length) = (sample.at.as_secs_f64(), self.plan.length.as_secs_f64());
            let (done, all) = (self.before as f64 * length + at, self.of as f64 * length);
            let (bar, left) = (bar(done / all), span(all - done));
            self.line.show(format_args!(
                "{bar} {left} left · {control}: {mbits:.2} Mbit/s in the mean"
            ));
            samples.push(sample);
        });
        self.line.clear();
        sent.with_context(|| format!("{control}: sending"))?;
        Ok(samples)
    }

    /// The mean bandwidth between each two samples, bit/s, of the slowest of the servers that served at least half of so many
    /// bytes; `None` for no limit.
    fn bandwidths(&self, begun: &Begun, report: &Report, delivered: u64) -> Vec<Option<f64>> {
        let every = self.plan.every.as_nanos() as u64;
        let count = (self.plan.length.as_nanos() / self.plan.every.as_nanos()) as usize;
        let Prepared { profile, files, .. } = &self.prepared;
        let mut slowest = vec![None; count];
        for (place, (name, _)) in profile.servers.iter().enumerate() {
            let of = |server: &&ServerReport| server.name == *name.as_str();
            let Some(server) = report.servers.iter().find(of) else {
                continue;
            };
            if server.bytes * 2 < delivered {
                continue;
            }
            let from = begun.since(&server.name);
            let own = bandwidths(profile, files, place, from.as_nanos() as u64, every, count);
            for (slowest, own) in slowest.iter_mut().zip(own) {
                *slowest = (*slowest).into_iter().chain(own).reduce(f64::min);
            }
        }
        slowest
    }

    fn flow(&self, control: &str, samples: &[Sample], bandwidths: &[Option<f64>]) -> anyhow::Result<Flow> {
        let last = samples
            .last()
            .context("no sample: `--every` is longer than `--for`")?;
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let least = samples
            .iter()
            .map(|sample| sample.min_rtt)
            .min()
            .unwrap_or_default();
        let waited = |sample: &Sample| millis(sample.rtt.saturating_sub(least));
        let waits = Values::new(samples.iter().map(waited).collect())?;
        let every = self.plan.every.as_secs_f64();
        let capacity: Option<f64> = bandwidths
            .iter()
            .map(|bits| bits.map(|bits| bits / 8.0 * every))
            .sum();
        let seen = samples.iter().zip(bandwidths).map(|(sample, bandwidth)| Seen {
            at_s: sample.at.as_secs_f64(),
            delivered_bytes: sample.delivered,
            rtt_ms: millis(sample.rtt),
            queueing_ms: waited(sample),
            retransmitted: sample.retransmitted,
            bandwidth_bit_s: *bandwidth,
        });
        Ok(Flow {
            congestion_control: control.to_owned(),
            delivered_bytes: last.delivered,
            capacity_bytes: capacity,
            min_rtt_ms: millis(least),
            retransmitted: last.retransmitted,
            queueing_ms: Queueing {
                median: waits.median(),
                p95: waits.quantile(0.95)?,
                max: waits.max(),
            },
            samples: seen.collect(),
        })
    }
}

/// Where the servers were in their timelines when the flows began.
struct Begun(BTreeMap<String, Duration>);

impl Begun {
    /// From a report that was made so long after the beginning.
    fn of(report: &Report, after: Duration) -> Self {
        let servers = report.servers.iter().filter_map(|server| {
            let now = Duration::from_secs_f64(server.timeline.as_ref()?.at_s?);
            Some((server.name.clone(), now.saturating_sub(after)))
        });
        Self(servers.collect())
    }

    fn since(&self, server: &str) -> Duration {
        self.0.get(server).copied().unwrap_or_default()
    }
}
