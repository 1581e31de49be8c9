//! Incast: goodput over the number of servers that answer a client at once, for several kinds of TCP (Phanishayee et al.,
//! FAST 2008; Vasudevan et al., SIGCOMM 2009).
//!
//! The client is the first host; connection k is a server on one of the others in turn. A kind of TCP has hosts and an
//! emulation of its own. One thread looks after all connections.

mod output;

use std::{collections::BTreeMap, fs, net::IpAddr, sync::Arc, thread, time::Duration};

use anyhow::Context as _;
use nix::time::ClockId;
use perturb_emulator::{
    conduct::Pacing,
    lab::{self, Lab, Namespace},
    prepared::Prepared,
    registry::Record,
    status::Fault,
};
use perturb_models::plogpt::Beside;
use perturb_present::LiveLine;
use perturb_profile::{Buffer, Files, Layout, Profile, Queue, Size, Topology, Volume};
use perturb_stats::median;
use perturb_workloads::{
    collective::Algorithm,
    incast::{Door, Incast},
};
use serde::Serialize;
use tokio::sync::oneshot;

use super::{
    JITTER,
    counters::TcpCounters,
    experiment::{PATIENCE, drops, servers, since},
    prediction::{Case, collective, is_tree},
    with_hosts,
};

pub use self::output::{Sheet, svg};

/// Where the client listens.
const PORT: u16 = 7119;
/// Tiny blocks before all others: their round trips, and the end of the first segments' immediate acknowledgments.
const PRIMING: usize = 41;
/// Length of their pieces, bytes.
const TINY: u64 = 4;

/// What the two papers show, whose figures these are.
pub const PUBLISHED: &str = "Phanishayee et al. (FAST 2008): with time-outs of 200 ms goodput falls by one to two orders \
    of magnitude once the servers' windows overflow the port's buffer. Vasudevan et al. (SIGCOMM 2009): with 1 ms and \
    less it stays near the link's rate.";

/// What the servers send.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// So many bytes each: the SRU of Phanishayee et al.
    Each(u64),
    /// So many bytes together: the block of Vasudevan et al.
    Together(u64),
}

impl Load {
    /// The pieces of so many servers.
    fn pieces(self, servers: u32) -> Vec<u64> {
        match self {
            Self::Each(piece) => vec![piece; servers as usize],
            Self::Together(block) => {
                let (piece, more) = (block / u64::from(servers), block % u64::from(servers));
                let longer = |number| piece + u64::from(u64::from(number) < more);
                (0..servers).map(longer).collect()
            }
        }
    }
}

/// A kind of TCP; what is absent is as the profile says.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    /// Congestion control, by the kernel's name.
    pub control: Option<String>,
    /// The smallest time-out.
    pub rto_min: Option<Duration>,
    /// RACK and tail loss probes: `tcp_recovery` and `tcp_early_retrans`, both with SACK, without which neither works.
    pub rack_tlp: Option<bool>,
}

/// What the ports of a star are like; what is absent is as the profile says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Port {
    /// Its buffer.
    pub buffer: Option<Size>,
    /// Packets that wait for longer are marked.
    pub mark_above: Option<Duration>,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Hosts, the client's among them.
    pub hosts: u32,
    /// Numbers of servers.
    pub servers: Vec<u32>,
    /// What they send.
    pub load: Load,
    /// Blocks that are measured, for each number of servers.
    pub blocks: u32,
    /// Blocks before them, which open TCP's windows.
    pub warmup: u32,
    /// One curve each.
    pub kinds: Vec<Kind>,
    /// Congestion controls that were asked for and this kernel lacks.
    pub lacking: Vec<String>,
}

/// What came of it; the keys of `perturb rto --senders … --json`.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Its name.
    algorithm: &'static str,
    hosts: u32,
    /// Blocks of each point.
    blocks: u32,
    /// The kernel's timers count these: time-outs are rounded up to whole ones.
    tick_ms: f64,
    /// Congestion controls that were asked for and this kernel lacks.
    lacking: Vec<String>,
    /// What the papers show.
    published: &'static str,
    curves: Vec<Curve>,
}

/// A kind of TCP.
#[derive(Debug, Serialize)]
struct Curve {
    congestion_control: String,
    /// The smallest time-out; absent if neither profile nor command says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rto_min_ms: Option<f64>,
    /// RACK and tail loss probes; absent if the command does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rack_tlp: Option<bool>,
    /// One way, of a small message, measured.
    latency_us: f64,
    points: Vec<Point>,
}

/// So many servers.
#[derive(Debug, Serialize)]
struct Point {
    senders: u32,
    block_bytes: u64,
    /// All blocks' bytes over all blocks' time.
    goodput_mbit_s: f64,
    blocks_ms: Vec<f64>,
    tcp: TcpCounters,
    /// Packets dropped by the emulated network, and marked by its queues.
    drops: u64,
    marks: u64,
    drops_by_server: BTreeMap<String, u64>,
    /// By PlogPT, whose transfers delay one another if they overlap, with one block for itself; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_goodput_mbit_s: Option<f64>,
    /// The same without time-outs.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_without_timeouts_mbit_s: Option<f64>,
}

