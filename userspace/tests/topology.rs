//! Networks between private hosts: a shared bus, packets against the exact simulation, a network exchanged under
//! traffic, and `perturb rto`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use perturb::{
    controller::setup::{PacerChoice, Pacing, Prepared, Running},
    lab::{self, Lab},
};
use perturb_clock as clock;
use perturb_common::{departure::Load, lead, units::MonoNanos};
use perturb_dataplane::{programs::Pacer, user::SpinBudget};
use perturb_models::network::{Fate, Order, Packet, simulate};
use serde_json::Value;
use support::{fairly, skip};

/// Ports of the tests' traffic.
const PORT: u16 = 9000;

/// One test at a time: they measure time.
static TURN: Mutex<()> = Mutex::new(());

/// Hosts under emulation.
struct Network {
    running: Option<Running>,
    lab: Lab,
    prepared: Prepared,
    _directory: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Network {
    /// `None`, and the reason told to whoever counts, where it cannot be.
    fn new(test: &str, profile: &str, hosts: u32, coarse: bool) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = lacking() {
            skip(test, reason);
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let prepared = prepare(&directory, profile, hosts).coarse_if(coarse);
        let lab = Lab::new(hosts, &prepared.profile.tcp).unwrap();
        let pacing = Pacing {
            choice: PacerChoice::Auto,
            spin: SpinBudget(Duration::ZERO),
        };
        match lab::run::emulate(&lab, &prepared, pacing, false) {
            Ok(running) => Some(Self {
                running: Some(running),
                lab,
                prepared,
                _directory: directory,
                _turn: turn,
            }),
            Err(error) if format!("{error:#}").contains("without its eBPF programs") => {
                skip(test, "perturb was built without its eBPF programs");
                None
            }
            Err(error) => panic!("{error:#}"),
        }
    }

    /// Runs something in every host at once.
    fn in_each<T: Send>(&self, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let handles: Vec<_> = self
                .lab
                .hosts
                .iter()
                .enumerate()
                .map(|(index, host)| {
                    let work = &work;
                    scope.spawn(move || host.namespace.enter(|| work(index)).unwrap())
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.abandon().unwrap();
        }
    }
}

fn prepare(directory: &tempfile::TempDir, profile: &str, hosts: u32) -> Prepared {
    let path = directory.path().join("profile.yaml");
    std::fs::write(&path, format!("version: 1\n{profile}")).unwrap();
    Prepared::load_for(&path, &lab::all_addresses(hosts)).unwrap()
}

fn lacking() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        Some("only root may make namespaces")
    } else if !PathBuf::from("/dev/net/tun").exists() {
        Some("this machine has no /dev/net/tun")
    } else {
        None
    }
}

fn address(index: usize) -> Ipv4Addr {
    lab::addresses(index as u32 + 1).0
}

/// Every host sends to the next one at once, over one 10 Mbit/s bus. Equal windows, so equal shares.
#[test]
fn a_bus_is_shared_evenly() {
    fairly("a_bus_is_shared_evenly", bus);
}

