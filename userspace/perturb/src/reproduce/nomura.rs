//! Nomura, Matsuba and Ishikawa 2007: messages over a tree of switches, with TCP's time-outs.

mod example;
mod measured;

use perturb_models::{
    plogpt::{CollectiveKind, PlogptInput, PlogptPrediction, ProgramInput, predict},
    published::{plogpt::table2_parameters, tables},
};
use perturb_present::{Table, computed};
use perturb_quantity::ByteSize;

use super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};

const fn model(
    name: &'static str,
    shows: &'static str,
    draw: fn(&Setting) -> anyhow::Result<Outcome>,
) -> Figure {
    Figure::model(Paper::Nomura, name, shows, draw)
}

const CLAIMS: Differs = Differs {
    what: "what is compared is what the text says of the curves: how many time-outs, and which algorithm is faster",
    why: "the figure is a drawing; no time is printed",
};

const CHOSEN: Differs = Differs {
    what: "L = 60 us, J = 30 us and g(m) are chosen",
    why: "the paper prints Table II alone",
};

pub(super) use measured::FIGURES as MEASURED;

pub(super) static FIGURES: &[Figure] = &[
    model(
        "nomura-table-2",
        "which heights of the tree are different switches",
        |_| Ok(switches()),
    ),
    model(
        "nomura-fig-5",
        "all to all by PlogP, and what time-outs add by PlogPT, 32 nodes",
        |_| fig_5(),
    )
    .differs(&[
        CHOSEN,
        Differs {
            what: "of the text, that the difference is nearly a multiple of 200 ms, for PlogPT in the place of the measurement",
            why: "the figure is a drawing; measured are the rows of 32 nodes, B, of nomura-fig-17-measured",
        },
    ]),
    model("nomura-fig-12", "the worked example of Figs 9 to 12", |_| {
        Ok(Outcome::printed("plogpt", &["PlogPT, figs. 9 to 12"]))
    }),
    model(
        "nomura-fig-17",
        "both all-to-alls over the message size, 4, 8 and 32 nodes, by PlogPT and PlogP",
        |_| fig_17(),
    )
    .differs(&[CLAIMS, CHOSEN]),
];

/// Sizes of Fig. 17.
const SIZES: [f64; 11] = [
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16384.0,
    32768.0,
    65536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
];

/// The time-outs of `Alltoall_B` that section IV-B tells of: changes of switches that a message exceeds the buffer of (24).
const fn timeouts(nodes: u32) -> f64 {
    if nodes == 32 { 2.0 } else { 1.0 }
}

/// (5) on neighboring heights. The tolerance is not printed; that one exists which gives the paper's switches is.
fn switches() -> Outcome {
    let table = tables::PLOGPT_TABLE2.table();
    let level = |row: tables::Row<'_>| {
        Some((
            row.number("height")?,
            row.number("bidirectional_bandwidth_per_node_mbit_s")?,
            row.number("bidirectional_twice_delay_us")?,
        ))
    };
    let levels: Vec<(f64, f64, f64)> = table.rows().filter_map(level).collect();
    let mut shown = Table::new(1, &["heights", "(5), left-hand side"]);
    let (mut equal, mut different) = (0.0_f64, f64::INFINITY);
    for pair in levels.windows(2) {
        let [low, high] = pair else { continue };
        let distance = (low.1 / high.1).ln().powi(2) + (low.2 / high.2).ln().powi(2);
        shown.row(vec![format!("{}, {}", low.0, high.0), computed(distance)]);
        // P_S(h, h + 1) is false where h is 2 or 3 (IV-B).
        if [2.0, 3.0].contains(&low.0) {
            equal = equal.max(distance);
        } else {
            different = different.min(distance);
        }
    }
    let separated = if equal < different { 1.0 } else { 0.0 };
    let mut outcome = Outcome::printed("plogpt", &["PlogPT, section IV-B"]);
    outcome.rows.insert(
        0,
        Row::new(
            "a tolerance separates heights 2, 3, 4 from the others, 1 for true",
            "",
            (1.0, 0.0),
            separated,
        ),
    );
    outcome
        .tables
        .push(("Table II, both directions loaded".into(), shown));
    outcome
}

