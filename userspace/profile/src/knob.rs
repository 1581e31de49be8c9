//! What sweeps, calibrations and curves turn in a profile: LogGP's four parameters.
//!
//! Model: a knob's value is what it costs: a time in µs, and of the bandwidth G in µs per byte. So everything is slower the
//! further a knob is turned, and at 0 it adds nothing: a bandwidth of 0 µs per byte is without limit. People write a
//! bandwidth as 1/G; [`Knob::parse`] and [`Knob::written`] convert.

use std::{fmt, str::FromStr};

use perturb_quantity::{Duration, Micros, MicrosPerByte, QuantityError, Rate, closest};
use serde::{Deserialize, Serialize};

use crate::{
    findings::Findings,
    keys,
    model::{Overhead, Profile, Server},
    read::profile::{Network, everything, through},
    reader::At,
    recording::Format,
    timeline::{Change, Trace},
};

/// A parameter that a profile sets. Serialized it is the profile's key. Whoever knows LogGP's parameters only takes another
/// knob for one of which it has nothing to say.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Processor time per wire packet, at its sender and at its receiver: o.
    Overhead,
    /// Least time between two packets of a server: g.
    Gap,
    /// One-way latency: L.
    Latency,
    /// Bandwidth 1/G.
    Bandwidth,
}

/// A word that names no knob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a knob{meant}; the knobs are {all}", all = Knob::ALL.map(Knob::key).join(", "), meant = .1.map_or(String::new(), |name| format!(" (did you mean `{name}`?)")))]
pub struct UnknownKnob(String, Option<&'static str>);

/// A value that no profile may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{knob}: {value} is out of range; allowed: {min} to {max}")]
pub struct BeyondKnob {
    /// Which knob.
    pub knob: Knob,
    /// The value as people write it.
    pub value: String,
    /// The smallest allowed.
    pub min: String,
    /// The largest allowed.
    pub max: String,
}

/// Why a knob cannot be turned in a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// No profile may have the value.
    #[error(transparent)]
    Beyond(#[from] BeyondKnob),
    /// A step changes the same key: it would take the place of the knob's value in silence.
    #[error(
        "{0}: a step of the profile's `timeline` changes it, so that the knob's value would not hold; take the key out \
         of the steps, or turn another knob"
    )]
    Stepped(Knob),
    /// A trace changes the same key, or may.
    #[error(
        "{knob}: the trace `{file}` of a server {may} it, so that the knob's value would not hold; take the trace out, \
         or turn another knob"
    )]
    Traced {
        /// Which knob.
        knob: Knob,
        /// The trace's file.
        file: String,
        /// `changes`, or `may change` where the file's columns decide.
        may: &'static str,
    },
}

impl Knob {
    /// All of them.
    pub const ALL: [Self; 4] = Self::LOGGP;
    /// LogGP's parameters.
    pub const LOGGP: [Self; 4] = [Self::Overhead, Self::Gap, Self::Latency, Self::Bandwidth];

