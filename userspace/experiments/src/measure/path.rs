//! One direction of a path: trains and what they say.
//!
//! Model: o_s(m) is the sender's system call, o_r(m) the time from the kernel's stamp to the program, g(m) the spacing of
//! messages of m bytes that leave together; g and G by least squares over m (PlogP: Kielmann et al. 2000; PlogPT: Nomura
//! et al. 2007, section III). b = 1/G. The clocks of two hosts differ by a constant: delays are compared with those of
//! lone packets only. d, the depth of the buffer in time, is what the slowest packet of a flood that was too much waited
//! longer than a lone one, and its own service, for which there was room, too; a flood that lost nothing says only that
//! the buffer is deeper. Where the path is slow the flood is spread over time, at eight times the path's rate, so that
//! packets come at all moments of a service.
//! What is lacking: clocks that drift apart within a second; a path whose rate changes meanwhile; slow buffers that drop
//! before they are full.

use std::time::Duration;

use perturb_stats::{Sample, SampleError, median};
use serde::Serialize;

use crate::{
    estimate::{
        changes,
        train::{self, Spacing},
    },
    probe::endpoint::{Receipt, Sent, Train},
};

/// UDP payloads m, bytes, the last of which fills an Ethernet frame.
pub(super) const PAYLOADS: [usize; 7] = [64, 256, 512, 768, 1024, 1248, 1472];
/// Messages of the first flood; each further one is twice as long.
const FIRST_FLOOD: u32 = 64;
/// Messages of the last flood: 12 MB.
const LAST_FLOOD: u32 = 8192;
/// How many times the path's rate a slow path is flooded with, and from which spacing on, microseconds.
const FLOOD_RATE: f64 = 8.0;
const SLOW_US: f64 = 200.0;
/// A flood is not longer than this.
const FLOOD_TIME_US: f64 = 1.5e6;
/// Messages in a burst, at most and at least.
const BURST: (f64, f64) = (6.0, 64.0);

/// Sends a train and returns what was sent and what came of it.
pub(super) type Exchange<'a> = dyn FnMut(&Train, Duration) -> anyhow::Result<(Vec<Sent>, Vec<Receipt>)> + 'a;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Lone packets of each size.
    pub lone: u32,
    /// Bursts of each size.
    pub bursts: u32,
    /// How long a burst lasts, microseconds.
    pub burst_us: f64,
    /// Whether buffers are flooded.
    pub floods: bool,
}

/// What a size showed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Size {
    /// UDP payload, bytes.
    pub payload_bytes: usize,
    /// Bytes on the wire.
    pub wire_bytes: usize,
    /// o_s(m), microseconds.
    pub overhead_send_us: f64,
    /// o_r(m), microseconds.
    pub overhead_receive_us: f64,
    /// g(m): the spacing, microseconds.
    pub gap_us: f64,
    /// Whether the sender was the slowest stage, so that the path's own gap is smaller.
    pub sender_limited: bool,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Direction {
    /// By size.
    pub sizes: Vec<Size>,
    /// g, microseconds; absent where the sender hides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_us: Option<f64>,
    /// G, ns per byte on the wire; absent where the sender hides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_per_byte_ns: Option<f64>,
    /// b = 1/G, bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_s: Option<f64>,
    /// Share of lone packets that did not arrive.
    pub loss: f64,
    /// How many were sent.
    pub loss_of: usize,
    /// d, microseconds: the longest wait in a full buffer; absent if no flood filled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_us: Option<f64>,
    /// The longest wait seen, microseconds.
    pub longest_wait_us: f64,
    /// Payloads from which on another line holds: a change of protocol.
    pub protocol_changes: Vec<usize>,
}

/// Parts of [`measure`]: each size, and floods.
pub(crate) const PARTS: usize = PAYLOADS.len() + 1;

