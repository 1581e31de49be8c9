//! What an emulation has done so far: counters by class and server, drops by reason, lateness.

mod table;
pub mod watch;

use std::{
    io::IsTerminal as _,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use perturb_clock::now;
use perturb_common::{
    abi::{
        CONTROL_LEASE, ClassCounters, Event, LATENESS_BUCKETS, PacerStat, ServerCounters, ThreadStat,
        lateness_bound, thread_stat,
    },
    units::{Instant, MonoNanos, Nanos, Ticks},
};
use perturb_dataplane::{
    counters::Counters,
    maps::Maps,
    namespace::Namespace,
    programs::{Pacer, Programs},
};
use serde::Serialize;
use tokio::{io::unix::AsyncFd, task::JoinHandle};

use crate::{
    controller::{running::Running, setup::pacer_name},
    registry::Record,
    voice,
};

/// How long packets may take from one device to the next.
const SETTLING: Duration = Duration::from_millis(500);

/// An emulation as `perturb status --json` prints it. What does not apply is absent.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Its name in the registry.
    pub id: String,
    /// Its interfaces, for people.
    #[serde(skip)]
    pub place: String,
    /// Interfaces, by name.
    pub interfaces: Vec<String>,
    /// The private hosts that have them, in the same order; all counters are of these hosts together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The one of them on which the report was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// `fq` or `user`.
    pub pacer: String,
    /// Process that made it.
    pub pid: u32,
    /// When it began, seconds since 1970.
    pub since: u64,
    /// Changes of the profile since.
    pub updates: u32,
    /// Until the programs let traffic pass unless the controller is heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
    /// Interfaces that are gone and waited for (`--follow`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// Until it ends by itself (`--for`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_in_ms: Option<u64>,
    /// Until it undoes itself unless it is confirmed (`--confirm`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_left_ms: Option<u64>,
    /// By class, in the profile's order.
    pub classes: Vec<ClassReport>,
    /// By server.
    pub servers: Vec<ServerReport>,
    /// Drops that the profile asks for, by reason.
    pub drops: Drops,
    /// Drops that it does not ask for: any makes a measurement invalid.
    pub unintended: Unintended,
    /// Where all packets are.
    pub balance: Balance,
    /// Everything else that was counted.
    pub events: Events,
    /// The user pacer's store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// How late held packets left; upper bounds, to an eighth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
}

/// Counters of a class.
#[derive(Debug, Serialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// What this host sends.
    pub egress: Flow,
    /// What it receives.
    pub ingress: Flow,
}

/// Counters of a class in one direction.
#[derive(Debug, Serialize)]
pub struct Flow {
    /// Packets; a super-packet counts once.
    pub packets: u64,
    /// Wire packets.
    pub wire_packets: u64,
    /// Wire bytes.
    pub bytes: u64,
    /// Dropped by emulation.
    pub dropped: u64,
    /// Mean delay of what was not dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_delay_us: Option<f64>,
}

/// Counters of a server.
#[derive(Debug, Serialize)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// Packets served.
    pub packets: u64,
    /// Wire bytes served.
    pub bytes: u64,
    /// Dropped because a buffer was full.
    pub tail_drops: u64,
    /// Dropped by a loss model.
    pub losses: u64,
    /// Time it was busy, summed over its instances.
    pub busy_ms: f64,
    /// Longest backlog that a packet found, as the time it waited.
    pub max_backlog_us: f64,
    /// The time that a packet would wait if it arrived now; absent where there is one for each interface, host or flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog_us: Option<f64>,
    /// Share of the time it was busy: since the emulation began, or since the last look (`--watch`). Above 1 if it has
    /// several instances, or while packets that it is to serve later are already counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
}

/// Intended drops.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "named as in perturb_common::abi::Event")]
pub struct Drops {
    pub tail_drop: u64,
    pub packet_limit: u64,
    pub loss: u64,
    pub burst_loss: u64,
    pub nth_loss: u64,
    /// Given up after too many collisions.
    pub collided: u64,
}

