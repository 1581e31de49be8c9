//! The path between two groups of hosts: b(h) and d(h).
//!
//! Model (PlogPT: Nomura et al. 2007, section III): the hosts below two subtrees of switches share the edges between
//! them. One pair after the other is set to work: as long as each pair brings its own rate, the sum grows with their
//! number; the level at which it stays is the bandwidth b(h) of the shared edge, and the longest wait then is the depth
//! d(h) of its buffer in time. With as many pairs as there are hosts below a subtree, the edge is the bottleneck.
//! What is lacking: which edge it is, if several are alike; that must be known from the cabling.

use std::{fmt, thread, time::Duration};

use perturb_present::{LiveLine, Parts, measured};
use perturb_stats::median;
use serde::Serialize;

use super::{
    control::{Peer, PeerError},
    path::delays,
};
use crate::probe::endpoint::{Receipt, Sent, Train};

/// UDP payload of a full frame, and its bytes on the wire.
const PAYLOAD: usize = 1472;
const WIRE: f64 = 1514.0;
/// Full frames each host sends, at most and at least.
const MESSAGES: (f64, f64) = (4_000.0, 64.0);
/// How long each step floods, about, ns, with how many times what a pair has alone: a flood without a pace would be over
/// as soon as it has filled the first buffer.
const TIME_NS: f64 = 5e8;
const OVERLOAD: f64 = 1.5;
/// A burst is sent at most this often, ns.
const INTERVAL_NS: f64 = 5e5;
/// A pair more that brings less than this share of what one pair has alone brings nothing.
const SATURATED: f64 = 0.2;

/// So many pairs at work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    pub pairs: usize,
    /// Bytes on the wire that arrived per second, all pairs together.
    pub bytes_s: f64,
    /// The longest that a packet waited, microseconds.
    pub longest_wait_us: f64,
    /// Share of packets that did not arrive.
    pub loss: f64,
}

/// What is between two groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Between {
    /// One pair, two pairs, …
    pub steps: Vec<Step>,
    /// b(h), bytes per second: the level at which the sum stays; absent if it still grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_s: Option<f64>,
    /// d(h), microseconds; absent if nothing was lost at that level, so that the buffer is deeper than was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_us: Option<f64>,
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(
                f,
                "{} pairs: {} Mbit/s, longest wait {} us, {} % lost",
                step.pairs,
                measured(step.bytes_s * 8e-6),
                measured(step.longest_wait_us),
                measured(100.0 * step.loss)
            )?;
        }
        match (self.bandwidth_bytes_s, self.buffer_us) {
            (Some(rate), Some(depth)) => {
                writeln!(f, "b {} Mbit/s, d {} us", measured(rate * 8e-6), measured(depth))
            }
            (Some(rate), None) => writeln!(f, "b {} Mbit/s, d more than was filled", measured(rate * 8e-6)),
            (None, _) => {
                writeln!(
                    f,
                    "the sum still grows: more pairs are needed to fill what is between the groups"
                )
            }
        }
    }
}

/// Sets one pair after the other to work.
pub(super) fn measure(
    senders: &mut [Peer],
    receivers: &mut [Peer],
    line: &LiveLine,
) -> Result<Between, PeerError> {
    let pairs = senders.len().min(receivers.len());
    let parts = Parts::new(line, 2 * pairs);
    let mut quiet = Vec::with_capacity(pairs);
    for (place, receiver) in receivers.iter_mut().enumerate().take(pairs) {
        parts.begin(place, format_args!("pair {} alone", place + 1));
        quiet.push(Quiet {
            own: alone(&mut senders[place], receiver, 0)?,
            first: alone(&mut senders[0], receiver, 1)?,
        });
    }
    let mut rate = None;
    let mut steps: Vec<Step> = Vec::new();
    for count in 1..=pairs {
        parts.begin(pairs + count - 1, format_args!("{count} pairs at once"));
        let step = flood(&mut senders[..count], &mut receivers[..count], &quiet, rate)?;
        rate.get_or_insert(step.bytes_s);
        steps.push(step);
    }
    Ok(conclude(steps))
}

/// arrival - sending at a receiver while nothing else is sent, microseconds. Clocks may differ, so each has their difference in it.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    /// From its own sender.
    own: f64,
    /// From the first pair's: what arrives at several receivers is put on one clock by it.
    first: f64,
}

/// The median of a few lone packets.
fn alone(sender: &mut Peer, receiver: &mut Peer, number: u32) -> Result<f64, PeerError> {
    let train = Train {
        messages: 20,
        segments: 1,
        payload: PAYLOAD,
        burst: 1,
        interval_ns: 10_000_000,
    };
    let (sent, receipts) = send(sender, receiver, number, train)?;
    let alone: Vec<f64> = delays(&sent, &receipts, 1).collect();
    median(&alone).ok_or_else(|| PeerError::Silent {
        sender: sender.name.clone(),
        receiver: receiver.name.clone(),
    })
}

/// b(h) and d(h), if the steps reach them.
fn conclude(steps: Vec<Step>) -> Between {
    let (mut bandwidth_bytes_s, mut buffer_us) = (None, None);
    if let ([first, ..], [.., before, last]) = (steps.as_slice(), steps.as_slice())
        && last.bytes_s - before.bytes_s < SATURATED * first.bytes_s
    {
        bandwidth_bytes_s = Some(last.bytes_s);
        buffer_us = (last.loss > 0.0).then_some(last.longest_wait_us);
    }
    Between {
        steps,
        bandwidth_bytes_s,
        buffer_us,
    }
}

