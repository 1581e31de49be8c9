//! What is measured at one setting: raw samples, and what they say.

use std::time::Duration;

use anyhow::Context as _;
use perturb_emulator::running::ProcessorTime;
use perturb_stats::{Estimate, Sample, median};
use serde::Serialize;

use crate::{
    estimate::{
        Parameters,
        passage::{self, Passage},
        prtt::{self, Trips},
        train::{self, Spacing},
    },
    hosts::Hosts,
    machine,
    probe::{endpoint::Train, message::WIRE_V4},
};

/// UDP payload of the small messages, bytes.
const SMALL: usize = 64;
/// Payloads of the messages that are one packet each.
const SINGLES: [usize; 4] = [SMALL, 512, 1024, LARGEST];
/// Payload that fills an Ethernet frame.
const LARGEST: usize = 1472;
/// Packets of the long messages.
const PACKETS: [u32; 4] = [8, 16, 28, 40];
/// A packet of the largest size is served faster than this: the sender may be as slow, so G is seen in long messages.
const FAST_US: f64 = 40.0;
/// Or faster than this, and the smallest twice as fast: long messages see G more exactly.
const MEDIUM_US: f64 = 250.0;
/// Blocks of lone packets in a round. Of each the mean processor time is known, and six have a 95 % interval.
const BLOCKS: u32 = 6;
/// From one lone packet to the next: longer than any service and overhead in the ranges, and not in step with ticks.
const LONE_INTERVAL: u64 = 2_570_000;
/// n of PRTT(n, d, s).
const TRIP_MESSAGES: u32 = 16;
/// How long a packet may be late beyond the latency before it counts as lost.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Confidence of all intervals.
const CONFIDENCE: f64 = 0.95;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Lone packets.
    pub lone: u32,
    /// Bursts of each size.
    pub bursts: u32,
    /// How long a burst lasts at most, microseconds, as far as it has enough messages then.
    pub burst_us: f64,
    /// Time for the round trips, microseconds.
    pub trips_us: f64,
    /// Bytes sent over TCP at 1 ns per byte; fewer where they take longer.
    pub stream_us: f64,
    /// Rounds at most, until the intervals are tight enough.
    pub rounds: u32,
}

/// Messages in a burst.
const BURST: std::ops::RangeInclusive<f64> = 6.0..=64.0;

/// Raw samples of one setting.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Of lone small packets.
    pub passages: Vec<Passage>,
    /// (wire bytes, spacings) of messages of one packet.
    pub singles: Vec<(f64, Vec<Spacing>)>,
    /// The same of long messages, where a packet is served too fast to tell.
    pub messages: Vec<(f64, Vec<Spacing>)>,
    /// Parametrized round trips; the computation between messages, microseconds.
    pub trips: (f64, Vec<Trips>),
    /// TCP's round trips, microseconds, and time per byte on the wire, ns.
    pub stream: (Vec<f64>, Vec<f64>),
    /// Processor time of the program that burns o_r, nanoseconds per packet, the mean of each block.
    pub ingress_ns: Vec<f64>,
    /// Packets sent and received.
    pub packets: (usize, usize),
    /// How often everything was measured.
    pub rounds: u32,
}

/// What the samples say.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The four parameters.
    pub observed: Parameters,
    /// o: half of o_s + o_r; or, where the kernel keeps no account of the latter, and there is one processor that does all
    /// of both, half of what a packet of a burst takes of it.
    pub overhead_us: Estimate,
    /// Whether it is the latter.
    pub overhead_in_calls: bool,
    /// o_s, with its interval.
    pub send_us: Estimate,
    /// o_r, with its interval: processor time, or where the kernel keeps no account of it, by the wall clock.
    pub receive_us: Estimate,
    /// From arrival to the program's having the packet, by the wall clock: o_r and the wake-up.
    pub until_read_us: Estimate,
    /// From sender to receiver, service included.
    pub transit_us: Estimate,
    /// The spacing of the smallest messages.
    pub spacing_us: Estimate,
    /// Half the interval of G, from those of the sizes at both ends of its line.
    pub gap_per_byte_half_ns: f64,
    /// PRTT(1, 0, s_min).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<f64>,
    /// By round trips alone; o_r by the wall clock. L contains a lone message's service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prtt: Option<Parameters>,
    /// A round trip of TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_round_trip_us: Option<f64>,
    /// G as a TCP transfer sees it, per byte on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_gap_per_byte_ns: Option<f64>,
    /// Packets that did not arrive.
    pub lost: usize,
    /// Rounds of measuring.
    pub rounds: u32,
}

/// Bytes on the wire of a UDP datagram over IPv4.
fn wire(payload: usize) -> f64 {
    (payload + WIRE_V4) as f64
}