/// Unintended drops.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "named as in perturb_common::abi::Event")]
pub struct Unintended {
    pub horizon: u64,
    pub hold_full: u64,
    pub no_slot: u64,
    pub slot_reused: u64,
    /// By the user pacer: more was to be held than `limits.held` allows.
    pub pacer: u64,
    /// By the devices in which packets wait: a TAP's full ring, sch_fq, a processor's full backlog.
    pub hold_device: u64,
    /// By the devices that split super-packets.
    pub splitter: u64,
}

impl Unintended {
    /// Whether there was none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.horizon == 0 && self.not_held() == 0
    }

    /// Those that could not be held.
    #[must_use]
    pub fn not_held(&self) -> u64 {
        self.hold_full + self.no_slot + self.slot_reused + self.pacer + self.hold_device + self.splitter
    }
}

/// Where the packets are: `captured + duplicated = released + held + dropped + unintended + unaccounted`. A super-packet
/// is one packet, unless it is split: then each of its wire packets is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// Whose path was begun, and those that a splitter dropped before.
    pub captured: u64,
    /// Copies that were made of them.
    pub duplicated: u64,
    /// Sent on to their interface.
    pub released: u64,
    /// That wait, when the controller looked last.
    pub held: u64,
    /// Dropped as the profile asks.
    pub dropped: u64,
    /// Dropped otherwise.
    pub unintended: u64,
    /// On their way between devices, or lost where nobody counts: 0 at rest.
    pub unaccounted: i64,
    /// Dropped by the emulated interfaces and their qdiscs, whosesoever they were: after release, or without perturb.
    pub interface_drops: u64,
}

impl Balance {
    fn new(report: &Report, captured: u64, held: u64, interface_drops: u64) -> Self {
        let Drops {
            tail_drop,
            packet_limit,
            loss,
            burst_loss,
            nth_loss,
            collided,
        } = report.drops;
        let unintended = report.unintended.horizon + report.unintended.not_held();
        let dropped = tail_drop + packet_limit + loss + burst_loss + nth_loss + collided;
        let mut balance = Self {
            captured: captured + report.unintended.splitter,
            duplicated: report.events.duplicated,
            released: report.events.released,
            held,
            dropped,
            unintended,
            unaccounted: 0,
            interface_drops,
        };
        let entered = balance.captured + balance.duplicated;
        let left = balance.released + held + dropped + unintended;
        balance.unaccounted = entered.cast_signed().wrapping_sub(left.cast_signed());
        balance
    }
}

/// What the user pacer holds.
#[derive(Debug, Serialize)]
pub struct Held {
    /// Packets that wait.
    pub packets: u64,
    /// Memory that they take.
    pub bytes: u64,
    /// Whether its threads may have real-time priority.
    pub real_time: bool,
    /// How often a thread gave real-time priority up because it was busy: the kernel stops busy real-time threads.
    pub busy: u64,
    /// How often a thread was kept from running for more than 5 ms while a packet was due.
    pub stalls: u64,
    /// For how long in all.
    pub stalled_ms: f64,
    /// The longest of them.
    pub longest_stall_ms: f64,
    /// The same of each thread.
    pub threads: Vec<PacerThread>,
}

/// A thread of the user pacer.
#[derive(Debug, Serialize)]
pub struct PacerThread {
    /// Packets that it let go.
    pub released: u64,
    /// How often it gave real-time priority up because it was busy.
    pub busy: u64,
    /// How often it was kept from running for more than 5 ms while a packet was due.
    pub stalls: u64,
    /// For how long in all.
    pub stalled_ms: f64,
    /// The longest of them.
    pub longest_stall_ms: f64,
}

/// Other counts.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "named as in perturb_common::abi::Event")]
pub struct Events {
    pub unmatched: u64,
    pub lease_expired: u64,
    pub malformed: u64,
    pub fragment_unknown: u64,
    pub contention: u64,
    pub marked: u64,
    pub not_ecn_capable: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    pub split: u64,
    pub released: u64,
    pub foreign: u64,
    pub no_instance: u64,
    pub inconsistent: u64,
    pub unlogged: u64,
}