    /// The key of a profile.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Overhead => "overhead",
            Self::Gap => "gap",
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
        }
    }

    /// The name of LogGP's parameter, which grows with the value.
    #[must_use]
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::Bandwidth => "gap_per_byte",
            _ => self.key(),
        }
    }

    /// The letter of LogGP's parameter.
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Overhead => "o",
            Self::Gap => "g",
            Self::Latency => "L",
            Self::Bandwidth => "G",
        }
    }

    /// The knob in a sentence.
    #[must_use]
    pub const fn named(self) -> &'static str {
        match self {
            Self::Overhead => "overhead o",
            Self::Gap => "gap g",
            Self::Latency => "latency L",
            Self::Bandwidth => "bandwidth 1/G",
        }
    }

    /// The unit of the parameter in tables and charts.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "ns/B",
            _ => "us",
        }
    }

    /// How many units of tables and charts make a value of 1.
    #[must_use]
    pub const fn units(self) -> f64 {
        match self {
            Self::Bandwidth => 1e3,
            _ => 1.0,
        }
    }

    /// The value of a text such as `150us`, or for the bandwidth `10Mbit/s` or `26.3ns/B`.
    ///
    /// # Errors
    /// When it is not such a quantity.
    pub fn parse(self, text: &str) -> Result<f64, QuantityError> {
        match self {
            Self::Bandwidth => match (text.parse::<Rate>(), text.parse::<MicrosPerByte>()) {
                (Ok(rate), _) => Ok(MicrosPerByte::from(rate).0),
                (_, Ok(gap)) => Ok(gap.0),
                (Err(error), _) => Err(error),
            },
            _ => text.parse().map(|time: Duration| Micros::from(time).0),
        }
    }

    /// A value as people write it: `102.9us`, `38MB/s`.
    #[must_use]
    pub fn written(self, value: f64) -> String {
        let rounded = |value: f64| {
            let digits = if value >= 100.0 { 1 } else { 3 };
            let text = format!("{value:.digits$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        match self {
            Self::Bandwidth if value > 0.0 => format!("{}MB/s", rounded(1.0 / value)),
            Self::Bandwidth => "unlimited".into(),
            _ => format!("{}us", rounded(value)),
        }
    }

    /// Its value on a way whose servers have these: all of them delay a packet, the slowest one spaces packets.
    pub fn along(self, values: impl Iterator<Item = f64>) -> f64 {
        match self {
            Self::Latency => values.sum(),
            _ => values.fold(0.0, f64::max),
        }
    }

    /// Its value at a server and the overhead beside it.
    #[must_use]
    pub fn of(self, server: &Server, overhead: &Overhead) -> f64 {
        match self {
            Self::Overhead => Micros::from(overhead.send).0,
            Self::Gap => Micros::from(server.gap).0,
            Self::Latency => Micros::from(server.latency).0,
            Self::Bandwidth => server.bandwidth.map_or(0.0, |rate| MicrosPerByte::from(rate).0),
        }
    }

    /// Sets it at a server and the overhead beside it, rounded to what a profile tells apart.
    pub fn turn(self, value: f64, server: &mut Server, overhead: &mut Overhead) {
        let time = Micros(value).duration();
        match self {
            Self::Overhead => {
                overhead.send = time;
                overhead.receive = time;
            }
            Self::Gap => server.gap = time,
            Self::Latency => server.latency = time,
            Self::Bandwidth => server.bandwidth = MicrosPerByte(value).rate(),
        }
    }

    /// Whether the profile's key may have the value.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(self, value: f64) -> Result<(), BeyondKnob> {
        let time = |bounds: keys::Bounds<Duration>| {
            let fits = value >= 0.0 && (bounds.min..=bounds.max).contains(&Micros(value).duration());
            (fits, bounds.min.to_string(), bounds.max.to_string())
        };
        let (fits, min, max) = match self {
            Self::Overhead => time(keys::OVERHEAD),
            Self::Gap => time(keys::GAP),
            Self::Latency => time(keys::LATENCY),
            Self::Bandwidth => {
                let keys::Bounds { min, max } = keys::BANDWIDTH;
                let rate = MicrosPerByte(value).rate();
                let fits = value == 0.0 || rate.is_some_and(|rate| (min..=max).contains(&rate));
                (fits, min.to_string(), max.to_string())
            }
        };
        let beyond = || BeyondKnob {
            knob: self,
            value: self.written(value),
            min,
            max,
        };
        if fits { Ok(()) } else { Err(beyond()) }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.key())
    }
}

/// By the profile's key or the parameter's name.
impl FromStr for Knob {
    type Err = UnknownKnob;

    fn from_str(text: &str) -> Result<Self, UnknownKnob> {
        Self::ALL
            .into_iter()
            .find(|knob| [knob.key(), knob.parameter()].contains(&text))
            .ok_or_else(|| UnknownKnob(text.to_owned(), closest(text, Self::ALL.map(Self::key))))
    }
}