impl Samples {
    /// Measures one round more. `added` says how long things take, which decides how many fit the time; it does not
    /// enter any result.
    pub fn measure(
        &mut self,
        hosts: &mut Hosts,
        added: &Parameters,
        effort: &Effort,
        clock_ns: u64,
    ) -> anyhow::Result<()> {
        self.lone(hosts, added, effort, clock_ns)?;
        for payload in SINGLES {
            let seen = self.bursts(hosts, added, effort, (1, payload))?;
            pool(&mut self.singles, wire(payload), seen);
        }
        if self.needs_messages() {
            for packets in PACKETS {
                let seen = self.bursts(hosts, added, effort, (packets, LARGEST))?;
                pool(&mut self.messages, f64::from(packets) * wire(LARGEST), seen);
            }
        }
        self.round_trips(hosts, added, effort)?;
        self.stream(hosts, added, effort)?;
        self.rounds += 1;
        Ok(())
    }

    fn needs_messages(&self) -> bool {
        let ends = [self.singles.first(), self.singles.last()].map(|end| arrivals(&end?.1));
        match ends {
            [Some(small), Some(large)] => large < FAST_US || (large < MEDIUM_US && small < large / 2.0),
            _ => false,
        }
    }

    /// Lone packets: each finds everything idle.
    fn lone(
        &mut self,
        hosts: &mut Hosts,
        added: &Parameters,
        effort: &Effort,
        clock_ns: u64,
    ) -> anyhow::Result<()> {
        hosts.there.set_attentive(polls(hosts));
        let measured = (0..BLOCKS).try_for_each(|_| self.block(hosts, added, effort.lone / BLOCKS, clock_ns));
        hosts.there.set_attentive(false);
        measured
    }

    /// Some lone packets, and the processor time that they took on the average.
    fn block(
        &mut self,
        hosts: &mut Hosts,
        added: &Parameters,
        messages: u32,
        clock_ns: u64,
    ) -> anyhow::Result<()> {
        let train = Train {
            messages,
            segments: 1,
            payload: SMALL,
            burst: 1,
            interval_ns: LONE_INTERVAL,
        };
        let before = hosts.ingress_time();
        let (sent, receipts) = exchange(hosts, &train, added)?;
        let after = hosts.ingress_time();
        self.count(&train, receipts.len());
        self.passages
            .extend(passage::divide_all(&sent, &receipts, clock_ns));
        if let (Some(before), Some(after)) = (before, after) {
            self.ingress_ns.extend(per_run(before, after));
        }
        Ok(())
    }

    fn bursts(
        &mut self,
        hosts: &Hosts,
        added: &Parameters,
        effort: &Effort,
        (segments, payload): (u32, usize),
    ) -> anyhow::Result<Vec<Spacing>> {
        let packets = f64::from(segments);
        let spacing = added.spacing_us(packets * wire(payload), packets).max(1.0);
        // One processor does all there is to do for a packet, one after the other.
        let (packet_us, most) = match (single_processor(), segments) {
            (true, 1) => (80.0, *BURST.end()),
            (true, _) => (80.0, *BURST.end() / 3.0),
            (false, _) => (25.0, *BURST.end()),
        };
        let burst = (effort.burst_us / spacing).clamp(*BURST.start(), most);
        // The next burst begins when the last has long been served, and read, on a slow machine as well.
        let interval = 2_000.0 + burst * (2.0 * spacing + packet_us * packets);
        let train = Train {
            messages: burst as u32 * effort.bursts,
            segments,
            payload,
            burst: burst as u32,
            interval_ns: (interval * 1e3) as u64,
        };
        // The receiver works between bursts.
        hosts
            .there
            .set_rest(Duration::from_micros((0.6 * interval) as u64));
        let exchanged = exchange(hosts, &train, added);
        hosts.there.set_rest(Duration::ZERO);
        let (sent, receipts) = exchanged?;
        self.count(&train, receipts.len());
        Ok(train::spacings(&train, &sent, &receipts))
    }

