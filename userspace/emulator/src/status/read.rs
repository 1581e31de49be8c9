//! Reads the report off the maps.

use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use perturb_clock::now;
use perturb_common::{
    abi::{CONTROL_LEASE, ClassCounters, PACER_STATS_LEN, ServerCounters},
    queue::{CODEL, DROPPING, PIE, RED, State, pie::ONE, red::FRACTION},
    units::{Instant, MonoNanos, Ticks},
};
use perturb_dataplane::{
    counters::Counters,
    maps::{Maps, MapsError},
    moment::{self, Moment},
    namespace::Namespace,
    programs::Pacer,
};

use super::{
    ClassReport, Flow, Histogram, QueueReport, Report, ServerReport, TimelineReport, counts::Counts,
};
use crate::{registry::Record, told::Told};

impl Report {
    /// Reads the counters of an emulation that is in force.
    pub fn of(record: &Record) -> anyhow::Result<Option<Self>> {
        if !record.ready || !record.has_owner()? {
            return Ok(None);
        }
        match Self::read(record) {
            Ok(report) => Ok(Some(report)),
            // It has ended meanwhile, and its maps are gone.
            Err(_) if !record.has_owner()? => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same; of an emulation that only another perturb can read there is a warning, and nothing else.
    pub fn of_or_tell(record: &Record, told: &mut Told) -> anyhow::Result<Option<Self>> {
        let report = Self::of(record);
        let Err(error) = &report else { return report };
        if !matches!(error.downcast_ref(), Some(MapsError::Version { .. })) {
            return report;
        }
        let why = format!("{}: {error}", record.id);
        if told.is_news(&why) {
            log::warn!("{why}");
        }
        Ok(None)
    }

    fn read(record: &Record) -> anyhow::Result<Self> {
        let maps = Maps::by_id(&record.maps)?;
        let lease = maps.control.get(&CONTROL_LEASE, 0).context("reading the lease")?;
        let slots: Vec<u32> = record
            .in_force
            .servers
            .iter()
            .map(|name| record.in_force.slots.of(name).unwrap_or_default())
            .collect();
        let counters = Counters::read(&maps, record.in_force.classes.len() as u32, &slots)
            .context("reading counters")?;
        let mut figures = [0; PACER_STATS_LEN as usize];
        for (figure, place) in figures.iter_mut().zip(0..) {
            let read = maps.pacer_stats.get(&place, 0);
            *figure = read.context("reading the pacer's figures")?;
        }
        let counts = Counts {
            events: counters.events,
            figures,
        };
        let classes = record.in_force.classes.iter().zip(&counters.classes);
        let servers = record.in_force.servers.iter().zip(&slots).zip(&counters.servers);
        let age = SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_secs(record.since))
            .and_then(|since| since.elapsed().ok());
        let here = Namespace::current()?.inode()?;
        let own = record
            .interfaces
            .iter()
            .find(|interface| interface.namespace == here);
        Ok(Self {
            id: record.id.clone(),
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
            containers: record
                .interfaces
                .iter()
                .filter_map(|interface| Some(interface.container.as_ref()?.name.clone()))
                .collect(),
            pacer: record.pacer.clone(),
            pid: record.process.pid,
            since: record.since,
            updates: record.updates,
            lease_left_ms: (lease != u64::MAX).then(|| left_ms(lease)),
            paused: record.terms.paused,
            lost: record
                .interfaces
                .iter()
                .filter(|interface| interface.lost)
                .map(|interface| interface.name.clone())
                .collect(),
            ends_in_ms: record.terms.ends.map(left_ms),
            named_hosts: record.in_force.hosts.clone(),
            confirm_left_ms: record.terms.confirm.as_ref().map(|confirm| left_ms(confirm.by)),
            classes: classes
                .map(|(name, [egress, ingress])| ClassReport {
                    name: name.clone(),
                    egress: flow(egress),
                    ingress: flow(ingress),
                })
                .collect(),
            servers: (0..)
                .zip(servers)
                .map(|(index, ((name, &slot), server))| {
                    let state = maps.states.get(&slot, 0).context("reading a server's state")?;
                    let moment = Moment::of(&maps, index).context("reading a server's timeline")?;
                    let law = moment::law(&maps, index, Instant(state.0.free))
                        .context("reading a server's queue")?;
                    let queue = law.map(|(law, mut memory)| {
                        // A queue that has drained leaves the state; the programs see that with its next packet.
                        let occupied = state.0.free > MonoNanos(now()).instant().0;
                        let sojourns = maps.sojourns.get(&slot, 0).context("reading a server's waits")?;
                        let waits = Histogram::new(&sojourns.0.packets);
                        anyhow::Ok(QueueReport {
                            sojourn: waits.sojourn(),
                            waits,
                            ..queue(law.kind, &mut memory, server, occupied)
                        })
                    });
                    Ok(ServerReport {
                        timeline: moment.map(timeline),
                        queue: queue.transpose()?,
                        ..server_report(name, server, Instant(state.0.free), age)
                    })
                })
                .collect::<anyhow::Result<_>>()?,
            drops: counts.drops(),
            unintended: counts.unintended(),
            balance: counts.balance(),
            faults: None,
            events: counts.events(),
            held: (record.pacer != Pacer::Fq.name()).then(|| counts.held()),
            lateness: Histogram::new(&counters.lateness)
                .lateness(counters.lead.at(MonoNanos(now())).0 as f64 / 1e3),
        })
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
        delay_ns: counters.delay,
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
        loss_marks: counters.loss_marks,
        busy_ms: micros(counters.busy) / 1e3,
        max_backlog_us: micros(counters.max_backlog),
        backlog_us: (free.0 != 0 || counters.packets == 0).then_some(wait as f64 / 1e3),
        // The age is known to a second.
        utilization: age
            .filter(|age| *age >= Duration::from_secs(1))
            .map(|age| busy.as_secs_f64() / age.as_secs_f64()),
        timeline: None,
        queue: None,
    }
}

fn queue(kind: u32, state: &mut State, counters: &ServerCounters, occupied: bool) -> QueueReport {
    let codel = (kind == CODEL).then(|| *state.codel());
    let pie = (kind == PIE).then(|| *state.pie());
    let red = (kind == RED).then(|| *state.red());
    let millis = |ticks: u64| Ticks(ticks).nanos().0 as f64 / 1e6;
    let share = |of_one: u64| of_one as f64 / ONE as f64;
    QueueReport {
        kind: match kind {
            CODEL => "codel",
            PIE => "pie",
            RED => "red",
            _ => "step",
        }
        .into(),
        drops: counters.early_drops,
        marks: counters.marks,
        threshold_marks: counters.marks_above,
        dropping: codel.map(|codel| occupied && codel.mode & DROPPING != 0),
        count: codel.map(|codel| codel.count),
        drop_probability: pie.map(|pie| share(pie.drop_prob)),
        burst_allowance_ms: pie.map(|pie| millis(pie.burst_allowance)),
        average_ms: red.map(|red| millis(red.average >> FRACTION)),
        max_p: red
            .filter(|red| red.max_p != 0)
            .map(|red| f64::from(red.max_p) / f64::from(1 << 16).powi(2)),
        ..QueueReport::default()
    }
}

fn timeline(moment: Moment) -> TimelineReport {
    let seconds = |ticks: Ticks| ticks.nanos().0 as f64 / 1e9;
    TimelineReport {
        began_ns: moment.began.map(|origin| origin.ceil_nanos().0),
        at_s: moment.since.map(|(since, _)| seconds(since)),
        turn: moment.since.map_or(0, |(_, turn)| turn),
        starts_in_s: moment.starts_in.map(seconds),
        segment: moment.since.map_or(0, |_| moment.segment + 1),
        segments: moment.segments,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use perturb_common::{
        abi::ServerCounters,
        queue::{CODEL, DROPPING, STEP, State},
    };

    use super::{Counts, Report, queue};

    #[test]
    fn a_queue_that_has_drained_drops_nothing() {
        let mut state = State::default();
        state.codel().mode = DROPPING;
        let mut dropping =
            |kind, occupied| queue(kind, &mut state, &ServerCounters::default(), occupied).dropping;
        assert_eq!(dropping(CODEL, true), Some(true));
        assert_eq!(dropping(CODEL, false), Some(false));
        assert_eq!(dropping(STEP, true), None);
    }

    /// The report of an emulation that has counted this, and nothing else.
    pub(in crate::status) fn report(counts: &Counts) -> Report {
        Report {
            id: "1-1".into(),
            drops: counts.drops(),
            unintended: counts.unintended(),
            balance: counts.balance(),
            events: counts.events(),
            ..Report::default()
        }
    }
}
