//! Collects the problems of a profile while it is read, with the key each belongs to.

use std::fmt;

use crate::diagnostic::{Diagnostic, Diagnostics, Problem};
use crate::yaml::Place;

/// Which key a value belongs to: a chain up to the root.
#[derive(Debug, Clone, Copy)]
pub struct KeyPath<'p> {
    parent: Option<&'p KeyPath<'p>>,
    segment: Segment<'p>,
}

#[derive(Debug, Clone, Copy)]
enum Segment<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

impl KeyPath<'static> {
    /// The document itself.
    pub const ROOT: Self = Self {
        parent: None,
        segment: Segment::Root,
    };
}

impl<'p> KeyPath<'p> {
    /// A key below this one.
    #[must_use]
    pub fn key(&'p self, key: &'p str) -> Self {
        Self {
            parent: Some(self),
            segment: Segment::Key(key),
        }
    }

    /// An entry of the list at this key, from 0.
    #[must_use]
    pub fn index(&'p self, index: usize) -> Self {
        Self {
            parent: Some(self),
            segment: Segment::Index(index),
        }
    }
}

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.segment {
            Segment::Root => Ok(()),
            Segment::Key(key)
                if self
                    .parent
                    .is_none_or(|parent| matches!(parent.segment, Segment::Root)) =>
            {
                f.write_str(key)
            }
            Segment::Key(key) => write!(f, ".{key}"),
            Segment::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Collects problems while a profile is read.
#[derive(Debug)]
pub struct Findings<'t> {
    text: &'t str,
    /// Byte at which each line begins.
    lines: Vec<usize>,
    found: Vec<Diagnostic>,
}

/// More problems than this help nobody.
const MAX_FINDINGS: usize = 1000;
/// Longest excerpt of the profile in a message, in characters.
const MAX_EXCERPT: usize = 120;

impl<'t> Findings<'t> {
    /// Nothing found in `text` yet.
    pub fn new(text: &'t str) -> Self {
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self {
            text,
            lines,
            found: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether further problems will not be kept, and so need not be worked out.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MAX_FINDINGS
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.found.truncate(len);
    }

    /// Adds a problem.
    pub fn report(&mut self, place: Place, key: KeyPath<'_>, problem: Problem) {
        if self.is_full() {
            return;
        }
        let text = self.text.get(place.start..place.end).unwrap_or("");
        let source_line = place
            .line
            .checked_sub(1)
            .and_then(|index| self.lines.get(index))
            .and_then(|&start| self.text.get(start..))
            .and_then(|rest| rest.lines().next())
            .unwrap_or("");
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let excerpt = |text: &str| text.chars().take(MAX_EXCERPT).map(visible).collect::<String>();
        self.found.push(Diagnostic {
            line: place.line.max(1),
            column: place.column.max(1),
            key: key.to_string(),
            text: excerpt(text.lines().next().unwrap_or("").trim_end()),
            problem,
            source_line: excerpt(source_line),
        });
    }

    /// `value`, unless something was found.
    pub fn conclude<T>(mut self, value: Option<T>) -> Result<T, Diagnostics> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => {
                if self.found.is_empty() {
                    self.report(Place::default(), KeyPath::ROOT, Problem::EmptyProfile);
                }
                self.found
                    .sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
                Err(Diagnostics {
                    source: "profile".to_owned(),
                    errors: self.found,
                })
            }
        }
    }
}
