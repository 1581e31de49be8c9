//! Exit codes: 0 done, 1 failed, 2 usage or invalid input, 3 this kernel lacks something.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use anyhow::{Context as _, Result};
use perturb_tests::product::Product;
use tempfile::TempDir;

use super::{compare, here, run};

/// Calls whose ends depend neither on the kernel nor on who calls.
const CALLS: &[&str] = &[
    "--help",
    "--version",
    "",
    "nosuch",
    "help check",
    "check",
    "check profile.yaml",
    "check --json profile.yaml",
    "check topology.yaml",
    "check missing.yaml",
    "check wrong.yaml",
    "check --json wrong.yaml",
    "check four.jsonl",
    "apply",
    "apply profile.yaml",
    "apply --dry-run --iface nosuch0 profile.yaml",
    "apply --dry-run --iface nosuch0 wrong.yaml",
    "apply --iface nosuch0 missing.yaml",
    "apply --dry-run --iface nosuch0 --for 30s --lease 5s --follow --detach --spin 9us --quiet profile.yaml",
    "apply --dry-run --iface nosuch0 --for 30s --confirm 30s profile.yaml",
    "apply --dry-run --iface nosuch0 --pacer fq --spin 9us profile.yaml",
    "apply --dry-run --iface nosuch0 --restart-timeline profile.yaml",
    "apply --dry-run --iface nosuch0 --metrics 127.0.0.1:9464 profile.yaml",
    "apply --dry-run --iface nosuch0 --metrics 9464 profile.yaml",
    "apply --dry-run --iface nosuch0 --socket-group nogroup profile.yaml",
    "apply --iface nosuch0 --for 20 profile.yaml",
    "apply --iface nosuch0 --pacer nosuch profile.yaml",
    "apply --on n[1-2 --iface nosuch0 profile.yaml",
    "apply --on n1 --iface nosuch0 --detach profile.yaml",
    "apply --on n1 --iface nosuch0 missing.yaml",
    "apply --keep-going --iface nosuch0 profile.yaml",
    "clear --iface nosuch0 --all",
    "clear --nosuch",
    "confirm --nosuch",
    "status --nosuch",
    "status --watch 1",
    "status --flows --json --watch 500ms",
    "capture --out x.pcapng nosuch",
    "capture --out x.pcapng --class",
    "capture --out x.pcapng --count 0",
    "capture --out x.pcapng --snaplen 4096",
    "capture nosuch",
    "top nosuch",
    "top --every 1 nosuch",
    "run",
    "run profile.yaml",
    "run --hosts 1 profile.yaml -- true",
    "run --marks profile.yaml -- true",
    "run --sandbox --metrics 127.0.0.1:9464 profile.yaml -- true",
    "run --sandbox --socket-group nogroup profile.yaml -- true",
    "run --pacer fq --spin 9us profile.yaml -- true",
    "run missing.yaml -- true",
    "run wrong.yaml -- true",
    "on h2 -- true",
    "calibrate --nosuch",
    "calibrate --knob nosuch",
    "calibrate wrong.yaml",
    "calibrate --pacer fq --spin 9us",
    "measure",
    "measure --peer 127.0.0.1:1",
    "measure --peer nosuch.invalid",
    "measure --peer 127.0.0.1:1 --trace path.csv --for 1min --every 20ms",
    "measure --peer 127.0.0.1:1 --every 1s",
    "measure --peer 127.0.0.1:1 --trace path.csv --quick",
    "measure --groups a",
    "measure --groups a/b --profile p.yaml",
    "measure --groups a/b --quick",
    "nfs",
    "nfs load",
    "nfs load --server 127.0.0.1:/export --nfs-port 1 --mount-port 1 --duration 1s",
    "nfs load --server nosuch",
    "nfs load --server 127.0.0.1:/export --rate 0",
    "nfs load --server 127.0.0.1:/export --mix missing",
    "nfs serve --for 100ms --listen 127.0.0.1:0",
    "nfs serve --listen nosuch",
    "nfs curve --rates",
    "nfs curve --pacer user",
    "nfs curve --sandbox",
    "nfs curve --coarse",
    "nfs curve --spin 9us",
    "nfs curve --nfs-port 1",
    "nfs curve --server filer:/export --cpu-service 1ms",
    "nfs curve --cpu-distribution fixed",
    "nfs curve --over profile.yaml --model",
    "nfs curve --vary gap=10us --model",
    "nfs curve --vary latency=200s",
    "nfs curve --retransmit-after 1s",
    "nfs curve --arrivals open --processes 2",
    "nfs serve --disks 2",
    "nfs serve --hit-ratio 90%",
    "nfs serve --cache 1MiB",
    "nfs serve --disk-distribution fixed",
    "reproduce",
    "reproduce martin-fig-9.9",
    "reproduce --results nosuch",
    "reproduce martin-table-3.3 --results .",
    "reproduce --quick",
    "reproduce martin-table-3.3 --quick",
    "reproduce --json --markdown",
    "rto profile.yaml",
    "rto --message 1 profile.yaml",
    "rto --message 1KiB --jitter 1ms profile.yaml",
    "rto --program pair.yaml profile.yaml",
    "rto --program pair.yaml --message 1KiB topology.yaml",
    "rto --program plogpt.yaml topology.yaml",
    "rto --program missing.yaml topology.yaml",
    "rto --message 1KiB missing.yaml",
    "rto --message 1KiB --pacer fq --spin 9us profile.yaml",
    "rto --message 1KiB wrong.yaml",
    "rto --senders 2 --message 1KiB topology.yaml",
    "rto --algorithm incast --senders 2 topology.yaml",
    "rto --algorithm incast --senders 2 --message 1KiB,2KiB topology.yaml",
    "rto --algorithm incast --senders 2 --block 1B topology.yaml",
    "rto --algorithm incast --senders 2 --message 1KiB --block 1KiB topology.yaml",
    "rto --algorithm incast --senders 2 --message 1KiB --csv x.csv topology.yaml",
    "rto --algorithm incast --senders 0 --message 1KiB topology.yaml",
    "rto --algorithm incast --senders 2 --message 1KiB --rto-min 5ns topology.yaml",
    "rto --algorithm incast --senders 2 --message 1KiB --congestion nosuch topology.yaml",
    "rto --algorithm incast --senders 2 --message 1KiB --buffer 64KiB profile.yaml",
    "rto --algorithm incast --message 1KiB --rto-min 5ms topology.yaml",
    "tcp",
    "tcp missing.yaml",
    "tcp wrong.yaml",
    "tcp --congestion nosuch profile.yaml",
    "tcp --for 1s --every 2s profile.yaml",
    "tcp --pacer fq --spin 9us profile.yaml",
    "sweep",
    "sweep missing.yaml",
    "sweep wrong-experiment.yaml",
    "sweep --json experiment.yaml",
    "sweep --dry-run experiment.yaml",
    "sweep --dry-run --out sweep --quiet experiment.yaml",
    "sweep --dry-run --out sweep --resume experiment.yaml",
    "sweep --dry-run --out missing --resume experiment.yaml",
    "sweep --dry-run --tasks 2 --array-index 2 experiment.yaml",
    "sweep --tasks 2 --slurm --dry-run experiment.yaml",
    "sweep --tasks 2 --kubernetes image experiment.yaml",
    "sweep --tasks 2 experiment.yaml",
    "sweep --tasks 2 --slurm --array-index 1 experiment.yaml",
    "trace --to tcp:127.0.0.1:1 --out t.jsonl -- true",
    "locality --experiment 3 --network 1,1,1 --partition single",
    "locality --experiment 3 --network 1,1,1 --format text",
    "sweep --out sweep experiment.yaml",
    "sweep --out missing --resume experiment.yaml",
    "report",
    "report .",
    "report missing",
    "report --json sweep",
    "report --assert median<99x sweep",
    "report --assert median<0.001x sweep",
    "report --assert nosuch:median<2x sweep",
    "report --assert fast sweep",
    "report --assert median<2x sweep missing",
    "report --junit x.xml sweep",
    "sweep --assert nosuch:median<2x --out missing experiment.yaml",
    "pattern",
    "pattern nosuch",
    "pattern reads --reads 1",
    "split-c",
    "split-c nosuch",
    "split-c radix",
    "split-c radix --keys 0",
    "split-c murphi --seed 1",
    "split-c now-sort --disk 0MB/s",
    "pattern diamond --mapping linear --row 4 --blocks 1 --message 100B --work 1us --send 1us --per-byte 1us",
    "pattern diamond --mapping perfect --blocks 1 --message 100B --work 1us --send 1us --per-byte 1us",
    "pattern remap --style synchronous --mapping random --iterations 1 --message 46B --send 1us --receive 1us --per-byte 1us",
    "pattern remap --style long --mapping random --iterations 1 --message 46B --send 1us",
    "pattern remap --style long --mapping random --iterations 1 --message 46B --send 1us --receive 1us --per-byte 1us",
    "pattern remap --style asynchronous --mapping linear --iterations 1 --message 19B --send 1us --receive 1us",
    "pattern remap --style asynchronous --mapping linear --span 2 --iterations 1 --message 46B --send 1us --receive 1us",
    "predict",
    "predict nosuch",
    "predict loggp loggp.yaml",
    "predict loggp missing.yaml",
    "predict loggp nfs.yaml",
    "predict loggp --trace four.jsonl loggp.yaml",
    "predict loggp --trace four.jsonl loggp-trace.yaml",
    "predict nfs nfs.yaml",
    "predict nfs loggp.yaml",
    "predict pipeline pipeline.yaml",
    "predict plogpt plogpt.yaml",
    "predict plogpt --nodes 4 plogpt.yaml",
    "predict plogpt --nodes 4 --summary plogpt-collective.yaml",
    "predict logpc logpc.yaml",
    "predict logpc --simulate logpc.yaml",
    "predict whatif whatif.yaml",
    "predict whatif --events missing whatif.yaml",
    "predict whatif --suggest 0 whatif.yaml",
    "predict validate",
    "predict validate --model nosuch",
    "locality",
    "locality locality.txt",
    "locality missing",
    "locality --partition nosuch locality.txt",
    "locality --experiment 10",
    "locality --thresholds 3",
    "locality --thresholds 1",
    "trace",
    "trace --out /dev/null -- true",
    "trace --out /dev/null -- false",
    "trace --out /dev/null -- /nosuch",
    "trace --out /dev/null --summary /dev/null --layer sockets --rings /tmp -- true",
    "import",
    "import netem delay 100ms 10ms 25% loss gemodel 1% 10%",
    "import netem --device eth1 --strict delay 100ms",
    "import netem --strict slot 1ms seed 5",
    "import netem --strict slot 1ms",
    "import netem dealy 100ms",
    "export",
    "export netem profile.yaml",
    "export netem --strict profile.yaml",
    "export netem --device eth1 profile.yaml",
    "export netem missing.yaml",
    "export netem wrong.yaml",
    "schema",
    "completions bash",
    "completions nosuch",
    "stage",
    "agent",
];

