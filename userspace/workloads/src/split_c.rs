//! The programs of Martin 1999, chapter 3, with their answers.
//!
//! Each runs as one process on each host, over [processes that reach into each other's memory](crate::mesh), which is
//! what Split-C gives to its programs. It makes its input from a seed, computes, and compares what it computed with what
//! one processor alone finds. Only the computation between is timed, from one barrier to another.
//!
//! | program | what it communicates |
//! |---|---|
//! | [`Radix`] | histograms passed from process to process, then single keys to where they belong; or keys in bulk |
//! | [`Sample`] | single keys to whom they belong |
//! | [`Em3d`] | values of a graph's neighbors, read one after another, or written without waiting |
//! | [`Barnes`] | an oct-tree that all build at once, under locks; then its cells, read through a cache |
//! | [`PRay`] | an oct-tree of spheres, read through a cache of fixed size |
//! | [`Connect`] | representatives of components, read one after another |
//! | [`Murphi`] | states of a protocol, to whom they belong, as they are found |
//! | [`NowSort`] | records in bulk, from disk to disk |
//!
//! What differs from the thesis: the sizes, and what the programs' own comments say.

mod barnes;
mod connect;
mod em3d;
mod murphi;
mod now_sort;
mod p_ray;
mod radix;
mod sample;
mod space;
#[cfg(test)]
mod tests;

use std::{fmt, io, net::IpAddr, ops::Range, time::Instant};

use perturb_stats::SplitMix64;

pub use self::{
    barnes::Barnes,
    connect::Connect,
    em3d::{Em3d, Form},
    murphi::{MOST, Murphi},
    now_sort::NowSort,
    p_ray::PRay,
    radix::Radix,
    sample::Sample,
};
use crate::mesh::{MeshError, Process, Traffic};

/// One of the programs.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// Sorts by digits.
    Radix(Radix),
    /// Sorts by samples.
    Sample(Sample),
    /// Propagates a wave over a graph.
    Em3d(Em3d),
    /// Moves bodies that attract each other.
    Barnes(Barnes),
    /// Draws spheres.
    PRay(PRay),
    /// Labels components.
    Connect(Connect),
    /// Explores a protocol.
    Murphi(Murphi),
    /// Sorts from disk to disk.
    NowSort(NowSort),
}

impl Program {
    /// The part of process `rank` of those on the hosts with these addresses. The first one knows how all went.
    ///
    /// # Errors
    /// When the others are not there, the problem does not fit, or the answer is wrong.
    pub fn run(&self, rank: usize, addresses: &[IpAddr]) -> Result<Option<Outcome>, SplitCError> {
        self.run_with(rank, addresses, |_| {})
    }

    /// Runs it; `meddle` may change a process' part of the answer before it is looked at.
    fn run_with(
        &self,
        rank: usize,
        addresses: &[IpAddr],
        meddle: impl Fn(&mut Part),
    ) -> Result<Option<Outcome>, SplitCError> {
        match self {
            Self::Radix(program) => run(program, rank, addresses, meddle),
            Self::Sample(program) => run(program, rank, addresses, meddle),
            Self::Em3d(program) => run(program, rank, addresses, meddle),
            Self::Barnes(program) => run(program, rank, addresses, meddle),
            Self::PRay(program) => run(program, rank, addresses, meddle),
            Self::Connect(program) => run(program, rank, addresses, meddle),
            Self::Murphi(program) => run(program, rank, addresses, meddle),
            Self::NowSort(program) => run(program, rank, addresses, meddle),
        }
    }
}

/// Why a program has no answer, or a wrong one.
#[derive(Debug, thiserror::Error)]
pub enum SplitCError {
    /// Processes, and their connections.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The answer is wrong.
    #[error("the answer is wrong: process {rank}: {what}")]
    Wrong {
        /// Whose part.
        rank: usize,
        what: String,
    },
    /// Other processes' answers are wrong.
    #[error("the answer is wrong: see what the other processes say")]
    Others,
    /// The parts are no whole.
    #[error("the answer is wrong: it has {found} values, and {expected} were to be computed")]
    Incomplete {
        /// Values of all parts.
        found: u64,
        /// What they should be.
        expected: u64,
    },
    /// Too few things for the processes.
    #[error("{total} {things} are too few for {size} processes; ask for at least {least} for each")]
    Few {
        total: usize,
        things: &'static str,
        /// How many each needs.
        least: usize,
        /// How many processes.
        size: usize,
    },
    /// A file.
    #[error("{action}: {source}")]
    File {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A tree that does not fit.
    #[error("the tree is too deep or too large: two bodies are at the same place")]
    Room,
}

/// What a program has to say of itself.
trait Parallel {
    /// What a process knows before the time is taken.
    type Input;

