//! A path as it changes, row by row in a file.
//!
//! Model: each interval begins with a [`Probe`]; its row is written once all its answers have come, or none can be
//! expected any more. Bursts take a tenth of the path's time at most: on a slow path not every interval has one, and
//! while one is overdue no other follows. What cannot be sent is lost. Time is CLOCK_MONOTONIC.
//! What is lacking: the way back, which is recorded from the other side.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::{self, Write as _},
    path::Path as FilePath,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Context as _;
use perturb_present::{LiveLine, measured};
use perturb_stats::median;
use serde::Serialize;

use super::{
    LONGEST, Reached, reach,
    row::{HEADINGS, PAYLOAD, Path, Probe, Row},
};
use crate::probe::{
    clock,
    endpoint::{Endpoint, Receipt},
    message::HEADER,
};

/// How long an answer may take: both ways of a path, and again for what waits in it.
const PATIENCE: Duration = LONGEST.saturating_mul(2);
/// Between two looks what has come, and whether to stop.
const LOOK: Duration = Duration::from_millis(20);
/// Probes before the first row, at most.
const FIRST: u32 = 8;
/// How long the other answers to one of them may take after the first answer.
const FIRST_REST: Duration = Duration::from_millis(300);

/// How a path is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// From a row to the next.
    pub every: Duration,
    /// How long; until it is stopped if `None`.
    pub span: Option<Duration>,
}

/// What a file says, in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// The peer, as it was named.
    pub peer: String,
    /// Whether it was stopped.
    pub stopped: bool,
    /// Rows in the file.
    pub rows: usize,
    /// Rows whose probe nobody answered.
    pub silent_rows: usize,
    /// Intervals that this host was too late to probe.
    pub missed: u64,
    /// One way, median of the rows, milliseconds.
    pub latency_ms: Option<f64>,
    /// Median of the rows, Mbit/s on the wire.
    pub bandwidth_mbit_s: Option<f64>,
    /// Mean of the rows, percent.
    pub loss_percent: f64,
    /// Part of the path's time that the probes took, percent.
    pub probes_percent: f64,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} rows, {} without an answer; medians {} ms one way, {} Mbit/s; {} % lost; probes took {} % of the path",
            self.peer,
            self.rows,
            self.silent_rows,
            measured(self.latency_ms),
            measured(self.bandwidth_mbit_s),
            measured(self.loss_percent),
            measured(self.probes_percent)
        )?;
        if self.missed > 0 {
            writeln!(
                f,
                "{} intervals passed before this host could send; --every is too short for it",
                self.missed
            )?;
        }
        Ok(())
    }
}

/// Records the path to a peer in a file, until the time is over or `stop` is set.
pub fn record(
    name: &str,
    plan: Recording,
    file: &FilePath,
    stop: &AtomicBool,
    line: &LiveLine,
) -> anyhow::Result<Recorded> {
    let reached = reach(name)?;
    let mut path = Path::new(reached.header);
    become_known(&reached, &mut path)?;
    let write = || format!("writing {}", file.display());
    let mut recorder = Recorder {
        reached: &reached,
        plan,
        path,
        pending: VecDeque::new(),
        burst: None,
        seen: Seen::default(),
        lines: Lines::create(file).with_context(write)?,
    };
    let told = recorder.run(stop, line).with_context(write);
    line.clear();
    let missed = told?;
    let seen = recorder.seen;
    let rows = seen.losses.len();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    Ok(Recorded {
        peer: name.into(),
        stopped: stop.load(Ordering::Relaxed),
        rows,
        silent_rows: seen.silent,
        missed,
        latency_ms: median(&seen.latencies_ms),
        bandwidth_mbit_s: median(&seen.bandwidths),
        loss_percent: mean(&seen.losses),
        probes_percent: mean(&seen.loads),
    })
}

