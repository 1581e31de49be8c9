//! The programs in the packages: static, small, for their processor, with the same eBPF programs inside; and the sources.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use perturb_verdict::{complete, conclude, installed, root};
use tempfile::TempDir;

use super::{package, said, unpack, whole};

/// Bytes of a program.
const LARGEST: u64 = 15_000_000;
const ARCHES: [(&str, &str); 2] = [
    ("x86_64", "Advanced Micro Devices X86-64"),
    ("aarch64", "AArch64"),
];

/// The archive of one processor, unpacked, and its program.
fn program(arch: &str) -> Result<(TempDir, PathBuf)> {
    whole()?;
    let directory = tempfile::tempdir()?;
    unpack(&package(&format!("-{arch}.tar.gz"))?, directory.path())?;
    let program = directory.path().join("usr/bin/perturb");
    Ok((directory, program))
}

/// The sources, unpacked, and the eBPF object among them.
fn sources() -> Result<(TempDir, PathBuf, PathBuf)> {
    whole()?;
    let directory = tempfile::tempdir()?;
    unpack(&package("-source.tar.gz")?, directory.path())?;
    let mut listed = fs::read_dir(directory.path())?;
    let root = listed.next().context("an empty archive")??.path();
    let object = root.join("ebpf-prog/perturb.bpf.o");
    Ok((directory, root, object))
}

fn elf(option: &str, path: &Path) -> Result<String> {
    said(
        Command::new("readelf")
            .args(["--wide", option])
            .arg(path)
            .env("LC_ALL", "C"),
    )
}

#[test]
fn programs_are_static_and_small() {
    let looked_at = || {
        for (arch, machine) in ARCHES {
            let (_directory, program) = program(arch)?;
            let size = fs::metadata(&program)?.len();
            println!("{arch}: {size} bytes");
            ensure!(size <= LARGEST, "{arch}: {size} bytes, more than {LARGEST}");
            ensure!(
                elf("--file-header", &program)?.contains(machine),
                "not for {machine}"
            );
            let segments = elf("--program-headers", &program)?;
            ensure!(!segments.contains("INTERP"), "{arch} needs a loader:\n{segments}");
            let needed = elf("--dynamic", &program)?;
            ensure!(!needed.contains("NEEDED"), "{arch} needs libraries:\n{needed}");
            ensure!(
                !elf("--sections", &program)?.contains(".debug"),
                "{arch} is not stripped"
            );
        }
        Ok(())
    };
    conclude(looked_at());
}

/// One object serves all processors: it is for the eBPF machine, and names neither registers of a processor nor a directory of the
/// machine it was made on.
#[test]
fn all_have_the_same_ebpf_programs() {
    let compared = || {
        let (_sources, _, object) = sources()?;
        ensure!(
            elf("--file-header", &object)?.contains("Linux BPF"),
            "no eBPF object"
        );
        let object = fs::read(object)?;
        for (arch, _) in ARCHES {
            let bytes = fs::read(program(arch)?.1)?;
            ensure!(memory_has(&bytes, &object), "{arch} has another object");
        }
        for word in [
            "pt_regs",
            "user_regs_struct",
            env!("CARGO_MANIFEST_DIR"),
            "/.cargo/",
            "/.rustup/",
        ] {
            ensure!(!memory_has(&object, word.as_bytes()), "the object names {word}");
        }
        Ok(())
    };
    conclude(compared());
}

fn memory_has(bytes: &[u8], part: &[u8]) -> bool {
    let Some((first, _)) = part.split_first() else {
        return true;
    };
    let starts = bytes.iter().enumerate().filter(|(_, byte)| *byte == first);
    starts
        .into_iter()
        .any(|(start, _)| bytes[start..].starts_with(part))
}

#[test]
fn the_program_for_aarch64_does_what_needs_no_kernel() {
    let used = || {
        installed(&["qemu-aarch64-static"])?;
        let (directory, program) = program("aarch64")?;
        let here = package("-x86_64.tar.gz")?;
        unpack(&here, &directory.path().join("x86"))?;
        let native = directory.path().join("x86/usr/bin/perturb");
        let configs = directory.path().join("usr/share/perturb/configs");
        let simple = configs.join("simple.yaml");
        let simple = simple.to_string_lossy();
        for arguments in [
            &["--version"][..],
            &["check", &simple],
            &["predict", "--help"],
            &["predict", "validate"],
            &["completions", "bash"],
            &["schema"],
        ] {
            let mut emulated = Command::new("qemu-aarch64-static");
            let emulated = said(emulated.arg(&program).args(arguments))?;
            ensure!(!emulated.is_empty(), "{arguments:?} says nothing");
            if env::consts::ARCH == "x86_64" {
                let native = said(Command::new(&native).args(arguments))?;
                ensure!(
                    emulated == native,
                    "{arguments:?}:\n{emulated}\non x86_64:\n{native}"
                );
            }
        }
        Ok(())
    };
    conclude(used());
}

/// On Debian's kernel for it, under qemu's emulation of its processors.
#[test]
fn the_program_for_aarch64_emulates_networks() {
    let used = || {
        let (directory, _) = program("aarch64")?;
        let xtask = env::current_exe()?;
        let xtask = xtask
            .ancestors()
            .nth(2)
            .context("tests are in a directory")?
            .join("xtask");
        ensure!(xtask.is_file(), "this test needs `cargo xtask test --only dist`");
        let script = "uname -m
            for pacer in fq user switch; do
                usr/bin/perturb run --pacer $pacer usr/share/perturb/configs/simple.yaml -- ping -c 5 -i 0.1 h2
            done";
        let mut machine = Command::new(xtask);
        machine.args(["vm", "--arch", "aarch64", "--cpus", "2", "--timeout", "300", "--"]);
        let text = said(machine.args(["sh", "-euc", script]).current_dir(directory.path()))?;
        ensure!(text.starts_with("aarch64\n"), "{text}");
        ensure!(text.matches("5 received").count() == 3, "{text}");
        complete(&text)
    };
    conclude(used());
}

/// As by a user who has a stable toolchain alone: neither nightly nor bpf-linker, and no sources of `core`.
#[test]
#[ignore = "long: cargo xtask test --full"]
fn the_sources_build_without_nightly_and_bpf_linker() {
    let built = || {
        let (_sources, directory, _) = sources()?;
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--locked", "--package", "perturb", "--target-dir"])
            .arg(directory.join("target"))
            .env_remove("PERTURB_BPF_OBJECT")
            .env_remove("RUSTC_BOOTSTRAP")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .current_dir(&directory);
        said(&mut cargo)?;
        let program = directory.join("target/debug/perturb");
        root()?;
        said(
            Command::new(program)
                .args(["run", "configs/simple.yaml", "--", "true"])
                .current_dir(&directory),
        )?;
        Ok(())
    };
    conclude(built());
}