/// Quantiles of lateness, by the lead at the time of leaving; packets that left early count as not late.
#[derive(Debug, Serialize)]
pub struct Lateness {
    /// Median, at most this.
    pub p50_us: f64,
    /// 99 % of the packets, at most this.
    pub p99_us: f64,
    /// All, at most this.
    pub max_us: f64,
    /// By how much departures are moved ahead now, to make up for a timer that fires late, and with the user pacer for
    /// the receiver's wake-up, which counts as late as well.
    pub lead_us: f64,
}

impl Report {
    /// Packets that the programs have seen.
    #[must_use]
    pub fn seen(&self) -> u64 {
        let of_class = |class: &ClassReport| class.egress.packets + class.ingress.packets;
        let classified: u64 = self.classes.iter().map(of_class).sum();
        let Events {
            unmatched,
            lease_expired,
            malformed,
            split,
            ..
        } = self.events;
        classified + unmatched + lease_expired + malformed + split
    }

    /// Reads the counters of an emulation that is in force.
    pub fn of(record: &Record) -> anyhow::Result<Option<Self>> {
        if !record.ready || !record.has_owner()? {
            return Ok(None);
        }
        let maps = Maps::by_id(&record.maps)?;
        let lease = maps.control.get(&CONTROL_LEASE, 0).context("reading the lease")?;
        let slots: Vec<u32> = record
            .servers
            .iter()
            .map(|name| record.slots.of(name).unwrap_or_default())
            .collect();
        let counters =
            Counters::read(&maps, record.classes.len() as u32, &slots).context("reading counters")?;
        let count = |event: Event| counters.events[event as usize];
        let figure = |place: u32| {
            maps.pacer_stats
                .get(&place, 0)
                .context("reading the pacer's figures")
        };
        let stat = |stat: PacerStat| figure(stat as u32);
        let classes = record.classes.iter().zip(&counters.classes);
        let servers = record.servers.iter().zip(&slots).zip(&counters.servers);
        let age = SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_secs(record.since))
            .and_then(|since| since.elapsed().ok());
        let here = Namespace::current()?.inode()?;
        let own = record
            .interfaces
            .iter()
            .find(|interface| interface.namespace == here);
        let mut report = Self {
            id: record.id.clone(),
            place: record.place(),
            hosts: record
                .interfaces
                .iter()
                .filter_map(|interface| interface.host.clone())
                .collect(),
            host: own.and_then(|interface| interface.host.clone()),
            interfaces: record
                .interfaces
                .iter()
                .map(|interface| interface.name.clone())
                .collect(),
            pacer: record.pacer.clone(),
            pid: record.process.pid,
            since: record.since,
            updates: record.updates,
            lease_left_ms: (lease != u64::MAX).then(|| left_ms(lease)),
            lost: record
                .interfaces
                .iter()
                .filter(|interface| interface.lost)
                .map(|interface| interface.name.clone())
                .collect(),
            ends_in_ms: record.terms.ends.map(left_ms),
            confirm_left_ms: record.terms.confirm.as_ref().map(|confirm| left_ms(confirm.by)),
            classes: classes
                .map(|(name, [egress, ingress])| ClassReport {
                    name: name.clone(),
                    egress: flow(egress),
                    ingress: flow(ingress),
                })
                .collect(),
            servers: servers
                .map(|((name, &slot), server)| {
                    let state = maps.states.get(&slot, 0).context("reading a server's state")?;
                    Ok(server_report(name, server, Instant(state.0.free), age))
                })
                .collect::<anyhow::Result<_>>()?,
            drops: Drops {
                tail_drop: count(Event::TailDrop),
                packet_limit: count(Event::PacketLimit),
                loss: count(Event::Loss),
                burst_loss: count(Event::BurstLoss),
                nth_loss: count(Event::NthLoss),
                collided: count(Event::Collided),
            },
            unintended: Unintended {
                horizon: count(Event::Horizon),
                hold_full: count(Event::HoldFull),
                no_slot: count(Event::NoSlot),
                slot_reused: count(Event::SlotReused),
                pacer: stat(PacerStat::Dropped)?,
                hold_device: stat(PacerStat::HoldDrops)?,
                splitter: stat(PacerStat::SplitterDrops)?,
            },
            balance: Balance::default(),
            events: Events {
                unmatched: count(Event::Unmatched),
                lease_expired: count(Event::LeaseExpired),
                malformed: count(Event::Malformed),
                fragment_unknown: count(Event::FragmentUnknown),
                contention: count(Event::Contention),
                marked: count(Event::Marked),
                not_ecn_capable: count(Event::NotEcnCapable),
                duplicated: count(Event::Duplicated),
                corrupted: count(Event::Corrupted),
                split: count(Event::Split),
                released: count(Event::Released),
                foreign: count(Event::Foreign),
                no_instance: count(Event::NoInstance),
                inconsistent: count(Event::Inconsistent),
                unlogged: count(Event::Unlogged),
            },
            held: if record.pacer == pacer_name(Pacer::User) {
                Some(Held {
                    packets: stat(PacerStat::HeldPackets)?,
                    bytes: stat(PacerStat::HeldBytes)?,
                    real_time: stat(PacerStat::RealTime)? != 0,
                    busy: stat(PacerStat::Busy)?,
                    stalls: stat(PacerStat::Stalls)?,
                    stalled_ms: stat(PacerStat::StalledNanos)? as f64 / 1e6,
                    longest_stall_ms: stat(PacerStat::LongestStall)? as f64 / 1e6,
                    threads: (0..stat(PacerStat::Threads)? as u32)
                        .map(|number| {
                            let stat = |stat| figure(thread_stat(number, stat));
                            Ok(PacerThread {
                                released: stat(ThreadStat::Released)?,
                                busy: stat(ThreadStat::Busy)?,
                                stalls: stat(ThreadStat::Stalls)?,
                                stalled_ms: stat(ThreadStat::StalledNanos)? as f64 / 1e6,
                                longest_stall_ms: stat(ThreadStat::LongestStall)? as f64 / 1e6,
                            })
                        })
                        .collect::<anyhow::Result<_>>()?,
                })
            } else {
                None
            },
            lateness: lateness(&counters.lateness, counters.lead.at(MonoNanos(now()))),
        };
        report.balance = Balance::new(
            &report,
            count(Event::Captured),
            stat(PacerStat::HeldPackets)?,
            stat(PacerStat::InterfaceDrops)?,
        );
        Ok(Some(report))
    }

    /// What an emulation of this process has done, once no packet is between its devices; after half a second at the latest.
    pub fn settled(running: &mut Running) -> anyhow::Result<Option<Self>> {
        let start = std::time::Instant::now();
        loop {
            running.publish()?;
            let report = Self::of(&running.record)?;
            let at_rest = report
                .as_ref()
                .is_none_or(|report| report.balance.unaccounted == 0);
            if at_rest || start.elapsed() > SETTLING {
                return Ok(report);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How long it is until an instant.
fn left_ms(instant: u64) -> u64 {
    instant.saturating_sub(now()) / 1_000_000
}

fn flow(counters: &ClassCounters) -> Flow {
    let kept = counters.packets - counters.dropped.min(counters.packets);
    Flow {
        packets: counters.packets,
        wire_packets: counters.segments,
        bytes: counters.bytes,
        dropped: counters.dropped,
        mean_delay_us: (kept > 0).then(|| counters.delay as f64 / kept as f64 / 1e3),
    }
}

/// `free` is when the only instance is free again; 0 if it never served, or if there are several.
fn server_report(
    name: &str,
    counters: &ServerCounters,
    free: Instant,
    age: Option<Duration>,
) -> ServerReport {
    let micros = |ticks: u64| Ticks(ticks).nanos().0 as f64 / 1e3;
    let wait = free.ceil_nanos().0.saturating_sub(now());
    let busy = Duration::from_nanos(Ticks(counters.busy).nanos().0);
    ServerReport {
        name: name.into(),
        packets: counters.packets,
        bytes: counters.bytes,
        tail_drops: counters.tail_drops,
        losses: counters.losses,
        busy_ms: micros(counters.busy) / 1e3,
        max_backlog_us: micros(counters.max_backlog),
        backlog_us: (free.0 != 0 || counters.packets == 0).then_some(wait as f64 / 1e3),
        // The age is known to a second.
        utilization: age
            .filter(|age| *age >= Duration::from_secs(1))
            .map(|age| busy.as_secs_f64() / age.as_secs_f64()),
    }
}

fn lateness(histogram: &[u64; LATENESS_BUCKETS as usize], lead: Nanos) -> Option<Lateness> {
    let total: u64 = histogram.iter().sum();
    if total == 0 {
        return None;
    }
    let bound = |share: f64| {
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in (0..).zip(histogram) {
            seen += count;
            if seen >= wanted {
                return lateness_bound(bucket) as f64 / 1e3;
            }
        }
        f64::INFINITY
    };
    Some(Lateness {
        p50_us: bound(0.5),
        p99_us: bound(0.99),
        max_us: bound(1.0),
        lead_us: lead.0 as f64 / 1e3,
    })
}

/// A line on standard error that shows the running totals, if that is a terminal.
pub struct LiveLine {
    on: bool,
}

impl LiveLine {
    /// Nothing is shown if `quiet`.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self {
            on: !quiet && std::io::stderr().is_terminal(),
        }
    }

    /// Shows the totals now.
    pub fn show(&mut self, running: &Running) -> anyhow::Result<()> {
        if !self.on {
            return Ok(());
        }
        // Another command may have changed the profile since.
        let record = Record::read(&running.record.id)?.unwrap_or_else(|| running.record.clone());
        let Some(report) = Report::of(&record)? else {
            return Ok(());
        };
        let total = |pick: fn(&Flow) -> u64| -> u64 {
            report
                .classes
                .iter()
                .map(|class| pick(&class.egress) + pick(&class.ingress))
                .sum()
        };
        let mut line = format!(
            "{} packets, {:.1} MB, {} dropped",
            total(|flow| flow.packets),
            total(|flow| flow.bytes) as f64 / 1e6,
            total(|flow| flow.dropped),
        );
        if let Some(lateness) = &report.lateness {
            line += &format!(", 99 % at most {:.0} µs late", lateness.p99_us);
        }
        if !report.unintended.is_none() {
            line += &format!(
                ", UNINTENDED: {} beyond the horizon, {} not held",
                report.unintended.horizon,
                report.unintended.not_held()
            );
        }
        voice::say(format!("\r\x1b[K{line}"));
        Ok(())
    }

    /// Ends the line.
    pub fn finish(&mut self) {
        if self.on {
            voice::say("\n".into());
        }
        voice::settle();
    }
}

/// Says on standard error if packets were dropped that the profile does not drop.
pub fn warn_of_unintended_drops(running: &mut Running) -> anyhow::Result<()> {
    let Some(report) = Report::settled(running)? else {
        return Ok(());
    };
    if report.balance.unaccounted != 0 {
        eprintln!(
            "perturb: warning: {} packets were captured and came out nowhere, and no counter says why: do not trust the \
             result; look for drops on the devices whose names begin with `pt` (`ip -s -s link`)",
            report.balance.unaccounted
        );
    }
    if !report.unintended.is_none() {
        eprintln!(
            "perturb: warning: {} packets were beyond the horizon and {} could not be held: the profile does not ask \
             for these drops, so do not trust the result; raise `horizon` or `limits.held`, or give servers a `buffer`",
            report.unintended.horizon,
            report.unintended.not_held()
        );
    }
    Ok(())
}

/// Passes the programs' messages on to standard error until the handle is dropped.
pub fn follow_logs(programs: &mut Programs) -> anyhow::Result<LogFollower> {
    let logger = programs
        .log_reader(&STDERR)
        .context("reading the programs' messages")?;
    let task = tokio::task::spawn(async move {
        // SAFETY: the reader owns its descriptor, and is not dropped before the registration.
        let Ok(mut ready) = (unsafe { AsyncFd::register(logger) }) else {
            return;
        };
        loop {
            let Ok(mut guard) = ready.readable_mut().await else {
                return;
            };
            guard.get_inner_mut().flush();
            guard.clear_ready();
        }
    });
    Ok(LogFollower(task))
}

/// Reads the programs' messages as long as it lives.
pub struct LogFollower(JoinHandle<()>);

impl Drop for LogFollower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct ToStderr;

static STDERR: ToStderr = ToStderr;

impl log::Log for ToStderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        voice::say(format!("perturb: kernel: {}\n", record.args()));
    }

    fn flush(&self) {}
}
