//! A Rust compiler that can compile for the `bpfel-unknown-none` target.
//!
//! The target comes without a compiled `core`, so cargo has to build it (`-Z build-std`) from the component
//! `rust-src`, which only nightly allows, or any toolchain that is told it may (`RUSTC_BOOTSTRAP`). Debian has a
//! compiler with a compiled `core` for the target.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{Mode, packages};
use crate::command::{find, output, run_over_network, say};

const DEBIAN_PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// Where a compiler may come from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// Rustup's nightly toolchain.
    Nightly,
    /// The toolchain that compiles the rest of the workspace, its unstable options unlocked.
    Active,
    /// Debian's own compiler for web browsers, which are picky about versions.
    Debian,
}

/// A compiler that was found, and what it needs to be told.
#[derive(Debug)]
pub(crate) struct Compiler {
    candidate: Candidate,
    version: String,
    /// The major version of its LLVM.
    pub(crate) llvm: u32,
}

pub(crate) fn candidates() -> [Candidate; 3] {
    [Candidate::Nightly, Candidate::Active, Candidate::Debian]
}

pub(crate) fn ensure(candidate: Candidate, mode: Mode) -> Result<Compiler> {
    match candidate {
        Candidate::Nightly | Candidate::Active => ensure_rustup(candidate, mode)?,
        Candidate::Debian => ensure_debian(mode)?,
    }
    let version = output(candidate.rustc().arg("-vV")).context("its rustc does not run")?;
    let llvm = llvm_major(&version).context("its rustc does not say which LLVM it uses")?;
    let version = version.lines().next().unwrap_or_default().to_owned();
    Ok(Compiler {
        candidate,
        version,
        llvm,
    })
}

fn ensure_rustup(candidate: Candidate, mode: Mode) -> Result<()> {
    // A nightly that is missing is not installed: today's mostly uses a newer LLVM than any distribution has.
    let sysroot = output(candidate.rustc().args(["--print", "sysroot"])).context("not installed")?;
    let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if core.is_file() {
        return Ok(());
    }
    let toolchain = match candidate {
        Candidate::Nightly => " --toolchain nightly",
        Candidate::Active | Candidate::Debian => "",
    };
    if mode == Mode::Check || find("rustup").is_none() {
        bail!("the sources of `core` are missing: rustup component add rust-src{toolchain}");
    }
    say(&format!("{candidate}: the sources of `core` are missing"));
    run_over_network(&mut candidate.add_component("rust-src"))?;
    if !core.is_file() {
        bail!(
            "rustup takes rust-src for installed, but {} is missing: remove and add the component",
            core.display()
        );
    }
    Ok(())
}

fn ensure_debian(mode: Mode) -> Result<()> {
    let has_core = || {
        let mut rustc = Candidate::Debian.rustc();
        let libraries = output(rustc.args(["--print", "target-libdir", "--target", target()]));
        let files = libraries.and_then(|directory| fs::read_dir(directory.trim()).ok());
        let mut names = files.into_iter().flatten().flatten().map(|file| file.file_name());
        names.any(|name| name.to_string_lossy().starts_with("libcore-"))
    };
    if !has_core() {
        packages::ensure_packages(&DEBIAN_PACKAGES, mode)?;
        if !has_core() {
            bail!("{DEBIAN_RUSTC} has no `core` for {}", target());
        }
    }
    Ok(())
}

/// The target, in this machine's byte order.
pub(crate) fn target() -> &'static str {
    if cfg!(target_endian = "big") {
        "bpfeb-unknown-none"
    } else {
        "bpfel-unknown-none"
    }
}

impl Candidate {
    /// A program of the toolchain.
    fn program(self, name: &str) -> Command {
        match self {
            Self::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", name]);
                command
            }
            Self::Active | Self::Debian => Command::new(name),
        }
    }

    /// Rustup's command that adds a component to the toolchain.
    fn add_component(self, component: &str) -> Command {
        let mut command = Command::new("rustup");
        command.args(["component", "add", component]);
        if self == Self::Nightly {
            command.args(["--toolchain", "nightly"]);
        }
        command
    }

    fn rustc(self) -> Command {
        match self {
            Self::Nightly | Self::Active => self.program("rustc"),
            Self::Debian => Command::new(DEBIAN_RUSTC),
        }
    }
}

impl Compiler {
    /// `cargo SUBCOMMAND` for the eBPF target, without the flags.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        let mut command = self.cargo_for(subcommand, target());
        match self.candidate {
            Candidate::Nightly | Candidate::Active => {
                command.args(["-Z", "build-std=core"]);
            }
            Candidate::Debian => {}
        }
        command
    }

    /// Where its libraries are.
    pub(crate) fn sysroot(&self) -> Option<PathBuf> {
        let printed = output(self.candidate.rustc().args(["--print", "sysroot"]))?;
        Some(PathBuf::from(printed.trim()))
    }

    /// Its cargo, without anything.
    pub(crate) fn plain_cargo(&self) -> Command {
        self.candidate.program("cargo")
    }

    /// `cargo SUBCOMMAND` for a target, its unstable options unlocked.
    pub(crate) fn cargo_for(&self, subcommand: &str, target: &str) -> Command {
        let mut command = self.candidate.program("cargo");
        // What the rest of the workspace is compiled with does not apply.
        for name in [
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "CARGO_BUILD_TARGET",
        ] {
            command.env_remove(name);
        }
        command.args([subcommand, "--target", target]);
        match self.candidate {
            Candidate::Nightly => {}
            Candidate::Active => {
                command.env("RUSTC_BOOTSTRAP", "1");
            }
            Candidate::Debian => {
                command.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
            }
        }
        command
    }

    /// A component that only checks the code, such as clippy, by the name of its cargo subcommand.
    pub(crate) fn ensure_component(&self, component: &str) -> Result<()> {
        if output(
            self.candidate
                .program(&format!("cargo-{component}"))
                .arg("--version"),
        )
        .is_some()
        {
            return Ok(());
        }
        match self.candidate {
            Candidate::Nightly | Candidate::Active => {
                run_over_network(&mut self.candidate.add_component(component))
            }
            Candidate::Debian => bail!("{DEBIAN_RUSTC} comes without {component}"),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nightly => "rustup's nightly",
            Self::Active => "the active toolchain with RUSTC_BOOTSTRAP=1",
            Self::Debian => "Debian's rustc-web",
        })
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, LLVM {}", self.candidate, self.version, self.llvm)
    }
}

fn llvm_major(version: &str) -> Option<u32> {
    let llvm = version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    llvm.split('.').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvm_s_major_version_is_read() {
        assert_eq!(
            llvm_major("rustc 1.97.0-nightly\nrelease: 1.97.0-nightly\nLLVM version: 22.1.4\n"),
            Some(22)
        );
        assert_eq!(llvm_major("rustc 1.97.0-nightly\n"), None);
    }
}
