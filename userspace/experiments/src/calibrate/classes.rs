//! `perturb calibrate PROFILE`: each class of a profile, asked against got, on private hosts.
//!
//! Model: what a class does to a lone packet and to a burst follows from its path: a lone packet of s bytes is delayed by
//! the latencies and every server's service, a burst's packets by the slowest service,
//!
//! ```text
//! delay(s)   = sum of (latency + gap + s / bandwidth) over the servers
//! spacing(s) = max of (gap + s / bandwidth) over the servers
//! ```
//!
//! So the classes' matches are replaced by UDP ports, one for each class, and everything else stays: servers that
//! classes share, their order, buffers, losses and seeds. Bursts are short enough for the buffers.
//! What is lacking: whether the matches select what is meant, which `check` explains; jitter, of which the median is
//! seen; the way back of a class (`ingress`), whose servers are measured as if packets were sent over them.

use std::{fmt, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use perturb_emulator::{
    lab,
    prepared::{Prepared, ProfileError},
    status::Fault,
};
use perturb_present::{LiveLine, Parts, Table};
use perturb_profile::{
    Class, Match, Name, PortRange, Profile, Protocol, Server, ServerId, Treatment, Volume,
};
use perturb_stats::median;
use serde::Serialize;

use super::{
    calibration::{Outcome, fault, number},
    judge::{ABSOLUTE_US, RELATIVE, Verdict},
};
use crate::{
    estimate::{
        Parameters,
        passage::{self, Passage},
        train::{self, Spacing},
    },
    hosts::Hosts,
    judged::Judged,
    probe::{clock, endpoint::Train, message::WIRE_V4},
};

/// UDP payload of the small packets, bytes.
const SMALL: usize = 64;
/// What the probes are.
const UDP: Protocol = Protocol(17);
/// Ports of the classes begin here.
const FIRST_PORT: u16 = 20_000;
/// Lone packets and bursts of each size.
const LONE: u32 = 60;
const BURSTS: u32 = 7;
/// Packets of a burst, if the buffers hold them.
const BURST: u32 = 24;
/// How long all bursts of a size may take, microseconds: then they have fewer packets.
const TIME_US: f64 = 2e6;
const PATIENCE: Duration = Duration::from_secs(1);

/// A number that a class should have.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The class.
    pub class: String,
    /// `egress` or `ingress`.
    pub direction: &'static str,
    pub what: &'static str,
    /// Asked for, microseconds.
    pub asked_us: f64,
    /// Got, microseconds, less what the same packets take without emulation where that adds up.
    pub got_us: Option<f64>,
    /// got - asked.
    pub error_us: Option<f64>,
    /// How far it may be off.
    pub tolerance_us: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// All classes.
#[derive(Clone, Debug, Serialize)]
pub struct Classes {
    /// Whether all are as asked.
    pub verdict: Outcome,
    /// One line for each number.
    pub classes: Vec<Line>,
    /// Classes that let packets pass untouched, which have nothing to be measured.
    pub untouched: Vec<String>,
    /// What was done to packets that the profile does not ask for: any makes the calibration fail.
    pub faults: Vec<Fault>,
}

impl Classes {
    /// Its numbers, and what was done to packets that nobody asked for.
    #[must_use]
    pub fn judged(&self) -> Vec<Judged> {
        let of = |line: &Line| Judged {
            name: format!("{} {} {}", line.class, line.direction, line.what),
            said: format!(
                "{}: {} us, asked for {} us, may be off by {} us",
                line.verdict.name(),
                number(line.got_us),
                number(line.asked_us),
                number(line.tolerance_us)
            ),
            passes: line.verdict == Verdict::Right,
        };
        self.classes
            .iter()
            .map(of)
            .chain(self.faults.iter().map(fault))
            .collect()
    }
}

/// A profile whose classes are to be measured.
pub(super) struct Plan {
    original: Profile,
    prepared: Prepared,
    parts: Vec<Part>,
    untouched: Vec<String>,
}

impl Plan {
    /// Reads a profile.
    pub(super) fn load(path: &Path, coarse: bool) -> anyhow::Result<Self> {
        let original = Prepared::load_for(path, &lab::all_addresses(2))?.profile;
        ensure!(
            !original.is_changing(),
            "{}: it changes with time (`timeline` or `trace`), so no single value is to be found again; take these keys out",
            path.display()
        );
        let (profile, parts) = by_port(&original)?;
        let mut untouched: Vec<String> = original
            .classes
            .iter()
            .map(|class| class.name.to_string())
            .collect();
        untouched.retain(|name| parts.iter().all(|part| part.class != *name));
        ensure!(
            !parts.is_empty(),
            "{}: no class crosses a server or has an overhead, so there is nothing to calibrate",
            path.display()
        );
        let files = perturb_profile::files(&profile, path.parent().unwrap_or(Path::new("")))
            .map_err(ProfileError::from)?;
        Ok(Self {
            original,
            prepared: Prepared::with_files(profile, files)?.coarse_if(coarse),
            parts,
            untouched,
        })
    }

    /// What was read.
    #[must_use]
    pub(super) fn profile(&self) -> &Profile {
        &self.original
    }

    /// Measures the classes between the hosts.
    pub(super) fn run(self, mut hosts: Hosts, line: &LiveLine) -> anyhow::Result<Classes> {
        let Self {
            original,
            prepared,
            parts,
            untouched,
        } = self;
        let clock_ns = clock::cost();
        let idle = Parameters::default()
            .profile(1)
            .context("the control's profile")?;
        hosts.set(Prepared::of(idle, &lab::all_addresses(2))?)?;
        let progress = Parts::new(line, parts.len() + 1);
        progress.begin(0, "control");
        let control = lone(&hosts, hosts.to, SMALL, 1.0, Duration::ZERO, clock_ns)?;
        let mut faults = hosts.faults()?;
        // The profile may need larger tables than the control.
        hosts.clear()?;
        hosts.set(prepared)?;
        let mut classes = Vec::new();
        for (part, done) in parts.iter().zip(1..) {
            progress.begin(done, format_args!("class {} {}", part.class, part.direction));
            let to = hosts.listen(part.port)?;
            classes.extend(part.measure(&hosts, to, &original, &control, clock_ns)?);
        }
        faults.extend(hosts.faults()?);
        hosts.clear()?;
        let passes = faults.is_empty() && classes.iter().all(|line| line.verdict == Verdict::Right);
        Ok(Classes {
            verdict: if passes { Outcome::Pass } else { Outcome::Fail },
            classes,
            untouched,
            faults,
        })
    }
}

/// A class in one direction.
struct Part {
    class: String,
    direction: &'static str,
    port: u16,
    path: Vec<ServerId>,
}

/// The profile with ports in the place of matches, and what is behind each port.
fn by_port(original: &Profile) -> anyhow::Result<(Profile, Vec<Part>)> {
    let mut profile = original.clone();
    profile.classes.clear();
    profile.topology = None;
    let mut parts = Vec::new();
    for class in &original.classes {
        for (direction, path) in ["egress", "ingress"].into_iter().zip(class.paths()) {
            let Some(path) = path else { continue };
            let port = FIRST_PORT + parts.len() as u16;
            profile.classes.push(Class {
                name: Name::new(&format!("c{port}")).context("a class's name")?,
                matching: Match {
                    protocol: vec![UDP],
                    destination_port: vec![PortRange {
                        low: port,
                        high: port,
                    }],
                    ..Match::default()
                },
                treatment: Treatment::Emulate {
                    egress: Some(path.to_vec()),
                    ingress: None,
                },
            });
            parts.push(Part {
                class: class.name.to_string(),
                direction,
                port,
                path: path.to_vec(),
            });
        }
    }
    Ok((profile, parts))
}

fn service_us(server: &Server, bytes: f64) -> f64 {
    let frame = server.bandwidth.map_or(0, |rate| rate.time_of(1_000_000).nanos());
    server.gap.nanos() as f64 / 1e3 + bytes * frame as f64 / 1e9
}

impl Part {
    fn measure(
        &self,
        hosts: &Hosts,
        to: SocketAddr,
        profile: &Profile,
        control: &[Passage],
        clock_ns: u64,
    ) -> anyhow::Result<Vec<Line>> {
        let servers: Vec<&Server> = self
            .path
            .iter()
            .filter_map(|&id| profile.server(id).map(|(_, server)| server))
            .collect();
        let latency_us: f64 = servers
            .iter()
            .map(|server| server.latency.nanos() as f64 / 1e3)
            .sum();
        let slowest = |bytes: f64| {
            servers
                .iter()
                .map(|server| service_us(server, bytes))
                .fold(0.0, f64::max)
        };
        let longest = Duration::from_nanos((latency_us * 1e3) as u64);
        let of = |passages: &[Passage], value: fn(&Passage) -> f64| {
            median(&passages.iter().map(value).collect::<Vec<_>>())
        };
        let own_transit = of(control, |passage| passage.transit_us).unwrap_or(0.0);
        let own_send = of(control, |passage| passage.send_us).unwrap_or(0.0);
        let mut lines = Vec::new();
        let payloads = [SMALL, full(profile)];
        for (payload, what) in payloads.into_iter().zip(["delay, small", "delay, full frame"]) {
            let bytes = (payload + WIRE_V4) as f64;
            let services: f64 = servers.iter().map(|server| service_us(server, bytes)).sum();
            let seen = lone(
                hosts,
                to,
                payload,
                services,
                longest + Duration::from_secs(1),
                clock_ns,
            )?;
            let asked = latency_us + services;
            // As with the latency knob: what the way itself takes may be hidden while the packet is held.
            let got = of(&seen, |passage| passage.transit_us)
                .map(|transit| transit - (transit - asked).clamp(0.0, own_transit));
            lines.push(self.line(what, asked, got));
            let burnt = profile.overhead.send.nanos() as f64 / 1e3;
            if payload == SMALL && burnt > 0.0 {
                let got = of(&seen, |passage| passage.send_us).map(|send| send - own_send);
                lines.push(self.line("overhead, send", burnt, got));
            }
        }
        for (payload, what) in payloads
            .into_iter()
            .zip(["spacing, small", "spacing, full frames"])
        {
            let asked = slowest((payload + WIRE_V4) as f64);
            // Behind a sender that takes as long the service cannot be seen.
            if asked > ABSOLUTE_US {
                let got = spacing(hosts, to, payload, asked, held(&servers, profile), longest)?;
                lines.push(self.line(what, asked, got));
            }
        }
        Ok(lines)
    }

    fn line(&self, what: &'static str, asked_us: f64, got_us: Option<f64>) -> Line {
        let tolerance_us = (RELATIVE * asked_us).max(ABSOLUTE_US);
        let error_us = got_us.map(|got| got - asked_us);
        Line {
            class: self.class.clone(),
            direction: self.direction,
            what,
            asked_us,
            got_us,
            error_us,
            tolerance_us,
            verdict: match error_us {
                Some(error) if error.abs() <= tolerance_us => Verdict::Right,
                Some(_) => Verdict::Wrong,
                None => Verdict::Undecided,
            },
        }
    }
}

/// UDP payload of a full packet between the profile's hosts, bytes.
fn full(profile: &Profile) -> usize {
    profile.frame().bytes() as usize - WIRE_V4
}

/// Full frames that all buffers on the way hold.
fn held(servers: &[&Server], profile: &Profile) -> u32 {
    let of = |server: &&Server| {
        let frame = profile.frame().bytes();
        let frame_us = service_us(server, frame as f64);
        let volume = match server.buffer.volume {
            Some(Volume::Bytes(size)) => (size.bytes() / frame) as u32,
            Some(Volume::Delay(delay)) if frame_us > 0.0 => (delay.nanos() as f64 / 1e3 / frame_us) as u32,
            Some(Volume::Delay(_)) | None => u32::MAX,
        };
        volume.min(server.buffer.packets.unwrap_or(u32::MAX))
    };
    servers.iter().map(of).min().unwrap_or(u32::MAX)
}

fn lone(
    hosts: &Hosts,
    to: SocketAddr,
    payload: usize,
    service_us: f64,
    longest: Duration,
    clock_ns: u64,
) -> anyhow::Result<Vec<Passage>> {
    let train = Train {
        messages: LONE,
        segments: 1,
        payload,
        burst: 1,
        interval_ns: (2_570_000.0_f64).max(1.5e3 * service_us) as u64,
    };
    let number = hosts.here.number();
    let sent = hosts.here.send(to, number, &train)?;
    let receipts = hosts.take(to, number, train.datagrams(), PATIENCE + longest);
    Ok(passage::divide_all(&sent, &receipts, clock_ns))
}

fn spacing(
    hosts: &Hosts,
    to: SocketAddr,
    payload: usize,
    asked_us: f64,
    held: u32,
    latency: Duration,
) -> anyhow::Result<Option<f64>> {
    let burst = BURST
        .min((TIME_US / asked_us / f64::from(BURSTS)) as u32)
        .min(held)
        .max(2);
    let train = Train {
        messages: burst * BURSTS,
        segments: 1,
        payload,
        burst,
        interval_ns: (2e6 + 1.4e3 * f64::from(burst) * asked_us) as u64,
    };
    let number = hosts.here.number();
    let sent = hosts.here.send(to, number, &train)?;
    let receipts = hosts.take(to, number, train.datagrams(), PATIENCE + latency);
    let spacings: Vec<f64> = train::spacings(&train, &sent, &receipts)
        .iter()
        .map(Spacing::service_us)
        .collect();
    Ok(median(&spacings))
}

impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(
            1,
            &[
                "class",
                "direction",
                "what",
                "asked us",
                "got us",
                "error us",
                "may be",
                "verdict",
            ],
        );
        for line in &self.classes {
            let verdict = line.verdict.name();
            table.row(vec![
                line.class.clone(),
                line.direction.to_owned(),
                line.what.to_owned(),
                number(line.asked_us),
                number(line.got_us),
                number(line.error_us),
                number(line.tolerance_us),
                verdict.to_owned(),
            ]);
        }
        write!(f, "{table}")?;
        if !self.untouched.is_empty() {
            writeln!(f, "untouched: {}", self.untouched.join(", "))?;
        }
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        writeln!(f, "{}", self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_become_ports() {
        let text = "version: 1\nservers:\n  a: { gap: 100us, bandwidth: 8Mbit/s, buffer: 30KiB }\n  b: { latency: 1ms }\n\
                    classes:\n  - { name: ssh, match: { port: 22 }, bypass: true }\n  \
                    - { name: nfs, match: { protocol: tcp, port: 2049 }, egress: [a, b], ingress: [b] }\n";
        let original = perturb_profile::parse(text).unwrap();
        let (profile, parts) = by_port(&original).unwrap();
        let names: Vec<_> = parts
            .iter()
            .map(|part| (part.class.as_str(), part.direction, part.port))
            .collect();
        assert_eq!(names, [("nfs", "egress", 20_000), ("nfs", "ingress", 20_001)]);
        assert_eq!(profile.classes.len(), 2);
        assert_eq!(profile.classes[0].paths()[0].unwrap().len(), 2);
        let a = &original.servers[0].1;
        assert!((service_us(a, 1_000.0) - 1_100.0).abs() < 1e-9);
        assert_eq!(held(&[a], &profile), 20);
    }
}
