//! The report for people.

use std::fmt;

use perturb_emulator::hosts::title;
use perturb_emulator::status::{ClassReport, QueueReport, Report, ServerReport, TimelineReport};
use perturb_present::Table;

/// A report, as `perturb status` prints it.
pub(super) struct Sheet<'a>(pub(super) &'a Report);

impl fmt::Display for Sheet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let lease = match report.lease_left_ms {
            Some(left) => format!(", lease {:.1} s", left as f64 / 1e3),
            None => String::new(),
        };
        writeln!(
            f,
            "{}: emulated by process {}, pacer {}{lease}, profile changed {} times",
            report.place(),
            report.pid,
            report.pacer,
            report.updates
        )?;
        if report.paused {
            writeln!(f, "  paused: traffic passes untouched until it is resumed")?;
        }
        if let Some(host) = &report.host {
            writeln!(
                f,
                "  this is {host}; the counters are of all these hosts together"
            )?;
        }
        if !report.lost.is_empty() {
            writeln!(f, "  gone, and waited for: {}", report.lost.join(", "))?;
        }
        if let Some(left) = report.ends_in_ms {
            writeln!(f, "  ends in {:.1} s", left as f64 / 1e3)?;
        }
        if let Some(left) = report.confirm_left_ms {
            writeln!(
                f,
                "  not confirmed: undone in {:.1} s unless `perturb confirm` is given",
                left as f64 / 1e3
            )?;
        }
        for (name, host) in &report.named_hosts {
            writeln!(
                f,
                "  {}: {}; changed {} times, not found {} times",
                title(name),
                host.place(),
                host.changes,
                host.failures
            )?;
        }
        write!(f, "{}{}", classes(&report.classes), servers(&report.servers))?;
        for (server, timeline) in report
            .servers
            .iter()
            .filter_map(|server| Some((server, server.timeline.as_ref()?)))
        {
            writeln!(f, "  timeline of {}: {}", server.name, moment(timeline))?;
        }
        for server in report.servers.iter().filter(|server| server.loss_marks > 0) {
            writeln!(
                f,
                "  loss of {}: marked {} packets in place of losing them",
                server.name, server.loss_marks
            )?;
        }
        for (server, queue) in report
            .servers
            .iter()
            .filter_map(|server| Some((server, server.queue.as_ref()?)))
        {
            writeln!(f, "{}", judged(&server.name, queue, None))?;
        }
        let drops = &report.drops;
        writeln!(
            f,
            "  drops: tail {}, packet limit {}, loss {}, burst {}, nth {}, collided {}, down {}, by queues {}; unintended: horizon {}, hold full {}, no slot {}, slot reused {}, pacer {}, hold device {}, splitter {}, past a server {}",
            drops.tail_drop,
            drops.packet_limit,
            drops.loss,
            drops.burst_loss,
            drops.nth_loss,
            drops.collided,
            drops.down,
            drops.early_drop,
            report.unintended.horizon,
            report.unintended.hold_full,
            report.unintended.no_slot,
            report.unintended.slot_reused,
            report.unintended.pacer,
            report.unintended.hold_device,
            report.unintended.splitter,
            report.unintended.no_instance
        )?;
        let balance = &report.balance;
        writeln!(
            f,
            "  balance: captured {} + duplicated {} = released {} + held {} (in {} bytes of memory) + dropped {} + unintended {} + unaccounted {}; \
             dropped by the interface itself: {}",
            balance.captured,
            balance.duplicated,
            balance.released,
            balance.held,
            balance.held_bytes,
            balance.dropped,
            balance.unintended,
            balance.unaccounted,
            balance.interface_drops
        )?;
        let events = &report.events;
        writeln!(
            f,
            "  passed: unmatched {}, malformed {}, lease expired {}, paused {}, of a path that changed {}; marked {}, duplicated {}, corrupted {}; contention {}, \
             others' packets on perturb's devices {}",
            events.unmatched,
            events.malformed,
            events.lease_expired,
            events.paused,
            events.outdated,
            events.marked,
            events.duplicated,
            events.corrupted,
            events.contention,
            events.foreign
        )?;
        if let Some(held) = &report.held {
            let priority = if held.real_time { "real-time" } else { "ordinary" };
            writeln!(
                f,
                "  held: {} packets, {} bytes, {priority} priority, given up {} times because the pacer was busy",
                held.packets, held.bytes, held.busy
            )?;
            if held.threads.len() > 1 {
                let released: Vec<String> = held
                    .threads
                    .iter()
                    .map(|thread| thread.released.to_string())
                    .collect();
                writeln!(
                    f,
                    "  released by each of the pacer's threads: {}",
                    released.join(", ")
                )?;
            }
            if held.stalls > 0 {
                writeln!(
                    f,
                    "  the pacer did not get a processor in time {} times: for {:.1} ms in all, {:.1} ms at most; packets \
                     left late by that, so leave it a processor",
                    held.stalls, held.stalled_ms, held.longest_stall_ms
                )?;
            }
        }
        if let Some(lateness) = &report.lateness {
            writeln!(
                f,
                "  late by at most: {:.1} us (50 %), {:.1} us (99 %), {:.1} us (all); lateness made up for: {:.1} us",
                lateness.p50_us, lateness.p99_us, lateness.max_us, lateness.lead_us
            )?;
        }
        Ok(())
    }
}

