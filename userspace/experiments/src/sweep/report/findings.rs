//! The findings of Martin's thesis about programs in general, held against the numbers of a sweep.
//!
//! Model: a finding is a claim about classes of programs (those that read, those that send in bulk), which a program
//! belongs to by its communication at the baseline, and about the response to a knob. It is *confirmed* if it holds for
//! all programs that it is about, *partly* if for most, else *refuted*; *not tested* if the sweep has no such program or
//! did not turn the knob. Thresholds, which the thesis leaves to the eye:
//!
//! | word | here |
//! |---|---|
//! | linear | a line through all levels explains 95 % of the variance |
//! | reads | half of the busiest process's messages are requests that it waits for, or replies |
//! | bulk | the mean wire packet, acknowledgments included, has at least 500 bytes |
//! | sensitive | it responds, with 5 % of slowdown at the largest level |

use std::{collections::BTreeMap, fmt};

use perturb_models::published;
use perturb_stats::Line;
use serde::Serialize;

use super::{curve::KnobReport, shape::Kind, summary::WorkloadReport};
use crate::sweep::experiment::Knob;

const LINEAR: f64 = 0.95;
const READS_PERCENT: f64 = 50.0;
const BULK_BYTES: f64 = 500.0;
const SENSITIVE: f64 = 1.05;
/// The thesis's measurements of the response to overhead.
const THESIS_OVERHEAD: &str = "Martin 1999, Table B.2";
/// Where NFS begins to respond to latency, µs, and how much it then does: chapter 5.
const NFS_KNEE_US: std::ops::RangeInclusive<f64> = 100.0..=200.0;
const NFS_SLOPE: std::ops::RangeInclusive<f64> = 2.0..=3.0;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Confirmed,
    PartlyConfirmed,
    Refuted,
    NotTested,
}

impl Verdict {
    /// By how many of those that a claim is about it holds for.
    fn of(holds: usize, count: usize) -> Self {
        match (holds, count) {
            (_, 0) => Self::NotTested,
            _ if holds == count => Self::Confirmed,
            _ if 2 * holds > count => Self::PartlyConfirmed,
            _ => Self::Refuted,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::PartlyConfirmed => "partly confirmed",
            Self::Refuted => "refuted",
            Self::NotTested => "not tested here",
        })
    }
}

/// A claim and its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) claim: &'static str,
    pub(super) verdict: Verdict,
    /// The numbers.
    pub(super) evidence: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}", self.claim, self.verdict, self.evidence)
    }
}

/// All findings, tested or not.
pub(super) fn findings(workloads: &[WorkloadReport]) -> Vec<Finding> {
    vec![
        linear(workloads),
        burst(workloads),
        reads(workloads),
        bulk(workloads),
        nfs(workloads),
        errors(workloads),
    ]
}

/// The workloads on which a knob was turned, and their responses.
fn turned(workloads: &[WorkloadReport], knob: Knob) -> impl Iterator<Item = (&WorkloadReport, &KnobReport)> {
    let of = move |workload| -> Option<(&WorkloadReport, &KnobReport)> {
        let workload: &WorkloadReport = workload;
        Some((workload, workload.knobs.get(knob.key())?))
    };
    workloads
        .iter()
        .filter_map(of)
        .filter(|(_, report)| report.shape.is_some())
}

/// Those of them whose run time is measured, and which respond.
fn responding(workloads: &[WorkloadReport], knob: Knob) -> Vec<(&WorkloadReport, &KnobReport)> {
    turned(workloads, knob)
        .filter(|(workload, report)| !workload.per_operation && report.responds())
        .collect()
}

fn linear(workloads: &[WorkloadReport]) -> Finding {
    let shares: Vec<(&str, f64)> = responding(workloads, Knob::Overhead)
        .iter()
        .filter_map(|(workload, report)| Some((workload.name.as_str(), explained(report)?)))
        .collect();
    let holds = shares.iter().filter(|(_, share)| *share >= LINEAR).count();
    let listed = shares
        .iter()
        .map(|(name, share)| format!("{name} {:.1} %", 100.0 * share));
    Finding {
        claim: "Programs respond to the overhead in proportion",
        verdict: Verdict::of(holds, shares.len()),
        evidence: match shares.len() {
            0 => "No program responded to the overhead.".into(),
            count => format!(
                "{holds} of {count} programs; share of the variance that a line explains: {}.",
                joined(listed)
            ),
        },
    }
}