impl At<'_> {
    /// The value of a knob, as a profile writes it and within its bounds.
    pub fn knob(self, knob: Knob, findings: &mut Findings<'_>) -> Option<f64> {
        let time = |bounds, findings: &mut Findings<'_>| {
            let time: Duration = self.quantity(bounds, findings)?;
            Some(Micros::from(time).0)
        };
        match knob {
            Knob::Overhead => time(keys::OVERHEAD, findings),
            Knob::Gap => time(keys::GAP, findings),
            Knob::Latency => time(keys::LATENCY, findings),
            Knob::Bandwidth => {
                let rate: Rate = self.quantity(keys::BANDWIDTH, findings)?;
                Some(MicrosPerByte::from(rate).0)
            }
        }
    }
}

impl Profile {
    /// The same profile with a knob turned: all its servers, and the links of its topology, have the value, or its overhead
    /// at both ends. A profile of no servers gets one each way, which everything crosses, as where the key stands at the top.
    ///
    /// # Errors
    /// When the value is not one that the profile's key may have, or the key changes with time. Whether a path's latencies
    /// are within the horizon is not looked at.
    pub fn with(mut self, knob: Knob, value: f64) -> Result<Self, TurnError> {
        knob.check(value)?;
        self.check_constant(knob)?;
        let untreated = everything(Vec::new(), Vec::new());
        let plain = self.servers.is_empty() && self.topology.is_none();
        if plain && self.classes.iter().all(|class| Some(class) == untreated.as_ref()) {
            (self.servers, self.classes) = match knob {
                Knob::Overhead if value == 0.0 => Network::default(),
                Knob::Overhead => (Vec::new(), untreated.into_iter().collect()),
                _ => through(&Server::default()),
            };
        }
        // The overhead stands beside the servers, however many there are.
        knob.turn(value, &mut Server::default(), &mut self.overhead);
        let links = self
            .topology
            .iter_mut()
            .flat_map(|topology| topology.layout.links_mut());
        for server in self.servers.iter_mut().map(|(_, server)| server).chain(links) {
            knob.turn(value, server, &mut self.overhead);
        }
        Ok(self)
    }

    /// Whether no step and no trace changes what the knob turns.
    fn check_constant(&self, knob: Knob) -> Result<(), TurnError> {
        if self.timeline.steps.iter().any(|step| step.change.has(knob)) {
            return Err(TurnError::Stepped(knob));
        }
        let links = self.topology.iter().flat_map(|topology| topology.layout.links());
        let servers = self.servers.iter().map(|(_, server)| server).chain(links);
        for Trace { file, format, .. } in servers.filter_map(|server| server.trace.as_ref()) {
            let may = match (knob, format) {
                (Knob::Bandwidth, Format::Mahimahi) => "changes",
                (Knob::Overhead, _) | (_, Format::Mahimahi) => continue,
                _ => "may change",
            };
            let file = file.clone();
            return Err(TurnError::Traced { knob, file, may });
        }
        Ok(())
    }
}

