//! JSON of rattan's netem-trace: its serialized models of bandwidth, delay and loss, in both spellings of numbers
//! (`"12Mbps"`, `{"gbps":0,"bps":12000000}`). A model that repeats `count: 0` times repeats without end. Models that
//! draw random numbers are refused: their sequence is that of one release of a generator.

use perturb_quantity::{Duration, Probability, Quantity as _};
use serde::Deserialize;

use super::{Column, MAX_LENGTH, MAX_SAMPLES, Recording, RecordingError, Track};

#[derive(Deserialize)]
enum Model {
    #[serde(rename = "StaticBwConfig")]
    StaticBw {
        bw: Option<Bandwidth>,
        duration: Option<Time>,
    },
    #[serde(rename = "TraceBwConfig")]
    TraceBw { pattern: Vec<(Time, Vec<Bandwidth>)> },
    #[serde(rename = "RepeatedBwPatternConfig")]
    RepeatedBwPattern { pattern: Vec<Self>, count: usize },
    #[serde(rename = "StaticDelayConfig")]
    StaticDelay {
        delay: Option<Time>,
        duration: Option<Time>,
    },
    #[serde(rename = "RepeatedDelayPatternConfig")]
    RepeatedDelayPattern { pattern: Vec<Self>, count: usize },
    #[serde(rename = "StaticLossConfig")]
    StaticLoss {
        loss: Option<Vec<f64>>,
        duration: Option<Time>,
    },
    #[serde(rename = "RepeatedLossPatternConfig")]
    RepeatedLossPattern { pattern: Vec<Self>, count: usize },
}

/// bit/s.
#[derive(Deserialize, Clone, Copy)]
#[serde(from = "WrittenBandwidth")]
struct Bandwidth(Option<u64>);

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenBandwidth {
    Parts { gbps: u64, bps: u64 },
    Text(String),
}

impl From<WrittenBandwidth> for Bandwidth {
    fn from(written: WrittenBandwidth) -> Self {
        const UNITS: [(&str, f64); 5] = [
            ("bps", 1.0),
            ("kbps", 1e3),
            ("Mbps", 1e6),
            ("Gbps", 1e9),
            ("Tbps", 1e12),
        ];
        Self(match written {
            WrittenBandwidth::Parts { gbps, bps } => {
                Some(gbps.saturating_mul(1_000_000_000).saturating_add(bps))
            }
            WrittenBandwidth::Text(text) => sum(&text, |unit| {
                UNITS
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                    .map(|(_, size)| *size)
            }),
        })
    }
}

/// ns.
#[derive(Deserialize, Clone, Copy)]
#[serde(from = "WrittenTime")]
struct Time(Option<u64>);

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenTime {
    Parts { secs: u64, nanos: u64 },
    Text(String),
}

impl From<WrittenTime> for Time {
    fn from(written: WrittenTime) -> Self {
        Self(match written {
            WrittenTime::Parts { secs, nanos } => {
                Some(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
            }
            WrittenTime::Text(text) => sum(&text, |unit| match unit {
                "m" => Some(60e9),
                _ => Duration::DIMENSION.size_of(unit).map(|size| size as f64),
            }),
        })
    }
}

/// `1s 500ms`: numbers with units, added.
fn sum(text: &str, size: impl Fn(&str) -> Option<f64>) -> Option<u64> {
    let mut total = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, further) = after.split_at(end);
        total += number.parse::<f64>().ok()? * size(unit)?;
        rest = further.trim_start();
    }
    (!text.trim().is_empty() && total < 9.0e18).then(|| total.round() as u64)
}

/// What the models have said so far.
#[derive(Default)]
struct Said {
    at: Vec<u64>,
    values: Vec<u64>,
    kind: Option<Column>,
    length: u64,
}

