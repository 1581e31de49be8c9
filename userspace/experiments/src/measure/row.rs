//! What the answers to a probe say of the path at its time.
//!
//! Model: a probe is a small request, and right behind it perhaps a burst of full frames. All are answered by small
//! datagrams that say when their request came (by the peer's clock) and how many of the probe's had come before it.
//!
//! ```text
//! bandwidth  wire bytes of a full frame / spacing of neighbors in the burst, where they came   (`estimate::train`)
//! latency    (time outside of the hosts - service of what is in front and of itself - of the answer) / 2
//! loss       of the requests up to the last that was answered, those that did not come; of the rest one half
//! ```
//!
//! The latency is half of a round trip, the bandwidth and the loss are those of the way there. What waited behind an
//! earlier burst says nothing of the latency. What was not seen is as it was in the row before.
//! What is lacking: other traffic on the path, of which the bandwidth is what it leaves; a way back that is slower; a
//! gap per packet, which the bandwidth contains.

use std::fmt;

use perturb_present::cell;
use perturb_quantity::{Duration, Probability, Rate};

use crate::{
    estimate::train,
    probe::{
        endpoint::{Receipt, Sent, Train},
        message::HEADER,
    },
};

/// UDP payload of a burst's datagrams: full frames.
pub(super) const PAYLOAD: usize = 1472;
/// Share of the path's time that bursts take, at most.
const SHARE: f64 = 0.1;
/// Frames in a burst, at least and at most.
const BURST: (f64, f64) = (3.0, 16.0);
/// Significant digits of a bandwidth, as a power of ten.
const DIGITS: i32 = 4;

/// The first line of the file.
pub(super) const HEADINGS: &str = "time,latency,bandwidth,loss";

/// The path from a time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// Since the recording began.
    pub time: Duration,
    /// One way.
    pub latency: Option<Duration>,
    /// On the wire.
    pub bandwidth: Option<Rate>,
    /// Share of the probe's datagrams that did not come.
    pub loss: Probability,
}

/// A line of the file; an empty cell has never been seen.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [latency, bandwidth] = [cell(self.latency), cell(self.bandwidth)];
        write!(f, "{},{latency},{bandwidth},{}", self.time, self.loss)
    }
}

/// What was sent for a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Probe {
    /// Since the recording began.
    pub time: Duration,
    /// Frames behind the small request.
    pub burst: u32,
    /// When the small request was sent and when the others were; shorter if the kernel refused.
    pub sent: Vec<Sent>,
}

impl Probe {
    /// How many answers are asked for.
    pub(super) fn requests(&self) -> usize {
        1 + self.burst as usize
    }
}

/// What is known of a path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Wire bytes of a small request and of its answer; of a full frame.
    small: f64,
    frame: f64,
    /// One way, microseconds.
    latency_us: Option<f64>,
    /// Microseconds per byte.
    byte_us: Option<f64>,
    /// Until when earlier bursts keep the path busy, by this host's clock, ns.
    busy: f64,
}

impl Path {
    /// Nothing, but what a datagram has on the wire beside its payload.
    pub(super) const fn new(header: usize) -> Self {
        Self {
            small: (HEADER + header) as f64,
            frame: (PAYLOAD + header) as f64,
            latency_us: None,
            byte_us: None,
            busy: 0.0,
        }
    }

    /// Whether anything has come back.
    pub(super) const fn answers(&self) -> bool {
        self.latency_us.is_some()
    }

    /// How long a frame takes, microseconds; 0 if that is not known.
    pub(super) fn frame_us(&self) -> f64 {
        self.frame * self.byte_us.unwrap_or(0.0)
    }

    /// How long a round trip with a burst takes, microseconds.
    pub(super) fn round_trip_us(&self, burst: u32) -> f64 {
        2.0 * self.latency_us.unwrap_or(0.0) + f64::from(burst) * self.frame_us()
    }

    /// How many frames a burst has, if there is one in each interval.
    pub(super) fn burst(&self, every_us: f64) -> u32 {
        let most = (SHARE * every_us / self.frame_us()).min(BURST.1);
        self.byte_us.map_or(BURST.0, |_| most.max(BURST.0)) as u32
    }

    /// How long after a burst the next one may follow, microseconds.
    pub(super) fn pause_us(&self, burst: u32) -> f64 {
        f64::from(burst) * self.frame_us() / SHARE
    }

