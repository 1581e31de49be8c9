//! Key paths and types of JSON: `classes[].egress.packets: integer`.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Deserializer, Value};

/// The lines for one or several JSON texts. Below the paths `maps` keys are data: `*` stands for all of them.
pub(super) fn lines(text: &str, maps: &[&str]) -> Result<String> {
    let mut found = BTreeSet::new();
    let mut count = 0;
    for value in Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.with_context(|| format!("no JSON: {text}"))?;
        walk("", &value, maps, &mut found);
        count += 1;
    }
    ensure!(count > 0, "nothing was printed");
    // On a busy machine a short run may count nothing, and what its keys say is then unknown.
    for path in maps {
        let is_empty = found.contains(&format!("{path}: empty object"));
        ensure!(
            !is_empty,
            "`{path}` is empty: run it again, on a machine that is less busy"
        );
    }
    Ok(found.into_iter().map(|line| line + "\n").collect())
}

fn walk(path: &str, value: &Value, maps: &[&str], found: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Object(keys) if !keys.is_empty() => {
            for (key, value) in keys {
                let key = if maps.contains(&path) { "*" } else { key };
                let dot = if path.is_empty() { "" } else { "." };
                walk(&format!("{path}{dot}{key}"), value, maps, found);
            }
            return;
        }
        Value::Array(values) if !values.is_empty() => {
            for value in values {
                walk(&format!("{path}[]"), value, maps, found);
            }
            return;
        }
        Value::Object(_) => "empty object",
        Value::Array(_) => "empty array",
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
    };
    found.insert(format!("{path}: {kind}"));
}

#[test]
fn paths_and_types() -> Result<()> {
    let text = r#"{"a": [1, 2.5], "m": {"x": {"k": null}, "y": {"k": "s"}}, "e": []} {"b": true}"#;
    let expected = "a[]: integer\na[]: number\nb: boolean\ne: empty array\nm.*.k: null\nm.*.k: string\n";
    assert_eq!(lines(text, &["m"])?, expected);
    assert!(lines("{", &[]).is_err() && lines("", &[]).is_err());
    assert!(lines(r#"{"m": {}}"#, &["m"]).is_err() && lines(r#"{"m": {}}"#, &[]).is_ok());
    Ok(())
}
