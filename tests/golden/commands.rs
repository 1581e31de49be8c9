//! All commands with their arguments, as `--help` of each says.

use anyhow::{Context as _, Result};
use perturb_tests::product::Product;

use super::{compare, printed};

/// Commands that `--help` does not name, but packages and other programs call.
const HIDDEN: [&str; 4] = ["completions", "man", "stage", "agent"];

#[test]
fn commands_and_flags() -> Result<()> {
    let product = Product::find_or_beside()?;
    let mut text = String::new();
    walk(&product, &[], &mut text)?;
    for hidden in HIDDEN {
        walk(&product, &[hidden], &mut text)?;
    }
    compare("commands.txt", &text)
}

/// A command's usage and arguments, then those of its sub-commands.
fn walk(product: &Product, command: &[&str], text: &mut String) -> Result<()> {
    let help = printed(product, &[command, &["--help"]].concat())?;
    let mut section = "";
    let mut items: Vec<Vec<&str>> = Vec::new();
    let mut below = Vec::new();
    for line in help.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start();
        if indent == 0 {
            section = words;
        }
        match section {
            "Commands:" if indent == 2 => below.extend(words.split(' ').next()),
            "Commands:" | "Examples:" | "Exit codes:" | "Units:" => {}
            _ if section.starts_with("Usage:") => {
                *text += words.strip_prefix("Usage: ").unwrap_or(words);
                *text += "\n";
                section = if indent == 0 { "Usage:" } else { section };
            }
            _ if (1..8).contains(&indent) && words.starts_with(['-', '<', '[']) => items.push(vec![words]),
            _ if indent >= 8 => items.last_mut().unwrap_or(&mut Vec::new()).push(words),
            _ => {}
        }
    }
    for item in items {
        *text += &format!("  {}\n", argument(&item)?);
    }
    for name in below.iter().filter(|name| **name != "help") {
        walk(product, &[command, &[name]].concat(), text)?;
    }
    Ok(())
}

/// An argument's names, default and possible values, without its description.
fn argument(lines: &[&str]) -> Result<String> {
    let first = lines.first().context("an argument without a line")?;
    let mut text = first.split("  ").next().unwrap_or(first).to_owned();
    let all = lines.join(" ");
    for begin in ["[default: ", "[env: ", "[aliases: ", "[possible values: "] {
        if let Some((_, rest)) = all.split_once(begin)
            && let Some((value, _)) = rest.split_once(']')
        {
            text += &format!(" {begin}{value}]");
        }
    }
    let values = lines.iter().skip_while(|line| **line != "Possible values:");
    let values: Vec<&str> = values
        .filter_map(|line| line.strip_prefix("- ")?.split(':').next())
        .collect();
    if !values.is_empty() {
        text += &format!(" [possible values: {}]", values.join(", "));
    }
    Ok(text)
}