/// Probes until a first answer and a first rate are there.
fn become_known(reached: &Reached, path: &mut Path) -> anyhow::Result<()> {
    for _ in 0..FIRST {
        let train = reached.here.number();
        let probe = send(reached, train, quantity(Duration::ZERO), path.burst(0.0))?;
        let mut answers = reached.here.take(train, 1, PATIENCE);
        answers.extend(
            reached
                .here
                .take(train, probe.requests().saturating_sub(answers.len()), FIRST_REST),
        );
        if path.judge(&probe, &answers).bandwidth.is_some() {
            return Ok(());
        }
    }
    anyhow::ensure!(path.answers(), "{}", reached.silence());
    anyhow::bail!(
        "{} answers small packets, but of full frames no two neighbors get there; is the path's MTU below 1500 bytes?",
        reached.peer.name
    )
}

fn quantity(time: Duration) -> perturb_quantity::Duration {
    time.into()
}

/// Sends a small request and a burst behind it.
fn send(reached: &Reached, train: u32, time: perturb_quantity::Duration, burst: u32) -> io::Result<Probe> {
    let (here, to): (&Endpoint, _) = (&reached.here, reached.peer.address);
    let mut sent = here.ask(to, (train, 0), 1, HEADER)?;
    if burst > 0 {
        sent.extend(here.ask(to, (train, 1), burst, PAYLOAD)?);
    }
    Ok(Probe { time, burst, sent })
}

/// A probe, and what has come of it.
struct Pending {
    train: u32,
    probe: Probe,
    /// When it was sent, ns.
    at: u64,
    /// When its burst should be back, ns.
    back: u64,
    answers: Vec<Receipt>,
}

impl Pending {
    fn is_whole(&self) -> bool {
        self.answers.len() >= self.probe.requests()
    }
}

struct Recorder<'a> {
    reached: &'a Reached,
    plan: Recording,
    path: Path,
    pending: VecDeque<Pending>,
    /// When the last burst was due, ns, and how many frames it had.
    burst: Option<(u64, u32)>,
    seen: Seen,
    lines: Lines,
}

/// What the rows say.
#[derive(Default)]
struct Seen {
    latencies_ms: Vec<f64>,
    bandwidths: Vec<f64>,
    losses: Vec<f64>,
    loads: Vec<f64>,
    silent: usize,
}

