//! The report for people at a terminal.

use std::fmt;

use perturb_present::measured;

use super::{
    curve::{KnobReport, turned},
    summary::{Report, WorkloadReport},
};
use crate::sweep::experiment::Knob;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.runs;
        writeln!(
            f,
            "{}: {} runs with a value, {} failed, {} did not end, {} invalid (repeated)",
            self.experiment, runs.ok, runs.failed, runs.timed_out, runs.invalid
        )?;
        for workload in &self.workloads {
            writeln!(f)?;
            write!(f, "{workload}")?;
        }
        writeln!(f, "\nthe thesis's findings, with these numbers")?;
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        Ok(())
    }
}

impl fmt::Display for WorkloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = &self.baseline;
        match base.value {
            Some(value) => {
                write!(f, "{}: {} {}", self.name, measured(value), base.unit)?;
                if let Some([lower, upper]) = base.interval {
                    write!(f, " [{}, {}]", measured(lower), measured(upper))?;
                }
                writeln!(f, " at the baseline, {} runs", base.runs)?;
            }
            None => writeln!(f, "{}: no baseline run has a value", self.name)?,
        }
        if let Some(communication) = &base.communication {
            writeln!(
                f,
                "  {} packets and {} bytes from the busiest host, one each {:.1} us; {} bytes on average, imbalance \
                 {:.2}, burstiness {:.1}",
                communication.sent.messages,
                communication.sent.bytes,
                communication.sent.interval_us,
                communication.sent.mean_size.round(),
                communication.imbalance(),
                communication.burstiness
            )?;
            if let Some(program) = &communication.program {
                writeln!(f, "  traced: {program}")?;
            }
            writeln!(
                f,
                "  the models take, unless the experiment declares others: {}",
                communication.feeds()
            )?;
        }
        if let Some(failure) = &base.trace_failure {
            writeln!(f, "  the traced run failed: {failure}")?;
        }
        if let Some(drift) = base.drift.filter(|drift| drift.significant) {
            writeln!(
                f,
                "  the baseline drifted by {:.1} % per hour",
                drift.percent_per_hour
            )?;
        }
        if let Some(spread) = base.machines {
            writeln!(
                f,
                "  the baseline on {} machines: standard deviation {:.2} % between machines, {:.2} % within one",
                spread.count, spread.between_percent, spread.within_percent
            )?;
        }
        for (knob, report) in turned(&self.knobs) {
            curve(f, knob, report)?;
        }
        for scenario in &self.scenarios {
            writeln!(f, "  {scenario}")?;
        }
        if let Some(effects) = &self.effects {
            writeln!(
                f,
                "  effects on the slowdown, from {} settings:",
                effects.settings
            )?;
            for effect in &effects.effects {
                let alias = match &effect.confounded_with {
                    Some(other) => format!(" (or {other})"),
                    None => String::new(),
                };
                writeln!(f, "    {:<6} {:>+9.4}{alias}", effect.of, effect.slowdown)?;
            }
        }
        for line in Report::failures(self) {
            writeln!(f, "  {line}")?;
        }
        for answer in &self.answers {
            writeln!(f, "  {answer}")?;
        }
        Ok(())
    }
}

fn curve(f: &mut fmt::Formatter<'_>, knob: Knob, report: &KnobReport) -> fmt::Result {
    writeln!(f, "  {knob}: {}", sensitivity(knob, report))?;
    for (index, level) in report.levels_us.iter().enumerate() {
        write!(f, "    {:>12}", knob.written(*level))?;
        match report.slowdown[index] {
            Some(slowdown) => write!(f, " {slowdown:>9.3}")?,
            None => write!(f, " {:>9}", "-")?,
        }
        match (report.slowdown_lower[index], report.slowdown_upper[index]) {
            (Some(lower), Some(upper)) => write!(f, " [{lower:.3}, {upper:.3}]")?,
            _ => write!(f, " [-, -]")?,
        }
        for (name, model) in &report.models {
            if let Some(predicted) = model.slowdown[index] {
                write!(f, "  {name} {predicted:.3}")?;
                if let Some(error) = model.error_percent[index] {
                    write!(f, " ({error:+.1} %)")?;
                }
            }
        }
        if let Some((published, slowdown)) = report
            .published
            .as_ref()
            .and_then(|published| Some((published, published.slowdown[index]?)))
        {
            write!(f, "  {} {slowdown:.3}", published.source)?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// Slope and tolerances in a line.
pub(super) fn sensitivity(knob: Knob, report: &KnobReport) -> String {
    let mut parts = Vec::new();
    let unit = match knob {
        Knob::Bandwidth => "us/B",
        _ => "us",
    };
    if let Some(slope) = report.slope {
        let error = report
            .slope_stderr
            .map(|error| format!(" ± {}", measured(error)))
            .unwrap_or_default();
        parts.push(format!("slope {}{error} per {unit}", measured(slope)));
    }
    if let Some(coefficient) = report.coefficient {
        parts.push(format!("{} us of run time per {unit}", measured(coefficient)));
    }
    if let Some(knee) = report.knee_us {
        parts.push(format!("knee at {}", knob.written(knee)));
    }
    for percent in [1, 2, 5] {
        if let Some((value, beyond)) = report.tolerance(percent) {
            let least = match (beyond, knob) {
                (false, _) => "",
                (true, Knob::Bandwidth) => "below ",
                (true, _) => "above ",
            };
            parts.push(format!("{percent} % at {least}{}", knob.written(value)));
        }
    }
    if parts.is_empty() {
        "nothing measured".into()
    } else {
        parts.join("; ")
    }
}