/// Calls that need root, by somebody who is not.
const UNPRIVILEGED: &[&str] = &[
    "apply --iface lo profile.yaml",
    "run profile.yaml -- true",
    "rto --message 1KiB profile.yaml",
    "tcp --congestion reno profile.yaml",
    "reproduce martin-table-2.2-measured",
    "calibrate --quick --knob latency",
    "sweep --out out experiment.yaml",
    "nfs curve --vary latency=1ms --out out",
    "confirm --iface lo",
];

/// Calls that need a kernel for user mode, where there is none.
const SANDBOXED: &[&str] = &[
    "run --sandbox profile.yaml -- true",
    "calibrate --sandbox --quick",
    "rto --sandbox --message 1KiB profile.yaml",
    "tcp --sandbox profile.yaml",
    "sweep --sandbox --out out experiment.yaml",
    "nfs curve --sandbox --over profile.yaml --out out",
];

fn line(code: Option<i32>, call: &str) -> Result<String> {
    let code = code.with_context(|| format!("perturb {call}: ended by a signal"))?;
    Ok(format!("{code}  perturb {call}").trim_end().to_owned() + "\n")
}

#[test]
fn of_calls() -> Result<()> {
    let product = Product::find_or_beside()?;
    let mut text = String::new();
    for call in CALLS {
        let arguments: Vec<&str> = call.split_whitespace().collect();
        text += &line(run(&product, &arguments)?.status.code(), call)?;
    }
    compare("exits.txt", &text)
}

