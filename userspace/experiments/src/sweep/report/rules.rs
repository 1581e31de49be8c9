//! Rules: how much slower a program may become.
//!
//! Model: what a metric read off the runs counts as costs (rates are inverted), over the same statistic of the baseline
//! of the same directory (machine). A rule holds where the statistic of these factors is less than its bound, and no run
//! has failed. With few readings a high quantile is the largest of them: read off operations, not runs.

use std::{cmp::Ordering, collections::BTreeMap, fmt, path::Path, str::FromStr};

use perturb_stats::Sample;

use super::{
    level::cost,
    load::{InputError, Sweep, load},
};
use crate::{
    judged::Judged,
    sweep::{
        experiment::{Experiment, Knob, WorkloadSummary},
        plan,
        setting::{Level, SCENARIO, written},
        store::{Record, Status},
    },
};

/// Levels are the same if they differ by less than this share: texts have a few digits.
const SAME: f64 = 1e-3;

/// What a rule is about; all must hold.
#[derive(Clone, Debug, PartialEq)]
enum Where {
    Program(String),
    Knob(Knob),
    Level(Knob, f64),
    Scenario(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Mean,
    Quantile(f64),
}

/// A rule, such as `p99 < 1.1x` or `web, latency 20ms: median < 1.05x`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    text: String,
    places: Vec<Where>,
    statistic: Statistic,
    bound: f64,
}

/// What is no rule, or one of nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// Its form.
    #[error("`{0}` is no rule; write one as `p99 < 1.1x`, or `PROGRAM, latency 20ms: median < 1.05x`")]
    Form(String),
    /// Its statistic.
    #[error("`{0}` is no statistic; allowed: mean, median, max, p50 to p99.99")]
    Statistic(String),
    /// Its bound.
    #[error("`{0}` is no bound; write how many times the baseline's, such as 1.1x")]
    Bound(String),
    /// The value of a knob.
    #[error("{knob}: {reason}")]
    Level { knob: Knob, reason: String },
    /// Nothing in the experiment is meant.
    #[error("the rule `{rule}` is about nothing in this experiment; it has {has}")]
    Nothing { rule: String, has: String },
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let form = || RuleError::Form(text.to_owned());
        let (places, bound) = text.split_once(':').unwrap_or(("", text));
        let (statistic, bound) = bound.split_once('<').ok_or_else(form)?;
        let places = places.split(',').map(str::trim).filter(|place| !place.is_empty());
        Ok(Self {
            text: text.trim().to_owned(),
            places: places.map(place).collect::<Result<_, _>>()?,
            statistic: statistic.trim().parse()?,
            bound: factor(bound.trim())?,
        })
    }
}

fn factor(text: &str) -> Result<f64, RuleError> {
    let number = text
        .strip_suffix('x')
        .and_then(|number| number.trim().parse().ok());
    let bound = number.filter(|bound: &f64| bound.is_finite() && *bound > 0.0);
    bound.ok_or_else(|| RuleError::Bound(text.to_owned()))
}

fn place(text: &str) -> Result<Where, RuleError> {
    let Some((first, rest)) = text.split_once(char::is_whitespace) else {
        let knob = text.parse().map(Where::Knob);
        return Ok(knob.unwrap_or_else(|_| Where::Program(text.to_owned())));
    };
    let rest = rest.trim();
    if first == SCENARIO {
        return Ok(Where::Scenario(rest.to_owned()));
    }
    let Ok(knob) = first.parse::<Knob>() else {
        return Ok(Where::Program(text.to_owned()));
    };
    let value = knob.parse(rest).map_err(|error| RuleError::Level {
        knob,
        reason: error.to_string(),
    })?;
    Ok(Where::Level(knob, value))
}