    fn round_trips(&mut self, hosts: &Hosts, added: &Parameters, effort: &Effort) -> anyhow::Result<()> {
        let patience = PATIENCE + 4 * latency(added);
        let delay = 200.0 + 1.5 * added.spacing_us(wire(SMALL), 1.0);
        self.trips.0 = delay;
        for payload in [SMALL, LARGEST] {
            let lone = 200.0 + 2.0 * (added.latency_us + 2.0 * added.spacing_us(wire(payload), 1.0));
            let train = lone + f64::from(TRIP_MESSAGES) * added.spacing_us(wire(payload), 1.0);
            let delayed = lone + f64::from(TRIP_MESSAGES) * (delay + added.spacing_us(wire(payload), 1.0));
            let count = (effort.trips_us / (lone + train + delayed)).clamp(1.0, 40.0) as usize;
            let mut trips = Trips {
                size: wire(payload),
                ..Trips::default()
            };
            for _ in 0..count {
                let wanted = [(1, 0.0), (TRIP_MESSAGES, 0.0), (TRIP_MESSAGES, delay)];
                for ((messages, pause), times) in
                    wanted
                        .into_iter()
                        .zip([&mut trips.lone, &mut trips.train, &mut trips.delayed])
                {
                    let asked = (messages, (pause * 1e3) as u64, payload);
                    if let Some(trip) = hosts.here.round_trip(hosts.to, asked, patience)? {
                        times.push((trip.answer.read - trip.first.at) as f64 / 1e3);
                    }
                }
            }
            match self.trips.1.iter_mut().find(|known| known.size == trips.size) {
                Some(known) => {
                    known.lone.append(&mut trips.lone);
                    known.train.append(&mut trips.train);
                    known.delayed.append(&mut trips.delayed);
                }
                None => self.trips.1.push(trips),
            }
        }
        Ok(())
    }

    /// TCP, where its segments do not each cost more than they take on the wire.
    fn stream(&mut self, hosts: &Hosts, added: &Parameters, effort: &Effort) -> anyhow::Result<()> {
        /// Payload of a segment (timestamps on), and its bytes on the wire.
        const SEGMENT: (f64, f64) = (1448.0, 1514.0);
        let byte_ns = added.gap_per_byte_ns.max(0.2);
        let transfers = added.overhead_us == 0.0 && added.gap_us == 0.0 && added.latency_us < 1_000.0;
        let bytes = if transfers {
            (effort.stream_us * 1e3 / byte_ns).clamp(60e3, 32e6) as usize
        } else {
            0
        };
        let trip = 200.0 + 2.0 * (added.latency_us + 2.0 * added.spacing_us(130.0, 1.0));
        let trips = (effort.trips_us / 4.0 / trip).clamp(2.0, 50.0) as u32;
        let seen = hosts.transfer(trips, bytes)?;
        self.stream.0.extend(seen.round_trips_us);
        self.stream
            .1
            .extend(seen.byte_ns.map(|ns| ns * SEGMENT.0 / SEGMENT.1));
        Ok(())
    }

    fn count(&mut self, train: &Train, received: usize) {
        self.packets.0 += train.datagrams();
        self.packets.1 += received;
    }

    /// What they say.
    pub fn summary(&self) -> anyhow::Result<Summary> {
        let of = |value: fn(&Passage) -> f64| interval(self.passages.iter().map(value).collect());
        let send_us = of(|passage| passage.send_us)?;
        let until_read_us = of(|passage| passage.receive_us)?;
        let accounted = self.ingress_ns.len() >= 2;
        let receive_us = if accounted {
            interval(self.ingress_ns.iter().map(|ns| ns / 1e3).collect())?
        } else {
            until_read_us
        };
        let smallest = self.singles.first().map(|(_, spacings)| spacings.as_slice());
        let smallest = smallest.unwrap_or_default();
        let overhead_in_calls = !accounted && single_processor();
        let both_us = if overhead_in_calls {
            interval(smallest.iter().map(|spacing| spacing.calls_us).collect())?
        } else {
            sum(send_us, receive_us)
        };
        let overhead_us = half(both_us);
        let transit_us = of(|passage| passage.transit_us)?;
        let (intercept_us, single_ns) = line(&self.singles)?;
        let (gap_per_byte_ns, seen_at) = if self.messages.is_empty() {
            (single_ns, &self.singles)
        } else {
            (line(&self.messages)?.1, &self.messages)
        };
        let service_us = median(&smallest.iter().map(Spacing::service_us).collect::<Vec<_>>()).unwrap_or(0.0);
        let small_us = interval(smallest.iter().map(|spacing| spacing.arrivals_us).collect())?;
        let observed = Parameters {
            overhead_us: overhead_us.point,
            // Where the sender is the slowest stage its interval bounds g, and a line through the sizes is noise.
            gap_us: if service_us > 0.0 {
                intercept_us
            } else {
                small_us.point
            },
            // A server delivers at the end of its service.
            latency_us: (transit_us.point - service_us).max(0.0),
            gap_per_byte_ns,
        };
        Ok(Summary {
            observed,
            overhead_us,
            overhead_in_calls,
            send_us,
            receive_us,
            until_read_us,
            transit_us,
            spacing_us: small_us,
            gap_per_byte_half_ns: tilt(seen_at)?,
            round_trip_us: self.trips.1.first().and_then(|trips| median(&trips.lone)),
            prtt: self.by_round_trips(until_read_us.point),
            tcp_round_trip_us: median(&self.stream.0),
            tcp_gap_per_byte_ns: median(&self.stream.1),
            lost: self.packets.0.saturating_sub(self.packets.1),
            rounds: self.rounds,
        })
    }

