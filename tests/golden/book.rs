//! Examples of the book: its profiles are valid, its experiments can be planned, its commands and their options are there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::product::Product;
use tempfile::TempDir;

use super::{here, printed};

/// How the example of a whole file begins.
const FILE: &str = "```yaml\nversion: 1\n";
/// How the example of a matrix begins, and what profiles call it.
const MATRIX: (&str, &str) = ("```csv\nfrom,to,", "regions.csv");
/// How examples of commands begin.
const COMMANDS: &str = "```sh\n";

#[test]
fn files_are_valid() -> Result<()> {
    let product = Product::find_or_beside()?;
    let folder = TempDir::with_prefix("perturb-book-")?;
    let examples = examples(FILE)?;
    for (_, table) in self::examples(MATRIX.0)? {
        fs::write(folder.path().join(MATRIX.1), format!("from,to,{table}"))?;
    }
    ensure!(examples.len() >= 8, "the book has only {} files", examples.len());
    for (number, (page, example)) in examples.iter().enumerate() {
        let file = folder.path().join(format!("{number}.yaml"));
        fs::write(&file, format!("version: 1\n{example}"))?;
        let command: &[&str] = if example.contains("\nworkloads:") {
            &["sweep", "--dry-run"]
        } else {
            &["check"]
        };
        printed(&product, &[command, &[&file.to_string_lossy()]].concat())
            .with_context(|| page.display().to_string())?;
    }
    Ok(())
}

#[test]
fn commands_have_the_options_that_are_named() -> Result<()> {
    let known = fs::read_to_string(here().join("commands.txt"))?;
    let mut found = 0;
    for (page, example) in examples(COMMANDS)? {
        let text = example.replace("\\\n", " ");
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let Some(call) = line
                .strip_prefix("sudo ")
                .unwrap_or(line)
                .strip_prefix("perturb ")
            else {
                continue;
            };
            found += 1;
            // What follows ` -- ` is another program's.
            let own = call.split(" -- ").next().unwrap_or(call);
            let options = options_of(&known, own)
                .with_context(|| format!("{}: there is no `perturb {own}`", page.display()))?;
            let named = own.split([' ', '=']).filter(|word| word.starts_with("--"));
            for option in named {
                ensure!(
                    options.contains(option),
                    "{}: `perturb {own}` has no {option}",
                    page.display()
                );
            }
        }
    }
    ensure!(found >= 30, "the book has only {found} commands");
    Ok(())
}

/// The options of the command that a call names, by the golden file of all commands.
fn options_of<'k>(known: &'k str, call: &str) -> Option<BTreeSet<&'k str>> {
    let mut words = call.split(' ');
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let names = [format!("perturb {first} {second} "), format!("perturb {first} ")];
    let is_there = |name: &&String| known.lines().any(|line| line.starts_with(name.as_str()));
    let name = names.iter().find(is_there)?;
    let own = known.lines().skip_while(|line| !line.starts_with(name.as_str()));
    // There may be several lines of usage.
    let own = own.skip_while(|line| !line.starts_with(' '));
    let words = own
        .take_while(|line| line.starts_with(' '))
        .flat_map(|line| line.split([' ', ',', '=', '[']));
    Some(words.filter(|word| word.starts_with("--")).collect())
}

/// What stands in the book's blocks that begin so, and on which page.
fn examples(begin: &str) -> Result<Vec<(PathBuf, String)>> {
    let mut pages = Vec::new();
    pages_below(&here().join("../../docs"), &mut pages)?;
    let mut found = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page)?;
        for rest in text.split(begin).skip(1) {
            let example = rest.split("```").next().unwrap_or_default();
            found.push((page.clone(), example.to_owned()));
        }
    }
    Ok(found)
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
