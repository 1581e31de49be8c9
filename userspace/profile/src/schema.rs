//! The JSON Schema of a profile (draft 2020-12, for editors) and the reference of its keys, from the table of keys.
//!
//! A schema cannot see everything that [`crate::parse`] checks: ranges of quantities (they are texts), names that
//! must exist, duplicate names, delays beyond the horizon. Whatever `parse` accepts in the YAML 1.2 core schema's
//! types, the schema accepts.

use std::fmt::Write as _;

use perturb_quantity::{Dimension, Duration, Probability, Quantity, Rate, Size};
use serde_json::{Map, Value, json};

use crate::keys::{self, Key, Section, Shape};
use crate::model::Name;

/// The JSON Schema of a profile.
pub fn schema() -> Value {
    let mut definitions = Map::new();
    quantity::<Duration>("duration", &mut definitions);
    quantity::<Rate>("bandwidth", &mut definitions);
    quantity::<Size>("size", &mut definitions);
    quantity::<Probability>("percentage", &mut definitions);
    let mut root = section(&keys::PROFILE, keys::shorthand(), &mut definitions);
    let present = |names: &[&str]| json!({ "anyOf": names.iter().map(|name| json!({ "required": [name] })).collect::<Vec<_>>() });
    let short: Vec<&str> = keys::shorthand().iter().map(|key| key.name).collect();
    if let Some(root) = root.as_object_mut() {
        root.insert(
            "$schema".into(),
            "https://json-schema.org/draft/2020-12/schema".into(),
        );
        root.insert("title".into(), "perturb profile".into());
        root.insert("if".into(), present(&short));
        root.insert(
            "then".into(),
            json!({ "not": present(&["servers", "classes", "topology", "matrix"]) }),
        );
        root.insert("$defs".into(), definitions.into());
    }
    root
}

fn quantity<Q: Quantity>(name: &str, definitions: &mut Map<String, Value>) {
    let Dimension {
        what,
        offered,
        example,
        ..
    } = Q::DIMENSION;
    let description = format!("{what} in {offered}; for example {example}");
    definitions.insert(
        name.to_owned(),
        json!({ "type": "string", "pattern": Q::DIMENSION.pattern(), "description": description, "examples": [example] }),
    );
}

