//! One traced run: the command, its rings, the file.

mod signals;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use self::signals::Signals;
use crate::address::Address;
use crate::alive::Alive;
use crate::assembler::{Assembler, ProcessReport};
use crate::record::CAPACITY;
use crate::serve::Server;
use crate::spool::{Ring, Spool, SpoolError};
use crate::wire::{Frame, Sender};

pub use crate::preload::Layer;

/// The interposition library, which the build script compiles.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libperturb_trace.so"));
/// Memory that all users may write, where the rings cost no disk.
const SHARED_MEMORY: &str = "/dev/shm";
/// Between two looks at the rings when they are quiet.
const PAUSE: Duration = Duration::from_millis(5);
/// How long processes that outlive the command may go on being recorded.
const AFTERWARDS: Duration = Duration::from_millis(300);

/// What is traced, and where it goes.
#[derive(Debug, Clone)]
pub struct Options {
    /// The command and its arguments; not looked at where traces are merged.
    pub command: Vec<OsString>,
    /// What is traced of it.
    pub layer: Layer,
    /// Where the events go; `-` is standard output.
    pub out: PathBuf,
    /// Who connects here is given the events as they happen.
    pub collect: Option<Address>,
    /// An input for the what-if model, which is written.
    pub scenario: Option<PathBuf>,
    /// Whether events say when they happened.
    pub has_times: bool,
    /// Where the rings lie; in shared memory if there is none.
    pub rings: Option<PathBuf>,
    /// The command's standard output goes to standard error.
    pub owns_output: bool,
}

/// What went wrong, but for the command itself.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The output.
    #[error("writing {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// The address of --collect.
    #[error("--collect: listening: {0}")]
    Listen(io::Error),
    /// The address of --merge.
    #[error("--merge: waiting for `perturb trace --to`: {0}")]
    Merge(io::Error),
    /// The collector.
    #[error("--to {address}: {source}; is `perturb trace --merge` running there?")]
    Send { address: String, source: io::Error },
    /// The directory for the rings and the library.
    #[error("making a directory for the traced processes in {path}: {source}")]
    Directory { path: PathBuf, source: io::Error },
    /// The traced processes.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The command.
    #[error("starting {command}: {source}")]
    Start { command: String, source: io::Error },
    /// Waiting for it.
    #[error("waiting for the command: {0}")]
    Wait(io::Error),
}

impl TraceError {
    /// Of writing a file.
    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write {
            path: path.to_owned(),
            source,
        }
    }
}

/// What a run came to.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How long the command took.
    #[serde(serialize_with = "seconds")]
    #[serde(rename = "elapsed_s")]
    pub elapsed: Duration,
    /// From the first to the last event.
    pub traced_us: f64,
    /// Events that the trace has.
    pub events: u64,
    /// Of the CPU time of the traced processes' events, in percent, at the cost per event that they measured.
    pub recording_percent: f64,
    /// Calls that moved bytes from or to sockets whose other end is not traced.
    pub outside: u64,
    /// Events lost because the collector was too slow.
    pub lost: u64,
    /// The processes of the model.
    pub processes: Vec<ProcessReport>,
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl Report {
    /// Of what was assembled; by ring, what recording an event costs and how many there were.
    pub(crate) fn of(assembler: &Assembler, elapsed: Duration, costs: &[(u64, u64)], lost: u64) -> Self {
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
        }
    }
}

/// Runs the command without tracing: how it ended, and after how long.
///
/// # Errors
/// When the command cannot be started.
pub fn untraced(options: &Options) -> Result<(ExitStatus, Duration), TraceError> {
    let start = Instant::now();
    let mut child = start_command(options, &[])?;
    let signals = Signals::install();
    let status = loop {
        signals.pass_on(&child);
        match child.try_wait().map_err(TraceError::Wait)? {
            Some(status) => break status,
            None => std::thread::sleep(PAUSE),
        }
    };
    Ok((status, start.elapsed()))
}

/// Runs the command and traces it: how it ended, and what came of it.
///
/// # Errors
/// What went wrong, but for the command itself.
pub fn traced(options: &Options) -> Result<(ExitStatus, Report), TraceError> {
    let place = Place::make(options.rings.as_deref())?;
    let mut trace = Trace::create(options)?;
    let start = Instant::now();
    let mut collector = Collector {
        spool: Spool::new(place.rings.path()),
        alive: Alive::default(),
        assembler: Assembler::new(options.has_times),
        start,
        costs: Vec::new(),
    };
    let (status, elapsed) = follow(options, &place, start, || {
        let taken = collector.pass()?;
        trace.append(&collector.assembler.take_lines())?;
        Ok(taken)
    })?;
    // Ends tracing in whatever still runs.
    let lost = collector.spool.rings.iter().map(Ring::close).sum();
    collector.pass()?;
    collector.assembler.finish(collector.now());
    trace.append(&collector.assembler.take_lines())?;
    trace.finish();
    let report = Report::of(&collector.assembler, elapsed, &collector.costs, lost);
    write_scenario(&report, options)?;
    Ok((status, report))
}

