//! The requests as they come: the sequence, or what was active.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use perturb_common::abi::{CONTROL_WATCH, Event, Request};
use perturb_dataplane::maps::{Maps, Requests};
use perturb_present::{Table, clear_screen};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::{Flow, Names, in_force, micros, realtime_offset};
use crate::{
    registry::{self, Record},
    told::Told,
};

/// How often the log is read: 26,214 requests fit, so that 5 million a second are not too many.
const PERIOD: Duration = Duration::from_millis(5);
/// How long the programs go on logging without a word from the reader.
const GRACE: Duration = Duration::from_secs(2);
/// How often the reader looks for emulations that began or ended.
const SEARCH: Duration = Duration::from_millis(250);

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
    told: Told,
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
            told: Told::default(),
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
        self.told.look_again();
        let records = in_force(&mut self.told)?;
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
    let clear = clear_screen(&io::stdout());
    let now = perturb_clock::now();
    let mut table = Table::new(
        1,
        &[&Flow::COLUMNS[..], &["packets", "bytes", "last seen"]].concat(),
    );
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

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{key, names},
        Line, Request, micros,
    };

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
}
