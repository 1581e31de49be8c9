//! The papers' figures: keys of a result, its files, and the book's table of verdicts.

use std::{collections::BTreeSet, env, fs};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::product::Product;
use tempfile::TempDir;

use super::{UPDATE, compare, here, keys, perturb, printed};

/// A table of numbers, and one of curves.
const SHOWN: [&str; 2] = ["martin-table-3.3", "martin-fig-3.2"];

/// The page that says what agrees, and how it begins.
const PAGE: &str = "../../docs/reference/figures.md";
const HEAD: &str = "\
<!-- generated: UPDATE_GOLDEN=1 cargo test -p perturb-tests --test golden -->

# The papers' figures

What `perturb reproduce models` says of each figure and table that needs no root; [how to draw one](../howto/figure.md) has the
rule of the verdicts.

";

/// Results that were measured once on a quiet machine, each with its page; there may be none.
const MEASURED: &str = "../../docs/measured";
const MEASURED_HEAD: &str = "
## Measured

What `perturb reproduce --results docs/measured` says of the results that lie there.

";

#[test]
fn results() -> Result<()> {
    let out = TempDir::with_prefix("perturb-golden-")?;
    let place = out.path().to_str().context("a directory")?;
    let arguments = [&["reproduce", "--json", "--out", place], &SHOWN[..]].concat();
    let text = printed(&Product::find_or_beside()?, &arguments)?;
    compare("json/reproduce.txt", &keys::lines(&text, &[])?)?;
    let written = fs::read_dir(out.path())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<BTreeSet<_>>>()?;
    let expected = SHOWN.map(|name| ["html", "json", "svg"].map(|suffix| format!("{name}.{suffix}")));
    ensure!(
        written == expected.into_iter().flatten().collect(),
        "files: {written:?}"
    );
    let kept = printed(
        &Product::find_or_beside()?,
        &["reproduce", "--results", place, "--json"],
    )?;
    ensure!(
        keys::lines(&kept, &[])? == keys::lines(&text, &[])?,
        "other keys: {kept}"
    );
    let shown = printed(
        &Product::find_or_beside()?,
        &["reproduce", "--results", place, "--markdown"],
    )?;
    for name in SHOWN {
        ensure!(
            shown.contains(&format!(
                "| [{name}]({place}/{name}.html) | Martin 1999 | model |"
            )),
            "{shown}"
        );
    }
    Ok(())
}

/// What the book says of each figure that needs no root is what the command says now.
#[test]
fn table_of_the_book() -> Result<()> {
    let out = TempDir::with_prefix("perturb-golden-")?;
    let place = out.path().to_str().context("a directory")?;
    let table = printed(
        &Product::find_or_beside()?,
        &["reproduce", "models", "--markdown", "--out", place],
    )?;
    let path = here().join(PAGE);
    let mut page = [HEAD, &table].concat();
    if here().join(MEASURED).is_dir() {
        // Links begin where the page is.
        let arguments = ["reproduce", "--results", "../measured", "--markdown"];
        let kept = perturb(&Product::find_or_beside()?, &arguments)
            .current_dir(path.parent().context("a directory")?)
            .output()?;
        ensure!(kept.status.success(), "{}", String::from_utf8_lossy(&kept.stderr));
        page += MEASURED_HEAD;
        page += &String::from_utf8(kept.stdout)?;
    }
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, page)?;
    } else {
        ensure!(
            fs::read_to_string(&path)? == page,
            "docs/reference/figures.md is stale; {UPDATE}=1 writes it anew"
        );
    }
    Ok(())
}

/// The short form of a figure says so, and where its numbers are from.
#[test]
fn short_forms() -> Result<()> {
    let out = TempDir::with_prefix("perturb-golden-")?;
    let place = out.path().to_str().context("a directory")?;
    let text = printed(
        &Product::find_or_beside()?,
        &[
            "reproduce",
            "salisbury-experiment",
            "--quick",
            "--json",
            "--out",
            place,
        ],
    )?;
    ensure!(text.contains("\"quick\": true"), "{text}");
    Ok(())
}
