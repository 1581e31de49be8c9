//! bpf-linker: makes one object with BTF out of the bitcode that rustc writes.
//!
//! It links against an LLVM library, which must be at least as new as the compiler's. One that suits and is in
//! PATH is taken; else it is compiled against Debian's LLVM into the target directory, where it disturbs nobody.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{Mode, compiler::Compiler, packages};
use crate::{
    command::{find, output, run_over_network, say},
    workspace,
};

const VERSION: &str = "0.13.0";
/// The versions of LLVM this bpf-linker can be compiled against.
const SUPPORTED: [u32; 3] = [21, 22, 23];

pub(crate) fn ensure(compiler: &Compiler, mode: Mode) -> Result<PathBuf> {
    let tools = workspace::own()?.join("tools");
    let own = tools.join("bin/bpf-linker");
    let suits = |path: &PathBuf| llvm_of(path).is_some_and(|llvm| llvm >= compiler.llvm);
    if let Some(found) = [Some(own.clone()), find("bpf-linker")]
        .into_iter()
        .flatten()
        .find(suits)
    {
        return Ok(found);
    }
    let llvm = SUPPORTED.into_iter().filter(|llvm| *llvm >= compiler.llvm);
    let installed = llvm
        .clone()
        .find(|llvm| prefix(*llvm).join("bin/llvm-config").is_file());
    let llvm = match installed {
        Some(llvm) => llvm,
        None => {
            let available = llvm
                .clone()
                .find(|llvm| packages::is_available(&package(*llvm), mode));
            let Some(llvm) = available else {
                bail!(
                    "no LLVM {} or newer, which bpf-linker {VERSION} needs to read its bitcode (it can use {SUPPORTED:?})",
                    compiler.llvm
                );
            };
            packages::ensure_packages(&[&package(llvm)], mode)?;
            llvm
        }
    };
    if mode == Mode::Check {
        bail!("no bpf-linker that reads LLVM {}'s bitcode", compiler.llvm);
    }
    say(&format!(
        "compiling bpf-linker {VERSION} against LLVM {llvm}, half a minute on an idle machine"
    ));
    let mut install = Command::new("cargo");
    install
        .args([
            "install",
            "bpf-linker",
            "--version",
            VERSION,
            "--locked",
            "--force",
            "--no-default-features",
            // What takes its time is LLVM, which is compiled already.
            "--debug",
        ])
        .arg(format!("--features=llvm-{llvm}"))
        .arg("--root")
        .arg(&tools)
        .arg("--target-dir")
        .arg(tools.join("target"))
        .env("LLVM_PREFIX", prefix(llvm))
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    run_over_network(&mut install)?;
    // 600 MB of intermediate files that nobody needs again.
    fs::remove_dir_all(tools.join("target")).context("cannot remove bpf-linker's intermediate files")?;
    if !suits(&own) {
        bail!(
            "{} was compiled, but does not run or does not use LLVM {llvm}",
            own.display()
        );
    }
    Ok(own)
}

fn prefix(llvm: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{llvm}"))
}

fn package(llvm: u32) -> String {
    format!("llvm-{llvm}-dev")
}

/// The LLVM a bpf-linker is linked against, if it runs. Its `--version` does not tell; its list of libraries does.
fn llvm_of(linker: &Path) -> Option<u32> {
    output(Command::new(linker).arg("--version"))?;
    let bytes = fs::read(linker).ok()?;
    SUPPORTED.into_iter().find(|llvm| {
        [format!("libLLVM.so.{llvm}"), format!("libLLVM-{llvm}")]
            .iter()
            .any(|name| bytes.windows(name.len()).any(|window| window == name.as_bytes()))
    })
}
