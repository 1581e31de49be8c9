//! Which metrics there are, and what they mean.

use anyhow::Context as _;
use perturb_emulator::status::{
    ClassReport, Flow, Lateness, QueueReport, Report, ServerReport, Spread, TimelineReport,
};
use prometheus_client::registry::Unit;
use serde::Serialize;
use serde_json::Value;

use super::{Family, Labels, Samples};

/// Families of a report, those left out of which it says nothing.
struct Sheet(Vec<Family>);

impl Sheet {
    fn add(&mut self, name: &'static str, unit: Option<Unit>, help: &'static str, samples: Samples) {
        self.0.push(Family {
            name,
            help,
            unit,
            samples,
        });
    }

    fn counters(
        &mut self,
        name: &'static str,
        unit: Option<Unit>,
        help: &'static str,
        samples: Vec<(Labels, f64)>,
    ) {
        if !samples.is_empty() {
            self.add(name, unit, help, Samples::Counters(samples));
        }
    }

    fn gauges(
        &mut self,
        name: &'static str,
        unit: Option<Unit>,
        help: &'static str,
        samples: Vec<(Labels, f64)>,
    ) {
        if !samples.is_empty() {
            self.add(name, unit, help, Samples::Gauges(samples));
        }
    }

    fn histograms(&mut self, name: &'static str, help: &'static str, samples: Vec<(Labels, Spread)>) {
        if !samples.is_empty() {
            self.add(name, Some(Unit::Seconds), help, Samples::Histograms(samples));
        }
    }

    fn gauge(&mut self, name: &'static str, unit: Option<Unit>, help: &'static str, value: Option<f64>) {
        let sample = value.map(|value| (Labels::new(), value));
        self.gauges(name, unit, help, sample.into_iter().collect());
    }
}

/// All that a report says.
pub(super) fn families(report: &Report) -> anyhow::Result<Vec<Family>> {
    let mut sheet = Sheet(Vec::new());
    let information: [(&'static str, &'static str, Labels); 2] = [
        (
            "perturb_build",
            "The perturb that emulates",
            vec![("version", env!("CARGO_PKG_VERSION").into())],
        ),
        (
            "perturb_emulation",
            "The emulation: its name in the registry, its interfaces, and what keeps the time",
            vec![
                ("id", report.id.clone()),
                ("interfaces", report.place()),
                ("pacer", report.pacer.clone()),
            ],
        ),
    ];
    for (name, help, labels) in information {
        sheet.add(name, None, help, Samples::Info(labels));
    }
    emulation(&mut sheet, report)?;
    classes(&mut sheet, &report.classes);
    servers(&mut sheet, &report.servers);
    if let Some(lateness) = &report.lateness {
        late(&mut sheet, lateness);
    }
    Ok(sheet.0)
}

/// What is counted of all packets together.
fn emulation(sheet: &mut Sheet, report: &Report) -> anyhow::Result<()> {
    let seconds = |ms: Option<u64>| ms.map(|ms| ms as f64 / 1e3);
    let balance = &report.balance;
    sheet.gauge(
        "perturb_start_time",
        Some(Unit::Seconds),
        "When the emulation began, since 1970",
        Some(report.since as f64),
    );
    let changes = vec![(Labels::new(), f64::from(report.updates))];
    sheet.counters(
        "perturb_profile_changes",
        None,
        "Changes of the profile since the emulation began",
        changes,
    );
    sheet.gauge(
        "perturb_lease_left",
        Some(Unit::Seconds),
        "Until traffic passes untouched unless the lease is renewed",
        seconds(report.lease_left_ms),
    );
    let paused = Some(f64::from(report.paused));
    sheet.gauge(
        "perturb_paused",
        None,
        "Whether traffic passes untouched until it is resumed: 1 or 0",
        paused,
    );
    sheet.gauge(
        "perturb_interfaces_lost",
        None,
        "Interfaces that are gone and waited for (--follow)",
        Some(report.lost.len() as f64),
    );
    let one = |packets: u64| vec![(Vec::new(), packets as f64)];
    sheet.counters(
        "perturb_captured_packets",
        None,
        "Packets that came into the emulation; a super-packet is one",
        one(balance.captured),
    );
    sheet.counters(
        "perturb_duplicated_packets",
        None,
        "Copies that the emulation made of packets",
        one(balance.duplicated),
    );
    let fates = [
        ("released", balance.released),
        ("dropped", balance.dropped),
        ("unintended", balance.unintended),
    ];
    let fates = fates.map(|(fate, packets)| (vec![("fate", fate.into())], packets as f64));
    sheet.counters(
        "perturb_packets",
        None,
        "Packets and copies by what became of them",
        fates.into(),
    );
    sheet.gauge(
        "perturb_held_packets",
        None,
        "Packets that wait for their departure",
        Some(balance.held as f64),
    );
    sheet.gauge(
        "perturb_held",
        Some(Unit::Bytes),
        "Memory that packets take that wait for their departure",
        Some(balance.held_bytes as f64),
    );
    sheet.gauge(
        "perturb_unaccounted_packets",
        None,
        "Packets between devices, or lost where nobody counts: 0 at rest",
        Some(balance.unaccounted as f64),
    );
    let drops = vec![(Labels::new(), balance.interface_drops as f64)];
    sheet.counters(
        "perturb_interface_drops",
        None,
        "Packets that the emulated interfaces and their qdiscs dropped, whoever sent them",
        drops,
    );
    sheet.counters(
        "perturb_drops",
        None,
        "Drops that the profile asks for, by reason",
        named("reason", &report.drops)?,
    );
    sheet.counters(
        "perturb_unintended_packets",
        None,
        "What no profile asks for, by reason: dropped, or past a server; any makes a measurement invalid",
        named("reason", &report.unintended)?,
    );
    sheet.counters(
        "perturb_events",
        None,
        "Other events that packets met",
        named("event", &report.events)?,
    );
    if let Some(held) = &report.held {
        let stalls = vec![(Labels::new(), held.stalls as f64)];
        sheet.counters(
            "perturb_pacer_stalls",
            None,
            "How often the user pacer was kept from running for more than 5 ms while a packet was due",
            stalls,
        );
        let stalled = vec![(Labels::new(), held.stalled_ms / 1e3)];
        sheet.counters(
            "perturb_pacer_stalled",
            Some(Unit::Seconds),
            "For how long in all the user pacer was kept from running while a packet was due",
            stalled,
        );
    }
    Ok(())
}

