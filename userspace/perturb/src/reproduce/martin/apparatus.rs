//! Chapter 2: does every knob do what it says? `perturb calibrate` beside the thesis's own calibration.
//!
//! The levels differ: the NOW's network adds microseconds, this machine's kernel takes tens of them. What is compared has no
//! level: how much of an added microsecond is observed, of the knob itself and of the others, as slopes of straight lines.

use anyhow::Context as _;
use perturb_emulator::conduct::Pacing;
use perturb_experiments::calibrate::{self, Calibration, Parameters, Request};
use perturb_models::published::tables::{self, Row as Printed};
use perturb_present::{LiveLine, Table, computed, shell};
use perturb_profile::Knob;
use perturb_stats::Line;

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};

const LEVELS: Differs = Differs {
    what: "slopes are compared, not levels; ours are higher",
    why: "Active Messages on the NOW took 2.9 us of the processor, a socket here takes several times that",
};

const ONE_WAY: Differs = Differs {
    what: "the paper's g grows by 2 us with each us of o, ours by 1",
    why: "its processor sends a request and takes a reply for each message; a train goes one way, and its sender pays o once",
};

const WINDOW: Differs = Differs {
    what: "the paper's g grows with L, ours does not",
    why: "the NOW has at most four messages between two processors; our packets are not limited in number",
};

const HUNDREDFOLD: Differs = Differs {
    what: "the NOW's parameters times a hundred, measured without what this machine adds of its own",
    why: "what it adds is known to some us, more than the NOW's 2.9",
};

const DRAWN: Differs = Differs {
    what: "what is compared is what the text says of the figure",
    why: "the figure is a drawing; no number is printed",
};

const READ_OFF: Differs = Differs {
    what: "o_s and o_r are read too large, and so L too small",
    why: "L is half of the round trip less both; why they are, was not looked into",
};

const ANSWERS: Differs = Differs {
    what: "o_r is what the issuing processor does of it, and is not compared",
    why: "a processor more handles answers beside the computation",
};

const fn figure(
    name: &'static str,
    shows: &'static str,
    minutes: f64,
    draw: fn(&Setting) -> anyhow::Result<Outcome>,
) -> Figure {
    Figure::emulation(Paper::Martin, name, shows, minutes, draw)
}

pub(super) static FIGURES: &[Figure] = &[
    figure(
        "martin-table-2.1-measured",
        "the NOW's parameters, emulated a hundred times as slow and measured",
        0.3,
        table_2_1,
    )
    .differs(&[HUNDREDFOLD]),
    figure(
        "martin-table-2.2-measured",
        "calibration: what an added microsecond of o, g and L does to each of them",
        4.0,
        table_2_2,
    )
    .quick(0.8)
    .differs(&[ONE_WAY, WINDOW, LEVELS]),
    figure(
        "martin-fig-2.3-measured",
        "LogP signature: the interval of requests over the burst, for computations between them",
        0.5,
        fig_2_3,
    )
    .quick(0.3)
    .differs(&[
        DRAWN,
        READ_OFF,
        ANSWERS,
        Differs {
            what: "o, g and L are 20, 200 and 300 us, and 8 requests may be unanswered",
            why: "the thesis's g of 14 us is less than this machine's own overhead",
        },
    ]),
    figure(
        "martin-fig-2.4-measured",
        "calibration of the bulk gap G",
        1.5,
        |setting| bulk_gap(setting, false),
    )
    .quick(0.4)
    .differs(&[DRAWN]),
    figure(
        "martin-fig-2.7-measured",
        "calibration of the bulk gap G, as TCP sees it",
        1.5,
        |setting| bulk_gap(setting, true),
    )
    .quick(0.4)
    .differs(&[
        DRAWN,
        Differs {
            what: "TCP sends less than the thesis's 10 MB where they would take long",
            why: "the slowest G would take minutes",
        },
    ]),
];