impl Recorder<'_> {
    /// Sends and writes; how many intervals were missed. An error is the file's.
    fn run(&mut self, stop: &AtomicBool, line: &LiveLine) -> io::Result<u64> {
        self.lines.write(HEADINGS)?;
        let every = nanos(self.plan.every);
        let start = clock::now();
        let end = self
            .plan
            .span
            .map_or(u64::MAX, |span| start.saturating_add(nanos(span)));
        let (mut due, mut missed) = (start, 0);
        while due < end && !stop.load(Ordering::Relaxed) {
            let now = clock::now();
            if now < due {
                self.settle(line)?;
                clock::sleep_until(due.min(now + nanos(LOOK)));
                continue;
            }
            let late = (now - due) / every;
            missed += late;
            due += late * every;
            if due < end {
                self.gather();
                self.probe(due, due - start);
            }
            due += every;
        }
        while !self.pending.is_empty() {
            self.settle(line)?;
            clock::sleep_until(clock::now() + nanos(LOOK));
        }
        Ok(missed)
    }

    fn probe(&mut self, due: u64, since: u64) {
        let train = self.reached.here.number();
        let time = perturb_quantity::Duration::from_nanos(since);
        let burst = self.next_burst(due);
        let at = clock::now();
        // A host whose interface is down or without a route loses what it is to send.
        let probe = send(self.reached, train, time, burst).unwrap_or_else(|error| {
            log::debug!("a probe was not sent: {error}");
            Probe {
                time,
                burst,
                sent: Vec::new(),
            }
        });
        if burst > 0 {
            self.burst = Some((due, burst));
        }
        let back = 1.5 * self.path.round_trip_us(burst) * 1e3;
        self.pending.push_back(Pending {
            train,
            probe,
            at,
            back: at + back as u64 + nanos(LOOK),
            answers: Vec::new(),
        });
    }

    /// How many frames the burst has that is due; none after one that may still be on its way, or not long after one.
    fn next_burst(&self, due: u64) -> u32 {
        let pause = self
            .burst
            .map_or(0.0, |(last, burst)| last as f64 + self.path.pause_us(burst) * 1e3);
        if (due as f64) < pause || !self.has_passed(clock::now()) {
            return 0;
        }
        self.path.burst(nanos(self.plan.every) as f64 / 1e3)
    }

    /// Whether no burst is overdue. What came after it came behind it.
    fn has_passed(&self, now: u64) -> bool {
        for pending in self.pending.iter().rev() {
            let last = pending.answers.iter().max_by_key(|answer| answer.number);
            match last {
                Some(answer) if answer.number > 0 => {
                    let behind = f64::from(pending.probe.burst - answer.number);
                    return now as f64 >= answer.arrival as f64 + behind * self.path.frame_us() * 1e3;
                }
                Some(_) => return pending.probe.burst == 0 || now < pending.back,
                None if pending.probe.burst > 0 && now >= pending.back => return false,
                None => {}
            }
        }
        true
    }

    /// Takes the answers that have come.
    fn gather(&mut self) {
        for pending in self.pending.iter_mut().filter(|pending| !pending.is_whole()) {
            for answer in self.reached.here.take(pending.train, 0, Duration::ZERO) {
                // A network may deliver one twice.
                if pending.answers.iter().all(|known| known.number != answer.number) {
                    pending.answers.push(answer);
                }
            }
        }
    }

    /// Writes the rows that are decided.
    fn settle(&mut self, line: &LiveLine) -> io::Result<()> {
        self.gather();
        let now = clock::now();
        let decided = |pending: &mut Pending| pending.is_whole() || now > pending.at + nanos(PATIENCE);
        while let Some(pending) = self.pending.pop_front_if(decided) {
            let row = self.path.judge(&pending.probe, &pending.answers);
            self.lines.write(&row.to_string())?;
            self.note(&row, &pending);
            line.show(self.said(&row));
        }
        Ok(())
    }

    fn note(&mut self, row: &Row, pending: &Pending) {
        let seen = &mut self.seen;
        seen.silent += usize::from(pending.answers.is_empty());
        seen.losses.push(row.loss.billionths() as f64 / 1e7);
        seen.latencies_ms
            .extend(row.latency.map(|latency| latency.nanos() as f64 / 1e6));
        seen.bandwidths
            .extend(row.bandwidth.map(|rate| rate.bits_per_second() as f64 / 1e6));
        let every_us = nanos(self.plan.every) as f64 / 1e3;
        let load_us = self.path.load_us(pending.probe.burst);
        seen.loads.extend(load_us.map(|us| 100.0 * us / every_us));
    }

    fn said(&self, row: &Row) -> String {
        let of = self
            .plan
            .span
            .map_or(String::new(), |span| format!(" of {}", quantity(span)));
        let [latency, bandwidth] = [
            perturb_present::cell(row.latency),
            perturb_present::cell(row.bandwidth),
        ];
        format!("{}{of}: {latency}, {bandwidth}, {} lost", row.time, row.loss)
    }
}

fn nanos(time: Duration) -> u64 {
    quantity(time).nanos()
}

/// A file of whole lines.
struct Lines {
    file: File,
    length: u64,
}

impl Lines {
    fn create(file: &FilePath) -> io::Result<Self> {
        Ok(Self {
            file: File::create(file)?,
            length: 0,
        })
    }

    /// Writes a line, or nothing of it.
    fn write(&mut self, text: &str) -> io::Result<()> {
        let line = format!("{text}\n");
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // What is no file, as a pipe, has no length to be set.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += line.len() as u64;
        Ok(())
    }
}
