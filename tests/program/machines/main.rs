//! `--on`: machines of network namespaces, each with its own sshd.
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use perturb_tests::product::{self, executable};
use perturb_verdict::{installed, or_end, root, skipped};

const CLUSTER: &str = include_str!("cluster.sh");
const SCRIPT: &str = include_str!("machines.sh");
/// Its trace travels with it: what a machine sends leaves so much later, ms.
const PROFILE: &str =
    "version: 1\nservers: { up: { trace: { file: t.csv } } }\nclasses: [{ match: {}, egress: [up] }]\n";
const TRACE: &str = "time [s],latency [ms]\n0,40\n";
/// Its latency falls three seconds after it begins.
const TIMED: &str = "version: 1\nservers: { up: { latency: 40ms } }\nclasses: [{ match: {}, egress: [up] }]\n\
                     timeline: { steps: [{ at: 3s, server: up, latency: 1ms }] }\n";
/// How far apart machines may be seen to change: pings come every 10 ms, s.
const APART: f64 = 0.06;
/// The latency, and how much more a round trip may take on a busy machine, ms.
const LATENCY: f64 = 40.0;
const MORE: f64 = 25.0;

/// What its processes have in their environment.
fn processes_with(text: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let environments = all.filter_map(|entry| fs::read(entry.path().join("environ")).ok());
    let has = |bytes: &Vec<u8>| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    environments.filter(has).count()
}

#[test]
fn a_cluster_ends_with_its_leader() {
    or_end!(root());
    or_end!(installed(&["slurmctld", "munged", "sshd", "ssh", "ip", "unshare"]));
    let out = tempfile::tempdir().unwrap();
    let mut leader = product::apart()
        .args(["bash", "-c", &format!("{CLUSTER}\nsrun -N3 hostname\nsleep 60")])
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
    let out = tempfile::tempdir().unwrap();
    let profile = out.path().join("p.yaml");
    fs::write(&profile, PROFILE).unwrap();
    fs::write(out.path().join("t.csv"), TRACE).unwrap();
    let timed = out.path().join("timed.yaml");
    fs::write(&timed, TIMED).unwrap();
    let output = product::apart()
        .args(["bash", "-c", &format!("{CLUSTER}{SCRIPT}")])
        .env("OUT", out.path())
        .env("PROFILE", &profile)
        .env("TIMED", &timed)
        .env("PERTURB", executable())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if text.contains("without its eBPF programs") {
        return skipped("perturb was built without its eBPF programs");
    }
    assert!(text.contains("end 0"), "{text}");
    assert!(
        !text.lines().any(|line| line.starts_with("late \"")),
        "too late: {text}"
    );
    let values: BTreeMap<&str, f64> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    let value = |name: &str| *values.get(name).unwrap_or_else(|| panic!("no {name}: {text}"));

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
        let wanted = if is_emulated { LATENCY } else { 0.0 };
        let found = value(&name);
        assert!(
            (wanted..wanted + MORE).contains(&found),
            "{name}: {found} ms, not {wanted}: {text}"
        );
    }
    for (name, code) in [
        ("all", 0.0),
        ("timed", 0.0),
        ("apart", 1.0),
        ("clear", 0.0),
        ("other", 0.0),
        ("undone", 1.0),
        ("going", 1.0),
        ("twice", 1.0),
        ("old", 1.0),
        ("nobody", 1.0),
        ("cut", 1.0),
    ] {
        assert_eq!(value(&format!("code_{name}")), code, "{name}: {text}");
    }
    let left: Vec<_> = values
        .iter()
        .filter(|(name, value)| (name.starts_with("left_") || name.starts_with("devices_")) && **value != 0.0)
        .collect();
    assert!(left.is_empty(), "{left:?}: {text}");
    let looks = values.keys().filter(|name| name.starts_with("left_")).count();
    assert_eq!(looks, 3 + 1 + 2 + 2 + 1 + 3 + 3, "{text}");
    let apart = (value("fell_1") - value("fell_3")).abs();
    assert!(apart < APART, "timelines are {apart} s apart: {text}");
    assert!(
        !text.contains("/tmp/perturb-profile-"),
        "a profile is left: {text}"
    );
    for (about, part) in [
        ("all", "cleared on all 3 machines"),
        ("timed", "timelines have begun together, within "),
        ("apart", "n01: its clock is known to "),
        ("apart", "more than --together 1µs"),
        ("clear", "n01: cleared ib0"),
        ("clear", "n02: cleared ib0"),
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
    ] {
        let begin = format!("said {about}: ");
        assert!(
            text.lines()
                .any(|line| line.starts_with(&begin) && line.contains(part)),
            "{about}: no `{part}`: {text}"
        );
    }
}
