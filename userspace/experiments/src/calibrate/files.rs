//! A calibration's files: JSON, raw samples as CSV, and a page with charts.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use perturb_present::{
    Page,
    chart::{Axis, Chart, ChartError, Kind, Series, Stroke},
};
use perturb_profile::Knob;

use super::{
    calibration::{Calibration, Measured, Outcome, reasons},
    measurement::Samples,
    signature::Signature,
    sweep::Raw,
};

/// Writes `calibration.json`, `calibration.csv` and `calibration.html` into a directory.
pub fn write(directory: &Path, calibration: &Calibration, raw: &Raw) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    write("calibration.json", serde_json::to_string_pretty(calibration)?)?;
    write("calibration.csv", csv(calibration, raw))?;
    write("calibration.html", page(calibration)?.to_html())
}

/// One line per observation; what it is of stands in the first columns.
fn csv(calibration: &Calibration, raw: &Raw) -> String {
    let mut text = String::new();
    for (name, value) in calibration.provenance.facts() {
        let _ = writeln!(text, "# {name}: {value}");
    }
    for line in calibration.provenance.profile.lines() {
        let _ = writeln!(text, "# profile: {line}");
    }
    text.push_str("setting,quantity,size_bytes,value_us\n");
    for (setting, samples) in raw {
        for (quantity, size, value) in observations(samples) {
            let _ = writeln!(text, "{setting},{quantity},{size},{value}");
        }
    }
    text
}

fn observations(samples: &Samples) -> Vec<(&'static str, f64, f64)> {
    let small = samples.singles.first().map_or(0.0, |(size, _)| *size);
    let mut all = Vec::new();
    for passage in &samples.passages {
        all.extend([
            ("send", small, passage.send_us),
            ("transit", small, passage.transit_us),
            ("until_read", small, passage.receive_us),
        ]);
    }
    all.extend(
        samples
            .ingress_ns
            .iter()
            .map(|ns| ("receive_processor", small, ns / 1e3)),
    );
    for (size, spacings) in samples.singles.iter().chain(&samples.messages) {
        for spacing in spacings {
            all.extend([
                ("spacing", *size, spacing.arrivals_us),
                ("call", *size, spacing.calls_us),
            ]);
        }
    }
    let (delay, trips) = &samples.trips;
    all.push(("prtt_computation", small, *delay));
    for trip in trips {
        let kinds = [
            ("prtt_1", &trip.lone),
            ("prtt_n", &trip.train),
            ("prtt_n_d", &trip.delayed),
        ];
        for (kind, times) in kinds {
            all.extend(times.iter().map(|&time| (kind, trip.size, time)));
        }
    }
    all.extend(
        samples
            .stream
            .0
            .iter()
            .map(|&time| ("tcp_round_trip", 64.0, time)),
    );
    all
}

fn page(calibration: &Calibration) -> anyhow::Result<Page> {
    let verdict = match calibration.verdict {
        Outcome::Pass => "Every knob that was turned is within its tolerance.",
        Outcome::Fail => "At least one knob is not within its tolerance.",
    };
    let mut page = Page::new("Calibration: desired against observed")
        .paragraph(verdict)
        .facts(calibration.provenance.facts());
    page = page
        .heading("Settings")
        .paragraph(
            "One knob is turned at a time; the four columns say what was observed of all four, the machine's own share \
             included. A cross-effect beyond its tolerance is marked: * for one that LogGP predicts, ! for one that it \
             does not.",
        )
        .table("o, g, L in microseconds, G in ns per byte on the wire", &calibration.table());
    for reason in reasons(&calibration.settings) {
        page = page.paragraph(&format!("* {reason}"));
    }
    for warning in calibration.warnings() {
        page = page.paragraph(&format!("! {warning}"));
    }
    let of = |knob: Knob| -> Vec<&Measured> {
        let settings = calibration.settings.iter();
        settings.filter(|setting| setting.knob == knob).collect()
    };
    let turned = Knob::LOGGP.map(|knob| (knob, of(knob)));
    let charts: Vec<Chart> = turned
        .iter()
        .filter(|(_, settings)| !settings.is_empty())
        .map(|(knob, settings)| knob_chart(*knob, settings))
        .collect();
    page = page
        .heading("Knobs")
        .figures(&charts.iter().collect::<Vec<_>>())?;
    if let Some(signature) = &calibration.signature {
        page = signature_part(page, signature)?;
    }
    Ok(page
        .heading("Profile of the control")
        .verbatim(&calibration.provenance.profile))
}

/// Desired and observed of one knob; both axes logarithmic, as the ranges span decades.
fn knob_chart(knob: Knob, settings: &[&Measured]) -> Chart {
    let axis =
        |what: &str| Axis::new(format!("{what} {}", knob.letter()), knob.unit()).kind(Kind::Logarithmic);
    let points = |y: &dyn Fn(&Measured) -> f64| -> Vec<(f64, f64)> {
        settings
            .iter()
            .map(|setting| (setting.desired, y(setting)))
            .filter(|(_, y)| *y > 0.0)
            .collect()
    };
    Chart::new(
        format!("{}: desired and observed", knob.parameter()),
        axis("desired"),
        axis("observed"),
    )
    .series(
        Series::new(
            "desired, or the machine's own where that is slower",
            points(&|setting| setting.judgement.compared.expected.0),
        )
        .stroke(Stroke::Dashed)
        .without_markers(),
    )
    .series(Series::new("observed", points(&|setting| setting.judgement.compared.seen)).stroke(Stroke::None))
}

fn signature_part(page: Page, signature: &Signature) -> Result<Page, ChartError> {
    let network = &signature.network;
    let mut chart = Chart::new(
        "LogP signature",
        Axis::new("burst size m", "messages"),
        Axis::new("average initiation interval", "us"),
    )
    .caption(format!(
        "o {} us, g {} us, L {} us; {} B on the wire, at most {} unanswered",
        network.overhead_us, network.gap_us, network.latency_us, signature.size, signature.window
    ));
    let mut computations: Vec<f64> = signature
        .points
        .iter()
        .map(|point| point.computation_us)
        .collect();
    computations.dedup();
    for computation in computations {
        let line = signature
            .points
            .iter()
            .filter(|point| point.computation_us == computation)
            .map(|point| (f64::from(point.burst), point.interval_us));
        chart = chart.series(Series::new(format!("Δ = {computation} us"), line));
    }
    let page = page
        .heading("Signature")
        .paragraph(
            "The average time from one request to the next, over the burst's size, with a computation Δ after each \
             (Martin 1999, fig. 2.3): o_s at m = 1, g where Δ = 0 levels off, o_s + o_r + Δ where Δ is longer than g.",
        )
        .chart(&chart)?;
    Ok(match &signature.reading {
        None => page.paragraph("The lines do not reach their levels; nothing can be read off."),
        Some(reading) => page.facts([
            ("o_s", format!("{:.1} us", reading.send_us)),
            ("g", format!("{:.1} us", reading.gap_us)),
            ("L + g", format!("{:.1} us", reading.latency_us)),
            (
                "o_r on the issuing processor",
                format!("{:.1} us", reading.receive_us),
            ),
        ]),
    })
}
