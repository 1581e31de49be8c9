//! Takes the maps of an experiment apart key by key; every problem is reported with its place, all of them at once.

use perturb_profile::{
    Name, Problem, Quantity,
    document::{Entry, Findings, KeyPath, Kind, Node, Place, closest},
};

/// A value and the key it belongs to.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) node: &'a Node,
    pub(super) path: &'a KeyPath<'a>,
}

/// A map whose keys are known.
pub(super) struct Fields<'a> {
    entries: &'a [Entry],
    place: Place,
    path: &'a KeyPath<'a>,
}

impl<'a> Fields<'a> {
    /// The map at `at`; keys that are not `allowed` are reported.
    pub(super) fn open(
        at: At<'a>,
        section: &'static str,
        allowed: &[&'static str],
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let Kind::Map(entries) = &at.node.kind else {
            at.wrong_kind("a map", findings);
            return None;
        };
        for entry in entries {
            if !allowed.contains(&entry.key.as_str()) {
                let problem = Problem::UnknownKey {
                    section,
                    allowed: allowed.to_vec(),
                    suggestion: closest(&entry.key, allowed.iter().copied()),
                };
                findings.report(entry.key_place, at.path.key(&entry.key), problem);
            }
        }
        Some(Self {
            entries,
            place: at.node.place,
            path: at.path,
        })
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Reads the value of `key` with `read`, if it is there.
    pub(super) fn read<T>(
        &self,
        key: &str,
        findings: &mut Findings<'_>,
        read: impl FnOnce(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<T> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        let at = At {
            node: &entry.value,
            path: &self.path.key(key),
        };
        read(at, findings)
    }

    /// As [`Self::read`], of a key that must be there.
    pub(super) fn require<T>(
        &self,
        key: &'static str,
        example: &'static str,
        findings: &mut Findings<'_>,
        read: impl FnOnce(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<T> {
        if !self.has(key) {
            let place = Place {
                end: self.place.start,
                ..self.place
            };
            findings.report(place, *self.path, Problem::MissingKey { key, example });
        }
        self.read(key, findings, read)
    }

    /// Reports a problem at the name of a key.
    pub(super) fn report(&self, key: &str, problem: Problem, findings: &mut Findings<'_>) {
        let place = self
            .entries
            .iter()
            .find(|entry| entry.key == key)
            .map_or(self.place, |entry| entry.key_place);
        findings.report(place, self.path.key(key), problem);
    }
}

impl<'a> At<'a> {
    pub(super) fn report(self, problem: Problem, findings: &mut Findings<'_>) {
        findings.report(self.node.place, *self.path, problem);
    }

    pub(super) fn unfit(self, why: &'static str, remedy: &'static str, findings: &mut Findings<'_>) {
        self.report(Problem::Unfit { why, remedy }, findings);
    }

    fn wrong_kind(self, expected: &'static str, findings: &mut Findings<'_>) {
        if !matches!(self.node.kind, Kind::Refused) {
            let found = self.node.found();
            self.report(Problem::WrongKind { expected, found }, findings);
        }
    }

    /// A single value, as written.
    pub(super) fn text(self, expected: &'static str, findings: &mut Findings<'_>) -> Option<&'a str> {
        if let Kind::Scalar(text) = &self.node.kind {
            return Some(text);
        }
        self.wrong_kind(expected, findings);
        None
    }

    /// A whole number.
    pub(super) fn integer(self, (min, max): (u64, u64), findings: &mut Findings<'_>) -> Option<u64> {
        match self.text("a whole number", findings)?.parse::<u64>() {
            Ok(value) if (min..=max).contains(&value) => Some(value),
            Ok(_) => {
                let (min, max) = (min.to_string(), max.to_string());
                self.report(Problem::OutOfRange { min, max }, findings);
                None
            }
            Err(_) => {
                self.report(Problem::NotAnInteger { min, max }, findings);
                None
            }
        }
    }

    /// A quantity between two, both given as they are written.
    pub(super) fn quantity<Q: Quantity>(
        self,
        (min, max): (&str, &str),
        findings: &mut Findings<'_>,
    ) -> Option<Q> {
        let written = self.text(Q::WHAT, findings)?;
        match written.parse::<Q>() {
            Ok(value) => {
                let within = |bound: &str, wrong: std::cmp::Ordering| {
                    bound.parse::<Q>().is_ok_and(|bound| value.cmp(&bound) != wrong)
                };
                if within(min, std::cmp::Ordering::Less) && within(max, std::cmp::Ordering::Greater) {
                    return Some(value);
                }
                let (min, max) = (min.to_owned(), max.to_owned());
                self.report(Problem::OutOfRange { min, max }, findings);
                None
            }
            Err(error) => {
                self.report(
                    Problem::Quantity {
                        error,
                        what: Q::WHAT,
                        units: Q::OFFERED,
                        example: Q::EXAMPLE,
                    },
                    findings,
                );
                None
            }
        }
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(
        self,
        choices: &[(&'static str, T)],
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        let text = self.text("one word", findings)?;
        let chosen = choices
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, value)| *value);
        if chosen.is_none() {
            let words = || choices.iter().map(|(word, _)| *word);
            self.report(
                Problem::NotOneOf {
                    allowed: words().collect(),
                    suggestion: closest(text, words()),
                },
                findings,
            );
        }
        chosen
    }

    /// A list of `min` to `max` entries; those that cannot be read are left out after a report.
    pub(super) fn list<T>(
        self,
        (min, max): (usize, usize),
        findings: &mut Findings<'_>,
        mut read: impl FnMut(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Kind::List(nodes) = &self.node.kind else {
            self.wrong_kind("a list", findings);
            return None;
        };
        let count = nodes.len();
        if count < min || count > max {
            self.report(Problem::Count { count, min, max }, findings);
            return None;
        }
        let read = |(index, node)| {
            let path = self.path.index(index);
            read(At { node, path: &path }, findings)
        };
        Some(nodes.iter().enumerate().filter_map(read).collect())
    }
}

/// A name.
pub(super) fn name(at: At<'_>, findings: &mut Findings<'_>) -> Option<Name> {
    let name = Name::new(at.text("a name", findings)?);
    if name.is_none() {
        at.report(Problem::NotAName, findings);
    }
    name
}