fn bus() -> Result<()> {
    const RATE: f64 = 10e6;
    const BEGIN: Duration = Duration::from_millis(2500);
    const WINDOW: Duration = Duration::from_secs(4);
    const BUFFER: usize = 32 << 10;
    // Full frames of 1448 bytes, and an acknowledgment of 66 bytes for two of them on the same bus.
    const SHARE: f64 = 1448.0 / (1514.0 + 33.0);
    let profile = "topology: { kind: bus, link: { bandwidth: 10Mbit/s } }\ntcp: { offloads: false }\n";
    for hosts in [2, 4, 8] {
        let Some(network) = Network::new("a_bus_is_shared_evenly", profile, hosts, false) else {
            return Ok(());
        };
        let hosts = hosts as usize;
        let (ready, stop) = (std::sync::Barrier::new(hosts), AtomicBool::new(false));
        let received: Vec<f64> = network.in_each(|index| {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
            // Accepted sockets inherit it; the kernel doubles it.
            setsockopt(&listener, sockopt::RcvBuf, &(BUFFER / 2)).unwrap();
            ready.wait();
            let mut out = TcpStream::connect((address((index + 1) % hosts), PORT)).unwrap();
            let (mut into, _) = listener.accept().unwrap();
            into.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            out.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            ready.wait();
            let start = Instant::now();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let data = [0; 16 << 10];
                    while !stop.load(Ordering::Relaxed) {
                        // A time-out only gives the chance to stop.
                        let _ = out.write(&data);
                    }
                });
                let (mut bytes, mut buffer) = (0, vec![0; 64 << 10]);
                while start.elapsed() < BEGIN + WINDOW {
                    let read = into.read(&mut buffer).unwrap_or(0);
                    if start.elapsed() >= BEGIN {
                        bytes += read;
                    }
                }
                stop.store(true, Ordering::Relaxed);
                bytes as f64 * 8.0 / WINDOW.as_secs_f64()
            })
        });
        let total: f64 = received.iter().sum();
        let mean = total / hosts as f64;
        let unfair = received
            .iter()
            .map(|rate| (rate / mean - 1.0).abs())
            .fold(0.0, f64::max);
        let of_bus = total / SHARE / RATE;
        println!(
            "    figure: {hosts} hosts on a bus: {:.1} % of the bus rate, shares within {:.1} %",
            100.0 * of_bus,
            100.0 * unfair
        );
        ensure!(
            (of_bus - 1.0).abs() < 0.03,
            "{hosts} hosts: {of_bus:.3} of the bus"
        );
        ensure!(unfair < 0.1, "{hosts} hosts: {received:?}");
    }
    Ok(())
}

/// How early packets may be that are held so many times, microseconds: by fq, what it makes up for.
fn early_us(holds: u32) -> f64 {
    match PacerChoice::Auto.decide().unwrap() {
        Pacer::Fq => 1e-3 * f64::from(holds) * lead::MOST.0 as f64,
        Pacer::User => 0.0,
    }
}

/// Slow NICs before a faster trunk, unequal latencies, small buffers.
const TREE: &str = "
servers: { nic: { bandwidth: 8Mbit/s } }
topology:
  kind: tree
  egress: [nic]
  levels:
    - { bandwidth: 20Mbit/s, latency: 1ms, buffer: 30kB }
    - { bandwidth: 11Mbit/s, latency: 3ms, buffer: 12kB }
";
const PAYLOAD: usize = 1000;
const FRAME: u64 = PAYLOAD as u64 + 42;
/// How long hosts send.
const TRAFFIC: Duration = Duration::from_millis(2500);

/// When a host sends to whom: bursts, steady streams, and traffic that stays below a switch.
fn plan(host: usize) -> Vec<(Duration, usize)> {
    let every = |period: u64, burst: usize, to: usize| {
        let period = Duration::from_micros(period);
        let bursts = (TRAFFIC.as_micros() / period.as_micros()) as u32;
        (0..bursts).flat_map(move |number| (0..burst).map(move |_| (period * number, to)))
    };
    let mut all: Vec<(Duration, usize)> = match host {
        0 => every(61_000, 30, 2).collect(),
        1 => every(2_300, 1, 3).chain(every(97_000, 10, 0)).collect(),
        2 => every(3_100, 1, 0).collect(),
        _ => every(83_000, 25, 1).chain(every(5_300, 1, 2)).collect(),
    };
    all.sort();
    all
}

/// What was sent, and what arrived: by sender and number.
struct Observed {
    /// When, CLOCK_MONOTONIC ns, and to whom.
    sent: Vec<Vec<(u64, usize)>>,
    received: HashMap<(u64, u64), u64>,
}

