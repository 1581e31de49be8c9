//! The NPB-derived kernels.

use std::{fs, path::Path, process::Command};

use perturb_verdict::{installed, or_end};

use super::{alone, perturb, possible};

/// The kernels check themselves against the published values.
#[test]
#[ignore = "long: cargo xtask test --full"]
fn npb_kernels_verify_over_private_hosts() {
    let _alone = alone();
    or_end!(installed(&["mpirun", "mpicc"]));
    or_end!(possible());
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("p.yaml");
    fs::write(&profile, "version: 1\nlatency: 50us\n").unwrap();
    for kernel in ["is", "ep", "cg", "mg", "ft"] {
        let binary = directory.path().join(kernel);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/npb-{kernel}.c"));
        let compiled = Command::new("mpicc")
            .args(["-O2", "-Wall", "-Werror", "-o"])
            .arg(&binary)
            .arg(source)
            .arg("-lm")
            .status();
        assert!(compiled.unwrap().success());
        let arguments = ["run", "--mpi", "--hosts", "4", profile.to_str().unwrap(), "--"];
        let output = perturb(&[&arguments[..], &[binary.to_str().unwrap(), "S"]].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("\"verified\": true"),
            "{kernel}: {said}"
        );
    }
}
