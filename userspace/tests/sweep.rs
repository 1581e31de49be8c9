//! A sweep over programs of known communication, killed twice on the way, recovers what is known; programs that fail or
//! do not end are results; the order of runs is the seed's.
//!
//! With PERTURB_SWEEP_FULL=1 it measures the whole of configs/experiments/synthetic.yaml, twice with the same seed,
//! holds the coefficients to 5 % and the two sweeps against each other (about ten minutes on a quiet machine).

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use perturb_clock::stolen_share;
use serde_json::Value;

/// As configs/experiments/synthetic.yaml, with fewer levels and runs.
const SYNTHETIC: &str = r#"
version: 1
name: synthetic
seed: 3
repetitions: 1
statistic: median
time_limit: 20s
lateness: 200ms
base: { overhead: 5us, gap: 80us, latency: 50us, bandwidth: 125MB/s }
workloads:
  - name: reads
    command: '"$PERTURB" pattern reads --reads 200'
    metric: { json: run_time_s }
    communication: { messages: 400, round_trips: 200 }
    knobs:
      overhead: [200us, 400us, 600us]
      latency: [1ms, 2ms, 3ms]
  - name: burst
    command: '"$PERTURB" pattern burst --messages 1000'
    metric: { json: run_time_s }
    communication: { messages: 1000 }
    knobs: { gap: [200us, 300us, 400us] }
  - name: paced
    command: '"$PERTURB" pattern paced --messages 1000 --interval 200us'
    metric: { json: run_time_s }
    communication: { messages: 1000, interval: 200us }
    knobs: { gap: [120us, 160us, 240us, 280us, 320us, 360us] }
"#;

const BROKEN: &str = r#"
version: 1
name: broken
repetitions: 1
time_limit: 2s
lateness: 200ms
base: { latency: 50us }
knobs: { latency: [100us] }
workloads:
  - { name: fails, command: exit 3 }
  - { name: hangs, command: sleep 60 }
  - { name: works, command: [sh, -c, "echo t=1.5 t=2.5"], metric: { regex: "t=([0-9.]+)", unit: s } }
"#;

fn perturb(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_perturb"))
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    output.unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = perturb(arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Says why a test did nothing, to whoever counts.
fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {reason}");
    if let Some(file) = std::env::var_os("PERTURB_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "sweep::{test}: {reason}").unwrap();
    }
}

/// Programs that are measured must not disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why this machine cannot sweep, if it cannot.
fn obstacle() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root may make namespaces and attach programs".into());
    }
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("p.yaml");
    fs::write(&profile, "version: 1\nlatency: 50us\n").unwrap();
    let output = perturb(&["run", profile.to_str().unwrap(), "--", "true"]);
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The eBPF programs are compiled; an interpreter is too slow for overheads of microseconds.
fn has_jit() -> bool {
    fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").is_ok_and(|value| value.trim() != "0")
}

#[test]
fn the_order_is_the_seeds() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    fs::write(&file, SYNTHETIC).unwrap();
    let file = file.to_str().unwrap();
    let plan = |seed: &str| json(&["sweep", file, "--dry-run", "--json", "--seed", seed])["runs"].clone();
    assert_eq!(plan("1"), plan("1"));
    assert_ne!(plan("1"), plan("2"));
    // 15 settings, and the baselines before and between.
    assert_eq!(plan("1").as_array().unwrap().len(), 15 + 3);
    let part = |index: &str| {
        let arguments = [
            "sweep",
            file,
            "--dry-run",
            "--json",
            "--tasks",
            "2",
            "--array-index",
            index,
        ];
        json(&arguments)["runs"].as_array().unwrap().len()
    };
    // Each part has baselines of its own.
    assert_eq!(part("0") + part("1"), 15 + 2 * 3);
    let script = perturb(&["sweep", file, "--tasks", "2", "--slurm"]);
    assert!(String::from_utf8_lossy(&script.stdout).contains("#SBATCH --array=0-1"));
}