fn send_and_receive(network: &Network) -> Observed {
    let hosts = network.lab.hosts.len();
    let ready = std::sync::Barrier::new(hosts);
    let all = network.in_each(|host| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let receiver = socket.try_clone().unwrap();
        ready.wait();
        let start = Instant::now() + Duration::from_millis(20);
        thread::scope(|scope| {
            let receiving = scope.spawn(move || {
                let mut received = Vec::new();
                let mut buffer = [0; PAYLOAD];
                while start.elapsed() < TRAFFIC + Duration::from_millis(500) {
                    let Ok(_) = receiver.recv(&mut buffer) else {
                        continue;
                    };
                    let now = clock::now();
                    let word = |from: usize| u64::from_ne_bytes(buffer[from..from + 8].try_into().unwrap());
                    received.push(((word(0), word(8)), now));
                }
                received
            });
            let mut payload = [0; PAYLOAD];
            let mut sent = Vec::new();
            payload[..8].copy_from_slice(&(host as u64).to_ne_bytes());
            for (number, (at, to)) in (0u64..).zip(plan(host)) {
                thread::sleep((start + at).saturating_duration_since(Instant::now()));
                payload[8..16].copy_from_slice(&number.to_ne_bytes());
                sent.push((clock::now(), to));
                socket.send_to(&payload, (address(to), PORT)).unwrap();
            }
            (sent, receiving.join().unwrap())
        })
    });
    let (sent, received): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    Observed {
        sent,
        received: received.into_iter().flatten().collect(),
    }
}

/// Differences between what was observed and the exact simulation of the same packets.
struct Errors {
    /// Of delivered packets, ns, sorted.
    times: Vec<u64>,
    /// Delivered here and dropped there, or the other way round.
    fates: usize,
    packets: usize,
    dropped: usize,
    /// Not delivered here.
    lost: usize,
    /// The least that a delivered packet took, less what it takes alone, microseconds.
    least_us: f64,
}

impl Errors {
    fn of(prepared: &Prepared, observed: &Observed) -> Self {
        let tables = &prepared.tables;
        let servers: Vec<_> = tables.servers.iter().map(|server| server.server).collect();
        let path = |from: usize, to: usize| -> Vec<usize> {
            let name = format!("h{}-h{}", from + 1, to + 1);
            let class = tables
                .class_names
                .iter()
                .position(|class| *class == name)
                .unwrap();
            let path = &tables.paths[tables.classes[class].path[0] as usize];
            path.servers[..path.len as usize]
                .iter()
                .map(|&server| server as usize)
                .collect()
        };
        let mut packets: Vec<((u64, u64), Packet)> = Vec::new();
        for (from, sent) in observed.sent.iter().enumerate() {
            for (number, &(time, to)) in (0u64..).zip(sent) {
                let packet = Packet {
                    entry: MonoNanos(time).instant(),
                    load: Load {
                        bytes: FRAME,
                        segments: 1,
                    },
                    path: path(from, to),
                };
                packets.push(((from as u64, number), packet));
            }
        }
        packets.sort_by_key(|(_, packet)| packet.entry);
        let (names, packets): (Vec<_>, Vec<_>) = packets.into_iter().unzip();
        let fates = simulate(&servers, &packets, Order::Arrival);
        let mut errors = Self {
            times: Vec::new(),
            fates: 0,
            packets: packets.len(),
            dropped: 0,
            lost: 0,
            least_us: f64::INFINITY,
        };
        for ((name, packet), fate) in names.iter().zip(&packets).zip(fates) {
            let received = observed.received.get(name);
            let alone = simulate(&servers, std::slice::from_ref(packet), Order::Arrival);
            match (alone.as_slice(), received) {
                ([Fate::Delivered(alone)], Some(&received)) => {
                    let over = received as f64 - alone.ceil_nanos().0 as f64;
                    errors.least_us = errors.least_us.min(over / 1e3);
                }
                _ => errors.lost += 1,
            }
            match (fate, received) {
                (Fate::Delivered(time), Some(&received)) => {
                    errors.times.push(received.abs_diff(time.ceil_nanos().0));
                }
                (Fate::Dropped(_), None) => errors.dropped += 1,
                _ => errors.fates += 1,
            }
        }
        errors.times.sort_unstable();
        errors
    }

    fn quantile_us(&self, share: f64) -> f64 {
        self.times[((self.times.len() - 1) as f64 * share) as usize] as f64 / 1e3
    }
}

/// With legs, packets leave when the exact simulation says and the same ones are dropped, but for what the machine
/// itself adds; folded at once, they are many milliseconds off. The coarse run is the emulator that must be caught.
#[test]
fn departures_are_those_of_the_exact_simulation() {
    const TEST: &str = "departures_are_those_of_the_exact_simulation";
    fairly(TEST, || departures(TEST));
}