/// A share, in percent.
pub(super) fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |share| format!("{:.1} %", 100.0 * share))
}

/// A time, if there is one.
pub(in crate::cli) fn micros(value: impl Into<Option<f64>>) -> String {
    value
        .into()
        .map_or_else(|| "-".into(), |us| format!("{us:.1} us"))
}

fn classes(classes: &[ClassReport]) -> Table {
    let mut table = Table::new(
        2,
        &["class", "", "packets", "on wire", "bytes", "dropped", "delay"],
    )
    .indent(2)
    .widths(&[19, 8, 9, 9, 13, 8, 11]);
    for class in classes {
        for (direction, flow) in [("egress", &class.egress), ("ingress", &class.ingress)] {
            table.row(vec![
                class.name.clone(),
                direction.into(),
                flow.packets.to_string(),
                flow.wire_packets.to_string(),
                flow.bytes.to_string(),
                flow.dropped.to_string(),
                micros(flow.mean_delay_us),
            ]);
        }
    }
    table
}

fn servers(servers: &[ServerReport]) -> Table {
    let mut table = Table::new(
        1,
        &[
            "server",
            "in use",
            "packets",
            "busy",
            "bytes",
            "dropped",
            "max backlog",
            "backlog",
        ],
    )
    .indent(2)
    .widths(&[20, 7, 9, 9, 13, 8, 11, 11]);
    for server in servers {
        table.row(vec![
            server.name.clone(),
            share(server.utilization),
            server.packets.to_string(),
            format!("{:.1} ms", server.busy_ms),
            server.bytes.to_string(),
            server.dropped().to_string(),
            micros(server.max_backlog_us),
            micros(server.backlog_us),
        ]);
    }
    table
}

/// What the law of a server's queue does, or has done since an earlier look.
pub(super) fn judged(server: &str, queue: &QueueReport, earlier: Option<&QueueReport>) -> String {
    let state = match *queue {
        QueueReport {
            dropping: Some(true),
            count: Some(count),
            ..
        } => format!(", dropping, count {count}"),
        QueueReport {
            dropping: Some(false),
            ..
        } => ", not dropping".into(),
        QueueReport {
            drop_probability: Some(probability),
            burst_allowance_ms: Some(allowance),
            ..
        } => format!(
            ", drop probability {:.3} %, burst allowance {allowance:.0} ms",
            100.0 * probability
        ),
        QueueReport {
            average_ms: Some(average),
            max_p,
            ..
        } => {
            let max_p = max_p.map(|max_p| format!(", max_p {:.2} %", 100.0 * max_p));
            format!(", average {average:.3} ms{}", max_p.unwrap_or_default())
        }
        _ => String::new(),
    };
    let since = |count: fn(&QueueReport) -> u64| count(queue).saturating_sub(earlier.map_or(0, count));
    let waits = match &queue.sojourn {
        Some(sojourn) => format!(
            "; waits of at most: {:.1} us (50 %), {:.1} us (95 %), {:.1} us (99 %), {:.1} us (all)",
            sojourn.p50_us, sojourn.p95_us, sojourn.p99_us, sojourn.max_us
        ),
        None => String::new(),
    };
    format!(
        "  queue of {server}: {}{state}; dropped {}, marked {} and above the threshold {}{waits}",
        queue.kind,
        since(|queue| queue.drops),
        since(|queue| queue.marks),
        since(|queue| queue.threshold_marks)
    )
}