impl FromStr for Statistic {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let percent = || {
            text.strip_prefix('p')
                .and_then(|percent| percent.parse::<f64>().ok())
        };
        match text {
            "mean" => Ok(Self::Mean),
            "median" => Ok(Self::Quantile(0.5)),
            "max" => Ok(Self::Quantile(1.0)),
            _ => match percent() {
                Some(percent) if (50.0..100.0).contains(&percent) => Ok(Self::Quantile(percent / 100.0)),
                _ => Err(RuleError::Statistic(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::Quantile(1.0) => f.write_str("max"),
            Self::Quantile(0.5) => f.write_str("median"),
            Self::Quantile(quantile) => write!(f, "p{}", (quantile * 1e6).round() / 1e4),
        }
    }
}

impl Statistic {
    fn of(self, values: &[f64]) -> Option<f64> {
        let Ok(sample) = Sample::new(values.to_vec()) else {
            return values.first().copied();
        };
        match self {
            Self::Mean => Some(sample.mean()),
            Self::Quantile(quantile) => sample.quantile(quantile).ok(),
        }
    }
}

/// Levels by knob, as records have them.
type Levels = BTreeMap<String, Level>;

impl Rule {
    fn is_about(&self, program: &str, levels: &Levels) -> bool {
        let holds = |place: &Where| match place {
            Where::Program(name) => name == program,
            Where::Knob(knob) => levels.contains_key(knob.key()),
            Where::Level(knob, value) => match levels.get(knob.key()) {
                Some(Level::Value(level)) => (level - value).abs() <= SAME * value.abs(),
                _ => false,
            },
            Where::Scenario(name) => levels.get(SCENARIO) == Some(&Level::Name(name.clone())),
        };
        !levels.is_empty() && self.places.iter().all(holds)
    }
}

/// Whether each rule is about something that the experiment measures, before hours are spent on it.
///
/// # Errors
/// If one is not.
pub fn check(experiment: &Experiment, rules: &[Rule]) -> Result<(), RuleError> {
    let cells: Vec<_> = plan::cells(experiment)
        .iter()
        .map(|cell| {
            (
                experiment.workloads[cell.workload].name.as_str().to_owned(),
                cell.setting.levels(),
            )
        })
        .collect();
    about(rules, &cells)
}

fn about(rules: &[Rule], cells: &[(String, Levels)]) -> Result<(), RuleError> {
    let is_about = |rule: &&Rule| {
        cells
            .iter()
            .any(|(program, levels)| rule.is_about(program, levels))
    };
    let Some(rule) = rules.iter().find(|rule| !is_about(rule)) else {
        return Ok(());
    };
    let mut has: Vec<String> = Vec::new();
    for (program, levels) in cells {
        for text in [program.clone(), named(levels)] {
            if !has.contains(&text) {
                has.push(text);
            }
        }
    }
    Err(RuleError::Nothing {
        rule: rule.text.clone(),
        has: has.join("; "),
    })
}

fn named(levels: &Levels) -> String {
    let knobs = levels.iter().filter_map(|(knob, level)| match level {
        Level::Value(value) => Some((knob.parse().ok()?, *value)),
        Level::Name(_) => None,
    });
    match levels.get(SCENARIO) {
        Some(name) => format!("{SCENARIO} {name}"),
        None => written(&knobs.collect::<Vec<_>>()),
    }
}

/// Judges the sweep in a directory, or in those of its tasks.
///
/// # Errors
/// If it cannot be read, or a rule is about nothing in it.
pub fn judge(directory: &Path, rules: &[Rule]) -> Result<Vec<Judged>, JudgeError> {
    Ok(of(&load(directory)?, rules)?)
}

/// Why there is no judgement.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// The sweep.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A rule.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

fn of(sweep: &Sweep, rules: &[Rule]) -> Result<Vec<Judged>, RuleError> {
    let records = || sweep.parts.iter().flat_map(|part| &part.records);
    let mut cells: Vec<(String, Levels)> = Vec::new();
    for record in records() {
        let cell = (record.workload.clone(), record.setting.clone());
        if !record.setting.is_empty() && !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    about(rules, &cells)?;
    cells.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
    let mut cases = Vec::new();
    for rule in rules {
        for (program, levels) in cells
            .iter()
            .filter(|(program, levels)| rule.is_about(program, levels))
        {
            let Some(workload) = sweep.experiment.workloads.iter().find(|one| one.name == *program) else {
                continue;
            };
            cases.push(case(sweep, rule, workload, levels));
        }
    }
    Ok(cases)
}

fn case(sweep: &Sweep, rule: &Rule, workload: &WorkloadSummary, levels: &Levels) -> Judged {
    let (mut factors, mut broken) = (Vec::new(), 0);
    for part in &sweep.parts {
        let own = |setting: &Levels| -> Vec<&Record> {
            let records = part.records.iter();
            records
                .filter(|one| one.workload == workload.name && one.setting == *setting)
                .collect()
        };
        let base = costs(workload, &own(&Levels::new()));
        let here = own(levels);
        broken += here
            .iter()
            .filter(|one| matches!(one.status, Status::Failed | Status::TimedOut))
            .count();
        if let Some(base) = rule.statistic.of(&base) {
            factors.extend(costs(workload, &here).iter().map(|cost| cost / base));
        }
    }
    let (name, statistic) = (format!("{}, {}", workload.name, named(levels)), rule.statistic);
    let (said, passes) = match rule.statistic.of(&factors) {
        _ if broken > 0 => (
            format!("of the runs there, {broken} failed or did not end"),
            false,
        ),
        Some(factor) if factor < rule.bound => (format!("{statistic} is {factor:.3}x"), true),
        Some(factor) => (
            format!("{statistic} is {factor:.3}x, of {} readings", factors.len()),
            false,
        ),
        None => ("nothing was measured there, or at the baseline".to_owned(), false),
    };
    Judged {
        name: format!("{name}: {statistic} < {}x", rule.bound),
        said,
        passes,
    }
}

/// What was read off runs; a run's one value if there is no more.
fn costs(workload: &WorkloadSummary, records: &[&Record]) -> Vec<f64> {
    let readings = records.iter().flat_map(|record| {
        let alone = record.samples.is_empty().then_some(record.value).flatten();
        let readings = if record.value.is_some() {
            record.samples.as_slice()
        } else {
            &[]
        };
        readings.iter().copied().chain(alone)
    });
    readings.map(|value| cost(workload.better, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{Program, sweep},
        *,
    };

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    /// Slower by 1 % for each 10 us of latency; a tenth of noise.
    fn measured() -> Sweep {
        let micros = |knob: super::super::fixture::Values<'_>| 1e6 + 1e3 * knob(Knob::Latency);
        let program = Program {
            name: "web",
            micros,
            packets: 10,
            bytes: 100,
            keys: "hosts: 2",
        };
        sweep(&[program], 0.0)
    }

    #[test]
    fn a_rule_is_judged_where_it_is_about() {
        let sweep = measured();
        let judged = |text| of(&sweep, &[rule(text)]).unwrap();
        // 20 us at the baseline: 1.02 s; 400 us: 1.4 s.
        let all = judged("median < 1.1x");
        assert_eq!(all.len(), 4 + 6 + 5 + 3);
        let failing: Vec<_> = all
            .iter()
            .filter(|case| !case.passes)
            .map(|case| case.name.as_str())
            .collect();
        assert_eq!(
            failing,
            [
                "web, latency 200us: median < 1.1x",
                "web, latency 300us: median < 1.1x",
                "web, latency 400us: median < 1.1x"
            ]
        );
        let one = judged("web, latency 400us: p99 < 1.1x");
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].said, "p99 is 1.373x, of 3 readings");
        assert!(judged("latency 0.4ms: max < 1.4x")[0].passes);
        assert_eq!(judged("bandwidth: mean < 1.001x").len(), 3);
        assert_eq!(judged("bandwidth 20MB/s: mean < 1.001x").len(), 1);
    }

    #[test]
    fn failed_runs_break_a_rule_and_rules_of_nothing_are_refused() {
        let mut sweep = measured();
        let hung = sweep.parts[0]
            .records
            .iter_mut()
            .find(|one| named(&one.setting) == "latency 50us")
            .unwrap();
        hung.status = Status::TimedOut;
        let case = &of(&sweep, &[rule("latency 50us: median < 9x")]).unwrap()[0];
        assert_eq!(
            (case.said.as_str(), case.passes),
            ("of the runs there, 1 failed or did not end", false)
        );
        let error = of(&sweep, &[rule("wob: median < 9x")]).unwrap_err().to_string();
        assert!(
            error.contains("`wob: median < 9x`") && error.contains("web; ") && error.contains("latency 50us"),
            "{error}"
        );
        assert!(of(&sweep, &[rule("latency 51us: median < 9x")]).is_err());
    }

    #[test]
    fn rates_are_inverted_and_what_is_no_rule_says_so() {
        let mut sweep = measured();
        sweep.experiment.workloads[0].better = crate::sweep::metric::Better::Higher;
        let case = &of(&sweep, &[rule("latency 400us: median < 0.8x")]).unwrap()[0];
        assert!(case.passes, "{}", case.said);
        for (text, word) in [
            ("p99 = 1.1x", "no rule"),
            ("p9 < 1.1x", "no statistic"),
            ("p100 < 1.1x", "no statistic"),
            ("p99 < 1.1", "no bound"),
            ("p99 < -1x", "no bound"),
            ("latency 20: p99 < 2x", "latency"),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert_eq!(rule("p99.9 < 1.5x").statistic.to_string(), "p99.9");
    }
}
