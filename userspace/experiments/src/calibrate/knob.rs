//! The knobs, their ranges, and the profiles that set them.

use std::str::FromStr;

use perturb_profile::{Knob, Name, Profile, Segmentation, TurnError};
use serde::{Serialize, Serializer};

use super::measurement::single_processor;
use crate::estimate::Parameters;

/// A knob in JSON: the name of LogGP's parameter.
pub(super) fn parameter<S: Serializer>(knob: &Knob, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(knob.parameter())
}

/// A knob turned to a value, the others at their baseline, which is nothing added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    pub knob: Knob,
    /// The value, in the knob's unit: G is ns per byte wherever something is calibrated.
    pub desired: f64,
}

/// Bit rates for G, Mbit/s.
const RATES: [f64; 4] = [1000.0, 100.0, 10.0, 1.0];
/// o, microseconds.
const OVERHEADS: [f64; 4] = [10.0, 50.0, 100.0, 500.0];
/// g, microseconds.
const GAPS: [f64; 3] = [50.0, 100.0, 500.0];
/// L, microseconds.
const LATENCIES: [f64; 4] = [100.0, 1_000.0, 10_000.0, 100_000.0];

/// The settings of some knobs, each through its range.
#[must_use]
pub(super) fn range(knobs: &[Knob]) -> Vec<Setting> {
    let of = |knob: Knob| {
        let values: Vec<f64> = match knob {
            Knob::Overhead => OVERHEADS.to_vec(),
            Knob::Gap => GAPS.to_vec(),
            Knob::Latency => LATENCIES.to_vec(),
            // 8 bits are a byte, 1 Mbit/s is a bit per 1000 ns.
            Knob::Bandwidth => RATES.iter().map(|rate| 8_000.0 / rate).collect(),
            _ => Vec::new(),
        };
        values.into_iter().map(move |desired| Setting { knob, desired })
    };
    knobs.iter().copied().flat_map(of).collect()
}

impl Parameters {
    /// What a setting adds.
    #[must_use]
    pub fn by(setting: Setting) -> Self {
        let mut added = Self::default();
        if let Some(value) = added.of_mut(setting.knob) {
            *value = setting.desired;
        }
        added
    }

    /// The same with a knob that is wrong.
    #[must_use]
    pub fn sabotaged(mut self, sabotage: Option<Sabotage>) -> Self {
        if let Some(Sabotage { knob, factor }) = sabotage
            && let Some(value) = self.of_mut(knob)
        {
            *value *= factor;
        }
        self
    }

    /// How long a message of so many wire bytes, in so many packets, occupies the slowest stage, microseconds.
    #[must_use]
    pub fn spacing_us(&self, bytes: f64, packets: f64) -> f64 {
        let network = self.gap_us * packets + self.gap_per_byte_ns * bytes / 1e3;
        network.max(2.0 * self.overhead_us * packets)
    }

    /// The profile that adds it, alike in both directions. Super-packets are split whatever it adds: the control then
    /// shows what that takes. On one processor, which would take longer to split and to deliver them than they occupy a
    /// network of 1 Gbit/s, they stay whole whatever it adds.
    ///
    /// # Errors
    /// When no profile may add so much.
    pub fn profile(&self, seed: u64) -> Result<Profile, TurnError> {
        let plain = Profile {
            name: Name::new("calibrate"),
            seed,
            segmentation: if single_processor() {
                Segmentation::Whole
            } else {
                Segmentation::Exact
            },
            ..Profile::default()
        };
        Knob::LOGGP.into_iter().try_fold(plain, |profile, knob| {
            profile.with(knob, self.of(knob) / knob.units())
        })
    }
}

/// An emulator that is wrong on purpose, to see whether it is caught.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sabotage {
    #[serde(serialize_with = "parameter")]
    pub knob: Knob,
    /// What its value is multiplied by.
    pub factor: f64,
}

/// What is no sabotage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: write KNOB=FACTOR, KNOB one of overhead, gap, latency, gap_per_byte, FACTOR from 0.01 to 100"
)]
pub struct NoSabotage(String);

impl FromStr for Sabotage {
    type Err = NoSabotage;

    fn from_str(text: &str) -> Result<Self, NoSabotage> {
        let refused = || NoSabotage(text.into());
        let (name, factor) = text.split_once('=').ok_or_else(refused)?;
        let knob = Knob::LOGGP.into_iter().find(|knob| knob.parameter() == name);
        let factor: f64 = factor.parse().map_err(|_| refused())?;
        match knob {
            Some(knob) if (0.01..=100.0).contains(&factor) => Ok(Self { knob, factor }),
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_profile() {
        for setting in range(&Knob::LOGGP) {
            let profile = Parameters::by(setting).profile(7).unwrap();
            assert_eq!(
                perturb_profile::parse(&profile.to_string()).as_ref(),
                Ok(&profile)
            );
            let meaning = perturb_profile::explain(&profile, &perturb_profile::Files::default());
            let path = meaning.classes[0].egress.clone().unwrap();
            let us = |duration: perturb_profile::Duration| duration.nanos() as f64 / 1e3;
            let found = match setting.knob {
                Knob::Overhead => us(path.overhead),
                Knob::Gap => us(path.gap.unwrap()),
                Knob::Latency => us(path.latency),
                _ => path.bandwidth.unwrap().time_of(1_000).nanos() as f64 / 1e3,
            };
            assert_eq!(found, setting.desired, "{profile}");
        }
    }

    #[test]
    fn sabotage_changes_one_knob() {
        let sabotage: Sabotage = "gap=0.9".parse().unwrap();
        let wrong = |knob, desired| Parameters::by(Setting { knob, desired }).sabotaged(Some(sabotage));
        assert_eq!(wrong(Knob::Gap, 100.0).gap_us, 90.0);
        assert_eq!(wrong(Knob::Latency, 100.0).latency_us, 100.0);
        for bad in ["gap", "gap=", "gap=0", "gap=x", "bandwidth=0.9", "gap=NaN"] {
            assert!(bad.parse::<Sabotage>().is_err(), "{bad}");
        }
    }
}
