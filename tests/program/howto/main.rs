//! The commands of the book's how-tos, page by page, as a reader would type them, on a machine made for that page.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod pages;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use perturb_tests::product::{self, executable};

use self::pages::{How, PAGES, Page};

const BED: &str = include_str!("bed.sh");
/// What readers write into files.
const FILES: [&str; 3] = ["yaml", "csv", "python"];
/// What readers type.
const COMMANDS: &str = "sh";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_page_is_there() {
    let folder = repository().join("docs/howto");
    let names = fs::read_dir(folder).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.trim_end_matches(".md").to_owned()
    });
    let known = PAGES.iter().map(|page| page.name.to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), known.collect());
}

/// The blocks of a page: their language, and what stands in them.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.split_once('\n'))
}

/// The commands of a block: a line each, unless a backslash or an open quote goes on in the next one.
fn commands(block: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut command = String::new();
    for line in block.lines() {
        let line = line.split(" # ").next().unwrap_or_default().trim();
        command += line.trim_end_matches('\\');
        if !line.ends_with('\\') && command.matches('\'').count().is_multiple_of(2) && !command.is_empty() {
            found.push(std::mem::take(&mut command));
        }
    }
    found
}

/// Runs a page; what it has said.
fn run(page: &Page) -> String {
    let text = fs::read_to_string(repository().join(format!("docs/howto/{}.md", page.name))).unwrap();
    let out = tempfile::tempdir().unwrap();
    let files: Vec<&str> = blocks(&text)
        .filter(|(language, _)| FILES.contains(language))
        .map(|(_, file)| file)
        .collect();
    assert_eq!(
        files.len(),
        page.files.len(),
        "{}: a name for each file",
        page.name
    );
    for (name, file) in page.files.iter().zip(files) {
        fs::write(out.path().join(name), file).unwrap();
    }

    let typed: Vec<String> = blocks(&text)
        .filter(|(language, _)| *language == COMMANDS)
        .flat_map(|(_, block)| commands(block))
        .collect();
    let in_blocks = page.steps.iter().filter(|step| !step.in_prose);
    let known: Vec<&str> = in_blocks.map(|step| step.typed).collect();
    assert_eq!(
        typed, known,
        "docs/howto/{}.md and `tests/program/howto/pages.rs`",
        page.name
    );

    let mut script = format!("{BED}\n{}\n", page.before);
    for (number, step) in page.steps.iter().enumerate() {
        assert!(text.contains(step.typed), "{}: {}", page.name, step.typed);
        let command = step.instead.unwrap_or(step.typed);
        match step.how {
            How::Runs => write!(script, "runs {number} <<'PAGE'\n{command}\nPAGE\n"),
            How::Until(begun, then) => {
                let command = command.trim_start_matches("sudo ");
                write!(
                    script,
                    "begins {number} '{begun}' <<'PAGE'\n{command}\nPAGE\n{{ {then}; }} >>{number}.out 2>&1\nends {number}\n"
                )
            }
            How::Elsewhere(place) => {
                assert!(repository().join(place).exists(), "{}: no {place}", page.name);
                Ok(())
            }
        }
        .unwrap();
    }
    script += "echo end\n";
    let output = product::script_apart(&script)
        .env("OUT", out.path())
        .env("REPOSITORY", repository())
        .env("PERTURB", executable())
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().any(|line| line == "end"), "{}: {said}", page.name);
    let wrong = |line: &&str| line.starts_with("code ") || line.starts_with("late ");
    let wrong: Vec<&str> = said.lines().filter(wrong).collect();
    assert!(wrong.is_empty(), "{}: {wrong:?}: {said}", page.name);
    for (number, step) in page.steps.iter().enumerate() {
        let begin = format!("{number}: ");
        let mut lines = said.lines().filter_map(|line| line.strip_prefix(&begin));
        assert!(
            step.shows.is_empty() || lines.any(|line| line.contains(step.shows)),
            "{}: `{}` does not show `{}`: {said}",
            page.name,
            step.typed,
            step.shows
        );
    }
    said
}

macro_rules! pages {
    ($($name:ident: $($program:literal)*,)*) => {$(
        #[test]
        fn $name() {
            perturb_verdict::or_end!(perturb_verdict::root());
            perturb_verdict::or_end!(perturb_verdict::installed(&["ip", "unshare", "ping" $(, $program)*]));
            run(PAGES.iter().find(|page| page.name == stringify!($name)).unwrap());
        }
    )*};
}

pages! {
    changes: ,
    containers: "podman" "crun" "busybox",
    figure: ,
    machines: ,
    measure: ,
    mobile: ,
    netem: ,
    tests: "pytest-3",
    wan: "iperf3" "mpirun",
    watch: "tshark" "curl",
    whatif: "mpicc" "mpirun",
}
