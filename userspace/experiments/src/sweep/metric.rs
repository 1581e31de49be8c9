//! What is read off a run: its wall time, a number in its output, or several.
//!
//! Model: a run has samples x of one quantity, and their mean is its value. Where less is better (times) its cost is
//! the value, where more is better (rates) the reciprocal; slowdowns are ratios of costs.

use perturb_profile::document::{At, Fields, Findings, Kind};
use regex::Regex;
use serde::{Deserialize, Serialize};

/// How to find the value.
#[derive(Clone, Debug)]
pub enum Source {
    /// From the command's start to its end.
    WallTime,
    /// Each match's first group is a sample; without a group the whole match.
    Regex(Regex),
    /// Path into the JSON that the output is: keys and indices.
    Json(Vec<String>),
}

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Small ones.
    Lower,
    /// Large ones.
    Higher,
}

/// What is read off a run.
#[derive(Clone, Debug)]
pub struct Metric {
    /// From where.
    pub source: Source,
    /// Unit of the value; times are converted to seconds.
    pub unit: String,
    /// Factor of the conversion.
    pub factor: f64,
    /// Which values are good.
    pub better: Better,
    /// Whether a time is one operation's, and not the run's.
    pub per_operation: bool,
}

/// Why a run has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    /// Nothing matches.
    #[error("nothing in the output matches {0}")]
    NoMatch(String),
    /// The output is not JSON.
    #[error("the output is not JSON: {0}")]
    NotJson(String),
    /// There is no number where the path leads.
    #[error("the output has no number at {0}")]
    NoNumber(String),
    /// What was found is not a number above 0.
    #[error("`{0}` is not a number above 0")]
    NotPositive(String),
}

impl Metric {
    /// Wall time, in seconds.
    #[must_use]
    pub fn wall_time() -> Self {
        Self {
            source: Source::WallTime,
            unit: "s".into(),
            factor: 1.0,
            better: Better::Lower,
            per_operation: false,
        }
    }

    /// The samples of a run.
    pub fn samples(&self, output: &str, wall_s: f64) -> Result<Vec<f64>, MetricError> {
        let found: Vec<f64> = match &self.source {
            Source::WallTime => vec![wall_s],
            Source::Regex(regex) => {
                let texts: Vec<&str> = regex
                    .captures_iter(output)
                    .filter_map(|captures| captures.get(1).or_else(|| captures.get(0)))
                    .map(|found| found.as_str())
                    .collect();
                if texts.is_empty() {
                    return Err(MetricError::NoMatch(regex.to_string()));
                }
                let number = |text: &&str| {
                    text.parse::<f64>()
                        .map_err(|_| MetricError::NotPositive((*text).to_owned()))
                };
                texts.iter().map(number).collect::<Result<_, _>>()?
            }
            Source::Json(path) => json_samples(output, path)?,
        };
        match found.iter().find(|value| !(value.is_finite() && **value > 0.0)) {
            Some(value) => Err(MetricError::NotPositive(value.to_string())),
            None => Ok(found.into_iter().map(|value| value * self.factor).collect()),
        }
    }
}

fn json_samples(output: &str, path: &[String]) -> Result<Vec<f64>, MetricError> {
    let root: serde_json::Value =
        serde_json::from_str(output.trim()).map_err(|error| MetricError::NotJson(error.to_string()))?;
    let missing = || MetricError::NoNumber(path.join("."));
    let mut here = &root;
    for step in path {
        here = match step.parse::<usize>() {
            Ok(index) if here.is_array() => here.get(index),
            _ => here.get(step),
        }
        .ok_or_else(missing)?;
    }
    match here {
        serde_json::Value::Array(items) if !items.is_empty() => items
            .iter()
            .map(|item| item.as_f64().ok_or_else(missing))
            .collect(),
        number => Ok(vec![number.as_f64().ok_or_else(missing)?]),
    }
}

/// `wall_time`, or a map.
pub(super) fn read(at: At<'_>, findings: &mut Findings<'_>) -> Option<Metric> {
    if let Kind::Scalar(_) = at.node.kind {
        return at
            .choice(&["wall_time"], &[()], findings)
            .map(|()| Metric::wall_time());
    }
    let keys = vec!["regex", "json", "unit", "better", "of"];
    let fields = Fields::open(at, "a metric", keys, findings)?;
    let regex = fields.read("regex", findings, |at, f| {
        let regex = Regex::new(at.text("a regular expression", f)?);
        if regex.is_err() {
            let remedy = "write for example 'time: ([0-9.]+)'; its first group is the value";
            at.unfit("this is no regular expression", remedy, f);
        }
        regex.ok().map(Source::Regex)
    });
    let json = fields.read("json", findings, |at, f| {
        let text = at.text("a path", f)?.replace(']', "").replace('[', ".");
        Some(Source::Json(text.split('.').map(Into::into).collect()))
    });
    if fields.has("regex") == fields.has("json") {
        let remedy = "write `metric: wall_time`, { regex: … } or { json: … }";
        at.unfit(
            "a metric is a regular expression or a JSON path",
            remedy,
            findings,
        );
    }
    let unit = fields
        .read("unit", findings, |at, f| at.text("a unit", f).map(str::to_owned))
        .unwrap_or_else(|| "s".into());
    let seconds = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];
    let time = seconds.iter().find(|(name, _)| *name == unit);
    let better = fields.read("better", findings, |at, f| {
        at.choice(&["lower", "higher"], &[Better::Lower, Better::Higher], f)
    });
    let better = match better {
        Some(better) => better,
        None if time.is_some() => Better::Lower,
        None if unit.ends_with("/s") => Better::Higher,
        None => {
            let example = "better: lower";
            fields.require("better", example, findings, |_, _| Some(Better::Lower))?
        }
    };
    let of = fields.read("of", findings, |at, f| {
        at.choice(&["run", "operation"], &[false, true], f)
    });
    Some(Metric {
        source: regex.or(json)?,
        per_operation: of.unwrap_or(false),
        unit: time.map_or(unit.clone(), |_| "s".into()),
        factor: time.map_or(1.0, |(_, factor)| *factor),
        better,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(source: Source, factor: f64) -> Metric {
        Metric {
            source,
            factor,
            ..Metric::wall_time()
        }
    }

    #[test]
    fn numbers_are_found_in_the_output() {
        let regex = metric(Source::Regex(Regex::new("t=([0-9.]+) ms").unwrap()), 1e-3);
        assert_eq!(
            regex.samples("t=2.5 ms\nt=3.5 ms\n", 9.0),
            Ok(vec![0.0025, 0.0035])
        );
        assert!(matches!(regex.samples("none", 9.0), Err(MetricError::NoMatch(_))));
        let path = |text: &str| Source::Json(text.split('.').map(Into::into).collect());
        let json = metric(path("end.1.rate"), 1.0);
        assert_eq!(json.samples(r#"{"end": [0, {"rate": 7}]}"#, 9.0), Ok(vec![7.0]));
        assert!(matches!(json.samples("{}", 9.0), Err(MetricError::NoNumber(_))));
        assert!(matches!(json.samples("x", 9.0), Err(MetricError::NotJson(_))));
        let list = metric(path("t"), 1.0);
        assert_eq!(list.samples(r#"{"t": [1, 2]}"#, 9.0), Ok(vec![1.0, 2.0]));
        assert!(matches!(
            list.samples(r#"{"t": 0}"#, 9.0),
            Err(MetricError::NotPositive(_))
        ));
    }
}
