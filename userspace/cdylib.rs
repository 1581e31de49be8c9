//! For build scripts: compiles a shared object that others are to preload, from sources of its own. A shared object
//! of another crate is not available while a crate is compiled, so the compiler is called here; the sources have no
//! dependencies for that reason.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{Error, Result},
    path::{Path, PathBuf},
    process::Command,
};

/// Where it is set, it tells the target, the sysroot and the linker, as CARGO_ENCODED_RUSTFLAGS has them: a static program
/// has a C library that the programs it preloads into do not share.
const FLAGS_VARIABLE: &str = "PERTURB_PRELOAD_FLAGS";

/// What cargo tells a build script.
pub(crate) fn variable(name: &str) -> Result<OsString> {
    env::var_os(name).ok_or_else(|| Error::other(format!("cargo sets no {name}")))
}

/// Compiles `root`, a crate root, to `libNAME.so` in OUT_DIR, with further options of the compiler.
pub(crate) fn compile<S: AsRef<OsStr>>(name: &str, root: &Path, options: &[S]) -> Result<()> {
    let out = PathBuf::from(variable("OUT_DIR")?).join(format!("lib{name}.so"));
    let mut compiler = Command::new(variable("RUSTC")?);
    compiler
        .args([
            "--edition",
            "2024",
            "--crate-name",
            name,
            "--crate-type",
            "cdylib",
        ])
        // Optimized in every profile: it runs inside the programs that are measured.
        .args(["-C", "opt-level=3", "-C", "panic=abort"])
        .args(["-C", "strip=symbols", "-C", "lto=fat"])
        .args(["--cap-lints", "allow"])
        .args(options)
        .arg("-o")
        .arg(&out)
        .arg(root);
    println!("cargo::rerun-if-env-changed={FLAGS_VARIABLE}");
    if let Ok(flags) = env::var(FLAGS_VARIABLE) {
        compiler.args(flags.split('\x1f'));
    } else {
        compiler.arg("--target").arg(variable("TARGET")?);
        if let Some(linker) = env::var_os("RUSTC_LINKER") {
            let mut option = OsString::from("linker=");
            option.push(linker);
            compiler.arg("-C").arg(option);
        }
        if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
            // Else it would have a C library of its own.
            compiler.args(["-C", "target-feature=-crt-static"]);
        }
    }
    let status = compiler.status()?;
    if !status.success() {
        return Err(Error::other(format!("compiling {name}: {status}")));
    }
    Ok(())
}
