//! `run --on … --hosts …`: hosts on three machines, private ones, a machine itself and containers, and one network between them.

use std::{ffi::OsStr, fs, path::Path, process::Command};

use anyhow::Result;
use perturb_tests::product::executable;
use perturb_verdict::{bound, conclude, installed, or_end, root, skip, thrice};

use super::{Said, directory, said, said_alone};

const SCRIPT: &str = concat!(include_str!("hosts.sh"), include_str!("spread.sh"));
const CONTAINERS: &str = concat!(include_str!("hosts.sh"), include_str!("guests.sh"));
const TUNNELS: &str = concat!(include_str!("hosts.sh"), include_str!("tunnels.sh"));
/// The bus: its rate is what two processors carry without effort. Each waits for less than TCP's time-out.
const RATE: f64 = 40e6;
const LATENCY_MS: f64 = 1.0;
/// As large as tunnels take whole.
const MTU: u64 = 1450;
const HOSTS: u64 = 8;
/// Of each message; it leaves without asking whether its receiver is ready. And how often all send to all.
const BYTES: u64 = 16_384;
const ROUNDS: usize = 20;
/// How far means may lie apart.
const CLOSE: f64 = 0.02;

fn profile(latency: &str) -> String {
    format!(
        "version: 1\nmtu: {MTU}B\ntcp: {{ rto_min: 1s }}\n\
         topology: {{ kind: bus, link: {{ bandwidth: {RATE}bit/s, latency: {latency} }} }}\n"
    )
}

/// What a message puts on the bus, bytes: data behind the headers of Ethernet, IP and TCP with time stamps, an acknowledgment for
/// each two frames, and Open MPI's own header.
fn on_wire() -> u64 {
    const HEADERS: u64 = 14 + 20 + 32;
    let frames = (BYTES + 64).div_ceil(MTU - (HEADERS - 14));
    BYTES + 64 + HEADERS * (frames + frames / 2)
}

/// PlogPT's time of all to all, ms. It knows trees of switches: a bus is the cable between two nodes that both ways share, with half of
/// the messages from either end.
fn predicted(files: &Path) -> f64 {
    let each = HOSTS * (HOSTS - 1) / 2;
    let gap = on_wire() as f64 * 8.0 / RATE * 1e6;
    let mut text = format!(
        "parameters:\n  nodes: 2\n  latency: {LATENCY_MS}ms\n  rto: 1s\n  jitter: 1us\n  switch_tolerance: 0.001\n  sharing: half-duplex\n\
         \x20 links: [{{ bandwidth: {RATE}bit/s, buffer_delay: 100s }}]\n\
         \x20 gap: [{{ size: 0B, gap: 0us }}, {{ size: {BYTES}B, gap: {gap}us }}]\nprogram:\n  ranks:\n"
    );
    for other in [1, 0] {
        text += "    -\n";
        for _ in 0..each {
            text += &format!("      - irecv: {{ from: {other} }}\n");
        }
        for _ in 0..each {
            text += &format!("      - isend: {{ to: {other}, size: {BYTES}B }}\n");
        }
        for operation in 0..2 * each {
            text += &format!("      - wait: {operation}\n");
        }
    }
    let input = files.join("plogpt.yaml");
    fs::write(&input, text).expect("the model's input");
    let output = Command::new(executable())
        .args(["predict", "plogpt", "--summary", "--json"])
        .arg(&input)
        .output()
        .expect("perturb");
    let printed: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    printed["total_us"].as_f64().expect("a time") / 1e3
}

/// The mean time of a kind's rounds, ms.
fn mean(said: &Said, kind: &str) -> f64 {
    let begin = format!("said {kind}: ");
    let lines = said.text.lines().filter_map(|line| line.strip_prefix(&begin));
    let rounds: Vec<f64> = lines.filter_map(|line| line.parse().ok()).collect();
    assert_eq!(rounds.len(), 2 * ROUNDS, "{kind}: {}", said.text);
    rounds.iter().sum::<f64>() / rounds.len() as f64
}

/// What a script has said, if there could be hosts on several machines.
fn hosts(said: Option<Said>) -> Result<Said> {
    let said = said.ok_or_else(|| skip("perturb was built without its eBPF programs"))?;
    if said.text.contains("no VXLAN") {
        return Err(skip("this kernel has no VXLAN"));
    }
    Ok(said)
}

#[test]
fn hosts_on_three_machines_share_one_bus() {
    conclude(thrice(are_one_network));
}

