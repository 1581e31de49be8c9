//! Desired against observed: whether a knob does what it says, and leaves the others alone.
//!
//! Model: o adds up along the way, so what a setting adds is observed - control. g and G are those of the slowest stage,
//! of which the machine's own are others: there max(desired, control) should be observed. L lies between the two: a
//! departure is an absolute time, so what the way itself takes while a packet is held is hidden, and what it takes
//! before and after is not; anything from max(desired, control) to desired + control is as it should be. That is said of
//! the time from the sender's call to the arrival: packets are captured within that call, and what the call does after
//! that is hidden as well. A knob is right
//! within 2 % or 30 us, whichever is larger; G, which has no such absolute bound, within 2 %. Another parameter may
//! change by 5 % of its control or 30 us (30 us in a full frame for G), unless LogGP says that it must:
//!
//! * o hides g and G: a host that takes o for a packet initiates one each o at best. Two hosts on one machine may share
//!   a processor, and then one initiates while the other does not receive: between o and o_s + o_r.
//! * g and G delay a lone packet, as servers deliver at the end of their service. That is subtracted from L where the
//!   service can be seen; behind a sender that is slower it cannot.
//!
//! Where the control's own g or G is larger than what was asked for, nothing else can be seen: such a setting is *hidden*,
//! and says nothing for or against the knob.
//! What is lacking: a verdict where the interval of the observation is wider than the tolerance. The machine is too
//! busy then, which is said, and does not pass.

use perturb_profile::Knob;
use serde::Serialize;

use super::{
    calibration::number,
    knob::{Setting, parameter},
    measurement::Summary,
};
/// Relative tolerance of the knob that is turned.
pub(super) const RELATIVE: f64 = 0.02;
/// Absolute tolerance, microseconds.
pub(super) const ABSOLUTE_US: f64 = 30.0;
/// Relative tolerance of the others.
pub(super) const CROSS_RELATIVE: f64 = 0.05;
/// Bytes of a full frame on the wire.
const FRAME: f64 = 1514.0;

/// What is seen of a setting beside what should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What is judged: the knob's value; of L between private hosts o_s + L, the way from the sender's call on.
    pub seen: f64,
    /// What should have been seen, at least and at most, the control taken into account.
    pub expected: (f64, f64),
    /// How far it is outside of that.
    pub error: f64,
    /// How far it may be.
    pub tolerance: f64,
    /// What the observation allows to say.
    pub verdict: Verdict,
}

/// The judgement of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    #[serde(flatten)]
    pub compared: Compared,
    /// Half the width of the interval of the observation (95 %).
    pub half_width: f64,
    /// What happened to the other parameters.
    pub cross: Vec<Cross>,
}

impl Compared {
    /// For people.
    #[must_use]
    pub(super) fn said(&self, unit: &str) -> String {
        format!(
            "{}: {} {unit}, off by {}, may be {}",
            self.verdict.name(),
            number(self.seen),
            number(self.error),
            number(self.tolerance)
        )
    }

    /// The last cells of a table's row.
    #[must_use]
    pub(super) fn cells(&self) -> [String; 3] {
        let sign = if self.error < 0.0 { "-" } else { "+" };
        [
            format!("{sign}{}", number(self.error.abs())),
            number(self.tolerance),
            self.verdict.name().to_owned(),
        ]
    }
}

/// A verdict on one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the tolerance.
    Right,
    /// Outside of it.
    Wrong,
    /// The interval is wider than the tolerance.
    Undecided,
    /// The machine's own is seen, as it should be, because it is larger.
    Hidden,
}

impl Verdict {
    /// Whether it speaks against nothing.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Right | Self::Hidden)
    }

    /// As the tables have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Right => "ok",
            Self::Wrong => "WRONG",
            Self::Undecided => "undecided",
            Self::Hidden => "hidden",
        }
    }
}

/// Another parameter than the one that was turned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cross {
    #[serde(serialize_with = "parameter")]
    pub parameter: Knob,
    /// observed - control, in its unit.
    pub change: f64,
    /// How much it may change.
    pub tolerance: f64,
    /// Whether it changed more than that.
    pub flagged: bool,
    /// Why LogGP says that it changes, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

/// What is seen of the knob that is turned.
fn seen(knob: Knob, summary: &Summary) -> f64 {
    match knob {
        Knob::Latency => summary.send_us.point + summary.observed.latency_us,
        other => summary.observed.of(other),
    }
}

