//! JSON of commands that emulate: they need root, and a perturb with its eBPF programs.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use perturb_tests::{
    bed::Bed,
    product::{Pacer, Product},
};
use perturb_verdict::{complete, conclude, root};
use serde_json::Value;
use tempfile::TempDir;

use super::{compare, here, keys, printed, run};

/// Their files.
pub(super) const NAMES: &[&str] = &[
    "status",
    "status-flows",
    "rto",
    "rto-incast",
    "tcp",
    "sweep-runs",
    "sweep-provenance",
    "measure",
];

/// Runs a test with the program, if both are as they need be.
fn with(test: impl FnOnce(&Product) -> Result<()>) {
    let possible = || {
        root()?;
        let product = Product::find_or_beside()?;
        let profile = ["run", "--pacer", "user", "profile.yaml", "--", "true"];
        complete(&String::from_utf8_lossy(&run(&product, &profile)?.stderr))?;
        Ok(product)
    };
    conclude(possible().and_then(|product| test(&product)));
}

#[test]
fn status() {
    with(of_status);
}

fn of_status(product: &Product) -> Result<()> {
    let bed = Bed::new()?;
    let profile = fs::read_to_string(here().join("data/profile.yaml"))?;
    let applied = product.apply(&bed.left, &profile, Pacer::User)?;
    bed.left.run(&format!("ping -c 3 -i 0.01 -q {}", bed.right.v4))?;
    // Others may emulate on this machine, too.
    let report = applied.counters()?;
    compare("json/status.txt", &keys::lines(&report.to_string(), &[])?)?;
    let called = product.call(&bed.left, &["status", "--flows", "--json"])?;
    ensure!(called.code() == 0, "{called:?}");
    let mut flows: Value = serde_json::from_str(&called.stdout)?;
    let flows = flows.as_array_mut().context("flows are no array")?;
    flows.retain(|flow| flow["emulation"] == report["id"]);
    compare(
        "json/status-flows.txt",
        &keys::lines(&Value::from(flows.clone()).to_string(), &[])?,
    )?;
    applied.stop()
}

#[test]
fn rto() {
    with(of_rto);
}

fn of_rto(product: &Product) -> Result<()> {
    let call =
        "rto --json --pacer user --hosts 2 --message 1KiB --rounds 3 --warmup 1 --pause 1ms topology.yaml";
    let arguments: Vec<&str> = call.split(' ').collect();
    let text = printed(product, &arguments)?;
    compare("json/rto.txt", &keys::lines(&text, &[])?)
}

#[test]
fn rto_incast() {
    with(of_incast);
}

fn of_incast(product: &Product) -> Result<()> {
    let call = "rto --json --pacer user --hosts 3 --algorithm incast --senders 2,3 --message 1KiB --rounds 2 --rto-min 5ms \
                --rack-tlp off --congestion reno,nosuch star.yaml";
    let text = printed(product, &call.split_whitespace().collect::<Vec<_>>())?;
    compare("json/rto-incast.txt", &keys::lines(&text, &[])?)
}

#[test]
fn tcp() {
    with(of_tcp);
}

fn of_tcp(product: &Product) -> Result<()> {
    let call = "tcp --json --pacer user --congestion reno --for 200ms profile.yaml";
    let text = printed(product, &call.split(' ').collect::<Vec<_>>())?;
    compare("json/tcp.txt", &keys::lines(&text, &[])?)
}

/// What a sweep leaves, as `data/sweep`, which has more runs.
#[test]
fn sweep() {
    with(of_sweep);
}

fn of_sweep(product: &Product) -> Result<()> {
    let folder = TempDir::with_prefix("perturb-golden-")?;
    let out = folder.path().join("sweep");
    let place = out.to_string_lossy();
    printed(
        product,
        &["sweep", "--quiet", "--out", &place, "short-experiment.yaml"],
    )?;
    for (name, file) in [("sweep-runs", "runs.jsonl"), ("sweep-provenance", "sweep.json")] {
        let text = fs::read_to_string(out.join(file))?;
        compare(&format!("json/{name}.txt"), &keys::lines(&text, &[])?)?;
    }
    Ok(())
}

/// Both ends on private hosts.
#[test]
fn measure() {
    with(of_measure);
}

fn of_measure(product: &Product) -> Result<()> {
    let script = format!(
        "P='{}'; $P on h2 -- $P measure serve 2> /dev/null &
         for try in 1 2 3 4 5 6 7 8 9; do sleep 0.2; $P measure --quick --json --peer h2 && exit; done",
        product.path.display()
    );
    let output = run(
        product,
        &[
            "run",
            "--pacer",
            "user",
            "topology.yaml",
            "--",
            "bash",
            "-c",
            &script,
        ],
    )?;
    compare(
        "json/measure.txt",
        &keys::lines(&String::from_utf8(output.stdout)?, &[])?,
    )
}