fn are_one_network() -> Result<Option<String>> {
    root()?;
    installed(&["sshd", "ssh", "ssh-keygen", "ip", "unshare", "ping", "ps"])?;
    let files = directory();
    let [bus, near] = ["bus", "near"].map(|name| files.path().join(name).with_extension("yaml"));
    fs::write(&bus, profile(&format!("{LATENCY_MS}ms")))?;
    fs::write(&near, profile("1us"))?;
    let (bytes, rounds) = (BYTES.to_string(), ROUNDS.to_string());
    let mut more = vec![
        ("NEAR", near.as_os_str()),
        ("BYTES", OsStr::new(&bytes)),
        ("ROUNDS", OsStr::new(&rounds)),
    ];
    let solver = files.path().join("alltoall");
    let has_mpi = installed(&["mpirun", "mpicc"]).is_ok();
    if has_mpi {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/alltoall.c");
        let compiled = Command::new("mpicc").arg("-o").args([&solver, &source]).status();
        assert!(compiled?.success());
        more.push(("SOLVER", solver.as_os_str()));
    }
    let said = hosts(said_alone(SCRIPT, &bus, &more))?;
    if has_mpi {
        said.must(&[
            ("code_spread", 0.0),
            ("code_alone", 0.0),
            ("unaccounted_spread", 0.0),
            ("unintended_spread", 0.0),
            ("lost_spread", 0.0),
            ("code_ranks", 0.0),
            ("code_daemons", 1.0),
        ]);
        said.must_say(&[("ranks", "h1"), ("ranks", "n02")]);
    }
    said.must(&[
        ("code_there", 7.0),
        ("code_near", 2.0),
        ("code_mtu", 1.0),
        ("code_few", 2.0),
        ("code_core", 0.0),
        ("tunnels_before", 4.0),
        ("code_lost2", 1.0),
        ("code_lost3", 1.0),
        ("ended_lost2", 1.0),
        ("ended_lost3", 1.0),
        ("code_machine", 7.0),
        ("code_deleted", 1.0),
        ("code_killed", 1.0),
        ("code_here", 2.0),
        ("code_door", 1.0),
        ("code_address", 1.0),
        ("code_route", 1.0),
    ]);
    left_nothing(&said);
    said.must_say(&[
        (
            "machine",
            "the profile's `tcp` is for private hosts: it is not set on this machine",
        ),
        ("machine", "SSH-2.0-"),
        ("machine", "n02"),
        ("machine", "ib0@"),
        ("deleted", "n02: perturb0 of this machine was deleted"),
        ("deleted", "hosts are lost (n02): the command was ended"),
        ("here", "the first is this machine"),
        ("door", "n02: this machine has an interface perturb0 already"),
        ("address", "n02: this machine has the address 10.77.0.9, and"),
        ("route", "n02: this machine has a route to fd77::/64, and"),
        ("there", "n03: its tunnel takes "),
        ("there", "h4"),
        ("there", "h1 h2 h3 h4 h5"),
        ("there", "the same directory"),
        ("there", "h1 is on another machine"),
        ("there", "left 0"),
        ("near", "its path's latency is 1us, and the tunnels take "),
        (
            "mtu",
            "takes 50 of the 1500 bytes there: write at most `mtu: 1450B`",
        ),
        ("few", "--hosts is too few: this machine and each"),
        ("core", "core: this machine carries "),
        ("lost2", "n02: the connection was cut"),
        ("lost2", "hosts are lost (n02): the command was ended"),
        ("lost3", "n03: nothing was heard of it for 10 s"),
        ("lost3", "hosts are lost (n03): the command was ended"),
    ]);

    // From h1 to h2 on this machine and to h3 on n02, and from h4 to h5 on n03; to and from the machine n02 itself.
    if let Some(fault) = other_trips(&said, 6) {
        return Ok(Some(fault));
    }
    if has_mpi {
        let [spread, alone] = ["spread", "alone"].map(|kind| mean(&said, kind));
        let predicted = predicted(files.path());
        let figures = format!(
            "all to all, ms: {spread:.2} on three machines, {alone:.2} on one, {predicted:.2} by PlogPT"
        );
        println!("    figure: {figures}");
        for other in [alone, predicted] {
            bound!((spread / other - 1.0).abs() < CLOSE, "{figures}");
        }
    }
    Ok(None)
}

/// A round trip, of those up to this number, that does not take twice the latency.
fn other_trips(said: &Said, trips: u32) -> Option<String> {
    (1..=trips).find_map(|number| {
        let trip = said.value(&format!("trip_{number}"));
        let is_right = (0.99..1.5).contains(&(trip / 2.0 / LATENCY_MS));
        (!is_right).then(|| format!("round trip {number} takes {trip} ms"))
    })
}