/// The profile with these ports; nothing if they are to be changed, and it has no star.
#[must_use]
pub fn with_port(mut profile: Profile, port: Port) -> Option<Profile> {
    if port.buffer.is_none() && port.mark_above.is_none() {
        return Some(profile);
    }
    let layout = profile.topology.as_mut().map(|topology| &mut topology.layout);
    let Some(Layout::Star { link }) = layout else {
        return None;
    };
    if let Some(size) = port.buffer {
        link.buffer = Buffer {
            volume: Some(Volume::Bytes(size)),
            packets: None,
        };
    }
    if let Some(wait) = port.mark_above {
        link.queue = Queue::Step {
            threshold: Volume::Delay(wait.into()),
            l4s: false,
        };
        // Else no packet may be marked, but for the congestion controls that ask themselves.
        profile.tcp.ecn = Some(true);
    }
    Some(profile)
}

impl Kind {
    /// The profile with this TCP. The congestion control is that of the connections.
    fn of(&self, profile: &Profile) -> Profile {
        let mut profile = profile.clone();
        let tcp = &mut profile.tcp;
        if self.control.is_some() {
            tcp.congestion_control = None;
        }
        if let Some(least) = self.rto_min {
            tcp.rto_min = Some(least.into());
        }
        if let Some(on) = self.rack_tlp {
            tcp.sack = Some(true);
            (tcp.recovery, tcp.early_retrans) = if on {
                (Some(1), Some(3))
            } else {
                (Some(0), Some(0))
            };
        }
        profile
    }
}

/// Measures all curves, and finds what speaks against them; nothing if a signal came before the end.
pub fn measure(
    profile: &Profile,
    files: &Files,
    coarse: bool,
    pacing: Pacing,
    plan: Plan,
    line: LiveLine,
) -> anyhow::Result<Option<(Results, Vec<Fault>)>> {
    let tick = ClockId::CLOCK_MONOTONIC_COARSE.res();
    let tick: Duration = tick.context("asking for the kernel's tick")?.into();
    let (line, plan) = (Arc::new(line), Arc::new(plan));
    let (mut curves, mut faults) = (Vec::new(), Vec::new());
    for kind in &plan.kinds {
        let profile = kind.of(profile);
        let addresses = lab::all_addresses(plan.hosts);
        let prepared = Prepared::between(profile.clone(), files.clone(), &addresses)?.coarse_if(coarse);
        let (kind, plan, line) = (kind.clone(), Arc::clone(&plan), Arc::clone(&line));
        let curve = with_hosts(plan.hosts, &prepared, pacing, move |lab, record| {
            let turn = Turn {
                profile,
                tick,
                kind,
                plan,
                record,
                line,
            };
            turn.start(lab)
        })?;
        let Some((curve, new)) = curve else {
            return Ok(None);
        };
        curves.push(curve);
        faults.extend(new);
    }
    let results = Results {
        algorithm: Algorithm::Incast.name(),
        hosts: plan.hosts,
        blocks: plan.blocks,
        tick_ms: tick.as_secs_f64() * 1e3,
        lacking: plan.lacking.clone(),
        published: PUBLISHED,
        curves,
    };
    Ok(Some((results, faults)))
}

/// A kind of TCP, under emulation.
struct Turn {
    profile: Profile,
    /// Of the kernel's timers.
    tick: Duration,
    kind: Kind,
    plan: Arc<Plan>,
    record: Record,
    line: Arc<LiveLine>,
}

impl Turn {
    fn start(self, lab: &Lab) -> anyhow::Result<oneshot::Receiver<anyhow::Result<Curve>>> {
        let hosts = lab.hosts.iter().map(|host| host.namespace.try_clone());
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let (sender, receiver) = oneshot::channel();
        thread::Builder::new()
            .name("incast".into())
            // Nobody waits any more if the command was interrupted.
            .spawn(move || drop(sender.send(self.curve(&hosts))))
            .context("starting the experiment's thread")?;
        Ok(receiver)
    }

