//! What the papers' models predict for the levels of a knob, from the baseline run alone.
//!
//! | model | knob | run time added | from |
//! |---|---|---|---|
//! | `loggp` | o, L, G | 2 m Δo, 2 t ΔL, b ΔG | Martin 1999, sections 3.3 to 3.5 |
//! | `burst` | g | m Δg | the same |
//! | `uniform` | g | m (g - I) above I, else nothing | the same |
//! | `serial` | all | every message of every host is on the critical path: 2 M Δo, M Δg, M ΔL, B ΔG | this program |
//! | `plogpt`, `plogp` | all | time of a collective, as often as it is made (see [`collective`]) | Nomura et al. 2007 |
//! | `queueing` | o, L | response time of a file server | Martin 1999, chapter 5 |
//!
//! m and b are the packets and bytes of the host that sends most, M and B those of all hosts, as the emulator's counters
//! have them, unless the experiment declares them. t are the blocking round trips that the experiment declares, else those
//! of the traced run; without either there is no `loggp` for L. `serial` is an upper bound for programs that exchange messages in turn. A server of the queueing model without a fixed delay is given
//! the one that the measured baseline has beyond its stations.

use std::collections::BTreeMap;

use perturb_models::{
    loggp::{Baseline, LoggpInput, Messages, Parameter, Vary, predict},
    queueing::{NfsInput, VaryNetwork, predict_nfs},
};
use perturb_quantity::{ByteSize, BytesPerSecond, Micros};
use serde::Serialize;

use super::{collective, communication::Communication};
use crate::sweep::experiment::{Collective, Declared, Knob};

/// A bandwidth that stands for none, in bytes per second.
const UNLIMITED: f64 = 1e15;

/// A model's say on a knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Model {
    /// Slowdown at each level; null where the model has none.
    pub(super) slowdown: Vec<Option<f64>>,
    /// µs of run time for each µs of the knob (for each µs per byte of G), where that is one number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) coefficient: Option<f64>,
    /// (predicted - measured) / measured at each level.
    pub(super) error_percent: Vec<Option<f64>>,
    /// Mean of their absolute values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mean_error_percent: Option<f64>,
}

/// What the models start from.
pub(super) struct Basis<'a> {
    /// Of a run, or of an operation.
    pub(super) run_time_us: f64,
    /// Whether it is an operation's, of which the LogGP models know nothing.
    pub(super) per_operation: bool,
    /// Baseline of each knob.
    pub(super) baseline: &'a dyn Fn(Knob) -> f64,
    pub(super) communication: Option<&'a Communication>,
    pub(super) declared: Declared,
    pub(super) queueing: Option<&'a str>,
    pub(super) collective: Option<Collective>,
    pub(super) hosts: u32,
}

/// All models of a knob.
pub(super) fn models(
    basis: &Basis<'_>,
    knob: Knob,
    levels: &[f64],
    measured: &[Option<f64>],
) -> BTreeMap<&'static str, Model> {
    let mut models = BTreeMap::new();
    let mut add = |name, coefficient, slowdown: Vec<Option<f64>>| {
        if slowdown.iter().any(Option::is_some) {
            models.insert(name, Model::new(slowdown, coefficient, measured));
        }
    };
    if let Some(input) = loggp_input(basis, knob, levels).filter(|_| !basis.per_operation)
        && let Ok(prediction) = predict(&input)
    {
        let slope = |model: Option<&str>| {
            let found = prediction
                .sensitivities
                .iter()
                .find(|sensitivity| sensitivity.knob == Parameter::Knob(knob) && sensitivity.model == model);
            found.map(|sensitivity| sensitivity.run_time_s_per_us * 1e6)
        };
        let ratio = |seconds: &[f64]| -> Vec<Option<f64>> {
            let over = |time: &f64| Some(time * 1e6 / basis.run_time_us);
            seconds.iter().map(over).collect()
        };
        if knob == Knob::Gap {
            add("burst", slope(Some("burst")), ratio(&prediction.run_time_s));
            if let Some(uniform) = &prediction.uniform_s {
                add("uniform", slope(Some("uniform")), ratio(uniform));
            }
        } else {
            add("loggp", slope(None), ratio(&prediction.run_time_s));
        }
    }
    if let Some(coefficient) = serial(basis, knob).filter(|_| !basis.per_operation) {
        let base = (basis.baseline)(knob);
        let at = |level: &f64| Some(1.0 + coefficient * (level - base) / basis.run_time_us);
        add("serial", Some(coefficient), levels.iter().map(at).collect());
    }
    if let Some(pattern) = basis.collective {
        let of = collective::slowdowns(
            pattern,
            basis.hosts,
            basis.run_time_us,
            basis.baseline,
            knob,
            levels,
        );
        for (name, slowdown) in of {
            add(name, None, slowdown);
        }
    }
    if let Some(slowdown) = queueing(basis, knob, levels) {
        add("queueing", None, slowdown);
    }
    models
}

