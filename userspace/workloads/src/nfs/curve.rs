//! The response-time curve: levels of load, and what they say about a server (Martin 1999, fig. 5.1).
//!
//! Model: response time over delivered throughput, one point for each level. The signature is
//! - *base*: response time at the lowest level,
//! - *slope* and *intercept*: the least-squares line through the levels that delivered what was asked,
//! - *knee*: the level of the greatest power, throughput over response time (Kleinrock 1979),
//! - *peak*: the greatest delivered throughput,
//! - *ORT*: SPECsfs' overall response time, the area under the curve up to the peak over the peak;
//!   left of the first level the curve is taken to be flat, beyond the peak it is not counted.
//!
//! Levels are written one by one to a file of JSON lines, so what has been measured survives an
//! interruption and need not be measured again.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use perturb_stats::{Line, RegressionError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::Record;

/// A level that delivers less than this share of what was asked is saturated.
pub const SATURATED_BELOW: f64 = 0.95;
/// Requested rates that differ by less than this share are the same level.
const SAME_RATE: f64 = 1e-6;

/// What the levels of a curve say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Signature {
    /// Response time at the lowest level.
    pub base_ms: f64,
    /// The line through the levels that were not saturated; µs per op/s and ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<CurveLine>,
    /// Throughput at the knee.
    pub knee_op_s: f64,
    /// Greatest throughput.
    pub peak_op_s: f64,
    /// Whether a level was saturated: without one the peak is only what was asked for.
    pub saturated: bool,
    /// Overall response time.
    pub overall_ms: f64,
}

/// A line through response times, in the units of Martin's Table 5.1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurveLine {
    /// Rise, µs per op/s.
    pub slope_us_per_op_s: f64,
    /// Its standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slope_error: Option<f64>,
    /// Response time at no load, ms.
    pub intercept_ms: f64,
    /// Share of the variance that the line explains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r_squared: Option<f64>,
    /// How many levels it goes through.
    pub levels: usize,
}

/// A line of a curve's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Entry {
    /// What all levels share.
    Settings { settings: Value },
    /// What a search for saturation has found.
    Saturation { op_s: f64 },
    /// One level.
    Level(Box<Record>),
}

/// A curve that grows in a file.
#[derive(Debug)]
pub struct CurveFile {
    path: PathBuf,
    file: File,
    settings: Option<Value>,
    saturation: Option<f64>,
    levels: Vec<Record>,
}

/// Why a curve's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CurveError {
    /// The system refused it.
    #[error("{path}: {reason}")]
    Io {
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// It is there already.
    #[error("{0} has results of an earlier run; go on with --resume, or choose another --out")]
    Exists(PathBuf),
    /// A line of it is not ours.
    #[error("{path}, line {line}: {reason}; is it a file of another version?")]
    Line {
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        reason: serde_json::Error,
    },
    /// It does not say how it was measured.
    #[error("{0} does not say with what settings it was measured; choose another --out")]
    Unsettled(PathBuf),
    /// It was measured otherwise.
    #[error(
        "{path} was measured with {what} = {theirs}, not {ours}; use the same settings to resume, or another --out"
    )]
    Differs {
        path: PathBuf,
        /// The setting.
        what: String,
        /// Its value in the file.
        theirs: String,
        /// Its value now.
        ours: String,
    },
}

/// `count` rates in equal steps up to `highest`.
#[must_use]
pub fn steps(highest: f64, count: u32) -> Vec<f64> {
    (1..=count)
        .map(|step| highest * f64::from(step) / f64::from(count))
        .collect()
}

/// Whether a level did not deliver what was asked for.
#[must_use]
pub fn is_saturated(level: &Record) -> bool {
    level.delivered_op_s < SATURATED_BELOW * level.requested_op_s
}

/// The signature of a curve; `None` without a level that has a response time.
#[must_use]
pub fn signature(levels: &[Record]) -> Option<Signature> {
    let mut points: Vec<(f64, f64)> = levels
        .iter()
        .filter_map(|level| Some((level.delivered_op_s, level.mean_ms?)))
        .collect();
    points.sort_by(|left, right| left.0.total_cmp(&right.0));
    let (_, base_ms) = *levels
        .iter()
        .filter_map(|level| Some((level.requested_op_s, level.mean_ms?)))
        .collect::<Vec<_>>()
        .iter()
        .min_by(|left, right| left.0.total_cmp(&right.0))?;
    let (peak_op_s, _) = *points.last()?;
    let (knee_op_s, _) = *points
        .iter()
        .max_by(|left, right| (left.0 / left.1).total_cmp(&(right.0 / right.1)))?;
    let (mut area, mut before) = (0.0, (0.0, points.first()?.1));
    for &point in &points {
        area += (point.0 - before.0) * (point.1 + before.1) / 2.0;
        before = point;
    }
    let unsaturated: Vec<(f64, f64)> = levels
        .iter()
        .filter(|level| !is_saturated(level))
        .filter_map(|level| Some((level.delivered_op_s, level.mean_ms?)))
        .collect();
    Some(Signature {
        base_ms,
        line: line(&unsaturated).ok(),
        knee_op_s,
        peak_op_s,
        saturated: levels.iter().any(is_saturated),
        overall_ms: area / peak_op_s,
    })
}

