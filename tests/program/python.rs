//! `bindings/python`: its types, and its own tests once it is installed as users install it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::product::executable;
use perturb_verdict::{complete, conclude, installed, root};

/// Debian's, for which the packages of set-up are.
const PYTHON: &str = "/usr/bin/python3";
/// What a package is made of.
const PARTS: [&str; 3] = ["pyproject.toml", "README.md", "src"];

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/python")
}

/// A module of Python's in the package's directory, which leaves no files there; fails if it does.
fn module(words: &[&str], adjust: impl FnOnce(&mut Command)) -> Result<()> {
    let mut call = Command::new(PYTHON);
    call.arg("-m").args(words).current_dir(package());
    call.env("PYTHONDONTWRITEBYTECODE", "1");
    adjust(&mut call);
    let Output {
        status,
        stdout,
        stderr,
    } = call.output().with_context(|| format!("starting {PYTHON}"))?;
    let said = [stdout, stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    let said = said.join("\n");
    complete(&said)?;
    ensure!(status.success(), "{}: {status}\n{said}", words.join(" "));
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else {
        fs::copy(from, to)?;
    }
    Ok(())
}

#[test]
fn its_types_hold() {
    let typed = || {
        installed(&["mypy"])?;
        module(&["mypy", "--cache-dir=/dev/null"], |_| {})
    };
    conclude(typed());
}

#[test]
fn installed_it_passes_its_tests() {
    let tested = || {
        root()?;
        installed(&["pytest-3", "pip3", "curl"])?;
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        // An installation writes beside its sources.
        fs::create_dir(path("package"))?;
        for part in PARTS {
            copy(&package().join(part), &path("package").join(part))
                .with_context(|| format!("copying {part}"))?;
        }
        let offline = [
            "pip",
            "install",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--no-cache-dir",
        ];
        module(&offline, |pip| {
            pip.args(["--quiet", "--root-user-action=ignore", "--target"]);
            pip.args([path("site"), path("package")]);
        })?;
        // Nothing names the plugin: its entry point does.
        module(&["pytest", "-q", "-p", "no:cacheprovider"], |pytest| {
            pytest.arg("--basetemp").arg(path("temporary"));
            pytest
                .env("PYTHONPATH", path("site"))
                .env("PERTURB_BIN", executable());
        })
    };
    conclude(tested());
}
