//! Chapters 3 and 4, measured: the presets `split-c` and `npb` of `perturb sweep`, one knob of each for a figure.
//!
//! As in the figures, run times are divided by the baseline's. The axis is the thesis's: a level here stands for the one there
//! that is as many times its baseline.

use std::{fs, path::Path};

use anyhow::Context as _;
use perturb_experiments::sweep::{
    Ended, Experiment, Sweep, check, load,
    report::{Report, Response},
};
use perturb_models::published::{MeasuredCurve, run_times, tables};
use perturb_present::{LiveLine, Table, computed, shell};
use perturb_profile::Knob;

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    npb,
    outcome::{Curve, Outcome, Panel, Scale},
};
use super::parallel::{BANDWIDTH, BULK_GAP, GAP, LATENCY_SCALE, OVERHEAD};

const SLOWER: Differs = Differs {
    what: "fewer processors, smaller inputs, and a slower network, by the factors in the tables",
    why: "a message costs a kernel more than Active Messages cost the NOW, and all hosts share this machine's processors",
};

const SEGMENTS: Differs = Differs {
    what: "each message is a TCP segment, and acknowledgments take the place of the replies to writes",
    why: "the thesis's programs use Active Messages; ours compute the same with answers that are checked",
};

const MESSAGES: Differs = Differs {
    what: "messages are a far larger part of the run time than there",
    why: "inputs are 1/4 to 1/64, but the run takes less than a second where the thesis's takes 18 to 173 s: packets, each of which \
          pays o, follow each other faster",
};

const PACKETS: Differs = Differs {
    what: "o and g are paid for each packet of 1500 bytes over Open MPI",
    why: "the thesis's MPI pays them for each fragment of 4 KiB",
};

const MORE_HOSTS: Differs = Differs {
    what: "beside 32 nodes radix and barnes have 8 hosts, the others 4",
    why: "theirs depends on the number of processors most (section 3.3.1); all hosts share this machine's",
};

/// A preset of `perturb sweep`.
pub(super) struct Preset {
    file: &'static str,
    text: &'static str,
    /// Workloads of the short form.
    quick: &'static [&'static str],
}

pub(super) const SPLIT_C: Preset = Preset {
    file: "split-c.yaml",
    text: include_str!("../../../../../configs/experiments/split-c.yaml"),
    quick: &["em3d-read", "sample", "connect", "radb"],
};

const NPB: Preset = Preset {
    file: "npb.yaml",
    text: include_str!("../../../../../configs/experiments/npb.yaml"),
    quick: &["FT.W", "IS.W", "MG.W"],
};

const fn split_c(
    name: &'static str,
    shows: &'static str,
    draw: fn(&Setting) -> anyhow::Result<Outcome>,
) -> Figure {
    Figure::emulation(Paper::Martin, name, shows, 15.0, draw)
        .quick(1.0)
        .differs(&[SLOWER, SEGMENTS, MORE_HOSTS])
}

const fn over_mpi(
    name: &'static str,
    shows: &'static str,
    draw: fn(&Setting) -> anyhow::Result<Outcome>,
) -> Figure {
    let mut figure = Figure::emulation(Paper::Martin, name, shows, 8.0, draw).quick(1.0);
    figure.needs.mpi = true;
    figure.differs(&[MESSAGES, SLOWER, PACKETS])
}

pub(super) static FIGURES: &[Figure] = &[
    split_c(
        "martin-fig-3.2-measured",
        "slowdown of Split-C programs over overhead, measured",
        |setting| {
            let (mut outcome, report) = SPLIT_C.measure(setting, Knob::Overhead)?;
            for (nodes, table) in [(16, tables::MARTIN_B_1), (32, tables::MARTIN_B_2)] {
                let title = format!("{nodes} nodes");
                let panel = panel(setting, &report, &title, (Knob::Overhead, nodes), table, OVERHEAD);
                outcome.panels.push(panel);
            }
            Ok(outcome)
        },
    ),
    split_c(
        "martin-fig-3.3-measured",
        "slowdown of Split-C programs over gap, measured",
        |setting| one(&SPLIT_C, setting, Knob::Gap, tables::MARTIN_B_3, GAP),
    ),
    split_c(
        "martin-fig-3.4-measured",
        "slowdown of Split-C programs over latency, measured",
        |setting| {
            one(
                &SPLIT_C,
                setting,
                Knob::Latency,
                tables::MARTIN_B_4,
                LATENCY_SCALE,
            )
        },
    ),
    split_c(
        "martin-fig-3.5-measured",
        "slowdown of Split-C programs over bulk bandwidth and bulk gap, measured",
        |setting| both_ways(&SPLIT_C, setting, tables::MARTIN_B_5),
    ),
    over_mpi(
        "martin-fig-4.3-measured",
        "slowdown of FT, IS and MG over overhead, measured",
        |setting| one(&NPB, setting, Knob::Overhead, tables::MARTIN_B_6, OVERHEAD),
    ),
    over_mpi(
        "martin-fig-4.4-measured",
        "slowdown of FT, IS and MG over gap, measured",
        |setting| one(&NPB, setting, Knob::Gap, tables::MARTIN_B_7, GAP),
    ),
    over_mpi(
        "martin-fig-4.5-measured",
        "slowdown of FT, IS and MG over latency, measured",
        |setting| one(&NPB, setting, Knob::Latency, tables::MARTIN_B_8, LATENCY_SCALE),
    ),
    over_mpi(
        "martin-fig-4.6-measured",
        "slowdown of FT, IS and MG over bandwidth and bulk gap, measured",
        |setting| both_ways(&NPB, setting, tables::MARTIN_B_9),
    ),
];

