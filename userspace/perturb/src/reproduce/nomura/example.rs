//! Figs. 9 to 12, run: the sample program on an emulated tree with the example's parameters, by real TCP.

use std::time::Duration;

use anyhow::Context as _;
use perturb_emulator::prepared::Prepared;
use perturb_experiments::rto::Plan;
use perturb_models::plogpt::OnProfile;
use perturb_present::{Table, computed, shell};

use super::{
    super::{
        figure::{Differs, Setting},
        outcome::{Curve, Outcome, Panel, Row, Scale},
    },
    measured::series,
};
use crate::predict::read;

/// A microsecond of the example here, ms; its 24 B are 120 kB.
const MICROSECOND_MS: f64 = 5.0;

/// b(1) = 3, b(2) = 4, L = 3. The first rate has 120 kB, headers and acknowledgments (8,250 B) sent in g = 8, which is 40 ms. L is
/// four latencies and the times of a frame behind the first link. Buffers hold more than a message: none is printed.
const TREE: &str = "\
version: 1
name: plogpt-fig-12
servers: { nic: { bandwidth: 25.65Mbit/s } }
topology:
  kind: tree
  sharing: unidirectional
  egress: [nic]
  levels:
    - { bandwidth: 25.65Mbit/s, latency: 3.3ms, buffer_delay: 50ms }
    - { bandwidth: 34.2Mbit/s, latency: 3.3ms, buffer_delay: 50ms }
tcp: { congestion_control: reno, sack: false, rto_min: 200ms, offloads: false, no_metrics_save: true }
";

/// Fig. 10.
const PROGRAM: &str = "\
parameters: { jitter: 5ms }
program:
  ranks:
    - [irecv: { from: 2 }, isend: { to: 2, size: 120kB }, wait: 1, wait: 0, isend: { to: 3, size: 120kB }, wait: 4]
    - [irecv: { from: 3 }, isend: { to: 3, size: 120kB }, wait: 1, wait: 0]
    - [irecv: { from: 0 }, isend: { to: 0, size: 120kB }, wait: 1, wait: 0]
    - [irecv: { from: 1 }, isend: { to: 1, size: 120kB }, wait: 1, wait: 0, irecv: { from: 0 }, wait: 4]
";

pub(super) const DIFFERS: &[Differs] = &[
    Differs {
        what: "a microsecond is 5 ms here, and a byte 5 kB; TCP's window is open, for four rounds go before",
        why: "the example's 24 B are no message that TCP would need time for",
    },
    Differs {
        what: "the waits for sends, 12 and 23, are not compared",
        why: "they end when the kernel has sent the last byte, which then still waits in buffers on its way",
    },
];

/// When each rank leaves its last operation, us. The text prints those of ranks 1 to 3.
const ENDS: [f64; 4] = [23.0, 15.0, 15.0, 26.0];

pub(super) fn fig_12(setting: &Setting) -> anyhow::Result<Outcome> {
    const ROUNDS: u32 = 20;
    const WARM_UP: u32 = 4;
    let mut outcome = Outcome::default();
    let tree = setting.write("tree.yaml", TREE)?;
    let file = setting.write("program.yaml", PROGRAM)?;
    let command = format!(
        "perturb rto {} --program {} --rounds {ROUNDS} --warmup {WARM_UP}",
        shell::quoted(&tree),
        shell::quoted(&file),
    );
    let OnProfile { parameters, program } = read(&file)?;
    let plan = Plan {
        name: "program",
        programs: vec![program],
        rounds: ROUNDS,
        warmup: WARM_UP,
        pause: Duration::from_millis(20),
        beside: parameters,
        profile: Prepared::read(&tree)?,
    };
    let found = series(setting, &mut outcome, command, (&tree, ENDS.len() as u32), plan)?;
    let found = found.first().context("no rounds")?;
    let ours: Vec<f64> = found.ranks_ms.iter().map(|ms| ms / MICROSECOND_MS).collect();
    let mut table = Table::new(0, &["rank", "Fig. 12, us", "measured, 5 ms", "measured, ms"]);
    for (rank, (paper, ours)) in ENDS.iter().zip(&ours).enumerate() {
        table.row(vec![
            rank.to_string(),
            computed(*paper),
            computed(*ours),
            computed(ours * MICROSECOND_MS),
        ]);
        if [1, 2].contains(&rank) {
            let case = format!("wait of rank {rank} for its irecv leaves");
            outcome.rows.push(Row::measured(case, "us", *paper, *ours));
        }
    }
    let plogpt = found.predicted_ms.plogpt.context("PlogPT's prediction")?;
    table.row(vec![
        "all, by PlogPT of the emulated tree".into(),
        computed(ENDS[3]),
        computed(plogpt / MICROSECOND_MS),
        computed(plogpt),
    ]);
    let caption = "When each rank leaves its last operation: medians";
    outcome.tables.push((caption.into(), table));
    let total = found.median() / MICROSECOND_MS;
    outcome.rows.push(Row::measured("total", "us", ENDS[3], total));
    let delayed = found.timeouts_by_round.iter().filter(|count| **count > 0).count() as f64;
    let row = Row::new("rounds with time-outs", "rounds", (0.0, 0.0), delayed);
    outcome.rows.push(row);
    let ranks = |ends: &[f64]| {
        (0_u8..)
            .map(f64::from)
            .zip(ends.iter().copied())
            .collect::<Vec<_>>()
    };
    outcome.panels.push(Panel {
        title: "end of each rank".into(),
        x: Scale::linear("rank", ""),
        y: Scale::linear("time", "us, or 5 ms"),
        // The rows are compared.
        curves: vec![
            Curve::new("Fig. 12", ranks(&ENDS), []),
            Curve::new("measured", [], ranks(&ours)),
        ],
    });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use perturb_models::plogpt::predict;
    use perturb_quantity::Micros;

    use super::*;

    /// Within the share.
    fn near(ours: f64, paper: f64, share: f64) -> bool {
        (ours / paper - 1.0).abs() <= share
    }

    #[test]
    fn the_tree_and_the_program_are_the_example_s() {
        let us = |ours: Micros| ours.0 / 1e3 / MICROSECOND_MS;
        let program: OnProfile = serde_saphyr::from_str(PROGRAM).unwrap();
        let profile = perturb_profile::parse(TREE).unwrap();
        let (mut input, _) = program.input(&profile).unwrap();
        let parameters = &input.parameters;
        let gap = us(parameters.gap[0].gap);
        assert!(near(gap, 8.0, 0.001), "{gap}");
        let rates = [0, 1].map(|height| parameters.links[height].bandwidth.0);
        assert!(near(rates[1] / rates[0], 4.0 / 3.0, 1e-6), "{rates:?}");
        assert!(
            near(us(parameters.latency), 3.0, 0.02),
            "{:?}",
            parameters.latency
        );
        // With exactly L = 3 all times are the figure's.
        input.parameters.latency = Micros(3.0 * MICROSECOND_MS * 1e3);
        let operations = predict(&input).unwrap().operations;
        for (rank, paper) in (0..).zip(ENDS) {
            let last = us(Micros(operations.of_rank(rank).last().unwrap().leave_us));
            assert!(near(last, paper, 0.001), "{rank}: {last}");
        }
    }
}
