//! `cargo xtask tidy`: what neither compiler nor clippy checks of the repository.
//!
//! Files have at most [`LONGEST`] lines, modules have a file of their own name (no `mod.rs`), libraries print nothing, what is
//! public is named somewhere else, [documents] are sound, and the table of crates in docs/architecture.md is that of the manifests.

mod documents;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{command::output, workspace};

/// Lines of a source file.
const LONGEST: usize = 500;
/// Where sources are.
const SOURCES: [&str; 5] = ["bindings", "ebpf-prog", "tests", "userspace", "xtask"];
/// Libraries that [print](speaks) nothing: they give values, and `perturb` says them. The sandbox is a program's other end, and speaks.
const SILENT: [&str; 12] = [
    "ebpf-prog/common/src",
    "userspace/clock/src",
    "userspace/dataplane/src",
    "userspace/emulator/src",
    "userspace/experiments/src",
    "userspace/models/src",
    "userspace/present/src",
    "userspace/profile/src",
    "userspace/quantity/src",
    "userspace/stats/src",
    "userspace/trace/src",
    "userspace/workloads/src",
];
/// What prints.
const PRINTERS: [&str; 4] = ["println!(", "print!(", "eprintln!(", "eprint!("];
/// The document with the table of crates, and the words that begin its block.
const ARCHITECTURE: &str = "docs/architecture.md";
const GRAPH: &str = "```text crates\n";
/// Beginnings of public items.
const ITEMS: [&str; 7] = ["fn", "struct", "enum", "const", "static", "trait", "type"];

/// Says what is wrong.
pub(crate) fn run() -> Result<ExitCode> {
    let root = workspace::root();
    let listed = output(Command::new("git").args(["ls-files"]).current_dir(&root))
        .context("`git ls-files` fails here: the repository is asked which files are its own")?;
    let files: Vec<&str> = listed.lines().filter(|file| root.join(file).is_file()).collect();
    let read = |name: &str| -> Result<(PathBuf, String)> {
        let text = fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        Ok((name.into(), text))
    };
    let of = |extension: &str| -> Result<Vec<(PathBuf, String)>> {
        let wanted = files.iter().filter(|file| file.ends_with(extension));
        wanted.map(|file| read(file)).collect()
    };
    let mut sources = of(".rs")?;
    sources.retain(|(path, _)| SOURCES.iter().any(|directory| path.starts_with(directory)));
    let documents: BTreeMap<PathBuf, String> = of(".md")?.into_iter().collect();

    let mut faults = Vec::new();
    let python = of(".py")?;
    faults.extend(
        sources
            .iter()
            .chain(&python)
            .filter_map(|(path, text)| too_long(path, text)),
    );
    faults.extend(sources.iter().filter_map(|(path, _)| nameless(path)));
    faults.extend(sources.iter().filter_map(|(path, text)| speaks(path, text)));
    faults.extend(unused(&sources));
    faults.extend(documents::faults(&documents, &files));
    faults.extend(graph_fault(&read(ARCHITECTURE)?.1, &manifests()?));
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn too_long(path: &Path, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LONGEST).then(|| format!("{} has {lines} lines, more than {LONGEST}", path.display()))
}

fn nameless(path: &Path) -> Option<String> {
    // Beside test programs, cargo would take a file for another one.
    let is_shared_by_tests = path.components().any(|part| part.as_os_str() == "tests");
    (path.ends_with("mod.rs") && !is_shared_by_tests).then(|| {
        format!(
            "{}: a module's file bears its name, beside its directory",
            path.display()
        )
    })
}

/// Tests may print.
fn speaks(path: &Path, text: &str) -> Option<String> {
    let is_silent = SILENT.iter().any(|library| path.starts_with(library));
    let is_test = path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
    if !is_silent || is_test {
        return None;
    }
    let code = text.split("#[cfg(test)]\nmod tests").next()?;
    let number = code.lines().position(|line| {
        !line.trim_start().starts_with("//") && PRINTERS.iter().any(|printer| line.contains(printer))
    })?;
    Some(format!(
        "{}:{}: a library prints; `perturb` does that",
        path.display(),
        number + 1
    ))
}

/// The words of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}

/// The public items that a text declares.
fn public_items(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let after = line
            .strip_prefix("pub ")
            .or_else(|| line.strip_prefix("pub(crate) "))?;
        let mut words = words(after)
            .skip_while(|word| ["const", "unsafe", "async"].contains(word))
            .peekable();
        // `const` begins a constant, too.
        match words.peek() {
            Some(word) if ITEMS.contains(word) => words.nth(1),
            _ if after.starts_with("const ") => words.next(),
            _ => None,
        }
    })
}

