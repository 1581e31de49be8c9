//! A load: mount, make the data set, warm up, run, remove the data set, report.
//!
//! Model: a few threads, each with its own runtime and connections, share one plan of requests, so
//! the mix is held over all of them. Whatever ends the load (its time, the user, a server that does
//! not answer) the data set is removed if the server still lets us, and what was measured is kept.
//! A call that fails counts and the load goes on; a lost connection is made again. When nothing has
//! been answered for as long as a call may take, the server is taken for gone and the run ends.

mod worker;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use perturb_stats::HistogramError;

use super::{
    client::{CallError, Client, Export, MountError, Options, Ports, mount, unmount},
    data_set::{self, Claim, DataSetError, Extent, Place},
    mix::Mix,
    planner::Planner,
    record::{Arrivals, CutShort, Record, Seen, Window, ms},
    stop::Stop,
};

/// Connections that make and remove the data set.
const MAKERS: usize = 4;
/// How long after the run its last calls may take.
const DRAIN: Duration = Duration::from_secs(2);
/// From the last connection to the first call.
const LEAD: Duration = Duration::from_millis(20);

/// What load to put on which server.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// Server and path.
    pub export: Export,
    /// Ports, where the port mapper is not to be asked.
    pub ports: Ports,
    /// How to call.
    pub options: Options,
    /// What to call.
    pub mix: Mix,
    /// RPCs per second.
    pub rate: f64,
    /// How they arrive.
    pub arrivals: Arrivals,
    /// Time before the run, under the same load.
    pub warmup: Duration,
    /// Time of the run.
    pub duration: Duration,
    /// Factor of the data set's size.
    pub scale: f64,
    /// Processes of a closed load; without it one for 20 op/s, 4 at least and 256 at most.
    pub processes: Option<usize>,
    /// Connections; without it one for each process, 32 at most.
    pub connections: Option<usize>,
    /// Threads; without it one for each processor, 4 at most.
    pub threads: Option<usize>,
    /// Name of the directory to work in, below the export.
    pub directory: String,
    /// Whether a directory that an earlier run left behind may be used.
    pub reuse: bool,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Whether the record is to hold all response times.
    pub histogram: bool,
}

/// What a load is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// Making files.
    Making {
        /// Files made.
        done: u64,
        /// Files to be made.
        of: u64,
    },
    /// Putting load on the server.
    Running {
        /// Time since the first call.
        elapsed: Duration,
        /// Time of warm-up and run.
        of: Duration,
        /// Calls answered.
        answered: u64,
        /// Calls failed.
        failed: u64,
    },
    /// Removing files.
    Removing,
}

