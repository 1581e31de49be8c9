//! From the tree to the values: takes a map apart key by key, and reports what is not as it should be.
//!
//! Every function returns `None` after it has reported, so the caller reads on and all problems are found at once.

mod class;
pub(crate) mod profile;
pub(crate) mod server;
mod topology;

use crate::diagnostic::Problem;
use crate::findings::{Findings, KeyPath};
use crate::keys::{Bounds, Key, Section};
use crate::matching::{PortRange, Prefix, PrefixError, Words};
use crate::model::Name;
use crate::quantity::Quantity;
use crate::suggest::closest;
use crate::yaml::{Entry, Kind, Node, Place};

/// A value and the key it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: &'a KeyPath<'a>,
}

/// A map whose keys are known.
pub(crate) struct Fields<'a> {
    section: &'static Section,
    extra: &'static [Key],
    entries: &'a [Entry],
    place: Place,
    path: &'a KeyPath<'a>,
}

impl<'a> Fields<'a> {
    /// The map at `at`, every key of it in `section` or among the `extra` ones.
    pub(crate) fn open(
        at: At<'a>,
        section: &'static Section,
        extra: &'static [Key],
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let Kind::Map(entries) = &at.node.kind else {
            wrong_kind(at, "a map", findings);
            return None;
        };
        for entry in entries {
            let known = || section.names().chain(extra.iter().map(|key| key.name));
            if !known().any(|name| name == entry.key) {
                let problem = Problem::UnknownKey {
                    section: section.what,
                    allowed: known().collect(),
                    suggestion: closest(&entry.key, known()),
                };
                findings.report(entry.key_place, at.path.key(&entry.key), problem);
            }
        }
        Some(Self {
            section,
            extra,
            entries,
            place: at.node.place,
            path: at.path,
        })
    }

