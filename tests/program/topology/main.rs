//! Networks between private hosts: a shared bus, packets against the exact simulation, a network exchanged under
//! traffic, and `perturb rto`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod exact;
mod mtu;
mod rto;
mod servers;

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use nix::sys::socket::{setsockopt, sockopt};
use perturb_common::lead;
use perturb_dataplane::user::SpinBudget;
use perturb_emulator::{
    conduct::{Conduct, PacerChoice, Pacing},
    lab::{self, Lab},
    prepared::Prepared,
    running::Running,
};
use perturb_verdict::{bound, complete, conclude, root, skip, thrice};

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
    fn new(profile: &str, hosts: u32, coarse: bool) -> Result<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        possible()?;
        let directory = tempfile::tempdir().unwrap();
        let prepared = prepare(&directory, profile, hosts).coarse_if(coarse);
        let mut pacing = Pacing {
            choice: PacerChoice::Auto,
            spin: SpinBudget(Duration::ZERO),
        };
        let lab = Lab::new(hosts, &prepared.profile, &mut pacing).unwrap();
        let emulated = lab::emulate(&lab, &prepared, Conduct::of_hosts(pacing, false)).map_err(|error| {
            let said = format!("{error:#}");
            complete(&said).err().unwrap_or_else(|| anyhow!(said))
        });
        Ok(Self {
            running: Some(emulated?),
            lab,
            prepared,
            _directory: directory,
            _turn: turn,
        })
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

/// Whether this machine has what private hosts need.
fn possible() -> Result<()> {
    root()?;
    if Path::new("/dev/net/tun").exists() {
        Ok(())
    } else {
        Err(skip("this machine has no /dev/net/tun"))
    }
}

fn address(index: usize) -> Ipv4Addr {
    lab::addresses(index as u32 + 1).0
}

/// Every host sends to the next one at once, over one 10 Mbit/s bus. Equal windows, so equal shares.
#[test]
fn a_bus_is_shared_evenly() {
    conclude(thrice(bus));
}

fn bus() -> Result<Option<String>> {
    const RATE: f64 = 10e6;
    const BEGIN: Duration = Duration::from_millis(2500);
    const WINDOW: Duration = Duration::from_secs(4);
    const BUFFER: usize = 32 << 10;
    // Full frames of 1448 bytes, and an acknowledgment of 66 bytes for two of them on the same bus.
    const SHARE: f64 = 1448.0 / (1514.0 + 33.0);
    let profile = "topology: { kind: bus, link: { bandwidth: 10Mbit/s } }\ntcp: { offloads: false }\n";
    for hosts in [2, 4, 8] {
        let network = Network::new(profile, hosts, false)?;
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
        bound!(
            (of_bus - 1.0).abs() < 0.03,
            "{hosts} hosts: {of_bus:.3} of the bus"
        );
        bound!(unfair < 0.1, "{hosts} hosts' shares: {received:?}");
    }
    Ok(None)
}

/// How early packets may be that are held so many times, microseconds: what the pacer makes up for.
fn early_us(holds: u32) -> f64 {
    1e-3 * f64::from(holds) * lead::MOST.0 as f64
}

/// A tree becomes a star with another latency while packets are under way; none is lost.
#[test]
fn a_network_is_exchanged_under_traffic() {
    conclude(thrice(exchanged));
}

fn exchanged() -> Result<Option<String>> {
    let tree = "topology: { kind: tree, levels: [ { latency: 1ms }, { latency: 1ms } ] }\n";
    let star = "topology: { kind: star, link: { latency: 10ms } }\n";
    let mut network = Network::new(tree, 4, false)?;
    let directory = tempfile::tempdir().unwrap();
    let next = prepare(&directory, star, 4);
    let stop = AtomicBool::new(false);
    let (sent, echoed) = (AtomicU64::new(0), AtomicU64::new(0));
    let rtts: Mutex<Vec<f64>> = Mutex::new(Vec::new());
    let median = |rtts: &Mutex<Vec<f64>>| {
        let times = std::mem::take(&mut *rtts.lock().unwrap());
        perturb_stats::median(&times).unwrap_or(f64::NAN)
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
        let loaded = running.as_mut().unwrap().put(&next);
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
    bound!(
        (7.8..13.0).contains(&before),
        "{before} ms over four links of 1 ms"
    );
    bound!(
        (39.6..45.0).contains(&after),
        "{after} ms over two links of 10 ms"
    );
    Ok(None)
}
