//! Each flag of each command is in a call of a test: one that is accepted and does nothing is not noticed otherwise.
//!
//! The commands and their flags are those of `commands.txt`. A flag counts as called by the calls of `exits.txt` that are not
//! refused, those of [`super::json`] and of this file, and by the tests that [`TESTS`] names.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::product::Product;
use tempfile::TempDir;

use super::{here, json::OUTPUTS, perturb, printed};

/// Commands, and the tests whose source calls them with the flags that no golden call has.
const TESTS: &[(&str, &str)] = &[
    (
        "apply",
        "e2e/changes.rs e2e/confirm.rs e2e/update.rs program/containers/services.sh program/machines/machines.sh program/machines/slurm.sh",
    ),
    (
        "clear",
        "e2e/neighbors.rs e2e/life.rs program/containers/services.sh program/machines/machines.sh program/machines/slurm.sh",
    ),
    ("confirm", "e2e/confirm.rs"),
    ("check", "golden/scenarios.rs program/machines/spread.sh"),
    ("status", "e2e/flows.rs e2e/shell.rs program/machines/slurm.sh"),
    (
        "run",
        "e2e/api.rs e2e/changes.rs e2e/join.rs e2e/metrics.rs e2e/privileges.rs golden/emulated.rs program/machines/slurm.sh program/mpi.rs",
    ),
    ("on", "e2e/join.rs e2e/privileges.rs"),
    ("calibrate", "program/calibrate.rs program/machines/calibrate.sh"),
    ("measure", "program/measure.rs golden/exits.rs"),
    ("measure serve", "e2e/losses.rs"),
    ("nfs load", "golden/json.rs program/nfs.rs"),
    ("nfs serve", "golden/json.rs program/nfs.rs"),
    ("nfs curve", "golden/emulated.rs program/nfs.rs"),
    ("rto", "golden/emulated.rs program/topology/rto.rs"),
    ("tcp", "golden/emulated.rs program/tcp.rs"),
    ("top", "e2e/top.rs"),
    ("capture", "e2e/capture.rs"),
    (
        "pattern",
        "golden/emulated.rs program/sweep/collective.rs program/sweep/known.rs program/sweep/traced.rs",
    ),
    ("split-c", "golden/emulated.rs"),
    ("report", "golden/emulated.rs golden/json.rs"),
    (
        "sweep",
        "golden/emulated.rs golden/kubernetes.rs program/machines/sweep.sh",
    ),
    ("reproduce", "golden/reproduce.rs"),
    ("predict whatif", "program/trace.rs"),
    ("trace", "golden/json.rs program/trace.rs"),
];

/// Those whose subcommands are programs, called in the same tests.
const PROGRAMS: &[&str] = &["pattern", "split-c"];

/// Flags, and calls whose output each of them changes.
const EFFECTS: &[(&str, &[&str])] = &[
    ("predict plogpt plogpt.yaml", &["--summary", "--json"]),
    (
        "predict plogpt plogpt-collective.yaml",
        &["--nodes 4,32", "--messages 1KiB,1MiB"],
    ),
    ("predict loggp loggp.yaml", &["--json"]),
    (
        "predict logpc --json --simulate --messages 1000 logpc-mesh.yaml",
        &["--seed 2", "--sweep"],
    ),
    (
        "predict whatif --json --suggest 2 whatif.yaml",
        &["--speeds 1,2", "--best 1", "--budget 1", "--budget 2 --seed 7"],
    ),
    ("predict validate --model nfs", &["--markdown", "--json"]),
    ("predict validate", &["--model nfs"]),
    (
        "locality locality.txt",
        &[
            "--partition single",
            "--working-sets",
            "--network 100,1,3",
            "--json",
        ],
    ),
    ("locality --partition natural requests.jsonl", &["--format text"]),
    (
        "locality --experiment 20 --network 100,1,8",
        &["--seed 2", "--loops 2"],
    ),
    (
        "sweep --dry-run experiment.yaml",
        &["--quiet", "--seed 2", "--out o", "--tasks 2 --array-index 1"],
    ),
    ("sweep --dry-run --out sweep experiment.yaml", &["--resume"]),
    (
        "sweep --tasks 2 --slurm --dry-run experiment.yaml",
        &["--quiet", "--seed 2", "--out o"],
    ),
    ("check profile.yaml", &["--json"]),
    ("report sweep sweep", &["--json"]),
];

/// Options of the load and of the server; each makes another curve, which says so.
const CURVES: &[&str] = &[
    "",
    "--mix sfs2008",
    "--arrivals open",
    "--warmup 20ms",
    "--duration 250ms",
    "--processes 3",
    "--connections 2",
    "--threads 1",
    "--transport udp",
    "--transport udp --retransmit-after 2s",
    "--timeout 9s",
    "--reserved-ports",
    "--scale 0.002",
    "--seed 2",
    "--cpu-service 1ms",
    "--cpu-service 1ms --cpu-distribution fixed",
    "--cpu-service 1ms --burn",
    "--disk-service 1ms",
    "--disk-service 1ms --disk-distribution fixed",
    "--disk-service 1ms --disks 2",
    "--disk-service 1ms --cache 1MiB",
    "--disk-service 1ms --cache 1MiB --working-set 1MB",
    "--disk-service 1ms --hit-ratio 90%",
    "--server-model martin-scsi",
    "--fixed-delay 1ms",
    "--capacity 1GiB",
    "--export /other",
    "--service-seed 2",
];