/// The line through response times in ms over op/s.
pub fn line(points: &[(f64, f64)]) -> Result<CurveLine, RegressionError> {
    let fitted = Line::fit(points)?;
    Ok(CurveLine {
        slope_us_per_op_s: 1e3 * fitted.slope,
        slope_error: fitted.slope_error.map(|error| 1e3 * error),
        intercept_ms: fitted.intercept,
        r_squared: fitted.r_squared,
        levels: fitted.points,
    })
}

impl CurveFile {
    /// Opens a new file, or with `resume` goes on with an old one.
    pub fn open(path: &Path, resume: bool) -> Result<Self, CurveError> {
        let failed = |reason| CurveError::Io {
            path: path.to_owned(),
            reason,
        };
        if !resume && fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
            return Err(CurveError::Exists(path.to_owned()));
        }
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        let (mut settings, mut saturation, mut levels) = (None, None, Vec::new());
        let text = fs::read_to_string(path).map_err(failed)?;
        let mut read = 0;
        for (index, line) in text.split_inclusive('\n').enumerate() {
            match serde_json::from_str(line) {
                Ok(Entry::Settings { settings: found }) => settings = Some(found),
                Ok(Entry::Saturation { op_s }) => saturation = Some(op_s),
                Ok(Entry::Level(level)) => levels.push(*level),
                // The machine stopped while this line was written; its level is measured again.
                Err(_) if !line.ends_with('\n') => file.set_len(read).map_err(failed)?,
                Err(reason) => {
                    return Err(CurveError::Line {
                        path: path.to_owned(),
                        line: index + 1,
                        reason,
                    });
                }
            }
            read += line.len() as u64;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            settings,
            saturation,
            levels,
        })
    }

    /// Checks that what is there was measured with these settings; a new file is told them.
    pub fn settle(&mut self, now: &Value) -> Result<(), CurveError> {
        let Some(theirs) = &self.settings else {
            if self.saturation.is_some() || !self.levels.is_empty() {
                return Err(CurveError::Unsettled(self.path.clone()));
            }
            self.settings = Some(now.clone());
            let settings = now.clone();
            return self.write(&Entry::Settings { settings });
        };
        // As they are when they are read again.
        let now = serde_json::from_str(&now.to_string()).unwrap_or_default();
        match difference("settings", theirs, &now) {
            None => Ok(()),
            Some((what, theirs, ours)) => Err(CurveError::Differs {
                path: self.path.clone(),
                what: what.to_owned(),
                theirs: said(theirs),
                ours: said(ours),
            }),
        }
    }

    /// The rate of saturation, if a search has found it.
    #[must_use]
    pub fn saturation(&self) -> Option<f64> {
        self.saturation
    }

    /// The levels so far.
    #[must_use]
    pub fn levels(&self) -> &[Record] {
        &self.levels
    }

    /// Whether a level of this rate has been measured.
    #[must_use]
    pub fn has(&self, rate: f64) -> bool {
        self.levels
            .iter()
            .any(|level| (level.requested_op_s / rate - 1.0).abs() < SAME_RATE)
    }

    /// Writes what a search has found.
    pub fn set_saturation(&mut self, op_s: f64) -> Result<(), CurveError> {
        self.saturation = Some(op_s);
        self.write(&Entry::Saturation { op_s })
    }

    /// Writes a level.
    pub fn push(&mut self, level: Record) -> Result<(), CurveError> {
        self.levels.push(level.clone());
        self.write(&Entry::Level(Box::new(level)))
    }

    fn write(&mut self, entry: &Entry) -> Result<(), CurveError> {
        let failed = |reason| CurveError::Io {
            path: self.path.clone(),
            reason,
        };
        let mut line = serde_json::to_string(entry).map_err(|error| failed(error.into()))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(failed)?;
        self.file.sync_data().map_err(failed)
    }
}

/// The first setting that differs, with both values.
fn difference<'a>(
    name: &'a str,
    one: &'a Value,
    other: &'a Value,
) -> Option<(&'a str, &'a Value, &'a Value)> {
    match (one, other) {
        (Value::Object(ones), Value::Object(others)) if time(one).is_none() => {
            let names = ones.keys().chain(others.keys());
            names.into_iter().find_map(|name| {
                let of = |all: &'a serde_json::Map<String, Value>| all.get(name).unwrap_or(&Value::Null);
                difference(name, of(ones), of(others))
            })
        }
        _ => (one != other).then_some((name, one, other)),
    }
}

fn time(value: &Value) -> Option<Duration> {
    value
        .is_object()
        .then(|| serde_json::from_value(value.clone()).ok())?
}

