//! Compiles the interposition library that `perturb trace` preloads, from those of these sources that have no
//! dependencies, and embeds it.

use std::{io::Result, path::Path};

#[path = "../cdylib.rs"]
mod cdylib;

fn main() -> Result<()> {
    println!("cargo::rustc-check-cfg=cfg(interpose)");
    let source = Path::new(&cdylib::variable("CARGO_MANIFEST_DIR")?).join("src");
    for part in ["lib.rs", "record.rs", "preload.rs", "preload"] {
        println!("cargo::rerun-if-changed={}", source.join(part).display());
    }
    cdylib::compile("perturb_trace", &source.join("lib.rs"), &["--cfg", "interpose"])
}
