//! cgroups that classes name, and what they are to the tables.
//!
//! Each one that a profile names has a number, from 1, in the order of their paths. A packet has the number of the deepest of
//! them that its sender's socket lies in or below, so a class asks for the numbers of its cgroups and of all below them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use perturb_common::abi::{MAX_CGROUP_LEVEL, NONE};
use perturb_quantity::closest;

use crate::diagnostic::Problem;
use crate::model::Profile;

/// The path of a cgroup below the root of cgroup2: `system.slice/postgresql.service`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cgroup(String);

impl Cgroup {
    /// How a cgroup is called beside hosts, which are looked up as it is.
    pub const CALLED: &str = "cgroup ";
    /// Where cgroup2 is mounted, which is no part of a path.
    const MOUNT: &str = "sys/fs/cgroup";
    /// The longest name of a directory, bytes.
    const LONGEST: usize = 255;

    /// Nothing if it is no path of one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }

    /// What a text names, with or without the first `/`, as `/proc/PID/cgroup` and systemd's `ControlGroup` have it.
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let unfit = |why, remedy| Err(Problem::Unfit { why, remedy });
        let path = text.trim_matches('/');
        if path.is_empty() {
            return unfit(
                "the root of cgroup2 has all processes",
                "name a cgroup below it, or leave `cgroup` out",
            );
        }
        if path.strip_prefix(Self::MOUNT).is_some_and(ends) {
            return unfit(
                "it is a path below the root of cgroup2, which is mounted there",
                "begin behind /sys/fs/cgroup: system.slice/postgresql.service",
            );
        }
        let is_name = |name: &str| {
            (1..=Self::LONGEST).contains(&name.len())
                && name != "."
                && name != ".."
                && !name.contains(char::is_control)
        };
        if !path.split('/').all(is_name) {
            return unfit(
                "it is no path of a cgroup",
                "write names joined by `/`, none of them `.` or `..`: system.slice/postgresql.service",
            );
        }
        if path.split('/').count() > MAX_CGROUP_LEVEL as usize {
            return unfit("it lies more than 16 levels deep", "name one above it");
        }
        Ok(Self(path.to_owned()))
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Which level below the root it is on.
    fn level(&self) -> u32 {
        self.0.split('/').count() as u32
    }

    /// Whether it is `other`, or lies below it.
    fn is_in(&self, other: &Self) -> bool {
        self.0.strip_prefix(&other.0).is_some_and(ends)
    }

    /// The path that was probably meant where there is none of this one: `children` says which cgroups lie in one.
    #[must_use]
    pub fn meant(&self, children: impl Fn(&str) -> Vec<String>) -> Option<String> {
        let mut parent = String::new();
        for name in self.0.split('/') {
            let known = children(&parent);
            let at = |name: &str| {
                if parent.is_empty() {
                    name.to_owned()
                } else {
                    format!("{parent}/{name}")
                }
            };
            if !known.iter().any(|child| child == name) {
                return closest(name, known.iter().map(String::as_str)).map(at);
            }
            parent = at(name);
        }
        None
    }
}

/// Whether a name ends before the rest of a path.
fn ends(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// cgroups as they were found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cgroups {
    /// Their ids. One that is not there has no process.
    pub ids: BTreeMap<Cgroup, u64>,
    /// The root that this process sees is not that of cgroup2, but lies below it, nobody knows how far.
    pub root_is_below: bool,
}

impl Profile {
    /// The cgroups that classes name.
    #[must_use]
    pub fn named_cgroups(&self) -> BTreeSet<&Cgroup> {
        self.classes
            .iter()
            .flat_map(|class| &class.matching.cgroup)
            .collect()
    }
}

/// The numbers of a profile's cgroups.
pub(crate) struct Numbers<'p>(Vec<&'p Cgroup>);

