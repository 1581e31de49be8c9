//! A Rust compiler that can compile for the `bpfel-unknown-none` target.
//!
//! The target comes without a compiled `core`, so cargo has to build it (`-Z build-std`) from the component
//! `rust-src`, which only nightly allows, or any toolchain that is told it may (`RUSTC_BOOTSTRAP`). Debian has a
//! compiler with a compiled `core` for the target.

use std::{
    fmt,
    path::Path,
    process::{Command, Stdio},
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
    if find("rustup").is_none() {
        bail!("rustup is not in PATH (https://rustup.rs)");
    }
    if output(candidate.rustc().arg("-V")).is_none() {
        let install = [
            "toolchain",
            "install",
            "nightly",
            "--profile",
            "minimal",
            "--component",
            "rust-src",
        ];
        if mode == Mode::Check || candidate == Candidate::Active {
            bail!("the toolchain is not installed: rustup {}", install.join(" "));
        }
        run_over_network(rustup().args(install))?;
    }
    let sysroot =
        output(candidate.rustc().args(["--print", "sysroot"])).context("its rustc has no sysroot")?;
    if !Path::new(sysroot.trim())
        .join("lib/rustlib/src/rust/library/core/src/lib.rs")
        .is_file()
    {
        let mut add = vec!["component", "add", "rust-src"];
        if candidate == Candidate::Nightly {
            add.extend(["--toolchain", "nightly"]);
        }
        if mode == Mode::Check {
            bail!("the component rust-src is missing: rustup {}", add.join(" "));
        }
        say("the sources of `core` are missing");
        run_over_network(rustup().args(add))?;
    }
    Ok(())
}

fn ensure_debian(mode: Mode) -> Result<()> {
    let has_core = || {
        let mut rustc = Candidate::Debian.rustc();
        rustc.args([
            "--crate-name",
            "probe",
            "--crate-type",
            "lib",
            "--emit",
            "metadata",
            "-o",
            "/dev/null",
            "-",
        ]);
        rustc
            .args(["--target", target()])
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        probe(&mut rustc, b"#![no_std]")
    };
    if !has_core() {
        packages::ensure_packages(&DEBIAN_PACKAGES, mode)?;
        if !has_core() {
            bail!("{DEBIAN_RUSTC} has no `core` for {}", target());
        }
    }
    Ok(())
}

/// Whether the command accepts this input.
fn probe(command: &mut Command, input: &[u8]) -> bool {
    use std::io::Write as _;
    let Ok(mut child) = command.spawn() else {
        return false;
    };
    let written = child
        .stdin
        .take()
        .is_some_and(|mut stdin| stdin.write_all(input).is_ok());
    child.wait().is_ok_and(|status| status.success()) && written
}

fn rustup() -> Command {
    let mut command = Command::new("rustup");
    // Cargo's own choice of toolchain, which would make every request one for that toolchain.
    command.env_remove("RUSTUP_TOOLCHAIN");
    command
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
                let mut command = rustup();
                command.args(["run", "nightly", name]);
                command
            }
            Self::Active | Self::Debian => Command::new(name),
        }
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
        command.args([subcommand, "--target", target()]);
        match self.candidate {
            Candidate::Nightly => {
                command.args(["-Z", "build-std=core"]);
            }
            Candidate::Active => {
                command.args(["-Z", "build-std=core"]).env("RUSTC_BOOTSTRAP", "1");
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
            Candidate::Nightly => {
                run_over_network(rustup().args(["component", "add", component, "--toolchain", "nightly"]))
            }
            Candidate::Active => run_over_network(rustup().args(["component", "add", component])),
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
