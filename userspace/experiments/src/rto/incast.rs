//! Incast: goodput over the number of servers that answer a client at once, for several kinds of TCP (Phanishayee et al.,
//! FAST 2008; Vasudevan et al., SIGCOMM 2009).
//!
//! The client is the first host; connection k is a server on one of the others in turn. A kind of TCP has hosts and an
//! emulation of its own, a number of servers connections of its own. One thread looks after all of them.

mod kinds;
mod output;

use std::{
    collections::BTreeMap,
    fs,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

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
use perturb_present::{LiveLine, Parts};
use perturb_profile::{Files, Profile, Topology};
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

pub use self::{
    kinds::{Kind, Load, Port, with_port},
    output::{Sheet, svg},
};

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
#[derive(Debug, Default, Serialize)]
struct Curve {
    congestion_control: String,
    /// The smallest time-out; absent if neither profile nor command says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rto_min_ms: Option<f64>,
    /// RACK and tail loss probes; absent if the command does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rack_tlp: Option<bool>,
    /// Whether it asks for ECN; absent if the command does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ecn: Option<bool>,
    points: Vec<Point>,
    /// What could not be measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Failed>,
}

/// What could not be measured.
#[derive(Debug, Serialize)]
struct Failed {
    /// Absent if it is the rest of the curve.
    #[serde(skip_serializing_if = "Option::is_none")]
    senders: Option<u32>,
    reason: String,
}

/// So many servers.
#[derive(Debug, Serialize)]
struct Point {
    senders: u32,
    /// One way, of a small message, measured.
    latency_us: f64,
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

/// What [`measure`] has found.
#[derive(Debug)]
pub struct Found {
    pub results: Results,
    /// What speaks against them.
    pub faults: Vec<Fault>,
    /// A signal came before the end.
    pub interrupted: bool,
}

impl Results {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.curves.iter().all(|curve| curve.points.is_empty())
    }

    /// Whether something could not be measured.
    #[must_use]
    pub fn lacks_points(&self) -> bool {
        self.curves.iter().any(|curve| !curve.failed.is_empty())
    }
}

/// Measures all curves. One that fails, or one number of servers, leaves the others as they are.
///
/// # Errors
/// If the one curve there is cannot be measured at all.
pub fn measure(
    profile: &Profile,
    files: &Files,
    coarse: bool,
    pacing: Pacing,
    plan: Plan,
    line: LiveLine,
) -> anyhow::Result<Found> {
    let tick = ClockId::CLOCK_MONOTONIC_COARSE.res();
    let tick: Duration = tick.context("asking for the kernel's tick")?.into();
    let blocks = plan.servers.len() * (plan.warmup + plan.blocks) as usize;
    let parts = Arc::new(Parts::new(line, plan.kinds.len() * blocks));
    let plan = Arc::new(plan);
    let (mut curves, mut faults, mut interrupted) = (Vec::new(), Vec::new(), false);
    let is_alone = plan.kinds.len() == 1;
    for (place, kind) in plan.kinds.iter().enumerate() {
        let profile = kind.of(profile);
        let curve = Arc::new(Mutex::new(Curve {
            congestion_control: kind.control.clone().unwrap_or_default(),
            rto_min_ms: profile.tcp.rto_min.map(|least| least.nanos() as f64 / 1e6),
            rack_tlp: kind.rack_tlp,
            ecn: kind.ecn,
            ..Curve::default()
        }));
        let addresses = lab::all_addresses(plan.hosts);
        let prepared = Prepared::between(profile.clone(), files.clone(), &addresses)?.coarse_if(coarse);
        let (kind, plan, parts) = (kind.clone(), Arc::clone(&plan), Arc::clone(&parts));
        let shared = Arc::clone(&curve);
        let ended = with_hosts(plan.hosts, &prepared, pacing, move |lab, record| {
            let turn = Turn {
                profile,
                tick,
                kind,
                plan,
                record,
                parts,
                done: place * blocks,
                curve: shared,
            };
            turn.start(lab)
        });
        let mut curve = std::mem::take(&mut *locked(&curve));
        match ended {
            Ok(Some(((), new))) => faults.extend(new),
            Ok(None) => interrupted = true,
            Err(error) if is_alone && curve.points.is_empty() => return Err(error),
            Err(error) => curve.failed.push(Failed {
                senders: None,
                reason: format!("{error:#}"),
            }),
        }
        curves.push(curve);
        if interrupted {
            break;
        }
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
    Ok(Found {
        results,
        faults,
        interrupted,
    })
}

fn locked(curve: &Mutex<Curve>) -> MutexGuard<'_, Curve> {
    curve.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kind of TCP, under emulation.
struct Turn {
    profile: Profile,
    /// Of the kernel's timers.
    tick: Duration,
    kind: Kind,
    plan: Arc<Plan>,
    record: Record,
    /// Blocks of all kinds.
    parts: Arc<Parts<LiveLine>>,
    /// Those of the kinds before.
    done: usize,
    /// What has been measured so far.
    curve: Arc<Mutex<Curve>>,
}

impl Turn {
    fn start(self, lab: &Lab) -> anyhow::Result<oneshot::Receiver<anyhow::Result<()>>> {
        let hosts = lab.hosts.iter().map(|host| host.namespace.try_clone());
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let (sender, receiver) = oneshot::channel();
        thread::Builder::new()
            .name("incast".into())
            // Nobody waits any more if the command was interrupted.
            .spawn(move || drop(sender.send(self.measure(&hosts))))
            .context("starting the experiment's thread")?;
        Ok(receiver)
    }

    fn measure(&self, hosts: &[Namespace]) -> anyhow::Result<()> {
        if self.kind.control.is_none() {
            let control = "/proc/sys/net/ipv4/tcp_congestion_control";
            let control = hosts[0].enter(|| fs::read_to_string(control))??;
            control
                .trim()
                .clone_into(&mut locked(&self.curve).congestion_control);
        }
        let each = (self.plan.warmup + self.plan.blocks) as usize;
        for (place, &servers) in self.plan.servers.iter().enumerate() {
            let point = self.point(hosts, servers, self.done + place * each);
            self.parts.rest();
            let mut curve = locked(&self.curve);
            match point {
                Ok(point) => curve.points.push(point),
                Err(error) => curve.failed.push(Failed {
                    senders: Some(servers),
                    reason: format!("{error:#}"),
                }),
            }
        }
        Ok(())
    }

    fn connect(&self, hosts: &[Namespace], number: u32) -> anyhow::Result<Incast> {
        let (client, servers) = hosts.split_first().context("a lab without hosts")?;
        let address: IpAddr = lab::addresses(1).0.into();
        let control = self.kind.control.as_deref();
        let door = client.enter(|| Door::open((address, PORT).into(), control))?;
        let door = door.with_context(|| format!("listening at {}", lab::name(1)))?;
        let ends = servers.iter().zip(2..).cycle().take(number as usize);
        let ends = ends.map(|(server, number)| {
            let to = || format!("connecting {} to {}", lab::name(number), lab::name(1));
            let server = server.enter(|| door.connect())?.with_context(to)?;
            Ok((door.accept().with_context(to)?, server))
        });
        Ok(Incast::new(ends.collect::<anyhow::Result<Vec<_>>>()?)?)
    }

    /// `done`: blocks of the points before.
    fn point(&self, hosts: &[Namespace], servers: u32, done: usize) -> anyhow::Result<Point> {
        let mut incast = self.connect(hosts, servers)?;
        let mut trips = Vec::new();
        for _ in 0..PRIMING {
            trips.push(incast.block(&[TINY], PATIENCE)?.as_secs_f64());
            incast.block(&vec![TINY; servers as usize], PATIENCE)?;
        }
        let latency = Duration::from_secs_f64(median(&trips).unwrap_or(0.0) / 2.0);
        let control = locked(&self.curve).congestion_control.clone();
        let pieces = self.plan.load.pieces(servers);
        let begin = |number: u32| {
            let done = done + number as usize;
            self.parts
                .begin(done, format_args!("{control}, {servers} senders"));
        };
        for number in 0..self.plan.warmup {
            begin(number);
            incast.block(&pieces, PATIENCE)?;
        }
        incast.settle()?;
        let (before, seen) = (counters(hosts)?, Seen::of(&self.record)?);
        let mut blocks_ms = Vec::new();
        for number in 0..self.plan.blocks {
            begin(self.plan.warmup + number);
            blocks_ms.push(incast.block(&pieces, PATIENCE)?.as_secs_f64() * 1e3);
        }
        incast.settle()?;
        let (tcp, now) = (counters(hosts)? - before, Seen::of(&self.record)?);
        let drops_by_server = since(now.drops, &seen.drops);
        let block: u64 = pieces.iter().sum();
        let mbit = |ms: f64| block as f64 * 8e-3 / ms;
        let longest = pieces.iter().copied().max().unwrap_or(0);
        let predicted = predicted(&self.profile, self.tick, servers, longest, latency)?;
        Ok(Point {
            senders: servers,
            latency_us: latency.as_secs_f64() * 1e6,
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
    // `__tcp_set_rto`: a round trip and the smallest time-out, in ticks.
    profile.tcp.rto_min = least.map(|least| whole(Duration::from(least) + 2 * latency, tick).into());
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
