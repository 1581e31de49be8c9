//! One traced run: the command, its rings, the file.

mod signals;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use self::signals::Signals;
use super::assembler::{Assembler, ProcessReport};
use super::serve::{Address, Server};
use super::spool::Spool;
use super::wire::Sender;
use super::{TraceArgs, TraceError};

/// The interposition library, which the build script compiles.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libperturb_trace.so"));
/// Memory that all users may write, where the rings cost no disk.
const SHARED_MEMORY: &str = "/dev/shm";
/// Between two looks at the rings when they are quiet.
const PAUSE: Duration = Duration::from_millis(5);
/// How long processes that outlive the command may go on being recorded.
const AFTERWARDS: Duration = Duration::from_millis(300);

/// What a run came to.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(serialize_with = "seconds")]
    #[serde(rename = "elapsed_s")]
    pub(super) elapsed: Duration,
    /// From the first to the last event.
    traced_us: f64,
    pub(super) events: u64,
    /// Of the CPU time of the traced processes' events, in percent, at the cost per event that they measured.
    pub(super) recording_percent: f64,
    /// Calls that moved bytes from or to sockets whose other end is not traced.
    outside: u64,
    /// Events lost because the collector was too slow.
    lost: u64,
    processes: Vec<ProcessReport>,
    #[serde(skip)]
    out: PathBuf,
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl Report {
    /// Of what was assembled; by ring, what recording an event costs and how many there were.
    pub(super) fn of(
        args: &TraceArgs,
        assembler: &Assembler,
        elapsed: Duration,
        costs: &[(u64, u64)],
        lost: u64,
    ) -> Self {
        // The time that recording took is that of the process with the most of it.
        let recording = costs
            .iter()
            .map(|(cost_ns, count)| (cost_ns * count) as f64 / 1e9)
            .fold(0.0, f64::max);
        Self {
            elapsed,
            traced_us: assembler.span_ns() as f64 / 1e3,
            events: assembler.events(),
            recording_percent: 100.0 * recording / elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
            outside: assembler.outside,
            lost,
            processes: assembler.processes(),
            out: args.out.clone(),
        }
    }

    /// For people on standard error, for machines on standard output.
    pub(super) fn print(&self, json: bool, out: &mut dyn io::Write) -> anyhow::Result<()> {
        if json {
            writeln!(out, "{}", serde_json::to_string_pretty(self)?)?;
            return Ok(());
        }
        eprintln!(
            "perturb: {} events of {} processes in {:.3} s: {}; recording took {:.2} % of that time per process",
            self.events,
            self.processes.len(),
            self.elapsed.as_secs_f64(),
            self.out.display(),
            self.recording_percent
        );
        if self.outside > 0 {
            eprintln!(
                "perturb: warning: {} calls moved bytes from or to programs that are not traced; the prediction \
                 takes no time for them",
                self.outside
            );
        }
        if self.lost > 0 {
            eprintln!("perturb: warning: {} events are lost", self.lost);
        }
        if self.events == 0 {
            eprintln!(
                "perturb: warning: nothing was traced; the command must be dynamically linked and use MPI or TCP"
            );
        }
        Ok(())
    }
}

/// Runs the command without tracing: exit code and time.
pub(super) fn untraced(args: &TraceArgs) -> Result<(u8, Duration), TraceError> {
    let start = Instant::now();
    let mut child = start_command(args, &[])?;
    let signals = Signals::install();
    let status = loop {
        signals.pass_on(&child);
        match child.try_wait().map_err(TraceError::Wait)? {
            Some(status) => break status,
            None => std::thread::sleep(PAUSE),
        }
    };
    Ok((perturb_sandbox::exit_code(status), start.elapsed()))
}

/// Runs the command and traces it: exit code and what came of it.
pub(super) fn traced(args: &TraceArgs) -> Result<(u8, Report), TraceError> {
    let place = Place::make(args.rings.as_deref())?;
    let mut trace = Trace::create(args)?;
    let start = Instant::now();
    let mut collector = Collector::new(place.rings.path(), start, args.times);
    let (status, elapsed) = follow(args, &place, start, || {
        let taken = collector.pass()?;
        trace.append(&collector.assembler.take_lines())?;
        Ok(taken)
    })?;
    let lost = collector.finish()?;
    trace.append(&collector.assembler.take_lines())?;
    trace.finish()?;
    let report = collector.report(args, elapsed, lost);
    if let Some(path) = &args.scenario {
        std::fs::write(path, scenario(&report, args)).map_err(|source| TraceError::Write {
            path: path.clone(),
            source,
        })?;
    }
    if let Some(path) = &args.summary {
        let failed = |source| TraceError::Write {
            path: path.clone(),
            source,
        };
        let text = serde_json::to_string_pretty(&report).map_err(|error| failed(error.into()))?;
        std::fs::write(path, text).map_err(failed)?;
    }
    Ok((perturb_sandbox::exit_code(status), report))
}