fn said(value: &Value) -> String {
    match (time(value), value) {
        (Some(time), _) => format!("{time:?}"),
        (None, Value::Null) => "none".into(),
        (None, Value::String(text)) => text.clone(),
        (None, other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::nfs::{client::Transport, data_set::Extent, record::Arrivals};

    fn level(requested: f64, delivered: f64, mean_ms: f64) -> Record {
        Record {
            mix: "m".into(),
            arrivals: Arrivals::Closed,
            requested_op_s: requested,
            delivered_op_s: delivered,
            mean_ms: Some(mean_ms),
            mean_interval_ms: None,
            p50_ms: None,
            p99_ms: None,
            late_p99_ms: None,
            errors: 0,
            errors_by_kind: BTreeMap::new(),
            retransmissions: 0,
            packets_per_op: None,
            cut_short: None,
            unanswered: 0,
            transport: Transport::Tcp,
            processes: 1,
            connections: 1,
            scale: 1.0,
            data_set: Extent::of(1.0, 1.0),
            warmup_s: 1.0,
            duration_s: 1.0,
            seed: 1,
            operations: BTreeMap::new(),
            histogram: Vec::new(),
        }
    }

    /// Martin 1999, Table A.5 (RAID server, baseline) and the measured row of Table 5.1 for 500 to 1400
    /// op/s: slope 18.9 µs per op/s, intercept -6.8 ms (the two intercepts of the RAID server are
    /// exchanged in print), r² 0.96, base 4.5 ms.
    #[test]
    fn the_line_of_table_5_1() {
        let points = [
            (494.0, 4.5),
            (595.0, 4.9),
            (696.0, 6.1),
            (797.0, 7.2),
            (901.0, 8.8),
            (1001.0, 11.4),
            (1205.0, 15.0),
            (1304.0, 18.7),
            (1405.0, 21.0),
        ];
        let levels: Vec<Record> = points.iter().map(|(rate, ms)| level(*rate, *rate, *ms)).collect();
        let signature = signature(&levels).unwrap();
        let line = signature.line.unwrap();
        assert!((line.slope_us_per_op_s - 18.9).abs() < 0.5, "{line:?}");
        assert!((line.intercept_ms + 6.8).abs() < 0.6, "{line:?}");
        assert!((line.r_squared.unwrap() - 0.96).abs() < 0.01, "{line:?}");
        assert_eq!((signature.base_ms, signature.peak_op_s), (4.5, 1405.0));
    }

    #[test]
    fn the_signature_of_a_saturated_curve() {
        let levels = [
            level(100.0, 100.0, 1.0),
            level(200.0, 200.0, 2.0),
            level(300.0, 240.0, 10.0),
        ];
        let signature = signature(&levels).unwrap();
        assert!(signature.saturated);
        assert_eq!((signature.base_ms, signature.peak_op_s), (1.0, 240.0));
        assert_eq!(
            signature.line.unwrap().levels,
            2,
            "the saturated level is on no line"
        );
        // Power is 100 at both of the first levels, and less at the third.
        assert!(signature.knee_op_s <= 200.0);
        // 100 * 1 + 100 * 1.5 + 40 * 6 over 240.
        assert!((signature.overall_ms - 490.0 / 240.0).abs() < 1e-9);
    }

    #[test]
    fn a_file_survives_an_interruption() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("curve.jsonl");
        let mut file = CurveFile::open(&path, false).unwrap();
        file.set_saturation(500.0).unwrap();
        file.push(level(100.0, 100.0, 1.0)).unwrap();
        drop(file);
        // Half a line: the machine stopped there.
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"{\"kind\":\"level\",\"mi").unwrap();
        assert!(matches!(
            CurveFile::open(&path, false),
            Err(CurveError::Exists(_))
        ));
        let mut file = CurveFile::open(&path, true).unwrap();
        assert_eq!(file.saturation(), Some(500.0));
        assert!(file.has(100.0) && !file.has(200.0));
        file.push(level(200.0, 200.0, 1.0)).unwrap();
        let file = CurveFile::open(&path, true).unwrap();
        assert!(file.has(100.0) && file.has(200.0));
    }

    #[test]
    fn levels_of_other_settings_are_another_curve() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("curve.jsonl");
        let settings = |scale: f64, seconds| {
            let time = Duration::from_secs(seconds);
            serde_json::json!({ "load": { "scale": scale, "duration": time }, "profile": null })
        };
        let mut file = CurveFile::open(&path, false).unwrap();
        file.settle(&settings(0.1 + 0.2, 60)).unwrap();
        file.push(level(100.0, 100.0, 1.0)).unwrap();
        let mut again = CurveFile::open(&path, true).unwrap();
        again.settle(&settings(0.1 + 0.2, 60)).unwrap();
        for (other, message) in [
            (settings(2.0, 60), "scale = 0.30000000000000004, not 2.0"),
            (settings(0.1 + 0.2, 1), "duration = 60s, not 1s"),
        ] {
            let refused = again.settle(&other).unwrap_err().to_string();
            assert!(refused.contains(message), "{refused}");
        }
        let path = directory.path().join("old.jsonl");
        let mut old = CurveFile::open(&path, false).unwrap();
        old.push(level(100.0, 100.0, 1.0)).unwrap();
        assert!(matches!(
            old.settle(&settings(1.0, 1)),
            Err(CurveError::Unsettled(_))
        ));
    }
}