/// A copy of the program and of some inputs, with nothing else beside them.
fn copies() -> Result<TempDir> {
    let folder = TempDir::with_prefix("perturb-golden-")?;
    Product::find_or_beside()?.copy(&folder.path().join("perturb"))?;
    for input in ["profile.yaml", "experiment.yaml"] {
        fs::copy(here().join("data").join(input), folder.path().join(input))?;
    }
    Ok(folder)
}

#[test]
fn without_sandbox() -> Result<()> {
    let folder = copies()?;
    // The first of this name in PATH is taken, and this one is none.
    let programs = folder.path().join("bin");
    fs::create_dir(&programs)?;
    fs::write(programs.join("linux.uml"), "")?;
    let mut text = String::new();
    for call in SANDBOXED {
        let output = Command::new(folder.path().join("perturb"))
            .args(call.split_whitespace())
            .current_dir(folder.path())
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .output()
            .context("running perturb")?;
        text += &line(output.status.code(), call)?;
    }
    compare("exits-without-sandbox.txt", &text)
}

/// Without root and without /dev/net/tun, without which the switch joins no hosts.
#[test]
fn without_root() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        // Only root can take the device away.
        return Ok(());
    }
    let folder = copies()?;
    let program = folder.path().join("perturb");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    let mut text = String::new();
    for call in UNPRIVILEGED {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs none /dev/net && exec \"$@\"",
            "sh",
        ]);
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        let output = command
            .arg(&program)
            .args(call.split_whitespace())
            .current_dir(folder.path())
            .output()
            .context("running setpriv")?;
        text += &line(output.status.code(), call)?;
    }
    compare("exits-without-root.txt", &text)
}
