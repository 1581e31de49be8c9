//! Which runs, in which order.
//!
//! Model: a cell is a workload in a setting. The runs come in blocks; a block has every cell once (later ones only those
//! that the stop rule asks for), in an order drawn from the seed and the block's number, so that a drift of the machine
//! meets all settings alike. A workload's baseline is run at the start of each block and again after every
//! `baseline_every` of its runs, so that a drift shows. The fractional design is the half of 2^k in which the last
//! factor is the product of the others (Box, Hunter and Hunter, "Statistics for Experimenters", chapter 12).
//! Where a workload is to be traced, the first block ends with one more run of its baseline, which is not one of its
//! samples, for tracing takes time. Of several tasks the one with the workload's first cell makes it.
//! What it lacks: other fractions, and designs that follow the response.

use perturb_stats::SplitMix64;
use serde::Serialize;

use super::{
    experiment::{Design, Experiment, Knob, Workload},
    setting::Setting,
};

/// A workload in a setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Index of the workload.
    pub workload: usize,
    /// What differs from the baseline.
    pub setting: Setting,
}

/// A run to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What it is called; part of file names.
    pub id: String,
    /// What is run.
    pub cell: Cell,
    /// Its block, from 0.
    pub block: u32,
    /// Whether it is traced, and no sample.
    pub traced: bool,
}

impl Run {
    /// What is run, as people write it.
    #[must_use]
    pub fn written(&self) -> String {
        let setting = self.cell.setting.written();
        if self.traced {
            setting + ", traced"
        } else {
            setting
        }
    }
}

/// A part of the runs: cells whose number is `index` modulo `tasks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Task {
    /// From 0.
    pub index: usize,
    pub tasks: usize,
}

/// The cells of an experiment but the baselines.
#[must_use]
pub(super) fn cells(experiment: &Experiment) -> Vec<Cell> {
    let workloads = experiment.workloads.iter().enumerate();
    workloads
        .flat_map(|(index, workload)| {
            let scenarios = workload.scenarios.iter().cloned().map(Setting::Scenario);
            settings(experiment, workload)
                .into_iter()
                .map(Setting::Knobs)
                .chain(scenarios)
                .filter(|setting| *setting != Setting::BASELINE)
                .map(move |setting| Cell {
                    workload: index,
                    setting,
                })
        })
        .collect()
}

fn settings(experiment: &Experiment, workload: &Workload) -> Vec<Vec<(Knob, f64)>> {
    let turned = |knob: Knob, value: f64| value != experiment.base.value(knob);
    match experiment.design {
        Design::Simple => workload
            .knobs
            .iter()
            .flat_map(|(knob, values)| {
                let levels = values.iter().filter(|value| turned(*knob, **value));
                levels.map(|value| vec![(*knob, *value)])
            })
            .collect(),
        Design::Full => {
            let mut settings = vec![Vec::new()];
            for (knob, values) in &workload.knobs {
                let with = |setting: &Vec<(Knob, f64)>, value: &f64| {
                    let mut setting = setting.clone();
                    setting.push((*knob, *value));
                    setting
                };
                let levels = || values.iter().filter(|value| turned(*knob, **value));
                let more: Vec<_> = settings
                    .iter()
                    .flat_map(|setting| levels().map(move |value| with(setting, value)))
                    .collect();
                settings.extend(more);
            }
            settings
        }
        Design::Fractional => {
            let factors: Vec<(Knob, f64)> = workload
                .knobs
                .iter()
                .filter_map(|(knob, values)| Some((*knob, *values.last()?)))
                .collect();
            half_fraction(factors.len())
                .into_iter()
                .map(|row| {
                    let high = factors.iter().zip(row).filter(|(_, high)| *high);
                    high.map(|(factor, _)| *factor).collect()
                })
                .collect()
        }
    }
}

/// Rows of the half fraction of 2^k: the last factor is high where the number of the others that are low is even.
#[must_use]
pub(super) fn half_fraction(factors: usize) -> Vec<Vec<bool>> {
    let free = factors.saturating_sub(1);
    (0..1_usize << free)
        .map(|bits| {
            let mut row: Vec<bool> = (0..free).map(|factor| bits >> factor & 1 == 1).collect();
            let low = row.iter().filter(|high| !**high).count();
            row.push(low.is_multiple_of(2));
            row
        })
        .collect()
}