/// Share of the variance that a line through all levels and the baseline explains.
fn explained(report: &KnobReport) -> Option<f64> {
    let points = report.points(&report.slowdown);
    // Any line fits two points.
    if points.len() < 3 {
        return None;
    }
    Line::fit(&points).ok()?.r_squared
}

fn burst(workloads: &[WorkloadReport]) -> Finding {
    let error = |report: &KnobReport, model: &str| report.models.get(model)?.mean_error_percent;
    let errors: Vec<(&str, f64, f64)> = responding(workloads, Knob::Gap)
        .iter()
        .filter_map(|(workload, report)| {
            Some((
                workload.name.as_str(),
                error(report, "burst")?,
                error(report, "uniform")?,
            ))
        })
        .collect();
    let holds = errors
        .iter()
        .filter(|(_, burst, uniform)| burst < uniform)
        .count();
    let mean = |pick: fn(&(&str, f64, f64)) -> f64| mean(errors.iter().map(pick)).unwrap_or(f64::NAN);
    let listed = errors
        .iter()
        .map(|(name, burst, uniform)| format!("{name} {burst:.0}/{uniform:.0} %"));
    Finding {
        claim: "For the gap the burst model is better than the uniform one",
        verdict: Verdict::of(holds, errors.len()),
        evidence: match errors.len() {
            0 => "No program responded to the gap.".into(),
            count => format!(
                "{holds} of {count} programs; mean errors burst/uniform {:.0}/{:.0} %: {}.",
                mean(|(_, burst, _)| *burst),
                mean(|(_, _, uniform)| *uniform),
                joined(listed)
            ),
        },
    }
}

fn reads(workloads: &[WorkloadReport]) -> Finding {
    let known: Vec<(&WorkloadReport, &KnobReport, f64)> = turned(workloads, Knob::Latency)
        .filter(|(workload, _)| !workload.per_operation)
        .filter_map(|(workload, report)| Some((workload, report, share_of_reads(workload)?)))
        .collect();
    let is_reader = |(_, _, share): &&(&WorkloadReport, &KnobReport, f64)| *share >= READS_PERCENT;
    let (readers, others): (Vec<_>, Vec<_>) = known.iter().partition(is_reader);
    let holds = readers.iter().filter(|(_, report, _)| sensitive(report)).count()
        + others.iter().filter(|(_, report, _)| !sensitive(report)).count();
    let listed = known.iter().map(|(workload, report, share)| {
        let effect = if sensitive(report) {
            format!("{:.2} % per us", 100.0 * report.slope.unwrap_or_default())
        } else {
            "not sensitive".into()
        };
        format!("{} ({share:.0} % reads) {effect}", workload.name)
    });
    let verdict = if readers.is_empty() || others.is_empty() {
        Verdict::NotTested
    } else {
        Verdict::of(holds, known.len())
    };
    Finding {
        claim: "Programs that read, and they alone, are sensitive to latency",
        verdict,
        evidence: match (readers.len(), others.len()) {
            (0, _) | (_, 0) => "It takes programs that read and others, with round trips that are traced or \
                                declared."
                .into(),
            _ => format!(
                "It holds for {holds} of {} programs: {}.",
                known.len(),
                joined(listed)
            ),
        },
    }
}

/// Percentage of the busiest process's messages (of the busiest host's packets, without a trace).
fn share_of_reads(workload: &WorkloadReport) -> Option<f64> {
    let communication = workload.baseline.communication.as_ref()?;
    let round_trips = communication.round_trips?;
    Some(match &communication.program {
        Some(program) => program.reads_percent,
        None => communication.sent.reads_percent(round_trips),
    })
}

fn sensitive(report: &KnobReport) -> bool {
    let last = report.slowdown.iter().flatten().next_back();
    report.responds() && last.is_some_and(|slowdown| *slowdown >= SENSITIVE)
}