/// What should be seen of the knob that is turned, whose control is `own`: at least, and at most.
fn expected(setting: Setting, own: f64) -> (f64, f64) {
    let (slowest, sum) = (setting.desired.max(own), setting.desired + own);
    match setting.knob {
        Knob::Overhead => (sum, sum),
        Knob::Latency => (slowest, sum),
        _ => (slowest, slowest),
    }
}

/// How far the knob that is turned may be off.
#[must_use]
pub(super) fn tolerance(setting: Setting) -> f64 {
    let relative = RELATIVE * setting.desired;
    match setting.knob {
        Knob::Bandwidth => relative,
        _ => relative.max(ABSOLUTE_US),
    }
}

/// Half the width of the interval of an observation, in the knob's unit.
#[must_use]
pub(super) fn half_width(knob: Knob, summary: &Summary) -> f64 {
    match knob {
        Knob::Overhead => summary.overhead_us.half_width(),
        Knob::Gap => summary.spacing_us.half_width(),
        Knob::Latency => summary.send_us.half_width() + summary.transit_us.half_width(),
        Knob::Bandwidth => summary.gap_per_byte_half_ns,
        _ => 0.0,
    }
}

/// Compares what is `seen`, to within `half_width`, of a setting whose control is `own`.
pub(super) fn compare(setting: Setting, own: f64, seen: f64, half_width: f64) -> Compared {
    let expected = expected(setting, own);
    let error = seen - seen.clamp(expected.0, expected.1);
    let tolerance = tolerance(setting);
    let verdict = if error.abs() > tolerance + half_width {
        Verdict::Wrong
    } else if half_width > tolerance {
        Verdict::Undecided
    } else if error.abs() > tolerance {
        Verdict::Wrong
    } else if matches!(setting.knob, Knob::Gap | Knob::Bandwidth) && own > setting.desired + tolerance {
        Verdict::Hidden
    } else {
        Verdict::Right
    };
    Compared {
        seen,
        expected,
        error,
        tolerance,
        verdict,
    }
}

/// Judges a setting.
#[must_use]
pub(super) fn judge(setting: Setting, summary: &Summary, control: &Summary) -> Judgement {
    let own = seen(setting.knob, control);
    let seen = seen(setting.knob, summary);
    let half_width = half_width(setting.knob, summary);
    let others = Knob::LOGGP.into_iter().filter(|&knob| knob != setting.knob);
    Judgement {
        compared: compare(setting, own, seen, half_width),
        half_width,
        cross: others
            .map(|other| cross(setting, other, summary, control))
            .collect(),
    }
}

fn cross(setting: Setting, other: Knob, summary: &Summary, control: &Summary) -> Cross {
    let own = control.observed.of(other);
    let change = summary.observed.of(other) - own;
    let absolute = match other {
        Knob::Bandwidth => 1e3 * ABSOLUTE_US / FRAME,
        _ => ABSOLUTE_US,
    };
    let tolerance = absolute.max(CROSS_RELATIVE * own);
    // What the way itself takes is hidden while packets wait for something else; and what of o is seen in the sender's call
    // alone contains the receiver's share only if nothing waits.
    let hidden = match other {
        Knob::Latency => own,
        Knob::Overhead if control.overhead_in_calls => own,
        _ => 0.0,
    };
    let flagged = change > tolerance || change < -tolerance - hidden;
    Cross {
        parameter: other,
        change,
        tolerance,
        flagged,
        reason: if flagged {
            reason(setting, other, change, tolerance, summary)
        } else {
            None
        },
    }
}

