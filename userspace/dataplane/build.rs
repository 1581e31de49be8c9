//! Embeds the eBPF object that `PERTURB_BPF_OBJECT` names, or the one that lies beside the programs' sources, as in a source
//! archive of `cargo xtask dist`, or nothing: then the crate builds and tests without a nightly toolchain, and loading says
//! how to build the object.

use std::{env, fs, io, path::PathBuf};

/// In a source archive; nowhere in a clone.
const PREBUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ebpf-prog/perturb.bpf.o");

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-env-changed=PERTURB_BPF_OBJECT");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?).join("perturb.bpf.o");
    let prebuilt = PathBuf::from(PREBUILT);
    let object = env::var_os("PERTURB_BPF_OBJECT").map(PathBuf::from);
    match object.or_else(|| prebuilt.is_file().then_some(prebuilt)) {
        Some(object) => {
            println!("cargo:rerun-if-changed={}", object.display());
            fs::copy(object, out)?;
        }
        None => fs::write(out, [])?,
    }
    Ok(())
}
