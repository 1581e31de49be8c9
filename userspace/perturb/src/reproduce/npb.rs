//! NPB-derived kernels over MPI, built where a figure is drawn.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};

const KERNELS: [(&str, &str); 5] = [
    ("npb.h", include_str!("../../../../examples/npb.h")),
    ("npb-ep.c", include_str!("../../../../examples/npb-ep.c")),
    ("npb-ft.c", include_str!("../../../../examples/npb-ft.c")),
    ("npb-is.c", include_str!("../../../../examples/npb-is.c")),
    ("npb-mg.c", include_str!("../../../../examples/npb-mg.c")),
];

/// Writes and compiles them, and more of the same kind, into a directory: `npb-ep.c` becomes `npb-ep`.
pub(super) fn build(directory: &Path, more: &[(&str, &str)]) -> anyhow::Result<()> {
    for (name, text) in KERNELS.iter().chain(more) {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for (name, _) in KERNELS
        .iter()
        .chain(more)
        .filter(|(name, _)| name.ends_with(".c"))
    {
        compile(directory, name, &[])?;
    }
    Ok(())
}

/// Compiles `x.c` of a directory to `x`.
pub(super) fn compile(directory: &Path, name: &str, flags: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("mpicc")
        .current_dir(directory)
        .args(["-O2", "-o", name.trim_end_matches(".c"), name, "-lm"])
        .args(flags)
        .status()
        .context("running mpicc")?;
    ensure!(status.success(), "mpicc {name} has failed");
    Ok(())
}
