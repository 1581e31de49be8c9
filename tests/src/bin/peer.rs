//! perturb's user pacer beside another user-space emulator, rattan, in the same run: delay error and TCP throughput
//! at 20 ms each way, and without emulation.
//!
//! ```text
//! off, perturb:  [client] ═══ [server]                  perturb on the client's interface
//! rattan:        [client] ─── [rattan] ─── [server]     rattan makes the client's namespace inside the server's
//! ```
//!
//! The client is this program in each case: an even stream of UDP datagrams that come back, then iperf3. rattan is
//! expected in PATH (`cargo install rattan`); without it its row says so.

use std::{
    collections::HashMap,
    env,
    net::{SocketAddr, UdpSocket},
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand};
use perturb_present::Table;
use perturb_stats::{Sample, median};
use perturb_tests::{
    bed::{Bed, Host},
    clock,
    product::{Pacer, Product},
};
use serde_json::{Value, json};

/// Compare the user pacer with rattan
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    /// Datagrams
    #[arg(long, default_value_t = 1_000)]
    packets: u32,
    /// Seconds per transfer
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// How often each takes its turn; medians are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Subcommand)]
enum Part {
    /// The end that measures (started by the comparison itself)
    #[command(hide = true)]
    Client {
        server: SocketAddr,
        packets: u32,
        seconds: u32,
    },
}

/// One way.
const LATENCY: Duration = Duration::from_millis(20);
/// Where the echo listens; iperf3 takes the next port.
const PORT: u16 = 7700;
/// Numbers of flows.
const FLOWS: [u32; 2] = [1, 8];
/// Socket buffers: more than the delay-bandwidth product of 20 Gbit/s.
const BUFFERS: &str = "4096 131072 268435456";

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    if let Some(Part::Client {
        server,
        packets,
        seconds,
    }) = cli.part
    {
        println!("{}", client(server, packets, seconds)?);
        return Ok(ExitCode::SUCCESS);
    }
    let product = Product::find_or_beside()?;
    let mut figures: [Vec<Figures>; 3] = Default::default();
    for _ in 0..cli.rounds.max(1) {
        for (figures, emulator) in figures.iter_mut().zip(EMULATORS) {
            let found = measure(&product, emulator, &cli);
            figures.extend(found.with_context(|| format!("measuring {}", emulator.name()))?);
        }
    }
    let mut table = Table::new(
        1,
        &[
            "20 ms each way",
            "RTT error, us, p50 / p99",
            "1 flow, Mbit/s",
            "8 flows",
        ],
    );
    for (figures, emulator) in figures.iter().zip(EMULATORS) {
        let middle = |place: usize| {
            let values: Vec<f64> = figures.iter().map(|figures| figures[place]).collect();
            median(&values).map(|value| format!("{value:.0}"))
        };
        let mut row = vec![emulator.name().to_owned()];
        match [0, 1, 2, 3].map(middle) {
            [Some(p50), Some(p99), Some(one), Some(eight)] => {
                row.extend([format!("{p50} / {p99}"), one, eight]);
            }
            _ => row.push("is not installed: cargo install rattan".into()),
        }
        table.row(row);
    }
    print!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// Who takes turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Emulator {
    Off,
    Perturb,
    Rattan,
}

const EMULATORS: [Emulator; 3] = [Emulator::Off, Emulator::Perturb, Emulator::Rattan];

impl Emulator {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Perturb => "perturb user",
            Self::Rattan => "rattan",
        }
    }
}

/// Median and 99th percentile of the round trips' error in microseconds, throughput of one flow and of eight in Mbit/s.
type Figures = [f64; 4];

/// `None` if the emulator is not installed.
fn measure(product: &Product, emulator: Emulator, cli: &Cli) -> Result<Option<Figures>> {
    let bed = Bed::new()?;
    for host in [&bed.left, &bed.right] {
        host.sysctl("ipv4/tcp_rmem", BUFFERS)?;
        host.sysctl("ipv4/tcp_wmem", BUFFERS)?;
    }
    let this = env::current_exe()?.display().to_string();
    let client = |host: &Host, before: &[&str], address: &str| {
        let mut words: Vec<&str> = before.to_vec();
        let server = format!("{address}:{PORT}");
        let rest = [cli.packets.to_string(), cli.seconds.to_string()];
        words.extend([&*this, "client", &*server, &*rest[0], &*rest[1]]);
        let mut command = host.command(words[0]);
        command.args(&words[1..]);
        command
    };
    let right = bed.right.v4.to_string();
    let found = match emulator {
        Emulator::Off => serve(&bed.right, client(&bed.left, &[], &right))?,
        Emulator::Rattan if bed.left.run("rattan --version").is_err() => return Ok(None),
        Emulator::Rattan => serve(&bed.right, client(&bed.right, &rattan(), "10.2.1.1"))?,
        Emulator::Perturb => {
            let profile = format!("latency: {}ms", LATENCY.as_millis());
            let applied = product.apply(&bed.left, &profile, Pacer::User)?;
            let found = serve(&bed.right, client(&bed.left, &[], &right))?;
            applied.nothing_unintended()?;
            applied.stop()?;
            found
        }
    };
    let asked = if emulator == Emulator::Off {
        0.0
    } else {
        2e6 * LATENCY.as_secs_f64()
    };
    let number = |value: &Value| value.as_f64().context("the client printed something else");
    Ok(Some([
        number(&found["p50_us"])? - asked,
        number(&found["p99_us"])? - asked,
        number(&found["mbit_s"][0])?,
        number(&found["mbit_s"][1])?,
    ]))
}