fn send(
    sender: &mut Peer,
    receiver: &mut Peer,
    number: u32,
    train: Train,
) -> Result<(Vec<Sent>, Vec<Receipt>), PeerError> {
    let sent = sender.send(receiver.address, number, train)?;
    let receipts = receiver.take(number, train.datagrams(), Duration::from_secs(1))?;
    Ok((sent, receipts))
}

fn flood(
    senders: &mut [Peer],
    receivers: &mut [Peer],
    quiet: &[Quiet],
    rate: Option<f64>,
) -> Result<Step, PeerError> {
    let train = train(rate);
    let pairs = senders.len();
    let number = 2 + pairs as u32;
    let results: Vec<Result<_, PeerError>> = thread::scope(|scope| {
        let threads: Vec<_> = senders
            .iter_mut()
            .zip(receivers)
            .map(|(sender, receiver)| scope.spawn(move || send(sender, receiver, number, train)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let (mut arrivals, mut longest_wait_us) = (Vec::new(), 0.0_f64);
    for (result, quiet) in results.into_iter().zip(quiet) {
        let (sent, receipts) = result?;
        arrivals.extend(
            receipts
                .iter()
                .map(|receipt| receipt.arrival as f64 / 1e3 - quiet.first),
        );
        longest_wait_us = delays(&sent, &receipts, 1)
            .map(|delay| delay - quiet.own)
            .fold(longest_wait_us, f64::max);
    }
    let received = arrivals.len();
    let asked = pairs * train.messages as usize;
    Ok(Step {
        pairs,
        bytes_s: bytes_s(arrivals),
        longest_wait_us,
        loss: 1.0 - received as f64 / asked as f64,
    })
}

/// What each pair sends, if one alone has this rate, bytes per second.
fn train(rate: Option<f64>) -> Train {
    let (payload, segments) = (PAYLOAD, 1);
    // The first step floods with what drains in time even at 1 Mbit/s; so do others, where nothing arrived that says how fast.
    let Some(rate) = rate.filter(|&rate| rate > 0.0) else {
        let messages = MESSAGES.1 as u32;
        return Train {
            messages,
            segments,
            payload,
            burst: messages,
            interval_ns: 0,
        };
    };
    let message_ns = WIRE * 1e9 / (rate * OVERLOAD);
    let burst = (INTERVAL_NS / message_ns).ceil().max(1.0);
    Train {
        messages: (TIME_NS / message_ns).clamp(MESSAGES.1, MESSAGES.0) as u32,
        segments,
        payload,
        burst: burst as u32,
        interval_ns: (burst * message_ns) as u64,
    }
}

/// Bytes per second of packets that arrived at these times, in microseconds, whoever sent them. Senders do not begin and end
/// together, so the first tenth and the last do not count; each sender's own rate would have the others' share in it while they
/// wait.
fn bytes_s(mut arrivals: Vec<f64>) -> f64 {
    arrivals.sort_by(f64::total_cmp);
    let edge = arrivals.len() / 10;
    let inner = &arrivals[edge..arrivals.len() - edge];
    match inner {
        [first, .., last] if last > first => (inner.len() - 1) as f64 * WIRE * 1e6 / (last - first),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(rates: &[f64], loss: f64) -> Vec<Step> {
        rates
            .iter()
            .zip(1..)
            .map(|(&bytes_s, pairs)| Step {
                pairs,
                bytes_s,
                longest_wait_us: 700.0,
                loss,
            })
            .collect()
    }

    #[test]
    fn the_level_is_the_edges_bandwidth() {
        // PlogPT, table II: hosts with 12.5 MB/s below an edge with 30 MB/s.
        let seen = conclude(steps(&[12.5e6, 25.0e6, 30.0e6, 30.1e6], 0.1));
        assert_eq!(
            (seen.bandwidth_bytes_s, seen.buffer_us),
            (Some(30.1e6), Some(700.0))
        );
    }

    #[test]
    fn pairs_that_do_not_begin_together_have_the_edges_rate_all_the_same() {
        // An edge passes a packet each 100 us; the second half of the pairs begins when the first half is nearly through.
        let at = |place: u32| f64::from(place) * 100.0;
        let first = (0..1000).map(at).chain((1000..1200).step_by(2).map(at));
        let second = (1001..1200).step_by(2).map(at).chain((1200..2100).map(at));
        let whole = bytes_s(first.chain(second).collect());
        assert!((whole / (WIRE * 1e4) - 1.0).abs() < 1e-3, "{whole}");
        assert_eq!((bytes_s(Vec::new()), bytes_s(vec![1.0])), (0.0, 0.0));
    }

    #[test]
    fn a_flood_lasts_longer_than_its_buffer() {
        let slow = train(Some(1.45e6));
        assert_eq!((slow.messages, slow.burst, slow.interval_ns), (718, 1, 696_091));
        let fast = train(Some(125e6));
        assert_eq!((fast.messages, fast.burst), (4000, 62));
        assert_eq!((train(None).interval_ns, train(Some(0.0)).interval_ns), (0, 0));
    }

    #[test]
    fn what_still_grows_has_no_level() {
        let seen = conclude(steps(&[12.5e6, 25.0e6], 0.1));
        assert_eq!((seen.bandwidth_bytes_s, seen.buffer_us), (None, None));
        assert_eq!(conclude(steps(&[12.5e6], 0.0)).bandwidth_bytes_s, None);
        assert_eq!(conclude(steps(&[10e6, 10e6], 0.0)).buffer_us, None);
    }
}
