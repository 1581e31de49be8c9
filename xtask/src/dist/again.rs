//! Are two builds of a commit equal?

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::{clear, git};
use crate::{
    arch::Arch,
    command::{output, run, say},
    workspace,
};

/// The last commit. Another clone would not have what is not committed.
pub(super) fn committed() -> Result<String> {
    let changes = output(git().args(["status", "--porcelain", "--untracked-files=no"]));
    let changes = changes.context("git tells no changes")?;
    ensure!(
        changes.is_empty(),
        "only what is committed can be built twice; changed:\n{changes}"
    );
    let commit = output(git().args(["rev-parse", "HEAD"])).context("git names no commit")?;
    Ok(commit.trim().to_owned())
}

/// Builds everything in a clone with a target directory of its own, and compares the checksums.
pub(super) fn compare(dist: &Path, commit: &str, arches: &[Arch]) -> Result<()> {
    let own = workspace::own()?;
    let clone = own.join("again/a-clone-elsewhere");
    clear(&clone)?;
    run(Command::new("git")
        .args(["clone", "--quiet", "--shared"])
        .arg(workspace::root())
        .arg(&clone))?;
    run(Command::new("git")
        .args(["checkout", "--quiet", "--detach", commit])
        .current_dir(&clone))?;
    // The same linkers, which take long to compile.
    let target = clone.join("target");
    fs::create_dir_all(target.join("xtask"))?;
    std::os::unix::fs::symlink(own.join("tools"), target.join("xtask/tools"))
        .context("cannot link the tools")?;
    let arches: Vec<_> = arches.iter().map(|arch| arch.name()).collect();
    run(Command::new("cargo")
        .args(["xtask", "dist", "--arch", &arches.join(",")])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(&clone)
        .stdout(Stdio::null()))?;
    let sums = |dist: &Path| -> Result<BTreeSet<String>> {
        let text = fs::read_to_string(dist.join("SHA256SUMS"));
        let text = text.with_context(|| format!("no SHA256SUMS in {}", dist.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let (first, second) = (sums(dist)?, sums(&target.join("dist"))?);
    let differing: Vec<_> = first.symmetric_difference(&second).cloned().collect();
    ensure!(
        differing.is_empty(),
        "two builds differ; the other is in {}:\n{}",
        target.join("dist").display(),
        differing.join("\n")
    );
    say(&format!("two builds are equal: {} files", first.len()));
    clear(&clone)
}
