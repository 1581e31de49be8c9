//! `--on`: machines of network namespaces, each with its own sshd.

mod calibrate;
mod spread;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::RwLock,
    thread,
    time::{Duration, Instant},
};

use perturb_tests::product::{self, executable};
use perturb_verdict::{installed, or_end, root, skipped};
use tempfile::TempDir;

const CLUSTER: &str = include_str!("cluster.sh");
const SWEEP: &str = include_str!("sweep.sh");
const SLURM: &str = include_str!("slurm.sh");
const SCRIPT: &str = include_str!("machines.sh");
/// Its trace travels with it: what a machine sends leaves so much later, ms.
const PROFILE: &str =
    "version: 1\nservers: { up: { trace: { file: t.csv } } }\nclasses: [{ match: {}, egress: [up] }]\n";
const TRACE: &str = "time [s],latency [ms]\n0,40\n";
/// Its latency falls three seconds after it begins.
const TIMED: &str = "version: 1\nservers: { up: { latency: 40ms } }\nclasses: [{ match: {}, egress: [up] }]\n\
                     timeline: { steps: [{ at: 3s, server: up, latency: 1ms }] }\n";
const SIMPLE: &str =
    "version: 1\nservers: { up: { latency: 40ms } }\nclasses: [{ match: {}, egress: [up] }]\n";
/// Private hosts of several machines.
const BUS: &str =
    "version: 1\nmtu: 1450B\ntopology: { kind: bus, link: { bandwidth: 40Mbit/s, latency: 1ms } }\n";
/// It holds less than what is sent at once.
const FULL: &str = "version: 1\nservers: { up: { latency: 2s } }\nclasses: [{ match: {}, egress: [up] }]\n\
                    limits: { held: 1MiB }\n";
/// How far apart machines may be seen to change: pings come every 10 ms, s.
const APART: f64 = 0.06;
/// The programs that a cluster needs.
const NEEDED: [&str; 7] = ["slurmctld", "munged", "sshd", "ssh", "ip", "unshare", "ping"];
/// The latency, and how much more a round trip may take on a busy machine, ms.
const LATENCY: f64 = 40.0;
const MORE: f64 = 25.0;

/// Not in /tmp, which a cluster has for itself.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Who measures times takes it whole, and the others share it.
static PROCESSORS: RwLock<()> = RwLock::new(());

/// What a script of a cluster has said, with the profile that it is to emulate; nothing if perturb cannot emulate.
fn said(script: &str, profile: &Path, more: &[(&str, &OsStr)]) -> Option<Said> {
    let _shared = PROCESSORS.read();
    heard(script, profile, more)
}

/// The same, while no other script of these tests runs.
fn said_alone(script: &str, profile: &Path, more: &[(&str, &OsStr)]) -> Option<Said> {
    let _whole = PROCESSORS.write();
    heard(script, profile, more)
}

fn heard(script: &str, profile: &Path, more: &[(&str, &OsStr)]) -> Option<Said> {
    let out = directory();
    let output = product::script_apart(&format!("{CLUSTER}{script}"))
        .env("OUT", out.path())
        .env("PROFILE", profile)
        .env("PERTURB", executable())
        .envs(more.iter().copied())
        .output()
        .expect("unshare");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if text.contains("without its eBPF programs") {
        return None;
    }
    let late = |line: &str| line.starts_with("late \"");
    assert!(!text.lines().any(late), "too late: {text}");
    assert!(text.contains("end 0"), "{text}");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let values = lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    Some(Said {
        values: values.collect(),
        text,
    })
}

/// Lines, and the values that some have.
struct Said {
    text: String,
    values: BTreeMap<String, f64>,
}

impl Said {
    fn value(&self, name: &str) -> f64 {
        let value = self.values.get(name);
        *value.unwrap_or_else(|| panic!("no {name}: {}", self.text))
    }

    fn must(&self, wanted: &[(&str, f64)]) {
        for (name, value) in wanted {
            assert_eq!(self.value(name), *value, "{name}: {}", self.text);
        }
    }

    /// A round trip with the emulation, or without.
    fn must_take(&self, name: &str, is_emulated: bool) {
        let wanted = if is_emulated { LATENCY } else { 0.0 };
        let found = self.value(name);
        assert!(
            (wanted..wanted + MORE).contains(&found),
            "{name}: {found} ms, not {wanted}: {}",
            self.text
        );
    }

    /// Whether messages have these parts.
    fn must_say(&self, parts: &[(&str, &str)]) {
        for (about, part) in parts {
            let begin = format!("said {about}: ");
            let mut lines = self.text.lines();
            assert!(
                lines.any(|line| line.starts_with(&begin) && line.contains(part)),
                "{about}: no `{part}`: {}",
                self.text
            );
        }
    }
}

/// How many processes have this in their environment.
fn processes_with(text: &str) -> usize {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let environments = all.filter_map(|entry| fs::read(entry.path().join("environ")).ok());
    let has = |bytes: &Vec<u8>| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    environments.filter(has).count()
}