fn left_nothing(said: &Said) {
    let left = |(name, value): &(&String, &f64)| {
        let begins = ["tunnels_", "processes_", "devices_"]
            .iter()
            .any(|begin| name.starts_with(begin));
        begins && name.as_str() != "tunnels_before" && **value != 0.0
    };
    let left: Vec<_> = said.values.iter().filter(left).collect();
    assert!(left.is_empty(), "{left:?}: {}", said.text);
}

#[test]
fn containers_of_another_machine_are_hosts() {
    conclude(thrice(|| containers_are_hosts("podman", &["podman", "crun"])));
}

#[test]
fn containers_of_another_machines_docker_are_hosts() {
    conclude(thrice(|| containers_are_hosts("docker", &["docker", "dockerd"])));
}

fn containers_are_hosts(engine: &str, programs: &[&str]) -> Result<Option<String>> {
    root()?;
    installed(&["sshd", "ssh", "ssh-keygen", "ip", "unshare", "ping", "ps"])?;
    installed(programs)?;
    installed(&["busybox"])?;
    let files = directory();
    let bus = files.path().join("bus.yaml");
    fs::write(&bus, profile(&format!("{LATENCY_MS}ms")))?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("program/containers/engine.sh");
    let more = [
        ("ENGINE", OsStr::new(engine)),
        ("ENGINE_SCRIPT", script.as_os_str()),
    ];
    let said = hosts(said_alone(CONTAINERS, &bus, &more))?;
    if let Some(line) = said.text.lines().find(|line| line.starts_with("no engine")) {
        return Err(skip(format!("{engine} runs no containers here: {line}")));
    }
    said.must(&[
        ("code_both", 5.0),
        ("code_webb", 1.0),
        ("code_hosted", 1.0),
        ("code_beside", 1.0),
        ("code_job", 1.0),
        ("code_web+side", 1.0),
        ("code_ended", 1.0),
    ]);
    left_nothing(&said);
    said.must_say(&[
        ("both", "its files: /bin/busybox /bin/ping /bin/sh /bin/sleep"),
        ("webb", "n02: there is no container `webb` (did you mean `web`?)"),
        (
            "hosted",
            "n02: the container hosted uses this machine's own network: write `machine`",
        ),
        (
            "beside",
            "n02: the container beside uses this machine's own network: write `machine`",
        ),
        ("job", "n02: the container job is created: start it first"),
        (
            "web+side",
            "n02: the container web and the container side have one network",
        ),
        ("ended", "n02: the container web has ended"),
        ("ended", "hosts are lost (n02): the command was ended"),
    ]);
    let capabilities = said.text.lines().filter_map(|line| line.split_once("CapEff:"));
    let capabilities: Vec<&str> = capabilities.map(|(_, bits)| bits.trim()).collect();
    let are_equal = capabilities.chunks(2).all(|pair| pair[0] == pair[1]);
    assert!(
        capabilities.len() == 4 && are_equal,
        "those of each container's own process, and of a command: {}",
        said.text
    );
    Ok(other_trips(&said, 3))
}

#[test]
fn what_tunnels_lose_is_counted() {
    or_end!(root());
    or_end!(installed(&[
        "sshd",
        "ssh",
        "ssh-keygen",
        "ip",
        "unshare",
        "ping",
        "ps"
    ]));
    or_end!(installed(&["iptables", "iperf3", "ethtool"]));
    let files = directory();
    let bus = files.path().join("bus.yaml");
    fs::write(&bus, profile(&format!("{LATENCY_MS}ms"))).unwrap();
    let said = or_end!(hosts(said(TUNNELS, &bus, &[])));
    // Super-packets are counted alike at both ends.
    said.must(&[("code_clean", 0.0), ("lost_clean", 0.0), ("bulk_clean", 4.0)]);
    said.must(&[("code_lossy", 0.0), ("bulk_lossy", 4.0), ("code_open", 0.0)]);
    left_nothing(&said);
    let dropped = [1, 2, 3].map(|number| said.value(&format!("dropped_{number}")));
    assert!(
        dropped.iter().all(|count| *count > 0.0),
        "{dropped:?}: {}",
        said.text
    );
    assert_eq!(
        said.value("lost_lossy"),
        dropped.iter().sum::<f64>(),
        "{}",
        said.text
    );
    let lost = |line: &&str| line.starts_with("said lossy: ") && line.contains("on the way to it");
    assert_eq!(said.text.lines().filter(lost).count(), 2, "{}", said.text);
}