    /// How long the probe keeps the path busy, microseconds; `None` if its rate is not known.
    pub(super) fn load_us(&self, burst: u32) -> Option<f64> {
        Some((self.small + f64::from(burst) * self.frame) * self.byte_us?)
    }

    /// The row of a probe, from all answers that came; probes are judged in the order in which they were sent.
    pub(super) fn judge(&mut self, probe: &Probe, answers: &[Receipt]) -> Row {
        if let Some(spacing_us) = self.spacing_us(probe, answers) {
            self.byte_us = Some(spacing_us / self.frame);
        }
        let latency_us = answers
            .iter()
            .filter_map(|answer| Some((answer.number, self.latency_us(probe, answer)?)))
            .min_by_key(|(number, _)| *number);
        if let Some((_, latency_us)) = latency_us {
            self.latency_us = Some(latency_us);
        }
        if let Some(last) = probe.sent.last() {
            let load_us = self.load_us(probe.burst).unwrap_or(0.0);
            self.busy = self.busy.max(last.at as f64) + load_us * 1e3;
        }
        Row {
            time: probe.time,
            latency: self
                .latency_us
                .map(|us| Duration::from_nanos(us.round() as u64 * 1_000)),
            bandwidth: self
                .byte_us
                .map(|us| Rate::from_bits_per_second(rounded(8e6 / us))),
            loss: Probability::from_billionths((1e5 * lost(probe, answers)).round() as u64 * 10_000),
        }
    }

    /// Between the burst's frames where they came, microseconds.
    fn spacing_us(&self, probe: &Probe, answers: &[Receipt]) -> Option<f64> {
        let plan = Train {
            messages: probe.burst,
            segments: 1,
            payload: PAYLOAD,
            burst: probe.burst.max(1),
            interval_ns: 0,
        };
        let receipts: Vec<Receipt> = answers
            .iter()
            .filter_map(|answer| {
                Some(Receipt {
                    number: answer.number.checked_sub(1)?,
                    arrival: answer.there?.arrival,
                    ..*answer
                })
            })
            .collect();
        let found = train::spacings(&plan, probe.sent.get(1..)?, &receipts);
        found
            .first()
            .map(|spacing| spacing.arrivals_us)
            .filter(|us| *us > 0.0)
    }

    /// One way, microseconds; `None` for a request that waited behind an earlier burst.
    fn latency_us(&self, probe: &Probe, answer: &Receipt) -> Option<f64> {
        let byte_us = self.byte_us.unwrap_or(0.0);
        let service_us = (self.small + f64::from(answer.number) * self.frame) * byte_us;
        if (probe.sent.first()?.at as f64) < self.busy {
            return None;
        }
        let sent = match answer.number {
            0 => probe.sent.first()?.returned,
            _ => probe.sent.get(1)?.at,
        };
        let outside_us = answer.arrival.saturating_sub(sent + answer.turnaround) as f64 / 1e3;
        Some(((outside_us - service_us - self.small * byte_us) / 2.0).max(0.0))
    }
}

/// The share of a probe's requests that did not come; half of those of which nothing is known.
fn lost(probe: &Probe, answers: &[Receipt]) -> f64 {
    let all = probe.requests() as f64;
    let Some(last) = answers.iter().map(|answer| answer.number).max() else {
        return 1.0;
    };
    let seen = f64::from(last + 1).min(all);
    let came = answers
        .iter()
        .filter_map(|answer| answer.there)
        .map(|there| there.before);
    let came = came.max().map_or(0.0, |before| f64::from(before) + 1.0).min(seen);
    (seen - came + (all - seen) / 2.0) / all
}

