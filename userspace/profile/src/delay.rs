//! How long a packet can be under way: what `check` says of a path, and what the horizon must cover.

use perturb_quantity::{Duration, Size};

use crate::model::{Distribution, Profile, Server, ServerId, Volume};
use crate::read::server::backlog_time;

/// The longest wait that the buffer of `server` allows, with frames of that size; `None` if the buffer limits nothing, or
/// nothing makes packets wait.
pub(crate) fn longest_wait(server: &Server, frame: Size) -> Option<Duration> {
    let frame = server
        .bandwidth
        .map_or(Duration::ZERO, |rate| rate.time_of(frame.bytes()));
    let occupancy = frame.saturating_add(server.gap);
    let by_volume = server
        .buffer
        .volume
        .map(|volume| backlog_time(volume, server.bandwidth));
    let by_packets = server
        .buffer
        .packets
        .map(|packets| Duration::from_nanos(occupancy.nanos().saturating_mul(u64::from(packets))));
    match (by_volume, by_packets) {
        (Some(volume), Some(packets)) => Some(volume.min(packets)),
        (one, other) => one.or(other),
    }
}

/// Whether the buffer of an idle `server` has room for a frame of that size.
pub(crate) fn admits(server: &Server, frame: Size) -> bool {
    match (server.buffer.volume, server.bandwidth) {
        (Some(Volume::Bytes(size)), _) => size >= frame,
        (Some(Volume::Delay(delay)), Some(rate)) => rate.time_of(frame.bytes()) <= delay,
        (Some(Volume::Delay(_)) | None, _) => true,
    }
}

/// Whether packets can queue at `server` at all.
pub(crate) fn queues(server: &Server) -> bool {
    server.bandwidth.is_some() || server.gap > Duration::ZERO
}

/// The largest jitter: a table's entries are 16 bit with 8192 for one scale, so at most 4 scales.
pub(crate) fn longest_jitter(server: &Server) -> Duration {
    server
        .jitter
        .as_ref()
        .map_or(Duration::ZERO, |jitter| match jitter.distribution {
            Distribution::Uniform => jitter.scale,
            _ => Duration::from_nanos(jitter.scale.nanos().saturating_mul(4)),
        })
}

/// Largest delay of a frame along `path`, as far as it is bounded: queues without a buffer count nothing.
pub(crate) fn bounded_delay(profile: &Profile, path: &[ServerId]) -> Duration {
    let frame = profile.frame();
    path.iter()
        .filter_map(|&id| profile.server(id))
        .fold(Duration::ZERO, |sum, (_, server)| {
            let service = server
                .bandwidth
                .map_or(Duration::ZERO, |rate| rate.time_of(frame.bytes()));
            [
                service,
                server.gap,
                server.latency,
                longest_jitter(server),
                longest_wait(server, frame).unwrap_or(Duration::ZERO),
            ]
            .into_iter()
            .fold(sum, Duration::saturating_add)
        })
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