/// The commands that people call, and their flags.
fn flags() -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(here().join("commands.txt"))?;
    let mut command = String::new();
    let mut flags = Vec::new();
    for line in text.lines() {
        if let Some(usage) = line.strip_prefix("perturb") {
            let words = usage.split_whitespace();
            let names: Vec<&str> = words
                .take_while(|word| word.starts_with(char::is_lowercase))
                .collect();
            command = names.join(" ");
        }
        let flag = line.split([' ', ',', '[']).find(|word| word.starts_with("--"));
        if let Some(flag) =
            flag.filter(|flag| line.starts_with(' ') && !matches!(*flag, "--help" | "--version"))
        {
            flags.push((command.clone(), flag.to_owned()));
        }
    }
    flags.retain(|(command, _)| !matches!(command.as_str(), "stage" | "agent"));
    Ok(flags)
}

/// All golden calls that are not refused.
fn calls() -> Result<Vec<String>> {
    let exits = ["exits.txt", "exits-without-sandbox.txt"].map(|file| fs::read_to_string(here().join(file)));
    let exits = exits.into_iter().collect::<Result<String, _>>()?;
    let exits = exits.lines().filter_map(|line| {
        let (code, call) = line.split_once("  perturb ")?;
        (code != "2").then(|| call.to_owned())
    });
    let effects = EFFECTS
        .iter()
        .flat_map(|(call, flags)| flags.iter().map(move |flag| format!("{call} {flag}")));
    Ok(exits
        .chain(OUTPUTS.iter().map(|(_, call, _)| (*call).to_owned()))
        .chain(effects)
        .chain(CURVES.iter().flat_map(|flags| {
            ["nfs curve", "nfs load", "nfs serve"].map(|command| format!("{command} {flags}"))
        }))
        .collect())
}

/// Whether a flag stands in a text, as a word.
fn has(text: &str, flag: &str) -> bool {
    text.match_indices(flag).any(|(at, _)| {
        let after = text[at + flag.len()..].chars().next();
        !after.is_some_and(|letter| letter.is_alphanumeric() || letter == '-')
    })
}

#[test]
fn each_is_called() -> Result<()> {
    let calls = calls()?;
    let mut unused: BTreeSet<&str> = TESTS.iter().map(|(command, _)| *command).collect();
    let mut missing = Vec::new();
    for (command, flag) in flags()? {
        let own = format!("{command} ");
        if calls
            .iter()
            .any(|call| call.starts_with(&own) && has(call, &flag))
        {
            continue;
        }
        let files = TESTS
            .iter()
            .find(|(name, _)| *name == command || PROGRAMS.contains(name) && command.starts_with(name));
        let mut found = false;
        for file in files.iter().flat_map(|(_, files)| files.split(' ')) {
            let path = here().join("..").join(file);
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            found |= has(&text, &flag);
        }
        if found {
            unused.retain(|name| files.is_none_or(|(used, _)| used != name));
        } else {
            missing.push(format!("{command} {flag}"));
        }
    }
    ensure!(
        missing.is_empty(),
        "in no call of a test:\n{}",
        missing.join("\n")
    );
    ensure!(unused.is_empty(), "TESTS names them for nothing: {unused:?}");
    Ok(())
}

#[test]
fn each_changes_the_output() -> Result<()> {
    let product = Product::find_or_beside()?;
    let print = |call: &str| printed(&product, &call.split(' ').collect::<Vec<_>>());
    let mut idle = Vec::new();
    for (call, flags) in EFFECTS {
        let without = print(call)?;
        for flag in *flags {
            if print(&format!("{call} {flag}"))? == without {
                idle.push(format!("{call} {flag}"));
            }
        }
    }
    ensure!(
        idle.is_empty(),
        "the last flag has no effect:\n{}",
        idle.join("\n")
    );
    Ok(())
}

/// A curve's file begins with what it was measured with.
#[test]
fn each_option_of_a_curve_is_one_of_its_settings() -> Result<()> {
    let product = Product::find_or_beside()?;
    let folder = TempDir::with_prefix("perturb-golden-")?;
    let mut all = BTreeSet::new();
    for flags in CURVES {
        let out = folder.path().join("curve");
        let call = "nfs curve --quiet --rates 200 --warmup 10ms --duration 200ms --scale 0.001";
        let words = flags.split(' ').filter(|word| !word.is_empty());
        let words: Vec<&str> = words.collect();
        let once = |word: &&str| !words.contains(word);
        let mut base: Vec<&str> = Vec::new();
        for pair in call
            .split(' ')
            .collect::<Vec<_>>()
            .chunk_by(|_, next| !next.starts_with("--"))
        {
            if pair.first().is_some_and(once) {
                base.extend(pair);
            }
        }
        let output = perturb(&product, &[base, words.clone()].concat())
            .arg("--out")
            .arg(&out)
            .output()?;
        ensure!(
            output.status.success(),
            "{flags}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = fs::read_to_string(out.join("curve.jsonl"))?;
        let settings = text.lines().next().context("an empty file")?;
        ensure!(settings.contains("settings"), "{settings}");
        ensure!(
            all.insert(settings.to_owned()),
            "{flags} has no effect: {settings}"
        );
        fs::remove_dir_all(&out)?;
    }
    Ok(())
}