/// Measures a direction. `header` is what a datagram has on the wire beside its payload, `latency` an upper bound; `told` when
/// a part begins.
pub(super) fn measure(
    exchange: &mut Exchange<'_>,
    header: usize,
    effort: &Effort,
    latency: Duration,
    told: &dyn Fn(usize, &str),
) -> anyhow::Result<Direction> {
    let patience = latency + Duration::from_millis(500);
    let mut sizes = Vec::new();
    let (mut lost, mut of) = (0, 0);
    let mut lone_delay = 0.0;
    let mut spacing_us = 20.0;
    for (done, payload) in PAYLOADS.into_iter().enumerate() {
        told(done, &format!("{payload} bytes"));
        let lone = Train {
            messages: effort.lone,
            segments: 1,
            payload,
            burst: 1,
            // One packet must be gone before the next: a multiple of what the last size took.
            interval_ns: (2_100_000.0_f64).max(3e3 * spacing_us) as u64,
        };
        let (sent, receipts) = exchange(&lone, patience)?;
        of += sent.len();
        lost += sent.len() - receipts.len().min(sent.len());
        lone_delay = sample(delays(&sent, &receipts, 1))?.median();
        let overhead_send_us =
            sample(sent.iter().map(|sent| (sent.returned - sent.at) as f64 / 1e3))?.median();
        let overhead_receive_us = sample(
            receipts
                .iter()
                .map(|receipt| receipt.read.saturating_sub(receipt.arrival) as f64 / 1e3),
        )?
        .median();
        let spacings = bursts(exchange, payload, effort, &mut spacing_us, patience)?;
        let gap_us = sample(spacings.iter().map(|spacing| spacing.arrivals_us))?.median();
        let service: Vec<f64> = spacings.iter().map(Spacing::service_us).collect();
        sizes.push(Size {
            payload_bytes: payload,
            wire_bytes: payload + header,
            overhead_send_us,
            overhead_receive_us,
            gap_us,
            sender_limited: median(&service) == Some(0.0),
        });
    }
    let (buffer_us, longest_wait_us) = if effort.floods {
        told(PAYLOADS.len(), "buffer");
        flood(exchange, lone_delay, spacing_us, patience)?
    } else {
        (None, 0.0)
    };
    let (gap_us, gap_per_byte_ns) = line(&sizes);
    let points: Vec<(f64, f64)> = sizes
        .iter()
        .map(|size| (size.wire_bytes as f64, size.gap_us))
        .collect();
    let changes = changes::find(&points, 0.01 * spacing_us + 0.5);
    Ok(Direction {
        gap_us,
        gap_per_byte_ns,
        bandwidth_bytes_s: gap_per_byte_ns.map(|ns| 1e9 / ns),
        loss: lost as f64 / of.max(1) as f64,
        loss_of: of,
        buffer_us,
        longest_wait_us,
        protocol_changes: changes
            .into_iter()
            .map(|index| sizes[index].payload_bytes)
            .collect(),
        sizes,
    })
}

/// g and G from the sizes at which the network is the slowest stage.
fn line(sizes: &[Size]) -> (Option<f64>, Option<f64>) {
    let points: Vec<(f64, f64)> = sizes
        .iter()
        .filter(|size| !size.sender_limited)
        .map(|size| (size.wire_bytes as f64, size.gap_us))
        .collect();
    match (points.as_slice(), train::fit(&points)) {
        (_, Ok((gap, per_byte))) => {
            // What is a small part of the largest spacing is its error.
            let largest = points.iter().map(|(_, spacing)| *spacing).fold(0.0, f64::max);
            let bytes = points.iter().map(|(size, _)| *size).fold(0.0, f64::max);
            let matters = |share: f64| share > 0.02 * largest;
            (
                Some(gap).filter(|&gap| matters(gap)),
                Some(per_byte).filter(|&ns| matters(ns * bytes / 1e3)),
            )
        }
        // Only the largest was served slowly enough: all of it is taken for G.
        ([(size, spacing)], _) => (None, Some(spacing * 1e3 / size)),
        _ => (None, None),
    }
}

/// Bursts of a size; `spacing_us` is the last size's, and becomes this one's.
fn bursts(
    exchange: &mut Exchange<'_>,
    payload: usize,
    effort: &Effort,
    spacing_us: &mut f64,
    patience: Duration,
) -> anyhow::Result<Vec<Spacing>> {
    let mut seen = Vec::new();
    // The first few bursts are short and find out how long the others may be.
    for (bursts, expected) in [(2, None), (effort.bursts, Some(()))] {
        let length = match expected {
            None => BURST.0,
            Some(()) => (effort.burst_us / *spacing_us).clamp(BURST.0, BURST.1),
        };
        let train = Train {
            messages: length as u32 * bursts,
            segments: 1,
            payload,
            burst: length as u32,
            interval_ns: (2e6 + length * 2.0 * 1e3 * spacing_us.max(10.0)) as u64,
        };
        let (sent, receipts) = exchange(&train, patience)?;
        seen = train::spacings(&train, &sent, &receipts);
        *spacing_us = sample(seen.iter().map(|spacing| spacing.arrivals_us))?
            .median()
            .max(1.0);
    }
    Ok(seen)
}

