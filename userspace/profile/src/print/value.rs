//! The normal form as a tree, and its rendering as YAML and through serde.

use std::fmt::{self, Write as _};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// Widest line of the output, in characters.
const WIDTH: usize = 110;

/// A value of the normal form.
pub(super) enum Value {
    /// Needs no quotes: a number, a word of ours, a quantity.
    Bare(String),
    /// May need quotes: a word of the user's.
    Text(String),
    Integer(u64),
    Flag(bool),
    List(Vec<Self>),
    Map(Map),
}

/// Keys and values in order.
#[derive(Default)]
pub(super) struct Map(pub(super) Vec<(String, Value)>);

impl Map {
    pub(super) fn set(&mut self, key: &str, value: Value) -> &mut Self {
        self.0.push((key.to_owned(), value));
        self
    }

    /// Sets `key` if `value` differs from its default.
    pub(super) fn unless_default<T: PartialEq + Default>(
        &mut self,
        key: &str,
        value: &T,
        print: impl FnOnce(&T) -> Value,
    ) {
        if *value != T::default() {
            self.set(key, print(value));
        }
    }

    pub(super) fn optional<T>(&mut self, key: &str, value: Option<&T>, print: impl FnOnce(&T) -> Value) {
        if let Some(value) = value {
            self.set(key, print(value));
        }
    }
}

pub(super) fn bare<T: fmt::Display + ?Sized>(value: &T) -> Value {
    Value::Bare(value.to_string())
}

pub(super) fn text<T: fmt::Display + ?Sized>(value: &T) -> Value {
    Value::Text(value.to_string())
}

/// One value by itself, several as a list.
pub(super) fn alternatives<T>(list: &[T], print: impl Fn(&T) -> Value) -> Value {
    match list {
        [one] => print(one),
        _ => Value::List(list.iter().map(print).collect()),
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bare(text) | Self::Text(text) => serializer.serialize_str(text),
            Self::Integer(number) => serializer.serialize_u64(*number),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(value)?;
                }
                list.end()
            }
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.0.len()))?;
                for (key, value) in &entries.0 {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

/// `key: value`, on one line if it fits, else as a block.
pub(super) fn write_entry(out: &mut String, indent: usize, key: &str, value: &Value) -> fmt::Result {
    write!(out, "{:indent$}{}:", "", quoted(key))?;
    write_value(out, indent, key.chars().count() + 2, value)
}

/// A value after its key or dash, which end at `used` beyond `indent`.
fn write_value(out: &mut String, indent: usize, used: usize, value: &Value) -> fmt::Result {
    let line = value.to_string();
    let splits = match value {
        Value::Map(entries) => {
            !entries.0.is_empty()
                && entries
                    .0
                    .iter()
                    .any(|(_, value)| matches!(value, Value::Map(map) if !map.0.is_empty()))
        }
        Value::List(values) => values.iter().any(|value| matches!(value, Value::Map(_))),
        _ => false,
    };
    if !splits && indent + used + line.chars().count() <= WIDTH {
        return writeln!(out, " {line}");
    }
    match value {
        Value::Map(entries) => {
            out.push('\n');
            entries
                .0
                .iter()
                .try_for_each(|(key, value)| write_entry(out, indent + 2, key, value))
        }
        Value::List(values) => {
            out.push('\n');
            values.iter().try_for_each(|value| {
                write!(out, "{:1$}-", "", indent + 2)?;
                write_item(out, indent + 4, value)
            })
        }
        _ => writeln!(out, " {line}"),
    }
}

/// An item after its dash: on one line if it fits, else its entries one below the other.
fn write_item(out: &mut String, indent: usize, value: &Value) -> fmt::Result {
    let line = value.to_string();
    match value {
        Value::Map(entries) if indent + line.chars().count() > WIDTH => entries
            .0
            .iter()
            .enumerate()
            .try_for_each(|(index, (key, value))| {
                if index == 0 {
                    write!(out, " {}:", quoted(key))?;
                    write_value(out, indent, key.chars().count() + 2, value)
                } else {
                    write_entry(out, indent, key, value)
                }
            }),
        _ => writeln!(out, " {line}"),
    }
}

/// The value on one line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bare(text) => f.write_str(text),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::List(values) => {
                f.write_char('[')?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
                }
                f.write_char(']')
            }
            Self::Map(entries) if entries.0.is_empty() => f.write_str("{}"),
            Self::Map(entries) => {
                f.write_str("{ ")?;
                for (index, (key, value)) in entries.0.iter().enumerate() {
                    write!(
                        f,
                        "{}{}: {value}",
                        if index == 0 { "" } else { ", " },
                        quoted(key)
                    )?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// `text`, in double quotes if any YAML reader could take it for something else.
fn quoted(text: &str) -> String {
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if word && !reserved.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(c),
            // Beyond ASCII only letters and digits are certain to be printable in YAML's sense.
            c if c.is_alphanumeric() => out.push(c),
            c if u32::from(c) <= 0xffff => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}