    fn curve(&self, hosts: &[Namespace]) -> anyhow::Result<Curve> {
        let mut incast = self.connect(hosts)?;
        let mut trips = Vec::new();
        let most = self.plan.servers.iter().copied().max().unwrap_or(1);
        for _ in 0..PRIMING {
            trips.push(incast.block(&[TINY], PATIENCE)?.as_secs_f64());
            incast.block(&vec![TINY; most as usize], PATIENCE)?;
        }
        let latency = Duration::from_secs_f64(median(&trips).unwrap_or(0.0) / 2.0);
        let control = match &self.kind.control {
            Some(control) => control.clone(),
            None => hosts[0]
                .enter(|| fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control"))??
                .trim()
                .to_owned(),
        };
        let points = self.plan.servers.iter();
        let points = points.map(|&servers| self.point(hosts, &mut incast, servers, &control, latency));
        Ok(Curve {
            points: points.collect::<anyhow::Result<_>>()?,
            congestion_control: control,
            rto_min_ms: self.profile.tcp.rto_min.map(|least| least.nanos() as f64 / 1e6),
            rack_tlp: self.kind.rack_tlp,
            latency_us: latency.as_secs_f64() * 1e6,
        })
    }

    fn connect(&self, hosts: &[Namespace]) -> anyhow::Result<Incast> {
        let (client, servers) = hosts.split_first().context("a lab without hosts")?;
        let address: IpAddr = lab::addresses(1).0.into();
        let control = self.kind.control.as_deref();
        let door = client.enter(|| Door::open((address, PORT).into(), control))?;
        let door = door.with_context(|| format!("listening at {}", lab::name(1)))?;
        let most = self.plan.servers.iter().copied().max().unwrap_or(1);
        let ends = servers.iter().zip(2..).cycle().take(most as usize);
        let ends = ends.map(|(server, number)| {
            let to = || format!("connecting {} to {}", lab::name(number), lab::name(1));
            let server = server.enter(|| door.connect())?.with_context(to)?;
            Ok((door.accept().with_context(to)?, server))
        });
        Ok(Incast::new(ends.collect::<anyhow::Result<Vec<_>>>()?)?)
    }

    fn point(
        &self,
        hosts: &[Namespace],
        incast: &mut Incast,
        servers: u32,
        control: &str,
        latency: Duration,
    ) -> anyhow::Result<Point> {
        let pieces = self.plan.load.pieces(servers);
        for _ in 0..self.plan.warmup {
            incast.block(&pieces, PATIENCE)?;
        }
        incast.settle()?;
        let (before, seen) = (counters(hosts)?, Seen::of(&self.record)?);
        let mut blocks_ms = Vec::new();
        for number in 1..=self.plan.blocks {
            blocks_ms.push(incast.block(&pieces, PATIENCE)?.as_secs_f64() * 1e3);
            self.line.show(format_args!(
                "{control}, {servers} senders: block {number} of {}",
                self.plan.blocks
            ));
        }
        self.line.clear();
        incast.settle()?;
        let (tcp, now) = (counters(hosts)? - before, Seen::of(&self.record)?);
        let drops_by_server = since(now.drops, &seen.drops);
        let block: u64 = pieces.iter().sum();
        let mbit = |ms: f64| block as f64 * 8e-3 / ms;
        let longest = pieces.iter().copied().max().unwrap_or(0);
        let predicted = predicted(&self.profile, self.tick, servers, longest, latency)?;
        Ok(Point {
            senders: servers,
            block_bytes: block,
            goodput_mbit_s: mbit(blocks_ms.iter().sum::<f64>() / blocks_ms.len() as f64),
            blocks_ms,
            tcp,
            drops: drops_by_server.values().sum(),
            marks: now.marks - seen.marks.min(now.marks),
            drops_by_server,
            predicted_goodput_mbit_s: predicted.map(|(with, _)| mbit(with)),
            predicted_without_timeouts_mbit_s: predicted.map(|(_, without)| mbit(without)),
        })
    }
}

/// A block's time in ms by PlogPT, with and without time-outs: one server on each host, and time-outs of whole ticks.
fn predicted(
    profile: &Profile,
    tick: Duration,
    servers: u32,
    piece: u64,
    latency: Duration,
) -> anyhow::Result<Option<(f64, f64)>> {
    let has_room = |topology: &Topology| topology.layout.capacity() > servers as usize;
    if !is_tree(profile) || !profile.topology.as_ref().is_some_and(has_room) {
        return Ok(None);
    }
    let mut profile = profile.clone();
    let least = profile.tcp.rto_min;
    profile.tcp.rto_min = least.map(|least| whole(least.into(), tick).into());
    let case = Case {
        profile: &profile,
        hosts: servers + 1,
        beside: &Beside {
            jitter: Some(JITTER),
            ..Beside::default()
        },
        program: &collective(Algorithm::Incast, piece),
    };
    let found = case.predict(latency)?.predicted;
    Ok(found.plogpt_overlapping.zip(found.plogpt_without_timeouts))
}

/// A time in whole ticks, rounded up.
fn whole(time: Duration, tick: Duration) -> Duration {
    let ticks = time.as_nanos().div_ceil(tick.as_nanos().max(1));
    tick.saturating_mul(ticks.try_into().unwrap_or(u32::MAX))
}

/// TCP's, of all hosts.
fn counters(hosts: &[Namespace]) -> anyhow::Result<TcpCounters> {
    let of = |host: &Namespace| anyhow::Ok(host.enter(TcpCounters::here)??);
    let each: Vec<_> = hosts.iter().map(of).collect::<anyhow::Result<_>>()?;
    Ok(each.into_iter().sum())
}

/// What the network has done so far.
struct Seen {
    drops: BTreeMap<String, u64>,
    marks: u64,
}

impl Seen {
    fn of(record: &Record) -> anyhow::Result<Self> {
        let servers = servers(record)?;
        let queues = servers.iter().flat_map(|server| &server.queue);
        Ok(Self {
            marks: queues.map(|queue| queue.marks + queue.threshold_marks).sum(),
            drops: drops(&servers),
        })
    }
}

#[cfg(test)]
mod tests;
