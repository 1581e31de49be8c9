//! Compiles the interposition library that `perturb trace` preloads, from the sources of `perturb-trace`, and
//! embeds it.

use std::{io::Result, path::Path};

#[path = "cdylib.rs"]
mod cdylib;

fn main() -> Result<()> {
    let source = Path::new(&cdylib::variable("CARGO_MANIFEST_DIR")?).join("trace/src");
    println!("cargo:rerun-if-changed={}", source.display());
    let options = ["--cfg", "feature=\"interpose\""];
    cdylib::compile("perturb_trace", &source.join("lib.rs"), &options)
}