/// The runs of a block over some cells, in their order.
#[must_use]
pub(super) fn block(experiment: &Experiment, cells: &[Cell], block: u32) -> Vec<Run> {
    let mut random = SplitMix64::new(experiment.seed);
    for _ in 0..block {
        random.bits();
    }
    let mut order: Vec<&Cell> = cells.iter().collect();
    random.split().shuffle(&mut order);
    let mut runs = Vec::new();
    let mut since_baseline = vec![None; experiment.workloads.len()];
    let mut baselines = vec![0; experiment.workloads.len()];
    for cell in order {
        let since = &mut since_baseline[cell.workload];
        if since.is_none_or(|since| since >= experiment.baseline_every) {
            *since = Some(0);
            let count = &mut baselines[cell.workload];
            *count += 1;
            let baseline = Cell {
                workload: cell.workload,
                setting: Setting::BASELINE,
            };
            runs.push(run(experiment, baseline, block, Some(*count)));
        }
        if let Some(since) = &mut since_baseline[cell.workload] {
            *since += 1;
        }
        runs.push(run(experiment, cell.clone(), block, None));
    }
    if block == 0 {
        runs.extend(traced(experiment, cells));
    }
    runs
}

/// The traced runs of the workloads whose first cells these are.
fn traced<'a>(experiment: &'a Experiment, own: &'a [Cell]) -> impl Iterator<Item = Run> + 'a {
    let all = cells(experiment);
    let workloads = experiment.workloads.iter().enumerate();
    workloads.filter_map(move |(index, workload)| {
        let first = all.iter().find(|cell| cell.workload == index)?;
        (workload.trace && own.contains(first)).then(|| Run {
            id: format!("000.{}.traced", workload.name),
            cell: Cell {
                workload: index,
                setting: Setting::BASELINE,
            },
            block: 0,
            traced: true,
        })
    })
}

fn run(experiment: &Experiment, cell: Cell, block: u32, baseline: Option<u32>) -> Run {
    let name = &experiment.workloads[cell.workload].name;
    let setting = cell.setting.file_part();
    let number = baseline.map(|number| format!("-{number}")).unwrap_or_default();
    Run {
        id: format!("{block:03}.{name}.{setting}{number}"),
        cell,
        block,
        traced: false,
    }
}

impl Task {
    /// The cells of this part.
    #[must_use]
    pub fn of(self, cells: Vec<Cell>) -> Vec<Cell> {
        let mine = cells.into_iter().enumerate();
        mine.filter(|(index, _)| index % self.tasks == self.index)
            .map(|(_, cell)| cell)
            .collect()
    }
}

