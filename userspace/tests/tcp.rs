//! The `tcp:` section of a profile, as the private hosts' TCP has it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    process::Command,
};

/// Says why a test did nothing, to whoever counts.
fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {reason}");
    if let Some(file) = std::env::var_os("PERTURB_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "tcp::{test}: {reason}").unwrap();
    }
}

/// Linux takes a route's `rto_min` only if it is locked; `ip` says so.
#[test]
fn the_least_time_out_is_locked() {
    const TEST: &str = "the_least_time_out_is_locked";
    if !nix::unistd::geteuid().is_root() {
        return skip(TEST, "only root may make namespaces");
    }
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("p.yaml");
    fs::write(&profile, "version: 1\nlatency: 1ms\ntcp: { rto_min: 5ms }\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_perturb"))
        .arg("run")
        .arg(&profile)
        .args(["--", "ip", "route", "show", "10.77.0.0/24"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("without its eBPF programs") {
        return skip(TEST, "perturb was built without its eBPF programs");
    }
    assert!(output.status.success(), "{said}");
    let routes = String::from_utf8_lossy(&output.stdout);
    assert!(routes.contains("rto_min lock 5ms"), "{routes}");
}
