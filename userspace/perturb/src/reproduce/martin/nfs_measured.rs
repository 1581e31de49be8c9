//! Chapter 5, measured: NFS response times of the thesis's two servers, emulated, over an emulated network.
//!
//! `perturb nfs curve` serves from memory with the stations of section 5.3.1 and loads as SFS does; the paper's points are those
//! of appendices A and B, in its own units: chapter 5 divides nothing.

mod server;

use anyhow::Context as _;
use perturb_models::{
    published::tables::{self, Embedded},
    queueing::OVERHEADS_PER_OPERATION,
};
use perturb_stats::Line;
use serde_json::Value;

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};
use server::{Levels, RAID, SCSI, STEADY_MS, Server, added_us, in_us, peak, printed};

const EMULATED: Differs = Differs {
    what: "the server's processor, disks and cache are emulated, with the times that section 5.3.1 states",
    why: "the machines are not at hand; a request waits as in the paper's model, and the cache holds its share of what SFS \
          accesses at that rate",
};

const VERSION: Differs = Differs {
    what: "NFS version 3 with the mix of version 2",
    why: "the client speaks version 3 alone; lookups, attributes and small reads are nearly the same calls",
};

const OWN_LATENCY: Differs = Differs {
    what: "the network's own latency is that of this machine",
    why: "the levels are added to some tens of us, which the NOW's 10 us contain",
};

const ADDED: Differs = Differs {
    what: "overhead is the paper's less 80 us",
    why: "the baseline's 80 us for each message are in the processor times that section 5.3.1 states",
};

const SHARED: Differs = Differs {
    what: "client, server and network share this machine's processors",
    why: "the thesis has three load generators, a server and a Myrinet; late calls count as response time here",
};

const SOME: Differs = Differs {
    what: "not all of the paper's levels are measured",
    why: "each takes half a minute for each throughput; the others lie between those measured",
};

const FLATTER: Differs = Differs {
    what: "the lines are flatter than the thesis's",
    why: "the emulated server is the model of section 5.3.1, whose lines have 8.5 and 10.4 us for each op/s there, too; the thesis \
          names writes past the cache as what the model lacks",
};

const ONE_TRIP: Differs = Differs {
    what: "response times rise by less than the 2.3 to 3.3 us of Table B.10 for each us of L",
    why: "a call waits for one round trip here, as in the model of section 5.3.3; what more waits there, the thesis leaves open",
};

const SYNCHRONOUS: Differs = Differs {
    what: "at 40 ms the peak falls to less than the half that the thesis has over TCP; UDP falls as TCP does",
    why: "each of 45 processes waits for its call: 45 in 80 ms are 562 op/s; both transports carry the same calls, and none is lost",
};

const AS_ESTIMATED: Differs = Differs {
    what: "the inverse of the peaks rises by as many us for each us of o as an operation has packets, about 2.4; the thesis's by 1.9 \
           (SCSI) and 3.7 (RAID)",
    why: "2.4 is the thesis's own estimate; why its two servers lie on either side of it, was not looked into",
};

const BUSY: Differs = Differs {
    what: "the highest throughputs of the thesis, up to 1097 op/s, are not reached",
    why: "the emulated processor is busy all the time at 1111 op/s, and each of 21 processes waits for its call",
};

const fn figure(
    name: &'static str,
    shows: &'static str,
    minutes: f64,
    draw: fn(&Setting) -> anyhow::Result<Outcome>,
) -> Figure {
    Figure::emulation(Paper::Martin, name, shows, minutes, draw).quick(1.0)
}

pub(super) static FIGURES: &[Figure] = &[
    figure(
        "martin-fig-5.3-measured",
        "NFS response time over throughput of both servers, and Table 5.1's lines through it",
        7.0,
        baselines,
    )
    .differs(&[FLATTER, EMULATED, VERSION, SHARED]),
    figure(
        "martin-fig-5.4-measured",
        "NFS response time over throughput, for latencies",
        35.0,
        over_latencies,
    )
    .differs(&[SOME, EMULATED, VERSION, SHARED, OWN_LATENCY]),
    figure(
        "martin-fig-5.5-measured",
        "NFS response time over latency, for throughputs",
        11.0,
        slices,
    )
    .differs(&[ONE_TRIP, EMULATED, VERSION, SHARED, OWN_LATENCY]),
    figure(
        "martin-fig-5.6-measured",
        "NFS over UDP and TCP, at latencies of a wide area",
        13.0,
        wide_area,
    )
    .differs(&[
        SYNCHRONOUS,
        EMULATED,
        SHARED,
        Differs {
            what: "NFS version 3 over both transports",
            why: "the thesis changes version and transport at once, and says that the two cannot be compared",
        },
    ]),
    figure(
        "martin-fig-5.7-measured",
        "NFS response time over throughput, for overheads",
        24.0,
        over_overheads,
    )
    .differs(&[SOME, EMULATED, VERSION, SHARED, ADDED]),
    figure(
        "martin-fig-5.8-measured",
        "peak throughput over overhead, and messages per operation",
        8.0,
        peaks,
    )
    .differs(&[AS_ESTIMATED, EMULATED, VERSION, SHARED, ADDED]),
    figure(
        "martin-fig-5.10-measured",
        "NFS response time over throughput, for bandwidths",
        14.0,
        over_bandwidths,
    )
    .differs(&[BUSY, SOME, EMULATED, VERSION, SHARED]),
];

