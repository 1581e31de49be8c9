//! From an input to its predictions, sensitivities and tolerances.

use perturb_quantity::Share;
use serde::Serialize;

use super::TOLERATED_PERCENT;
use super::input::{LoggpError, LoggpInput, Vary};
use super::knob::{self, Parameter, SlowdownModel};

/// Predicted run times; the keys of `perturb predict loggp --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoggpPrediction {
    /// Name of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Values of the overhead, if that is the varied knob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead_us: Option<Vec<f64>>,
    /// Values of the gap, if that is the varied knob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_us: Option<Vec<f64>>,
    /// Values of the latency, if that is the varied knob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Vec<f64>>,
    /// Values of the bandwidth, if that is the varied knob.
    #[serde(rename = "bandwidth_MB_s", skip_serializing_if = "Option::is_none")]
    pub bandwidth_mb_s: Option<Vec<f64>>,
    /// Values of the cost per fragment, if that is the varied knob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment_overhead_us: Option<Vec<f64>>,
    /// Predicted run times; for the gap those of the burst model.
    pub run_time_s: Vec<f64>,
    /// Gap only: the burst model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_s: Option<Vec<f64>>,
    /// Gap only, and if an interval is known: the uniform model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uniform_s: Option<Vec<f64>>,
    /// Predicted run times over the baseline's.
    pub slowdown: Vec<f64>,
    /// Of every knob whose model has what it needs.
    pub sensitivities: Vec<Sensitivity>,
}

/// How strongly a program answers to one knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The knob.
    pub knob: Parameter,
    /// `burst` or `uniform` for the gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'static str>,
    /// Slope of the run time: s per µs; for the bandwidth s per (µs/byte) of G.
    pub run_time_s_per_us: f64,
    /// Slope of the slowdown: 1 per µs; for the bandwidth per (µs/byte) of G.
    pub slowdown_per_us: f64,
    /// Values of the knob at which given slowdowns are reached; empty if they never are.
    pub tolerance: Vec<Tolerance>,
}

/// The extreme value of a knob that keeps a slowdown within a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// The limit in percent.
    pub slowdown_percent: f64,
    /// Largest value in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_us: Option<f64>,
    /// Bandwidth only: smallest value.
    #[serde(rename = "value_MB_s", skip_serializing_if = "Option::is_none")]
    pub value_mb_s: Option<f64>,
}

pub(super) fn predict(input: &LoggpInput) -> Result<LoggpPrediction, LoggpError> {
    check(input)?;
    let (knob, values) = varied(&input.vary)?;
    if knob == Parameter::BANDWIDTH && values.contains(&0.0) {
        return Err(LoggpError::NoBandwidth {
            key: "vary.bandwidth",
        });
    }
    let run_time_s = evaluate(input, knob, &knob::model(input, knob)?, &values)?;
    let uniform_s = match knob {
        Parameter::GAP => match knob::uniform_gap(input)? {
            Some(model) => Some(evaluate(input, knob, &model, &values)?),
            None => None,
        },
        _ => None,
    };
    let baseline_s = input.baseline.run_time.0 / 1e6;
    let of = |wanted: Parameter| (knob == wanted).then(|| values.clone());
    Ok(LoggpPrediction {
        application: input.application.clone(),
        overhead_us: of(Parameter::OVERHEAD),
        gap_us: of(Parameter::GAP),
        latency_us: of(Parameter::LATENCY),
        bandwidth_mb_s: of(Parameter::BANDWIDTH),
        fragment_overhead_us: of(Parameter::FragmentOverhead),
        burst_s: (knob == Parameter::GAP).then(|| run_time_s.clone()),
        uniform_s,
        slowdown: run_time_s.iter().map(|run_time| run_time / baseline_s).collect(),
        sensitivities: sensitivities(input),
        run_time_s,
    })
}

