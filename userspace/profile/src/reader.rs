//! Takes a tree of YAML apart key by key, and reports what is not as it should be.
//!
//! Every function returns `None` after it has reported, so the caller reads on and all problems are found at once.

use std::{fmt, str::FromStr};

use perturb_quantity::{Quantity, closest};
use strum::VariantNames;

use crate::diagnostic::Problem;
use crate::findings::{Findings, KeyPath};
use crate::model::Name;
use crate::yaml::{Entry, Kind, Node, Place};

/// A smallest and a largest value.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<T> {
    /// The smallest.
    pub min: T,
    /// The largest.
    pub max: T,
}

/// A value and the key it belongs to.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The value.
    pub node: &'a Node,
    /// Its key.
    pub path: &'a KeyPath<'a>,
}

/// A map whose keys are known.
#[derive(Debug)]
pub struct Fields<'a> {
    what: &'static str,
    allowed: Vec<&'static str>,
    entries: &'a [Entry],
    place: Place,
    path: &'a KeyPath<'a>,
}

impl<'a> Fields<'a> {
    /// The map at `at`; keys that are not `allowed` are reported. `what` it is, with its article, is for messages.
    pub fn open(
        at: At<'a>,
        what: &'static str,
        allowed: Vec<&'static str>,
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let Kind::Map(entries) = &at.node.kind else {
            at.wrong_kind("a map", findings);
            return None;
        };
        for entry in entries {
            if !allowed.contains(&entry.key.as_str()) {
                let problem = Problem::UnknownKey {
                    section: what,
                    allowed: allowed.clone(),
                    suggestion: closest(&entry.key, allowed.iter().copied()),
                };
                findings.report(entry.key_place, at.path.key(&entry.key), problem);
            }
        }
        Some(Self {
            what,
            allowed,
            entries,
            place: at.node.place,
            path: at.path,
        })
    }

