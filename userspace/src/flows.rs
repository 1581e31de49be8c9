//! `perturb status --flows`: which flows an emulation has seen, and the requests (packets that enter it) as they come.
//!
//! Two sources, neither of which costs a packet of a known flow more than a comparison. When the programs classify a
//! flow's first packet they note it, the last [`perturb_common::abi::NOTED_FLOWS`] of them: that is the list. While somebody watches they log
//! every packet: that is the sequence of requests, in the order of their times, which `perturb locality` reads.
//!
//! What it lacks: packets that are not IP or that no class emulates, and, in the list, how often and when last: only
//! who watches counts.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write},
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use perturb_common::abi::{
    Attachment, CONTROL_GENERATION, CONTROL_WATCH, Direction, Event, FlowKey, FlowNote, MAX_CLASSES,
    NEAR_INTERFACES, NONE, Request, in_half,
};
use perturb_dataplane::maps::{self, Maps, Requests};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    registry::{self, Record},
    table::Table,
};

/// How often the log is read: 26,214 requests fit, so that 5 million a second are not too many.
const PERIOD: Duration = Duration::from_millis(5);
/// How long the programs go on logging without a word from the reader.
const GRACE: Duration = Duration::from_secs(2);
/// How often the reader looks for emulations that began or ended.
const SEARCH: Duration = Duration::from_millis(250);

/// A flow's packets in one direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Flow {
    emulation: String,
    protocol: String,
    source: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    destination: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    direction: &'static str,
    class: String,
}

