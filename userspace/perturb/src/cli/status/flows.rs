//! `perturb status --flows`: the flows that were seen, or, with `--watch`, the requests as they come: the sequence, or what
//! was active.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::IpAddr,
    time::{Duration, Instant},
};

use perturb_common::abi::Request;
use perturb_emulator::{
    flows::{Flow, Listed, Logs, micros, noted, realtime_offset},
    signals::Signals,
};
use perturb_present::{Table, clear_screen};
use serde::Serialize;

/// How often the logs are read: fast enough for 5 million requests a second.
const PERIOD: Duration = Duration::from_millis(5);
/// Heads of [`cells`].
const COLUMNS: [&str; 5] = ["protocol", "source", "destination", "direction", "class"];

/// Prints the flows that every emulation has seen, oldest first.
pub(super) fn list(json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let flows = noted()?;
    if json {
        return crate::say::json(out, &flows);
    }
    if flows.is_empty() {
        writeln!(out, "no flows")?;
        return Ok(());
    }
    let now = micros(perturb_clock::now(), realtime_offset());
    let mut table = Table::new(1, &[&COLUMNS[..], &["first seen"]].concat());
    for Listed { first_us, flow } in &flows {
        let age = Duration::from_micros(now.saturating_sub(*first_us));
        table.row([cells(flow), vec![format!("{:.1} s ago", age.as_secs_f64())]].concat());
    }
    write!(out, "{table}")?;
    Ok(())
}

fn cells(flow: &Flow) -> Vec<String> {
    let end = |address: IpAddr, port: Option<u16>| match (address, port) {
        (address, None) => address.to_string(),
        (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
        (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
    };
    vec![
        flow.protocol.clone(),
        end(flow.source, flow.source_port),
        end(flow.destination, flow.destination_port),
        flow.direction.into(),
        flow.class.clone(),
    ]
}

/// A line of the sequence.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// When the packet came, µs since 1970.
    time_us: u64,
    #[serde(flatten)]
    flow: &'a Flow,
    /// Wire packets: more than one for a super-packet.
    packets: u32,
    /// Wire bytes.
    bytes: u64,
}

/// Prints every request as it comes, one JSON object a line; or every `period` the flows that were active in it.
/// Until Ctrl-C, SIGTERM, or nobody reads the output any more.
///
/// # Errors
/// When another process watches, an emulation's maps cannot be read, or nothing can be printed.
pub(super) async fn watch(period: Duration, json: bool) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let mut watcher = Watcher {
        period,
        json,
        logs: Logs::default(),
        printed: Instant::now(),
        active: BTreeMap::new(),
    };
    loop {
        let end = tokio::select! {
            _ = signals.next() => true,
            () = tokio::time::sleep(PERIOD) => false,
        };
        match watcher.look(end) {
            // Whoever read it, e.g. `head`, has seen enough.
            Err(error) if is_broken_pipe(&error) => return Ok(()),
            looked => looked?,
        }
        if end {
            return Ok(());
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// All logs, and what was read since the last table.
struct Watcher {
    period: Duration,
    json: bool,
    logs: Logs,
    printed: Instant,
    active: BTreeMap<Flow, Activity>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    packets: u64,
    bytes: u64,
    /// CLOCK_MONOTONIC ns.
    last: u64,
}

impl Watcher {
    /// Reads what has been logged and prints what is due.
    fn look(&mut self, end: bool) -> anyhow::Result<()> {
        let taken = self.logs.take();
        let mut out = io::stdout().lock();
        if self.json {
            print_lines(&taken, &mut out)?;
        } else {
            for (request, flow) in taken {
                let activity = self.active.entry(flow).or_default();
                activity.packets += u64::from(request.segments);
                activity.bytes += request.bytes;
                activity.last = request.time;
            }
            if end || self.printed.elapsed() >= self.period {
                self.printed = Instant::now();
                print_table(&std::mem::take(&mut self.active), &mut out)?;
            }
        }
        drop(out);
        self.logs.renew(end)
    }
}

fn print_lines(taken: &[(Request, Flow)], out: &mut impl Write) -> anyhow::Result<()> {
    if taken.is_empty() {
        return Ok(());
    }
    let offset = realtime_offset();
    let mut text = Vec::new();
    for (request, flow) in taken {
        let line = Line {
            time_us: micros(request.time, offset),
            flow,
            packets: request.segments,
            bytes: request.bytes,
        };
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    out.write_all(&text)?;
    out.flush()?;
    Ok(())
}

fn print_table(active: &BTreeMap<Flow, Activity>, out: &mut impl Write) -> anyhow::Result<()> {
    let clear = clear_screen(&io::stdout());
    let now = perturb_clock::now();
    let mut table = Table::new(1, &[&COLUMNS[..], &["packets", "bytes", "last seen"]].concat());
    for (flow, activity) in active {
        let age = Duration::from_nanos(now.saturating_sub(activity.last));
        let counts = vec![
            activity.packets.to_string(),
            activity.bytes.to_string(),
            format!("{} ms ago", age.as_millis()),
        ];
        table.row([cells(flow), counts].concat());
    }
    writeln!(out, "{clear}{table}")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Flow, Line, cells};

    fn flow() -> Flow {
        Flow {
            emulation: "run-1".into(),
            protocol: "tcp".into(),
            source: [10, 0, 0, 1].into(),
            source_port: Some(4000),
            destination: "fd77::2".parse().unwrap(),
            destination_port: Some(80),
            direction: "ingress",
            class: "web".into(),
        }
    }

    #[test]
    fn what_has_no_ports_shows_none() {
        let ends = |flow: &Flow| cells(flow)[1..3].join(" ");
        assert_eq!(ends(&flow()), "10.0.0.1:4000 [fd77::2]:80");
        let icmp = Flow {
            source_port: None,
            destination_port: None,
            ..flow()
        };
        assert_eq!(ends(&icmp), "10.0.0.1 fd77::2");
    }

    #[test]
    fn lines_name_what_a_packet_was() {
        let line = Line {
            time_us: 1_000_005,
            flow: &flow(),
            packets: 2,
            bytes: 3028,
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            "{\"time_us\":1000005,\"emulation\":\"run-1\",\"protocol\":\"tcp\",\"source\":\"10.0.0.1\",\"source_port\":4000,\
             \"destination\":\"fd77::2\",\"destination_port\":80,\"direction\":\"ingress\",\"class\":\"web\",\
             \"packets\":2,\"bytes\":3028}"
        );
    }
}