#[test]
fn what_is_wrong_is_said_with_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    fs::write(&file, "version: 1\nbase: { gap: 5 }\nworkload: []\n").unwrap();
    let output = perturb(&["sweep", file.to_str().unwrap(), "--dry-run"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for expected in [
        "e.yaml:2:14: base.gap",
        "did you mean `workloads`?",
        "lacks the key `name`",
    ] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
    let none = perturb(&["report", directory.path().to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn the_shipped_experiments_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/experiments");
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if fs::read_to_string(&path).unwrap().contains("\nworkloads:") {
            let plan = json(&["sweep", path.to_str().unwrap(), "--dry-run", "--json"]);
            assert!(!plan["runs"].as_array().unwrap().is_empty(), "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 2);
}

#[test]
fn programs_that_fail_or_hang_are_results() {
    let _alone = alone();
    if let Some(reason) = obstacle() {
        return skip("programs_that_fail_or_hang_are_results", &reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    fs::write(&file, BROKEN).unwrap();
    let out = directory.path().join("out");
    let out = out.to_str().unwrap();
    let sweep = perturb(&["sweep", file.to_str().unwrap(), "--out", out]);
    assert!(
        sweep.status.success(),
        "{}",
        String::from_utf8_lossy(&sweep.stderr)
    );
    let report = json(&["report", out, "--json"]);
    assert_eq!(report["runs"]["failed"], 2);
    assert_eq!(report["runs"]["timed_out"], 2);
    let [fails, hangs, works] = report["workloads"].as_array().unwrap().as_slice() else {
        panic!("{report}")
    };
    assert_eq!(fails["baseline"]["value"], Value::Null);
    assert_eq!(fails["knobs"]["latency"]["failed"], serde_json::json!([1]));
    assert_eq!(hangs["knobs"]["latency"]["timed_out"], serde_json::json!([1]));
    assert_eq!(hangs["knobs"]["latency"]["regions"][0]["kind"], "failing");
    assert_eq!(works["baseline"]["value"], 2.0);
    assert_eq!(works["knobs"]["latency"]["slowdown"], serde_json::json!([1.0]));
    let table = fs::read_to_string(Path::new(out).join("runs.csv")).unwrap();
    assert!(table.contains("did not end within 2s") && table.contains("ended with exit code 3"));
    // A directory that holds a sweep is not written over.
    let again = perturb(&["sweep", file.to_str().unwrap(), "--out", out]);
    assert_eq!(again.status.code(), Some(2));
}

/// The kernels check themselves against the published values.
#[test]
fn npb_kernels_verify_over_private_hosts() {
    const TEST: &str = "npb_kernels_verify_over_private_hosts";
    let _alone = alone();
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in ["mpirun", "mpicc"] {
        if !std::env::split_paths(&path).any(|place| place.join(program).is_file()) {
            return skip(TEST, &format!("{program} is not installed"));
        }
    }
    if let Some(reason) = obstacle() {
        return skip(TEST, &reason);
    }
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

/// Sweeps; is killed after each of the times, and resumed.
fn sweep_and_kill(experiment: &str, out: &str, kills: &[Duration]) {
    let arguments = |resume: bool| {
        let mut arguments = vec!["sweep", experiment, "--out", out];
        arguments.extend(resume.then_some("--resume"));
        arguments
    };
    let mut resume = false;
    for after in kills {
        let mut child = Command::new(env!("CARGO_BIN_EXE_perturb"))
            .args(arguments(resume))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(*after);
        child.kill().unwrap();
        child.wait().unwrap();
        resume = Path::new(out).join("runs.jsonl").exists();
    }
    let output = perturb(&arguments(resume));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn known_coefficients_are_recovered_by_a_sweep_that_is_killed_twice() {
    const TEST: &str = "known_coefficients_are_recovered_by_a_sweep_that_is_killed_twice";
    const PROBE: Duration = Duration::from_millis(500);
    let _alone = alone();
    if let Some(reason) = obstacle() {
        return skip(TEST, &reason);
    }
    if !has_jit() {
        return skip(
            TEST,
            "the kernel interprets eBPF programs, which burns more than is asked for",
        );
    }
    let full = std::env::var_os("PERTURB_SWEEP_FULL").is_some();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/experiments/synthetic.yaml");
    let text = if full {
        fs::read_to_string(shipped).unwrap()
    } else {
        SYNTHETIC.to_owned()
    };
    fs::write(&file, &text).unwrap();
    let out = directory.path().join("out").display().to_string();
    let busy = stolen_share(PROBE);
    let start = Instant::now();
    let kills = [Duration::from_secs(4), Duration::from_secs(5)];
    sweep_and_kill(file.to_str().unwrap(), &out, &kills);
    eprintln!("swept in {:?}", start.elapsed());
    let report = json(&["report", &out, "--json"]);
    let settings: usize = report["workloads"].as_array().unwrap().iter().map(settings).sum();
    assert_eq!(settings, if full { 6 + 6 + 6 + 8 } else { 15 });

    // A whole sweep, by command and on a quiet machine, is held to 5 %. A busy one lengthens runs, those most in which
    // processor time is burnt: there the bounds only tell 2m from m and 4m. The gap is waited for, whoever computes.
    let between = |what: &str, value: &Value, expected: f64, (low, high): (f64, f64)| {
        let value = value.as_f64().unwrap_or(f64::NAN);
        eprintln!("{what}: {value:.1}, expected {expected}");
        let (low, high) = if full { (0.95, 1.05) } else { (low, high) };
        assert!(
            (low * expected..=high * expected).contains(&value),
            "{what}: {value}, expected {expected}"
        );
    };
    let knob = |workload: usize, knob: &str| &report["workloads"][workload]["knobs"][knob];
    let (messages, interval) = if full { (2000.0, 150.0) } else { (1000.0, 200.0) };
    let paced = if full { 1200.0 } else { 1000.0 };
    // The packets that the program sent were counted where they went.
    let matrix = &report["workloads"][1]["baseline"]["communication"]["matrix"];
    assert!(matrix[0][1].as_f64().unwrap() >= messages, "{matrix}");
    // Controls: what others took of the processors around the sweep, and a program that sends one message per interval,
    // which without a gap in its way takes its time.
    let busy = busy.max(stolen_share(PROBE));
    let control = report["workloads"][2]["baseline"]["value"].as_f64().unwrap() / (paced * interval / 1e6);
    if !full && (busy > 0.05 || !(0.97..1.03).contains(&control)) {
        let share = busy * 100.0;
        return skip(
            TEST,
            &format!(
                "this machine is busy: others took {share:.0} % of a processor, a time of 1 took {control:.2}"
            ),
        );
    }
    between(
        "2m, overhead",
        &knob(0, "overhead")["coefficient"],
        800.0,
        (0.8, 1.8),
    );
    between(
        "2t, latency",
        &knob(0, "latency")["coefficient"],
        400.0,
        (0.8, 1.3),
    );
    between(
        "m, gap of a burst",
        &knob(1, "gap")["coefficient"],
        messages,
        (0.88, 1.12),
    );
    assert_eq!(knob(2, "gap")["shape"], "threshold");
    between(
        "threshold of the uniform model",
        &knob(2, "gap")["knee_us"],
        interval,
        (0.88, 1.12),
    );
    between("m beyond it", &knob(2, "gap")["coefficient"], paced, (0.85, 1.15));

    if full {
        let again = directory.path().join("again").display().to_string();
        sweep_and_kill(file.to_str().unwrap(), &again, &[]);
        let comparison = json(&["report", &out, &again, "--json"]);
        let count = |key: &str| comparison[key].as_f64().unwrap();
        eprintln!("{} of {} settings agree", count("agreeing"), count("compared"));
        assert!(count("agreeing") >= 0.85 * count("compared"), "{comparison}");
    }
}

/// Settings of a workload that have a slowdown.
fn settings(workload: &Value) -> usize {
    let knobs = workload["knobs"].as_object().unwrap();
    let measured = |knob: &Value| {
        let slowdowns = knob["slowdown"].as_array().unwrap();
        slowdowns.iter().filter(|slowdown| slowdown.is_number()).count()
    };
    knobs.values().map(measured).sum()
}