fn one(
    preset: &Preset,
    setting: &Setting,
    knob: Knob,
    table: tables::Embedded,
    x: Scale,
) -> anyhow::Result<Outcome> {
    let (mut outcome, report) = preset.measure(setting, knob)?;
    outcome
        .panels
        .push(panel(setting, &report, "32 nodes", (knob, 32), table, x));
    Ok(outcome)
}

/// Over the bandwidth, and over its inverse.
fn both_ways(preset: &Preset, setting: &Setting, table: tables::Embedded) -> anyhow::Result<Outcome> {
    let (mut outcome, report) = preset.measure(setting, Knob::Bandwidth)?;
    let panel = |title, x| panel(setting, &report, title, (Knob::Bandwidth, 32), table, x);
    outcome.panels.push(panel("over bandwidth", BANDWIDTH));
    outcome.panels.push(panel("over bulk gap", BULK_GAP).again());
    Ok(outcome)
}

/// What of the thesis a workload is, as its tables have it.
fn is_program(response: &Response<'_>, printed: &MeasuredCurve) -> bool {
    let name = response.name.to_lowercase();
    let program = printed.name.replace('_', "-");
    let rest = name.strip_prefix(&program);
    rest.is_some_and(|rest| rest.is_empty() || rest == "-8" || rest == ".w")
}

/// The thesis's value that is as many times its baseline.
fn there(knob: Knob, base: f64, relative: f64) -> f64 {
    match knob {
        Knob::Bandwidth => base / relative,
        _ => base * relative,
    }
}

/// The thesis's slowdowns on so many nodes, and ours.
fn panel(
    setting: &Setting,
    report: &Report,
    title: &str,
    (knob, nodes): (Knob, u32),
    table: tables::Embedded,
    x: Scale,
) -> Panel {
    let responses: Vec<Response<'_>> = report.responses(knob).collect();
    let curve = |printed| curve(setting.quick, &responses, (knob, nodes), &printed, x);
    Panel {
        title: title.to_owned(),
        x,
        y: Scale::linear("slowdown", ""),
        curves: run_times(table).into_iter().filter_map(curve).collect(),
    }
}

