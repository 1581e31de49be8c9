//! How many packets a second this machine carries for a network of several machines, as its core.
//!
//! Model. Frames of full size go from one private host to another behind a millisecond of latency, at a rate that doubles until one is
//! lost, or 1 % leave more than 5 ms late. The senders of the network itself are elsewhere, so the figure is on the safe side.

use std::{
    fmt,
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use perturb_emulator::{
    conduct::Pacing,
    lab::{self, run::LATE},
    prepared::Prepared,
};
use perturb_profile::{Profile, ServerId};
use serde::Serialize;

use crate::hosts::{self, Hosts};

/// The first rate, and the last, packets/s.
const RATES: (u64, u64) = (1_000, 1_024_000);
/// How long each lasts.
const STEP: Duration = Duration::from_millis(400);
/// Packets leave in bursts, one each.
const BURST: Duration = Duration::from_millis(1);
/// Of the packets that a rate asks for, so many have to leave in time.
const SENT: f64 = 0.98;
/// Headers of IPv4 and UDP, bytes.
const HEADERS: usize = 28;
/// What they cross.
const PROFILE: &str = "version: 1\ntopology: { kind: bus, link: { bandwidth: 1Tbit/s, latency: 1ms } }\n";

/// What was measured, beside what a profile asks for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Carried {
    /// Packets/s, at least; 0 if not even the first rate was carried.
    pub carried_per_s: u64,
    /// Full frames/s that the profile lets hosts send together; nothing if it does not limit them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_per_s: Option<u64>,
}

impl Carried {
    /// Whether it is known to be enough.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.asked_per_s.is_some_and(|asked| asked <= self.carried_per_s)
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "core: this machine carries at least {} packets/s; ",
            self.carried_per_s
        )?;
        match self.asked_per_s {
            Some(asked) => write!(f, "hosts send at most {asked} full frames/s together"),
            None => f.write_str("the profile does not limit what hosts send together"),
        }
    }
}

/// Measures it, for a profile whose topology is written out. Nothing if a signal has ended it.
///
/// # Errors
/// If there can be no private hosts here.
pub fn measure(profile: &Profile, pacing: Pacing) -> anyhow::Result<Option<Carried>> {
    let bus = perturb_profile::parse(PROFILE).context("reading the profile to measure by")?;
    let wire = Profile {
        mtu: profile.mtu,
        ..Profile::default()
    };
    let payload = vec![0; wire.mtu() as usize - HEADERS];
    let prepared = Prepared::of(bus, &lab::all_addresses(2))?;
    let carried = hosts::measure(&wire, pacing, move |mut hosts| {
        let (mut carried, mut rate) = (0, RATES.0);
        while rate <= RATES.1 && carries(&mut hosts, &prepared, rate, &payload)? {
            (carried, rate) = (rate, 2 * rate);
        }
        Ok(carried)
    })?;
    Ok(carried.map(|carried_per_s| Carried {
        carried_per_s,
        asked_per_s: asked(profile),
    }))
}

/// Whether this rate is carried.
fn carries(hosts: &mut Hosts, prepared: &Prepared, rate: u64, payload: &[u8]) -> anyhow::Result<bool> {
    hosts.set(prepared.clone())?;
    let socket = hosts.inside(1, || UdpSocket::bind(("0.0.0.0", 0)))??;
    socket.connect(hosts.to)?;
    let (begin, mut sent) = (Instant::now(), 0_u64);
    while begin.elapsed() < STEP {
        let due = (begin.elapsed().as_secs_f64() * rate as f64) as u64;
        while sent < due && begin.elapsed() < STEP {
            // What has no room is missed below.
            let _ = socket.send(payload);
            sent += 1;
        }
        thread::sleep(BURST);
    }
    let report = hosts.settled()?.context("the emulation has ended")?;
    hosts.clear()?;
    let late = report
        .lateness
        .as_ref()
        .is_none_or(|late| late.p99_us > LATE.as_secs_f64() * 1e6);
    let wanted = rate as f64 * STEP.as_secs_f64() * SENT;
    Ok(!late && report.faults().is_empty() && report.balance.released as f64 >= wanted)
}

/// What the first servers that limit paths let through together.
fn asked(profile: &Profile) -> Option<u64> {
    let frame = profile.frame().bytes();
    let each = |id: ServerId| {
        let (_, server) = profile.server(id)?;
        let transmit = server.bandwidth.map_or(0, |rate| rate.time_of(frame).nanos());
        Some(1e9 / (transmit + server.gap.nanos()) as f64).filter(|rate| rate.is_finite())
    };
    let mut first: Vec<ServerId> = Vec::new();
    for class in &profile.classes {
        if let [Some(path), _] = class.paths() {
            first.push(path.iter().copied().find(|&id| each(id).is_some())?);
        }
    }
    first.sort_unstable();
    first.dedup();
    Some(first.into_iter().filter_map(each).sum::<f64>().ceil() as u64).filter(|&asked| asked > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(topology: &str) -> Option<u64> {
        let profile = perturb_profile::parse(&format!("version: 1\ntopology: {topology}\n")).unwrap();
        asked(&perturb_profile::expand(&profile, &lab::all_addresses(4)).unwrap())
    }

    #[test]
    fn a_bus_asks_for_its_rate_and_a_star_for_that_of_each_host() {
        let link = "link: { bandwidth: 12.112Mbit/s }";
        assert_eq!(of(&format!("{{ kind: bus, {link} }}")), Some(1000));
        assert_eq!(of(&format!("{{ kind: star, {link} }}")), Some(4000));
        assert_eq!(of("{ kind: bus, link: { latency: 1ms } }"), None);
        let carried = Carried {
            carried_per_s: 2000,
            asked_per_s: Some(4000),
        };
        assert!(!carried.is_enough() && carried.to_string().contains("at most 4000 full frames/s"));
    }
}
