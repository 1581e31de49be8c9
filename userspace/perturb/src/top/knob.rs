//! Knobs of a server, turned by steps: what a merge patch of the profile in force has to say.
//!
//! Model: a knob is a key of a server. Times, rates, shares and numbers of packets go along 1, 2, 5, 10, …; sizes double. Below its
//! least step a time or a share is none. What is absent has the key's default: no time, no loss, no limit.

use std::fmt;

use perturb_quantity::{Duration, Probability, Rate, Size};
use serde_json::{Value, json};

/// A key that is turned.
#[derive(Debug)]
pub(super) struct Knob {
    /// In a profile.
    pub(super) key: &'static str,
    /// Keys of its number, where the key has a map.
    parts: &'static [&'static str],
    kind: Kind,
    /// What it is turned to from its default.
    first: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// None if absent, and again at the end of its way down.
    None,
    /// The same; then the key goes.
    Removed,
    /// Without limit if absent.
    Unlimited,
}

const fn knob(key: &'static str, parts: &'static [&'static str], kind: Kind, first: &'static str) -> Knob {
    Knob {
        key,
        parts,
        kind,
        first,
    }
}

/// All of them.
pub(super) const KNOBS: [Knob; 6] = [
    knob("latency", &[], Kind::None, "1ms"),
    knob("bandwidth", &[], Kind::Unlimited, "1Gbit/s"),
    knob("loss", &["random"], Kind::None, "0.1%"),
    knob("jitter", &["scale", "stddev"], Kind::Removed, "1ms"),
    knob("gap", &[], Kind::None, "1us"),
    knob("buffer", &["bytes", "delay"], Kind::Unlimited, "1MiB"),
];

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    More,
    Less,
}

/// A value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Time(Duration),
    /// Whether it is written in bytes.
    Rate(Rate, bool),
    Share(Probability),
    Size(Size),
    Packets(u64),
}

/// Least steps: ns, and parts of 10^9.
const LEAST_TIME: u64 = 1_000;
const LEAST_SHARE: u64 = 10_000;

impl Amount {
    fn parse(text: &str) -> Option<Self> {
        let packets = text
            .strip_suffix(" packets")
            .and_then(|number| number.parse().ok());
        text.parse()
            .map(Self::Time)
            .ok()
            .or_else(|| {
                text.parse()
                    .ok()
                    .map(|rate| Self::Rate(rate, text.ends_with("B/s")))
            })
            .or_else(|| text.parse().map(Self::Share).ok())
            .or_else(|| text.parse().map(Self::Size).ok())
            .or(packets.map(Self::Packets))
    }

    /// The next one that way; the same if there is none.
    fn turned(self, way: Way) -> Self {
        match self {
            Self::Time(time) => Self::Time(Duration::from_nanos(along(time.nanos(), way, LEAST_TIME))),
            Self::Rate(rate, bytes) => {
                let unit = if bytes { 8 } else { 1 };
                let step = along(rate.bits_per_second() / unit, way, 1).max(1);
                let text = format!("{step}{}", if bytes { "B/s" } else { "bit/s" });
                // A whole number of either is a rate.
                Self::Rate(text.parse().unwrap_or(rate), bytes)
            }
            Self::Share(share) => {
                let parts = along(share.billionths(), way, LEAST_SHARE);
                Self::Share(Probability::from_billionths(parts).min(Probability::ONE))
            }
            Self::Size(size) => {
                let bytes = size.bytes();
                let next = match way {
                    Way::More => bytes.saturating_add(1).checked_next_power_of_two(),
                    Way::Less => bytes.checked_next_power_of_two().map(|above| above / 2),
                };
                Self::Size(Size::from_bytes(next.unwrap_or(bytes).max(1)))
            }
            Self::Packets(packets) => Self::Packets(along(packets, way, 1).max(1)),
        }
    }

    fn is_none(self) -> bool {
        self == Self::Time(Duration::ZERO) || self == Self::Share(Probability::ZERO)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => time.fmt(f),
            Self::Rate(rate, _) => rate.fmt(f),
            Self::Share(share) => share.fmt(f),
            Self::Size(size) => size.fmt(f),
            Self::Packets(packets) => write!(f, "{packets} packets"),
        }
    }
}

/// The next of 1, 2, 5, 10, … from a value on; 0 below the least of them.
fn along(value: u64, way: Way, least: u64) -> u64 {
    let steps = || (0..19).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let found = match way {
        Way::More => steps().find(|&step| step > value && step >= least),
        Way::Less => {
            let below = steps().rfind(|&step| step < value && step >= least);
            return below.unwrap_or(0);
        }
    };
    found.unwrap_or(value)
}

/// Where a server of the report stands in the profile.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    path: Vec<&'a str>,
    /// In words.
    whose: String,
}

