//! What `cargo xtask dist` makes, used as users do: installed on fresh systems, run, and compared.
//!
//! Model: PERTURB_PACKAGES names the directory. In `cargo xtask test` it has packages around the program that the tests use
//! anyway, which needs this system's C library; with `--only dist`, static programs for all processors.

mod action;
mod bill;
mod debian;
mod image;
mod programs;
mod rpm;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use perturb_verdict::{conclude, skip};

const THIS: &str = env::consts::ARCH;

/// The directory of the packages.
fn packages() -> Result<PathBuf> {
    let named = env::var_os("PERTURB_PACKAGES");
    named.map(PathBuf::from).ok_or_else(|| {
        skip("PERTURB_PACKAGES names no packages: `cargo xtask test --only unit packages` makes them")
    })
}

/// The package whose name ends so.
fn package(end: &str) -> Result<PathBuf> {
    let directory = packages()?;
    let listed = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let mut paths = listed.flatten().map(|entry| entry.path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(end));
    found.with_context(|| format!("no *{end} in {}", directory.display()))
}

/// Skips where the packages are those around one program.
fn whole() -> Result<()> {
    match package("-source.tar.gz") {
        Ok(_) => Ok(()),
        Err(_) => Err(skip("only `cargo xtask dist` makes static programs and sources")),
    }
}

/// What a command prints; fails, with all it said, unless it succeeds.
fn said(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{text}{errors}",
        output.status
    );
    Ok(text)
}

/// Unpacks an archive.
fn unpack(archive: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    said(Command::new("tar").arg("-C").arg(to).arg("-xf").arg(archive))?;
    Ok(())
}

/// What lies below a directory: paths and checksums, sorted.
fn contents(directory: &Path) -> Result<Vec<String>> {
    let mut sums = Command::new("sh");
    sums.args(["-c", "find . -type f -exec sha256sum {} + | sort"])
        .current_dir(directory);
    Ok(said(&mut sums)?.lines().map(str::to_owned).collect())
}

#[test]
fn checksums_are_those_of_the_files() {
    let compared = || {
        let directory = packages()?;
        said(
            Command::new("sha256sum")
                .args(["--check", "--strict", "SHA256SUMS"])
                .current_dir(&directory),
        )?;
        let listed = fs::read_to_string(directory.join("SHA256SUMS"))?.lines().count();
        ensure!(
            fs::read_dir(&directory)?.count() == listed + 1,
            "SHA256SUMS misses a file"
        );
        Ok(())
    };
    conclude(compared());
}

#[test]
fn the_archive_has_what_a_user_needs() {
    let looked_at = || {
        let directory = tempfile::tempdir()?;
        unpack(&package(&format!("{THIS}.tar.gz"))?, directory.path())?;
        let usr = directory.path().join("usr");
        let version = said(Command::new(usr.join("bin/perturb")).arg("--version"))?;
        ensure!(version.starts_with("perturb "), "{version}");
        for file in [
            "share/man/man1/perturb.1",
            "share/man/man1/perturb-run.1",
            "share/bash-completion/completions/perturb",
            "share/zsh/vendor-completions/_perturb",
            "share/fish/vendor_completions.d/perturb.fish",
            "lib/systemd/system/perturb@.service",
            "share/perturb/configs/simple.yaml",
            "share/doc/perturb/book/SUMMARY.md",
            "share/doc/perturb/copyright",
        ] {
            ensure!(usr.join(file).is_file(), "no {file}");
        }
        Ok(())
    };
    conclude(looked_at());
}