impl<'p> Numbers<'p> {
    pub(crate) fn of(profile: &'p Profile) -> Self {
        Self(profile.named_cgroups().into_iter().collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn all(&self) -> impl Iterator<Item = (u32, &'p Cgroup)> {
        (1..).zip(self.0.iter().copied())
    }

    /// Of those that are one of `named`, or below one.
    pub(crate) fn within(&self, named: &[Cgroup]) -> Vec<u32> {
        let within = self
            .all()
            .filter(|(_, one)| named.iter().any(|other| one.is_in(other)));
        within.map(|(number, _)| number).collect()
    }

    /// Ids as ranges, with the numbers.
    pub(crate) fn ids(&self, found: &Cgroups) -> Vec<(u128, u128, u32)> {
        let id = |(number, one)| {
            let id = u128::from(*found.ids.get(one)?);
            Some((id, id, number))
        };
        let mut ids: Vec<_> = self.all().filter_map(id).collect();
        ids.sort_unstable();
        ids.dedup_by_key(|&mut (id, ..)| id);
        ids
    }

    /// The levels that they may be on: `Settings::cgroup_levels`.
    pub(crate) fn levels(&self, found: &Cgroups) -> u32 {
        let all = NONE >> (u32::BITS - 1 - MAX_CGROUP_LEVEL);
        let below = |level: u32| all & !((1 << level) - 1);
        let levels = self.0.iter().map(|one| one.level());
        levels.fold(0, |mask, level| {
            mask | if found.root_is_below {
                below(level)
            } else {
                1 << level
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(text: &str) -> Cgroup {
        Cgroup::parse(text).unwrap()
    }

    #[test]
    fn paths_are_written_in_one_way() {
        for text in ["a/b.service", "/a/b.service", "/a/b.service/"] {
            assert_eq!(cgroup(text).as_str(), "a/b.service");
        }
        let deepest = ["a"; 16].join("/");
        assert_eq!(cgroup(&deepest).level(), 16);
        for wrong in [
            "",
            "/",
            "a//b",
            "a/../b",
            ".",
            "a\nb",
            "/sys/fs/cgroup/a",
            "/sys/fs/cgroup",
            &format!("{deepest}/a"),
        ] {
            assert!(Cgroup::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(cgroup("sys/fs/cgroups").level(), 3);
    }

    #[test]
    fn a_class_has_what_lies_below_its_cgroups() {
        let all = ["a", "a/b", "a/b/c", "ab"].map(cgroup);
        let numbers = Numbers(all.iter().collect());
        assert_eq!(numbers.within(&[cgroup("a")]), [1, 2, 3]);
        assert_eq!(numbers.within(&[cgroup("a/b"), cgroup("ab")]), [2, 3, 4]);
        let mut found = Cgroups::default();
        found.ids.insert(cgroup("ab"), 7);
        found.ids.insert(cgroup("a"), 9);
        assert_eq!(numbers.ids(&found), [(7, 7, 4), (9, 9, 1)]);
        assert_eq!(numbers.levels(&found), 0b1110);
        found.root_is_below = true;
        assert_eq!(numbers.levels(&found), 0x1_fffe);
    }

    #[test]
    fn a_wrong_name_is_suggested_where_it_is_wrong() {
        let children = |parent: &str| match parent {
            "" => vec!["system.slice".to_owned(), "user.slice".to_owned()],
            "system.slice" => vec!["postgresql.service".to_owned(), "ssh.service".to_owned()],
            _ => Vec::new(),
        };
        let meant = |text| cgroup(text).meant(children);
        assert_eq!(meant("sytem.slice/ssh.service").as_deref(), Some("system.slice"));
        assert_eq!(
            meant("system.slice/postgres.service").as_deref(),
            Some("system.slice/postgresql.service")
        );
        assert_eq!(meant("system.slice/quite-another"), None);
    }

    #[test]
    fn a_cgroup_is_a_path_and_of_what_is_sent() {
        let class = |cgroup: &str, ways: &str| {
            crate::parse(&format!(
                "{{ version: 1, servers: {{ s: {{ latency: 1ms }} }}, classes: [{{ match: {{ cgroup: {cgroup} }}, {ways} }}] }}"
            ))
        };
        for (cgroup, ways, wanted) in [
            ("/", "egress: [s]", "the root"),
            (
                "/sys/fs/cgroup/system.slice",
                "egress: [s]",
                "which is mounted there",
            ),
            ("a/../b", "egress: [s]", "no path of a cgroup"),
            ("a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q", "egress: [s]", "16 levels"),
            ("a", "egress: [s], ingress: [s]", "no socket yet"),
        ] {
            let found = class(cgroup, ways).unwrap_err().to_string();
            assert!(found.contains(wanted), "{cgroup}: {found}");
        }
        assert_eq!(class("/a/b/", "bypass: true"), class("a/b", "bypass: true"));
    }
}
