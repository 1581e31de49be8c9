//! Fig. 17 and Table II on an emulated tree: Table II's, each rate divided by one factor, the buffers as many bytes.
//!
//! Real TCP between private hosts, as `perturb rto` measures it, beside PlogPT and PlogP of the same tree.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use perturb_emulator::{conduct::Pacing, lab, prepared::Prepared};
use perturb_experiments::rto::{self, Plan, Series};
use perturb_models::{plogpt::Beside, published::tables};
use perturb_present::{LiveLine, Table, computed, shell};
use perturb_quantity::Micros;
use perturb_workloads::collective::Algorithm;
use serde_json::{Deserializer, Value};

use super::{
    super::{
        figure::{Differs, Figure, Paper, Setting},
        outcome::{Curve, Outcome, Panel, Row, Scale},
    },
    example, timeouts,
};

/// Every rate of Table II is divided by it: what 32 hosts send together then fits through one machine.
const FACTOR: f64 = 50.0;

const SCALED: Differs = Differs {
    what: "Table II's rates divided by 50; buffers have as many bytes, J is 50 times as long, the time-out is Linux' 200 ms",
    why: "32 hosts at 580 Mbit/s are beyond one machine; the sizes at which buffers overflow stay the same (height 4 has 0.6 % less of both: an edge carries no more than both below it)",
};

const WAITING: Differs = Differs {
    what: "YAMPI is not at hand: a thread in each host has the loops of Fig. 13, and TCP of 2007 (Reno, no SACK)",
    why: "the paper names neither its kernel nor its TCP's options",
};

const CLAIMS: Differs = Differs {
    what: "what is compared is what the text says of Fig. 17; the markers are the paper's model of the slower tree",
    why: "the figure is a drawing; no time is printed",
};

pub(crate) static FIGURES: &[Figure] = &[
    Figure::emulation(
        Paper::Nomura,
        "nomura-table-2-measured",
        "bandwidth between halves of the emulated tree, by height",
        1.5,
        table_2,
    )
    .quick(0.3)
    .differs(&[
        SCALED,
        Differs {
            what: "one direction is loaded, and compared with the column of both",
            why: "the emulated edges have that column's rates in each direction, and share nothing",
        },
        Differs {
            what: "d(h) is not compared",
            why: "the paper's is of a round trip; a flood shows the first buffer that is full on one way, and every edge has its own",
        },
    ]),
    Figure::emulation(
        Paper::Nomura,
        "nomura-fig-12-measured",
        "the worked example of Figs 9 to 12, run on an emulated tree",
        0.2,
        example::fig_12,
    )
    .differs(example::DIFFERS),
    Figure::emulation(
        Paper::Nomura,
        "nomura-fig-17-measured",
        "both all-to-alls over the message size, 4, 8 and 32 nodes: measured, PlogPT and PlogP",
        15.0,
        fig_17,
    )
    .quick(1.5)
    .differs(&[SCALED, WAITING, CLAIMS]),
];

/// The tree below `2^heights` hosts; `egress` is what a host has before it.
fn tree(heights: usize, egress: &str) -> anyhow::Result<String> {
    let table = tables::PLOGPT_TABLE2.table();
    let mut levels = String::new();
    let mut below = f64::INFINITY;
    for (height, row) in table.rows().take(heights).enumerate() {
        let number = |column: &str| row.number(column).context("Table II");
        let hosts = (1_u32 << height) as f64;
        let rate = number("bidirectional_bandwidth_per_node_mbit_s")? * hosts / FACTOR;
        // No edge carries more than both below it.
        below = rate.min(2.0 * below);
        let drained = number("bidirectional_twice_delay_us")? / 2.0 * FACTOR;
        levels += &format!("    - {{ bandwidth: {below:.4}Mbit/s, buffer_delay: {drained:.0}us }}\n");
    }
    Ok(format!(
        "version: 1\nname: plogpt-table2-slow\n{egress}  levels:\n{levels}\
         tcp: {{ congestion_control: reno, sack: false, rto_min: 200ms, offloads: false, no_metrics_save: true }}\n"
    ))
}