#[test]
fn a_cluster_ends_with_its_leader() {
    or_end!(root());
    or_end!(installed(&[
        "slurmctld",
        "munged",
        "sshd",
        "ssh",
        "ip",
        "unshare"
    ]));
    let out = directory();
    let mut leader = product::script_apart(&format!("{CLUSTER}\nsrun -N3 hostname\nsleep 60"))
        .env("OUT", out.path())
        .env("SLURM", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(leader.stdout.take().unwrap()).lines();
    let mut names: Vec<String> = lines.map_while(Result::ok).take(3).collect();
    names.sort();
    assert_eq!(names, ["n01", "n02", "n03"]);
    let mark = format!("OUT={}", out.path().display());
    assert!(processes_with(&mark) > 10);
    leader.kill().unwrap();
    leader.wait().unwrap();
    let begin = Instant::now();
    while processes_with(&mark) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(5), "processes are left");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn machines_are_led_by_ssh() {
    or_end!(root());
    or_end!(installed(&["sshd", "ssh", "ssh-keygen", "ip", "unshare", "ping"]));
    let files = directory();
    let (profile, timed) = (files.path().join("p.yaml"), files.path().join("timed.yaml"));
    fs::write(&profile, PROFILE).unwrap();
    fs::write(files.path().join("t.csv"), TRACE).unwrap();
    fs::write(&timed, TIMED).unwrap();
    let Some(said) = said(SCRIPT, &profile, &[("TIMED", timed.as_os_str())]) else {
        return skipped("perturb was built without its eBPF programs");
    };

    let trips = [
        ("before", [false; 3]),
        ("applied", [true; 3]),
        ("cleared", [false; 3]),
        ("other", [false; 3]),
        ("killed", [false; 3]),
        ("cut", [false; 3]),
    ];
    let trips = trips
        .into_iter()
        .flat_map(|(name, are)| (1..).zip(are).map(move |(n, is)| (format!("{name}_{n}"), is)));
    let more = [("going_3", true), ("twice_3", true)].map(|(name, is)| (name.to_owned(), is));
    for (name, is_emulated) in trips.chain(more) {
        said.must_take(&name, is_emulated);
    }
    said.must(&[
        ("code_all", 0.0),
        ("code_timed", 0.0),
        ("code_apart", 1.0),
        ("code_clear", 0.0),
        ("code_other", 0.0),
        ("code_undone", 1.0),
        ("code_going", 1.0),
        ("code_twice", 1.0),
        ("code_old", 1.0),
        ("code_nobody", 1.0),
        ("code_cut", 1.0),
    ]);
    let added = (said.value("added_us") - said.value("bare_us")) / 1e3;
    assert!(
        (LATENCY - 0.1..LATENCY + MORE).contains(&added),
        "measure: {added} ms were added: {}",
        said.text
    );
    let (text, values) = (&said.text, &said.values);
    let left: Vec<_> = values
        .iter()
        .filter(|(name, value)| (name.starts_with("left_") || name.starts_with("devices_")) && **value != 0.0)
        .collect();
    assert!(left.is_empty(), "{left:?}: {text}");
    let looks = values.keys().filter(|name| name.starts_with("left_")).count();
    assert_eq!(looks, 3 + 1 + 2 + 2 + 1 + 3 + 3, "{text}");
    let apart = (said.value("fell_1") - said.value("fell_3")).abs();
    assert!(apart < APART, "timelines are {apart} s apart: {text}");
    assert!(
        !text.contains("/tmp/perturb-profile-"),
        "a profile is left: {text}"
    );
    // When one has ended the leader ends the others, which may be before their turn.
    for machine in ["n01", "n02"] {
        let cleared =
            ["cleared ib0", "nothing to clear"].map(|what| format!("said clear: perturb: {machine}: {what}"));
        let told = said
            .text
            .lines()
            .filter(|line| cleared.iter().any(|one| one == line));
        assert_eq!(told.count(), 1, "{machine}: {text}");
    }
    said.must_say(&[
        ("all", "cleared on all 3 machines"),
        ("timed", "timelines have begun together, within "),
        ("apart", "n01: its clock is known to "),
        ("apart", "more than --together 1µs"),
        ("clear", ": cleared ib0"),
        ("undone", "n02: "),
        ("undone", "failed on n02: nothing is applied on any machine"),
        ("going", "failed on n02"),
        ("twice", "emulates its ib0 already"),
        ("twice", "failed on n03: nothing is applied"),
        ("old", ": perturb 0.0.1 (ABI 3) is there"),
        ("nobody", "n01: no perturb answers there"),
        ("nobody", "/nowhere/perturb"),
        ("cut", "n02: nothing was heard of it for 4 s"),
        ("cut", "failed on n02: the emulation has ended on all machines"),
    ]);
}

#[test]
fn machines_of_a_job_are_led_by_srun() {
    or_end!(root());
    or_end!(installed(&NEEDED));
    let files = directory();
    let (profile, full) = (files.path().join("p.yaml"), files.path().join("full.yaml"));
    fs::write(&profile, PROFILE).unwrap();
    fs::write(files.path().join("t.csv"), TRACE).unwrap();
    fs::write(&full, FULL).unwrap();
    let simple = files.path().join("simple.yaml");
    fs::write(&simple, SIMPLE).unwrap();
    let bus = files.path().join("bus.yaml");
    fs::write(&bus, BUS).unwrap();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/slurm");
    let mut more = vec![
        ("SLURM", OsStr::new("1")),
        ("FULL", full.as_os_str()),
        ("SIMPLE", simple.as_os_str()),
        ("BUS", bus.as_os_str()),
        ("PACKAGING", packaging.as_os_str()),
    ];
    let solver = files.path().join("alltoall");
    let has_mpi = installed(&["mpirun", "mpicc"]).is_ok();
    if has_mpi {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/alltoall.c");
        let compiled = Command::new("mpicc").arg("-o").args([&solver, &source]).status();
        assert!(compiled.unwrap().success());
        more.push(("SOLVER", solver.as_os_str()));
    }
    let Some(said) = said(SLURM, &profile, &more) else {
        return skipped("perturb was built without its eBPF programs");
    };
    for n in 1..=3 {
        said.must_take(&format!("job_{n}"), true);
        said.must_take(&format!("cleared_{n}"), false);
    }
    said.must_take("run_2", true);
    said.must_take("comment_trip", true);
    said.must(&[
        ("code_outside", 1.0),
        ("code_run", 7.0),
        ("code_invalid", 0.0),
        ("code_push", 0.0),
        ("code_push_ssh", 0.0),
        ("code_lost", 1.0),
        ("code_hosts", 7.0),
        ("code_interrupted", 130.0),
        ("sleepers", 0.0),
        ("left_hosts", 0.0),
        ("steps_hosts", 0.0),
        ("run_machines", 3.0),
        ("copies", 1.0),
        ("left_cleared", 0.0),
        ("steps_cleared", 0.0),
        ("left_run", 0.0),
        ("code_comment", 0.0),
        ("comment_emulations", 1.0),
        ("ran", 0.0),
        ("named", 1.0),
        ("left_comment", 0.0),
        ("steps_run", 0.0),
    ]);
    assert!(said.value("took_interrupted") < 30.0, "{}", said.text);
    // Each machine answers two pings, and asks once who sends them.
    assert!(said.value("captured") >= 6.0, "{}", said.text);
    assert!(said.value("faults_invalid") >= 1.0, "{}", said.text);
    said.must_say(&[
        ("outside", "SLURM_JOB_NODELIST names none"),
        ("job", "emulating on n01, n02, n03"),
        ("job", "ended 0"),
        ("job", "n02: cleared ib0"),
        ("hosts", "h4"),
        ("hosts", "3 packets transmitted, 3 received"),
        ("invalid", "n02: "),
        ("invalid", "do not trust the result"),
        ("lost", "n03: "),
        ("lost", "failed on n03, so do not trust the result"),
    ]);
    if has_mpi {
        said.must(&[
            ("code_mpi", 0.0),
            ("code_mpi_ssh", 0.0),
            ("mpi_machines", 3.0),
            ("code_spread", 0.0),
            ("code_alone", 0.0),
        ]);
    }
}

#[test]
fn a_sweep_as_a_job_array_outlives_its_controller_and_a_machine() {
    or_end!(root());
    or_end!(installed(&NEEDED));
    let Some(said) = said(SWEEP, Path::new(""), &[("SLURM", OsStr::new("1"))]) else {
        return skipped("perturb was built without its eBPF programs");
    };
    let runs = said.value("runs");
    assert!(said.value("before") < runs, "{}", said.text);
    said.must(&[
        ("code_again", 2.0),
        ("code_resumed", 0.0),
        ("code_report", 0.0),
        ("code_unlike", 2.0),
        ("code_alone", 0.0),
        ("nodes", 3.0),
        ("jobs", 1.0),
    ]);
    // Seven levels and three baselines, six times; what was invalid on a busy machine was made again.
    let again = said.value("twice");
    assert!(
        again == runs - 60.0 || again > 0.0 && runs > 60.0,
        "{}",
        said.text
    );
    // Three runs at once share the processors here, so the intervals may be a twentieth apart.
    for level in 1..=7 {
        let of = |sweep: &str, key: &str| said.value(&format!("{sweep}_slowdown{key}_{level}"));
        let apart =
            (of("s", "_lower") - of("alone", "_upper")).max(of("alone", "_lower") - of("s", "_upper"));
        assert!(
            apart <= 0.05 * of("alone", ""),
            "level {level}: {apart} apart: {}",
            said.text
        );
    }
    said.must_say(&[
        ("killed", "submitted 3 tasks as job "),
        ("killed", "s left] tasks: 0 done, 3 run, 0 wait"),
        ("again", "`--resume` goes on with it"),
        ("resumed", "runs are in s; `perturb report s`"),
        ("report", "the baseline on 3 machines: standard deviation "),
        ("unlike", "the kernel: "),
    ]);
}
