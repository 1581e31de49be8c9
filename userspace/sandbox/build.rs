//! Compiles the shim that is preloaded into the user-mode kernel, and embeds it.

use std::{io::Result, path::Path};

#[path = "../cdylib.rs"]
mod cdylib;

fn main() -> Result<()> {
    let root = Path::new(&cdylib::variable("CARGO_MANIFEST_DIR")?).join("src/shim.rs");
    println!("cargo:rerun-if-changed={}", root.display());
    cdylib::compile::<&str>("perturb_shim", &root, &[])
}
