//! perturb's pacers user and switch beside other user-space emulators, rattan and mahimahi, in the same run: delay error and
//! TCP throughput at 20 ms each way, and without emulation.
//!
//! ```text
//! off, user:  [client] ═══ [server]                  perturb on the client's interface
//! switch:     [client] ── [perturb] ── [server]      private hosts of a user without privileges
//! rattan:     [client] ─── [rattan] ─── [server]     rattan makes the client's namespace inside the server's
//! mahimahi:   [client] ── [mm-delay] ── [server]     so does mm-delay, for a user without privileges
//! ```
//!
//! Both ends are this program in each case: an even stream of UDP datagrams that come back, then iperf3: TCP with the usual
//! buffers and with large ones, and 200,000 small datagrams a second. The others are expected in PATH (`cargo install
//! rattan`; mahimahi's source, mm-delay set-user-ID root); without them their rows say so.

use std::{
    collections::HashMap,
    convert::Infallible,
    env, fs, io,
    net::{SocketAddr, UdpSocket},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand};
use nix::sys::{prctl::set_pdeathsig, signal::Signal};
use perturb_present::Table;
use perturb_stats::{Sample, median};
use perturb_tests::{
    bed::{Bed, Host},
    clock,
    product::{Pacer, Product},
};
use serde_json::{Value, json};

/// Compare the pacers user and switch with rattan and mahimahi
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
    /// The end that answers, until it is killed (started by the comparison itself)
    #[command(hide = true)]
    Serve,
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
/// What asks the server for large buffers, and what only for an answer.
const LARGE: u8 = 1;
const HELLO: u8 = 0;
/// Small datagrams, and how many are sent a second.
const SMALL: u32 = 64;
const SMALL_RATE: u32 = 200_000;
/// The receiver's buffer for them, bytes, if this machine permits it (`net.core.rmem_max`).
const LARGE_SOCKET: u32 = 4 << 20;
/// Socket buffers: more than the delay-bandwidth product of 20 Gbit/s.
const BUFFERS: &str = "4096 131072 268435456";

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    match cli.part {
        Some(Part::Serve) => match serve()? {},
        Some(Part::Client {
            server,
            packets,
            seconds,
        }) => {
            println!("{}", client(server, packets, seconds)?);
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    let product = Product::find_or_beside()?;
    let mut figures: [Vec<Figures>; EMULATORS.len()] = Default::default();
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
            "8 flows, usual buffers, Mbit/s",
            "1 flow, large ones",
            "8 flows",
            "small packets/s / lost, %",
        ],
    );
    for (figures, emulator) in figures.iter().zip(EMULATORS) {
        let middle = |place: usize, digits: usize| {
            let values: Vec<f64> = figures.iter().map(|figures| figures[place]).collect();
            median(&values).map(|value| format!("{value:.digits$}"))
        };
        let mut row = vec![emulator.name().to_owned()];
        let whole = [0, 1, 2, 3, 4, 5].map(|place| middle(place, 0));
        match (whole, middle(6, 2)) {
            (
                [
                    Some(p50),
                    Some(p99),
                    Some(usual),
                    Some(one),
                    Some(eight),
                    Some(small),
                ],
                Some(lost),
            ) => {
                row.extend([
                    format!("{p50} / {p99}"),
                    usual,
                    one,
                    eight,
                    format!("{small} / {lost}"),
                ]);
            }
            _ => row.push("is not installed".into()),
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
    User,
    Switch,
    Rattan,
    Mahimahi,
}

const EMULATORS: [Emulator; 5] = [
    Emulator::Off,
    Emulator::User,
    Emulator::Switch,
    Emulator::Rattan,
    Emulator::Mahimahi,
];

impl Emulator {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::User => "perturb user",
            Self::Switch => "perturb switch",
            Self::Rattan => "rattan",
            Self::Mahimahi => "mahimahi",
        }
    }
}

/// Median and 99th percentile of the round trips' error in microseconds; throughput in Mbit/s of eight flows with the usual buffers,
/// and of one and eight with large ones; small packets that came per second, and those that did not, %.
type Figures = [f64; 7];

/// `None` if the emulator is not installed.
fn measure(product: &Product, emulator: Emulator, cli: &Cli) -> Result<Option<Figures>> {
    let bed = Bed::new()?;
    let this = env::current_exe()?.display().to_string();
    let words = |before: &str, address: &str| {
        format!(
            "{before} {this} client {address}:{PORT} {} {}",
            cli.packets, cli.seconds
        )
    };
    let shell = |host: &Host, line: &str| {
        let mut command = host.command("sh");
        command.args(["-c", line]);
        command
    };
    let right = bed.right.v4.to_string();
    let lacks = |program: &str| bed.left.run(&format!("which {program}")).is_err();
    let profile = format!("latency: {}ms", LATENCY.as_millis());
    let found = match emulator {
        Emulator::Off => against(&bed.right, shell(&bed.left, &words("", &right)))?,
        Emulator::Rattan if lacks("rattan") => return Ok(None),
        Emulator::Rattan => against(&bed.right, shell(&bed.right, &words(RATTAN, "10.2.1.1")))?,
        Emulator::Mahimahi if lacks("mm-delay") => return Ok(None),
        // Its variable is for the words of its own shell.
        Emulator::Mahimahi => {
            bed.right.sysctl("ipv4/ip_forward", "1")?;
            let line = format!("{MAHIMAHI} sh -c '{}'", words("", "$MAHIMAHI_BASE"));
            against(&bed.right, shell(&bed.right, &line))?
        }
        Emulator::Switch => {
            let mut command = product.command(Pacer::Switch)?;
            let line = format!("perturb on h2 -- {this} serve & {}", words("", "10.77.0.2"));
            command.args(["run", "--pacer", "switch"]);
            command.arg(product.profile(&profile)?);
            answer(command.args(["--", "sh", "-c", &line]))?
        }
        Emulator::User => {
            let applied = product.apply(&bed.left, &profile, Pacer::User)?;
            let found = against(&bed.right, shell(&bed.left, &words("", &right)))?;
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
        number(&found["mbit_s"][2])?,
        number(&found["small_s"])?,
        number(&found["small_lost"])?,
    ]))
}