/// A line of the list.
#[derive(Debug, Serialize)]
struct Listed {
    /// When its first packet came, µs since 1970.
    first_us: u64,
    #[serde(flatten)]
    flow: Flow,
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

/// Prints the flows that every emulation has seen, oldest first.
///
/// # Errors
/// When an emulation's maps cannot be read, or nothing can be printed.
pub fn list(json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let offset = realtime_offset();
    let mut flows = Vec::new();
    for record in in_force(true)? {
        let names = Names::of(&record);
        let maps = Maps::by_id(&record.maps)?;
        let emulated = Emulated::of(&record, &maps)?;
        for (key, FlowNote { first, class, .. }) in maps::noted(&record.maps)? {
            if emulated.here(&maps, &key, class)?
                && let Some(flow) = names.flow(&key, class)
            {
                let first_us = micros(first, offset);
                flows.push(Listed { first_us, flow });
            }
        }
    }
    flows.sort_by(|a, b| (a.first_us, &a.flow).cmp(&(b.first_us, &b.flow)));
    if json {
        serde_json::to_writer_pretty(&mut *out, &flows)?;
        writeln!(out)?;
        return Ok(());
    }
    if flows.is_empty() {
        writeln!(out, "no flows")?;
        return Ok(());
    }
    let now = micros(perturb_clock::now(), offset);
    let mut table = Table::new(&[&Flow::COLUMNS[..], &["first seen"]].concat());
    for Listed { first_us, flow } in &flows {
        let age = Duration::from_micros(now.saturating_sub(*first_us));
        table.row([flow.cells(), vec![format!("{:.1} s ago", age.as_secs_f64())]].concat());
    }
    write!(out, "{table}")?;
    Ok(())
}

/// Prints every request as it comes, one JSON object a line; or every `period` the flows that were active in it.
/// Until Ctrl-C, SIGTERM, or nobody reads the output any more.
///
/// # Errors
/// When another process watches, an emulation's maps cannot be read, or nothing can be printed.
pub async fn watch(period: Duration, json: bool) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("watching for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("watching for SIGTERM")?;
    let mut watcher = Watcher::new(period, json);
    loop {
        let end = tokio::select! {
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
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
    logs: Vec<Log>,
    searched: Option<Instant>,
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
    fn new(period: Duration, json: bool) -> Self {
        Self {
            period,
            json,
            logs: Vec::new(),
            searched: None,
            printed: Instant::now(),
            active: BTreeMap::new(),
        }
    }

    /// Reads what has been logged and prints what is due.
    fn look(&mut self, end: bool) -> anyhow::Result<()> {
        let mut taken: Vec<(Request, Flow)> = Vec::new();
        for log in &mut self.logs {
            log.take(&mut taken);
        }
        // Of one log nearly sorted: a processor may be interrupted between its clock and the log.
        taken.sort_by_key(|(request, _)| request.time);
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
        if end || self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH) {
            self.search(end)?;
            self.searched = Some(Instant::now());
        }
        Ok(())
    }

    /// Opens the logs of emulations that began, drops those that ended, and puts off the others' end.
    fn search(&mut self, end: bool) -> anyhow::Result<()> {
        let records = in_force(self.searched.is_none())?;
        self.logs
            .retain(|log| records.iter().any(|record| record.id == log.names.emulation));
        let mut opened = Vec::new();
        for record in &records {
            if !end && !self.logs.iter().any(|log| log.names.emulation == record.id) {
                self.logs.push(Log::open(record)?);
                opened.push(&*record.id);
            }
        }
        for log in &mut self.logs {
            log.renew(if end { Duration::ZERO } else { GRACE })?;
        }
        if !opened.is_empty() {
            eprintln!("perturb: watching {}", opened.join(", "));
        }
        Ok(())
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
    let clear = if io::stdout().is_terminal() {
        "\x1b[H\x1b[2J"
    } else {
        ""
    };
    let now = perturb_clock::now();
    let mut table = Table::new(&[&Flow::COLUMNS[..], &["packets", "bytes", "last seen"]].concat());
    for (flow, activity) in active {
        let age = Duration::from_nanos(now.saturating_sub(activity.last));
        let counts = vec![
            activity.packets.to_string(),
            activity.bytes.to_string(),
            format!("{} ms ago", age.as_millis()),
        ];
        table.row([flow.cells(), counts].concat());
    }
    writeln!(out, "{clear}{table}")?;
    out.flush()?;
    Ok(())
}

/// The log of one emulation.
struct Log {
    names: Names,
    maps: Maps,
    requests: Requests,
    /// Requests that were not logged so far because nobody took them.
    unlogged: u64,
    _claim: registry::Lock,
}

impl Log {
    fn open(record: &Record) -> anyhow::Result<Self> {
        let Some(claim) = record.claim_requests()? else {
            bail!(
                "another process watches the flows of {} already; end it first: a request is given to one reader only",
                record.id
            );
        };
        let maps = Maps::by_id(&record.maps)?;
        let mut requests = Requests::by_id(&record.maps)?;
        // What an earlier reader left.
        while requests.take().is_some() {}
        Ok(Self {
            unlogged: unlogged(&maps)?,
            names: Names::of(record),
            maps,
            requests,
            _claim: claim,
        })
    }

    fn take(&mut self, into: &mut Vec<(Request, Flow)>) {
        while let Some(request) = self.requests.take() {
            if let Some(flow) = self.names.flow(&request.key, request.class) {
                into.push((request, flow));
            }
        }
    }

    /// Has the programs log for so long, and says what was lost.
    fn renew(&mut self, time: Duration) -> anyhow::Result<()> {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = if time == 0 { 0 } else { perturb_clock::now() + time };
        self.maps
            .control
            .set(CONTROL_WATCH, until, 0)
            .context("asking for the log of requests")?;
        let unlogged = unlogged(&self.maps)?;
        if unlogged > self.unlogged {
            eprintln!(
                "perturb: warning: {} requests of {} are missing here: they came faster than they were read",
                unlogged - self.unlogged,
                self.names.emulation
            );
        }
        self.unlogged = unlogged;
        Ok(())
    }
}

fn unlogged(maps: &Maps) -> anyhow::Result<u64> {
    let counts = maps
        .events
        .get(&(Event::Unlogged as u32), 0)
        .context("reading what was not logged")?;
    Ok(counts.iter().sum())
}

/// The emulations that are in force and know of flows.
fn in_force(warn: bool) -> anyhow::Result<Vec<Record>> {
    let mut found = Vec::new();
    for record in registry::records()? {
        if !record.ready || !record.has_owner()? {
            continue;
        }
        if record.maps.has_flows() {
            found.push(record);
        } else if warn {
            eprintln!(
                "perturb: warning: {} does not tell its flows: another version of perturb made it",
                record.id
            );
        }
    }
    Ok(found)
}

/// Which of the noted flows are emulated where they were noted: between private hosts every packet is classified at both
/// ends.
struct Emulated {
    half: u32,
    ranked: bool,
}

impl Emulated {
    fn of(record: &Record, maps: &Maps) -> anyhow::Result<Self> {
        let generation = maps
            .control
            .get(&CONTROL_GENERATION, 0)
            .context("reading the generation")?;
        let ranked = match record.interfaces.first() {
            Some(interface) if interface.index < NEAR_INTERFACES => {
                maps.near
                    .get(&interface.index, 0)
                    .context("reading an attachment")?
                    .0
                    .rank
                    != 0
            }
            Some(interface) => maps
                .attachments
                .get(&interface.index, 0)
                .is_ok_and(|attachment| attachment.0.rank != 0),
            None => false,
        };
        Ok(Self {
            half: (generation & 1) as u32,
            ranked,
        })
    }

    fn here(&self, maps: &Maps, key: &FlowKey, class: u32) -> anyhow::Result<bool> {
        if class >= MAX_CLASSES {
            return Ok(false);
        }
        let index = in_half(self.half, class);
        let class = maps.classes.get(&index, 0).context("reading a class")?.0;
        let (local, remote) = if key.direction == Direction::Egress as u32 {
            (&key.source, &key.destination)
        } else {
            (&key.destination, &key.source)
        };
        let rank = if self.ranked {
            u32::from(u16::from_be_bytes([local[14], local[15]]))
        } else {
            0
        };
        let attachment = Attachment {
            rank,
            ..Attachment::default()
        };
        Ok(class.path[(key.direction & 1) as usize] != NONE && attachment.emulates(remote))
    }
}

/// What numbers stand for.
struct Names {
    emulation: String,
    classes: Vec<String>,
}

impl Names {
    fn of(record: &Record) -> Self {
        Self {
            emulation: record.id.clone(),
            classes: record.classes.clone(),
        }
    }

    /// The flow of a key; nothing if it is not IP.
    fn flow(&self, key: &FlowKey, class: u32) -> Option<Flow> {
        const IPV4: u16 = 0x0800;
        const IPV6: u16 = 0x86dd;
        if key.ethertype != IPV4 && key.ethertype != IPV6 {
            return None;
        }
        let protocol = protocol(key.protocol);
        let port = |port: u16| protocol.1.then_some(port);
        let address = |bytes: [u8; 16]| Ipv6Addr::from(bytes).to_canonical();
        Some(Flow {
            emulation: self.emulation.clone(),
            source: address(key.source),
            source_port: port(key.source_port),
            destination: address(key.destination),
            destination_port: port(key.destination_port),
            direction: if key.direction == Direction::Egress as u32 {
                "egress"
            } else {
                "ingress"
            },
            // A class that came with a later change of the profile has no name here.
            class: self
                .classes
                .get(class as usize)
                .cloned()
                .unwrap_or_else(|| class.to_string()),
            protocol: protocol.0,
        })
    }
}

/// An IP protocol's name, else its number; and whether it has ports.
fn protocol(number: u8) -> (String, bool) {
    let (name, ports) = match number {
        1 => ("icmp", false),
        6 => ("tcp", true),
        17 => ("udp", true),
        33 => ("dccp", true),
        58 => ("icmpv6", false),
        132 => ("sctp", true),
        136 => ("udplite", true),
        other => return (other.to_string(), false),
    };
    (name.into(), ports)
}

impl Flow {
    /// Heads of [`Self::cells`].
    const COLUMNS: [&'static str; 5] = ["protocol", "source", "destination", "direction", "class"];

    fn cells(&self) -> Vec<String> {
        let end = |address: IpAddr, port: Option<u16>| match (address, port) {
            (address, None) => address.to_string(),
            (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
            (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
        };
        vec![
            self.protocol.clone(),
            end(self.source, self.source_port),
            end(self.destination, self.destination_port),
            self.direction.into(),
            self.class.clone(),
        ]
    }
}

/// What to add to CLOCK_MONOTONIC, ns, for the time since 1970.
fn realtime_offset() -> u64 {
    let (monotonic, wall) = perturb_clock::both();
    wall.saturating_sub(monotonic)
}

fn micros(time: u64, offset: u64) -> u64 {
    time.saturating_add(offset) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(protocol: u8) -> FlowKey {
        let address = |last: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
        FlowKey {
            source: address(1),
            destination: address(2),
            source_port: 4000,
            destination_port: 80,
            ethertype: 0x0800,
            protocol,
            direction: Direction::Ingress as u32,
            ..FlowKey::default()
        }
    }

    fn names() -> Names {
        Names {
            emulation: "run-1".into(),
            classes: vec!["web".into()],
        }
    }

    #[test]
    fn lines_name_what_a_packet_was() {
        let request = Request {
            time: 5_000,
            bytes: 3028,
            key: key(6),
            segments: 2,
            class: 0,
        };
        let flow = names().flow(&request.key, request.class).unwrap();
        let line = Line {
            time_us: micros(request.time, 1_000_000),
            flow: &flow,
            packets: request.segments,
            bytes: request.bytes,
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            "{\"time_us\":1005,\"emulation\":\"run-1\",\"protocol\":\"tcp\",\"source\":\"10.0.0.1\",\"source_port\":4000,\
             \"destination\":\"10.0.0.2\",\"destination_port\":80,\"direction\":\"ingress\",\"class\":\"web\",\
             \"packets\":2,\"bytes\":3028}"
        );
    }

    #[test]
    fn what_has_no_ports_shows_none_and_what_is_not_ip_is_left_out() {
        let icmp = names().flow(&key(1), 7).unwrap();
        assert_eq!(icmp.cells(), ["icmp", "10.0.0.1", "10.0.0.2", "ingress", "7"]);
        let arp = FlowKey {
            ethertype: 0x0806,
            ..FlowKey::default()
        };
        assert!(names().flow(&arp, 0).is_none());
    }
}
