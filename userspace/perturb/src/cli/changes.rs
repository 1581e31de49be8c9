//! How a profile's servers and hosts change, drawn: rate, latency, loss, buffer and overhead over time, one chart below the other.

use perturb_emulator::{lab::all_addresses, prepared::Prepared};
use perturb_present::chart::{Axis, Chart, Series};
use perturb_profile::{Files, Name, Overheads, Profile, Step, Stretch, Subject, overheads, stretches};

/// A value of a stretch, in its chart's unit.
type Of = fn(&Stretch) -> Option<f64>;

/// Stretches across a picture.
const STRETCHES: u64 = 600;

/// The picture; `None` if nothing changes.
pub(super) fn picture(prepared: &Prepared) -> anyhow::Result<Option<String>> {
    let files = &prepared.files;
    let profile = with_hosts(&prepared.profile, files)?;
    let changing = stretches(&profile, files, STRETCHES);
    let overheads = overheads(&profile, files, STRETCHES as usize);
    if changing.is_empty() && overheads.is_none() {
        return Ok(None);
    }
    let drawn: [(&str, &str, &str, Of); 5] = [
        ("Bandwidth", "mean bandwidth", "Mbit/s", |one| {
            one.bandwidth.map(|bits| bits / 1e6)
        }),
        ("Latency", "latency", "ms", |one| Some(one.latency * 1e3)),
        ("Loss", "loss, 100 while down", "%", |one| Some(one.loss * 100.0)),
        ("Buffer", "buffer", "KiB", |one| {
            one.buffer.0.map(|bytes| bytes / 1024.0)
        }),
        ("Buffer in time", "buffer", "ms", |one| {
            one.buffer.1.map(|seconds| seconds * 1e3)
        }),
    ];
    let mut charts = Vec::new();
    for (title, label, unit, of) in drawn {
        let mut chart = Chart::new(title, Axis::new("time", "s"), Axis::new(label, unit));
        let mut any = false;
        for (name, length, stretches) in &changing {
            let points = levels(stretches.iter().map(|one| (one.at, of(one))), *length);
            if !points.is_empty() {
                // Without any loss there is nothing to see.
                any |= points.iter().any(|&(_, value)| value > 0.0);
                chart = chart.series(Series::new(Name::to_string(name), points).without_markers());
            }
        }
        if any {
            charts.push(chart);
        }
    }
    if let Some(Overheads { length, steps }) = overheads {
        let mut chart = Chart::new("Overhead", Axis::new("time", "s"), Axis::new("overhead", "us"));
        for (name, of) in ["send", "receive"].into_iter().zip(0..) {
            let points = steps.iter().map(|&(at, overhead)| (at, Some(overhead[of])));
            chart = chart.series(Series::new(name, levels(points, length)).without_markers());
        }
        charts.push(chart);
    }
    Ok(Some(Chart::stacked(&charts)?))
}

/// The profile with servers in place of a topology, for as many hosts as its steps speak of.
fn with_hosts(profile: &Profile, files: &Files) -> anyhow::Result<Profile> {
    if profile.topology.is_none() {
        return Ok(profile.clone());
    }
    let parted = |step: &Step| match &step.subject {
        Subject::Partition(groups) => groups.iter().flatten().max().map_or(0, |rank| rank + 1),
        Subject::Level(height) => 1 << (*height).min(10),
        _ => 0,
    };
    let hosts = profile.timeline.steps.iter().map(parted).max().unwrap_or(0);
    let addresses = all_addresses(hosts.max(2) as u32);
    Ok(Prepared::between(profile.clone(), files.clone(), &addresses)?.profile)
}

/// The values that there are, each until the next one begins, and the last until the end.
fn levels(values: impl Iterator<Item = (f64, Option<f64>)> + Clone, length: f64) -> Vec<(f64, f64)> {
    let ends = values.clone().skip(1).map(|(at, _)| at).chain([length]);
    let each = values.zip(ends);
    let each = each.filter_map(|((at, value), end)| Some([(at, value?), (end, value?)]));
    each.flatten().collect()
}