/// Flags that take part in an emulation; PERTURB and OUT are the program and a directory.
const FLAGS: &[&str] = &[
    "run --pacer user --coarse --spin 9us --verbose profile.yaml -- true",
    "run --pacer user profile.yaml -- PERTURB pattern bulk-all-to-all --rounds 1 --bytes 2000",
    "run --pacer user profile.yaml -- PERTURB split-c radix --keys 64 --digit 4 --seed 2",
    "run --pacer user profile.yaml -- PERTURB split-c radb --keys 64 --digit 4 --seed 2",
    "run --pacer user profile.yaml -- PERTURB split-c sample --keys 64 --samples 4 --seed 2",
    "run --pacer user profile.yaml -- PERTURB split-c em3d-read --nodes 16 --degree 2 --remote 30% --steps 1 --seed 2",
    "run --pacer user profile.yaml -- PERTURB split-c em3d-write --nodes 16 --degree 2 --remote 30% --steps 1 --seed 2",
    "run --pacer user profile.yaml -- PERTURB split-c barnes --bodies 16 --steps 1 --opening 50% --seed 2",
    "run --pacer user profile.yaml -- PERTURB split-c p-ray --side 4 --spheres 9 --cache 2 --seed 2",
    "run --pacer user profile.yaml -- PERTURB split-c connect --side 8 --connected 40% --seed 2",
    "run --pacer user profile.yaml -- PERTURB split-c murphi --caches 2",
    "run --pacer user profile.yaml -- PERTURB split-c now-sort --records 100 --disk 10MB/s --directory OUT --seed 2",
    "run --pacer user profile.yaml -- PERTURB pattern diamond --mapping perfect --row 2 --blocks 3 --message 600B --work 1ms \
     --send 1ms --per-byte 1us --seed 2",
    "run --pacer user profile.yaml -- PERTURB pattern remap --style long --mapping random --span 1 --iterations 3 --message 2000B \
     --send 1ms --per-byte 1us --seed 2",
    "run --pacer user profile.yaml -- PERTURB pattern remap --style synchronous --mapping linear --iterations 3 --message 46B \
     --send 1ms --receive 1ms",
    "rto --pacer user --coarse --spin 9us --hosts 2 --message 1KiB --rounds 1 --warmup 0 --jitter 1ms \
     --csv OUT/rto.csv --svg OUT/rto.svg topology.yaml",
    "tcp --pacer user --coarse --spin 9us --congestion reno,reno --for 300ms --every 100ms --upload --at-once --svg OUT/tcp.svg \
     profile.yaml",
    "rto --pacer user --algorithm incast --senders 2 --block 3KiB --rounds 1 --buffer 64KiB --mark-above 1ms --ecn off --svg OUT/incast.svg \
     star.yaml",
    "rto --pacer user --program pair.yaml --rounds 2 --warmup 0 topology.yaml",
    "nfs curve --over topology.yaml --pacer user --coarse --spin 9us --rates 200 --warmup 10ms --duration 200ms --scale 0.001 \
     --reference OUT/reference.csv --out OUT/curve",
    "sweep --quiet --out OUT/rules --assert median<99x --junit OUT/rules.xml --ci short-experiment.yaml",
    "report --assert max<99x --junit OUT/report.xml --ci OUT/rules",
    "nfs curve --vary latency=0,1ms --mtu 3584B --pacer user --rates 200 --warmup 10ms --duration 200ms --scale 0.001 --out OUT/varied",
];
/// What they write.
const WRITTEN: &[&str] = &[
    "rto.csv",
    "rto.svg",
    "incast.svg",
    "tcp.svg",
    "rules.xml",
    "report.xml",
    "curve/topology.jsonl",
    "curve/reference.svg",
    "varied/latency-1ms.jsonl",
];

#[test]
fn flags() {
    with(of_flags);
}

fn of_flags(product: &Product) -> Result<()> {
    let folder = TempDir::with_prefix("perturb-golden-")?;
    fs::write(
        folder.path().join("reference.csv"),
        "# nobody\nthroughput_op_s,response_ms\n10,1\n20,2\n",
    )?;
    let (out, program) = (folder.path().to_string_lossy(), product.path.to_string_lossy());
    for call in FLAGS {
        let call = call.replace("OUT", &out).replace("PERTURB", &program);
        let output = run(product, &call.split_whitespace().collect::<Vec<_>>())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{call}: {}: {said}", output.status);
    }
    for file in WRITTEN {
        ensure!(folder.path().join(file).exists(), "no {file}");
    }
    Ok(())
}

/// Exit codes of `run`: its command's, also by a signal.
#[test]
fn exits_of_run() {
    with(of_exits_of_run);
}

fn of_exits_of_run(product: &Product) -> Result<()> {
    for (script, code) in [("exit 7", 7), ("kill -TERM $$", 143)] {
        let output = run(
            product,
            &["run", "--pacer", "user", "profile.yaml", "--", "sh", "-c", script],
        )?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(code),
            "{script}: {}: {said}",
            output.status
        );
    }
    Ok(())
}