/// Counts by the names that `status --json` has for them.
fn named(label: &'static str, counts: &impl Serialize) -> anyhow::Result<Vec<(Labels, f64)>> {
    let Value::Object(counts) = serde_json::to_value(counts).context("reading counters")? else {
        return Ok(Vec::new());
    };
    let samples = counts
        .into_iter()
        .filter_map(|(name, count)| Some((vec![(label, name)], count.as_f64()?)));
    Ok(samples.collect())
}

fn classes(sheet: &mut Sheet, classes: &[ClassReport]) {
    let flows: Vec<(Labels, &Flow)> = classes
        .iter()
        .flat_map(|class| {
            [
                ("egress", class, &class.egress),
                ("ingress", class, &class.ingress),
            ]
        })
        .map(|(direction, class, flow)| {
            (
                vec![("class", class.name.clone()), ("direction", direction.into())],
                flow,
            )
        })
        .collect();
    let of = |value: fn(&Flow) -> f64| {
        flows
            .iter()
            .map(|(labels, flow)| (labels.clone(), value(flow)))
            .collect()
    };
    sheet.counters(
        "perturb_class_packets",
        None,
        "Packets of a class; a super-packet is one",
        of(|flow| flow.packets as f64),
    );
    sheet.counters(
        "perturb_class_wire_packets",
        None,
        "Packets of a class on the wire: each segment of a super-packet is one",
        of(|flow| flow.wire_packets as f64),
    );
    sheet.counters(
        "perturb_class",
        Some(Unit::Bytes),
        "Bytes on the wire of a class's packets",
        of(|flow| flow.bytes as f64),
    );
    sheet.counters(
        "perturb_class_drops",
        None,
        "Packets of a class that emulation dropped",
        of(|flow| flow.dropped as f64),
    );
    let delay = |flow: &Flow| flow.delay_ns as f64 / 1e9;
    sheet.counters(
        "perturb_class_delay",
        Some(Unit::Seconds),
        "Delay of the packets of a class that were not dropped, summed",
        of(delay),
    );
}