impl<'a> Place<'a> {
    fn of(profile: &Value, server: &'a str) -> Result<Self, String> {
        let written = |name: &str| profile["servers"].get(name).is_some();
        if written(server) {
            return Ok(Self {
                path: vec!["servers", server],
                whose: server.to_owned(),
            });
        }
        // A host's own servers are written once, without its name.
        if let Some((_, name)) = server.split_once('-')
            && written(name)
        {
            return Ok(Self {
                path: vec!["servers", name],
                whose: format!("{name} of every host"),
            });
        }
        if profile["topology"]["link"].is_object() {
            return Ok(Self {
                path: vec!["topology", "link"],
                whose: "every link".into(),
            });
        }
        Err(format!(
            "{server}: the links of a tree differ by height; change `topology.levels` in the profile, and apply it"
        ))
    }

    fn find(&self, profile: &'a Value) -> &'a Value {
        self.path.iter().fold(profile, |value, key| &value[*key])
    }
}

/// What a knob is set to.
struct Setting<'a> {
    path: Vec<&'a str>,
    value: Option<Amount>,
}

impl Knob {
    fn setting<'a>(&'a self, place: &Place<'a>, profile: &'a Value) -> Result<Setting<'a>, String> {
        let mut path = place.path.clone();
        path.push(self.key);
        let mut found = &place.find(profile)[self.key];
        if found.is_object() {
            let part = self.parts.iter().find(|part| found.get(**part).is_some());
            let Some(part) = part.or(self.parts.first().filter(|_| self.kind == Kind::None)) else {
                return Err(format!("{} of {} has no number to turn", self.key, place.whose));
            };
            path.push(part);
            found = &found[*part];
        }
        let text = found.as_str().map(str::to_owned);
        let value = match text {
            Some(text) => Some(
                Amount::parse(&text)
                    .ok_or_else(|| format!("{} of {} is {text}, and has no steps", self.key, place.whose))?,
            ),
            None => None,
        };
        Ok(Setting { path, value })
    }

    /// What it is without its key.
    fn default(&self) -> String {
        match self.kind {
            Kind::Unlimited => "unlimited".into(),
            Kind::None | Kind::Removed if self.first.ends_with('%') => "0%".into(),
            Kind::None | Kind::Removed => "0s".into(),
        }
    }

    /// What it is set to at a server, in words.
    pub(super) fn reading(&self, profile: &Value, server: &str) -> String {
        let setting = Place::of(profile, server).and_then(|place| {
            let setting = self.setting(&place, profile)?;
            Ok(setting
                .value
                .map_or_else(|| self.default(), |value| value.to_string()))
        });
        setting.unwrap_or_else(|_| "-".into())
    }

    /// A step of it.
    ///
    /// # Errors
    /// If there is none, with the reason.
    pub(super) fn turn(&self, profile: &Value, server: &str, way: Way) -> Result<Turn, String> {
        let place = Place::of(profile, server)?;
        let Setting { mut path, value } = self.setting(&place, profile)?;
        let before = value.map_or_else(|| self.default(), |value| value.to_string());
        let at_end = || {
            format!(
                "{} of {} is {before}: there is no step further",
                self.key, place.whose
            )
        };
        let value = match (value, self.kind, way) {
            (None, Kind::Unlimited, Way::More) | (None, Kind::None | Kind::Removed, Way::Less) => {
                return Err(at_end());
            }
            (None, ..) => Amount::parse(self.first).ok_or_else(at_end)?,
            (Some(value), Kind::None, Way::More) if value.is_none() => {
                Amount::parse(self.first).ok_or_else(at_end)?
            }
            (Some(value), ..) => {
                let turned = value.turned(way);
                if turned == value || (turned.is_none() && self.kind == Kind::Unlimited) {
                    return Err(at_end());
                }
                turned
            }
        };
        let after = value.to_string();
        let written = if value.is_none() && self.kind == Kind::Removed {
            path.truncate(place.path.len() + 1);
            Value::Null
        } else {
            json!(after)
        };
        let patch = path
            .iter()
            .rev()
            .fold(written, |value, key| json!({ *key: value }));
        let steps = profile["timeline"]["steps"].as_array();
        let is_stepped = steps.is_some_and(|steps| steps.iter().any(|step| step.get(self.key).is_some()))
            || place.find(profile).get("trace").is_some();
        let too = if is_stepped {
            "; the timeline may change it, too"
        } else {
            ""
        };
        Ok(Turn {
            patch,
            said: format!("{} of {}: {before} to {after}{too}", self.key, place.whose),
        })
    }
}

/// A step that is to be made.
#[derive(Debug, PartialEq)]
pub(super) struct Turn {
    /// Of the profile in force.
    pub(super) patch: Value,
    /// In words.
    pub(super) said: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(profile: &Value, server: &str, key: &str, way: Way) -> Result<Turn, String> {
        let knob = KNOBS.iter().find(|knob| knob.key == key).unwrap();
        knob.turn(profile, server, way)
    }

    /// Turns it again and again; what it is on the way.
    fn walk(mut profile: Value, key: &str, way: Way) -> Vec<String> {
        let knob = KNOBS.iter().find(|knob| knob.key == key).unwrap();
        let mut seen = Vec::new();
        for _ in 0..30 {
            let Ok(Turn { patch, .. }) = turn(&profile, "up", key, way) else {
                return seen;
            };
            let up = &mut profile["servers"]["up"];
            match &patch["servers"]["up"][key] {
                Value::Null => drop(up.as_object_mut().unwrap().remove(key)),
                value => up[key] = value.clone(),
            }
            seen.push(knob.reading(&profile, "up"));
        }
        seen
    }