fn departures(test: &str) -> Result<()> {
    let mut found = Vec::new();
    for coarse in [false, true] {
        let Some(network) = Network::new(test, TREE, 4, coarse) else {
            return Ok(());
        };
        let observed = send_and_receive(&network);
        let errors = Errors::of(&network.prepared, &observed);
        println!(
            "    figure: {}: {} packets, {} dropped by both, {} by one only; error of the others {:.0} us (50 %), \
             {:.0} us (90 %), {:.0} us (99 %), {:.0} us (all); {:.0} us at least",
            if coarse { "coarse" } else { "legs" },
            errors.packets,
            errors.dropped,
            errors.fates,
            errors.quantile_us(0.5),
            errors.quantile_us(0.9),
            errors.quantile_us(0.99),
            errors.quantile_us(1.0),
            errors.least_us
        );
        // However busy the machine: packets arrive, and none is faster than through a tree that is empty.
        assert!(
            errors.lost * 2 < errors.packets,
            "{} packets are lost",
            errors.lost
        );
        assert!(errors.least_us >= -early_us(6), "{} us early", -errors.least_us);
        found.push(errors);
    }
    let [legs, coarse] = found.as_slice() else {
        unreachable!()
    };
    ensure!(
        legs.quantile_us(0.5) < 1000.0,
        "median {:.0} us",
        legs.quantile_us(0.5)
    );
    ensure!(
        legs.fates * 20 < legs.packets,
        "{} packets fared differently",
        legs.fates
    );
    ensure!(
        coarse.quantile_us(0.9) > 2.0 * legs.quantile_us(0.9) || coarse.fates > 2 * legs.fates,
        "folding at once is as good"
    );
    Ok(())
}

/// A tree becomes a star with another latency while packets are under way; none is lost.
#[test]
fn a_network_is_exchanged_under_traffic() {
    const TEST: &str = "a_network_is_exchanged_under_traffic";
    fairly(TEST, || exchanged(TEST));
}

fn exchanged(test: &str) -> Result<()> {
    let tree = "topology: { kind: tree, levels: [ { latency: 1ms }, { latency: 1ms } ] }\n";
    let star = "topology: { kind: star, link: { latency: 10ms } }\n";
    let Some(mut network) = Network::new(test, tree, 4, false) else {
        return Ok(());
    };
    let directory = tempfile::tempdir().unwrap();
    let next = prepare(&directory, star, 4);
    let stop = AtomicBool::new(false);
    let (sent, echoed) = (AtomicU64::new(0), AtomicU64::new(0));
    let rtts: Mutex<Vec<f64>> = Mutex::new(Vec::new());
    let median = |rtts: &Mutex<Vec<f64>>| {
        let mut times = std::mem::take(&mut *rtts.lock().unwrap());
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let (before, after) = thread::scope(|scope| {
        let Network { lab, running, .. } = &mut network;
        let [first, .., last] = lab.hosts.as_slice() else {
            unreachable!()
        };
        scope.spawn(|| {
            last.namespace.enter(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                let mut buffer = [0; 64];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        socket.send_to(&buffer[..length], from).unwrap();
                    }
                }
            })
        });
        scope.spawn(|| {
            first.namespace.enter(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
                socket.connect((address(3), PORT)).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                // The other side may not listen yet.
                thread::sleep(Duration::from_millis(100));
                while !stop.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    socket.send(&[0; 64]).unwrap();
                    sent.fetch_add(1, Ordering::Relaxed);
                    if socket.recv(&mut [0; 64]).is_ok() {
                        echoed.fetch_add(1, Ordering::Relaxed);
                        rtts.lock().unwrap().push(start.elapsed().as_secs_f64() * 1e3);
                    }
                }
            })
        });
        thread::sleep(Duration::from_millis(1000));
        let before = median(&rtts);
        let loaded = running.as_mut().unwrap().emulation.loader().load(&next.tables);
        thread::sleep(Duration::from_millis(100));
        median(&rtts);
        thread::sleep(Duration::from_millis(1000));
        let after = median(&rtts);
        stop.store(true, Ordering::Relaxed);
        loaded.unwrap();
        println!(
            "    figure: round trip over the tree {before:.2} ms (8 ms), over the star {after:.2} ms (40 ms)"
        );
        assert!(
            before >= 8.0 - 1e-3 * early_us(8),
            "{before} ms over four links of 1 ms"
        );
        assert!(
            after >= 40.0 - 1e-3 * early_us(4),
            "{after} ms over two links of 10 ms"
        );
        (before, after)
    });
    assert_eq!(sent.into_inner(), echoed.into_inner(), "none is lost");
    // In the median fq makes packets early by little, if at all.
    ensure!(
        (7.8..13.0).contains(&before),
        "{before} ms over four links of 1 ms"
    );
    ensure!(
        (39.6..45.0).contains(&after),
        "{after} ms over two links of 10 ms"
    );
    Ok(())
}