/// A host's own queue drops nothing: what it sends is as fast as its link.
fn egress() -> anyhow::Result<String> {
    let table = tables::PLOGPT_TABLE2.table();
    let rate = table
        .rows()
        .next()
        .and_then(|row| row.number("bidirectional_bandwidth_per_node_mbit_s"));
    let rate = rate.context("Table II")? / FACTOR;
    Ok(format!(
        "servers: {{ nic: {{ bandwidth: {rate:.4}Mbit/s }} }}\ntopology:\n  kind: tree\n  sharing: unidirectional\n  egress: [nic]\n"
    ))
}

/// Rounds of one algorithm, for each size.
fn rounds(
    setting: &Setting,
    outcome: &mut Outcome,
    (nodes, algorithm): (u32, Algorithm),
    sizes: &[u64],
    rounds: u32,
) -> anyhow::Result<Vec<Series>> {
    /// Of the model's figure, by the factor.
    const JITTER: Duration = Duration::from_micros(1500);
    const WARM_UP: u32 = 1;
    let profile = tree(nodes.trailing_zeros() as usize, &egress()?)?;
    let path = setting.write(&format!("{nodes}-nodes.yaml"), &profile)?;
    let listed: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let command = format!(
        "perturb rto {} --hosts {nodes} --algorithm {} --message {} --rounds {rounds} --warmup {WARM_UP} --jitter {}us",
        shell::quoted(&path),
        algorithm.name(),
        listed.join(","),
        JITTER.as_micros(),
    );
    let plan = Plan {
        name: algorithm.name(),
        programs: sizes
            .iter()
            .map(|size| rto::collective(algorithm, *size))
            .collect(),
        rounds,
        warmup: WARM_UP,
        pause: Duration::from_millis(20),
        beside: Beside {
            jitter: Some(Micros(JITTER.as_secs_f64() * 1e6)),
            ..Beside::default()
        },
        profile: Prepared::read(&path)?,
    };
    series(setting, outcome, command, (&path, nodes), plan)
}

/// What `perturb rto` measures on so many hosts of a profile.
pub(super) fn series(
    setting: &Setting,
    outcome: &mut Outcome,
    command: String,
    (path, hosts): (&Path, u32),
    plan: Plan,
) -> anyhow::Result<Vec<Series>> {
    let prepared = Prepared::load_for(path, &lab::all_addresses(hosts))?;
    let measure = || rto::measure(hosts, &prepared, Pacing::default(), plan, LiveLine::stderr(false));
    let (series, faults) = setting.work(outcome, command, measure)?;
    ensure!(
        faults.is_empty(),
        "the emulation lost packets that it should not: {faults:?}"
    );
    Ok(series)
}

fn fig_17(setting: &Setting) -> anyhow::Result<Outcome> {
    let (sizes, count): (&[u64], u32) = if setting.quick {
        (&[4 << 10, 16 << 10, 128 << 10], 2)
    } else {
        (
            &[
                1 << 10,
                2 << 10,
                4 << 10,
                8 << 10,
                16 << 10,
                32 << 10,
                64 << 10,
                128 << 10,
                256 << 10,
            ],
            10,
        )
    };
    let mut outcome = Outcome::default();
    for nodes in [4, 8, 32] {
        let mut found = Vec::new();
        for algorithm in [Algorithm::AlltoallA, Algorithm::AlltoallB] {
            found.push(rounds(setting, &mut outcome, (nodes, algorithm), sizes, count)?);
        }
        let [a, b] = &found[..] else { continue };
        outcome.rows.extend(claims(nodes, a, b));
        outcome.panels.push(panel(nodes, [("A", a), ("B", b)]));
        let caption = format!("{nodes} nodes; times in ms; delayed: rounds with time-outs");
        outcome.tables.push((caption, table([("A", a), ("B", b)])));
    }
    Ok(outcome)
}