    #[test]
    fn a_knob_goes_by_steps_and_comes_to_an_end() {
        let up = |server: Value| json!({ "servers": { "up": server } });
        let down = walk(up(json!({ "latency": "40ms" })), "latency", Way::Less);
        assert_eq!(down[..3], ["20ms", "10ms", "5ms"]);
        assert_eq!(down[down.len() - 2..], ["1us", "0s"]);
        assert_eq!(
            walk(up(json!({})), "latency", Way::More)[..3],
            ["1ms", "2ms", "5ms"]
        );
        assert_eq!(
            walk(up(json!({ "bandwidth": "38MB/s" })), "bandwidth", Way::Less)[..2],
            ["20MB/s", "10MB/s"]
        );
        assert_eq!(
            walk(up(json!({})), "bandwidth", Way::Less)[..2],
            ["1Gbit/s", "500Mbit/s"]
        );
        assert!(walk(up(json!({})), "bandwidth", Way::More).is_empty());
        let more = walk(up(json!({ "loss": "20%" })), "loss", Way::More);
        assert_eq!(more, ["50%", "100%"]);
        assert_eq!(
            walk(up(json!({ "loss": "0.002%" })), "loss", Way::Less),
            ["0.001%", "0%"]
        );
        let jitter = walk(up(json!({ "jitter": "2us" })), "jitter", Way::Less);
        assert_eq!(jitter, ["1us", "0s"]);
        assert_eq!(
            walk(up(json!({ "gap": "0s" })), "gap", Way::More)[..2],
            ["1us", "2us"]
        );
        let buffer = |text: &str, way| walk(up(json!({ "buffer": text })), "buffer", way)[0].clone();
        assert_eq!(buffer("64KiB", Way::More), "128KiB");
        assert_eq!(buffer("64KiB", Way::Less), "32KiB");
        assert_eq!(buffer("100kB", Way::Less), "64KiB");
        assert_eq!(buffer("100kB", Way::More), "128KiB");
        assert_eq!(buffer("250ms", Way::Less), "200ms");
        assert_eq!(buffer("7 packets", Way::More), "10 packets");
        assert!(walk(up(json!({ "buffer": "1us" })), "buffer", Way::Less).is_empty());
        assert!(walk(up(json!({ "buffer": "1 packets" })), "buffer", Way::Less).is_empty());
    }

    #[test]
    fn maps_are_turned_inside() {
        let profile = json!({ "servers": { "up": {
            "loss": { "random": "1%", "nth": [3] },
            "jitter": { "distribution": "normal", "stddev": "2ms" },
            "buffer": { "delay": "20ms", "packets": 9 },
        } } });
        let patch = |key| turn(&profile, "up", key, Way::More).unwrap().patch;
        let up = |patch: Value| json!({ "servers": { "up": patch } });
        assert_eq!(patch("loss"), up(json!({ "loss": { "random": "2%" } })));
        assert_eq!(patch("jitter"), up(json!({ "jitter": { "stddev": "5ms" } })));
        assert_eq!(patch("buffer"), up(json!({ "buffer": { "delay": "50ms" } })));
        let bursts =
            json!({ "servers": { "up": { "loss": { "gilbert_elliott": { "p": "1%", "r": "9%" } } } } });
        assert_eq!(
            turn(&bursts, "up", "loss", Way::More).unwrap().patch,
            up(json!({ "loss": { "random": "0.1%" } }))
        );
    }

    #[test]
    fn servers_of_a_topology_stand_for_all_of_their_kind() {
        let star = json!({
            "servers": { "nic": { "bandwidth": "1Gbit/s" } },
            "topology": { "kind": "star", "link": { "latency": "1ms" }, "egress": ["nic"] },
        });
        let turned = turn(&star, "h3-up", "latency", Way::More).unwrap();
        assert_eq!(
            turned.patch,
            json!({ "topology": { "link": { "latency": "2ms" } } })
        );
        assert_eq!(turned.said, "latency of every link: 1ms to 2ms");
        let turned = turn(&star, "h3-nic", "bandwidth", Way::Less).unwrap();
        assert_eq!(
            turned.patch,
            json!({ "servers": { "nic": { "bandwidth": "500Mbit/s" } } })
        );
        let tree = json!({ "topology": { "kind": "tree", "levels": [{ "latency": "1ms" }] } });
        assert!(
            turn(&tree, "h1-up", "latency", Way::More)
                .unwrap_err()
                .contains("levels")
        );
    }

    #[test]
    fn what_the_timeline_sets_is_said() {
        let profile = json!({
            "servers": { "up": { "latency": "1ms" } },
            "timeline": { "steps": [{ "at": "1s", "server": "up", "latency": "9ms" }] },
        });
        let said = |key| turn(&profile, "up", key, Way::More).unwrap().said;
        assert!(said("latency").ends_with("; the timeline may change it, too"));
        assert_eq!(said("loss"), "loss of up: 0% to 0.1%");
    }
}