/// Runs the command and sends its records to a collector: exit code, and how many records of how many processes.
pub(super) fn sent(args: &TraceArgs, address: &Address) -> Result<(u8, u64, usize), TraceError> {
    let failed = |source| TraceError::Send {
        address: address.to_string(),
        source,
    };
    let mut sender = Sender::connect(address).map_err(failed)?;
    let place = Place::make(args.rings.as_deref())?;
    let mut spool = Spool::new(place.rings.path());
    let mut total = 0;
    let mut pass = |spool: &mut Spool| -> Result<u64, TraceError> {
        let known = spool.rings.len();
        spool.scan()?;
        for ring in &spool.rings[known..] {
            sender.process(&ring.writer);
        }
        let mut most = 0;
        for (ring, number) in spool.rings.iter_mut().zip(0..) {
            let mut records = Vec::new();
            most = most.max(ring.drain(|record| records.push(record)));
            total += records.len() as u64;
            for records in records.chunks(perturb_trace::record::CAPACITY as usize) {
                sender.records(number, records);
            }
        }
        Ok(most)
    };
    let (status, _) = follow(args, &place, Instant::now(), || pass(&mut spool))?;
    let lost = spool.rings.iter().map(super::spool::Ring::close).sum();
    pass(&mut spool)?;
    sender.end(lost).map_err(failed)?;
    Ok((perturb_sandbox::exit_code(status), total, spool.rings.len()))
}

/// Runs the command with the library preloaded and looks at the rings (`pass`, which says how many records one had at
/// most) until it has ended and they are quiet: how it ended, and when.
fn follow(
    args: &TraceArgs,
    place: &Place,
    start: Instant,
    mut pass: impl FnMut() -> Result<u64, TraceError>,
) -> Result<(std::process::ExitStatus, Duration), TraceError> {
    let preload = preload(&place.library);
    let environment = [
        ("LD_PRELOAD", preload.as_os_str()),
        (perturb_trace::DIRECTORY_VARIABLE, place.rings.path().as_os_str()),
        (perturb_trace::LAYER_VARIABLE, OsStr::new(args.layer.name())),
    ];
    let mut child = start_command(args, &environment)?;
    let signals = Signals::install();
    let mut ended: Option<(std::process::ExitStatus, Duration)> = None;
    loop {
        signals.pass_on(&child);
        if ended.is_none()
            && let Some(status) = child.try_wait().map_err(TraceError::Wait)?
        {
            ended = Some((status, start.elapsed()));
        }
        let taken = pass()?;
        match ended {
            Some((status, time)) if taken == 0 || start.elapsed() > time + AFTERWARDS => {
                return Ok((status, time));
            }
            _ if taken < perturb_trace::record::CAPACITY / 8 => std::thread::sleep(PAUSE),
            _ => {}
        }
    }
}

/// Directories that the traced processes need.
struct Place {
    rings: TempDir,
    library: PathBuf,
    _folder: TempDir,
}

impl Place {
    fn make(rings: Option<&Path>) -> Result<Self, TraceError> {
        let rings = match rings {
            Some(place) => folder(place)?,
            None => folder(Path::new(SHARED_MEMORY)).or_else(|_| folder(&std::env::temp_dir()))?,
        };
        // Not beside the rings: programs in shared memory may not be executable.
        let directory = folder(&std::env::temp_dir())?;
        let library = directory.path().join("libperturb_trace.so");
        let failed = |source| TraceError::Directory {
            path: directory.path().to_owned(),
            source,
        };
        std::fs::write(&library, LIBRARY).map_err(failed)?;
        std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o555)).map_err(failed)?;
        Ok(Self {
            rings,
            library,
            _folder: directory,
        })
    }
}

fn folder(place: &Path) -> Result<TempDir, TraceError> {
    TempDir::with_prefix_in("perturb-trace-", place).map_err(|source| TraceError::Directory {
        path: place.to_owned(),
        source,
    })
}

/// The library before what is preloaded anyway.
fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

fn start_command(args: &TraceArgs, environment: &[(&str, &OsStr)]) -> Result<Child, TraceError> {
    let [program, arguments @ ..] = args.command.as_slice() else {
        unreachable!("the command line requires one")
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().copied());
    if args.json || args.out == Path::new("-") {
        // Standard output is ours alone.
        command.stdout(io::stderr());
    }
    command
        .stdin(Stdio::inherit())
        .spawn()
        .map_err(|source| TraceError::Start {
            command: program.display().to_string(),
            source,
        })
}