/// What of the knob is observed: within a tenth of what was added.
const SLOPE: f64 = 0.1;

/// A parameter of a calibration.
type Pick = fn(&Parameters) -> f64;

/// Knobs as the table has them.
const KNOBS: [(Knob, &str, &str, Pick); 3] = [
    (Knob::Overhead, "overhead", "observed_overhead_us", |found| {
        found.overhead_us
    }),
    (Knob::Gap, "gap", "observed_gap_us", |found| found.gap_us),
    (Knob::Latency, "latency", "observed_latency_us", |found| {
        found.latency_us
    }),
];

fn measure(setting: &Setting, outcome: &mut Outcome, knobs: &[Knob]) -> anyhow::Result<Calibration> {
    let mut command = "perturb calibrate".to_owned();
    if setting.quick {
        command += " --quick";
    }
    for knob in knobs {
        command += &format!(" --knob {}", knob.parameter());
    }
    let request = Request {
        knobs: knobs.to_vec(),
        quick: setting.quick,
        pacing: Pacing::default(),
        seed: 1,
        sabotage: None,
    };
    let found = setting.work(outcome, command, || {
        calibrate::knobs(request, LiveLine::stderr(false))
    })?;
    Ok(found.0)
}

/// Asked and observed, of a knob.
fn observed(
    found: &Calibration,
    knob: Knob,
    pick: impl Fn(&Parameters) -> f64,
) -> impl Iterator<Item = (f64, f64)> {
    let own = found.settings.iter().filter(move |setting| setting.knob == knob);
    own.map(move |setting| (setting.desired, pick(&setting.observed)))
}

fn slope(points: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let points: Vec<(f64, f64)> = points.into_iter().collect();
    Line::fit(&points).ok().map(|line| line.slope)
}

fn table_2_1(setting: &Setting) -> anyhow::Result<Outcome> {
    /// Here over the NOW.
    const FACTOR: f64 = 100.0;
    /// Bytes on the wire of the small packets and of the full frames.
    const SIZES: [f64; 2] = [106.0, 1514.0];
    let mut outcome = Outcome::default();
    let printed = tables::MARTIN_2_1.table();
    let now = printed.find("platform", "Berkeley NOW").context("Table 2.1")?;
    let number = |column: &str| now.number(column).context("Table 2.1");
    let (overhead, gap, latency, rate) = (
        number("overhead_us")?,
        number("gap_us")?,
        number("latency_us")?,
        number("bandwidth_mb_s")?,
    );
    let path = setting.write(
        "now-slow.yaml",
        &format!(
            "version: 1\nname: now-slow\noverhead: {{ send: {0}us, receive: {0}us }}\nservers:\n  nic: {{ gap: {1}us, bandwidth: {2}MB/s, latency: {3}us }}\n\
             classes:\n  - {{ name: all, match: {{}}, egress: [nic] }}\n",
            FACTOR * overhead,
            FACTOR * gap,
            rate / FACTOR,
            FACTOR * latency,
        ),
    )?;
    let command = format!("perturb calibrate {}", shell::quoted(&path));
    let found = setting.work(&mut outcome, command, || {
        calibrate::classes(&path, Pacing::default(), false, LiveLine::stderr(false))
    })?;
    let got = |what: &str| {
        let line = found.classes.iter().find(|line| line.what == what);
        line.and_then(|line| line.got_us)
            .with_context(|| format!("{what} was not measured"))
    };
    let (small, full) = (got("spacing, small")?, got("spacing, full frames")?);
    let per_byte = (full - small) / (SIZES[1] - SIZES[0]);
    for (case, unit, paper, ours) in [
        ("o of a sender", "us", overhead, got("overhead, send")? / FACTOR),
        ("g", "us", gap, (small - per_byte * SIZES[0]) / FACTOR),
        ("L", "us", latency, (got("delay, small")? - small) / FACTOR),
        ("1/G", "MB/s", rate, FACTOR / per_byte),
    ] {
        outcome.rows.push(Row::measured(case, unit, paper, ours));
    }
    Ok(outcome)
}