fn bulk(workloads: &[WorkloadReport]) -> Finding {
    let mut rows: Vec<(&str, f64, f64)> = turned(workloads, Knob::Bandwidth)
        .filter(|(workload, _)| !workload.per_operation)
        .filter_map(|(workload, report)| {
            let size = workload.baseline.communication.as_ref()?.sent.mean_size;
            // Slope per µs/byte, as percent per ns/byte.
            let slope = report.slope.filter(|_| report.responds()).unwrap_or(0.0);
            Some((workload.name.as_str(), size, slope / 10.0))
        })
        .collect();
    rows.sort_by(|a, b| b.2.total_cmp(&a.2));
    let others = || rows.iter().filter(|(_, size, _)| *size < BULK_BYTES);
    let highest = others().map(|(_, _, slope)| *slope).fold(0.0, f64::max);
    let bulk: Vec<f64> = rows
        .iter()
        .filter(|(_, size, _)| *size >= BULK_BYTES)
        .map(|(_, _, slope)| *slope)
        .collect();
    let holds = bulk.iter().filter(|slope| **slope > highest).count();
    let listed = rows
        .iter()
        .map(|(name, size, slope)| format!("{name} ({size:.0} bytes) {slope:.2} %"));
    let tested = if others().count() == 0 { 0 } else { bulk.len() };
    Finding {
        claim: "Programs that send in bulk are the ones sensitive to bandwidth",
        verdict: Verdict::of(holds, tested),
        evidence: match tested {
            0 => "It takes programs that send in bulk and others.".into(),
            count => format!(
                "{holds} of {count} programs that send in bulk respond more than any other; one ns per byte costs \
                 (mean packet): {}.",
                joined(listed)
            ),
        },
    }
}

fn nfs(workloads: &[WorkloadReport]) -> Finding {
    let servers: Vec<(&WorkloadReport, &KnobReport)> = turned(workloads, Knob::Latency)
        .filter(|(workload, _)| workload.per_operation && workload.is_server)
        .collect();
    let has_knee = |report: &KnobReport| {
        let bends = matches!(report.shape, Some(Kind::Threshold | Kind::Bent));
        bends && report.knee_us.is_some_and(|knee| NFS_KNEE_US.contains(&knee))
    };
    let has_slope = |report: &KnobReport| report.coefficient.is_some_and(|slope| NFS_SLOPE.contains(&slope));
    let knees = servers.iter().filter(|(_, report)| has_knee(report)).count();
    let slopes = servers.iter().filter(|(_, report)| has_slope(report)).count();
    let verdict = match (
        Verdict::of(knees, servers.len()),
        Verdict::of(slopes, servers.len()),
    ) {
        (knee, slope) if knee == slope => knee,
        _ => Verdict::PartlyConfirmed,
    };
    let listed = servers.iter().map(|(workload, report)| {
        let knee = report.knee_us.map_or_else(
            || "no knee".to_owned(),
            |knee| format!("a knee at {}", Knob::Latency.written(knee)),
        );
        format!(
            "{} has {knee} and pays {:.2} us for each us",
            workload.name,
            report.coefficient.unwrap_or_default()
        )
    });
    Finding {
        claim: "NFS does not notice latency up to about 150 us and pays 2 to 3 us for each us above",
        verdict,
        evidence: match servers.len() {
            0 => "No workload is the response time of a file server (`queueing`).".into(),
            _ => format!("{}.", joined(listed)),
        },
    }
}