/// What came of a load.
#[derive(Debug)]
pub struct Outcome {
    /// What was measured.
    pub record: Record,
    /// One full message for each kind of error.
    pub examples: Vec<String>,
    /// Why the data set is still there, if it is.
    pub left_behind: Option<DataSetError>,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A setting is out of range.
    #[error("{key} is {value}; it must be {allowed}")]
    Setting {
        key: &'static str,
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
    /// No file handle.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// No connection.
    #[error(transparent)]
    Call(#[from] CallError),
    /// No data set.
    #[error(transparent)]
    DataSet(#[from] DataSetError),
    /// No runtime, timer or thread.
    #[error("starting a {what}: {reason}")]
    System {
        /// What is missing.
        what: &'static str,
        /// The system's reason.
        reason: io::Error,
    },
    /// No histogram.
    #[error(transparent)]
    Histogram(#[from] HistogramError),
    /// Stopped before anything was measured.
    #[error("stopped before the run began; nothing was measured")]
    Stopped,
    /// The server stopped answering before anything was measured.
    #[error("the server stopped answering before the run began: {example}")]
    ServerGone {
        /// The first error.
        example: String,
    },
}

/// How a load is spread.
#[derive(Clone, Debug)]
struct Shape {
    server: SocketAddr,
    options: Options,
    processes: usize,
    connections: usize,
    threads: usize,
}

/// What the threads share.
struct Shared {
    shape: Shape,
    arrivals: Arrivals,
    rate: f64,
    seed: u64,
    begin: Instant,
    window: Window,
    planner: Mutex<Planner>,
    /// The run is over early.
    over: Stop,
    answered: AtomicU64,
    failed: AtomicU64,
    retransmissions: AtomicU64,
    /// Nanoseconds after `begin`.
    last_reply: AtomicU64,
    last_failure: AtomicU64,
}

/// Runs a load to its end. Blocks; must not be called from a task of a runtime. Sockets are made on this thread
/// and on threads that it starts, so they belong to this thread's network namespace.
pub fn run(plan: &Plan, stop: &Stop, progress: &(dyn Fn(Progress) + Sync)) -> Result<Outcome, LoadError> {
    plan.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|reason| LoadError::System {
            what: "runtime",
            reason,
        })?;
    runtime.block_on(async {
        let (server, root) = mount(&plan.export, plan.ports, &plan.options).await?;
        let makers = connect(server, &plan.options, MAKERS.min(plan.connections())).await?;
        let place = Place {
            root,
            directory: plan.directory.clone(),
        };
        let claim = data_set::claim(&makers[0], place, plan.reuse).await?;
        let measured = measure(plan, &makers, server, &claim, stop, progress).await;
        progress(Progress::Removing);
        let left_behind = tidy(makers, server, plan, &claim).await.err();
        let (record, examples) = measured?;
        Ok(Outcome {
            record,
            examples,
            left_behind,
        })
    })
}

async fn measure(
    plan: &Plan,
    makers: &[Client],
    server: SocketAddr,
    claim: &Claim,
    stop: &Stop,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Record, Vec<String>), LoadError> {
    let extent = Extent::of(plan.rate, plan.scale);
    let report = |done| {
        progress(Progress::Making {
            done,
            of: extent.files,
        });
    };
    let data = data_set::make(makers, claim, extent, plan.scale, plan.seed, stop, &report).await?;
    let planner = Planner::new(&plan.mix, data, plan.seed);
    let shape = plan.shape(server);
    let (connected, connections) = mpsc::channel();
    let (mut threads, mut starts) = (Vec::new(), Vec::new());
    for index in 0..shape.threads {
        let (shape, connected) = (shape.clone(), connected.clone());
        let (start, started) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("load {index}"))
            .spawn(move || worker::run(&shape, index, &connected, &started))
            .map_err(|reason| LoadError::System {
                what: "thread",
                reason,
            })?;
        threads.push(thread);
        starts.push(start);
    }
    // The clock starts when every thread is connected. An early return lets the threads end.
    for _ in 0..shape.threads {
        if let Ok(failed @ Err(_)) = connections.recv() {
            failed?;
        }
    }
    let shared = Arc::new(Shared::new(plan, shape, planner));
    for start in starts {
        // A thread that is gone has panicked; joining it says so.
        let _ = start.send(Arc::clone(&shared));
    }
    let cut_short = watch(&shared, plan, stop, progress, &threads).await;
    let mut seen = Seen::new(shared.window)?;
    for thread in threads {
        let theirs = thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        if let Some(theirs) = theirs {
            seen.merge(theirs);
        }
    }
    let lasted = match &cut_short {
        None => shared.window.length(),
        Some((_, at)) => at
            .saturating_duration_since(shared.window.start)
            .min(shared.window.length()),
    };
    let examples = seen.examples();
    match cut_short {
        Some((CutShort::Stopped, _)) if lasted.is_zero() => return Err(LoadError::Stopped),
        Some((CutShort::ServerGone, _)) if lasted.is_zero() => {
            let example = examples.first().cloned().unwrap_or_else(|| "no reply".into());
            return Err(LoadError::ServerGone { example });
        }
        _ => {}
    }
    let record = plan.record(&shared, &seen, extent, lasted, cut_short.map(|(why, _)| why))?;
    Ok((record, examples))
}

/// Waits for the threads, and ends the run early if it must.
async fn watch(
    shared: &Shared,
    plan: &Plan,
    stop: &Stop,
    progress: &(dyn Fn(Progress) + Sync),
    threads: &[std::thread::JoinHandle<Result<Option<Seen>, LoadError>>],
) -> Option<(CutShort, Instant)> {
    let mut cut_short = None;
    while !threads.iter().all(std::thread::JoinHandle::is_finished) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let elapsed = shared.begin.elapsed();
        let of = plan.warmup + plan.duration;
        progress(Progress::Running {
            elapsed: elapsed.min(of),
            of,
            answered: shared.answered.load(Ordering::Relaxed),
            failed: shared.failed.load(Ordering::Relaxed),
        });
        if cut_short.is_some() || elapsed >= of {
            continue;
        }
        if stop.is_set() {
            cut_short = Some((CutShort::Stopped, Instant::now()));
        } else if shared.is_server_gone(elapsed) {
            cut_short = Some((CutShort::ServerGone, Instant::now()));
        }
        if cut_short.is_some() {
            shared.over.set();
        }
    }
    cut_short
}

/// Removes the data set, over new connections if the old ones are lost.
async fn tidy(
    makers: Vec<Client>,
    server: SocketAddr,
    plan: &Plan,
    claim: &Claim,
) -> Result<(), DataSetError> {
    let clients = if makers.iter().any(Client::is_lost) {
        connect(server, &plan.options, 1)
            .await
            .map_err(|reason| DataSetError::Call {
                step: super::procedure::Procedure::Null,
                name: plan.directory.clone(),
                reason,
            })?
    } else {
        makers
    };
    data_set::remove(&clients, claim).await?;
    // The server only strikes us off a list.
    let _ = unmount(&plan.export, plan.ports, &plan.options).await;
    Ok(())
}

async fn connect(server: SocketAddr, options: &Options, count: usize) -> Result<Vec<Client>, CallError> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(Client::connect(server, options).await?);
    }
    Ok(clients)
}

