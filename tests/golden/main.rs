//! What programs and people rely on stays: commands and their flags, exit codes, the keys and types of each JSON output.
//!
//! The files beside this one hold all of it. A change that is meant writes them anew, with `UPDATE_GOLDEN=1`, and is then seen
//! in the change's diff. Inputs are in `data`, where the commands run. What a kernel has to do is in [`emulated`].

mod book;
mod commands;
mod emulated;
mod exits;
mod flags;
mod json;
mod keys;
mod kubernetes;
mod reproduce;
mod scenarios;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use perturb_tests::product::Product;

/// Writes the files anew instead of comparing.
const UPDATE: &str = "UPDATE_GOLDEN";

/// The directory of these tests.
fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// A command of the program under test, where the inputs are.
fn perturb(product: &Product, arguments: &[&str]) -> Command {
    let mut command = Command::new(&product.path);
    command
        .args(arguments)
        .current_dir(here().join("data"))
        .env("COLUMNS", "100")
        .stdin(Stdio::null());
    command
}

/// Runs it to its end.
fn run(product: &Product, arguments: &[&str]) -> Result<Output> {
    perturb(product, arguments).output().context("running perturb")
}

/// What it prints, which must be without error.
fn printed(product: &Product, arguments: &[&str]) -> Result<String> {
    let output = run(product, arguments)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "perturb {}: {said}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// Compares `text` with the file `name`. Lines of the file that begin with `? ` may be missing: they depend on the moment.
fn compare(name: &str, text: &str) -> Result<()> {
    const OPTIONAL: &str = "? ";
    let path = here().join(name);
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let optional: Vec<&str> = golden
        .lines()
        .filter_map(|line| line.strip_prefix(OPTIONAL))
        .collect();
    let found: Vec<&str> = text.lines().filter(|line| !optional.contains(line)).collect();
    if env::var_os(UPDATE).is_some() {
        let optional = optional.iter().map(|line| format!("{OPTIONAL}{line}"));
        let lines = found.iter().map(ToString::to_string).chain(optional);
        let text: String = lines.map(|line| line + "\n").collect();
        return fs::write(&path, text).with_context(|| format!("writing {}", path.display()));
    }
    let expected: Vec<&str> = golden
        .lines()
        .filter(|line| !line.starts_with(OPTIONAL))
        .collect();
    if expected == found {
        return Ok(());
    }
    let only_in = |one: &[&str], other: &[&str], mark: char| -> String {
        let lines = one.iter().filter(|line| !other.contains(line));
        lines.map(|line| format!("{mark} {line}\n")).collect()
    };
    let (gone, new) = (only_in(&expected, &found, '-'), only_in(&found, &expected, '+'));
    bail!(
        "tests/golden/{name} says otherwise (the order counts, too):\n{gone}{new}If this is meant, {UPDATE}=1 writes the file anew."
    )
}