/// What section IV-B says of the measurements.
fn claims(nodes: u32, a: &[Series], b: &[Series]) -> Vec<Row> {
    /// Buffers of Table II overflow beyond: the paper's smallest limit is 18,204 B.
    const FITS: u64 = 18_204;
    let has_timeout = |series: &Series| series.timeouts_by_round.iter().any(|count| *count > 0);
    let row = |case: String, unit, paper, tolerance, ours| {
        Row::new(format!("{nodes} nodes, {case}"), unit, (paper, tolerance), ours)
    };
    let count = |pick: &dyn Fn(&(&Series, &Series)) -> bool| a.iter().zip(b).filter(pick).count() as f64;
    let sizes = a.len() as f64;
    let mut rows = vec![
        row(
            "sizes at which A is the faster one if and only if B has a time-out (26), (27)".into(),
            "sizes",
            sizes,
            0.0,
            count(&|(a, b)| (a.median() < b.median()) == has_timeout(b)),
        ),
        row(
            "sizes within the buffers at which B has a time-out".into(),
            "sizes",
            0.0,
            0.0,
            count(&|(_, b)| b.message_bytes <= FITS && has_timeout(b)),
        ),
    ];
    for (name, all) in [("A", a), ("B", b)] {
        let error = |predicted: f64, series: &Series| (predicted / series.median() - 1.0).abs();
        let nearer = all.iter().filter(|series| {
            let plogpt = series.predicted_ms.plogpt;
            let plogp = series.predicted_ms.plogp;
            plogpt
                .zip(plogp)
                .is_some_and(|(one, other)| error(one, series) <= error(other, series))
        });
        rows.push(row(
            format!("sizes at which PlogPT is nearer to the median of {name} than PlogP"),
            "sizes",
            sizes,
            0.0,
            nearer.count() as f64,
        ));
    }
    if let Some(last) = b.iter().find(|series| series.message_bytes == 128 << 10) {
        rows.push(row(
            "delay of B with 128 KiB, in time-outs (24)".into(),
            "time-outs",
            timeouts(nodes),
            0.5,
            (last.median() - last.ideal_ms) / last.rto_ms,
        ));
    }
    rows
}

fn panel(nodes: u32, both: [(&str, &[Series]); 2]) -> Panel {
    let mut curves = Vec::new();
    for (name, all) in both {
        let bytes = |series: &Series| series.message_bytes as f64;
        let measured = all.iter().map(|series| (bytes(series), series.median()));
        let plogpt = all
            .iter()
            .filter_map(|series| Some((bytes(series), series.predicted_ms.plogpt?)));
        let plogp = all
            .iter()
            .filter_map(|series| Some((bytes(series), series.predicted_ms.plogp?)));
        curves.push(Curve::new(format!("{name}, measured"), [], measured));
        curves.push(Curve::new(format!("{name}, PlogPT"), plogpt, []));
        curves.push(Curve::new(format!("{name}, PlogP"), [], plogp));
    }
    Panel {
        title: format!("{nodes} nodes"),
        x: Scale::logarithmic("message size", "B"),
        y: Scale::logarithmic("time", "ms"),
        curves,
    }
}

fn table(both: [(&str, &[Series]); 2]) -> Table {
    let header = [
        "algorithm",
        "message, B",
        "median",
        "fastest",
        "slowest",
        "delayed, %",
        "PlogPT",
        "its time-outs",
        "PlogP",
    ];
    let mut table = Table::new(1, &header);
    for (name, all) in both {
        for series in all {
            let rounds = &series.rounds_ms;
            let end = |pick: fn(f64, f64) -> f64| rounds.iter().copied().reduce(pick);
            let delayed = series
                .timeouts_by_round
                .iter()
                .filter(|count| **count > 0)
                .count();
            table.row(vec![
                name.into(),
                series.message_bytes.to_string(),
                computed(series.median()),
                computed(end(f64::min)),
                computed(end(f64::max)),
                computed(100.0 * delayed as f64 / rounds.len() as f64),
                computed(series.predicted_ms.plogpt),
                series.predicted_timeouts.to_string(),
                computed(series.predicted_ms.plogp),
            ]);
        }
    }
    table
}

