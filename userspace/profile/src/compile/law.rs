//! The laws of queues.

use perturb_common::departure::Load;
use perturb_common::queue::{self, Law, red};
use perturb_common::units::Ticks;
use perturb_quantity::{Probability, Size};

use super::{ticks, time_of};
use crate::model::{Queue, Server, Volume};

/// How long a server takes for a frame.
fn served_in(server: &Server, frame: Size) -> Ticks {
    ticks(server.gap).plus(time_of(server)(Volume::Bytes(frame)))
}

/// RED's W: the smallest by which a burst of so many packets of `avpkt` bytes, into an empty queue, leaves the average below `min`
/// (Floyd and Jacobson 1993, section 6, as `tc_red_eval_ewma` of iproute2 has it, and its default of `burst`). `None` if no burst leaves
/// it there: it is shorter than `min` itself, or `min` than a packet.
pub(crate) fn red_weight(
    server: &Server,
    thresholds: [Volume; 2],
    avpkt: Size,
    burst: Option<u64>,
) -> Option<u32> {
    let (_, weight) = weight_of(server, thresholds, avpkt, burst)?;
    Some(weight.unwrap_or(red::MOST_WEIGHT))
}

/// The burst of a RED whose average no W keeps below `min`, and the W that it has instead.
pub(crate) fn red_too_fast(server: &Server) -> Option<(u64, u32)> {
    let Queue::Red {
        min,
        max,
        avpkt,
        burst,
        ..
    } = server.queue
    else {
        return None;
    };
    let (burst, weight) = weight_of(server, [min, max], avpkt, burst)?;
    weight.is_none().then_some((burst as u64, red::MOST_WEIGHT))
}

/// The burst, and the smallest W that lets it in, if one does.
fn weight_of(
    server: &Server,
    thresholds: [Volume; 2],
    avpkt: Size,
    burst: Option<u64>,
) -> Option<(f64, Option<u32>)> {
    let small = served_in(server, avpkt).0 as f64;
    let [min, max] = thresholds.map(|volume| time_of(server)(volume).0 as f64 / small);
    // Whole packets, as tc rounds them, but not so few that it refuses them; a threshold in time may be a hair less than it is.
    let usual = || ((2.0 * min + max) / 3.0 + 1e-9).floor().max(min.ceil());
    let burst = burst.map_or_else(usual, |burst| burst as f64);
    let most = burst + 1.0 - min;
    if most.is_nan() || most < 1.0 || min <= 1.0 {
        return None;
    }
    let fits = |&weight: &u32| {
        let share = 0.5f64.powi(weight as i32);
        most <= (1.0 - (1.0 - share).powf(burst)) / share
    };
    Some((burst, (1..=red::MOST_WEIGHT).find(fits)))
}

/// The law of a server's queue.
pub(super) fn law(server: &Server, frame: Size) -> Law {
    let flag = |set: bool, flag| if set { flag } else { 0 };
    let time_of = time_of(server);
    let small = |size: Size, segments| Load {
        bytes: segments * size.bytes(),
        segments,
    };
    match server.queue {
        Queue::Tail => Law::TAIL,
        Queue::Step { threshold, l4s } => Law {
            kind: queue::STEP,
            flags: flag(l4s, queue::LAW_L4S),
            threshold: time_of(threshold),
            ..Law::TAIL
        },
        Queue::CoDel {
            target,
            interval,
            ecn,
            ce_threshold,
        } => Law {
            kind: queue::CODEL,
            flags: flag(ecn, queue::LAW_ECN),
            target: ticks(target),
            interval: ticks(interval),
            small: small(frame, 1),
            threshold: ce_threshold.map_or(Ticks::MAX, time_of),
            ..Law::TAIL
        },
        Queue::Pie {
            target,
            t_update,
            max_burst,
            ecn,
            mark_ecnth,
            derandomize,
        } => Law {
            kind: queue::PIE,
            flags: flag(ecn, queue::LAW_ECN) | flag(derandomize, queue::LAW_DERANDOMIZE),
            target: ticks(target),
            interval: ticks(t_update),
            burst: ticks(max_burst),
            small: small(frame, 2),
            probability: of_one(mark_ecnth),
            ..Law::TAIL
        },
        Queue::Red {
            min,
            max,
            probability,
            avpkt,
            burst,
            ecn,
            adaptive,
        } => {
            let short = |volume| time_of(volume).0.min(red::LONGEST);
            Law {
                kind: queue::RED,
                flags: flag(ecn, queue::LAW_ECN) | flag(adaptive, queue::LAW_ADAPTIVE),
                target: Ticks(short(min)),
                burst: Ticks(short(max)),
                small: small(avpkt, 1),
                probability: of_one(probability),
                weight: red_weight(server, [min, max], avpkt, burst).unwrap_or(1).into(),
                ..Law::TAIL
            }
        }
    }
}

/// A probability in the units of laws.
fn of_one(probability: Probability) -> u64 {
    let parts = u128::from(probability.billionths()) << queue::pie::PROBABILITY_BITS;
    (parts / 1_000_000_000) as u64
}
