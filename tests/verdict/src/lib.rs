//! How a test ends that neither passes nor fails at once.
//!
//! Model: a test is *skipped* where this machine cannot do what it tests. It says why ([`skip`]), and `cargo xtask test` counts
//! it, and fails if the reason is not one that it expects here (xtask's `test/skips.rs`). A *figure* that other programs can
//! make wrong is measured again ([`thrice`]). Whatever else goes wrong fails at once, on any machine.
//!
//! A test that Rust's harness runs cannot tell it that it was skipped. It counts as passed there, and its line in the file
//! that PERTURB_SKIPS names, `program::test: reason`, counts it as skipped.

mod figure;

use std::{
    env, fmt,
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
    thread,
};

use anyhow::Result;

pub use figure::{fit, not_busy, quiet, slow, thrice};

/// Names the file where skipped tests leave their reasons.
const SKIPS: &str = "PERTURB_SKIPS";

/// Why a test cannot run here, as an error.
#[derive(Debug)]
pub struct Skip(String);

impl Skip {
    /// The reason in an error, if it is one.
    #[must_use]
    pub fn reason(error: &anyhow::Error) -> Option<&str> {
        error.downcast_ref().map(|Self(reason)| reason.as_str())
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Ends a test that cannot run here: `return Err(skip("this kernel has no sch_fq"))`.
pub fn skip(reason: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Skip(reason.into()))
}

/// Skips unless root runs the test.
pub fn root() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        Ok(())
    } else {
        Err(skip("only root may make namespaces and attach programs"))
    }
}

/// Skips unless these programs are installed.
pub fn installed(programs: &[&str]) -> Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = |program: &&&str| directories.iter().any(|place| place.join(program).is_file());
    match programs.iter().find(|program| !found(program)) {
        None => Ok(()),
        Some(program) => Err(skip(format!("{program} is not installed"))),
    }
}

/// Skips if a perturb that was built without its eBPF programs says so.
pub fn complete(said: &str) -> Result<()> {
    if said.contains("without its eBPF programs") {
        return Err(skip("perturb was built without its eBPF programs"));
    }
    Ok(())
}

/// The end of a test that Rust's harness runs on this thread: it passes, counts as skipped, or panics with the error.
///
/// # Panics
/// If the test failed, or the file of reasons cannot be written.
pub fn conclude(result: Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) => match Skip::reason(&error) {
            Some(reason) => skipped(reason),
            None => panic!("{error:#}"),
        },
    }
}

/// In a test that Rust's harness runs: the value of a result, or the end of the test by [`conclude`].
#[macro_export]
macro_rules! or_end {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $crate::conclude(Err(error)),
        }
    };
}

/// Counts the test of this thread as skipped, which returns then.
///
/// # Panics
/// If the file of reasons cannot be written.
pub fn skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    if let Err(error) = record(&this_test(), reason) {
        panic!("{SKIPS}: {error}");
    }
}

/// Leaves a reason for whoever counts; whether somebody does.
///
/// # Errors
/// If the file cannot be written.
pub fn record(test: &str, reason: &str) -> io::Result<bool> {
    let Some(path) = env::var_os(SKIPS) else {
        return Ok(false);
    };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    // One line, in one write: tests run side by side.
    let line = format!("{test}: {}\n", reason.replace('\n', " "));
    file.write_all(line.as_bytes())?;
    Ok(true)
}

/// `program::test`, by the names of this executable, which cargo ends with a hash, and of this thread, which is its test's.
fn this_test() -> String {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let current = thread::current();
    format!(
        "{program}::{}",
        current.name().unwrap_or("a thread without a name")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_its_programs_name() {
        assert_eq!(
            this_test(),
            "perturb_verdict::tests::a_test_has_its_programs_name"
        );
    }

    #[test]
    fn a_skip_is_an_error_with_a_reason() {
        let error = skip("no").context("while testing");
        assert_eq!(Skip::reason(&error), Some("no"));
        assert_eq!(Skip::reason(&anyhow::anyhow!("no")), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = installed(&["sh", "perturb-nosuch"]).unwrap_err();
        assert_eq!(Skip::reason(&missing), Some("perturb-nosuch is not installed"));
        assert!(installed(&["sh"]).is_ok());
    }

    #[test]
    #[should_panic(expected = "broken: cause")]
    fn an_error_fails() {
        conclude(Err(anyhow::anyhow!("cause").context("broken")));
    }
}
