//! Which procedures a load calls, and how often.
//!
//! Model: shares in percent of RPCs. Procedures are drawn at random, but the shares are held: each
//! is drawn with a weight of what it is owed after the next [`HORIZON`] RPCs, so the achieved mix
//! stays within a few RPCs of the requested one, whatever the length of groups (a read of 16 blocks
//! is 17 RPCs). Plain independent draws would miss a share of 27 % by half a point in one of nine
//! runs of 20 000 RPCs.

use std::collections::BTreeMap;

use perturb_stats::SplitMix64;
use serde::{Deserialize, Serialize};

use super::procedure::Procedure;

/// RPCs looked ahead when a procedure is drawn: small holds the mix tightly, large draws freely.
const HORIZON: f64 = 100.0;
/// Sums of shares may miss 100 % by this.
const TOLERANCE: f64 = 0.01;

/// The procedures that a load can call.
pub const CALLABLE: [Procedure; 15] = [
    Procedure::Null,
    Procedure::Getattr,
    Procedure::Setattr,
    Procedure::Lookup,
    Procedure::Access,
    Procedure::Readlink,
    Procedure::Read,
    Procedure::Write,
    Procedure::Create,
    Procedure::Remove,
    Procedure::Readdir,
    Procedure::Readdirplus,
    Procedure::Fsstat,
    Procedure::Fsinfo,
    Procedure::Commit,
];

/// SFS 2.0 for NFS version 3.
const SFS2_V3: [(Procedure, f64); 14] = [
    (Procedure::Lookup, 27.0),
    (Procedure::Read, 18.0),
    (Procedure::Getattr, 11.0),
    (Procedure::Write, 9.0),
    (Procedure::Readdirplus, 9.0),
    (Procedure::Access, 7.0),
    (Procedure::Readlink, 7.0),
    (Procedure::Commit, 5.0),
    (Procedure::Readdir, 2.0),
    (Procedure::Create, 1.0),
    (Procedure::Remove, 1.0),
    (Procedure::Setattr, 1.0),
    (Procedure::Fsstat, 1.0),
    (Procedure::Fsinfo, 1.0),
];

/// SFS 2.0 for NFS version 2, the mix of Martin 1999, in calls of version 3.
const SFS2_V2: [(Procedure, f64); 10] = [
    (Procedure::Lookup, 36.0),
    (Procedure::Getattr, 26.0),
    (Procedure::Read, 14.0),
    (Procedure::Write, 7.0),
    (Procedure::Readlink, 7.0),
    (Procedure::Readdir, 6.0),
    (Procedure::Create, 1.0),
    (Procedure::Remove, 1.0),
    (Procedure::Setattr, 1.0),
    (Procedure::Fsstat, 1.0),
];

/// SFS 2008 for NFS version 3.
const SFS2008: [(Procedure, f64); 12] = [
    (Procedure::Getattr, 26.0),
    (Procedure::Lookup, 24.0),
    (Procedure::Read, 18.0),
    (Procedure::Access, 11.0),
    (Procedure::Write, 10.0),
    (Procedure::Setattr, 4.0),
    (Procedure::Readdirplus, 2.0),
    (Procedure::Readlink, 1.0),
    (Procedure::Readdir, 1.0),
    (Procedure::Create, 1.0),
    (Procedure::Remove, 1.0),
    (Procedure::Fsstat, 1.0),
];

/// The names of the mixes that come with perturb.
pub const NAMES: [&str; 3] = ["sfs2-v3", "sfs2-v2", "sfs2008"];

/// A mix of procedures, in percent of RPCs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Mix {
    name: String,
    percent: BTreeMap<Procedure, f64>,
}

/// A mix as it is written in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Its name in records.
    name: String,
    /// Share of each procedure, in percent of RPCs; together 100.
    percent: BTreeMap<Procedure, f64>,
}

/// Why a mix is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MixError {
    /// No mix has this name.
    #[error("no mix is called `{0}`; there are sfs2-v3, sfs2-v2 and sfs2008, or give a YAML file")]
    Unknown(String),
    /// The shares do not add up.
    #[error("mix `{name}`: the shares add up to {sum} percent; they must make 100")]
    Sum {
        /// The mix.
        name: String,
        /// What they add up to.
        sum: f64,
    },
    /// A share is no share.
    #[error("mix `{name}`: {procedure} has {percent} percent; it must lie between 0 and 100")]
    Share {
        /// The mix.
        name: String,
        /// The procedure.
        procedure: Procedure,
        /// Its share.
        percent: f64,
    },
    /// The load does not call this procedure.
    #[error(
        "mix `{name}`: {procedure} is not one of the procedures that a load calls (null getattr setattr lookup \
         access readlink read write create remove readdir readdirplus fsstat fsinfo commit)"
    )]
    NotCallable {
        /// The mix.
        name: String,
        /// The procedure.
        procedure: Procedure,
    },
}