    /// The value of `key`, if it is there.
    pub(crate) fn node(&self, key: &'static str) -> Option<&'a Node> {
        debug_assert!(
            self.section
                .names()
                .chain(self.extra.iter().map(|key| key.name))
                .any(|name| name == key),
            "{key} is not in the table of {}",
            self.section.what
        );
        self.entries
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// Reads the value of `key` with `read`, if it is there.
    pub(crate) fn read<T>(
        &self,
        key: &'static str,
        findings: &mut Findings<'_>,
        read: impl FnOnce(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<T> {
        let node = self.node(key)?;
        read(
            At {
                node,
                path: &self.path.key(key),
            },
            findings,
        )
    }

    /// Reads the value of `key`, which must be there; `example` shows how it is written.
    pub(crate) fn require<T>(
        &self,
        key: &'static str,
        example: &'static str,
        findings: &mut Findings<'_>,
        read: impl FnOnce(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<T> {
        if self.node(key).is_none() {
            self.report_whole(Problem::MissingKey { key, example }, findings);
        }
        self.read(key, findings, read)
    }

    /// Reports a problem of this map as a whole.
    pub(crate) fn report_whole(&self, problem: Problem, findings: &mut Findings<'_>) {
        // The map begins with a brace or its first key; neither is the offending text.
        let place = Place {
            end: self.place.start,
            ..self.place
        };
        findings.report(place, *self.path, problem);
    }

    /// Reports a problem of the key `key`, at its name.
    pub(crate) fn report(&self, key: &str, problem: Problem, findings: &mut Findings<'_>) {
        let place = self
            .entries
            .iter()
            .find(|entry| entry.key == key)
            .map_or(self.place, |entry| entry.key_place);
        findings.report(place, self.path.key(key), problem);
    }
}

fn wrong_kind(at: At<'_>, expected: &'static str, findings: &mut Findings<'_>) {
    if matches!(at.node.kind, Kind::Refused) {
        return;
    }
    let found = at.node.found();
    findings.report(at.node.place, *at.path, Problem::WrongKind { expected, found });
}

impl<'a> At<'a> {
    pub(crate) fn report(self, problem: Problem, findings: &mut Findings<'_>) {
        findings.report(self.node.place, *self.path, problem);
    }

    /// The text of a scalar.
    pub(crate) fn text(self, expected: &'static str, findings: &mut Findings<'_>) -> Option<&'a str> {
        if let Kind::Scalar(text) = &self.node.kind {
            return Some(text);
        }
        wrong_kind(self, expected, findings);
        None
    }

    /// A quantity within bounds.
    pub(crate) fn quantity<Q: Quantity>(self, bounds: Bounds<Q>, findings: &mut Findings<'_>) -> Option<Q> {
        match self.text(Q::WHAT, findings)?.parse::<Q>() {
            Ok(value) if value < bounds.min || value > bounds.max => {
                let (min, max) = (bounds.min.to_string(), bounds.max.to_string());
                self.report(Problem::OutOfRange { min, max }, findings);
                None
            }
            Ok(value) => Some(value),
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

    /// A whole number within bounds, decimal or `0x`.
    pub(crate) fn integer(self, bounds: Bounds<u64>, findings: &mut Findings<'_>) -> Option<u64> {
        let Bounds { min, max } = bounds;
        let text = self.text("a whole number", findings)?;
        match parse_integer(text) {
            Some(value) if value >= u128::from(min) && value <= u128::from(max) => u64::try_from(value).ok(),
            Some(_) => {
                self.report(
                    Problem::OutOfRange {
                        min: min.to_string(),
                        max: max.to_string(),
                    },
                    findings,
                );
                None
            }
            None => {
                self.report(Problem::NotAnInteger { min, max }, findings);
                None
            }
        }
    }

    /// One of `words`, which stand for the `values` at the same index.
    pub(crate) fn choice<T: Clone>(
        self,
        words: &'static [&'static str],
        values: &[T],
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        debug_assert_eq!(words.len(), values.len());
        let text = self.text("one word", findings)?;
        let chosen = words
            .iter()
            .position(|word| *word == text)
            .and_then(|index| values.get(index).cloned());
        if chosen.is_none() {
            let suggestion = closest(text, words.iter().copied());
            self.report(
                Problem::NotOneOf {
                    allowed: words.to_vec(),
                    suggestion,
                },
                findings,
            );
        }
        chosen
    }

    /// A number, or a word that stands for one.
    pub(crate) fn word(self, words: &Words, bounds: Bounds<u64>, findings: &mut Findings<'_>) -> Option<u64> {
        let text = self.text("a number or a word", findings)?;
        if let Some(number) = words.number(&text.to_ascii_lowercase()) {
            return Some(number.into());
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return self.integer(bounds, findings);
        }
        let suggestion = closest(text, words.names());
        self.report(
            Problem::NotOneOf {
                allowed: words.names().collect(),
                suggestion,
            },
            findings,
        );
        None
    }

    /// A text of at most `max` characters.
    pub(crate) fn prose(self, max: usize, findings: &mut Findings<'_>) -> Option<String> {
        let text = self.text("a text", findings)?;
        let length = text.chars().count();
        if length > max {
            self.report(Problem::TextTooLong { length, max }, findings);
            return None;
        }
        Some(text.to_owned())
    }

    /// A list with `min` to `max` entries. Entries that cannot be read are left out, after a report.
    pub(crate) fn list<T>(
        self,
        (min, max): (usize, usize),
        findings: &mut Findings<'_>,
        mut read: impl FnMut(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Kind::List(nodes) = &self.node.kind else {
            wrong_kind(self, "a list", findings);
            return None;
        };
        let count = nodes.len();
        if count < min || count > max {
            self.report(Problem::Count { count, min, max }, findings);
            return None;
        }
        let read = |(index, node)| {
            read(
                At {
                    node,
                    path: &self.path.index(index),
                },
                findings,
            )
        };
        Some(nodes.iter().enumerate().filter_map(read).collect())
    }

    /// One value, or a list of different ones.
    pub(crate) fn one_or_more<T: PartialEq + Clone + std::hash::Hash + Eq>(
        self,
        max: usize,
        findings: &mut Findings<'_>,
        mut read: impl FnMut(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        match self.node.kind {
            Kind::List(_) => {
                let mut seen = std::collections::HashSet::new();
                self.list((1, max), findings, |at, findings| {
                    let value = read(at, findings)?;
                    if seen.insert(value.clone()) {
                        return Some(value);
                    }
                    at.report(Problem::Repeated, findings);
                    None
                })
            }
            _ => read(self, findings).map(|value| vec![value]),
        }
    }

    /// A map with names of the user's choice. Names are unique already: they are keys.
    pub(crate) fn named<T>(
        self,
        max: usize,
        findings: &mut Findings<'_>,
        mut read: impl FnMut(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<Vec<(Name, Option<T>)>> {
        let Kind::Map(entries) = &self.node.kind else {
            wrong_kind(self, "a map of names", findings);
            return None;
        };
        let count = entries.len();
        if count == 0 || count > max {
            self.report(Problem::Count { count, min: 1, max }, findings);
            return None;
        }
        let mut named = Vec::with_capacity(count);
        for entry in entries {
            let path = self.path.key(&entry.key);
            let value = read(
                At {
                    node: &entry.value,
                    path: &path,
                },
                findings,
            );
            match Name::new(&entry.key) {
                Some(name) => named.push((name, value)),
                None => findings.report(entry.key_place, path, Problem::NotAName),
            }
        }
        Some(named)
    }
}

/// `true` or `false`.
pub(crate) fn flag(at: At<'_>, findings: &mut Findings<'_>) -> Option<bool> {
    at.choice(&["true", "false"], &[true, false], findings)
}

pub(crate) fn name(at: At<'_>, findings: &mut Findings<'_>) -> Option<Name> {
    let name = Name::new(at.text("a name", findings)?);
    if name.is_none() {
        at.report(Problem::NotAName, findings);
    }
    name
}

pub(crate) fn prefix(at: At<'_>, findings: &mut Findings<'_>) -> Option<Prefix> {
    match Prefix::parse(at.text("an address or prefix", findings)?) {
        Ok(prefix) => Some(prefix),
        Err(PrefixError::HostBits(meant)) => {
            at.report(
                Problem::HostBits {
                    meant: meant.to_string(),
                },
                findings,
            );
            None
        }
        Err(PrefixError::Malformed) => {
            at.report(Problem::NotAPrefix, findings);
            None
        }
    }
}

pub(crate) fn port(at: At<'_>, findings: &mut Findings<'_>) -> Option<PortRange> {
    let text = at.text("a port or low-high", findings)?;
    let port = |text: &str| parse_integer(text.trim()).and_then(|number| u16::try_from(number).ok());
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (port(low), port(high)) {
        (Some(low), Some(high)) if low <= high => Some(PortRange { low, high }),
        (Some(_), Some(_)) => {
            at.report(Problem::Reversed, findings);
            None
        }
        _ => {
            at.report(Problem::NotAPort, findings);
            None
        }
    }
}

fn parse_integer(text: &str) -> Option<u128> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // `from_str_radix` accepts a sign, which no integer of a profile has.
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    // What overflows 128 bits is out of every range all the same.
    plain.then(|| u128::from_str_radix(digits, radix).unwrap_or(u128::MAX))
}
