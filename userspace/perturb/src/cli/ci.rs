//! What was judged, as build servers read it: JUnit's XML, and GitHub's summary and annotations.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use perturb_experiments::Judged;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::exit::{DONE, FAILED};

/// Where GitHub's runners take Markdown.
const SUMMARY: &str = "GITHUB_STEP_SUMMARY";

/// For whom it is told.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Build servers")]
pub(crate) struct CiArgs {
    /// Write what was judged as JUnit XML.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// On GitHub's runners: failures as annotations, and a table in the step's summary.
    #[arg(long)]
    pub(crate) ci: bool,
}

impl CiArgs {
    /// Tells it; the exit code.
    pub(crate) fn tell(&self, suite: &str, cases: &[Judged]) -> anyhow::Result<u8> {
        if let Some(path) = &self.junit {
            let text = junit(suite, cases)?;
            fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        if self.ci {
            for case in cases.iter().filter(|case| !case.passes) {
                eprintln!("::error title={}::{}", escaped(suite), escaped(&said(case)));
            }
            match env::var_os(SUMMARY) {
                Some(path) => append(Path::new(&path), &summary(suite, cases))?,
                None => {
                    log::warn!("{SUMMARY} is not set: this is no runner of GitHub, so there is no summary");
                }
            }
        }
        Ok(if cases.iter().all(|case| case.passes) {
            DONE
        } else {
            FAILED
        })
    }
}

/// A case in a line.
pub(crate) fn said(case: &Judged) -> String {
    format!("{}: {}", case.name, case.said)
}

fn junit(suite: &str, cases: &[Judged]) -> anyhow::Result<String> {
    let mut tests = TestSuite::new(suite);
    for case in cases {
        let mut status = TestCaseStatus::success();
        if !case.passes {
            status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(case.said.as_str());
        }
        let mut test = TestCase::new(case.name.as_str(), status);
        test.set_classname(suite).set_system_out(case.said.as_str());
        tests.add_test_case(test);
    }
    let mut report = Report::new("perturb");
    report.add_test_suite(tests);
    Ok(report.to_string()?)
}

/// A table in Markdown.
fn summary(suite: &str, cases: &[Judged]) -> String {
    let failed = cases.iter().filter(|case| !case.passes).count();
    let mut text = format!(
        "### {suite}: {failed} of {} failed\n\n| | what | found |\n|---|---|---|\n",
        cases.len()
    );
    for Judged { name, said, passes } in cases {
        let mark = if *passes { "ok" } else { "**failed**" };
        text += &format!(
            "| {mark} | {} | {} |\n",
            name.replace('|', "\\|"),
            said.replace('|', "\\|")
        );
    }
    text + "\n"
}

fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("writing {}", path.display()))
}

/// As GitHub's commands want data.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> [Judged; 2] {
        [("a < b", true), ("c | d", false)].map(|(name, passes)| Judged {
            name: name.into(),
            said: "1.2x & more".into(),
            passes,
        })
    }

    #[test]
    fn failures_are_told_in_each_form() {
        let xml = junit("sweep", &cases()).unwrap();
        assert!(
            xml.contains("tests=\"2\"") && xml.contains("failures=\"1\""),
            "{xml}"
        );
        assert!(
            xml.contains("a &lt; b") && xml.contains("message=\"1.2x &amp; more\""),
            "{xml}"
        );
        let table = summary("sweep", &cases());
        assert!(
            table.contains("1 of 2 failed") && table.contains("| **failed** | c \\| d |"),
            "{table}"
        );
        let none = CiArgs::default();
        assert_eq!(none.tell("sweep", &cases()).unwrap(), FAILED);
        assert_eq!(none.tell("sweep", &cases()[..1]).unwrap(), DONE);
        assert_eq!(escaped("5 %\n"), "5 %25%0A");
    }
}