    /// What it is called.
    fn name(&self) -> &'static str;
    /// Words of the memory that it needs in each of so many processes.
    fn words(&self, size: usize) -> usize;
    /// Values of the whole answer.
    fn values(&self) -> u64;
    /// Makes the input, and says what is wrong with the problem.
    fn prepare(&self, process: &mut Process) -> Result<Self::Input, SplitCError>;
    /// Computes this process' part of the answer.
    fn compute(&self, process: &mut Process, input: &mut Self::Input) -> Result<Part, SplitCError>;
    /// Brings in a part that does not lie in memory; no time is taken any more.
    fn collect(&self, _: &mut Process, _: Self::Input, part: Part) -> Result<Part, SplitCError> {
        Ok(part)
    }
    /// What is wrong with a part, by what one processor alone computes.
    fn check(&self, size: usize, part: &Part) -> Result<(), String>;
}

/// Neighboring values of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    /// The place of the first one in the whole.
    first: usize,
    values: Vec<u64>,
}

impl Part {
    /// Whether it is what belongs into its place.
    fn equals<T: fmt::Debug>(&self, expected: &[u64], shown: impl Fn(u64) -> T) -> Result<(), String> {
        let places = self.first..self.first + self.values.len();
        let expected = expected
            .get(places.clone())
            .ok_or_else(|| format!("values {places:?} of only {}", expected.len()))?;
        let pairs = self.values.iter().zip(expected);
        match pairs.enumerate().find(|(_, (value, expected))| value != expected) {
            None => Ok(()),
            Some((index, (value, expected))) => Err(format!(
                "value {} is {:?}; one processor alone finds {:?}",
                self.first + index,
                shown(*value),
                shown(*expected)
            )),
        }
    }

    /// A number that any change of a value or its place changes; those of parts add up to that of the whole.
    fn digest(&self) -> u64 {
        let of = |(index, value): (usize, &u64)| {
            SplitMix64::new(value ^ SplitMix64::new((self.first + index) as u64).bits()).bits()
        };
        self.values.iter().enumerate().map(of).fold(0, u64::wrapping_add)
    }
}

/// What all processes did together.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    pub program: &'static str,
    /// How many processes it had.
    pub processes: usize,
    /// From the start, which all processes wait for, to the end of the last.
    pub run_time_s: f64,
    /// The answer is what one processor alone computes.
    pub checked: bool,
    /// A digest of the answer.
    pub answer: String,
    /// Messages that all have sent, answers included.
    pub messages: u64,
    /// Messages of the process that sent most.
    pub messages_of_busiest: u64,
    /// From each (row) to each (column), as in Fig. 3.1.
    pub matrix: Vec<Vec<u64>>,
    /// Bytes of all messages, without TCP's headers.
    pub bytes: u64,
    /// Messages of more than six words.
    pub bulk_messages: u64,
    /// Their bytes.
    pub bulk_bytes: u64,
    /// Questions for values, and answers to them.
    pub reads: u64,
    /// Barriers, in each process.
    pub barriers: u64,
    /// Locks of others that were asked for in vain.
    pub failed_locks: u64,
    /// Time between two messages of a process, us.
    pub message_interval_us: f64,
    /// Time between two barriers, ms.
    pub barrier_interval_ms: f64,
    /// Share of bulk messages, %.
    pub bulk_percent: f64,
    /// Share of questions for values and of their answers, %.
    pub reads_percent: f64,
    /// Bytes in bulk that a process sends, kB/s.
    pub bulk_kb_per_s: f64,
    /// The others, kB/s.
    pub small_kb_per_s: f64,
}

impl Outcome {
    fn new(
        program: &'static str,
        run_time_s: f64,
        traffic: &[Traffic],
        matrix: Vec<Vec<u64>>,
        digest: u64,
    ) -> Self {
        let sum = |of: fn(&Traffic) -> u64| traffic.iter().map(of).sum::<u64>();
        let (messages, bytes) = (sum(|of| of.messages), sum(|of| of.bytes));
        let (bulk_messages, bulk_bytes) = (sum(|of| of.bulk_messages), sum(|of| of.bulk_bytes));
        let reads = sum(|of| of.reads);
        let barriers = traffic.iter().map(|of| of.barriers).max().unwrap_or(0);
        let processes = traffic.len();
        let share = |part: u64| 100.0 * part as f64 / (messages as f64).max(1.0);
        let rate = |bytes: u64| bytes as f64 / processes as f64 / run_time_s / 1e3;
        Self {
            program,
            processes,
            run_time_s,
            checked: true,
            answer: format!("{digest:016x}"),
            messages,
            messages_of_busiest: traffic.iter().map(|of| of.messages).max().unwrap_or(0),
            matrix,
            bytes,
            bulk_messages,
            bulk_bytes,
            reads,
            barriers,
            failed_locks: sum(|of| of.failed_locks),
            message_interval_us: run_time_s * 1e6 * processes as f64 / (messages as f64).max(1.0),
            barrier_interval_ms: run_time_s * 1e3 / (barriers as f64).max(1.0),
            bulk_percent: share(bulk_messages),
            reads_percent: share(reads),
            bulk_kb_per_s: rate(bulk_bytes),
            small_kb_per_s: rate(bytes - bulk_bytes),
        }
    }
}

