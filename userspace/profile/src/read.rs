//! From the tree to the values of a profile: what [`crate::reader`] does not know, because only profiles have it.

mod class;
mod fates;
pub(crate) mod groups;
pub(crate) mod profile;
mod queue;
pub(crate) mod server;
mod slot;
mod timeline;
mod topology;
mod trace;

use perturb_quantity::closest;

use crate::diagnostic::Problem;
use crate::findings::Findings;
use crate::keys::{Bounds, Key, Section};
use crate::matching::{HostName, PortRange, Prefix, PrefixError, Words};
use crate::model::Name;
use crate::reader::parse_integer;
pub(crate) use crate::reader::{At, Fields, flag, name, variant};
use crate::yaml::Kind;

impl<'a> Fields<'a> {
    /// The map at `at`, every key of it in `section` or among the `extra` ones.
    pub(crate) fn of(
        at: At<'a>,
        section: &'static Section,
        extra: &'static [Key],
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let names = section.names().chain(extra.iter().map(|key| key.name));
        Self::open(at, section.what, names.collect(), findings)
    }
}

impl At<'_> {
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
            self.wrong_kind("a map of names", findings);
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

pub(crate) fn host(at: At<'_>, findings: &mut Findings<'_>) -> Option<HostName> {
    let name = HostName::new(at.text("a host's name", findings)?);
    if name.is_none() {
        at.report(Problem::NotAHost, findings);
    }
    name
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