fn alltoall(kind: CollectiveKind, nodes: u32, bytes: f64) -> anyhow::Result<PlogptPrediction> {
    let mut parameters = table2_parameters();
    parameters.nodes = nodes;
    parameters.links.truncate(nodes.trailing_zeros() as usize);
    let program = ProgramInput {
        ranks: None,
        collective: Some(kind),
        message: Some(ByteSize(bytes)),
        root: None,
    };
    Ok(predict(&PlogptInput { parameters, program })?)
}

fn fig_5() -> anyhow::Result<Outcome> {
    const TIMEOUT_US: f64 = 200e3;
    let (mut plogp, mut plogpt) = (Vec::new(), Vec::new());
    let mut rows = Vec::new();
    for bytes in SIZES {
        let found = alltoall(CollectiveKind::AlltoallB, 32, bytes)?;
        if let (Some(plogp), 1..) = (found.plogp_us, found.retransmission_timeouts) {
            let case = format!(
                "PlogPT less PlogP, in time-outs, with {bytes} B; the paper's is the nearest multiple"
            );
            let multiple = (found.total_us - plogp) / TIMEOUT_US;
            let row = Row::measured(case, "time-outs", multiple.round().max(1.0), multiple);
            rows.push(row.fitted("given: L, J and g(m) are not printed"));
        }
        plogp.extend(found.plogp_us.map(|us| (bytes, us / 1e3)));
        plogpt.push((bytes, found.total_us / 1e3));
    }
    let mut outcome = Outcome::of_panels([Panel {
        title: "Alltoall_B, 32 nodes".into(),
        x: Scale::logarithmic("message size", "B"),
        y: Scale::logarithmic("time", "ms"),
        curves: vec![Curve::new("PlogP", [], plogp), Curve::new("PlogPT", [], plogpt)],
    }]);
    outcome.rows = rows;
    Ok(outcome)
}

fn fig_17() -> anyhow::Result<Outcome> {
    const GIVEN: &str = "given: L, J and g(m) are not printed";
    let mut outcome = Outcome::default();
    for nodes in [4, 8, 32] {
        let mut curves = Vec::new();
        let mut found = Vec::new();
        for (name, kind) in [("A", CollectiveKind::AlltoallA), ("B", CollectiveKind::AlltoallB)] {
            let all: Vec<PlogptPrediction> = SIZES
                .iter()
                .map(|bytes| alltoall(kind, nodes, *bytes))
                .collect::<anyhow::Result<_>>()?;
            let sized = || SIZES.into_iter().zip(&all);
            let plogp = sized().filter_map(|(bytes, one)| Some((bytes, one.plogp_us? / 1e3)));
            let plogpt = sized().map(|(bytes, one)| (bytes, one.total_us / 1e3));
            curves.push(Curve::new(format!("{name}, PlogPT"), [], plogpt));
            curves.push(Curve::new(format!("{name}, PlogP"), [], plogp));
            found.push(all);
        }
        let [a, b] = &found[..] else { continue };
        let pairs = || a.iter().zip(b);
        let claimed = pairs().filter(|(a, b)| (a.total_us < b.total_us) == (b.retransmission_timeouts > 0));
        let sizes = SIZES.len() as f64;
        outcome.rows.push(Row::new(
            format!(
                "sizes at which A is the faster one if and only if B has a time-out, {nodes} nodes (26), (27)"
            ),
            "sizes",
            (sizes, 0.0),
            claimed.count() as f64,
        ).fitted(GIVEN));
        let slower = pairs().filter(|(a, b)| a.plogp_us > b.plogp_us);
        outcome.rows.push(
            Row::new(
                format!("sizes at which PlogP has A as the slower one, {nodes} nodes (20)"),
                "sizes",
                (sizes, 0.0),
                slower.count() as f64,
            )
            .fitted(GIVEN),
        );
        // (24): a change of switches, and a message larger than the buffer at it.
        let last = alltoall(CollectiveKind::AlltoallB, nodes, 100_000.0)?;
        outcome.rows.push(
            Row::new(
                format!("time-outs of B with 100 kB, {nodes} nodes (24)"),
                "time-outs",
                (timeouts(nodes), 0.0),
                f64::from(last.retransmission_timeouts),
            )
            .fitted(GIVEN),
        );
        outcome.panels.push(Panel {
            title: format!("{nodes} nodes"),
            x: Scale::logarithmic("message size", "B"),
            y: Scale::logarithmic("time", "ms"),
            curves,
        });
    }
    Ok(outcome)
}