/// The file, and those who follow it.
pub(super) struct Trace {
    /// What readers are served from; the output itself if it is a file.
    file: Option<File>,
    is_output: bool,
    server: Option<Server>,
    written: u64,
    path: PathBuf,
}

impl Trace {
    pub(super) fn create(args: &TraceArgs) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Write {
            path: args.out.clone(),
            source,
        };
        let is_output = args.out != Path::new("-");
        let file = if is_output {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true);
            Some(options.open(&args.out).map_err(failed)?)
        } else if args.collect.is_some() {
            Some(tempfile::tempfile().map_err(failed)?)
        } else {
            None
        };
        let server = match (&args.collect, &file) {
            (Some(address), Some(file)) => {
                let file = file.try_clone().map_err(failed)?;
                Some(Server::start(address, file).map_err(TraceError::Listen)?)
            }
            _ => None,
        };
        Ok(Self {
            file,
            is_output,
            server,
            written: 0,
            path: args.out.clone(),
        })
    }

    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), TraceError> {
        if lines.is_empty() {
            return Ok(());
        }
        let failed = |source| TraceError::Write {
            path: self.path.clone(),
            source,
        };
        if let Some(file) = &mut self.file {
            file.write_all(lines).map_err(failed)?;
        }
        if !self.is_output {
            let mut out = io::stdout().lock();
            out.write_all(lines).and_then(|()| out.flush()).map_err(failed)?;
        }
        self.written += lines.len() as u64;
        if let Some(server) = &self.server {
            server.written(self.written);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), TraceError> {
        if let Some(server) = self.server {
            server.finish();
        }
        Ok(())
    }
}

/// The rings and what has been made of them.
struct Collector {
    spool: Spool,
    assembler: Assembler,
    start: Instant,
    records: Vec<u64>,
}

impl Collector {
    fn new(rings: &Path, start: Instant, has_times: bool) -> Self {
        Self {
            spool: Spool::new(rings),
            assembler: Assembler::default().with_times(has_times),
            start,
            records: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes what is there; the most records of one ring.
    fn pass(&mut self) -> Result<u64, TraceError> {
        let known = self.spool.rings.len();
        self.spool.scan()?;
        for ring in &self.spool.rings[known..] {
            self.assembler.source(ring.writer.clone());
            self.records.push(0);
        }
        let now = self.now();
        let mut most = 0;
        for (source, ring) in self.spool.rings.iter_mut().enumerate() {
            let taken = ring.drain(|record| self.assembler.record(source, record, now));
            self.records[source] += taken;
            most = most.max(taken);
        }
        self.assembler.settle(now);
        Ok(most)
    }

    /// Ends tracing in whatever still runs; how many events were lost.
    fn finish(&mut self) -> Result<u64, TraceError> {
        let lost = self.spool.rings.iter().map(super::spool::Ring::close).sum();
        self.pass()?;
        let now = self.now();
        self.assembler.finish(now);
        Ok(lost)
    }

    fn report(&self, args: &TraceArgs, elapsed: Duration, lost: u64) -> Report {
        let rings = self.spool.rings.iter().zip(&self.records);
        let costs: Vec<(u64, u64)> = rings.map(|(ring, count)| (ring.writer.cost_ns, *count)).collect();
        Report::of(args, &self.assembler, elapsed, &costs, lost)
    }
}

/// An input for the what-if model, to be edited.
pub(super) fn scenario(report: &Report, args: &TraceArgs) -> String {
    let mut text = String::from("# Which processes share a processor. Here every one has its own.\ngroups:");
    text.push_str(if report.processes.is_empty() {
        " []\n"
    } else {
        "\n"
    });
    for process in &report.processes {
        let name = &process.process;
        let quoted = if name.parse::<u64>().is_ok() {
            name.clone()
        } else {
            serde_json::Value::from(name.as_str()).to_string()
        };
        text.push_str(&format!(
            "  - [{quoted}]  # {} on {}\n",
            process.program, process.host
        ));
    }
    text.push_str(
        "# One-way times of messages by size, inside a processor and between two; put those of a network here.\n\
         network:\n  local: [{size: 0B, time: 0us}]\n  remote: [{size: 0B, time: 0us}]\n",
    );
    if args.out != Path::new("-") {
        let events = std::path::absolute(&args.out).unwrap_or_else(|_| args.out.clone());
        text.push_str(&format!(
            "events: {}\n",
            serde_json::Value::from(events.display().to_string())
        ));
    }
    text
}
