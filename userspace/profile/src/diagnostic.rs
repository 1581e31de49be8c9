//! What is wrong with a profile: every problem with its place, the offending text, what is allowed and what to do.

use perturb_quantity::Fault;
use std::fmt;

use serde::Serialize;

/// YAML that means something other than what stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// `&name`.
    #[error("is an anchor, which a profile does not use")]
    Anchor,
    /// `*name`.
    #[error("is an alias, which a profile does not use")]
    Alias,
    /// `!tag`.
    #[error("is a tag, which a profile does not use")]
    Tag,
    /// `<<`.
    #[error("is a merge key, which a profile does not use")]
    MergeKey,
    /// A second `---`.
    #[error("begins a second document; a profile is one")]
    SecondDocument,
    /// A key that is empty, a list or a map.
    #[error("is not a word, so it cannot be a key")]
    KeyNotText,
}

/// Why a class can match no packet at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Ports of a protocol that has none.
    #[error("ports exist in tcp, udp, udplite, sctp and dccp only")]
    PortsWithoutProtocol,
    /// An IP header field of a frame that is not IP.
    #[error("a frame that is not IP has no addresses, ports, protocol or dscp")]
    FieldsWithoutIp,
    /// Addresses of different families.
    #[error("an address of one family is never in a packet of the other")]
    Families,
}