/// The varied knob and its values in its unit.
fn varied(vary: &Vary) -> Result<(Parameter, Vec<f64>), LoggpError> {
    let micros = |values: &[perturb_quantity::Micros]| values.iter().map(|value| value.0).collect();
    let given: Vec<(Parameter, Vec<f64>)> = [
        vary.overhead
            .as_deref()
            .map(|values| (Parameter::OVERHEAD, micros(values))),
        vary.gap.as_deref().map(|values| (Parameter::GAP, micros(values))),
        vary.latency
            .as_deref()
            .map(|values| (Parameter::LATENCY, micros(values))),
        vary.bandwidth.as_deref().map(|values| {
            (
                Parameter::BANDWIDTH,
                values.iter().map(|value| value.0 / 1e6).collect(),
            )
        }),
        vary.fragment_overhead
            .as_deref()
            .map(|values| (Parameter::FragmentOverhead, micros(values))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let found = given.len();
    match given.into_iter().next() {
        Some((knob, values)) if found == 1 => {
            if values.is_empty() {
                return Err(LoggpError::NoValues { knob });
            }
            Ok((knob, values))
        }
        _ => Err(LoggpError::NotOneKnob { found }),
    }
}

/// Run times in seconds.
fn evaluate(
    input: &LoggpInput,
    knob: Parameter,
    model: &SlowdownModel,
    values: &[f64],
) -> Result<Vec<f64>, LoggpError> {
    values
        .iter()
        .map(|&value| {
            let run_time_s = (input.baseline.run_time.0 + model.added(knob::cost(knob, value))) / 1e6;
            if !run_time_s.is_finite() {
                Err(LoggpError::NotFinite { knob, value })
            } else if run_time_s <= 0.0 {
                Err(LoggpError::NothingLeft {
                    knob,
                    value,
                    run_time_s,
                })
            } else {
                Ok(run_time_s)
            }
        })
        .collect()
}

/// Those of all knobs for which the input has what the model needs.
fn sensitivities(input: &LoggpInput) -> Vec<Sensitivity> {
    let mut found = Vec::new();
    for knob in Parameter::ALL {
        let Ok(model) = knob::model(input, knob) else {
            continue;
        };
        let label = (knob == Parameter::GAP).then_some("burst");
        found.push(sensitivity(input, knob, label, &model));
        if knob == Parameter::GAP
            && let Ok(Some(uniform)) = knob::uniform_gap(input)
        {
            found.push(sensitivity(input, knob, Some("uniform"), &uniform));
        }
    }
    found
}

fn sensitivity(
    input: &LoggpInput,
    knob: Parameter,
    label: Option<&'static str>,
    model: &SlowdownModel,
) -> Sensitivity {
    let run_time = input.baseline.run_time.0;
    let tolerance = TOLERATED_PERCENT
        .iter()
        .filter_map(|&percent| {
            let cost = model.cost_of(run_time * percent / 100.0)?;
            let bandwidth = knob == Parameter::BANDWIDTH;
            Some(Tolerance {
                slowdown_percent: percent,
                value_us: (!bandwidth).then_some(cost),
                value_mb_s: bandwidth.then_some(1.0 / cost),
            })
        })
        .collect();
    Sensitivity {
        knob,
        model: label,
        run_time_s_per_us: model.coefficient / 1e6,
        slowdown_per_us: model.coefficient / run_time,
        tolerance,
    }
}

/// What no knob's model can live with.
fn check(input: &LoggpInput) -> Result<(), LoggpError> {
    if input.baseline.run_time.0 == 0.0 {
        return Err(LoggpError::NoRunTime);
    }
    if input.messages.is_none() && input.mpi.is_none() {
        return Err(LoggpError::NoCommunication);
    }
    if let Some(messages) = &input.messages {
        if let Some(average) = messages.average {
            if !average.is_finite() || average < 0.0 {
                return Err(LoggpError::Average { average });
            }
            if average > messages.maximum as f64 {
                return Err(LoggpError::AverageAboveMaximum {
                    average,
                    maximum: messages.maximum,
                });
            }
        }
        share("messages.reads", messages.reads)?;
        share("messages.bulk", messages.bulk)?;
        if messages.bulk_bytes.is_some() && messages.bulk_rate.is_some() {
            return Err(LoggpError::Twice {
                first: "messages.bulk_bytes",
                second: "messages.bulk_rate",
            });
        }
        if messages.reads.is_some() && messages.round_trips.is_some() {
            return Err(LoggpError::Twice {
                first: "messages.reads",
                second: "messages.round_trips",
            });
        }
        if messages.fragment.is_some_and(|size| size.0 < 1.0) {
            return Err(LoggpError::EmptyFragment {
                key: "messages.fragment",
            });
        }
    }
    if let Some(mpi) = &input.mpi {
        if mpi.fragment.is_some_and(|size| size.0 < 1.0) {
            return Err(LoggpError::EmptyFragment { key: "mpi.fragment" });
        }
        if mpi.sizes.is_some() && (mpi.bytes.is_some() || mpi.fragments.is_some()) {
            return Err(LoggpError::Twice {
                first: "mpi.bytes",
                second: "mpi.sizes",
            });
        }
    }
    Ok(())
}

fn share(key: &'static str, share: Option<Share>) -> Result<(), LoggpError> {
    match share {
        Some(share) if share.0 > 1.0 => Err(LoggpError::ShareAboveOne {
            key,
            percent: share.0 * 100.0,
        }),
        _ => Ok(()),
    }
}
