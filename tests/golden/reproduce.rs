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
rule of the verdicts. Two print nothing to compare: Salisbury's Table 3 defines symbols, Martin's Fig. 5.9 is a profile of the
kernels of his servers.

";

/// How far the programs that are measured here are from the thesis's: the headers of their sweeps, and what the pages of
/// chapter 5 have.
const SCALED: [(&str, &str); 2] = [
    (
        "Split-C, chapter 3 (`split-c.yaml`)",
        "../../configs/experiments/split-c.yaml",
    ),
    (
        "NPB, chapter 4 (`npb.yaml`)",
        "../../configs/experiments/npb.yaml",
    ),
];
const SCALED_HEAD: &str = "
## Thesis, here, factor

What Martin 1999 has, and what stands for it in the measured figures and in `perturb sweep`. A network's last two columns are
where a knob is turned farthest.
";
const SCALED_NFS: &str = "
NFS, chapter 5:

```text
server                thesis                     here                               factor
processor time        900 us SCSI, 650 us RAID   the same, emulated                      1
disks                 24 and 28 of 12 ms         the same, emulated                      1
cache                 128 and 512 MB             as large a share of the data            1
data set              10 MB for each op/s        10 kB for each op/s                1/1000
load generators       3 of 7 and 15 processes    1 of 21 and 45 processes
rates, largest packet                            the same                                1
```
";

/// Results that were measured, each with its page; there may be none.
const MEASURED: &str = "../../docs/measured";
const MEASURED_HEAD: &str = "
## Measured

What `perturb reproduce --results docs/measured` says of the results that lie there. They were drawn by cc4d315, Figs 5.4, 5.7 and 5.8 by
0ab89be, Table II by fbf54d9, Fig 3.2 by 5490d2a; Table 2.1 and Figs 2.4, 2.7, 5.3, 5.5, 5.6 and 5.10 by 877c8b0. Builds ran beside
all of them, mostly at idle priority (SCHED_IDLE).

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
    page += SCALED_HEAD;
    for (what, file) in SCALED {
        let text = fs::read_to_string(here().join(file))?;
        let rows = text.lines().filter_map(|line| line.strip_prefix("#   "));
        let rows: Vec<&str> = rows.filter(|row| row.contains("   ") || row.is_empty()).collect();
        page += &format!("\n{what}:\n\n```text\n{}\n```\n", rows.join("\n"));
    }
    page += SCALED_NFS;
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