fn servers(sheet: &mut Sheet, servers: &[ServerReport]) {
    let label = |server: &ServerReport| vec![("server", server.name.clone())];
    let of = |value: fn(&ServerReport) -> f64| {
        servers
            .iter()
            .map(|server| (label(server), value(server)))
            .collect()
    };
    let some = |value: &dyn Fn(&ServerReport) -> Option<f64>| -> Vec<(Labels, f64)> {
        servers
            .iter()
            .filter_map(|server| Some((label(server), value(server)?)))
            .collect()
    };
    sheet.counters(
        "perturb_server_packets",
        None,
        "Packets that a server served",
        of(|server| server.packets as f64),
    );
    sheet.counters(
        "perturb_server",
        Some(Unit::Bytes),
        "Bytes on the wire of the packets that a server served",
        of(|server| server.bytes as f64),
    );
    let by_queue = |server: &ServerReport| server.queue.as_ref().map(|queue| queue.drops);
    let mut drops = Vec::new();
    for server in servers {
        let reasons = [
            ("tail", Some(server.tail_drops)),
            ("loss", Some(server.losses)),
            ("queue", by_queue(server)),
        ];
        for (reason, count) in reasons {
            if let Some(count) = count {
                drops.push((
                    [label(server), vec![("reason", reason.into())]].concat(),
                    count as f64,
                ));
            }
        }
    }
    sheet.counters(
        "perturb_server_drops",
        None,
        "Packets that a server dropped: its buffer was full, by a loss model, or by the law of its queue",
        drops,
    );
    sheet.counters(
        "perturb_server_loss_marks",
        None,
        "Packets that a server's loss marked in place of losing them",
        of(|server| server.loss_marks as f64),
    );
    sheet.counters(
        "perturb_server_busy",
        Some(Unit::Seconds),
        "Time for which a server is taken, summed over its instances and counted when packets come: over times longer than its queue its rate is the utilization",
        of(|server| server.busy_ms / 1e3),
    );
    sheet.gauges(
        "perturb_server_backlog",
        Some(Unit::Seconds),
        "The time that a packet would wait at a server if it arrived now; not of a server with several instances",
        some(&|server| server.backlog_us.map(|us| us / 1e6)),
    );
    sheet.gauges(
        "perturb_server_max_backlog",
        Some(Unit::Seconds),
        "The longest that a packet had to wait at a server",
        of(|server| server.max_backlog_us / 1e6),
    );

    let queue = |value: fn(&QueueReport) -> Option<f64>| {
        some(&move |server: &ServerReport| server.queue.as_ref().and_then(value))
    };
    sheet.counters(
        "perturb_queue_marks",
        None,
        "Packets that a queue's law marked in place of dropping them",
        queue(|queue| Some(queue.marks as f64)),
    );
    sheet.counters(
        "perturb_queue_threshold_marks",
        None,
        "Packets marked because they had waited for longer than the threshold",
        queue(|queue| Some(queue.threshold_marks as f64)),
    );
    sheet.gauges(
        "perturb_queue_dropping",
        None,
        "Whether CoDel drops or marks packets now: 1 or 0",
        queue(|queue| queue.dropping.map(f64::from)),
    );
    sheet.gauges(
        "perturb_queue_drop_probability",
        None,
        "Drop probability of a queue whose law has one",
        queue(|queue| queue.drop_probability),
    );
    sheet.gauges(
        "perturb_queue_average",
        Some(Unit::Seconds),
        "The average queue that a law goes by",
        queue(|queue| queue.average_ms.map(|ms| ms / 1e3)),
    );
    sheet.gauges(
        "perturb_queue_max_p",
        None,
        "Adaptive RED's max_p",
        queue(|queue| queue.max_p),
    );
    let sojourns = servers.iter().filter_map(|server| {
        let sojourn = server.queue.as_ref()?.sojourn.as_ref()?;
        Some((label(server), sojourn.spread.clone()))
    });
    sheet.histograms(
        "perturb_queue_sojourn",
        "How long packets waited that a queue's law judged and that were served; their sum is an upper bound, an eighth too much at most",
        sojourns.collect(),
    );

    let line = |value: fn(&TimelineReport) -> Option<f64>| {
        some(&move |server: &ServerReport| server.timeline.as_ref().and_then(value))
    };
    sheet.gauges(
        "perturb_timeline_position",
        Some(Unit::Seconds),
        "How far a server's timeline is, since it began, or began anew",
        line(|line| line.at_s),
    );
    sheet.counters(
        "perturb_timeline_turns",
        None,
        "How often a server's timeline has begun anew",
        line(|line| Some(line.turn as f64)),
    );
    sheet.gauges(
        "perturb_timeline_segment",
        None,
        "The segment of a server's timeline in force, from 1 on; 0 until it starts",
        line(|line| Some(line.segment.into())),
    );
    sheet.gauges(
        "perturb_timeline_segments",
        None,
        "How many segments a server's timeline has",
        line(|line| Some(line.segments.into())),
    );
}

fn late(sheet: &mut Sheet, lateness: &Lateness) {
    sheet.histograms(
        "perturb_lateness",
        "How late packets left; their sum is an upper bound, an eighth too much at most",
        vec![(Labels::new(), lateness.spread.clone())],
    );
    let lead = "By how much departures are moved ahead now, to make up for a timer that fires late";
    sheet.gauge(
        "perturb_lead",
        Some(Unit::Seconds),
        lead,
        Some(lateness.lead_us / 1e6),
    );
}
