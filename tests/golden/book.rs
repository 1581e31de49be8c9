//! Examples of the book: its profiles are valid, and its experiments can be planned.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use perturb_tests::product::Product;
use tempfile::TempDir;

use super::{here, printed};

/// How the example of a whole file begins.
const BEGIN: &str = "```yaml\nversion: 1\n";

#[test]
fn examples_are_valid() -> Result<()> {
    let product = Product::find_or_beside()?;
    let folder = TempDir::with_prefix("perturb-book-")?;
    let mut pages = Vec::new();
    pages_below(&here().join("../../docs"), &mut pages)?;
    let mut found = 0;
    for page in pages {
        let text = fs::read_to_string(&page)?;
        for rest in text.split(BEGIN).skip(1) {
            let example = rest.split("```").next().unwrap_or_default();
            let file = folder.path().join(format!("{found}.yaml"));
            fs::write(&file, format!("version: 1\n{example}"))?;
            let command: &[&str] = if example.contains("\nworkloads:") {
                &["sweep", "--dry-run"]
            } else {
                &["check"]
            };
            printed(&product, &[command, &[&file.to_string_lossy()]].concat())
                .map_err(|error| error.context(page.display().to_string()))?;
            found += 1;
        }
    }
    ensure!(found >= 8, "the book has only {found} examples");
    Ok(())
}

fn pages_below(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            pages_below(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}
