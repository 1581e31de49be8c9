//! Figs 4 to 6 live: long messages, by mapping.

use anyhow::Context as _;
use perturb_models::{
    logpc::predict,
    mesh::{comparison::settings, simulation::simulate},
    published::logpc::bulk,
};
use perturb_present::{Table, computed};

use super::super::{
    figure::{Differs, Setting},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};
use super::live::{ALEWIFE, CYCLE_US, HEADERS, LATENCY, PART, PER_BYTE, SMALL};

/// Payload of a long message whose frames have so many bytes on the wire at most.
pub(super) fn payload(bytes: u64) -> u64 {
    let whole = bytes / (PART + HEADERS);
    whole * PART + (bytes % (PART + HEADERS)).saturating_sub(HEADERS)
}

pub(super) fn fig_6(setting: &Setting) -> anyhow::Result<Outcome> {
    /// The measured interval of section 5.1.3, cycles per byte.
    const MEASURED: f64 = 2.03;
    let (machine, sizes, mappings, iterations): (_, &[u64], &[&str], _) = if setting.quick {
        (SMALL, &[1000, 4000], &["perfect", "random"], 5)
    } else {
        (
            ALEWIFE,
            &[1000, 2000, 4000, 8000, 16_000],
            &["perfect", "linear", "random"],
            12,
        )
    };
    let mut outcome = Outcome::default();
    if setting.quick {
        outcome.differs.push(Differs {
            what: "16 hosts in a mesh of 4 x 4",
            why: "the short form; distances are shorter, so there is less contention",
        });
    }
    let header = [
        "mapping",
        "B, bytes",
        "interval, cycles",
        "over B",
        "arrival, cycles",
        "bytes per cycle",
        "channels",
        "wait of a frame, cycles",
    ];
    let mut table = Table::new(1, &header);
    let (mut curves, mut arrivals) = (Vec::new(), Vec::new());
    for mapping in mappings {
        let mut points = Vec::new();
        for &bytes in sizes {
            let payload = payload(bytes);
            // Headers take their part of G.
            let per_byte = PER_BYTE * CYCLE_US * 1e3 * bytes as f64 / payload as f64;
            let options = format!(
                "--style long --mapping {mapping} --iterations {iterations} --message {payload}B --send 1ms --per-byte {per_byte:.0}ns"
            );
            let live = machine.remap(setting, &mut outcome, &options)?;
            // The news of the arrival is a frame without waiting, at most.
            let news = live.hops * (f64::from(20 + HEADERS as u32) * PER_BYTE + LATENCY);
            let arrival = live.round_trip.context("a round trip")? - news;
            table.row(vec![
                (*mapping).into(),
                bytes.to_string(),
                computed(live.interval),
                computed(live.interval / bytes as f64),
                computed(arrival),
                computed(bytes as f64 / arrival),
                computed(live.hops),
                computed(live.wait),
            ]);
            points.push((bytes as f64, live.interval));
            if *mapping == "perfect" {
                arrivals.push((bytes as f64, arrival));
            }
        }
        let paper = sizes.iter().map(|&bytes| (bytes as f64, MEASURED * bytes as f64));
        let paper: Vec<_> = if *mapping == "random" {
            paper.collect()
        } else {
            Vec::new()
        };
        curves.push(Curve::new(format!("T_c live, {mapping}"), paper, points));
    }
    let mesh = machine.mesh()?;
    let (mut equation, mut exact) = (Vec::new(), Vec::new());
    for &bytes in sizes {
        let bytes = bytes as f64;
        let mut parameters = bulk(bytes, None).context("Table 2")?;
        parameters.network.distance = mesh.mean_distance_per_dimension();
        equation.extend(
            predict(&parameters)
                .intermessage_cycles
                .map(|cycles| (bytes, cycles)),
        );
        // Channels of two bytes per cycle, as live.
        let mut settings = settings(&parameters, 20_000, 1);
        settings.message.bytes *= PER_BYTE;
        settings.message.gap_per_byte = 1.0;
        exact.push((bytes, simulate(&mesh, settings).period_cycles));
    }
    curves.push(Curve::new("T_c by (13)", [], equation));
    curves.push(Curve::new("T_c simulated, 2 B per cycle", [], exact));
    outcome.panels = vec![Panel {
        title: "interval of messages as fast as possible".into(),
        x: Scale::linear("message size", "B"),
        y: Scale::linear("interval", "cycles"),
        curves,
    }];
    alone(&mut outcome, arrivals)?;
    let caption = "Live: T_c is the interval; waits are the emulator's counters'";
    outcome.tables.push((caption.into(), table));
    Ok(outcome)
}

/// Figs 4 and 5: messages between neighbors, which share no channel.
fn alone(outcome: &mut Outcome, arrivals: Vec<(f64, f64)>) -> anyhow::Result<()> {
    let (mut delivery, mut sending, mut bandwidth) = (Vec::new(), Vec::new(), Vec::new());
    for &(bytes, _) in &arrivals {
        let message = bulk(bytes, None).context("Table 2")?.message;
        delivery.push((bytes, message.long()));
        sending.push((bytes, message.sending()));
        bandwidth.push((bytes, bytes / message.sending()));
    }
    let (bytes, last) = arrivals.last().copied().context("a message between neighbors")?;
    // Below that Fig. 5 is not constant.
    if bytes >= 10_000.0 {
        let printed = bulk(bytes, None).context("Table 2")?.message.gap_per_byte;
        outcome.rows.push(Row::measured(
            format!("bandwidth between neighbors at {bytes} B (1/G of Table 2)"),
            "B/cycle",
            1.0 / printed,
            bytes / last,
        ));
    }
    let live: Vec<_> = arrivals
        .iter()
        .map(|(bytes, time)| (*bytes, bytes / time))
        .collect();
    outcome.panels.extend([
        Panel {
            title: "Fig. 4: one long message".into(),
            x: Scale::logarithmic("message size", "B"),
            y: Scale::logarithmic("time", "cycles"),
            curves: vec![
                Curve::new("end to end, live", [], arrivals),
                Curve::new("end to end (2)", [], delivery),
                Curve::new("sender, O_s", [], sending),
            ],
        },
        Panel {
            title: "Fig. 5: bandwidth".into(),
            x: Scale::logarithmic("message size", "B"),
            y: Scale::linear("bandwidth", "B/cycle"),
            curves: vec![Curve::new("live", [], live), Curve::new("B/O_s", [], bandwidth)],
        },
    ]);
    Ok(())
}