impl Plan {
    fn check(&self) -> Result<(), LoadError> {
        let positive = [
            ("rate", self.rate),
            ("duration (in seconds)", self.duration.as_secs_f64()),
            ("scale", self.scale),
            ("processes", self.processes.map_or(1.0, |count| count as f64)),
            ("connections", self.connections.map_or(1.0, |count| count as f64)),
            ("threads", self.threads.map_or(1.0, |count| count as f64)),
        ];
        match positive
            .into_iter()
            .find(|(_, value)| !(value.is_finite() && *value > 0.0))
        {
            Some((key, value)) => Err(LoadError::Setting {
                key,
                value,
                allowed: "greater than 0",
            }),
            None => Ok(()),
        }
    }

    fn processes(&self) -> usize {
        match self.arrivals {
            Arrivals::Closed => self
                .processes
                .unwrap_or_else(|| ((self.rate / 20.0).ceil() as usize).clamp(4, 256)),
            // An open load has no processes: every call is on its own.
            Arrivals::Open => self.connections(),
        }
    }

    fn connections(&self) -> usize {
        let processes = match self.arrivals {
            Arrivals::Closed => self.processes(),
            Arrivals::Open => self.processes.unwrap_or(32),
        };
        self.connections.unwrap_or_else(|| processes.min(32))
    }

    fn threads(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads
            .unwrap_or(processors.min(4))
            .min(self.connections())
            .min(self.processes())
    }

    fn shape(&self, server: SocketAddr) -> Shape {
        Shape {
            server,
            options: self.options.clone(),
            processes: self.processes(),
            connections: self.connections(),
            threads: self.threads(),
        }
    }

    fn record(
        &self,
        shared: &Shared,
        seen: &Seen,
        extent: Extent,
        lasted: Duration,
        cut_short: Option<CutShort>,
    ) -> Result<Record, HistogramError> {
        let all = seen.all()?;
        let quantile = |q| all.quantile(q).ok().flatten().map(ms);
        Ok(Record {
            mix: self.mix.name().to_owned(),
            arrivals: self.arrivals,
            requested_op_s: self.rate,
            delivered_op_s: all.len() as f64 / lasted.as_secs_f64(),
            mean_ms: all.mean().map(ms),
            mean_interval_ms: seen.mean_interval_ms(),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            late_p99_ms: seen.late_p99_ms(),
            errors: seen.errors(),
            errors_by_kind: seen.errors_by_kind(),
            retransmissions: shared.retransmissions.load(Ordering::Relaxed),
            packets_per_op: None,
            cut_short,
            unanswered: seen.unanswered(),
            transport: self.options.transport,
            processes: shared.shape.processes,
            connections: shared.shape.connections,
            scale: self.scale,
            data_set: extent,
            warmup_s: self.warmup.as_secs_f64(),
            duration_s: lasted.as_secs_f64(),
            seed: self.seed,
            operations: seen.operations(),
            histogram: if self.histogram {
                all.iter().collect()
            } else {
                Vec::new()
            },
        })
    }
}

impl Shared {
    fn new(plan: &Plan, shape: Shape, planner: Planner) -> Self {
        let begin = Instant::now() + LEAD;
        let start = begin + plan.warmup;
        Self {
            shape,
            arrivals: plan.arrivals,
            rate: plan.rate,
            seed: plan.seed,
            begin,
            window: Window {
                start,
                end: start + plan.duration,
            },
            planner: Mutex::new(planner),
            over: Stop::default(),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            retransmissions: AtomicU64::new(0),
            last_reply: AtomicU64::new(0),
            last_failure: AtomicU64::new(0),
        }
    }

    /// Calls fail, and none has succeeded for as long as one may take.
    fn is_server_gone(&self, elapsed: Duration) -> bool {
        let reply = self.last_reply.load(Ordering::Relaxed);
        let failure = self.last_failure.load(Ordering::Relaxed);
        failure > reply && elapsed.saturating_sub(Duration::from_nanos(reply)) > self.shape.options.timeout
    }

    fn since_begin(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begin).as_nanos()).unwrap_or(u64::MAX)
    }
}