fn table_2_2(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let found = measure(setting, &mut outcome, &KNOBS.map(|(knob, ..)| knob))?;
    let printed = tables::MARTIN_2_2.table();
    let mut curves = Vec::new();
    for (knob, name, own, pick) in KNOBS {
        let paper = |column: &'static str| -> Vec<(f64, f64)> {
            let rows = printed.rows().filter(|row| row.text("varied") == name);
            let point = |row: Printed<'_>| Some((row.number("desired_us")?, row.number(column)?));
            rows.filter_map(point).collect()
        };
        for (_, other, column, pick) in KNOBS {
            let case = format!("{other} observed per added {name}");
            outcome
                .rows
                .extend(per_added(case, paper(column), observed(&found, knob, pick))?);
        }
        curves.push(Curve::new(name, paper(own), []));
        curves.push(Curve::new(
            format!("{name}, ours"),
            [],
            observed(&found, knob, pick),
        ));
    }
    outcome.panels = vec![Panel {
        title: "observed over desired".into(),
        x: Scale::logarithmic("desired", "us"),
        y: Scale::logarithmic("observed", "us"),
        curves,
    }];
    Ok(outcome)
}

/// The slopes of what is observed over what was added; no row where the paper has none.
fn per_added(
    case: String,
    paper: impl IntoIterator<Item = (f64, f64)>,
    ours: impl IntoIterator<Item = (f64, f64)>,
) -> anyhow::Result<Option<Row>> {
    let Some(paper) = slope(paper) else {
        return Ok(None);
    };
    let ours = slope(ours).with_context(|| format!("{case}: too few settings were measured"))?;
    Ok(Some(Row::new(case, "us/us", (paper, SLOPE), ours)))
}

/// The text reads three things off the curves: each is compared as a share of what the network was given.
fn fig_2_3(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let found = measure(setting, &mut outcome, &[])?;
    let signature = found.signature.context("answers were lost; draw it again")?;
    let computations: Vec<f64> = {
        let mut all: Vec<f64> = signature
            .points
            .iter()
            .map(|point| point.computation_us)
            .collect();
        all.dedup();
        all
    };
    let curve = |computation: &f64| {
        let own = signature
            .points
            .iter()
            .filter(|point| point.computation_us == *computation);
        let points = own.map(|point| (f64::from(point.burst), point.interval_us));
        Curve::new(format!("computation {computation} us"), [], points)
    };
    outcome.panels = vec![Panel {
        title: "LogP signature".into(),
        x: Scale::logarithmic("burst", "messages"),
        y: Scale::linear("interval", "us"),
        curves: computations.iter().map(curve).collect(),
    }];
    let reading = signature.reading.context(
        "the signature cannot be read: this machine is too busy; end other programs and draw it again",
    )?;
    let network = signature.network;
    let mut table = Table::new(
        1,
        &["parameter", "set, us", "read off, us", "this machine alone, us"],
    );
    for (name, set, read, alone) in [
        (
            "o of a sender",
            network.overhead_us,
            reading.send_us,
            found.control.overhead_us,
        ),
        (
            "o of a receiver",
            network.overhead_us,
            reading.receive_us,
            found.control.overhead_us,
        ),
        ("g", network.gap_us, reading.gap_us, found.control.gap_us),
        (
            "L, with a message's service",
            network.latency_us + network.gap_us,
            reading.latency_us,
            found.control.latency_us,
        ),
    ] {
        table.row(vec![name.into(), computed(set), computed(read), computed(alone)]);
    }
    outcome.tables.push(("What the signature says".into(), table));
    for (case, paper, ours) in [
        (
            "interval of long bursts without computation, over g",
            1.0,
            reading.gap_us / network.gap_us,
        ),
        (
            "L read off, with a message's service, over what is set",
            1.0,
            (reading.latency_us - found.control.latency_us) / (network.latency_us + network.gap_us),
        ),
        (
            "interval of one message, over o of the sender and this machine's",
            1.0,
            reading.send_us / (network.overhead_us + found.control.overhead_us),
        ),
    ] {
        outcome.rows.push(Row::new(case, "", (paper, SLOPE), ours));
    }
    Ok(outcome)
}