impl Model {
    fn new(slowdown: Vec<Option<f64>>, coefficient: Option<f64>, measured: &[Option<f64>]) -> Self {
        let error = |(predicted, measured): (&Option<f64>, &Option<f64>)| {
            let (predicted, measured) = ((*predicted)?, (*measured)?);
            Some(100.0 * (predicted - measured) / measured)
        };
        let error_percent: Vec<Option<f64>> = slowdown.iter().zip(measured).map(error).collect();
        let known: Vec<f64> = error_percent.iter().flatten().map(|error| error.abs()).collect();
        Self {
            slowdown,
            coefficient,
            mean_error_percent: (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64),
            error_percent,
        }
    }
}

fn loggp_input(basis: &Basis<'_>, knob: Knob, levels: &[f64]) -> Option<LoggpInput> {
    let counted = basis.communication;
    let declared = &basis.declared;
    let messages = declared
        .messages
        .or(counted.map(|counted| counted.sent.messages))?;
    let bytes = declared
        .bytes
        .map(|bytes| bytes as f64)
        .or(counted.map(|counted| counted.sent.bytes as f64));
    let base = |knob: Knob| Micros((basis.baseline)(knob));
    let rate = |value: f64| BytesPerSecond(if value > 0.0 { 1e6 / value } else { UNLIMITED });
    let mut vary = Vary::default();
    let micros = || Some(levels.iter().map(|level| Micros(*level)).collect());
    match knob {
        Knob::Overhead => vary.overhead = micros(),
        Knob::Gap => vary.gap = micros(),
        Knob::Latency => vary.latency = micros(),
        Knob::Bandwidth => vary.bandwidth = Some(levels.iter().map(|level| rate(*level)).collect()),
        _ => return None,
    }
    Some(LoggpInput {
        application: None,
        baseline: Baseline {
            run_time: Micros(basis.run_time_us),
            overhead: Some(base(Knob::Overhead)),
            gap: Some(base(Knob::Gap)),
            latency: Some(base(Knob::Latency)),
            bandwidth: Some(rate((basis.baseline)(Knob::Bandwidth))),
            fragment_overhead: None,
        },
        messages: Some(Messages {
            maximum: messages,
            average: None,
            interval: declared.interval_us.map(Micros),
            reads: None,
            round_trips: counted
                .and_then(|counted| counted.round_trips)
                .or(declared.round_trips),
            bulk: None,
            bulk_bytes: bytes.map(ByteSize),
            bulk_rate: None,
            fragment: None,
        }),
        mpi: None,
        vary,
    })
}

/// µs of run time for each µs of the knob, if all messages of all hosts come one after another.
fn serial(basis: &Basis<'_>, knob: Knob) -> Option<f64> {
    let counted = basis.communication?;
    let messages = counted.sent.total_messages as f64;
    Some(match knob {
        Knob::Overhead => 2.0 * messages,
        Knob::Gap | Knob::Latency => messages,
        Knob::Bandwidth => counted.sent.total_bytes as f64,
        _ => return None,
    })
}