/// The arguments that make rattan a cable without loss or limit.
fn rattan() -> Vec<&'static str> {
    "rattan link --uplink-delay 20ms --downlink-delay 20ms --uplink-bandwidth 1000Gbps --downlink-bandwidth 1000Gbps \
     --uplink-queue infinite --downlink-queue infinite --"
        .split(' ')
        .filter(|word| !word.is_empty())
        .collect()
}

/// Runs the client's command while a host echoes datagrams and serves iperf3.
fn serve(server: &Host, mut client: Command) -> Result<Value> {
    let echo = server.enter(|| UdpSocket::bind(("0.0.0.0", PORT)))??;
    echo.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut iperf = server
        .command("iperf3")
        .args(["--server", "--port", &(PORT + 1).to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting iperf3")?;
    let over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !over.load(Ordering::Relaxed) {
                if let Ok((length, from)) = echo.recv_from(&mut buffer) {
                    // A lost echo shows in the client's count.
                    let _ = echo.send_to(&buffer[..length], from);
                }
            }
        });
        let output = client.stdin(Stdio::null()).stderr(Stdio::piped()).output();
        over.store(true, Ordering::Relaxed);
        output
    });
    let _ = iperf.kill();
    let _ = iperf.wait();
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(line) = text.lines().find(|line| line.starts_with('{')) else {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    };
    Ok(serde_json::from_str(line)?)
}

/// Measures against a server.
fn client(server: SocketAddr, packets: u32, seconds: u32) -> Result<Value> {
    for key in ["tcp_rmem", "tcp_wmem"] {
        std::fs::write(format!("/proc/sys/net/ipv4/{key}"), BUFFERS)?;
    }
    let times = round_trips(server, packets)?;
    let rates = FLOWS
        .iter()
        .map(|&flows| throughput(server, flows, seconds))
        .collect::<Result<Vec<f64>>>()?;
    Ok(json!({
        "p50_us": times.median(),
        "p99_us": times.quantile(0.99)?,
        "mbit_s": rates,
    }))
}

/// Round-trip times of an even stream, one datagram every 2 ms, in microseconds.
fn round_trips(server: SocketAddr, packets: u32) -> Result<Sample> {
    const PERIOD: u64 = 2_000_000;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut arrivals = HashMap::new();
            let mut buffer = [0; 8];
            while let Ok(8) = socket.recv(&mut buffer) {
                arrivals.insert(u64::from_ne_bytes(buffer), clock::now());
            }
            arrivals
        });
        let mut sent = Vec::new();
        let start = clock::now();
        for number in 0..u64::from(packets) {
            clock::sleep_until(start + number * PERIOD);
            sent.push(clock::now());
            socket.send(&number.to_ne_bytes())?;
        }
        let arrivals = receiver
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ensure!(
            arrivals.len() == sent.len(),
            "{} of {packets} datagrams came back",
            arrivals.len()
        );
        let times = sent
            .iter()
            .zip(0u64..)
            .filter_map(|(sent, number)| Some((arrivals.get(&number)? - sent) as f64 / 1e3));
        Ok(Sample::new(times.collect())?)
    })
}

/// What iperf3's receiver got, Mbit/s, without the first second.
fn throughput(server: SocketAddr, flows: u32, seconds: u32) -> Result<f64> {
    let output = Command::new("iperf3")
        .args(["--client", &server.ip().to_string()])
        .args(["--port", &(server.port() + 1).to_string()])
        .args(["--parallel", &flows.to_string()])
        .args(["--time", &seconds.to_string(), "--omit", "1", "--json"])
        .output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let rate = report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .with_context(|| format!("iperf3: {}", report["error"]))?;
    Ok(rate / 1e6)
}
