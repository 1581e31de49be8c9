//! Documents: links lead somewhere, paths in code spans are there, the book has all its pages and pictures, and it is short.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

/// Where the book is, and its table of contents.
const BOOK: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";
/// Words of the book, without generated pages. A word has a letter or a digit: the strokes of a table are none.
const MOST_WORDS: usize = 22_000;
/// What was, and is not any more.
const HISTORY: &str = "CHANGELOG.md";
/// Beginnings of paths in this repository.
const PARTS: [&str; 8] = [
    "bindings/",
    "configs/",
    "docs/",
    "ebpf-prog/",
    "examples/",
    "tests/",
    "userspace/",
    "xtask/",
];
/// The beginning of a page that a command writes.
const GENERATED: &str = "<!-- generated";

/// What is wrong with the documents. `files` are those of the repository.
pub(super) fn faults(documents: &BTreeMap<PathBuf, String>, files: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in documents {
        found.extend(dead_links(path, text, documents, files));
        found.extend(missing_paths(path, text, files));
    }
    found.extend(outside(documents));
    found.extend(unused_figures(documents, files));
    let words = pages(documents)
        .filter(|(_, text)| !text.starts_with(GENERATED))
        .flat_map(|(_, text)| text.split_whitespace())
        .filter(|word| word.contains(char::is_alphanumeric))
        .count();
    if words > MOST_WORDS {
        found.push(format!(
            "{BOOK}: the book has {words} words, more than {MOST_WORDS}"
        ));
    }
    found
}

/// The pages of the book.
fn pages(documents: &BTreeMap<PathBuf, String>) -> impl Iterator<Item = (&PathBuf, &String)> {
    let book = documents.iter().filter(|(path, _)| path.starts_with(BOOK));
    book.filter(|(path, _)| *path != Path::new(SUMMARY))
}

/// The text without what is literal: fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Where the links of a text lead: a file, and a heading in it.
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split(')').next());
    let own = targets.filter(|target| !target.contains("://"));
    own.map(|target| target.split_once('#').unwrap_or((target, "")))
}

/// A path relative to the repository, without `..`.
fn from(directory: &Path, target: &str) -> PathBuf {
    let mut path = directory.to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// The file that a link of a document means.
fn meant(document: &Path, target: &str) -> PathBuf {
    if target.is_empty() {
        return document.to_owned();
    }
    from(document.parent().unwrap_or(Path::new("")), target)
}

/// Links of a document to files or headings that are not there.
fn dead_links(
    document: &Path,
    text: &str,
    documents: &BTreeMap<PathBuf, String>,
    files: &[&str],
) -> Vec<String> {
    let mut dead = Vec::new();
    for (target, heading) in links(text) {
        let path = meant(document, target);
        if document.starts_with(BOOK) && !path.starts_with(BOOK) {
            dead.push(format!(
                "{}: the link to {target} leaves the book; name the file in a code span",
                document.display()
            ));
            continue;
        }
        let is_there = files.iter().any(|file| Path::new(file).starts_with(&path));
        let has_heading = heading.is_empty()
            || documents
                .get(&path)
                .is_none_or(|text| anchors(text).any(|anchor| anchor == heading));
        if !(is_there && has_heading) {
            let heading = if heading.is_empty() {
                String::new()
            } else {
                format!("#{heading}")
            };
            dead.push(format!(
                "{}: the link to {target}{heading} leads nowhere",
                document.display()
            ));
        }
    }
    dead
}

/// Files and directories in code spans, like `xtask/src/main.rs`, that are not there. `NAME` in one stands for any name.
fn missing_paths(document: &Path, text: &str, files: &[&str]) -> Vec<String> {
    if document == Path::new(HISTORY) {
        return Vec::new();
    }
    let spans = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_literal = |span: &&str| !span.contains([' ', '*', '{', '…']) && !span.contains("NAME");
    let is_path = |span: &&str| PARTS.iter().any(|part| span.starts_with(part));
    let paths = spans.filter(is_literal).filter(is_path);
    let missing = paths.filter(|span| !files.iter().any(|file| Path::new(file).starts_with(span)));
    missing
        .map(|span| format!("{}: there is no {span}", document.display()))
        .collect()
}

/// The headings of a text as links name them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|line| {
        let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
        let kept = heading.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
    })
}

