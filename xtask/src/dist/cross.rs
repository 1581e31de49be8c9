//! Static programs for other machines: rustc's sources of `std`, compiled for musl, and Zig's C library, linker and unwinder.
//!
//! Model: below `target/xtask/cross` a sysroot with `std` for each target, and scripts that call Zig for each of its targets.
//! The libraries that perturb preloads into other programs are linked with glibc, as those are; Zig knows the symbols of its
//! old versions. Their `std` aborts when it panics.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    arch::Arch,
    command::{output, run, run_over_network},
    compile,
    setup::compiler::Compiler,
    workspace,
};

/// Of PyPI's package `ziglang`.
pub(super) const ZIG: &str = "0.15.2";
/// The oldest glibc that what is preloaded runs with: of Debian 10 and RHEL 8.
const GLIBC: &str = "2.28";

/// The target of the program.
pub(super) fn target(arch: Arch) -> String {
    format!("{}-unknown-linux-musl", arch.name())
}

/// Compiles the program; where it is.
pub(super) fn program(arch: Arch, object: &Path, compiler: &Compiler) -> Result<PathBuf> {
    let cross = workspace::own()?.join("cross");
    let sysroot = cross.join("sysroot");
    let musl = target(arch);
    let gnu = format!("{}-unknown-linux-gnu", arch.name());
    let target = workspace::own()?.join("dist");
    let musl_is_new = ensure_std(compiler, &cross, &musl, "unwind")?;
    let gnu_is_new = ensure_std(compiler, &cross, &gnu, "abort")?;
    let built = target.join(&musl);
    if (musl_is_new || gnu_is_new) && built.exists() {
        // Cargo does not see that what it compiled is for another `std`.
        fs::remove_dir_all(&built).with_context(|| format!("cannot remove {}", built.display()))?;
    }
    let mut flags = compile::remaps(compiler)?;
    flags.push("-Clink-self-contained=no".to_owned());
    let mut preloaded = flags.clone();
    preloaded.extend([
        format!("--sysroot={}", sysroot.display()),
        format!(
            "-Clinker={}",
            linker(&cross, &format!("{}-linux-gnu.{GLIBC}", arch.name()))?.display()
        ),
        format!("--target={gnu}"),
    ]);
    let mut cargo = compiler.cargo_for("build", &musl);
    cargo
        .args([
            "--locked",
            "--package",
            "perturb",
            "--profile",
            "dist",
            "--target-dir",
        ])
        .arg(&target)
        .env(compile::OBJECT_VARIABLE, object)
        .env("PERTURB_PRELOAD_FLAGS", preloaded.join("\x1f"))
        .env(
            compile::linker_variable(&musl),
            linker(&cross, &format!("{}-linux-musl", arch.name()))?,
        )
        .env("RUSTC_WRAPPER", wrapper(&cross, &sysroot, &musl)?)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .current_dir(workspace::root());
    run(&mut cargo)?;
    Ok(built.join("dist/perturb"))
}

/// Compiles `std` for a target, once for each compiler; whether it did.
fn ensure_std(compiler: &Compiler, cross: &Path, target: &str, panic: &str) -> Result<bool> {
    let libraries = cross.join("sysroot/lib/rustlib").join(target).join("lib");
    let stamp = cross.join(format!("{target}.made-by"));
    if fs::read_to_string(&stamp).is_ok_and(|made_by| made_by == compiler.to_string()) {
        return Ok(false);
    }
    let package = cross.join("std");
    fs::create_dir_all(package.join("src")).context("cannot make a package that needs std")?;
    fs::write(package.join("src/lib.rs"), "").context("cannot write a package that needs std")?;
    fs::write(
        package.join("Cargo.toml"),
        "[package]\nname = \"needs-std\"\nedition = \"2024\"\n[workspace]\n",
    )
    .context("cannot write a package that needs std")?;
    let built = package.join("target");
    let mut flags = compile::remaps(compiler)?;
    // Cargo leaves it out of a release, and what is preloaded is optimized with `std`.
    flags.push("-Cembed-bitcode=yes".to_owned());
    let mut cargo = compiler.cargo_for("build", target);
    cargo
        .args(["--release", "-Z", "build-std=std,panic_abort", "--target-dir"])
        .arg(&built)
        .env("CARGO_PROFILE_RELEASE_PANIC", panic)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .current_dir(&package);
    run(&mut cargo)?;
    if libraries.exists() {
        fs::remove_dir_all(&libraries).with_context(|| format!("cannot remove {}", libraries.display()))?;
    }
    fs::create_dir_all(&libraries).with_context(|| format!("cannot make {}", libraries.display()))?;
    for file in fs::read_dir(built.join(target).join("release/deps"))?.flatten() {
        let path = file.path();
        if path.extension().is_some_and(|extension| extension == "rlib") {
            fs::copy(&path, libraries.join(file.file_name()))
                .with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    fs::remove_dir_all(&built).context("cannot remove the build of std")?;
    fs::write(&stamp, compiler.to_string()).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(true)
}

/// A script that links for one of Zig's targets.
fn linker(cross: &Path, zig_target: &str) -> Result<PathBuf> {
    let text = format!("exec '{}' cc -target {zig_target} \"$@\"", zig()?.display());
    script(&cross.join(format!("cc-{zig_target}")), &text)
}

/// A script that starts rustc, for the target with our `std`. Flags would do so too, but cargo makes names of symbols from them.
fn wrapper(cross: &Path, sysroot: &Path, target: &str) -> Result<PathBuf> {
    let text = format!(
        "case \" $* \" in *' --target {target} '*) exec \"$@\" '--sysroot={}';; esac\nexec \"$@\"",
        sysroot.display()
    );
    script(&cross.join(format!("rustc-{target}")), &text)
}

fn script(path: &Path, text: &str) -> Result<PathBuf> {
    fs::write(path, format!("#!/bin/sh\n{text}\n"))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.to_owned())
}

/// Zig, from its Python package, which has it whole.
fn zig() -> Result<PathBuf> {
    let directory = workspace::own()?.join("tools/zig");
    let zig = directory.join("ziglang/zig");
    if output(Command::new(&zig).arg("version")).is_some_and(|version| version.trim() == ZIG) {
        return Ok(zig);
    }
    run_over_network(
        Command::new("pip3")
            .args(["install", "--quiet", "--no-deps", "--upgrade", "--target"])
            .arg(&directory)
            .arg(format!("ziglang=={ZIG}")),
    )?;
    Ok(zig)
}
