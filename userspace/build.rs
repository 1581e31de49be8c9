//! Compiles the interposition library that `perturb trace` preloads, from the sources of `perturb-trace`, and
//! embeds it. A shared object of another crate is not available while this one is compiled, so the compiler is
//! called here; the sources have no dependencies for that reason.

use std::{
    env,
    ffi::OsString,
    io::{Error, Result},
    path::{Path, PathBuf},
    process::Command,
};

fn main() -> Result<()> {
    let variable =
        |name: &str| env::var_os(name).ok_or_else(|| Error::other(format!("cargo sets no {name}")));
    let source = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("trace/src");
    println!("cargo:rerun-if-changed={}", source.display());
    let out = PathBuf::from(variable("OUT_DIR")?).join("libperturb_trace.so");
    let mut compiler = Command::new(variable("RUSTC")?);
    compiler
        .args([
            "--edition",
            "2024",
            "--crate-name",
            "perturb_trace",
            "--crate-type",
            "cdylib",
        ])
        // Optimized in every profile: it runs inside the programs that are measured.
        .args([
            "-C",
            "opt-level=3",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
            "-C",
            "lto=fat",
        ])
        .args([
            "--cfg",
            "feature=\"interpose\"",
            "--cap-lints",
            "allow",
            "--target",
        ])
        .arg(variable("TARGET")?)
        .arg("-o")
        .arg(&out)
        .arg(source.join("lib.rs"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        compiler.arg("-C").arg(option);
    }
    if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        // Else it would have a C library of its own.
        compiler.args(["-C", "target-feature=-crt-static"]);
    }
    let status = compiler.status()?;
    if !status.success() {
        return Err(Error::other(format!(
            "compiling the interposition library: {status}"
        )));
    }
    Ok(())
}