/// Bits per second as far as they mean something.
fn rounded(bits: f64) -> u64 {
    let step = 10_f64.powi((bits.log10().floor() as i32 + 1 - DIGITS).max(0));
    ((bits / step).round() * step) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::endpoint::There;

    /// A path with a queue, both clocks of its own: L (us), us per byte, and which requests and answers it loses.
    struct Simulated {
        latency_us: f64,
        byte_us: f64,
        free_us: f64,
        lose: fn(u32) -> bool,
        lose_answer: fn(u32) -> bool,
    }

    const SMALL: f64 = 74.0;
    const FRAME: f64 = 1514.0;
    const APART_NS: f64 = 7e12;

    fn simulated(latency_us: f64, byte_us: f64) -> Simulated {
        Simulated {
            latency_us,
            byte_us,
            free_us: 0.0,
            lose: |_| false,
            lose_answer: |_| false,
        }
    }

    impl Simulated {
        fn cross(&mut self, at_us: f64, burst: u32) -> (Probe, Vec<Receipt>) {
            let mut probe = Probe {
                time: Duration::from_nanos((at_us * 1e3) as u64),
                burst,
                sent: Vec::new(),
            };
            let (mut answers, mut before) = (Vec::new(), 0);
            for number in 0..=burst {
                let at = (at_us * 1e3) as u64;
                probe.sent.push(Sent { at, returned: at });
                let bytes = if number == 0 { SMALL } else { FRAME };
                self.free_us = self.free_us.max(at_us) + bytes * self.byte_us;
                let arrival = (self.free_us + self.latency_us) * 1e3;
                if (self.lose)(number) {
                    continue;
                }
                if !(self.lose_answer)(number) {
                    let turnaround = 40_000;
                    let back = (self.latency_us + SMALL * self.byte_us) * 1e3;
                    answers.push(Receipt {
                        number,
                        arrival: (arrival + back) as u64 + turnaround,
                        read: 0,
                        turnaround,
                        there: Some(There {
                            arrival: (arrival + APART_NS) as u64,
                            before,
                        }),
                    });
                }
                before += 1;
            }
            (probe, answers)
        }
    }

    fn judged(path: &mut Path, network: &mut Simulated, at_us: f64, burst: u32) -> String {
        let (probe, answers) = network.cross(at_us, burst);
        path.judge(&probe, &answers).to_string()
    }

    #[test]
    fn a_row_is_the_path() {
        let mut path = Path::new(42);
        let mut network = simulated(20_000.0, 0.8);
        assert_eq!(judged(&mut path, &mut network, 0.0, 3), "0s,20ms,10Mbit/s,0%");
        assert_eq!((path.burst(1e5), path.burst(1e6), path.burst(1e3)), (8, 16, 3));
        assert!(path.pause_us(8) <= 1e5 && path.pause_us(3) > 1e3);
        network.latency_us = 50_123.4;
        assert_eq!(
            judged(&mut path, &mut network, 1e5, 8),
            "100ms,50.123ms,10Mbit/s,0%"
        );
        network.byte_us = 4.0;
        assert_eq!(
            judged(&mut path, &mut network, 2e5, 8),
            "200ms,50.123ms,2Mbit/s,0%"
        );
        assert_eq!(
            judged(&mut path, &mut network, 1.3e6, 0),
            "1.3s,50.123ms,2Mbit/s,0%"
        );
    }

    #[test]
    fn lost_requests_are_counted_and_lost_answers_are_not() {
        let mut path = Path::new(42);
        let mut network = simulated(20_000.0, 0.8);
        network.lose = |number| number == 0 || number == 4;
        network.lose_answer = |number| number == 2;
        assert_eq!(
            judged(&mut path, &mut network, 0.0, 7),
            "0s,20ms,10Mbit/s,25%",
            "the burst's first tells the latency"
        );
        network.lose = |number| number >= 6;
        network.lose_answer = |_| false;
        assert_eq!(
            judged(&mut path, &mut network, 1e5, 7),
            "100ms,20ms,10Mbit/s,12.5%",
            "half of two"
        );
        network.lose = |_| true;
        assert_eq!(
            judged(&mut path, &mut network, 2e5, 7),
            "200ms,20ms,10Mbit/s,100%"
        );
    }

    #[test]
    fn its_own_burst_is_no_latency() {
        let mut path = Path::new(42);
        let mut network = simulated(20_000.0, 0.8);
        judged(&mut path, &mut network, 0.0, 8);
        // A burst that takes 121 ms, so that the next request waits.
        network.byte_us = 10.0;
        judged(&mut path, &mut network, 1e5, 8);
        network.latency_us = 30_000.0;
        assert_eq!(judged(&mut path, &mut network, 2e5, 0), "200ms,20ms,800kbit/s,0%");
        assert_eq!(judged(&mut path, &mut network, 3e5, 0), "300ms,30ms,800kbit/s,0%");
    }

    #[test]
    fn what_was_never_seen_is_empty() {
        let mut path = Path::new(42);
        let probe = Probe {
            time: Duration::ZERO,
            burst: 3,
            sent: Vec::new(),
        };
        assert_eq!(path.judge(&probe, &[]).to_string(), "0s,,,100%");
        assert!(!path.answers());
    }
}