/// Of one program. The short form leaves programs out, and levels at the end; what it has asked for and is missing counts.
fn curve(
    quick: bool,
    responses: &[Response<'_>],
    (knob, nodes): (Knob, u32),
    printed: &MeasuredCurve,
    x: Scale,
) -> Option<Curve> {
    let place = |value: f64| {
        if x.label == BULK_GAP.label {
            1.0 / value
        } else {
            value
        }
    };
    let base = printed.base?;
    let own = responses.iter().filter(|own| is_program(own, printed));
    // The programs on 8 hosts stand for 32 nodes.
    let own = own
        .filter(|own| nodes == 32 || own.hosts == 4)
        .max_by_key(|own| own.hosts);
    if quick && own.is_none() {
        return None;
    }
    let asked = own.iter().flat_map(|own| &own.slowdowns);
    let ours: Vec<(f64, f64)> = asked
        .map(|(relative, slowdown)| (place(there(knob, base, *relative)), slowdown.unwrap_or(f64::NAN)))
        .collect();
    let ends = |pick: fn(f64, f64) -> f64| ours.iter().map(|(x, _)| *x).reduce(pick);
    let (low, high) = (ends(f64::min), ends(f64::max));
    let paper = printed
        .points
        .iter()
        .map(|point| (place(point.at), point.measured));
    let paper = paper.filter(|(x, _)| {
        let within = low.is_none_or(|low| *x >= low * 0.999) && high.is_none_or(|high| *x <= high * 1.001);
        within || !quick
    });
    let hosts = own
        .map(|own| format!(", {} hosts", own.hosts))
        .unwrap_or_default();
    let name = format!("{}{hosts}", printed.name);
    Some(Curve::new(name, paper, ours).over(place(base)))
}

impl Preset {
    /// Sweeps one knob under the thesis's programs.
    fn measure(&self, setting: &Setting, knob: Knob) -> anyhow::Result<(Outcome, Report)> {
        let mut outcome = Outcome::default();
        let mut experiment = self.programs(setting)?;
        self.reduce(&mut experiment, knob, setting.quick);
        if experiment.workloads.iter().any(|workload| workload.mpi) {
            let directory = fs::canonicalize(&setting.directory).context("the figure's directory")?;
            npb::build(&directory, &[])?;
            for program in experiment
                .workloads
                .iter_mut()
                .filter_map(|workload| workload.command.first_mut())
            {
                *program = directory.join(&*program).display().to_string();
            }
        }
        check(&experiment)?;
        let out = setting.directory.join("sweep");
        if out.exists() {
            eprintln!("removing {}: the figure is measured anew", out.display());
            fs::remove_dir_all(&out).with_context(|| format!("removing {}", out.display()))?;
        }
        let command = self.command(setting, knob, &out);
        let sweep = Sweep::new(experiment, None, &out);
        setting.work(&mut outcome, command, || {
            let (ended, _) = sweep.measure(false, LiveLine::stderr(false))?;
            Ok((ended == Ended::Complete).then_some(()))
        })?;
        let report = Report::of_directory(&out)?;
        outcome.tables = factors(&sweep.experiment, &report, knob);
        Ok((outcome, report))
    }

    /// A sweep of the whole preset, and what of it is done here.
    pub(super) fn command(&self, setting: &Setting, knob: Knob, out: &Path) -> String {
        let file = setting.directory.join(self.file);
        let words = [
            "perturb".as_ref(),
            "sweep".as_ref(),
            file.as_os_str(),
            "--out".as_ref(),
            out.as_os_str(),
        ];
        let less = if setting.quick {
            ": some, at two levels, once"
        } else {
            ""
        };
        format!(
            "{}   # of it {} alone, under the thesis's programs{less}",
            shell::command(words),
            knob.key()
        )
    }

    /// The preset with the thesis's programs alone.
    pub(super) fn programs(&self, setting: &Setting) -> anyhow::Result<Experiment> {
        let mut experiment = load(&setting.write(self.file, self.text)?)?;
        experiment
            .workloads
            .retain(|workload| workload.published.is_some());
        experiment.needs.clear();
        Ok(experiment)
    }

    /// Leaves one knob.
    fn reduce(&self, experiment: &mut Experiment, knob: Knob, quick: bool) {
        experiment
            .workloads
            .retain(|workload| !quick || self.quick.contains(&workload.name.as_str()));
        for workload in &mut experiment.workloads {
            workload.trace = false;
            workload.knobs.retain(|(other, _)| *other == knob);
            if quick {
                for (_, levels) in &mut workload.knobs {
                    let middle = levels.len() / 2;
                    *levels = vec![levels[middle / 2], levels[middle]];
                }
            }
        }
        if quick {
            experiment.repetitions = 1;
        }
    }
}

/// The thesis, here, and the factor: of the network and of the programs.
fn factors(experiment: &Experiment, report: &Report, knob: Knob) -> Vec<(String, Table)> {
    let mut network = Table::new(1, &["the network", "thesis", "here", "here over thesis"]);
    let mut row = |name: String, thesis: f64, here: f64| {
        network.row(vec![
            name,
            computed(thesis),
            computed(here),
            computed(here / thesis),
        ]);
    };
    let program = experiment
        .workloads
        .iter()
        .find_map(|workload| workload.published.as_deref());
    let printed = |knob| perturb_models::published::run_times_of(program?, knob);
    for parameter in Knob::LOGGP {
        let Some(base) = printed(parameter).and_then(|curve| curve.base) else {
            continue;
        };
        let here = experiment.base.value(parameter);
        let (here, unit) = match parameter {
            Knob::Bandwidth => (1.0 / here, "MB/s"),
            _ => (here, "us"),
        };
        row(format!("{}, {unit}", parameter.key()), base, here);
        let farthest = report
            .responses(parameter)
            .flat_map(|response| response.slowdowns)
            .map(|(relative, _)| relative)
            .fold(1.0, f64::max);
        if parameter == knob {
            let end = there(knob, base, farthest);
            row(
                format!("{}, {unit}, farthest", knob.key()),
                end,
                there(knob, here, farthest),
            );
        }
    }
    let mut programs = Table::new(
        1,
        &[
            "program",
            "hosts here",
            "thesis, 32 nodes, s",
            "here, s",
            "knob over baseline where runs failed, or none was valid",
        ],
    );
    for response in report.responses(knob) {
        let workload = experiment
            .workloads
            .iter()
            .find(|workload| workload.name.as_str() == response.name);
        let curve = workload.and_then(|workload| {
            perturb_models::published::run_times_of(workload.published.as_deref()?, knob)
        });
        let thesis = curve.and_then(|curve| {
            let base = curve.base?;
            curve
                .points
                .iter()
                .find(|point| point.at == base)
                .map(|point| point.measured)
        });
        let broken: Vec<String> = response
            .broken
            .iter()
            .map(|relative| computed(*relative))
            .collect();
        programs.row(vec![
            response.name.to_owned(),
            response.hosts.to_string(),
            computed(thesis),
            computed(response.run_time_s),
            broken.join(", "),
        ]);
    }
    vec![
        (
            "The network at first, and where the knob is turned farthest".into(),
            network,
        ),
        ("Run times at first".into(), programs),
    ]
}

#[cfg(test)]
mod tests;