/// Public items whose names stand nowhere else.
fn unused(sources: &[(PathBuf, String)]) -> Vec<String> {
    let mut count = HashMap::<&str, usize>::new();
    for word in sources.iter().flat_map(|(_, text)| words(text)) {
        *count.entry(word).or_default() += 1;
    }
    let mut found = Vec::new();
    for (path, text) in sources {
        let lone = public_items(text).filter(|item| count.get(item) == Some(&1));
        found.extend(lone.map(|item| format!("{}: nothing uses `{item}`", path.display())));
    }
    found
}

/// A crate of the workspace, and which others it uses, tests aside.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// What the manifests say.
fn manifests() -> Result<Graph> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["metadata", "--no-deps", "--format-version=1", "--locked"])
        .current_dir(workspace::root());
    let said = output(&mut cargo).context("`cargo metadata` fails")?;
    let said: Value = serde_json::from_str(&said).context("`cargo metadata` is not JSON")?;
    let packages = said["packages"].as_array().context("no packages")?;
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    Ok(packages
        .iter()
        .filter_map(|package| {
            let dependencies = package["dependencies"].as_array()?;
            let used = dependencies
                .iter()
                .filter(|other| other["kind"].as_str() != Some("dev"));
            let used = used.filter_map(|other| other["name"].as_str());
            let used = used.filter(|name| names.contains(name)).map(short);
            Some((short(package["name"].as_str()?), used.collect()))
        })
        .collect())
}

fn short(name: &str) -> String {
    name.strip_prefix("perturb-").unwrap_or(name).to_owned()
}

/// The table as the document should have it.
fn table(graph: &Graph) -> String {
    let width = graph.keys().map(String::len).max().unwrap_or_default();
    let line = |(name, used): (&String, &BTreeSet<String>)| {
        let used: Vec<&str> = used.iter().map(String::as_str).collect();
        format!("{name:width$}  {}", used.join(" ")).trim_end().to_owned() + "\n"
    };
    graph.iter().map(line).collect()
}

fn graph_fault(document: &str, graph: &Graph) -> Option<String> {
    let expected = table(graph);
    let found = document
        .split(GRAPH)
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    (found != Some(&expected))
        .then(|| format!("{ARCHITECTURE}: the block after {GRAPH:?} should be\n{expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_nobody_uses_are_found() {
        let one =
            "pub fn used() {}\npub(crate) const fn lone() {}\n    pub const ALONE: u8 = 1;\npub struct Used;"
                .into();
        let two = "use one::{Used, used};".into();
        assert_eq!(
            unused(&[("one.rs".into(), one), ("two.rs".into(), two)]),
            ["one.rs: nothing uses `lone`", "one.rs: nothing uses `ALONE`"]
        );
    }

    #[test]
    fn a_library_that_prints_is_a_fault() {
        let text = "// println!()\nfn f() {\n    eprintln!();\n}\n";
        assert!(
            speaks("userspace/models/src/a.rs".as_ref(), text).is_some_and(|fault| fault.contains("a.rs:3"))
        );
        assert_eq!(speaks("userspace/perturb/src/a.rs".as_ref(), text), None);
        assert_eq!(speaks("userspace/models/src/tests.rs".as_ref(), text), None);
    }

    #[test]
    fn a_table_that_is_not_that_of_the_manifests_is_a_fault() {
        let graph = Graph::from([
            ("a".into(), BTreeSet::from(["b".into(), "c".into()])),
            ("b".into(), BTreeSet::new()),
        ]);
        let document = |table: &str| format!("text\n{GRAPH}{table}```\nmore");
        assert_eq!(graph_fault(&document("a  b c\nb\n"), &graph), None);
        assert!(graph_fault(&document("a  b\nb\n"), &graph).is_some());
        assert!(graph_fault("none", &graph).is_some());
    }

    #[test]
    fn lengths_and_names() {
        assert!(too_long(Path::new("a.rs"), &"\n".repeat(LONGEST + 1)).is_some());
        assert!(too_long(Path::new("a.rs"), &"\n".repeat(LONGEST)).is_none());
        assert!(nameless(Path::new("a/mod.rs")).is_some());
        assert!(nameless(Path::new("a/model.rs")).is_none());
        assert!(nameless(Path::new("a/tests/support/mod.rs")).is_none());
    }
}
