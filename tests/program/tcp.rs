//! The `tcp:` section of a profile, as the private hosts' TCP has it.

use std::{fs, process::Command};

use perturb_tests::product::executable;
use perturb_verdict::{complete, or_end, root};

/// Linux takes a route's `rto_min` only if it is locked; `ip` says so.
#[test]
fn the_least_time_out_is_locked() {
    or_end!(root());
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("p.yaml");
    fs::write(&profile, "version: 1\nlatency: 1ms\ntcp: { rto_min: 5ms }\n").unwrap();
    let output = Command::new(executable())
        .arg("run")
        .arg(&profile)
        .args(["--", "ip", "route", "show", "10.77.0.0/24"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    or_end!(complete(&said));
    assert!(output.status.success(), "{said}");
    let routes = String::from_utf8_lossy(&output.stdout);
    assert!(routes.contains("rto_min lock 5ms"), "{routes}");
}