fn section(section: &'static Section, extra: &'static [Key], definitions: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for key in section.keys.iter().chain(extra) {
        let mut value = shape(&key.shape, definitions);
        if let Some(value) = value.as_object_mut() {
            value.insert("description".into(), describe(key).into());
        }
        properties.insert(key.name.to_owned(), value);
    }
    let required: Vec<&str> = section
        .keys
        .iter()
        .filter(|key| key.required)
        .map(|key| key.name)
        .collect();
    let mut object = json!({
        "type": "object",
        "description": section.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if let (true, Some(object)) = (std::ptr::eq(section, &keys::CLASS), object.as_object_mut()) {
        let one = |name| json!({ "required": [name] });
        object.insert(
            "anyOf".into(),
            json!([one("egress"), one("ingress"), one("bypass")]),
        );
    }
    object
}

fn describe(key: &Key) -> String {
    let mut text = key.doc.to_owned();
    if let Some(range) = range(&key.shape) {
        let _ = write!(text, " Range: {range}.");
    }
    if !key.required && !key.default.is_empty() {
        let _ = write!(text, " Default: {}.", key.default);
    }
    text
}

/// The allowed values in words, where a range or a choice says it.
fn range(shape: &Shape) -> Option<String> {
    fn span<T: std::fmt::Display>(bounds: &keys::Bounds<T>) -> Option<String> {
        Some(format!("{} to {}", bounds.min, bounds.max))
    }
    match shape {
        Shape::Duration(bounds) => span(bounds),
        Shape::Rate(bounds) => span(bounds),
        Shape::Size(bounds) => span(bounds),
        Shape::Share => Some("0% to 100%".to_owned()),
        Shape::Factor(bounds) => span(bounds),
        Shape::Integer(bounds) if bounds.min == bounds.max => None,
        Shape::Integer(bounds) => span(bounds),
        Shape::Packets => Some(format!(
            "{} to {} packets",
            keys::BUFFER_PACKETS.min,
            keys::BUFFER_PACKETS.max
        )),
        Shape::Either(shapes) => {
            let ranges: Vec<String> = shapes.iter().filter_map(range).collect();
            (!ranges.is_empty()).then(|| ranges.join(", or "))
        }
        Shape::OneOrMore(shape) => range(shape),
        _ => None,
    }
}

fn shape(value: &Shape, definitions: &mut Map<String, Value>) -> Value {
    match value {
        Shape::Duration(_) => reference("duration"),
        Shape::Rate(_) => reference("bandwidth"),
        Shape::Size(_) => reference("size"),
        Shape::Share | Shape::Factor(_) => reference("percentage"),
        Shape::Packets => json!({ "type": "string", "pattern": "^[0-9]+ ?packets?$" }),
        Shape::Integer(bounds) => json!({ "type": "integer", "minimum": bounds.min, "maximum": bounds.max }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::True => json!({ "const": true }),
        Shape::Name => json!({ "type": "string", "pattern": Name::PATTERN }),
        Shape::Text => json!({ "type": "string", "maxLength": keys::MAX_TEXT }),
        Shape::Choice(words) => json!({ "enum": words }),
        Shape::Word(words, bounds) => json!({ "anyOf": [
            { "enum": words.names().collect::<Vec<_>>() },
            { "type": "integer", "minimum": bounds.min, "maximum": bounds.max },
            { "type": "string", "pattern": "^(0[xX][0-9a-fA-F]+|[0-9]+)$" },
        ] }),
        Shape::Prefix => json!({ "type": "string", "pattern": "^[0-9a-fA-F:.]+(/[0-9]{1,3})?$" }),
        Shape::Host => {
            json!({ "type": "string", "pattern": "^[0-9a-zA-Z_]([0-9a-zA-Z_.-]*[0-9a-zA-Z_])?$", "maxLength": 253 })
        }
        Shape::Port => json!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": u16::MAX },
            { "type": "string", "pattern": "^[0-9]+( ?- ?[0-9]+)?$" },
        ] }),
        Shape::Section(inner) => {
            if !definitions.contains_key(inner.title) {
                // Entered before its keys are: a section that contains itself would never end.
                definitions.insert(inner.title.to_owned(), Value::Null);
                let object = section(inner, &[], definitions);
                definitions.insert(inner.title.to_owned(), object);
            }
            reference(inner.title)
        }
        Shape::Named(inner) => json!({
            "type": "object",
            "minProperties": 1,
            "propertyNames": { "pattern": Name::PATTERN },
            "additionalProperties": shape(inner, definitions),
        }),
        Shape::List(inner, min, max) => {
            json!({ "type": "array", "items": shape(inner, definitions), "minItems": min, "maxItems": max })
        }
        Shape::OneOrMore(inner) => {
            let one = shape(inner, definitions);
            let many = json!({
                "type": "array", "items": one, "minItems": 1, "maxItems": keys::ALTERNATIVES, "uniqueItems": true,
            });
            json!({ "anyOf": [one, many] })
        }
        Shape::Either(shapes) => {
            json!({ "anyOf": shapes.iter().map(|inner| shape(inner, definitions)).collect::<Vec<_>>() })
        }
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// The reference of all keys in Markdown: a table per section.
pub fn reference_markdown() -> String {
    let sections: [&Section; 30] = [
        &keys::PROFILE,
        &keys::OVERHEAD_SECTION,
        &keys::LIMITS,
        &keys::SERVER,
        &keys::QUEUE,
        &keys::SLOTS,
        &keys::BUFFER,
        &keys::FRAMING,
        &keys::JITTER,
        &keys::LOSS,
        &keys::GILBERT_ELLIOTT,
        &keys::LOSS_STATES,
        &keys::CORRELATED,
        &keys::REORDER,
        &keys::CLASS,
        &keys::MATCH,
        &keys::GROUP,
        &keys::MATRIX,
        &keys::TOPOLOGY,
        &keys::LINK,
        &keys::LEVEL,
        &keys::COLLISIONS,
        &keys::TCP,
        &keys::TRACE,
        &keys::TIMELINE,
        &keys::STEP,
        &keys::FLAP,
        &keys::RANDOM_DURATION,
        &keys::RANDOM_BANDWIDTH,
        &keys::OVERHEAD_CHANGE,
    ];
    let mut out = String::new();
    for section in sections {
        let _ = writeln!(
            out,
            "## {}\n\n{}\n\n| key | value | default | meaning |\n|---|---|---|---|",
            section.title, section.doc
        );
        for key in section.keys {
            let default = if key.required { "**required**" } else { key.default };
            let range = range(&key.shape).map_or(String::new(), |range| format!(" ({range})"));
            let _ = writeln!(
                out,
                "| `{}` | {}{range} | {default} | {} |",
                key.name,
                in_words(&key.shape),
                key.doc
            );
        }
        out.push('\n');
    }
    out
}

fn in_words(shape: &Shape) -> String {
    match shape {
        Shape::Duration(_) => "duration".to_owned(),
        Shape::Rate(_) => "bandwidth".to_owned(),
        Shape::Size(_) => "size".to_owned(),
        Shape::Share | Shape::Factor(_) => "percentage".to_owned(),
        Shape::Packets => "`N packets`".to_owned(),
        Shape::Integer(bounds) if bounds.min == bounds.max => bounds.min.to_string(),
        Shape::Integer(_) => "whole number".to_owned(),
        Shape::Flag => "true, false".to_owned(),
        Shape::True => "true".to_owned(),
        Shape::Name => "name".to_owned(),
        Shape::Text => "text".to_owned(),
        Shape::Choice(words) => words.join(", "),
        Shape::Word(words, bounds) => {
            format!(
                "{}, or {} to {}",
                words.names().collect::<Vec<_>>().join(", "),
                bounds.min,
                bounds.max
            )
        }
        Shape::Prefix => "address or prefix".to_owned(),
        Shape::Host => "host name".to_owned(),
        Shape::Port => "port or low-high".to_owned(),
        Shape::Section(section) => format!("[{0}](#{0})", section.title),
        Shape::Named(inner) => format!("map of name to {}", in_words(inner)),
        Shape::List(inner, ..) => format!("list of {}", in_words(inner)),
        Shape::OneOrMore(inner) => format!("{}, or a list", in_words(inner)),
        Shape::Either(shapes) => shapes.iter().map(in_words).collect::<Vec<_>>().join(" or "),
    }
}