/// Runs the command and sends its records to a collector: how it ended, and how many records of how many processes.
///
/// # Errors
/// What went wrong, but for the command itself.
pub fn sent(options: &Options, address: &Address) -> Result<(ExitStatus, u64, usize), TraceError> {
    let failed = |source| TraceError::Send {
        address: address.to_string(),
        source,
    };
    let mut sender = Sender::connect(address).map_err(failed)?;
    let place = Place::make(options.rings.as_deref())?;
    let mut spool = Spool::new(place.rings.path());
    let mut alive = Alive::default();
    let mut total = 0;
    let mut pass = |spool: &mut Spool| -> Result<u64, TraceError> {
        let known = spool.rings.len();
        spool.scan()?;
        for ring in &spool.rings[known..] {
            sender.send(&Frame::Process(ring.writer.clone()));
        }
        let mut most = 0;
        for (ring, number) in spool.rings.iter_mut().zip(0..) {
            let mut records = Vec::new();
            most = most.max(ring.drain(|record| records.push(record)));
            total += records.len() as u64;
            for records in records.chunks(CAPACITY as usize) {
                sender.send(&Frame::Records(number, records.to_vec()));
            }
        }
        for (ring, record) in alive.silent(&spool.rings) {
            sender.send(&Frame::Records(ring as u32, vec![record]));
        }
        Ok(most)
    };
    let (status, _) = follow(options, &place, Instant::now(), || pass(&mut spool))?;
    let lost = spool.rings.iter().map(Ring::close).sum();
    pass(&mut spool)?;
    sender.end(lost).map_err(failed)?;
    Ok((status, total, spool.rings.len()))
}

/// Runs the command with the library preloaded and looks at the rings (`pass`, which says how many records one had at
/// most) until it has ended and they are quiet: how it ended, and when.
fn follow(
    options: &Options,
    place: &Place,
    start: Instant,
    mut pass: impl FnMut() -> Result<u64, TraceError>,
) -> Result<(ExitStatus, Duration), TraceError> {
    let preload = preload(&place.library);
    let environment = [
        ("LD_PRELOAD", preload.as_os_str()),
        ("PERTURB_TRACE_DIRECTORY", place.rings.path().as_os_str()),
        ("PERTURB_TRACE_LAYER", OsStr::new(options.layer.name())),
    ];
    let mut child = start_command(options, &environment)?;
    let signals = Signals::install();
    let mut ended: Option<(ExitStatus, Duration)> = None;
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
            _ if taken < CAPACITY / 8 => std::thread::sleep(PAUSE),
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

fn start_command(options: &Options, environment: &[(&str, &OsStr)]) -> Result<Child, TraceError> {
    let [program, arguments @ ..] = options.command.as_slice() else {
        unreachable!("the command line requires one")
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().copied());
    if options.owns_output {
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
pub(crate) struct Trace<'a> {
    /// What readers are served from; the output itself if it is a file.
    file: Option<File>,
    is_output: bool,
    server: Option<Server>,
    written: u64,
    path: &'a Path,
}

impl<'a> Trace<'a> {
    pub(crate) fn create(options: &'a Options) -> Result<Self, TraceError> {
        let failed = TraceError::write(&options.out);
        let is_output = options.out != Path::new("-");
        let file = if is_output {
            let mut file = File::options();
            file.read(true).write(true).create(true).truncate(true);
            Some(file.open(&options.out).map_err(&failed)?)
        } else if options.collect.is_some() {
            Some(tempfile::tempfile().map_err(&failed)?)
        } else {
            None
        };
        let server = match (&options.collect, &file) {
            (Some(address), Some(file)) => {
                let file = file.try_clone().map_err(&failed)?;
                Some(Server::start(address, file).map_err(TraceError::Listen)?)
            }
            _ => None,
        };
        Ok(Self {
            file,
            is_output,
            server,
            written: 0,
            path: &options.out,
        })
    }

    pub(crate) fn append(&mut self, lines: &[u8]) -> Result<(), TraceError> {
        if lines.is_empty() {
            return Ok(());
        }
        let failed = TraceError::write(self.path);
        if let Some(file) = &mut self.file {
            file.write_all(lines).map_err(&failed)?;
        }
        if !self.is_output {
            let mut out = io::stdout().lock();
            out.write_all(lines).and_then(|()| out.flush()).map_err(&failed)?;
        }
        self.written += lines.len() as u64;
        if let Some(server) = &self.server {
            server.written(self.written);
        }
        Ok(())
    }

    pub(crate) fn finish(self) {
        if let Some(server) = self.server {
            server.finish();
        }
    }
}

/// The rings and what has been made of them.
struct Collector {
    spool: Spool,
    alive: Alive,
    assembler: Assembler,
    start: Instant,
    /// By ring: what recording an event costs, and how many there were.
    costs: Vec<(u64, u64)>,
}

impl Collector {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes what is there; the most records of one ring.
    fn pass(&mut self) -> Result<u64, TraceError> {
        let known = self.spool.rings.len();
        self.spool.scan()?;
        for ring in &self.spool.rings[known..] {
            self.assembler.source(ring.writer.clone());
            self.costs.push((ring.writer.cost_ns, 0));
        }
        let now = self.now();
        let mut most = 0;
        for (source, ring) in self.spool.rings.iter_mut().enumerate() {
            let taken = ring.drain(|record| self.assembler.record(source, record, now));
            self.costs[source].1 += taken;
            most = most.max(taken);
        }
        for (source, record) in self.alive.silent(&self.spool.rings) {
            self.assembler.record(source, record, now);
        }
        self.assembler.settle(now);
        Ok(most)
    }
}

/// Writes an input for the what-if model, to be edited, if one is wanted.
pub(crate) fn write_scenario(report: &Report, options: &Options) -> Result<(), TraceError> {
    let Some(path) = &options.scenario else {
        return Ok(());
    };
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
    if options.out != Path::new("-") {
        let events = std::path::absolute(&options.out).unwrap_or_else(|_| options.out.clone());
        text.push_str(&format!(
            "events: {}\n",
            serde_json::Value::from(events.display().to_string())
        ));
    }
    std::fs::write(path, text).map_err(TraceError::write(path))
}