/// Pages that the table of contents lacks.
fn outside(documents: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let summary = documents.get(Path::new(SUMMARY)).map_or("", String::as_str);
    let listed: Vec<PathBuf> = links(summary)
        .map(|(target, _)| meant(Path::new(SUMMARY), target))
        .collect();
    let pages = pages(documents).map(|(path, _)| path);
    let missing = pages.filter(|path| listed.iter().filter(|listed| listed == path).count() != 1);
    missing
        .map(|path| format!("{SUMMARY}: {} should stand there once", path.display()))
        .collect()
}

/// Files beside the figures that no page names.
fn unused_figures(documents: &BTreeMap<PathBuf, String>, files: &[&str]) -> Vec<String> {
    let figures = files.iter().filter(|file| file.starts_with("docs/figures/"));
    let unused = figures.filter(|file| {
        let name = file.trim_start_matches("docs/");
        !documents.values().any(|text| text.contains(name))
    });
    unused.map(|file| format!("{file}: no page shows it")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(all: &[(&str, &str)]) -> BTreeMap<PathBuf, String> {
        let all = all
            .iter()
            .map(|(path, text)| ((*path).into(), (*text).to_owned()));
        all.collect()
    }

    #[test]
    fn links_are_followed_from_their_document_to_a_heading() {
        let documents = documents(&[
            (
                "docs/a.md",
                "# A `b`, c\n[a](b.md#part-1) [b](https://x.org) [c](../e.md) [d](#a-b-c) [e](#no) [f](b.md#no) [g](d)\n\
                 ```\n[h](no)\n```",
            ),
            ("docs/b.md", "## Part 1"),
        ]);
        let files = ["docs/a.md", "docs/b.md", "docs/d/e.yaml"];
        assert_eq!(
            dead_links(
                Path::new("docs/a.md"),
                &documents[Path::new("docs/a.md")],
                &documents,
                &files
            ),
            [
                "docs/a.md: the link to ../e.md leaves the book; name the file in a code span",
                "docs/a.md: the link to #no leads nowhere",
                "docs/a.md: the link to b.md#no leads nowhere"
            ]
        );
    }

    #[test]
    fn paths_in_code_spans_are_looked_for() {
        let text = "`tests/a.rs` `tests/b.rs` `tests/` `userspace/NAME.rs` `tests/{a,b}` `run tests/c`";
        assert_eq!(
            missing_paths(Path::new("README.md"), text, &["tests/a.rs"]),
            ["README.md: there is no tests/b.rs"]
        );
        assert!(missing_paths(Path::new(HISTORY), text, &[]).is_empty());
    }

    #[test]
    fn the_book_has_each_page_once_and_no_figure_in_vain() {
        let documents = documents(&[
            ("docs/SUMMARY.md", "- [a](a.md)\n- [c](b/c.md)\n- [c](b/c.md)"),
            ("docs/a.md", "![](figures/a.svg)"),
            ("docs/b/c.md", ""),
            ("docs/d.md", ""),
            ("README.md", ""),
        ]);
        assert_eq!(
            outside(&documents),
            [
                "docs/SUMMARY.md: docs/b/c.md should stand there once",
                "docs/SUMMARY.md: docs/d.md should stand there once"
            ]
        );
        assert_eq!(
            unused_figures(&documents, &["docs/figures/a.svg", "docs/figures/b.svg"]),
            ["docs/figures/b.svg: no page shows it"]
        );
    }

    #[test]
    fn only_the_words_that_somebody_wrote_count() {
        let long = "word ".repeat(MOST_WORDS);
        let generated = format!("{GENERATED}: by a test -->\n{long}");
        let with = |more: &str| {
            let text = format!("{long}| --- | {more}");
            documents(&[
                ("docs/SUMMARY.md", "[](a.md)[](b.md)"),
                ("docs/a.md", &text),
                ("docs/b.md", &generated),
            ])
        };
        let files = ["docs/a.md", "docs/b.md"];
        assert!(faults(&with(""), &files).is_empty());
        let fault = format!(
            "docs: the book has {} words, more than {MOST_WORDS}",
            MOST_WORDS + 1
        );
        assert_eq!(faults(&with("one"), &files), [fault]);
    }
}