    /// The value of `key`, if it is there.
    #[must_use]
    pub fn node(&self, key: &'static str) -> Option<&'a Node> {
        debug_assert!(
            self.allowed.contains(&key),
            "{key} is not a known key of {}",
            self.what
        );
        self.entries
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// Whether `key` is there.
    #[must_use]
    pub fn has(&self, key: &'static str) -> bool {
        self.node(key).is_some()
    }

    /// Reads the value of `key` with `read`, if it is there.
    pub fn read<T>(
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
    pub fn require<T>(
        &self,
        key: &'static str,
        example: &'static str,
        findings: &mut Findings<'_>,
        read: impl FnOnce(At<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<T> {
        if !self.has(key) {
            self.report_whole(Problem::MissingKey { key, example }, findings);
        }
        self.read(key, findings, read)
    }

    /// Reports a problem of this map as a whole.
    pub fn report_whole(&self, problem: Problem, findings: &mut Findings<'_>) {
        // The map begins with a brace or its first key; neither is the offending text.
        let place = Place {
            end: self.place.start,
            ..self.place
        };
        findings.report(place, *self.path, problem);
    }

    /// Reports a problem of the key `key`, at its name.
    pub fn report(&self, key: &str, problem: Problem, findings: &mut Findings<'_>) {
        let place = self
            .entries
            .iter()
            .find(|entry| entry.key == key)
            .map_or(self.place, |entry| entry.key_place);
        findings.report(place, self.path.key(key), problem);
    }

    /// Reports why the value of `key` does not do, and what to write instead.
    pub fn unfit(&self, key: &str, why: &'static str, remedy: &'static str, findings: &mut Findings<'_>) {
        self.report(key, Problem::Unfit { why, remedy }, findings);
    }

    /// Reports that `key` needs another key or value, and why.
    pub fn needs(&self, key: &str, other: &'static str, why: &'static str, findings: &mut Findings<'_>) {
        self.report(key, Problem::Needs { other, why }, findings);
    }
}

impl<'a> At<'a> {
    /// Reports a problem of this value.
    pub fn report(self, problem: Problem, findings: &mut Findings<'_>) {
        findings.report(self.node.place, *self.path, problem);
    }

    /// Reports why this value does not do, and what to write instead.
    pub fn unfit(self, why: &'static str, remedy: &'static str, findings: &mut Findings<'_>) {
        self.report(Problem::Unfit { why, remedy }, findings);
    }

    /// Reports that something else was expected, unless the value was refused already.
    pub(crate) fn wrong_kind(self, expected: &'static str, findings: &mut Findings<'_>) {
        if matches!(self.node.kind, Kind::Refused) {
            return;
        }
        let found = self.node.found();
        self.report(Problem::WrongKind { expected, found }, findings);
    }

    /// The text of a scalar.
    pub fn text(self, expected: &'static str, findings: &mut Findings<'_>) -> Option<&'a str> {
        if let Kind::Scalar(text) = &self.node.kind {
            return Some(text);
        }
        self.wrong_kind(expected, findings);
        None
    }

    /// A quantity within bounds.
    pub fn quantity<Q: Quantity + fmt::Display>(
        self,
        bounds: Bounds<Q>,
        findings: &mut Findings<'_>,
    ) -> Option<Q> {
        match self.text(Q::DIMENSION.what, findings)?.parse::<Q>() {
            Ok(value) if value < bounds.min || value > bounds.max => {
                let (min, max) = (bounds.min.to_string(), bounds.max.to_string());
                self.report(Problem::OutOfRange { min, max }, findings);
                None
            }
            Ok(value) => Some(value),
            Err(error) => {
                self.report(
                    Problem::Quantity {
                        error: error.fault,
                        what: Q::DIMENSION.what,
                        units: Q::DIMENSION.offered,
                        example: Q::DIMENSION.example,
                    },
                    findings,
                );
                None
            }
        }
    }

    /// A whole number within bounds, decimal or `0x`.
    pub fn integer(self, bounds: Bounds<u64>, findings: &mut Findings<'_>) -> Option<u64> {
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
    pub fn choice<T: Clone>(
        self,
        words: &'static [&'static str],
        values: &[T],
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        debug_assert_eq!(words.len(), values.len());
        let value = |text: &str| {
            let index = words.iter().position(|word| *word == text)?;
            values.get(index).cloned()
        };
        self.one_of(words, value, findings)
    }

    fn one_of<T>(
        self,
        words: &'static [&'static str],
        value: impl FnOnce(&str) -> Option<T>,
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        let text = self.text("one word", findings)?;
        let chosen = value(text);
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

    /// A text of at most `max` characters.
    pub fn prose(self, max: usize, findings: &mut Findings<'_>) -> Option<String> {
        let text = self.text("a text", findings)?;
        let length = text.chars().count();
        if length > max {
            self.report(Problem::TextTooLong { length, max }, findings);
            return None;
        }
        Some(text.to_owned())
    }

    /// A list with `min` to `max` entries. Entries that cannot be read are left out, after a report.
    pub fn list<T>(
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
}

/// `true` or `false`.
pub fn flag(at: At<'_>, findings: &mut Findings<'_>) -> Option<bool> {
    at.choice(&["true", "false"], &[true, false], findings)
}

/// A variant of an enumeration, by its name.
pub(crate) fn variant<T: FromStr + VariantNames>(at: At<'_>, findings: &mut Findings<'_>) -> Option<T> {
    at.one_of(T::VARIANTS, |text| text.parse().ok(), findings)
}

/// A name.
pub fn name(at: At<'_>, findings: &mut Findings<'_>) -> Option<Name> {
    let name = Name::new(at.text("a name", findings)?);
    if name.is_none() {
        at.report(Problem::NotAName, findings);
    }
    name
}

pub(crate) fn parse_integer(text: &str) -> Option<u128> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // `from_str_radix` accepts a sign, which no integer here has.
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    // What overflows 128 bits is out of every range all the same.
    plain.then(|| u128::from_str_radix(digits, radix).unwrap_or(u128::MAX))
}
