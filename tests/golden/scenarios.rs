//! The networks of `configs/scenarios`: each changes, says where its figures are from, and can be drawn.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use perturb_tests::product::Product;
use tempfile::TempDir;

use super::{here, run};

#[test]
fn are_valid_and_drawn() -> Result<()> {
    let product = Product::find_or_beside()?;
    let out = TempDir::with_prefix("perturb-scenarios-")?;
    let picture = out.path().join("changes.svg");
    let drawn = picture.to_str().context("a path")?;
    let mut found = 0;
    for entry in fs::read_dir(here().join("../../configs/scenarios"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        found += 1;
        let text = fs::read_to_string(&path)?;
        ensure!(text.starts_with("# Synthetic"), "{}: no source", path.display());
        let profile = path.to_str().context("a path")?;
        let output = run(&product, &["check", profile, "--svg", drawn])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{profile}: {said}");
        ensure!(!said.contains("warning"), "{profile}: {said}");
        // `check` speaks of servers; hosts alone change, or they are not known yet.
        let constant = ["partition:", "overhead: { send: 60us"];
        let changes = !constant.iter().any(|word| text.contains(word));
        ensure!(!changes || said.contains("changes: "), "{profile}: {said}");
        let svg = fs::read_to_string(&picture)?;
        let charts: &[&str] = match (changes, text.contains("partition:")) {
            (true, _) => &["Bandwidth", "Latency"],
            (_, true) => &["Loss", "partition-1", "partition-2"],
            _ => &["Overhead", "receive"],
        };
        ensure!(
            charts.iter().all(|chart| svg.contains(chart)),
            "{profile}: the picture lacks charts"
        );
    }
    ensure!(found >= 12, "{found} scenarios");
    Ok(())
}