/// Why LogGP says so, if what is seen is what it says.
fn reason(
    setting: Setting,
    other: Knob,
    change: f64,
    tolerance: f64,
    summary: &Summary,
) -> Option<&'static str> {
    let at_most = |bound: f64| change > 0.0 && change <= bound * (1.0 + CROSS_RELATIVE) + tolerance;
    let both = summary.send_us.point + summary.until_read_us.point;
    match (setting.knob, other) {
        (Knob::Overhead, Knob::Gap) if at_most(both) => Some(
            "o > g hides g: a packet is initiated each o, each o_s + o_r where both hosts share a processor",
        ),
        (Knob::Overhead, Knob::Bandwidth) if change.abs() <= 1e3 * both / FRAME + tolerance => {
            Some("o > G times the size hides G: each packet of a long message costs o")
        }
        (Knob::Gap, Knob::Latency) if at_most(setting.desired) => {
            Some("a packet is delivered when its service ends, and a slower sender hides the service")
        }
        (Knob::Gap, Knob::Bandwidth) if at_most(1e3 * setting.desired / FRAME) => {
            Some("each packet of a long message takes g")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use perturb_stats::Estimate;

    use super::*;
    use crate::estimate::Parameters;

    const CONTROL: Parameters = Parameters {
        overhead_us: 8.0,
        gap_us: 5.0,
        latency_us: 40.0,
        gap_per_byte_ns: 0.4,
    };

    fn exact(point: f64, half: f64) -> Estimate {
        Estimate {
            point,
            lower: point - half,
            upper: point + half,
            confidence: 0.95,
        }
    }

    fn summary(observed: Parameters, half: f64) -> Summary {
        Summary {
            observed,
            overhead_us: exact(observed.overhead_us, half),
            overhead_in_calls: false,
            send_us: exact(observed.overhead_us, half),
            receive_us: exact(observed.overhead_us, half),
            until_read_us: exact(observed.overhead_us, half),
            transit_us: exact(observed.latency_us, half),
            spacing_us: exact(observed.gap_us, half),
            gap_per_byte_half_ns: 0.0,
            round_trip_us: None,
            prtt: None,
            tcp_round_trip_us: None,
            tcp_gap_per_byte_ns: None,
            lost: 0,
            rounds: 1,
        }
    }

    fn with(knob: Knob, seen: f64) -> Parameters {
        let mut observed = CONTROL;
        *observed.of_mut(knob).unwrap() = seen;
        observed
    }

    /// A knob that does what it says is right; one that is 10 % off, at the upper end of its range, is wrong.
    #[test]
    fn ten_percent_is_caught() {
        for (knob, desired) in [
            (Knob::Overhead, 500.0),
            (Knob::Gap, 500.0),
            (Knob::Latency, 100_000.0),
            (Knob::Bandwidth, 8_000.0),
        ] {
            let setting = Setting { knob, desired };
            let verdict = |factor: f64| {
                let turned = Setting {
                    knob,
                    desired: desired * factor,
                };
                // What way() adds to L is the sender's overhead, which is in both.
                let control = summary(CONTROL, 1.0);
                let way = expected(turned, seen(knob, &control)).1;
                let observed = with(
                    knob,
                    if knob == Knob::Latency {
                        way - CONTROL.overhead_us
                    } else {
                        way
                    },
                );
                judge(setting, &summary(observed, 1.0), &control).compared.verdict
            };
            assert_eq!(verdict(1.0), Verdict::Right);
            assert_eq!([verdict(0.9), verdict(1.1)], [Verdict::Wrong; 2], "{knob}");
        }
    }

    #[test]
    fn a_wide_interval_decides_nothing() {
        let setting = Setting {
            knob: Knob::Latency,
            desired: 100.0,
        };
        // The way takes 48 us in the control.
        let seen = with(Knob::Latency, 175.0);
        assert_eq!(expected(setting, 48.0), (100.0, 148.0));
        assert_eq!(
            judge(setting, &summary(seen, 50.0), &summary(CONTROL, 1.0))
                .compared
                .verdict,
            Verdict::Undecided
        );
        assert_eq!(
            judge(setting, &summary(seen, 2.0), &summary(CONTROL, 1.0))
                .compared
                .verdict,
            Verdict::Wrong
        );
    }

    #[test]
    fn a_slower_machine_hides_the_knob() {
        let setting = Setting {
            knob: Knob::Bandwidth,
            desired: 8.0,
        };
        let slow = with(Knob::Bandwidth, 20.0);
        let verdict = |seen| {
            judge(
                setting,
                &summary(with(Knob::Bandwidth, seen), 1.0),
                &summary(slow, 1.0),
            )
            .compared
            .verdict
        };
        assert_eq!((verdict(20.1), verdict(22.0)), (Verdict::Hidden, Verdict::Wrong));
    }

    #[test]
    fn cross_effects_have_reasons_or_none() {
        let setting = Setting {
            knob: Knob::Overhead,
            desired: 500.0,
        };
        let mut seen = with(Knob::Overhead, 508.0);
        seen.gap_us = 1_010.0;
        let judged = judge(setting, &summary(seen, 1.0), &summary(CONTROL, 1.0));
        let gap = &judged.cross[0];
        assert!(gap.parameter == Knob::Gap && gap.flagged && gap.reason.is_some());
        // Three times the overhead is not what LogGP says, nor is a latency that moves.
        seen.gap_us = 1_600.0;
        seen.latency_us = 140.0;
        let judged = judge(setting, &summary(seen, 1.0), &summary(CONTROL, 1.0));
        assert!(judged.cross[0].flagged && judged.cross[0].reason.is_none());
        assert!(judged.cross[1].flagged && judged.cross[1].reason.is_none());
        assert!(!judged.cross[2].flagged);
    }
}