/// Floods the path until packets are lost; (d, the longest wait), microseconds.
fn flood(
    exchange: &mut Exchange<'_>,
    lone_delay: f64,
    spacing_us: f64,
    patience: Duration,
) -> anyhow::Result<(Option<f64>, f64)> {
    let payload = PAYLOADS[PAYLOADS.len() - 1];
    let mut messages = FIRST_FLOOD;
    let mut longest: f64 = 0.0;
    while messages <= LAST_FLOOD && f64::from(messages) * spacing_us < FLOOD_TIME_US {
        let spread = spacing_us > SLOW_US;
        let train = Train {
            messages,
            segments: 1,
            payload,
            burst: if spread { 1 } else { messages },
            interval_ns: (1e3 * spacing_us / FLOOD_RATE) as u64,
        };
        let drained = Duration::from_nanos((f64::from(messages) * spacing_us * 1e3) as u64);
        let (sent, receipts) = exchange(&train, patience + drained)?;
        let waits = delays(&sent, &receipts, 1).map(|delay| delay - lone_delay);
        longest = waits.fold(longest, f64::max);
        // One packet in a thousand may be lost to something else.
        if receipts.len() + 1 + sent.len() / 1000 < sent.len() {
            return Ok((Some(longest + spacing_us), longest));
        }
        messages *= 2;
    }
    Ok((None, longest))
}

/// arrival - sending, microseconds, by clocks that may differ: only differences mean something.
pub(super) fn delays<'a>(
    sent: &'a [Sent],
    receipts: &'a [Receipt],
    segments: u32,
) -> impl Iterator<Item = f64> + 'a {
    receipts.iter().filter_map(move |receipt| {
        let sent = sent.get((receipt.number / segments) as usize)?;
        Some((i128::from(receipt.arrival) - i128::from(sent.at)) as f64 / 1e3)
    })
}

fn sample(values: impl Iterator<Item = f64>) -> Result<Sample, SampleError> {
    Sample::new(values.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 42;

    /// A path with g (us), G (ns/B), L (us), and a buffer in microseconds; the clocks are an hour apart.
    fn path(
        gap: f64,
        byte: f64,
        latency: f64,
        buffer: f64,
    ) -> impl FnMut(&Train, Duration) -> anyhow::Result<(Vec<Sent>, Vec<Receipt>)> {
        move |train, _| {
            let (mut sent, mut receipts) = (Vec::new(), Vec::new());
            let mut free = 0.0_f64;
            for message in 0..train.messages {
                let at = f64::from(message / train.burst) * train.interval_ns as f64 / 1e3
                    + f64::from(message % train.burst) * 4.0;
                sent.push(Sent {
                    at: (at * 1e3) as u64,
                    returned: ((at + 4.0) * 1e3) as u64,
                });
                let start = free.max(at + 4.0);
                let service = gap + byte * (train.payload + HEADER) as f64 / 1e3;
                if start - at - 4.0 + service > buffer {
                    continue;
                }
                free = start + service;
                let arrival = 3.6e12 + (free + latency) * 1e3;
                receipts.push(Receipt {
                    number: message,
                    arrival: arrival as u64,
                    read: arrival as u64 + 3_000,
                    turnaround: 0,
                    there: None,
                });
            }
            Ok((sent, receipts))
        }
    }

    const EFFORT: Effort = Effort {
        lone: 20,
        bursts: 5,
        burst_us: 20_000.0,
        floods: true,
    };

    #[test]
    fn finds_gap_bandwidth_and_buffer() {
        let mut exchange = path(50.0, 80.0, 5_000.0, 20_000.0);
        let seen = measure(&mut exchange, HEADER, &EFFORT, Duration::from_secs(1), &|_, _| ()).unwrap();
        assert!((seen.gap_us.unwrap() - 50.0).abs() < 0.5, "{seen:?}");
        assert!((seen.gap_per_byte_ns.unwrap() - 80.0).abs() < 0.5, "{seen:?}");
        assert!((seen.buffer_us.unwrap() - 20_000.0).abs() < 400.0, "{seen:?}");
        assert!(
            (seen.sizes[0].overhead_send_us - 4.0).abs() < 0.1
                && (seen.sizes[0].overhead_receive_us - 3.0).abs() < 0.1
        );
        assert_eq!(
            (seen.loss, seen.protocol_changes.as_slice()),
            (0.0, [].as_slice())
        );
    }

    #[test]
    fn a_path_faster_than_its_sender_hides_its_gap_and_a_deep_buffer_its_depth() {
        let mut exchange = path(0.0, 0.8, 100.0, f64::INFINITY);
        let seen = measure(&mut exchange, HEADER, &EFFORT, Duration::from_secs(1), &|_, _| ()).unwrap();
        assert!(seen.sizes.iter().all(|size| size.sender_limited));
        assert_eq!(
            (seen.gap_us, seen.gap_per_byte_ns, seen.buffer_us),
            (None, None, None)
        );
    }

    #[test]
    fn a_gap_without_bandwidth_is_a_gap() {
        let mut exchange = path(300.0, 0.0, 100.0, f64::INFINITY);
        let seen = measure(&mut exchange, HEADER, &EFFORT, Duration::from_secs(1), &|_, _| ()).unwrap();
        assert!((seen.gap_us.unwrap() - 300.0).abs() < 1.0);
        assert_eq!(seen.gap_per_byte_ns, None);
    }
}
