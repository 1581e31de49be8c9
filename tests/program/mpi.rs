//! MPI programs over private hosts.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use perturb_tests::product::executable;
use perturb_verdict::{complete, installed, or_end, root};

/// Latency of the network, ms one way.
const LATENCY: f64 = 20.0;

/// Both algorithms and the library's own, compiled as the example says: each round costs at least the latency, and
/// what arrives is what was sent (the program checks it).
#[test]
fn alltoall() {
    or_end!(installed(&["mpirun", "mpicc"]));
    or_end!(root());
    let out = tempfile::tempdir().unwrap();
    let binary = out.path().join("alltoall");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/alltoall.c");
    let compiled = Command::new("mpicc")
        .arg("-o")
        .arg(&binary)
        .arg(source)
        .status()
        .unwrap();
    assert!(compiled.success());
    let profile = out.path().join("profile.yaml");
    fs::write(&profile, format!("version: 1\nlatency: {LATENCY}ms\n")).unwrap();
    // In step 1 to 3 of four hosts, A waits for the partner, B does not.
    for (algorithm, latencies) in [("a", 3.0), ("b", 1.0), ("mpi", 1.0)] {
        let output = Command::new(executable())
            .args(["run", "--mpi", "--hosts", "4"])
            .arg(&profile)
            .arg("--")
            .arg(&binary)
            .args([algorithm, "1000", "3"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        or_end!(complete(&said));
        assert!(output.status.success(), "{algorithm}: {said}");
        let rounds: Vec<f64> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert_eq!(rounds.len(), 3, "{algorithm}: {rounds:?}");
        let shortest = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        // Ranks leave the barrier up to a latency apart.
        assert!(
            (0.9 * LATENCY * f64::max(latencies - 1.0, 0.5)..LATENCY * 50.0).contains(&shortest),
            "{algorithm}: {rounds:?} ms"
        );
    }
}