    fn by_round_trips(&self, receive_us: f64) -> Option<Parameters> {
        let (delay, trips) = &self.trips;
        let smallest = trips.first()?;
        let send_us = smallest.overhead_us(TRIP_MESSAGES, *delay)?;
        let (gap_us, gap_per_byte_ns) = prtt::gaps(TRIP_MESSAGES, trips)?;
        Some(Parameters {
            overhead_us: f64::midpoint(send_us, receive_us),
            gap_us,
            latency_us: prtt::latency_us(smallest, send_us, receive_us)?,
            gap_per_byte_ns,
        })
    }
}

/// Whether a receiver is to poll: sender, pacer and receiver want a processor each, or, where the kernel is the pacer and
/// there is one processor, a receiver that gives way. Between these it would delay the others.
fn polls(hosts: &Hosts) -> bool {
    match machine::processors() {
        1 => !hosts.pacer_wants_processor(),
        processors => processors > 2,
    }
}

/// Whether hosts, pacer and measurement share one.
pub(super) fn single_processor() -> bool {
    machine::processors() == 1
}

/// Sends a train from h1 and waits for what comes of it at h2.
fn exchange(
    hosts: &Hosts,
    train: &Train,
    added: &Parameters,
) -> anyhow::Result<(
    Vec<crate::probe::endpoint::Sent>,
    Vec<crate::probe::endpoint::Receipt>,
)> {
    let number = hosts.here.number();
    let sent = hosts
        .here
        .send(hosts.to, number, train)
        .context("sending a train")?;
    let receipts = hosts
        .there
        .take(number, train.datagrams(), PATIENCE + latency(added));
    Ok((sent, receipts))
}

fn latency(added: &Parameters) -> Duration {
    Duration::from_nanos((added.latency_us * 1e3) as u64)
}

fn per_run(before: ProcessorTime, after: ProcessorTime) -> Option<f64> {
    let runs = after.runs.saturating_sub(before.runs);
    let total = after.total.saturating_sub(before.total);
    (runs > 0).then(|| total.as_nanos() as f64 / runs as f64)
}

fn pool(known: &mut Vec<(f64, Vec<Spacing>)>, size: f64, seen: Vec<Spacing>) {
    match known.iter_mut().find(|(other, _)| *other == size) {
        Some((_, spacings)) => spacings.extend(seen),
        None => known.push((size, seen)),
    }
}

fn arrivals(spacings: &[Spacing]) -> Option<f64> {
    median(
        &spacings
            .iter()
            .map(|spacing| spacing.arrivals_us)
            .collect::<Vec<_>>(),
    )
}

/// g and G of the medians over the sizes.
fn line(sizes: &[(f64, Vec<Spacing>)]) -> anyhow::Result<(f64, f64)> {
    let points: Vec<(f64, f64)> = sizes
        .iter()
        .filter_map(|(size, spacings)| Some((*size, arrivals(spacings)?)))
        .collect();
    train::fit(&points).context("fitting g and G: too few bursts arrived")
}

/// How far the intervals at both ends of a line let it tilt, ns per byte.
fn tilt(sizes: &[(f64, Vec<Spacing>)]) -> anyhow::Result<f64> {
    let (Some((small, first)), Some((large, last))) = (sizes.first(), sizes.last()) else {
        anyhow::bail!("no bursts were sent")
    };
    let half = |spacings: &[Spacing]| -> anyhow::Result<f64> {
        Ok(interval(spacings.iter().map(|spacing| spacing.arrivals_us).collect())?.half_width())
    };
    Ok(1e3 * half(first)?.hypot(half(last)?) / (large - small))
}

fn interval(values: Vec<f64>) -> anyhow::Result<Estimate> {
    let sample = Sample::new(values).context("too few packets arrived")?;
    Ok(sample.median_interval(CONFIDENCE)?)
}

/// The sum of two quantities, whose intervals add up at worst.
fn sum(one: Estimate, other: Estimate) -> Estimate {
    Estimate {
        point: one.point + other.point,
        lower: one.lower + other.lower,
        upper: one.upper + other.upper,
        confidence: one.confidence.min(other.confidence),
    }
}

fn half(of: Estimate) -> Estimate {
    Estimate {
        point: of.point / 2.0,
        lower: of.lower / 2.0,
        upper: of.upper / 2.0,
        ..of
    }
}