/// Runs process `rank` of a program.
fn run<P: Parallel>(
    program: &P,
    rank: usize,
    addresses: &[IpAddr],
    meddle: impl Fn(&mut Part),
) -> Result<Option<Outcome>, SplitCError> {
    let size = addresses.len();
    Process::connect(rank, addresses, program.words(size))?.run(|process| {
        let mut input = program.prepare(process)?;
        process.barrier()?;
        let (before, sent_before) = (process.traffic(), process.sent());
        let start = Instant::now();
        let part = program.compute(process, &mut input)?;
        process.barrier()?;
        let run_time_s = start.elapsed().as_secs_f64();
        let (traffic, sent) = (process.traffic(), process.sent());
        let mut part = program.collect(process, input, part)?;
        meddle(&mut part);
        let checked = program.check(size, &part);
        let mut of = |after: u64, before: u64| process.gather(after - before);
        let wrong = of(checked.is_err().into(), 0)?;
        let values = of(part.values.len() as u64, 0)?;
        let digests = of(part.digest(), 0)?;
        let messages = of(traffic.messages, before.messages)?;
        let bytes = of(traffic.bytes, before.bytes)?;
        let bulk_messages = of(traffic.bulk_messages, before.bulk_messages)?;
        let bulk_bytes = of(traffic.bulk_bytes, before.bulk_bytes)?;
        let reads = of(traffic.reads, before.reads)?;
        let barriers = of(traffic.barriers, before.barriers)?;
        let failed_locks = of(traffic.failed_locks, before.failed_locks)?;
        let columns = sent
            .iter()
            .zip(&sent_before)
            .map(|(after, before)| of(*after, *before));
        let columns: Vec<Vec<u64>> = columns.collect::<Result<_, _>>()?;
        // All have come to the same conclusion; those that found the fault say what it is.
        process.barrier()?;
        if let Err(what) = checked {
            return Err(SplitCError::Wrong { rank, what });
        }
        if rank > 0 {
            return Ok(None);
        }
        if wrong.contains(&1) {
            return Err(SplitCError::Others);
        }
        let found = values.iter().sum();
        let expected = program.values();
        if found != expected {
            return Err(SplitCError::Incomplete { found, expected });
        }
        let traffic: Vec<Traffic> = (0..size)
            .map(|rank| Traffic {
                messages: messages[rank],
                bytes: bytes[rank],
                bulk_messages: bulk_messages[rank],
                bulk_bytes: bulk_bytes[rank],
                reads: reads[rank],
                barriers: barriers[rank],
                failed_locks: failed_locks[rank],
            })
            .collect();
        let row = |from: usize| columns.iter().map(|column| column[from]).collect();
        let matrix = (0..size).map(row).collect();
        let digest = digests.into_iter().fold(0, u64::wrapping_add);
        Ok(Some(Outcome::new(
            program.name(),
            run_time_s,
            &traffic,
            matrix,
            digest,
        )))
    })
}

/// Things that lie in blocks with processes, of nearly the same size each.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    total: usize,
    size: usize,
}

impl Blocks {
    /// The things with a process.
    fn range(self, rank: usize) -> Range<usize> {
        self.total * rank / self.size..self.total * (rank + 1) / self.size
    }

    /// The process with a thing, and its place there.
    fn place(self, thing: usize) -> (usize, usize) {
        let owner = ((thing + 1) * self.size - 1) / self.total;
        (owner, thing - self.range(owner).start)
    }

    /// The most things with a process.
    fn most(self) -> usize {
        self.total.div_ceil(self.size)
    }

    /// Refuses fewer than so many things for each process.
    fn enough(self, least: usize, things: &'static str) -> Result<Self, SplitCError> {
        let Self { total, size } = self;
        if total < least * size {
            return Err(SplitCError::Few {
                total,
                things,
                least,
                size,
            });
        }
        Ok(self)
    }
}

/// The random number of a thing, whoever asks.
fn draw(seed: u64, thing: usize) -> SplitMix64 {
    SplitMix64::new(SplitMix64::new(seed ^ SplitMix64::new(thing as u64).bits()).bits())
}