/// Where a server is in its timeline.
pub(crate) fn moment(timeline: &TimelineReport) -> String {
    match (timeline.at_s, timeline.starts_in_s) {
        (Some(at), _) => {
            let turn = match timeline.turn {
                0 => String::new(),
                turn => format!(" of turn {}", turn + 1),
            };
            format!(
                "at {at:.3} s{turn}, segment {} of {}",
                timeline.segment, timeline.segments
            )
        }
        (None, Some(left)) => format!("starts in {left:.1} s"),
        (None, None) => "starts with the first packet".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ClassReport, QueueReport, Report, ServerReport, Sheet, judged};
    use crate::cli::status::activity::Activity;
    use perturb_emulator::status::{Flow, Sojourn};

    #[test]
    fn columns_stay_where_they_are() {
        let flow = |packets, mean_delay_us| Flow {
            packets,
            wire_packets: packets + packets / 10,
            bytes: 1000 * packets,
            dropped: 3,
            mean_delay_us,
            delay_ns: 0,
        };
        let mut report = Report::default();
        report.classes.push(ClassReport {
            name: "all".into(),
            egress: flow(1200, Some(20_000.4)),
            ingress: flow(0, None),
        });
        report.servers.push(ServerReport {
            name: "uplink".into(),
            packets: 1200,
            bytes: 1_234_567,
            tail_drops: 3,
            losses: 1,
            loss_marks: 7,
            busy_ms: 1.2,
            max_backlog_us: 52.1,
            backlog_us: None,
            utilization: Some(0.125),
            timeline: None,
            queue: None,
        });
        let text = Sheet(&report).to_string();
        let rows: Vec<&str> = text.lines().skip(1).take(6).collect();
        assert_eq!(
            rows,
            [
                "  class                            packets    on wire          bytes   dropped        delay",
                "  all                  egress         1200       1320        1200000         3   20000.4 us",
                "  all                  ingress           0          0              0         3            -",
                "  server                 in use    packets       busy          bytes   dropped  max backlog      backlog",
                "  uplink                 12.5 %       1200     1.2 ms        1234567         4      52.1 us            -",
                "  loss of uplink: marked 7 packets in place of losing them",
            ]
        );
        let text = Activity::between(&report, &report, Duration::from_secs(1)).to_string();
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            rows,
            [
                "  server                 in use        carries      backlog  max backlog   dropped",
                "  uplink                 12.5 %    0.00 Mbit/s            -      52.1 us         0",
            ]
        );
    }

    /// In all, and since the last look.
    #[test]
    fn a_queue_says_what_it_does() {
        let report = |drops, p50_us| {
            let mut report = Report::default();
            let queue = QueueReport {
                kind: "codel".into(),
                drops,
                marks: drops / 2,
                dropping: Some(true),
                count: Some(4),
                sojourn: Some(Sojourn {
                    p50_us,
                    p95_us: 7000.0,
                    p99_us: 8000.0,
                    max_us: 9000.0,
                    ..Sojourn::default()
                }),
                ..QueueReport::default()
            };
            report.servers.push(ServerReport {
                name: "uplink".into(),
                queue: Some(queue),
                ..ServerReport::default()
            });
            report
        };
        let (earlier, now) = (report(10, 1.0), report(14, 5000.0));
        let line = |drops, marks| {
            format!(
                "  queue of uplink: codel, dropping, count 4; dropped {drops}, marked {marks} and above the threshold 0; waits of \
                 at most: 5000.0 us (50 %), 7000.0 us (95 %), 8000.0 us (99 %), 9000.0 us (all)"
            )
        };
        let says = |text: String, line: String| assert!(text.lines().any(|said| said == line), "{text}");
        says(Sheet(&now).to_string(), line(14, 7));
        let activity = Activity::between(&earlier, &now, Duration::from_secs(1));
        says(activity.to_string(), line(4, 2));
        let red = QueueReport {
            kind: "red".into(),
            average_ms: Some(1.5),
            max_p: Some(0.125),
            ..QueueReport::default()
        };
        let line = "  queue of up: red, average 1.500 ms, max_p 12.50 %; dropped 0, marked 0 and above the threshold 0";
        assert_eq!(judged("up", &red, None), line);
    }
}
