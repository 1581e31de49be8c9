//! `perturb pattern`: programs of known communication on private hosts, one process on each.
//!
//! The first process starts the others by `perturb on`, as mpirun does with its agent.

use std::{
    env,
    net::{IpAddr, ToSocketAddrs as _},
    process::{Child, Command as Process, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand, ValueEnum};
use perturb_workloads::{
    collective::Algorithm,
    pattern::{Exchange, Pattern, Program},
};

use crate::cli::{
    quantity,
    time::{self, within},
};

const EXAMPLES: &str = "\
Examples:
  perturb run configs/simple.yaml -- perturb pattern reads --reads 100
  perturb run configs/lan-1gbit.yaml --hosts 4 -- perturb pattern short-all-to-all --rounds 5 --messages 100
  perturb run configs/lan-1gbit.yaml --hosts 4 -- perturb pattern all-to-all --algorithm alltoall-b --rounds 20 --message 16KiB

Prints one JSON object: run_time_s, messages (of the first process), failed_locks.";

/// Arguments of `perturb pattern`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PatternArgs {
    #[command(subcommand)]
    pattern: Command,
    /// Which process this is; without it, the first, which starts the others.
    #[arg(long, global = true, hide = true)]
    rank: Option<usize>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Two hosts: so many requests, each after the reply before
    Reads {
        /// How many.
        #[arg(long)]
        reads: u64,
    },
    /// Two hosts: so many datagrams at once
    Burst {
        /// How many.
        #[arg(long)]
        messages: u64,
    },
    /// Two hosts: so many datagrams, one per interval
    Paced {
        /// How many.
        #[arg(long)]
        messages: u64,
        /// Time between two, e.g. 200us.
        #[arg(long, value_parser = within(time::WORK_OR_NONE))]
        interval: Duration,
    },
    /// Each process reads values of others, one after another: EM3D(read)
    BlockingReads {
        /// How many.
        #[arg(long)]
        reads: u64,
    },
    /// Each process writes values to others without waiting: EM3D(write)
    PipelinedWrites {
        /// How many.
        #[arg(long)]
        writes: u64,
    },
    /// Rounds of short messages from all to all: Radix
    ShortAllToAll {
        /// Rounds.
        #[arg(long)]
        rounds: u64,
        /// Messages to each other process in a round.
        #[arg(long)]
        messages: u64,
    },
    /// Rounds of bulk transfers from all to all: Sample
    BulkAllToAll {
        /// Rounds.
        #[arg(long)]
        rounds: u64,
        /// Bytes to each other process in a round.
        #[arg(long)]
        bytes: u64,
    },
    /// Rounds of a collective of known algorithm, one after another
    AllToAll {
        /// Who sends to whom in which order: alltoall-a or alltoall-b, as `perturb rto` has them.
        #[arg(long, value_enum)]
        algorithm: AllToAll,
        /// Rounds.
        #[arg(long)]
        rounds: u64,
        /// Size of each message, e.g. 16KiB.
        #[arg(long, value_parser = quantity::message)]
        message: u64,
    },
    /// Task queues, stealing, and locks that are contended for: Barnes
    TaskQueue {
        /// How many tasks.
        #[arg(long)]
        tasks: u64,
        /// Computation of one, e.g. 200us.
        #[arg(long, value_parser = within(time::WORK_OR_NONE))]
        work: Duration,
    },
}

/// [`Algorithm`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum AllToAll {
    /// Each step waits for its send and its receive.
    AlltoallA,
    /// Each step waits for its send only.
    AlltoallB,
}

impl Command {
    fn pattern(self) -> Pattern {
        match self {
            Self::Reads { reads } => Pattern::Datagrams(Exchange::Reads(reads)),
            Self::Burst { messages } => Pattern::Datagrams(Exchange::Burst(messages)),
            Self::Paced { messages, interval } => Pattern::Datagrams(Exchange::Paced(messages, interval)),
            Self::BlockingReads { reads } => Pattern::Mesh(Program::Reads(reads)),
            Self::PipelinedWrites { writes } => Pattern::Mesh(Program::Writes(writes)),
            Self::ShortAllToAll { rounds, messages } => {
                Pattern::Mesh(Program::ShortAllToAll { rounds, messages })
            }
            Self::BulkAllToAll { rounds, bytes } => Pattern::Mesh(Program::BulkAllToAll { rounds, bytes }),
            Self::AllToAll {
                algorithm,
                rounds,
                message,
            } => Pattern::Rounds {
                algorithm: match algorithm {
                    AllToAll::AlltoallA => Algorithm::AlltoallA,
                    AllToAll::AlltoallB => Algorithm::AlltoallB,
                },
                rounds,
                message,
            },
            Self::TaskQueue { tasks, work } => Pattern::Mesh(Program::Tasks { tasks, work }),
        }
    }
}

/// Runs the subcommand; its exit code.
pub fn run(args: &PatternArgs) -> anyhow::Result<u8> {
    let hosts = env::var("PERTURB_HOSTS").unwrap_or_default();
    let hosts: Vec<&str> = hosts.split_whitespace().collect();
    ensure!(
        hosts.len() >= 2,
        "there are no private hosts here; run it inside `perturb run PROFILE -- …`"
    );
    let addresses = hosts
        .iter()
        .map(|host| {
            // IPv4 where there is one: a host's first address by its number.
            let found: Vec<IpAddr> = (*host, 0)
                .to_socket_addrs()
                .with_context(|| format!("finding {host}"))?
                .map(|address| address.ip())
                .collect();
            let v4 = found.iter().find(|address| address.is_ipv4());
            v4.or(found.first())
                .copied()
                .with_context(|| format!("{host} has no address"))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let pattern = args.pattern.pattern();
    let rank = args.rank.unwrap_or(0);
    let others = match rank {
        0 => Some(Others::start(&hosts[..pattern.processes(hosts.len())])?),
        _ => None,
    };
    let outcome = pattern.run(rank, &addresses)?;
    if let Some(others) = others {
        others.wait()?;
        println!("{}", serde_json::to_string(&outcome)?);
    }
    Ok(0)
}

/// The processes on the other hosts; they end with this one's PID namespace at the latest.
struct Others(Vec<Child>);

impl Others {
    /// Starts this command on each host but the first.
    fn start(hosts: &[&str]) -> anyhow::Result<Self> {
        let program = env::current_exe().context("finding this executable")?;
        let arguments: Vec<_> = env::args_os().skip(1).collect();
        let start = |(rank, host): (usize, &&str)| {
            let mut process = Process::new(&program);
            process
                .args(["on", host, "--"])
                .arg(&program)
                .args(&arguments)
                .args(["--rank", &rank.to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            process
                .spawn()
                .with_context(|| format!("starting a process on {host}"))
        };
        let others = hosts.iter().enumerate().skip(1).map(start);
        Ok(Self(others.collect::<anyhow::Result<_>>()?))
    }

    fn wait(self) -> anyhow::Result<()> {
        for mut child in self.0 {
            let status = child.wait().context("waiting for the other processes")?;
            ensure!(status.success(), "another process ended with {status}");
        }
        Ok(())
    }
}
