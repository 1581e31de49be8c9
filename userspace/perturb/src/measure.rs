//! `perturb measure`: the LogGP and PlogP parameters of a real path, as a profile.
//!
//! ```text
//! control (TCP: who sends what when) ─┬─► path (one direction: trains)   ─┬─► output (profile, network table)
//!                                     └─► groups (b(h), d(h))             ┘
//! ```
//!
//! Model: both directions are measured alike, by trains whose receiver notes the kernel's stamps; the latency, which
//! needs one clock, by round trips less what the other host says it took. It is half of a round trip: if the two ways
//! differ, their mean.

pub mod control;
pub mod groups;
pub mod output;
pub mod path;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use perturb_emulator::status::{self, Bystander, Checked};
use perturb_present::measured;
use perturb_stats::median;

use crate::{
    cli::exit::{DONE, FAILED},
    estimate::train,
    probe::{
        endpoint::{Endpoint, Receipt, Sent, Train},
        message::{WIRE_V4, WIRE_V6},
    },
};
use control::Peer;
use output::Measured;
use path::{Direction, Effort, PAYLOADS};

/// Where `serve` listens, TCP and UDP, unless it is told otherwise.
const PORT: u16 = 4798;
/// Round trips for the latency.
const TRIPS: u32 = 40;
/// What a path may take one way.
const LONGEST: Duration = Duration::from_secs(2);
const THOROUGH: Effort = Effort {
    lone: 100,
    bursts: 9,
    burst_us: 60_000.0,
};
const QUICK: Effort = Effort {
    lone: 30,
    bursts: 5,
    burst_us: 25_000.0,
};

/// Arguments of `perturb measure`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Measure {
    #[command(subcommand)]
    command: Option<Command>,
    /// A host where `perturb measure serve` runs: name or address, with :PORT if not the usual one.
    #[arg(long, value_name = "HOST", required_unless_present = "groups")]
    peer: Option<String>,
    /// Two groups of hosts that serve, HOST,HOST,…/HOST,HOST,…: the bandwidth b(h) and the buffer d(h) between them.
    #[arg(long, value_name = "GROUPS", conflicts_with_all = ["peer", "profile", "network", "quick"], value_parser = two_groups)]
    groups: Option<Groups>,
    /// Write the profile that emulates the path, for `apply`.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Write one-way times over sizes, for `predict whatif`.
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// Fewer samples.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be measured: answer, and send when asked; until interrupted
    Serve {
        /// Where to listen, TCP and UDP.
        #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))]
        listen: SocketAddr,
    },
}

/// Names of the hosts of two groups.
#[derive(Clone, Debug)]
struct Groups([Vec<String>; 2]);