impl Mix {
    /// One of [`NAMES`].
    pub fn named(name: &str) -> Result<Self, MixError> {
        let shares: &[(Procedure, f64)] = match name {
            "sfs2-v3" => &SFS2_V3,
            "sfs2-v2" => &SFS2_V2,
            "sfs2008" => &SFS2008,
            _ => return Err(MixError::Unknown(name.to_owned())),
        };
        Self::new(name, shares.iter().copied().collect())
    }

    /// Any shares that make 100 percent.
    pub fn new(name: &str, percent: BTreeMap<Procedure, f64>) -> Result<Self, MixError> {
        let name = name.to_owned();
        for (&procedure, &percent) in &percent {
            if !(0.0..=100.0).contains(&percent) {
                return Err(MixError::Share {
                    name,
                    procedure,
                    percent,
                });
            }
            if !CALLABLE.contains(&procedure) {
                return Err(MixError::NotCallable { name, procedure });
            }
        }
        let sum: f64 = percent.values().sum();
        if (sum - 100.0).abs() > TOLERANCE {
            return Err(MixError::Sum { name, sum });
        }
        Ok(Self { name, percent })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Share of a procedure, in percent of RPCs.
    #[must_use]
    pub fn percent(&self, procedure: Procedure) -> f64 {
        self.percent.get(&procedure).copied().unwrap_or(0.0)
    }

    /// Its procedures and shares.
    pub fn iter(&self) -> impl Iterator<Item = (Procedure, f64)> {
        self.percent
            .iter()
            .map(|(procedure, percent)| (*procedure, *percent))
            .filter(|(_, p)| *p > 0.0)
    }
}

impl TryFrom<Written> for Mix {
    type Error = MixError;

    fn try_from(written: Written) -> Result<Self, MixError> {
        Self::new(&written.name, written.percent)
    }
}

impl From<Mix> for Written {
    fn from(mix: Mix) -> Self {
        Self {
            name: mix.name,
            percent: mix.percent,
        }
    }
}

/// Draws procedures so that the mix is held.
#[derive(Clone, Debug)]
pub(super) struct Drawing {
    entries: Vec<Owed>,
    total: f64,
}

#[derive(Clone, Debug)]
struct Owed {
    procedure: Procedure,
    share: f64,
    drawn: f64,
}

impl Drawing {
    pub(super) fn new(mix: &Mix) -> Self {
        let entries = mix.iter().map(|(procedure, percent)| Owed {
            procedure,
            share: percent / 100.0,
            drawn: 0.0,
        });
        Self {
            entries: entries.collect(),
            total: 0.0,
        }
    }

    /// The next procedure; say with [`Drawing::charge`] how many RPCs it makes.
    pub(super) fn draw(&self, random: &mut SplitMix64) -> Procedure {
        let due = self.total + HORIZON;
        let weight = |entry: &Owed| (entry.share * due - entry.drawn).max(0.0);
        let mut left = random.fraction() * self.entries.iter().map(weight).sum::<f64>();
        for entry in &self.entries {
            left -= weight(entry);
            if left < 0.0 {
                return entry.procedure;
            }
        }
        // Rounding can leave a hair over; a mix is never empty.
        self.entries
            .last()
            .map_or(Procedure::Null, |entry| entry.procedure)
    }

    pub(super) fn charge(&mut self, procedure: Procedure, rpcs: usize) {
        self.total += rpcs as f64;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.procedure == procedure) {
            entry.drawn += rpcs as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_mixes_make_a_hundred() {
        for name in NAMES {
            assert_eq!(Mix::named(name).unwrap().name(), name);
        }
        assert!(matches!(Mix::named("sfs97"), Err(MixError::Unknown(_))));
    }

    #[test]
    fn own_mixes_come_from_yaml() {
        let mix: Mix = serde_saphyr::from_str("name: mine\npercent: { getattr: 90, read: 10 }\n").unwrap();
        assert_eq!((mix.name(), mix.percent(Procedure::Read)), ("mine", 10.0));
        for (wrong, says) in [
            ("name: a\npercent: { getattr: 90 }", "add up to 90 percent"),
            (
                "name: a\npercent: { getattr: 190, read: -90 }",
                "between 0 and 100",
            ),
            ("name: a\npercent: { rename: 100 }", "not one of the procedures"),
            ("name: a\npercents: { getattr: 100 }", "percents"),
        ] {
            let error = serde_saphyr::from_str::<Mix>(wrong).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    /// 20 000 RPCs, groups of up to 17: within 0.2 percentage points of every share.
    #[test]
    fn the_mix_is_held() {
        for name in NAMES {
            let mix = Mix::named(name).unwrap();
            let mut random = SplitMix64::new(1);
            let mut drawing = Drawing::new(&mix);
            while drawing.total < 20_000.0 {
                let procedure = drawing.draw(&mut random);
                let rpcs = if procedure == Procedure::Read {
                    1 + random.below(17)
                } else {
                    1
                };
                drawing.charge(procedure, rpcs as usize);
            }
            for entry in &drawing.entries {
                let percent = 100.0 * entry.drawn / drawing.total;
                assert!(
                    (percent - 100.0 * entry.share).abs() < 0.2,
                    "{name} {}: {percent}",
                    entry.procedure
                );
            }
        }
    }
}