impl Change {
    /// Whether it sets what the knob turns.
    fn has(&self, knob: Knob) -> bool {
        match knob {
            Knob::Overhead => self.overhead.is_some(),
            Knob::Gap => self.gap.is_some(),
            Knob::Latency => self.latency.is_some(),
            Knob::Bandwidth => self.bandwidth.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::profile::parse;

    #[test]
    fn a_knob_is_a_key_at_the_top() {
        for (knob, text, keys) in [
            (Knob::Latency, "150us", "latency: 150us"),
            (Knob::Gap, "5.8us", "gap: 5.8us"),
            (Knob::Bandwidth, "38MB/s", "bandwidth: 38MB/s"),
            (Knob::Overhead, "25us", "overhead: { send: 25us, receive: 25us }"),
            (Knob::Overhead, "0s", "overhead: { send: 0s, receive: 0s }"),
            (Knob::Latency, "0s", "latency: 0s"),
        ] {
            let value = knob.parse(text).unwrap();
            let plain = Profile {
                seed: 1,
                ..Profile::default()
            };
            let turned = plain.with(knob, value).unwrap();
            assert_eq!(turned, parse(&format!("version: 1\n{keys}\n")).unwrap(), "{keys}");
            let server = turned.servers.first().map(|(_, server)| server.clone());
            let found = knob.of(&server.unwrap_or_default(), &turned.overhead);
            assert_eq!(found, value, "{keys}");
        }
    }

    #[test]
    fn knobs_are_turned_one_after_another() {
        let text = "{ version: 1, overhead: { send: 2us, receive: 2us }, gap: 5us, latency: 20us, bandwidth: 100MB/s }";
        let mut profile = Profile {
            seed: 1,
            ..Profile::default()
        };
        for (knob, value) in Knob::ALL.into_iter().zip([2.0, 5.0, 20.0, 0.01]) {
            profile = profile.with(knob, value).unwrap();
        }
        assert_eq!(profile, parse(text).unwrap());
        let topology = "{ version: 1, topology: { kind: star, link: { bandwidth: 1Gbit/s } } }";
        let turned = parse(topology).unwrap().with(Knob::Latency, 7.0).unwrap();
        let layout = turned.topology.unwrap().layout;
        assert_eq!(layout.links()[0].latency, Duration::from_nanos(7_000));
    }

    #[test]
    fn what_changes_with_time_is_not_turned() {
        let said = |text: &str, knob: Knob| {
            let turned = parse(text).unwrap().with(knob, knob.parse("5us").unwrap_or(0.01));
            turned.err().map(|error| error.to_string())
        };
        let stepped = "{ version: 1, latency: 1ms, timeline: { steps: [{ at: 1s, latency: 5ms }] } }";
        assert!(
            said(stepped, Knob::Latency)
                .unwrap()
                .contains("a step of the profile")
        );
        assert_eq!(said(stepped, Knob::Bandwidth), None);
        let host = "{ version: 1, latency: 1ms, timeline: { steps: [{ at: 1s, overhead: { send: 5us, receive: 0s } }] } }";
        assert!(said(host, Knob::Overhead).is_some());
        let traced = |file: &str| format!("{{ version: 1, latency: 1ms, trace: {{ file: {file} }} }}");
        assert!(
            said(&traced("a.mm"), Knob::Bandwidth)
                .unwrap()
                .contains("`a.mm` of a server changes it")
        );
        assert_eq!(said(&traced("a.mm"), Knob::Latency), None);
        assert!(
            said(&traced("a.csv"), Knob::Latency)
                .unwrap()
                .contains("may change")
        );
        assert_eq!(said(&traced("a.csv"), Knob::Overhead), None);
    }

    #[test]
    fn a_value_is_one_that_the_key_may_have() {
        for (knob, value, said) in [
            (
                Knob::Overhead,
                2e3,
                "overhead: 2000us is out of range; allowed: 0s to 1ms",
            ),
            (Knob::Latency, -1.0, "allowed: 0s to 60s"),
            (Knob::Gap, f64::NAN, "allowed: 0s to 1s"),
            (Knob::Bandwidth, 1e9, "allowed: 1kbit/s to 10Tbit/s"),
            (Knob::Bandwidth, -1.0, "allowed: 1kbit/s"),
            (Knob::Bandwidth, f64::INFINITY, "allowed: 1kbit/s"),
        ] {
            let refused = Profile::default().with(knob, value).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        assert!(Profile::default().with(Knob::Bandwidth, 0.0).is_ok());
    }

    #[test]
    fn names_and_values_are_read_and_written() {
        for knob in Knob::ALL {
            assert_eq!(knob.key().parse(), Ok(knob));
            assert_eq!(knob.parameter().parse(), Ok(knob));
        }
        let unknown = "overheat".parse::<Knob>().unwrap_err().to_string();
        assert!(unknown.contains("did you mean `overhead`?"), "{unknown}");
        assert_eq!(Knob::Bandwidth.written(0.02), "50MB/s");
        assert_eq!(Knob::Overhead.written(102.9), "102.9us");
        assert!(Knob::Latency.parse("10Mbit/s").is_err());
    }
}
