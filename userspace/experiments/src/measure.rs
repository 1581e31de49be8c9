//! The LogGP and PlogP parameters of a real path, as a profile.
//!
//! ```text
//! control (TCP: who sends what when) ─┬─► path (one direction: trains)   ─┬─► output (profile, network table)
//!                                     └─► groups (b(h), d(h))             ┘
//! record (a path as it changes) ──► row (what the answers to a probe say) ──► a file, line by line
//! ```
//!
//! Model: both directions are measured alike, by trains whose receiver notes the kernel's stamps; the latency, which
//! needs one clock, by round trips less what the other host says it took. It is half of a round trip: if the two ways
//! differ, their mean.

mod control;
mod groups;
mod output;
mod path;
mod record;
mod row;

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use perturb_present::{LiveLine, Parts};
use perturb_stats::median;

use crate::{
    estimate::train,
    machine,
    probe::{
        endpoint::{Endpoint, Receipt, Sent, Train},
        message::{WIRE_V4, WIRE_V6},
    },
};
use control::Peer;
use path::PAYLOADS;
pub(crate) use path::{Direction, Effort, PARTS, Size};

pub use self::{
    control::Server,
    groups::Between,
    output::Measured,
    record::{Recorded, Recording, record},
};

/// Where `serve` listens, TCP and UDP, unless it is told otherwise.
pub const PORT: u16 = 4798;
/// Round trips for the latency.
const TRIPS: u32 = 40;
/// What a path may take one way.
const LONGEST: Duration = Duration::from_secs(2);
pub(crate) const THOROUGH: Effort = Effort {
    lone: 100,
    bursts: 9,
    burst_us: 60_000.0,
    floods: true,
};
pub(crate) const QUICK: Effort = Effort {
    lone: 30,
    bursts: 5,
    burst_us: 25_000.0,
    floods: true,
};

/// Measures b(h) and d(h) between two groups of hosts that serve.
pub fn groups(left: &[String], right: &[String], line: &LiveLine) -> anyhow::Result<Between> {
    let connect = |names: &[String]| {
        let peers = names.iter().map(|name| connect(name));
        peers.collect::<anyhow::Result<Vec<_>>>()
    };
    Ok(groups::measure(&mut connect(left)?, &mut connect(right)?, line)?)
}

/// Connects to the first of a name's addresses where somebody serves.
fn connect(name: &str) -> anyhow::Result<Peer> {
    let resolve = |name: &str| -> io::Result<Vec<SocketAddr>> {
        match name.to_socket_addrs() {
            Ok(found) => Ok(found.collect()),
            Err(_) => Ok((name, PORT).to_socket_addrs()?.collect()),
        }
    };
    let addresses = resolve(name).with_context(|| format!("finding the address of {name}"))?;
    let mut last = None;
    for address in addresses {
        match Peer::connect(name, address) {
            Ok(peer) => return Ok(peer),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error.into()),
        None => anyhow::bail!("{name} has no address"),
    }
}

/// A peer, and a socket to measure the path to it.
pub(crate) struct Reached {
    peer: Peer,
    here: Endpoint,
    /// What a datagram has on the wire beside its payload, bytes.
    header: usize,
}

impl Reached {
    /// Where the peer's socket is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.peer.address
    }

    /// What is wrong if it answers over TCP only.
    fn silence(&self) -> String {
        format!(
            "{} answers over TCP, but no UDP datagram comes back; does a firewall drop port {}?",
            self.peer.name,
            self.peer.address.port()
        )
    }
}

/// Reaches one that serves.
pub(crate) fn reach(name: &str) -> anyhow::Result<Reached> {
    let peer = connect(name)?;
    let here = Endpoint::start(UdpSocket::bind((peer.own, 0))?)?;
    let header = match peer.own {
        IpAddr::V4(_) => WIRE_V4,
        IpAddr::V6(v6) if Ipv6Addr::to_ipv4_mapped(&v6).is_some() => WIRE_V4,
        IpAddr::V6(_) => WIRE_V6,
    };
    Ok(Reached { peer, here, header })
}

/// Both ways of a path.
pub(crate) struct Ways {
    /// L, one way, microseconds.
    pub(crate) latency_us: f64,
    /// PRTT(1, 0, s_min), microseconds, the hosts' share included.
    pub(crate) round_trip_us: f64,
    /// To the peer.
    pub(crate) out: Direction,
    /// From it.
    pub(crate) inward: Direction,
    /// A bound on what a packet takes.
    longest: Duration,
}

#[cfg(test)]
impl Ways {
    /// Alike in both directions.
    pub(crate) fn of(latency_us: f64, direction: Direction) -> Self {
        Self {
            latency_us,
            round_trip_us: 2.0 * latency_us,
            out: direction.clone(),
            inward: direction,
            longest: Duration::ZERO,
        }
    }
}