fn errors(workloads: &[WorkloadReport]) -> Finding {
    let mut listed = Vec::new();
    for knob in Knob::ALL {
        let mut errors: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (_, report) in responding(workloads, knob) {
            for (name, model) in &report.models {
                errors.entry(name).or_default().extend(model.mean_error_percent);
            }
        }
        let of_models = errors.into_iter().filter_map(|(name, errors)| {
            let count = errors.len();
            Some(format!("{name} {:.0} % ({count})", mean(errors)?))
        });
        let of_models: Vec<String> = of_models.collect();
        if !of_models.is_empty() {
            listed.push(format!("{} {}", knob.letter(), of_models.join(", ")));
        }
    }
    let ours = responding(workloads, Knob::Overhead)
        .iter()
        .filter_map(|(_, report)| report.models.get("loggp")?.mean_error_percent)
        .collect::<Vec<f64>>();
    let theirs = published::measurements();
    let theirs = theirs
        .iter()
        .filter(|row| row.source == THESIS_OVERHEAD)
        .map(|row| row.mean_absolute_error_percent);
    let (verdict, beside) = match (mean(ours), mean(theirs)) {
        (Some(ours), Some(theirs)) => (
            Verdict::of(usize::from(ours <= theirs), 1),
            format!("For o it is {ours:.0} % on average, from the thesis's measurements {theirs:.0} %. "),
        ),
        _ => (Verdict::NotTested, String::new()),
    };
    Finding {
        claim: "The model of the overhead is as near as in the thesis",
        verdict,
        evidence: if listed.is_empty() {
            "No program responded to a knob that has a model.".into()
        } else {
            format!(
                "{beside}Mean errors of the models (programs): {}.",
                listed.join("; ")
            )
        },
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values
        .into_iter()
        .fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::report::{
        fixture::{Program, Values, sweep},
        summary::Report,
    };

    /// 2m Δo for 1000 packets.
    fn overhead(knob: Values<'_>) -> f64 {
        2000.0 * (knob(Knob::Overhead) - 2.0)
    }

    /// m Δg.
    fn gap(knob: Values<'_>) -> f64 {
        1000.0 * (knob(Knob::Gap) - 5.0)
    }

    /// 2t ΔL for 400 round trips.
    fn latency(knob: Values<'_>) -> f64 {
        800.0 * (knob(Knob::Latency) - 20.0)
    }

    /// b ΔG for a megabyte.
    fn bandwidth(knob: Values<'_>) -> f64 {
        1e6 * (knob(Knob::Bandwidth) - 0.01)
    }

    fn program(name: &'static str, bytes: u64, round_trips: u64, micros: fn(Values<'_>) -> f64) -> Program {
        Program {
            name,
            micros,
            packets: 1000,
            bytes,
            keys: match round_trips {
                0 => "communication: { round_trips: 0 }",
                _ => "communication: { round_trips: 400 }",
            },
        }
    }

    /// Of an operation, in µs.
    fn server(micros: fn(Values<'_>) -> f64) -> Program {
        Program {
            keys: "metric: { json: t, of: operation }, queueing: nfs-server.yaml",
            ..program("server", 100, 0, micros)
        }
    }

    /// The verdicts, and all that is said.
    fn verdicts(programs: &[Program]) -> (Vec<Verdict>, String) {
        let report = Report::of(&sweep(programs, 0.001));
        let verdicts = report.findings.iter().map(|finding| finding.verdict).collect();
        (verdicts, report.to_string())
    }

    #[test]
    fn programs_as_the_thesis_has_them_confirm_it() {
        let (verdicts, said) = verdicts(&[
            program("reader", 100, 400, |knob| {
                1e5 + overhead(knob) + gap(knob) + latency(knob)
            }),
            program("writer", 100, 0, |knob| 1e5 + overhead(knob) + gap(knob)),
            program("bulk", 1000, 0, |knob| {
                1e5 + overhead(knob) + gap(knob) + bandwidth(knob)
            }),
            server(|knob| 2000.0 + 2.5 * (knob(Knob::Latency) - 150.0).max(0.0)),
        ]);
        assert_eq!(verdicts, [Verdict::Confirmed; 6], "{said}");
        for expected in [
            "in proportion: confirmed. 3 of 3 programs",
            "reader (80 % reads) 0.8",
            "writer (0 % reads) not sensitive",
            "bulk (1000 bytes) 1.00 %",
        ] {
            assert!(said.contains(expected), "{expected} is not in\n{said}");
        }
    }

    #[test]
    fn other_programs_refute_it() {
        // Live-lock under overhead; one packet per 100 us; whoever does not read waits; short packets need bandwidth.
        fn livelock(knob: Values<'_>) -> f64 {
            1e5 * (knob(Knob::Overhead) / 20.0).powi(4) + 1000.0 * (knob(Knob::Gap) - 100.0).max(0.0)
        }
        let (verdicts, said) = verdicts(&[
            program("reader", 100, 400, |knob| 1e5 + livelock(knob) + bandwidth(knob)),
            program("bulk", 1000, 0, |knob| 1e5 + livelock(knob) + latency(knob)),
            server(|knob| 2000.0 + 8.0 * knob(Knob::Latency)),
        ]);
        assert_eq!(verdicts, [Verdict::Refuted; 6], "{said}");
        // The slope alone.
        let (verdicts, said) = self::verdicts(&[server(|knob| 2000.0 + 2.5 * knob(Knob::Latency))]);
        assert_eq!(verdicts[4], Verdict::PartlyConfirmed, "{said}");
    }

    #[test]
    fn what_is_not_there_is_not_tested() {
        let (verdicts, said) = verdicts(&[program("idle", 100, 0, |_| 1e5)]);
        assert!(
            verdicts.iter().all(|verdict| *verdict == Verdict::NotTested),
            "{said}"
        );
        assert_eq!(said.matches("not tested here").count(), 6, "{said}");
    }

    #[test]
    fn most_is_partly() {
        assert_eq!(Verdict::of(2, 3), Verdict::PartlyConfirmed);
        assert_eq!(Verdict::of(1, 2), Verdict::Refuted);
    }
}