/// What the half fraction cannot tell apart, in words.
#[must_use]
pub(super) fn confounding(knobs: &[Knob]) -> Vec<String> {
    let all: Vec<usize> = (0..knobs.len()).collect();
    let name = |set: &[usize]| -> String {
        let letters: Vec<&str> = set.iter().map(|index| knobs[*index].letter()).collect();
        letters.join("·")
    };
    let rest =
        |set: &[usize]| -> Vec<usize> { all.iter().copied().filter(|index| !set.contains(index)).collect() };
    let mut lines = vec![format!("defining relation: 1 = {}", name(&all))];
    for index in &all {
        lines.push(format!(
            "{} is confounded with {}",
            name(&[*index]),
            name(&rest(&[*index]))
        ));
    }
    for first in &all {
        for second in all.iter().filter(|second| *second > first) {
            let (pair, other) = (vec![*first, *second], rest(&[*first, *second]));
            if other.len() > 2 || (other.len() == 2 && pair < other) {
                lines.push(format!("{} is confounded with {}", name(&pair), name(&other)));
            }
        }
    }
    lines
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;

    pub(in crate::sweep) fn experiment(design: &str) -> Experiment {
        let text = format!(
            "version: 1\nname: t\nseed: 5\ndesign: {design}\nbaseline_every: 3\n\
             base: {{ overhead: 2us, gap: 5us, latency: 20us, bandwidth: 100MB/s }}\n\
             knobs: {{ overhead: [2us, 10us, 20us], gap: [50us], latency: [1ms], bandwidth: [x0.1] }}\n\
             workloads: [{{ name: a, command: [a] }}, {{ name: b, command: [b] }}]\n"
        );
        super::super::read::read(&text, Path::new(""), "e").unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_blocks_differ() {
        let experiment = experiment("simple");
        let cells = cells(&experiment);
        // A level at the baseline is the baseline.
        assert_eq!(cells.len(), 2 * 5);
        let ids = |number| -> Vec<String> {
            block(&experiment, &cells, number)
                .into_iter()
                .map(|run| run.id)
                .collect()
        };
        assert_eq!(ids(0), ids(0));
        let order = |number| -> Vec<String> { ids(number).iter().map(|id| id[4..].to_owned()).collect() };
        assert_ne!(order(0), order(1));
        let mut unique = ids(0);
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), ids(0).len());
    }

    #[test]
    fn baselines_are_interleaved() {
        let experiment = experiment("simple");
        let runs = block(&experiment, &cells(&experiment), 0);
        for workload in 0..2 {
            let own: Vec<bool> = runs
                .iter()
                .filter(|run| run.cell.workload == workload)
                .map(|run| run.cell.setting == Setting::BASELINE)
                .collect();
            assert_eq!(own, [true, false, false, false, true, false, false]);
        }
    }

    #[test]
    fn one_run_of_a_workload_is_traced() {
        let mut experiment = experiment("simple");
        experiment.workloads[1].trace = true;
        let cells = cells(&experiment);
        let traced = |cells: &[Cell], number| -> Vec<String> {
            let runs = block(&experiment, cells, number).into_iter();
            runs.filter(|run| run.traced).map(|run| run.id).collect()
        };
        assert_eq!(traced(&cells, 0), ["000.b.traced"]);
        assert!(traced(&cells, 1).is_empty());
        let of_task = |index| traced(&Task { index, tasks: 3 }.of(cells.clone()), 0).len();
        assert_eq!((0..3).map(of_task).sum::<usize>(), 1);
    }

    #[test]
    fn full_has_every_combination() {
        // Per workload 3 · 2 · 2 · 2 combinations, the baseline among them.
        assert_eq!(cells(&experiment("full")).len(), 2 * 23);
    }

    #[test]
    fn the_half_fraction_is_balanced_and_orthogonal() {
        for factors in 3..6 {
            let rows = half_fraction(factors);
            assert_eq!(rows.len(), 1 << (factors - 1));
            let sign = |high: bool| if high { 1 } else { -1 };
            for first in 0..factors {
                assert_eq!(rows.iter().map(|row| sign(row[first])).sum::<i32>(), 0);
                for second in 0..first {
                    let product = rows.iter().map(|row| sign(row[first]) * sign(row[second]));
                    // With three factors a pair is confounded with the third, but still balanced.
                    assert_eq!(product.sum::<i32>(), 0);
                }
            }
            // The defining relation: the product of all is the same in every row.
            let products: Vec<i32> = rows
                .iter()
                .map(|row| row.iter().map(|high| sign(*high)).product())
                .collect();
            assert!(products.iter().all(|product| *product == 1));
        }
        let said = confounding(&Knob::ALL);
        assert!(
            said.contains(&"o is confounded with g·L·G".to_owned()),
            "{said:?}"
        );
        assert!(said.contains(&"o·g is confounded with L·G".to_owned()));
        assert_eq!(said.len(), 1 + 4 + 3);
    }

    #[test]
    fn tasks_share_the_cells() {
        let cells = cells(&experiment("simple"));
        let parts: Vec<usize> = (0..3)
            .map(|index| Task { index, tasks: 3 }.of(cells.clone()).len())
            .collect();
        assert_eq!(parts.iter().sum::<usize>(), cells.len());
        assert!(parts.iter().all(|part| *part >= 3));
    }
}