impl Reached {
    /// Measures both ways, one after the other; `told` when one of `2 * PARTS + 1` parts begins.
    pub(crate) fn ways(&mut self, effort: &Effort, told: &dyn Fn(usize, &str)) -> anyhow::Result<Ways> {
        told(0, "round trips");
        let silence = self.silence();
        let Self { peer, here, header } = self;
        let own = here.address()?;
        let to = peer.address;
        let mut whole = Vec::new();
        let mut outside = Vec::new();
        for _ in 0..TRIPS {
            if let Some(trip) = here.round_trip(to, (1, 0, PAYLOADS[0]), 2 * LONGEST)? {
                whole.push((trip.answer.read - trip.first.at) as f64 / 1e3);
                // Handed over here, answered there, stamped here: one clock, and what the other host took is known.
                let there = trip.last.returned + trip.answer.turnaround;
                outside.push(trip.answer.arrival.saturating_sub(there) as f64 / 1e3);
            }
        }
        let round_trip_us = median(&whole).context(silence)?;
        let longest = Duration::from_nanos((4e3 * round_trip_us) as u64) + Duration::from_millis(100);

        let mut outward = |train: &Train, patience: Duration| -> anyhow::Result<(Vec<Sent>, Vec<Receipt>)> {
            let number = here.number();
            let sent = here.send(to, number, train)?;
            Ok((sent, peer.take(number, train.datagrams(), patience)?))
        };
        let there = |done: usize, what: &str| told(1 + done, &format!("the way there: {what}"));
        let out = path::measure(&mut outward, *header, effort, longest, &there)
            .context("measuring the way there")?;
        let mut inwardly = |train: &Train, patience: Duration| -> anyhow::Result<(Vec<Sent>, Vec<Receipt>)> {
            let number = here.number();
            let sent = peer.send(own, number, *train)?;
            Ok((sent, here.take(number, train.datagrams(), patience)))
        };
        let back = |done: usize, what: &str| told(1 + PARTS + done, &format!("the way back: {what}"));
        let inward = path::measure(&mut inwardly, *header, effort, longest, &back)
            .context("measuring the way back")?;

        let service = |direction: &Direction| {
            let smallest = &direction.sizes[0];
            if smallest.sender_limited {
                0.0
            } else {
                smallest.gap_us
            }
        };
        let latency_us =
            median(&outside).unwrap_or(0.0) / 2.0 - f64::midpoint(service(&out), service(&inward));
        Ok(Ways {
            latency_us: latency_us.max(0.0),
            round_trip_us,
            out,
            inward,
            longest,
        })
    }
}

/// Measures the path to a peer; with fewer samples if it is to be `quick`.
pub fn path(name: &str, quick: bool, line: &LiveLine) -> anyhow::Result<Measured> {
    // Round trips, each way, and both at once.
    let parts = Parts::new(line, 2 * PARTS + 2);
    let effort = if quick { &QUICK } else { &THOROUGH };
    let mut reached = reach(name)?;
    let ways = reached.ways(effort, &|done, what| parts.begin(done, what))?;
    parts.begin(1 + 2 * PARTS, "both ways at once");
    let Reached { mut peer, here, .. } = reached;
    let both_ways = both_ways(&here, &mut peer, [&ways.out, &ways.inward], effort, ways.longest)?;
    Ok(Measured {
        peer: name.into(),
        latency_us: ways.latency_us,
        round_trip_us: ways.round_trip_us,
        both_ways,
        out: ways.out,
        inward: ways.inward,
        version: env!("CARGO_PKG_VERSION"),
        kernel: machine::kernel(),
    })
}

/// How much longer full frames take when both directions are at work (PlogPT, section III).
fn both_ways(
    here: &Endpoint,
    peer: &mut Peer,
    alone: [&Direction; 2],
    effort: &Effort,
    longest: Duration,
) -> anyhow::Result<[f64; 2]> {
    let [out_us, in_us] = alone.map(|direction| direction.sizes.last().map_or(1.0, |size| size.gap_us));
    let spacing = out_us.max(in_us).max(1.0);
    let burst = (effort.burst_us / spacing).clamp(6.0, 64.0);
    let train = Train {
        messages: burst as u32 * effort.bursts,
        segments: 1,
        payload: PAYLOADS[PAYLOADS.len() - 1],
        burst: burst as u32,
        interval_ns: (2e6 + burst * 2.0 * 1e3 * spacing.max(10.0)) as u64,
    };
    let (to, own) = (peer.address, here.address()?);
    let numbers = [here.number(), here.number()];
    let (sent, theirs) = thread::scope(|scope| {
        let asked = scope.spawn(|| peer.send(own, numbers[1], train));
        let sent = here.send(to, numbers[0], &train);
        let theirs = asked
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, theirs)
    });
    let received = here.take(numbers[1], train.datagrams(), longest);
    let told = peer.take(numbers[0], train.datagrams(), longest)?;
    let spacing_of = |sent: &[Sent], receipts: &[Receipt]| {
        let spacings = train::spacings(&train, sent, receipts);
        median(
            &spacings
                .iter()
                .map(|spacing| spacing.arrivals_us)
                .collect::<Vec<_>>(),
        )
    };
    let both = [spacing_of(&sent?, &told), spacing_of(&theirs?, &received)];
    let ratio = |seen: Option<f64>, alone: f64| {
        seen.context("nothing arrived while both directions were at work")
            .map(|seen| seen / alone)
    };
    Ok([ratio(both[0], out_us)?, ratio(both[1], in_us)?])
}