/// Asked and observed G in us per byte, as the figures have it, of ns per byte. One is of the settings in their order.
fn per_byte(settings: impl Iterator<Item = (f64, Option<f64>)>) -> anyhow::Result<Vec<(f64, f64)>> {
    settings
        .map(|(asked, got)| {
            let got = got.with_context(|| {
                format!(
                    "G was not measured where {} us/B were added; draw it again",
                    asked / 1e3
                )
            })?;
            Ok((asked / 1e3, got / 1e3))
        })
        .collect()
}

/// Figs. 2.4 and 2.7 are straight lines of slope 1, and their lines lie on each other.
fn bulk_gap(setting: &Setting, over_tcp: bool) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let found = measure(setting, &mut outcome, &[Knob::Bandwidth])?;
    let messages = observed(&found, Knob::Bandwidth, |found| found.gap_per_byte_ns);
    let streams = found
        .settings
        .iter()
        .filter(|setting| setting.knob == Knob::Bandwidth);
    let streams = streams.map(|setting| (setting.desired, setting.measured.tcp_gap_per_byte_ns));
    let messages = per_byte(messages.map(|(asked, got)| (asked, Some(got))))?;
    let (name, seen, streams) = if over_tcp {
        let streams = per_byte(streams)?;
        ("TCP", streams.clone(), streams)
    } else {
        ("messages", messages.clone(), Vec::new())
    };
    let case = format!("G of {name} observed per added G");
    outcome.rows.push(Row::new(
        case,
        "us/us",
        (1.0, SLOPE),
        slope(seen.clone()).context("too few settings")?,
    ));
    let logarithmic = |seen: &[(f64, f64)]| slope(seen.iter().map(|(asked, got)| (asked.ln(), got.ln())));
    outcome.rows.push(Row::new(
        format!("exponent of {name}: a straight line has 1"),
        "",
        (1.0, SLOPE),
        logarithmic(&seen).context("too few settings")?,
    ));
    let mut curves = vec![Curve::new("messages", [], messages.clone())];
    if over_tcp {
        for ((asked, message), (_, stream)) in messages.iter().zip(&streams) {
            let case = format!("G of TCP over that of messages, at {asked} us/B");
            outcome
                .rows
                .push(Row::new(case, "", (1.0, SLOPE), stream / message));
        }
        curves.push(Curve::new("TCP", [], streams));
    }
    outcome.panels = vec![Panel {
        title: "bulk gap".into(),
        x: Scale::logarithmic("added G", "us/B"),
        y: Scale::logarithmic("observed G", "us/B"),
        curves,
    }];
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_without_a_stream_is_no_shorter_figure() {
        let all = [(10.0, Some(11.0)), (20.0, Some(21.0)), (40.0, Some(41.0))];
        assert_eq!(per_byte(all.into_iter()).unwrap()[1], (0.02, 0.021));
        let error = per_byte(all.into_iter().chain([(80.0, None)])).unwrap_err();
        assert!(error.to_string().contains("0.08 us/B"), "{error}");
    }

    #[test]
    fn only_what_the_paper_lacks_is_left_out() {
        let line = [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)];
        let row = |paper: &[(f64, f64)], ours: &[(f64, f64)]| {
            per_added("o".into(), paper.iter().copied(), ours.iter().copied())
        };
        assert!(row(&line, &line).unwrap().unwrap().agrees());
        assert!(row(&[], &line).unwrap().is_none());
        assert!(row(&line, &line[..1]).is_err());
    }
}