fn two_groups(text: &str) -> Result<Groups, String> {
    let names = |group: &str| {
        group
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let groups = text
        .split_once('/')
        .map(|(left, right)| [names(left), names(right)]);
    match groups {
        Some(groups) if groups.iter().flatten().all(|name| !name.is_empty()) => Ok(Groups(groups)),
        _ => Err("write HOST,HOST,…/HOST,HOST,…".into()),
    }
}

/// Measures, or serves; returns the exit code.
pub fn run(args: &Measure) -> anyhow::Result<u8> {
    match (&args.command, &args.groups, &args.peer) {
        (Some(Command::Serve { listen }), ..) => {
            let (listener, endpoint) =
                control::bind(*listen).with_context(|| format!("listening on {listen}, TCP and UDP"))?;
            eprintln!("measure: serving on {}", listener.local_addr()?);
            match control::serve(&listener, &endpoint)? {}
        }
        (None, Some(Groups([left, right])), _) => {
            let connect = |names: &[String]| {
                names
                    .iter()
                    .map(|name| connect(name))
                    .collect::<anyhow::Result<Vec<_>>>()
            };
            let (checked, looked) =
                checked(|| Ok(groups::measure(&mut connect(left)?, &mut connect(right)?)?))?;
            if args.json {
                println!("{}", serde_json::to_string_pretty(&checked)?);
            } else {
                print_groups(&checked.result);
            }
            conclude(&checked, looked)
        }
        (None, None, Some(peer)) => {
            let (checked, looked) = checked(|| measure(peer, if args.quick { &QUICK } else { &THOROUGH }))?;
            let measured = &checked.result;
            for (file, text) in [
                (&args.profile, measured.profile()),
                (&args.network, measured.network()),
            ] {
                if let Some(file) = file {
                    fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
                }
            }
            if args.json {
                println!("{}", serde_json::to_string_pretty(&checked)?);
            } else {
                print!("{measured}");
                if args.profile.is_none() {
                    print!("{}", measured.profile());
                }
            }
            conclude(&checked, looked)
        }
        (None, None, None) => anyhow::bail!("name a --peer, or two --groups"),
    }
}

/// Measures, and finds out whether an emulation of this machine did to packets meanwhile what no profile asks for.
fn checked<T>(
    measure: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(Checked<T>, anyhow::Result<()>)> {
    let bystander = Bystander::begin()?;
    let result = measure()?;
    Ok(bystander.check(result))
}

/// Says what speaks against a result, once that is told; the exit code.
fn conclude<T>(checked: &Checked<T>, looked: anyhow::Result<()>) -> anyhow::Result<u8> {
    looked?;
    Ok(match checked.faults.as_deref() {
        None | Some([]) => DONE,
        Some(faults) => {
            status::warn(faults);
            FAILED
        }
    })
}

fn print_groups(between: &groups::Between) {
    for step in &between.steps {
        println!(
            "{} pairs: {} Mbit/s, longest wait {} us, {} % lost",
            step.pairs,
            measured(step.bytes_s * 8e-6),
            measured(step.longest_wait_us),
            measured(100.0 * step.loss)
        );
    }
    match (between.bandwidth_bytes_s, between.buffer_us) {
        (Some(rate), Some(depth)) => println!("b {} Mbit/s, d {} us", measured(rate * 8e-6), measured(depth)),
        (Some(rate), None) => println!("b {} Mbit/s, d more than was filled", measured(rate * 8e-6)),
        (None, _) => {
            println!("the sum still grows: more pairs are needed to fill what is between the groups");
        }
    }
}

/// Connects to the first of a name's addresses where somebody serves.
fn connect(name: &str) -> anyhow::Result<Peer> {
    let resolve = |name: &str| -> io::Result<Vec<SocketAddr>> {
        match name.to_socket_addrs() {
            Ok(found) => Ok(found.collect()),
            Err(_) => Ok((name, PORT).to_socket_addrs()?.collect()),
        }
    };
    let addresses = resolve(name).with_context(|| format!("finding the address of {name}"))?;
    let mut last = None;
    for address in addresses {
        match Peer::connect(name, address) {
            Ok(peer) => return Ok(peer),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error.into()),
        None => anyhow::bail!("{name} has no address"),
    }
}

/// Measures the path to a peer.
fn measure(name: &str, effort: &Effort) -> anyhow::Result<Measured> {
    let mut peer = connect(name)?;
    let here = Endpoint::start(UdpSocket::bind((peer.own, 0))?)?;
    let header = match peer.own {
        IpAddr::V4(_) => WIRE_V4,
        IpAddr::V6(v6) if Ipv6Addr::to_ipv4_mapped(&v6).is_some() => WIRE_V4,
        IpAddr::V6(_) => WIRE_V6,
    };
    let own = here.address()?;
    let to = peer.address;
    let mut whole = Vec::new();
    let mut outside = Vec::new();
    for _ in 0..TRIPS {
        if let Some(trip) = here.round_trip(to, (1, 0, PAYLOADS[0]), 2 * LONGEST)? {
            whole.push((trip.answer.read - trip.first.at) as f64 / 1e3);
            // Handed over here, answered there, stamped here: one clock, and what the other host took is known.
            let there = trip.last.returned + trip.answer.turnaround;
            outside.push(trip.answer.arrival.saturating_sub(there) as f64 / 1e3);
        }
    }
    let round_trip_us = median(&whole).with_context(|| {
        format!(
            "{name} answers over TCP, but no UDP datagram comes back; does a firewall drop port {}?",
            to.port()
        )
    })?;
    let longest = Duration::from_nanos((4e3 * round_trip_us) as u64) + Duration::from_millis(100);

    let mut outward = |train: &Train, patience: Duration| -> anyhow::Result<(Vec<Sent>, Vec<Receipt>)> {
        let number = here.number();
        let sent = here.send(to, number, train)?;
        Ok((sent, peer.take(number, train.datagrams(), patience)?))
    };
    let out = path::measure(&mut outward, header, effort, longest).context("measuring the way there")?;
    let mut inwardly = |train: &Train, patience: Duration| -> anyhow::Result<(Vec<Sent>, Vec<Receipt>)> {
        let number = here.number();
        let sent = peer.send(own, number, *train)?;
        Ok((sent, here.take(number, train.datagrams(), patience)))
    };
    let inward = path::measure(&mut inwardly, header, effort, longest).context("measuring the way back")?;

    let service = |direction: &Direction| {
        let smallest = &direction.sizes[0];
        if smallest.sender_limited {
            0.0
        } else {
            smallest.gap_us
        }
    };
    let latency_us = median(&outside).unwrap_or(0.0) / 2.0 - f64::midpoint(service(&out), service(&inward));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Measured {
        peer: name.into(),
        latency_us: latency_us.max(0.0),
        round_trip_us,
        both_ways: both_ways(&here, &mut peer, [&out, &inward], effort, longest)?,
        out,
        inward,
        version: env!("CARGO_PKG_VERSION"),
        kernel: format!("Linux {}", kernel.trim()),
    })
}

/// How much longer full frames take when both directions are at work (PlogPT, section III).
fn both_ways(
    here: &Endpoint,
    peer: &mut Peer,
    alone: [&Direction; 2],
    effort: &Effort,
    longest: Duration,
) -> anyhow::Result<[f64; 2]> {
    let [out_us, in_us] = alone.map(|direction| direction.sizes.last().map_or(1.0, |size| size.gap_us));
    let spacing = out_us.max(in_us).max(1.0);
    let burst = (effort.burst_us / spacing).clamp(6.0, 64.0);
    let train = Train {
        messages: burst as u32 * effort.bursts,
        segments: 1,
        payload: PAYLOADS[PAYLOADS.len() - 1],
        burst: burst as u32,
        interval_ns: (2e6 + burst * 2.0 * 1e3 * spacing.max(10.0)) as u64,
    };
    let (to, own) = (peer.address, here.address()?);
    let numbers = [here.number(), here.number()];
    let (sent, theirs) = thread::scope(|scope| {
        let asked = scope.spawn(|| peer.send(own, numbers[1], train));
        let sent = here.send(to, numbers[0], &train);
        let theirs = asked
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, theirs)
    });
    let received = here.take(numbers[1], train.datagrams(), longest);
    let told = peer.take(numbers[0], train.datagrams(), longest)?;
    let spacing_of = |sent: &[Sent], receipts: &[Receipt]| {
        let spacings = train::spacings(&train, sent, receipts);
        median(
            &spacings
                .iter()
                .map(|spacing| spacing.arrivals_us)
                .collect::<Vec<_>>(),
        )
    };
    let both = [spacing_of(&sent?, &told), spacing_of(&theirs?, &received)];
    let ratio = |seen: Option<f64>, alone: f64| {
        seen.context("nothing arrived while both directions were at work")
            .map(|seen| seen / alone)
    };
    Ok([ratio(both[0], out_us)?, ratio(both[1], in_us)?])
}