fn rto(profile: &str, arguments: &[&str]) -> Option<Value> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reason) = lacking() {
        skip("rto", reason);
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profile.yaml");
    std::fs::write(&path, format!("version: 1\n{profile}")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_perturb"))
        .arg("rto")
        .arg(&path)
        .arg("--json")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("without its eBPF programs") {
        skip("rto", "perturb was built without its eBPF programs");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// TCP as it was loses its tails in small buffers and waits for time-outs; in large ones it does not.
#[test]
fn rto_says_what_tcp_did_and_why() {
    fairly("rto_says_what_tcp_did_and_why", lossy_and_ample);
}

fn lossy_and_ample() -> Result<()> {
    let profile = |buffer: &str| {
        format!(
            "servers: {{ nic: {{ bandwidth: 20Mbit/s }} }}
topology:
  kind: tree
  egress: [nic]
  levels: [ {{ bandwidth: 20Mbit/s, buffer: {buffer} }}, {{ bandwidth: 20Mbit/s, buffer: {buffer} }} ]
tcp: {{ congestion_control: reno, sack: false, rto_min: 200ms, offloads: false, no_metrics_save: true }}
"
        )
    };
    let arguments = [
        "--hosts",
        "4",
        "--message",
        "100kB",
        "--rounds",
        "4",
        "--algorithm",
        "incast",
    ];
    let Some(lossy) = rto(&profile("5kB"), &arguments) else {
        return Ok(());
    };
    let Some(ample) = rto(&profile("1MB"), &arguments) else {
        return Ok(());
    };
    for report in [&lossy, &ample] {
        assert_eq!(report["algorithm"], "incast");
        assert_eq!(report["hosts"], 4);
        assert_eq!(report["message_bytes"], 100_000);
        assert_eq!(report["rounds_ms"].as_array().unwrap().len(), 4);
        for key in ["timeouts", "tail_loss_probes", "retransmits"] {
            assert!(report["tcp"][key].is_u64(), "{report}");
        }
        assert!(report["near_rto_multiple"].is_u64());
        // Three messages of 100 kB share the last link.
        let ideal = report["ideal_ms"].as_f64().unwrap();
        assert!((120.0..135.0).contains(&ideal), "{ideal}");
        for key in ["plogpt", "plogp"] {
            assert!(report["predicted_ms"][key].as_f64().unwrap() >= 120.0, "{report}");
        }
        for round in report["rounds_ms"].as_array().unwrap() {
            assert!(
                round.as_f64().unwrap() > 0.95 * 120.0,
                "faster than the wire: {report}"
            );
        }
    }
    assert!(lossy["drops"].as_u64().unwrap() > 0);
    assert!(
        lossy["drops_by_server"]["h1-down"].as_u64().unwrap() > 0,
        "{lossy}"
    );
    assert!(lossy["tcp"]["timeouts"].as_u64().unwrap() > 0, "{lossy}");
    assert_eq!(ample["drops"], 0);
    let longest = |report: &Value| -> f64 {
        let rounds = report["rounds_ms"].as_array().unwrap();
        rounds.iter().filter_map(Value::as_f64).fold(0.0, f64::max)
    };
    // Hosts that do not get the processor time out as well.
    ensure!(ample["tcp"]["retransmits"] == 0, "{ample}");
    ensure!(ample["near_rto_multiple"] == 0, "{ample}");
    ensure!(longest(&lossy) > longest(&ample), "{lossy} {ample}");
    Ok(())
}