fn panel(title: impl Into<String>, curves: Vec<Curve>) -> Panel {
    Panel {
        title: title.into(),
        x: Scale::linear("throughput", "op/s"),
        y: Scale::linear("response time", "ms"),
        curves,
    }
}

/// Response time over throughput at each level, beside a table that varies the same setting.
fn family(
    setting: &Setting,
    outcome: &mut Outcome,
    server: Server,
    levels: &Levels<'_>,
    (table, column): (Embedded, &str),
    more: &[&str],
) -> anyhow::Result<()> {
    let found = server.measure(setting, outcome, levels, server.chosen_rates(setting), more)?;
    let curve = |((value, _), found): (&(f64, String), &Value)| {
        let paper = printed(table, Some(column), *value);
        let paper = paper.into_iter().filter(|(_, response)| *response < STEADY_MS);
        Curve::new(format!("{} {value}", levels.knob), paper, server::levels(found))
            .within(server::intervals(found))
    };
    let curves = levels.settings.iter().zip(&found).map(curve).collect();
    outcome.panels.push(panel(server.name, curves));
    count(outcome, server, &found);
    Ok(())
}

/// The messages of an operation that were counted, beside the paper's.
fn count(outcome: &mut Outcome, server: Server, found: &[Value]) {
    let levels = found
        .iter()
        .flat_map(|curve| curve["levels"].as_array().into_iter().flatten());
    let counted: Vec<f64> = levels
        .filter_map(|level| level["packets_per_op"].as_f64())
        .collect();
    if let Some(median) = perturb_stats::median(&counted) {
        let case = format!("{}, messages per operation, counted", server.name);
        outcome
            .rows
            .push(Row::measured(case, "", OVERHEADS_PER_OPERATION, median));
    }
}

fn baselines(setting: &Setting) -> anyhow::Result<Outcome> {
    const BASE: [(f64, f64); 2] = [(198.0, 1053.0), (494.0, 1405.0)];
    let mut outcome = Outcome::default();
    let mut curves = Vec::new();
    let level = in_us(&[10.0]);
    let levels = Levels {
        knob: "latency",
        settings: &level,
    };
    let regression = tables::MARTIN_5_1.table();
    for ((server, table), range) in [(SCSI, tables::MARTIN_A_1), (RAID, tables::MARTIN_A_5)]
        .into_iter()
        .zip(BASE)
    {
        let rates: &[f64] = match (setting.quick, server.name) {
            (false, _) => server.rates,
            (true, "SCSI") => &[180.0, 602.0, 1020.0],
            (true, _) => &[270.0, 901.0, 1350.0],
        };
        let found = server.measure(setting, &mut outcome, &levels, rates, &[])?;
        count(&mut outcome, server, &found);
        let curve = found.first().context("a curve")?;
        let drawn = Curve::new(server.name, printed(table, None, 0.0), server::levels(curve));
        curves.push(drawn.within(server::intervals(curve)));
        // A level of ours lies a little beside the paper's, and counts all the same.
        let within: Vec<(f64, f64)> = server::levels(curve)
            .filter(|(rate, _)| (0.9 * range.0..=1.02 * range.1).contains(rate))
            .collect();
        let server_name = server.name.to_lowercase();
        let measured = regression
            .rows()
            .find(|row| row.text("server") == server_name && row.text("source") == "measured");
        if let (Some(row), Ok(line)) = (measured, Line::fit(&within))
            && let Some(slope) = row.number("slope_us_per_op_s")
        {
            let case = format!("{}, slope of the line", server.name);
            outcome
                .rows
                .push(Row::measured(case, "us per op/s", slope, 1e3 * line.slope));
        }
    }
    outcome.panels.push(panel("baseline", curves));
    Ok(outcome)
}