/// One problem. Displayed it reads on from the offending text: "`20` has no unit".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is not YAML.
    #[error("is not YAML: {detail}")]
    Syntax {
        /// What the YAML parser says.
        detail: String,
    },
    /// YAML that a profile does not use.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The whole text is too long.
    #[error("the text has {bytes} bytes, more than {max}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest.
        max: usize,
    },
    /// No content.
    #[error("the profile is empty")]
    EmptyProfile,
    /// A key that does not exist here.
    #[error("is not a key of {section}")]
    UnknownKey {
        /// The section that has no such key.
        section: &'static str,
        /// The keys it has.
        allowed: Vec<&'static str>,
        /// The key that was probably meant.
        suggestion: Option<&'static str>,
    },
    /// The same key twice in a map.
    #[error("is given a second time; the first is on line {first_line}")]
    DuplicateKey {
        /// Line of the first.
        first_line: usize,
    },
    /// A name is taken.
    #[error("is already the name of {what} on line {first_line}")]
    DuplicateName {
        /// What has the name.
        what: &'static str,
        /// Its line.
        first_line: usize,
    },
    /// A required key is absent.
    #[error("lacks the key `{key}`")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// How it is written.
        example: &'static str,
    },
    /// A list where a map was expected, or the like.
    #[error("is {found}, but {expected} belongs here")]
    WrongKind {
        /// What belongs here.
        expected: &'static str,
        /// What is here.
        found: &'static str,
    },
    /// Not a quantity.
    #[error("{error}")]
    Quantity {
        /// What is wrong with it.
        error: Fault,
        /// The quantity expected.
        what: &'static str,
        /// Its units.
        units: &'static str,
        /// A good one.
        example: &'static str,
    },
    /// Not a whole number.
    #[error("is not a whole number")]
    NotAnInteger {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// A value beyond its range.
    #[error("is out of range")]
    OutOfRange {
        /// Smallest allowed.
        min: String,
        /// Largest allowed.
        max: String,
    },
    /// A word that is not one of the choices.
    #[error("is not one of the choices")]
    NotOneOf {
        /// The choices.
        allowed: Vec<&'static str>,
        /// The choice that was probably meant.
        suggestion: Option<&'static str>,
    },
    /// Not usable as a name.
    #[error("is not a name")]
    NotAName,
    /// A text that is too long.
    #[error("has {length} characters")]
    TextTooLong {
        /// Its length.
        length: usize,
        /// The longest.
        max: usize,
    },
    /// A name that nothing has.
    #[error("is not the name of {what}")]
    UnknownName {
        /// What was looked for.
        what: &'static str,
        /// The names there are (the first ones, if there are many).
        known: Vec<String>,
        /// The name that was probably meant.
        suggestion: Option<String>,
    },
    /// A list with too many or too few entries.
    #[error("has {count} entries")]
    Count {
        /// How many it has.
        count: usize,
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// The same entry twice in a list.
    #[error("is in this list twice")]
    Repeated,
    /// Not an address or prefix.
    #[error("is neither an address nor a prefix")]
    NotAPrefix,
    /// A prefix with bits set beyond its length.
    #[error("has bits set beyond its prefix length")]
    HostBits {
        /// The prefix that was probably meant.
        meant: String,
    },
    /// Not a host's name.
    #[error("is no name of a host")]
    NotAHost,
    /// Not a port or range of ports.
    #[error("is neither a port nor a range of ports")]
    NotAPort,
    /// A range that ends before it begins.
    #[error("ends before it begins")]
    Reversed,
    /// Two keys that exclude each other.
    #[error("cannot stand beside `{other}`: {why}")]
    Excludes {
        /// The other key.
        other: &'static str,
        /// Why.
        why: &'static str,
    },
    /// A key that means nothing without another.
    #[error("needs `{other}` beside it: {why}")]
    Needs {
        /// The other key.
        other: &'static str,
        /// Why.
        why: &'static str,
    },
    /// Pairs of groups that a matrix lacks.
    #[error("lacks {}", shortened(.pairs))]
    MissingPairs {
        /// Which.
        pairs: Vec<String>,
        /// It has all of them the other way.
        reversed: bool,
    },
    /// A value that cannot work with the rest.
    #[error("does not fit: {why}")]
    Unfit {
        /// Why.
        why: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A step of a timeline that does not fit the others.
    #[error("does not fit: {why}")]
    Step {
        /// Why.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A class that no packet can belong to.
    #[error("can match no packet: {0}")]
    NeverMatches(Contradiction),
    /// A path whose delay exceeds what the pacer can hold.
    #[error("takes up to {delay}, beyond the horizon of {horizon}")]
    BeyondHorizon {
        /// Its largest delay.
        delay: String,
        /// The horizon.
        horizon: String,
    },
}

/// The first ones, and how many more there are.
fn shortened(list: &[String]) -> String {
    const SHOWN: usize = 10;
    let more = match list.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let first: Vec<&str> = list.iter().take(SHOWN).map(String::as_str).collect();
    first.join(", ") + &more
}

impl Problem {
    /// What is allowed instead, if that can be said shortly.
    pub fn allowed(&self) -> Option<String> {
        match self {
            Self::UnknownKey { allowed, .. } | Self::NotOneOf { allowed, .. } => Some(allowed.join(", ")),
            Self::Quantity { what, units, .. } => Some(format!("{what} in {units}")),
            Self::NotAnInteger { min, max } => Some(format!("{min} to {max}")),
            Self::OutOfRange { min, max } => Some(format!("{min} to {max}")),
            Self::NotAName => {
                Some("letters, digits, `_`, `-`, `.`; a letter or digit first; at most 63".to_owned())
            }
            Self::TextTooLong { max, .. } => Some(format!("at most {max}")),
            Self::UnknownName { known, .. } if known.is_empty() => None,
            Self::UnknownName { known, .. } => Some(known.join(", ")),
            Self::Count { min, max, .. } => Some(format!("{min} to {max} entries")),
            Self::NotAPrefix => Some("an IPv4 or IPv6 address, with or without /length".to_owned()),
            Self::NotAHost => Some("letters, digits, `-`, `_`, in labels joined by dots".to_owned()),
            Self::NotAPort => Some("0 to 65535, or low-high".to_owned()),
            _ => None,
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        let meant = |suggestion: Option<&str>, otherwise: &str| match suggestion {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None => otherwise.to_owned(),
        };
        match self {
            Self::Syntax { .. } => "correct this place first; nothing after it was looked at".to_owned(),
            Self::Refused(Refused::SecondDocument) => {
                "put the second document into a file of its own".to_owned()
            }
            Self::Refused(Refused::KeyNotText) => "write `key: value`".to_owned(),
            Self::Refused(_) => "write the value out where it is used".to_owned(),
            Self::TooLong { .. } => "describe the hosts by prefixes or a topology".to_owned(),
            Self::EmptyProfile => "begin with `version: 1`".to_owned(),
            Self::UnknownKey { suggestion, .. } => meant(*suggestion, "remove it, or use one of the keys"),
            Self::DuplicateKey { .. } | Self::Repeated => "remove one of the two".to_owned(),
            Self::DuplicateName { .. } => "choose another name".to_owned(),
            Self::MissingKey { example, .. } => format!("add `{example}`"),
            Self::WrongKind { expected, .. } => format!("write {expected}"),
            Self::Quantity {
                error: Fault::UnknownUnit { suggestion, .. },
                example,
                ..
            } => meant(*suggestion, &format!("write for example {example}")),
            Self::Quantity { example, .. } => format!("write for example {example}"),
            Self::NotAnInteger { .. } => "write a whole number, without unit".to_owned(),
            Self::OutOfRange { .. } => "choose a value in the range".to_owned(),
            Self::NotOneOf { suggestion, .. } => meant(*suggestion, "use one of them"),
            Self::NotAName => "use another name".to_owned(),
            Self::TextTooLong { .. } => "shorten it".to_owned(),
            Self::UnknownName { suggestion, what, .. } => meant(
                suggestion.as_deref(),
                &format!("define it, or use the name of {what} that is defined"),
            ),
            Self::Count { count, min, .. } if count < min => "add entries, or remove the key".to_owned(),
            Self::Count { .. } => "remove entries".to_owned(),
            Self::NotAPrefix => "write for example 10.0.0.0/8 or 2001:db8::1".to_owned(),
            Self::HostBits { meant } => format!("did you mean `{meant}`?"),
            Self::NotAHost => {
                "write for example db.example; an address or prefix goes under `remote`".to_owned()
            }
            Self::NotAPort => "write for example 2049 or 6000-6063".to_owned(),
            Self::Reversed => "put the lower end first".to_owned(),
            Self::Excludes { other, .. } => format!("remove this key or `{other}`"),
            Self::Needs { other, .. } => format!("add `{other}`, or remove this key"),
            Self::Unfit { remedy, .. } | Self::Step { remedy, .. } => (*remedy).to_owned(),
            Self::MissingPairs { reversed: true, .. } => {
                "it has these the other way: add a row for each, or `symmetric: true` if they hold both ways"
                    .to_owned()
            }
            Self::MissingPairs { .. } => "add a row for each".to_owned(),
            Self::NeverMatches(_) => "remove one of the conditions, or the class".to_owned(),
            Self::BeyondHorizon { .. } => {
                "lower the latencies, jitter or buffers along the path, or raise `horizon` (at most 60s)"
                    .to_owned()
            }
        }
    }
}

/// A problem at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key it is about, from the top: `servers.nic.gap`, `classes[2].match.port`.
    pub key: String,
    /// The offending text (its first line).
    pub text: String,
    /// What is wrong.
    pub problem: Problem,
    pub(crate) source_line: String,
}

impl Diagnostic {
    /// The problem in one sentence, without place and remedy.
    pub fn message(&self) -> String {
        if self.text.is_empty() {
            self.problem.to_string()
        } else {
            format!("`{}` {}", self.text, self.problem)
        }
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct View<'a> {
            line: usize,
            column: usize,
            key: &'a str,
            text: &'a str,
            message: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            allowed: Option<String>,
            remedy: String,
        }
        View {
            line: self.line,
            column: self.column,
            key: &self.key,
            text: &self.text,
            message: self.message(),
            allowed: self.problem.allowed(),
            remedy: self.problem.remedy(),
        }
        .serialize(serializer)
    }
}

/// All that is wrong with a profile, in the order of the text; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostics {
    /// Where the text came from: a path, or `profile`.
    pub source: String,
    /// The problems.
    pub errors: Vec<Diagnostic>,
}

impl Diagnostics {
    /// The same, said to come from `source`.
    pub fn of_source(self, source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            ..self
        }
    }
}

impl std::error::Error for Diagnostics {}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for error in &self.errors {
            let Diagnostic {
                line,
                column,
                key,
                text,
                problem,
                source_line,
            } = error;
            write!(f, "{}:{line}:{column}: ", self.source)?;
            if !key.is_empty() {
                write!(f, "{key}: ")?;
            }
            writeln!(f, "{}", error.message())?;
            if !source_line.is_empty() {
                let number = line.to_string();
                let marks = "^".repeat(text.chars().count().max(1));
                writeln!(f, "  {number} | {source_line}")?;
                writeln!(f, "  {0:1$} | {0:2$}{marks}", "", number.len(), column - 1)?;
            }
            if let Some(allowed) = problem.allowed() {
                writeln!(f, "  allowed: {allowed}")?;
            }
            writeln!(f, "  to do: {}", problem.remedy())?;
        }
        let count = self.errors.len();
        write!(f, "{count} error{}", if count == 1 { "" } else { "s" })
    }
}
