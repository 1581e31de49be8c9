//! Salisbury, Chen and Melhem 1999: locality of sequences of requests.

use anyhow::Context as _;
use perturb_models::{
    locality::{
        Method, Partitioning,
        cost::{Network, pearson},
        experiment, parse,
    },
    published::tables,
};

use super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};

const fn model(
    name: &'static str,
    shows: &'static str,
    draw: fn(&Setting) -> anyhow::Result<Outcome>,
) -> Figure {
    Figure::model(Paper::Salisbury, name, shows, draw)
}

const NETWORK: Differs = Differs {
    what: "load and cycle time of the network are chosen",
    why: "the paper prints neither; it says that Em/A has very little effect",
};

const SLIPS: Differs = Differs {
    what: "three rows of the print do not have the 160 requests that the others have",
    why: "(1 2 3)^20 (4 5 6 6)^20 has Table 2's value of (1 2 3 3)^20, 4.44 and 1.96 are those of 160 and 159 requests; there are 162",
};

pub(super) static FIGURES: &[Figure] = &[
    model("salisbury-table-1", "locality of short sequences by partitioning", |_| {
        printed("Salisbury, Chen and Melhem 1999, Table 1")
    }),
    model("salisbury-table-2", "locality of disjoint loops by partitioning", |_| {
        printed("Salisbury, Chen and Melhem 1999, Table 2")
    }),
    model("salisbury-table-4", "locality of overlapping loops, natural and single", |_| {
        printed("Salisbury, Chen and Melhem 1999, Table 4")
    }),
    model("salisbury-table-5", "overlap up to which the natural partitioning is the best", |_| {
        printed("Salisbury, Chen and Melhem 1999, Table 5")
    }),
    model("salisbury-table-6", "locality of sequences of equal length", |_| {
        printed("Salisbury, Chen and Melhem 1999, Table 6")
    })
    .differs(&[SLIPS]),
    model("salisbury-table-7", "the same thresholds by another measure of spatial locality", |_| {
        printed("Salisbury, Chen and Melhem 1999, Table 7")
    }),
    model("salisbury-fig-1", "the decision function of two loops over their shares", |_| Ok(decision()))
        .differs(&[Differs {
            what: "the numbers of the text are compared, not the curves",
            why: "the figure is a drawing; 4.2 prints the thresholds",
        }]),
    model("salisbury-fig-2", "locality of loops with a common core, grouped by w", |_| grouped())
        .differs(&[Differs {
            what: "the numbers of the text are compared, not the curves; the examples' loops run 20 times",
            why: "the figure is a drawing; the number of runs is the same in both partitionings, and not printed",
        }]),
    model("salisbury-fig-3", "cost and inverse locality of the sequences of Table 6", |_| costs())
        .differs(&[SLIPS, NETWORK]),
    model(
        "salisbury-experiment",
        "correlation of cost and 1/L of random programs (5.2)",
        random,
    )
    .quick(0.02)
    .differs(&[
        NETWORK,
        Differs {
            what: "the number of loops is fixed in each set",
            why: "the restrictions of the paper's sets are not printed; without any the correlation is about 0.5",
        },
    ]),
];

#[expect(clippy::unnecessary_wraps, reason = "a preset may fail")]
fn printed(source: &str) -> anyhow::Result<Outcome> {
    Ok(Outcome::printed("locality", &[source]))
}

/// (11) with z = l_1/lambda: d is 1 where both partitionings are equally good.
fn decision() -> Outcome {
    let panel = |title: &str, ratio: f64| {
        let curve = |overlap: f64| {
            let (first, second) = (1.0, 1.0 / ratio);
            let paths: f64 = first / overlap;
            let value = move |share: f64| {
                let spread = (share / first).hypot((1.0 - share) / second);
                (share, paths * paths / (first + second) * spread)
            };
            let shares = (0..=50).map(|step| f64::from(step) / 50.0);
            Curve::new(format!("z = {overlap}"), [], shares.map(value))
        };
        Panel {
            title: title.to_owned(),
            x: Scale::linear("u_1, share of the requests in loop 1", ""),
            y: Scale::linear("decision function d", ""),
            curves: [0.5, 0.59, 0.65, 0.71, 0.8].map(curve).into(),
        }
    };
    let mut outcome = Outcome::printed("locality", &["Salisbury, Chen and Melhem 1999, 4.2"]);
    outcome.panels = vec![panel("(a) l_1 = l_2", 1.0), panel("(b) l_1 = 2 l_2", 2.0)];
    outcome
}