pub(super) fn read(text: &str) -> Result<Recording, RecordingError> {
    let model: Model = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let (what, _) = message.rsplit_once(" at line").unwrap_or((&message, ""));
        let random = ["Normalized", "Sawtooth"].iter().any(|word| what.contains(word));
        let remedy = if random {
            "; it draws random numbers: have netem-trace write them out as a TraceBwConfig"
        } else {
            ""
        };
        RecordingError::new(
            error.line().max(1),
            error.column().max(1),
            format!("{what}{remedy}"),
        )
    })?;
    let wrong = |what: String| RecordingError::new(1, 1, what);
    let (models, count) = match &model {
        Model::RepeatedBwPattern { pattern, count }
        | Model::RepeatedDelayPattern { pattern, count }
        | Model::RepeatedLossPattern { pattern, count } => (pattern.as_slice(), *count),
        one => (std::slice::from_ref(one), 1),
    };
    let mut said = Said::default();
    for _ in 0..count.max(1) {
        for one in models {
            said.add(one).map_err(wrong)?;
        }
        if said.at.is_empty() {
            break;
        }
    }
    let Some(kind) = said.kind.filter(|_| said.length > 0) else {
        return Err(wrong("the trace is empty: no model lasts".to_owned()));
    };
    Ok(Recording {
        track: Track::Samples {
            at: said.at,
            columns: vec![(kind, said.values)],
        },
        length: said.length,
        endless: count == 0,
    })
}

impl Said {
    fn add(&mut self, model: &Model) -> Result<(), String> {
        /// A static model's, unless it says otherwise (`StaticBwConfig::build`).
        const DURATION: Time = Time(Some(1_000_000_000));
        match model {
            Model::StaticBw { bw, duration } => {
                let bandwidth = bw.unwrap_or(Bandwidth(Some(12_000_000)));
                self.push(Column::Bandwidth, bandwidth.0, duration.unwrap_or(DURATION))
            }
            Model::TraceBw { pattern } => pattern.iter().try_for_each(|(duration, rates)| {
                rates
                    .iter()
                    .try_for_each(|rate| self.push(Column::Bandwidth, rate.0, *duration))
            }),
            Model::StaticDelay { delay, duration } => {
                let delay = delay.unwrap_or(Time(Some(10_000_000)));
                self.push(Column::Latency, delay.0, duration.unwrap_or(DURATION))
            }
            Model::StaticLoss { loss, duration } => {
                let share = match loss.as_deref() {
                    None | Some([]) => 0.0,
                    Some([share]) if (0.0..=1.0).contains(share) => *share,
                    Some([share]) => return Err(format!("a loss of {share} is not a share from 0 to 1")),
                    Some(_) => {
                        let why = "a loss pattern of several numbers depends on the losses before";
                        return Err(format!(
                            "{why}; use `gilbert_elliott` of a server, and one number here"
                        ));
                    }
                };
                let billionths = (share * Probability::ONE.billionths() as f64).round() as u64;
                self.push(Column::Loss, Some(billionths), duration.unwrap_or(DURATION))
            }
            Model::RepeatedBwPattern { pattern, count }
            | Model::RepeatedDelayPattern { pattern, count }
            | Model::RepeatedLossPattern { pattern, count } => {
                if *count == 0 {
                    return Err(
                        "only the outermost pattern can repeat without end; give this one a `count`".into(),
                    );
                }
                for _ in 0..*count {
                    let before = self.at.len();
                    for one in pattern {
                        self.add(one)?;
                    }
                    if self.at.len() == before {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    fn push(&mut self, kind: Column, value: Option<u64>, duration: Time) -> Result<(), String> {
        let (Some(value), Time(Some(duration))) = (value, duration) else {
            return Err(
                "a bandwidth or a duration has no known unit; write for example 12Mbps, 1s".to_owned(),
            );
        };
        if *self.kind.get_or_insert(kind) != kind {
            return Err("one trace has bandwidths, delays or losses, not several of them".to_owned());
        }
        if duration == 0 {
            return Ok(());
        }
        self.at.push(self.length);
        self.values.push(value);
        self.length = self.length.saturating_add(duration);
        if self.at.len() > MAX_SAMPLES || self.length > MAX_LENGTH {
            let max = Duration::from_nanos(MAX_LENGTH);
            return Err(format!(
                "the trace has more than {MAX_SAMPLES} entries or {max}; repeat it less often"
            ));
        }
        Ok(())
    }
}
