//! All commands with their arguments, as `--help` of each says, and the page of the book that shows it.

use anyhow::{Context as _, Result};
use perturb_tests::product::Product;

use super::{compare, printed};

/// Commands that `--help` does not name, but packages and other programs call.
pub(super) const HIDDEN: [&str; 4] = ["completions", "man", "stage", "agent"];

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

#[test]
fn the_book_shows_them() -> Result<()> {
    let product = Product::find_or_beside()?;
    let mut page = "<!-- generated: UPDATE_GOLDEN=1 cargo test -p perturb-tests --test golden commands -->\n\
                    # Every command\n\nAs `--help` says it.\n"
        .to_owned();
    show(&product, &[], &mut page)?;
    compare("../../docs/reference/cli.md", &page)
}

/// A command's help as a part of the page, then its sub-commands'.
fn show(product: &Product, command: &[&str], page: &mut String) -> Result<()> {
    let help = printed(product, &[command, &["--help"]].concat())?;
    let name = [&["perturb"], command].concat().join(" ");
    *page += &format!("\n## {name}\n\n```text\n");
    for line in help.trim().lines() {
        *page += &format!("{}\n", line.trim_end());
    }
    *page += "```\n";
    for name in below(&help) {
        show(product, &[command, &[name]].concat(), page)?;
    }
    Ok(())
}

/// The sub-commands that a help names.
fn below(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help")
}

/// A command's usage and arguments, then those of its sub-commands.
fn walk(product: &Product, command: &[&str], text: &mut String) -> Result<()> {
    let help = printed(product, &[command, &["--help"]].concat())?;
    let mut section = "";
    let mut items: Vec<Vec<&str>> = Vec::new();
    for line in help.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start();
        if indent == 0 {
            section = words;
        }
        match section {
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
    for name in below(&help) {
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
