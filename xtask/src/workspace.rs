//! Where things are.

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result};

/// The workspace's root directory.
pub(crate) fn root() -> PathBuf {
    // Cargo sets it for `cargo xtask`; without cargo the directory this was compiled in has to do.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut path = PathBuf::from(manifest);
    path.pop();
    path
}

/// Cargo's target directory, wherever the user has put it: this program lies in its `debug`.
pub(crate) fn target() -> Result<PathBuf> {
    let executable = env::current_exe().context("cannot find xtask's own executable")?;
    let target = executable.parent().and_then(|profile| profile.parent());
    Ok(target
        .context("xtask's executable is not in a target directory")?
        .to_owned())
}

/// What xtask itself makes or installs.
pub(crate) fn own() -> Result<PathBuf> {
    Ok(target()?.join("xtask"))
}
