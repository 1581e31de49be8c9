//! How long a packet can be under way: what `check` says of a path, and what the horizon must cover.

use perturb_quantity::{Duration, Rate, Size};

use crate::model::{Distribution, Jitter, Profile, Server, ServerId, Slot, Volume};
use crate::read::server::backlog_time;
use crate::timeline::{Change, Given, Random};

/// The longest wait that the buffer of `server` allows, with frames of that size; `None` if the buffer limits nothing, or
/// nothing makes packets wait.
pub(crate) fn longest_wait(server: &Server, size: Size) -> Option<Duration> {
    let frame = server.bandwidth.map_or(Duration::ZERO, |rate| {
        rate.time_of(server.framing.on_wire(size).bytes())
    });
    let occupancy = frame.saturating_add(server.gap);
    let by_volume = server
        .buffer
        .volume
        .map(|volume| backlog_time(volume, server.bandwidth));
    let by_packets = server.buffer.packets.map(u64::from).map(|packets| {
        // The slots of those ahead, and its own.
        let slots = server.slot.as_ref().map_or(0, |slot| {
            let slots = slot.frames(size).map_or(1, |each| packets.div_ceil(each.max(1)));
            slot.longest().nanos().saturating_mul(slots)
        });
        Duration::from_nanos(occupancy.nanos().saturating_mul(packets).saturating_add(slots))
    });
    match (by_volume, by_packets) {
        (Some(volume), Some(packets)) => Some(volume.min(packets)),
        (one, other) => one.or(other),
    }
}

/// Whether the buffer of an idle `server` has room for a frame of that size.
pub(crate) fn admits(server: &Server, frame: Size) -> bool {
    let frame = server.framing.on_wire(frame);
    match (server.buffer.volume, server.bandwidth) {
        (Some(Volume::Bytes(size)), _) => size >= frame,
        (Some(Volume::Delay(delay)), Some(rate)) => rate.time_of(frame.bytes()) <= delay,
        (Some(Volume::Delay(_)) | None, _) => true,
    }
}

/// Whether packets can queue at `server` at all.
pub(crate) fn queues(server: &Server) -> bool {
    let bounded = |slot: &Slot| slot.packets.is_some() || slot.bytes.is_some();
    server.bandwidth.is_some() || server.gap > Duration::ZERO || server.slot.as_ref().is_some_and(bounded)
}

/// The largest jitter.
pub(crate) fn longest_jitter(server: &Server) -> Duration {
    server
        .jitter
        .as_ref()
        .map_or(Duration::ZERO, |jitter| jitter.distribution.longest(jitter.scale))
}

/// The longest that a packet waits for a slot of `server` with none ahead.
fn longest_slot(server: &Server) -> Duration {
    server.slot.as_ref().map_or(Duration::ZERO, Slot::longest)
}

/// What the slots of `server` let go of in the mean, in full frames; `None` if that is any number, or they open at once.
pub(crate) fn slot_rate(server: &Server, frame: Size) -> Option<Rate> {
    let slot = server.slot.as_ref()?;
    let bits = slot.frames(frame)?.saturating_mul(frame.bytes() * 8);
    let mean = slot.mean().nanos();
    (mean > 0).then(|| Rate::from_bits_per_second((bits as f64 * 1e9 / mean as f64) as u64))
}

/// The longest wait at `server` that is known to end: what its buffer allows, or a slot alone.
pub(crate) fn known_wait(server: &Server, frame: Size) -> Duration {
    longest_wait(server, frame).unwrap_or_else(|| longest_slot(server))
}

/// The largest latency and jitter of a server, by the steps of the timeline.
fn largest(profile: &Profile, id: ServerId, server: &Server) -> (Duration, Duration) {
    let mut largest = (server.latency, longest_jitter(server));
    let steps = profile.timeline.steps.iter();
    for Change { latency, jitter, .. } in steps.filter(|step| step.subject.has(id)).map(|step| &step.change) {
        let latency = latency.map_or(Duration::ZERO, |given| match given {
            Given::Fixed(latency) => latency,
            // A table is cut at four scales; what is exponential has no end.
            Given::Random(Random { mean, scale, .. }) => {
                Duration::from_nanos(scale.nanos().saturating_mul(4).saturating_add(mean.nanos()))
            }
        });
        let jitter = jitter.map_or(Duration::ZERO, |scale| {
            let jitter = server.jitter.as_ref().map(|jitter| Jitter {
                scale,
                ..jitter.clone()
            });
            longest_jitter(&Server {
                jitter,
                ..Server::default()
            })
        });
        largest = (largest.0.max(latency), largest.1.max(jitter));
    }
    largest
}

/// Largest delay of a frame along `path`, as far as it is bounded: queues without a buffer count nothing, nor does what makes
/// a queue longer for a while.
pub(crate) fn bounded_delay(profile: &Profile, path: &[ServerId]) -> Duration {
    let frame = profile.frame();
    path.iter().filter_map(|&id| profile.server(id)).zip(path).fold(
        Duration::ZERO,
        |sum, ((_, server), &id)| {
            let service = server.bandwidth.map_or(Duration::ZERO, |rate| {
                rate.time_of(server.framing.on_wire(frame).bytes())
            });
            let (latency, jitter) = largest(profile, id, server);
            [service, server.gap, latency, jitter, known_wait(server, frame)]
                .into_iter()
                .fold(sum, Duration::saturating_add)
        },
    )
}

/// How far the jitter of `server` reaches below zero: netem's pareto tables begin at -2/3 scales, their mix with a
/// normal one is cut at -32768/8192 like any table.
pub(crate) fn reach_below(server: &Server) -> Duration {
    server
        .jitter
        .as_ref()
        .map_or(Duration::ZERO, |jitter| match jitter.distribution {
            Distribution::Uniform => jitter.scale,
            Distribution::Normal => Duration::from_nanos(jitter.scale.nanos().saturating_mul(4)),
            Distribution::Pareto => Duration::from_nanos(jitter.scale.nanos().saturating_mul(2) / 3),
            // (normal + 3 pareto) / 4 at the lowest quantile: (-4 - 2) / 4.
            Distribution::ParetoNormal => Duration::from_nanos(jitter.scale.nanos().saturating_mul(3) / 2),
            Distribution::Table(_) => Duration::ZERO,
        })
}