fn over_latencies(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (scsi, raid): (&[f64], &[f64]) = if setting.quick {
        (&[10.0, 4000.0], &[10.0, 4000.0])
    } else {
        (
            &[10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 4000.0],
            &[10.0, 150.0, 1000.0, 4000.0],
        )
    };
    for (server, values, table) in [
        (SCSI, scsi, tables::MARTIN_B_10),
        (RAID, raid, tables::MARTIN_B_11),
    ] {
        let settings = in_us(values);
        let levels = Levels {
            knob: "latency",
            settings: &settings,
        };
        family(setting, &mut outcome, server, &levels, (table, "latency_us"), &[])?;
    }
    Ok(outcome)
}

/// Vertical slices through figure 5.4, and their slope: in the thesis 3 us for each us of L.
fn slices(setting: &Setting) -> anyhow::Result<Outcome> {
    /// The slope begins there.
    const SENSITIVE_US: f64 = 150.0;
    let mut outcome = Outcome::default();
    let settings = in_us(if setting.quick {
        &[10.0, 1000.0, 4000.0]
    } else {
        &[10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 4000.0]
    });
    let levels = Levels {
        knob: "latency",
        settings: &settings,
    };
    let rates: &[f64] = if setting.quick {
        &[198.0, 602.0]
    } else {
        &[198.0, 397.0, 602.0]
    };
    let found = SCSI.measure(setting, &mut outcome, &levels, rates, &[])?;
    let mut curves = Vec::new();
    for (index, rate) in rates.iter().enumerate() {
        let paper = settings.iter().filter_map(|(latency, _)| {
            let all = printed(tables::MARTIN_B_10, Some("latency_us"), *latency);
            let near = all.into_iter().find(|(x, _)| (x / rate - 1.0).abs() < 0.01);
            near.map(|(_, response)| (*latency, response))
        });
        let paper: Vec<(f64, f64)> = paper.collect();
        let ours: Vec<(f64, f64)> = settings
            .iter()
            .zip(&found)
            .filter_map(|((latency, _), curve)| Some((*latency, curve["levels"][index]["mean_ms"].as_f64()?)))
            .collect();
        let parts = |points: &[(f64, f64)]| -> (Vec<_>, Vec<_>) {
            points
                .iter()
                .copied()
                .partition(|(latency, _)| *latency > SENSITIVE_US)
        };
        let ((there, flat_there), (here, flat_here)) = (parts(&paper), parts(&ours));
        if let (Ok(there), Ok(here)) = (Line::fit(&there), Line::fit(&here)) {
            let case = format!("us of response time for each us of L, {rate} op/s (the text: 3)");
            let (there, here) = (1e3 * there.slope, 1e3 * here.slope);
            outcome.rows.push(Row::measured(case, "us/us", there, here));
        }
        // Fig. 5.5 (b): hardly any rise up to there.
        let rise = |points: &[(f64, f64)]| Some(points.last()?.1 / points.first()?.1);
        if let (Some(there), Some(here)) = (rise(&flat_there), rise(&flat_here)) {
            let case =
                format!("response time at the last L of Fig. 5.5 (b) over that at the first, {rate} op/s");
            outcome.rows.push(Row::measured(case, "", there, here));
        }
        let intervals = settings.iter().zip(&found);
        let intervals = intervals
            .filter_map(|((latency, _), curve)| Some((*latency, server::interval(&curve["levels"][index])?)));
        curves.push(Curve::new(format!("{rate} op/s"), paper, ours).within(intervals));
    }
    outcome.panels.push(Panel {
        title: "SCSI".into(),
        x: Scale::linear("latency", "us"),
        y: Scale::linear("response time", "ms"),
        curves,
    });
    Ok(outcome)
}