/// A cable without loss or limit.
const RATTAN: &str = "rattan link --uplink-delay 20ms --downlink-delay 20ms --uplink-bandwidth 1000Gbps \
                      --downlink-bandwidth 1000Gbps --uplink-queue infinite --downlink-queue infinite --";
/// It does not run as root.
const MAHIMAHI: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups mm-delay 20";

/// Runs the client's command while a host serves.
fn against(host: &Host, mut client: Command) -> Result<Value> {
    let this = env::current_exe()?.display().to_string();
    let mut server = host
        .command(&this)
        .arg("serve")
        .spawn()
        .context("starting the server")?;
    let answer = answer(&mut client);
    server.kill()?;
    server.wait()?;
    answer
}

/// What a client's command prints.
fn answer(client: &mut Command) -> Result<Value> {
    let output = client.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(line) = text.lines().find(|line| line.starts_with('{')) else {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    };
    Ok(serde_json::from_str(line)?)
}
/// Gives this host's TCP large buffers, if its user may.
fn enlarge_buffers() -> Result<()> {
    for key in ["tcp_rmem", "tcp_wmem"] {
        match fs::write(format!("/proc/sys/net/ipv4/{key}"), BUFFERS) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("{key} stays as it is: {error}");
            }
            written => written?,
        }
    }
    Ok(())
}

/// Echoes datagrams and serves iperf3.
fn serve() -> Result<Infallible> {
    let mut iperf = Command::new("iperf3");
    iperf.args(["--server", "--port", &(PORT + 1).to_string()]);
    iperf.stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the closure makes one system call.
    unsafe { iperf.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
    let _ends_with_this = iperf.spawn().context("starting iperf3")?;
    let echo = UdpSocket::bind(("0.0.0.0", PORT))?;
    let mut buffer = [0; 64];
    loop {
        let (length, from) = echo.recv_from(&mut buffer)?;
        if buffer[..length] == [LARGE] {
            enlarge_buffers()?;
        }
        echo.send_to(&buffer[..length], from)?;
    }
}

/// Measures against a server.
fn client(server: SocketAddr, packets: u32, seconds: u32) -> Result<Value> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    // It may still be starting.
    ask(&socket, HELLO)?;
    let times = round_trips(&socket, packets)?;
    let usual = throughput(server, 8, seconds)?;
    ask(&socket, LARGE)?;
    enlarge_buffers()?;
    let (one, eight) = (throughput(server, 1, seconds)?, throughput(server, 8, seconds)?);
    let (small, lost) = small_packets(server, seconds)?;
    Ok(json!({
        "p50_us": times.median(),
        "p99_us": times.quantile(0.99)?,
        "mbit_s": [usual, one, eight],
        "small_s": small,
        "small_lost": lost,
    }))
}

/// Asks until the server answers: a datagram that nobody takes is refused, or lost.
fn ask(socket: &UdpSocket, question: u8) -> Result<()> {
    let answers = (0..10).any(|_| {
        let answer = socket.send(&[question]).and_then(|_| socket.recv(&mut [0; 8]));
        answer.is_ok() || {
            thread::sleep(Duration::from_millis(100));
            false
        }
    });
    ensure!(answers, "the server does not answer");
    Ok(())
}

/// Round-trip times of an even stream, one datagram every 2 ms, in microseconds.
fn round_trips(socket: &UdpSocket, packets: u32) -> Result<Sample> {
    const PERIOD: u64 = 2_000_000;
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
    let report = iperf(
        server,
        seconds,
        &["--parallel", &flows.to_string(), "--omit", "1"],
    )?;
    let rate = report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .with_context(|| format!("iperf3: {}", report["error"]))?;
    Ok(rate / 1e6)
}

/// Small packets that came per second, and those that did not, %.
fn small_packets(server: SocketAddr, seconds: u32) -> Result<(f64, f64)> {
    let rate = (SMALL_RATE * SMALL * 8).to_string();
    // The usual buffer of a socket is full after 1 ms in which its owner has no processor.
    let most: u32 = fs::read_to_string("/proc/sys/net/core/rmem_max")?
        .trim()
        .parse()?;
    let (length, buffer) = (SMALL.to_string(), most.min(LARGE_SOCKET).to_string());
    let options = [
        "--udp",
        "--length",
        &length,
        "--bitrate",
        &rate,
        "--window",
        &buffer,
    ];
    let report = iperf(server, seconds, &options)?;
    let number = |key: &str| {
        let value = report["end"]["sum"][key].as_f64();
        value.with_context(|| format!("iperf3: no {key}: {}", report["error"]))
    };
    let came = number("packets")? - number("lost_packets")?;
    Ok((came / number("seconds")?, number("lost_percent")?))
}

/// Its report.
fn iperf(server: SocketAddr, seconds: u32, options: &[&str]) -> Result<Value> {
    let output = Command::new("iperf3")
        .args(["--client", &server.ip().to_string()])
        .args(["--port", &(server.port() + 1).to_string()])
        .args(["--time", &seconds.to_string(), "--json"])
        .args(options)
        .output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}
