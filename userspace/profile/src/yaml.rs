//! A YAML text as a tree in which every node knows its place.
//!
//! Model: one document; maps with plain text keys, lists, scalars. A scalar stays text, so `no` is a name and `1.10`
//! keeps its zero. What would make the text mean something that is not written where it stands (anchors, aliases,
//! merge keys, tags, further documents) is refused, and so the tree is never larger than its text. Duplicate keys are
//! reported here, and the first one counts. After a syntax error nothing of the tree is trusted.

use granit_parser::{Event, Parser, ScalarStyle, Span};

use crate::diagnostic::{Problem, Refused};
use crate::findings::{Findings, KeyPath};

/// Longest text, in bytes. 1024 hosts and 4096 classes written out take less than 2 MiB.
const MAX_TEXT: usize = 16 << 20;
/// Deepest nesting. The profile itself needs 6 levels.
const MAX_DEPTH: usize = 32;

/// Where a node stands in the text: line and column from 1, and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
}

impl Place {
    fn of(span: Span) -> Self {
        let start = span.start.byte_offset().unwrap_or(0);
        Self {
            line: span.start.line(),
            column: span.start.col() + 1,
            start,
            end: span.end.byte_offset().unwrap_or(start).max(start),
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where.
    pub place: Place,
    /// What.
    pub kind: Kind,
}

/// A value.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Nothing, `~` or `null`.
    Nothing,
    /// Something that was reported already.
    Refused,
    /// A single value, as it is written.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the text.
    Map(Vec<Entry>),
}

/// A key of a map and its value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where it stands.
    pub key_place: Place,
    /// The value.
    pub value: Node,
}

impl Node {
    /// What this is, for a message.
    pub fn found(&self) -> &'static str {
        match self.kind {
            Kind::Nothing | Kind::Refused => "nothing",
            Kind::Scalar(_) => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }
}

/// The tree of `text`; `None` if there is none, which is then among the findings.
pub fn parse(text: &str, findings: &mut Findings<'_>) -> Option<Node> {
    if text.len() > MAX_TEXT {
        findings.report(
            Place::default(),
            KeyPath::ROOT,
            Problem::TooLong {
                bytes: text.len(),
                max: MAX_TEXT,
            },
        );
        return None;
    }
    let mut options = granit_parser::options! {
        emit_unresolved_aliases: true,
        emit_anchor_events: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let mut builder = Builder {
        text,
        events: Parser::new_from_str_with_options(text, options),
        findings,
    };
    let before = builder.findings.len();
    match builder.stream() {
        Ok(node) => node,
        Err(Broken(place, detail)) => {
            // What was found before the break may be a consequence of it.
            builder.findings.truncate(before);
            builder
                .findings
                .report(place, KeyPath::ROOT, Problem::Syntax { detail });
            None
        }
    }
}

/// The text is not YAML: where, and what the parser says.
struct Broken(Place, String);

struct Builder<'t, 'f, 'd> {
    text: &'t str,
    events: Parser<'t, granit_parser::StrInput<'t>>,
    findings: &'f mut Findings<'d>,
}

impl<'t> Builder<'t, '_, '_> {
    /// The next event that is not mere presentation.
    fn next(&mut self) -> Result<(Event<'t>, Place), Broken> {
        loop {
            match self.events.next() {
                Some(Ok((Event::Anchor(..), span))) => self.refuse(Place::of(span), Refused::Anchor),
                Some(Ok((event, span))) => {
                    if let Some(tag) = span.tag_span() {
                        self.refuse(Place::of(tag), Refused::Tag);
                    }
                    return Ok((event, Place::of(span)));
                }
                Some(Err(error)) => {
                    let place = Place::of(Span::empty(*error.marker()));
                    return Err(Broken(place, error.info()));
                }
                None => return Err(Broken(self.end(), "the text ends unexpectedly".to_owned())),
            }
        }
    }

    fn end(&self) -> Place {
        let line = self.text.lines().count().max(1);
        Place {
            line,
            column: 1,
            start: self.text.len(),
            end: self.text.len(),
        }
    }

    fn refuse(&mut self, place: Place, refused: Refused) {
        self.findings
            .report(place, KeyPath::ROOT, Problem::Refused(refused));
    }

    fn stream(&mut self) -> Result<Option<Node>, Broken> {
        let mut document = None;
        loop {
            let (event, place) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => return Ok(document),
                Event::DocumentStart(..) if document.is_some() => {
                    self.refuse(place, Refused::SecondDocument);
                    return Ok(document);
                }
                Event::DocumentStart(..) => {
                    let (event, place) = self.next()?;
                    document = Some(self.node(event, place)?);
                }
                _ => return Err(Broken(place, "content outside of a document".to_owned())),
            }
        }
    }

    /// Recursion is bounded: flow and block nesting are each limited to [`MAX_DEPTH`] by the scanner.
    fn node(&mut self, event: Event<'t>, place: Place) -> Result<Node, Broken> {
        let kind = match event {
            Event::Scalar(text, style, ..) => match (text.as_ref(), style) {
                ("" | "~" | "null" | "Null" | "NULL", ScalarStyle::Plain) => Kind::Nothing,
                _ => Kind::Scalar(text.into_owned()),
            },
            Event::SequenceStart(..) => Kind::List(self.list()?),
            Event::MappingStart(..) => Kind::Map(self.map()?),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.refuse(place, Refused::Alias);
                Kind::Refused
            }
            _ => return Err(Broken(place, "a value was expected here".to_owned())),
        };
        Ok(Node { place, kind })
    }

    fn list(&mut self) -> Result<Vec<Node>, Broken> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, place) => items.push(self.node(event, place)?),
            }
        }
    }

    fn map(&mut self) -> Result<Vec<Entry>, Broken> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
        loop {
            let (event, key_place) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(entries);
            }
            let key = self.node(event, key_place)?;
            let (event, place) = self.next()?;
            let value = self.node(event, place)?;
            let key = match key.kind {
                Kind::Scalar(text) if text == "<<" => {
                    self.refuse(key_place, Refused::MergeKey);
                    continue;
                }
                Kind::Scalar(text) => text,
                Kind::Refused => continue,
                _ => {
                    self.refuse(key_place, Refused::KeyNotText);
                    continue;
                }
            };
            if let Some(&first_line) = lines.get(&key) {
                self.findings
                    .report(key_place, KeyPath::ROOT, Problem::DuplicateKey { first_line });
                continue;
            }
            lines.insert(key.clone(), key_place.line);
            entries.push(Entry {
                key,
                key_place,
                value,
            });
        }
    }
}