/// Section 4.3: L of the natural partitioning over that of groups of w loops which share l_c of their l paths.
fn grouped() -> anyhow::Result<Outcome> {
    let relative = |shared: f64, loops: f64| {
        let paths = loops * (1.0 - shared) + shared;
        paths * paths / (loops * loops.sqrt())
    };
    let curve = |shared: f64| {
        let groups = (1..=8).map(f64::from);
        Curve::new(
            format!("l_c/l = {shared}"),
            [],
            groups.map(|w| (w, relative(shared, w))),
        )
    };
    let mut outcome = Outcome::of_panels([Panel {
        title: "the least has the greatest locality".into(),
        x: Scale::linear("w, loops in a partition", ""),
        y: Scale::linear("L of the natural partitioning over L of groups", ""),
        curves: [0.0, 0.14, 0.25, 0.32, 0.5, 0.6].map(curve).into(),
    }]);
    for (requests, paper) in [
        ("(1 2 3 4)^20 (1 2 5 6)^20 (1 2 7 8)^20", 3.0),
        ("(1 2 3 4)^20 (1 5 6 7)^20 (1 8 9 10)^20", 1.0),
    ] {
        let document = parse(requests)?;
        let mut best = (0.0, 0.0);
        for loops in 1..=3_u32 {
            let found = Partitioning::by(Method::Grouped(loops.into()), &document)?;
            let locality = found.locality().locality;
            if locality > best.1 {
                best = (f64::from(loops), locality);
            }
        }
        let case = format!("best w of {requests}");
        outcome.rows.push(Row::new(case, "loops", (paper, 0.0), best.0));
    }
    // Up to which share of the core the natural partitioning is the best.
    let text = printed("Salisbury, Chen and Melhem 1999, 4.2")?;
    let share = text.rows.into_iter().filter(|row| row.case.contains("l_c/l"));
    outcome.rows.extend(share);
    Ok(outcome)
}

/// Fig. 3: both relative to the first sequence's.
fn costs() -> anyhow::Result<Outcome> {
    let table = tables::LOCALITY_TABLE6.table();
    let mut panels = Vec::new();
    let mut rows = Vec::new();
    let mut localities: Vec<(f64, f64)> = Vec::new();
    let mut printed: Vec<(f64, f64)> = Vec::new();
    let mut curves = Vec::new();
    for load in [30.0, 50.0, 100.0] {
        let network = Network::new(load, 1.0, 1)?;
        let mut costs = Vec::new();
        localities.clear();
        printed.clear();
        for (place, row) in (1_u32..).zip(table.rows()) {
            let found = Partitioning::by(Method::Natural, &parse(row.text("requests"))?)?;
            let paper = row.number("locality_l").context("a locality of Table 6")?;
            localities.push((f64::from(place), 1.0 / found.locality().locality));
            printed.push((f64::from(place), 1.0 / paper));
            costs.push((f64::from(place), network.cost(&found.partitions).total));
        }
        let pairs: Vec<(f64, f64)> = costs
            .iter()
            .zip(&localities)
            .map(|(cost, l)| (cost.1, l.1))
            .collect();
        let correlation = pearson(&pairs).context("the costs of Table 6 do not vary")?;
        let case = format!("correlation of cost and 1/L, Em/A = {load}");
        let remark = "fitted: the network is not printed; these give 0.93, an Em/A of 200 and more does not";
        rows.push(Row::new(case, "", (0.93, 0.005), correlation).fitted(remark));
        let first = costs[0].1;
        curves.push(Curve::new(
            format!("Em/A = {load}"),
            [],
            costs.into_iter().map(|(place, cost)| (place, cost / first)),
        ));
    }
    let place = Scale::linear("sequence of Table 6", "");
    panels.push(Panel {
        title: "(a) inverse of locality".into(),
        x: place,
        y: Scale::linear("1/L", ""),
        curves: vec![Curve::new("1/L", printed, localities)],
    });
    panels.push(Panel {
        title: "(b) relative cost".into(),
        x: place,
        y: Scale::linear("cost over that of the first", ""),
        curves,
    });
    Ok(Outcome {
        panels,
        rows,
        ..Outcome::default()
    })
}

/// Sets of random programs: 0.60 to 0.80, and more for one loop.
fn random(setting: &Setting) -> anyhow::Result<Outcome> {
    let programs = if setting.quick { 100 } else { 1000 };
    let mut rows = Vec::new();
    for (load, paths) in [(100.0, 1), (100.0, 16), (1000.0, 1), (1000.0, 16), (10_000.0, 16)] {
        let network = Network::new(load, 1.0, paths)?;
        for loops in [1, 2, 3, 5, 8] {
            let found = experiment::run(&network, programs, Some(loops), 1).correlation;
            let found = found.context("costs of random programs do not vary")?;
            let (name, range) = match loops {
                1 => ("1 loop: above 0.80", (0.9, 0.1)),
                _ => ("0.60 to 0.80", (0.7, 0.1)),
            };
            let case = format!("{loops} loops, E/A = {load}, m = {paths}; {name}");
            let remark = "given: the network and the restrictions of the sets are not printed";
            rows.push(Row::new(case, "", range, found).fitted(remark));
        }
    }
    Ok(Outcome {
        rows,
        ..Outcome::default()
    })
}
