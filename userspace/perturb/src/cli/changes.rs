//! How a profile's servers change, drawn: rate, latency, loss and buffer over time, one chart below the other.

use perturb_emulator::prepared::Prepared;
use perturb_present::chart::{Axis, Chart, ChartError, Series};
use perturb_profile::{Name, Stretch, stretches};

/// A value of a stretch, in its chart's unit.
type Of = fn(&Stretch) -> Option<f64>;

/// Stretches across a picture.
const STRETCHES: u64 = 600;

/// The picture; `None` if nothing changes.
pub(super) fn picture(prepared: &Prepared) -> Result<Option<String>, ChartError> {
    let changing = stretches(&prepared.profile, &prepared.files, STRETCHES);
    if changing.is_empty() {
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
            let points = steps(stretches, *length, of);
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
    Chart::stacked(&charts).map(Some)
}

/// Each value from its stretch's beginning to its end.
fn steps(stretches: &[Stretch], length: f64, of: Of) -> Vec<(f64, f64)> {
    let ends = stretches.iter().skip(1).map(|stretch| stretch.at).chain([length]);
    let each = stretches.iter().zip(ends).filter_map(|(stretch, end)| {
        let value = of(stretch)?;
        Some([(stretch.at, value), (end, value)])
    });
    each.flatten().collect()
}