fn queueing(basis: &Basis<'_>, knob: Knob, levels: &[f64]) -> Option<Vec<Option<f64>>> {
    // The text was checked when the experiment was read.
    let mut input: NfsInput = serde_saphyr::from_str(basis.queueing?).ok()?;
    let base = (basis.baseline)(knob);
    if input.server.fixed_delay.0 == 0.0 {
        let stations = response_us(&input, knob, 0.0)?;
        input.server.fixed_delay = Micros((basis.run_time_us - stations).max(0.0));
    }
    let at_base = response_us(&input, knob, 0.0)?;
    let slowdown = |level: &f64| Some(response_us(&input, knob, (level - base).max(0.0))? / at_base);
    Some(levels.iter().map(slowdown).collect())
}

/// Response time at the base rate with so much added to a knob.
fn response_us(input: &NfsInput, knob: Knob, added: f64) -> Option<f64> {
    let mut input = input.clone();
    let added = vec![Micros(added)];
    input.vary = Some(match knob {
        Knob::Overhead => VaryNetwork::AddedOverhead(added),
        Knob::Latency => VaryNetwork::AddedLatency(added),
        _ => return None,
    });
    let base_ms = predict_nfs(&input).ok()?.variations.first()?.base_ms?;
    Some(base_ms * 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::communication::Volume;
    use super::*;

    #[test]
    fn coefficients_are_the_thesis_s() {
        let communication = Communication {
            sent: Volume {
                messages: 1000,
                bytes: 100_000,
                total_messages: 1500,
                total_bytes: 150_000,
                ..Volume::default()
            },
            ..Communication::default()
        };
        let basis = Basis {
            run_time_us: 1e5,
            per_operation: false,
            baseline: &|knob| if knob == Knob::Gap { 5.0 } else { 0.0 },
            communication: Some(&communication),
            declared: Declared {
                round_trips: Some(250),
                ..Declared::default()
            },
            queueing: None,
            collective: None,
            hosts: 2,
        };
        let coefficient = |knob, name: &str| {
            models(&basis, knob, &[10.0, 20.0], &[Some(1.2), None])[name]
                .coefficient
                .unwrap()
        };
        let about = |value: f64, expected: f64| (value / expected - 1.0).abs() < 1e-9;
        assert!(about(coefficient(Knob::Overhead, "loggp"), 2000.0));
        assert!(about(coefficient(Knob::Overhead, "serial"), 3000.0));
        assert!(about(coefficient(Knob::Gap, "burst"), 1000.0));
        assert!(about(coefficient(Knob::Latency, "loggp"), 500.0));
        assert!(about(coefficient(Knob::Bandwidth, "loggp"), 100_000.0));
        let overhead = &models(&basis, Knob::Overhead, &[10.0, 20.0], &[Some(1.2), None])["loggp"];
        assert!(about(overhead.slowdown[0].unwrap(), 1.2));
        assert_eq!(overhead.error_percent[1], None);
        assert!(overhead.mean_error_percent.unwrap() < 1e-9);
    }

    #[test]
    fn the_queueing_model_starts_from_the_measured_baseline() {
        // Nearly idle, 500 us at the processor: the other 1.5 ms of the baseline are a delay that no knob changes.
        let server =
            "server: { cpu_service: 500us, hit: 100%, disks: 1, disk_service: 1ms }\nrates: [1op/s]\n";
        let basis = Basis {
            run_time_us: 2000.0,
            per_operation: true,
            baseline: &|_| 10.0,
            communication: Some(&Communication::default()),
            declared: Declared::default(),
            queueing: Some(server),
            collective: None,
            hosts: 2,
        };
        let slowdown = |knob| {
            let models = models(&basis, knob, &[10.0, 510.0], &[None, None]);
            assert_eq!(models.keys().collect::<Vec<_>>(), [&"queueing"]);
            models["queueing"].slowdown.clone()
        };
        let added = perturb_models::queueing::LATENCIES_PER_OPERATION * 500.0;
        let at = slowdown(Knob::Latency);
        assert_eq!(at[0], Some(1.0));
        assert!((at[1].unwrap() - (1.0 + added / 2000.0)).abs() < 1e-3, "{at:?}");
        assert!(slowdown(Knob::Overhead)[1] > Some(1.4));
    }
}