/// The halves below an edge of each height, as section III-C measures: host i of the left one sends to host i of the right one.
fn table_2(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let heights = if setting.quick { 3 } else { 5 };
    let profile = tree(heights, "topology:\n  kind: tree\n  sharing: unidirectional\n")?;
    let path = setting.write("tree.yaml", &profile)?;
    let hosts = 1 << heights;
    let script = format!(
        "for host in $(seq {hosts}); do \"$0\" on h$host -- \"$0\" measure serve 2>/dev/null & done; sleep 2; \
         for half in {}; do left=$(seq -f h%g -s, $half); right=$(seq -f h%g -s, $((half + 1)) $((2 * half))); \
         \"$0\" measure --groups \"$left/$right\" --json || exit 1; done",
        (0..heights)
            .map(|height| (1 << height).to_string())
            .collect::<Vec<_>>()
            .join(" ")
    );
    let program = std::env::current_exe().context("finding this executable")?;
    let (path, hosts) = (path.to_string_lossy(), hosts.to_string());
    let program = program.to_string_lossy();
    let words = [
        "run", &path, "--hosts", &hosts, "--", "sh", "-c", &script, &program,
    ];
    let printed = setting.perturb(&mut outcome, &words)?;
    let found = Deserializer::from_str(&printed).into_iter::<Value>();
    let found: Vec<Value> = found
        .collect::<Result<_, _>>()
        .context("reading what it printed")?;
    let header = [
        "height",
        "pairs",
        "b(h), Mbit/s",
        "per node, times 50",
        "paper's",
        "longest wait, us",
        "lost, %",
    ];
    let mut shown = Table::new(0, &header);
    let table = tables::PLOGPT_TABLE2.table();
    let (mut paper, mut ours) = (Vec::new(), Vec::new());
    for (row, between) in table.rows().zip(&found) {
        let height = row.number("height").context("Table II")?;
        let column = row
            .number("bidirectional_bandwidth_per_node_mbit_s")
            .context("Table II")?;
        let last = between["steps"]
            .as_array()
            .and_then(|steps| steps.last())
            .context("steps")?;
        let number = |key: &str| last[key].as_f64().context("a step's number");
        let (pairs, rate) = (number("pairs")?, number("bytes_s")? * 8e-6);
        let per_node = rate / pairs * FACTOR;
        shown.row(vec![
            height.to_string(),
            pairs.to_string(),
            computed(rate),
            computed(per_node),
            computed(column),
            computed(number("longest_wait_us")?),
            computed(100.0 * number("loss")?),
        ]);
        outcome.rows.push(Row::measured(
            format!("b(h) per node, height {height}"),
            "Mbit/s",
            column,
            per_node,
        ));
        paper.push((height, column));
        ours.push((height, per_node));
    }
    ensure!(
        found.len() == heights,
        "{} of {heights} heights were measured",
        found.len()
    );
    outcome
        .tables
        .push(("Measured with as many pairs as hosts in a half".into(), shown));
    outcome.panels.push(Panel {
        title: "bandwidth between halves".into(),
        x: Scale::linear("height", ""),
        y: Scale::linear("bandwidth per node", "Mbit/s"),
        // The rows are compared.
        curves: vec![
            Curve::new("Table II", paper, []),
            Curve::new("measured, times 50", [], ours),
        ],
    });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_bytes_of_table_ii() {
        let table = tables::PLOGPT_TABLE2.table();
        for heights in 1..=5 {
            let profile = perturb_profile::parse(&tree(heights, &egress().unwrap()).unwrap()).unwrap();
            let Some(perturb_profile::Layout::Tree { levels, .. }) =
                profile.topology.map(|topology| topology.layout)
            else {
                panic!("no tree");
            };
            assert_eq!(levels.len(), heights);
            for (row, level) in table.rows().zip(&levels) {
                let number = |column| row.number(column).unwrap();
                let nodes = 2_f64.powf(number("height") - 1.0);
                let mbit_s = number("bidirectional_bandwidth_per_node_mbit_s") * nodes;
                let bytes = mbit_s / 8.0 * number("bidirectional_twice_delay_us") / 2.0;
                let rate = level.bandwidth.unwrap();
                let Some(perturb_profile::Volume::Delay(drained)) = level.buffer.volume else {
                    panic!("no delay");
                };
                let (rate, bytes) = (
                    rate.bits_per_second() as f64 * FACTOR / (mbit_s * 1e6),
                    rate.bytes_in(drained) as f64 / bytes,
                );
                // The edges of height 3 are the narrow ones for height 4's.
                let least = if number("height") == 4.0 { 0.994 } else { 0.9999 };
                assert!(
                    (least..1.0001).contains(&rate) && (least..1.0001).contains(&bytes),
                    "{rate} {bytes}"
                );
            }
        }
    }
}