/// No table has figure 5.6. Its text has one number: TCP keeps half of the peak at 40 ms.
fn wide_area(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let milliseconds: &[f64] = if setting.quick {
        &[40.0]
    } else {
        &[10.0, 20.0, 40.0]
    };
    let mut settings = in_us(&[10.0]);
    settings.extend(milliseconds.iter().map(|value| (*value, format!("{value}ms"))));
    let levels = Levels {
        knob: "latency",
        settings: &settings,
    };
    let rates: &[f64] = if setting.quick {
        &[RAID.beyond]
    } else {
        &[150.0, 600.0, RAID.beyond]
    };
    let transports = ["--transport", "udp,tcp"];
    let found = RAID.measure(setting, &mut outcome, &levels, rates, &transports)?;
    for (name, key) in [("UDP", "-udp"), ("TCP", "-tcp")] {
        let of_transport = |curve: &&Value| curve["name"].as_str().is_some_and(|name| name.ends_with(key));
        let own: Vec<&Value> = found.iter().filter(of_transport).collect();
        let base = own.first().map_or(0.0, |curve| peak(curve));
        let curves = settings.iter().zip(&own).map(|((_, level), curve)| {
            let relative = server::levels(curve).map(|(rate, response)| (100.0 * rate / base, response));
            Curve::new(format!("latency {level}"), [], relative)
        });
        outcome.panels.push(Panel {
            title: name.into(),
            x: Scale::linear("throughput, of the peak without latency", "%"),
            y: Scale::linear("response time", "ms"),
            curves: curves.collect(),
        });
        if let Some(last) = own.last().filter(|_| name == "TCP") {
            let case = "TCP, peak at 40 ms of that at 10 us";
            outcome
                .rows
                .push(Row::measured(case, "%", 50.0, 100.0 * peak(last) / base));
        }
    }
    Ok(outcome)
}

fn over_overheads(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (scsi, raid): (&[f64], &[f64]) = if setting.quick {
        (&[80.0, 280.0], &[80.0, 130.0])
    } else {
        (
            &[80.0, 130.0, 280.0, 480.0, 580.0],
            &[80.0, 105.0, 130.0, 180.0, 280.0],
        )
    };
    for (server, values, table) in [
        (SCSI, scsi, tables::MARTIN_B_13),
        (RAID, raid, tables::MARTIN_B_12),
    ] {
        let settings = added_us(values);
        let levels = Levels {
            knob: "overhead",
            settings: &settings,
        };
        family(
            setting,
            &mut outcome,
            server,
            &levels,
            (table, "overhead_us"),
            &["--burn"],
        )?;
    }
    Ok(outcome)
}

/// The greatest throughput under each overhead: 1/(Serv + n o), n messages for each operation.
fn peaks(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (scsi, raid): (&[f64], &[f64]) = if setting.quick {
        (&[80.0, 280.0, 580.0], &[80.0, 280.0])
    } else {
        (
            &[80.0, 105.0, 130.0, 180.0, 280.0, 480.0, 580.0],
            &[80.0, 85.0, 95.0, 100.0, 105.0, 130.0, 180.0, 280.0],
        )
    };
    let mut curves = Vec::new();
    for (server, values, table) in [
        (SCSI, scsi, tables::MARTIN_B_13),
        (RAID, raid, tables::MARTIN_B_12),
    ] {
        let settings = added_us(values);
        let levels = Levels {
            knob: "overhead",
            settings: &settings,
        };
        let found = server.measure(setting, &mut outcome, &levels, &[server.beyond], &["--burn"])?;
        count(&mut outcome, server, &found);
        let highest = |value: f64| {
            let points = printed(table, Some("overhead_us"), value);
            points.into_iter().map(|(rate, _)| rate).fold(0.0, f64::max)
        };
        let paper: Vec<(f64, f64)> = values.iter().map(|value| (*value, highest(*value))).collect();
        let ours: Vec<(f64, f64)> = values.iter().copied().zip(found.iter().map(peak)).collect();
        let inverse = |peaks: &[(f64, f64)]| -> Vec<(f64, f64)> {
            peaks.iter().map(|(o, peak)| (*o, 1e6 / peak)).collect()
        };
        if let (Ok(there), Ok(line)) = (Line::fit(&inverse(&paper)), Line::fit(&inverse(&ours))) {
            let case = format!("{}, rise of 1/peak for each us of o", server.name);
            outcome
                .rows
                .push(Row::measured(case, "us/us", there.slope, line.slope));
        }
        curves.push(Curve::new(server.name, paper, ours));
    }
    outcome.panels.push(Panel {
        title: "saturation".into(),
        x: Scale::linear("overhead", "us"),
        y: Scale::linear("peak throughput", "op/s"),
        curves,
    });
    Ok(outcome)
}

fn over_bandwidths(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let values: &[f64] = if setting.quick {
        &[26.0, 2.5, 1.2]
    } else {
        &[26.0, 9.1, 4.5, 2.5, 1.2]
    };
    let settings: Vec<(f64, String)> = values
        .iter()
        .map(|value| (*value, format!("{value}MB/s")))
        .collect();
    let levels = Levels {
        knob: "bandwidth",
        settings: &settings,
    };
    family(
        setting,
        &mut outcome,
        SCSI,
        &levels,
        (tables::MARTIN_B_14, "bandwidth_mb_s"),
        &[],
    )?;
    Ok(outcome)
}
