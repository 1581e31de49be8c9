//! The architect's questions, answered in words from the numbers: which parameter matters most, how much an
//! improvement of it brings, and from where on it brings nothing.
//!
//! Knobs are compared by what one µs for each packet costs: the slopes over o, g and L are per µs already, the one over
//! G is multiplied by 1 µs over the program's mean packet.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    curve::{KnobReport, turned},
    shape::Kind,
};
use crate::sweep::experiment::Knob;

/// Bytes of a packet where nothing was counted.
const FULL_PACKET: f64 = 1514.0;
/// Two slopes differ by at least so many standard errors.
const DIFFERENT: f64 = 2.0;

/// Knobs from the most to the least important.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ranking {
    /// `o » g > L; no response to G`.
    pub(super) text: String,
    pub(super) places: Vec<Place>,
}

/// A knob in the ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Place {
    pub(super) knob: Knob,
    /// Slowdown in percent for one µs more per packet.
    pub(super) percent_per_us: f64,
    pub(super) stderr: f64,
}

impl Ranking {
    pub(super) fn of(knobs: &BTreeMap<&'static str, KnobReport>, mean_size: Option<f64>) -> Self {
        let mut places = Vec::new();
        let mut silent = Vec::new();
        let mut faster = Vec::new();
        for (knob, report) in turned(knobs) {
            if !report.responds() {
                if report.speeds_up() {
                    faster.push(knob.letter());
                } else {
                    silent.push(knob.letter());
                }
                continue;
            }
            let per_packet = match knob {
                Knob::Bandwidth => 1.0 / mean_size.unwrap_or(FULL_PACKET),
                _ => 1.0,
            };
            places.push(Place {
                knob,
                percent_per_us: 100.0 * per_packet * report.slope.unwrap_or_default(),
                stderr: 100.0 * per_packet * report.slope_stderr.unwrap_or_default(),
            });
        }
        places.sort_by(|a, b| b.percent_per_us.total_cmp(&a.percent_per_us));
        let mut text = String::new();
        for (index, place) in places.iter().enumerate() {
            if let Some(before) = index.checked_sub(1).map(|before| &places[before]) {
                let error = before.stderr.hypot(place.stderr);
                text += if before.percent_per_us > 5.0 * place.percent_per_us {
                    " » "
                } else if before.percent_per_us - place.percent_per_us > DIFFERENT * error {
                    " > "
                } else {
                    " ≈ "
                };
            }
            text += place.knob.letter();
        }
        if !silent.is_empty() {
            let silent = format!("no response to {}", silent.join(", "));
            text = if text.is_empty() {
                silent
            } else {
                format!("{text}; {silent}")
            };
        }
        Self { text, places }
    }
}

/// What a user should do.
pub(super) fn answers(knobs: &BTreeMap<&'static str, KnobReport>, ranking: &Ranking) -> Vec<String> {
    let mut answers = Vec::new();
    if let Some(first) = ranking.places.first() {
        answers.push(format!(
            "The {} matters most ({}): one µs more for each packet costs {:.2} % of run time.",
            first.knob.named(),
            ranking.text,
            first.percent_per_us
        ));
    } else if turned(knobs).any(|(_, report)| report.shape.is_some()) {
        answers.push("The program notices none of the knobs that were turned.".into());
    }
    for place in &ranking.places {
        if let Some(report) = knobs.get(place.knob.key()) {
            answers.push(improvement(place.knob, report));
        }
    }
    for (knob, report) in turned(knobs) {
        if let Some((value, beyond)) = report.tolerance(5) {
            let least = if beyond { ", the worst that was tried" } else { "" };
            answers.push(format!(
                "The {} may worsen to {}{least}, with at most 5 % of slowdown.",
                knob.named(),
                knob.written(value)
            ));
        }
    }
    answers.extend(remarks(knobs));
    answers
}

/// What a line or a number does not show: where the program becomes faster, breaks down or fails.
pub(super) fn remarks(knobs: &BTreeMap<&'static str, KnobReport>) -> Vec<String> {
    let mut remarks = Vec::new();
    for (knob, report) in turned(knobs) {
        if report.speeds_up() {
            remarks.push(format!(
                "A worse {} makes the program faster. Where the network is slow, TCP has time to gather small writes into \
                 fewer packets; look at the packets of those runs.",
                knob.named()
            ));
        }
        for region in &report.regions {
            let (from, to) = (knob.written(region.from_us), knob.written(region.to_us));
            match region.kind {
                "hyper_sensitive" => remarks.push(format!(
                    "Beyond a {} of {from} each further step costs more than before: the program waits for itself \
                     (serialization, contention for locks).",
                    knob.named()
                )),
                "failing" if from == to => {
                    remarks.push(format!("No run had a result with a {} of {from}.", knob.named()));
                }
                "failing" => remarks.push(format!(
                    "No run had a result with a {} from {from} to {to}.",
                    knob.named()
                )),
                _ => {}
            }
        }
    }
    remarks
}

/// The share of run time, in percent, that half of a parameter saves by its slope; nothing where there is none to halve.
pub(super) fn saving(report: &KnobReport) -> Option<f64> {
    let gain = 100.0 * report.slope? * report.baseline_us / 2.0;
    (report.responds() && beyond(report).is_none() && report.baseline_us > 0.0).then_some(gain)
}

/// Up to where nothing changes, if the baseline lies below.
fn beyond(report: &KnobReport) -> Option<f64> {
    let knee = report.knee_us.filter(|_| report.shape == Some(Kind::Threshold));
    knee.filter(|knee| *knee > report.baseline_us)
}

fn improvement(knob: Knob, report: &KnobReport) -> String {
    let price = price(knob, report.slope.unwrap_or_default());
    let name = knob.named();
    if let Some(knee) = beyond(report) {
        return format!(
            "A better {name} saves nothing on this network: up to {} nothing changes; beyond, {price}.",
            knob.written(knee)
        );
    }
    let Some(gain) = saving(report) else {
        return format!("The network here has no {name}; {price}.");
    };
    let change = match knob {
        Knob::Bandwidth => "doubling",
        _ => "halving",
    };
    let half = knob.written(report.baseline_us / 2.0);
    format!("A better {name}: {change} it to {half} saves about {gain:.1} % of run time; {price}.")
}

fn price(knob: Knob, slope: f64) -> String {
    match knob {
        Knob::Bandwidth => format!("each ns per byte costs {:.2} %", 0.1 * slope),
        _ => format!("each µs costs {:.3} %", 100.0 * slope),
    }
}
