//! `perturb locality`: how local a program's communication is, what its working sets are, and what they
//! cost on a time-multiplexed network.

pub(crate) mod capture;
mod output;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::fs::File;
use std::hash::Hash;
use std::io::{BufReader, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use perturb_models::locality::cost::{Network, NetworkError};
use perturb_models::locality::decision::Decision;
use perturb_models::locality::experiment;
use perturb_models::locality::sequence::Interner;
use perturb_models::locality::thresholds::Thresholds;
use perturb_models::locality::{Document, Method, PartitionError, Partitioning, Sequence, parse};
use serde_json::Value;

use crate::predict::InputError;
use capture::{CaptureError, Skipped};
use output::{Answer, Costs};

/// Arguments of `perturb locality`.
#[derive(Args, Debug)]
pub(crate) struct LocalityArgs {
    /// Requests: loop notation or labels, a pcap or pcapng capture, or JSON lines with a source and a
    /// destination, e.g. from `perturb status --flows --watch --json`; `-` for standard input.
    #[arg(required_unless_present_any = ["experiment", "thresholds"])]
    pub file: Option<PathBuf>,
    /// What the file holds.
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    pub format: Format,
    /// single, natural, `paths M`, `grouped W` (every W loops as one), given or optimal; instead of the file's own. Captures
    /// are cut naturally unless this says otherwise.
    #[arg(long, value_name = "METHOD")]
    pub partition: Option<String>,
    /// Name the paths of each working set.
    #[arg(long)]
    pub working_sets: bool,
    /// A time-multiplexed network: time to load a network state (E), cycle time of a state (A) and paths at
    /// once (m): what the partitionings cost on it.
    #[arg(long, value_name = "E,A,m")]
    pub network: Option<String>,
    /// Instead of a file: overlap of W loops up to which the natural partitioning is better.
    #[arg(long, value_name = "W", conflicts_with_all = ["file", "partition", "format", "working_sets", "network", "experiment"], value_parser = clap::value_parser!(u32).range(2..))]
    pub thresholds: Option<u32>,
    /// Instead of a file: the correlation of cost and 1/L over this many random programs.
    #[arg(long, value_name = "PROGRAMS", requires = "network", conflicts_with_all = ["file", "partition", "format", "working_sets"], value_parser = clap::value_parser!(u32).range(1..))]
    pub experiment: Option<u32>,
    /// Loops of each program of the experiment; 1 to 20 at random if absent.
    #[arg(long, value_name = "N", requires = "experiment", value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: Option<u32>,
    /// Seed of the experiment.
    #[arg(long, default_value_t = 1, requires = "experiment")]
    pub seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What a file of requests holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// By its first bytes.
    Auto,
    /// Labels and loops.
    Text,
    /// pcap or pcapng.
    Capture,
    /// One object per line, or an array of them, with `source` (or `src`) and `destination` (or `dst`).
    JsonLines,
}

/// What is wrong with a file of requests.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    /// It is not UTF-8.
    #[error("not a text in UTF-8 at byte {offset}, nor a capture")]
    NotText { offset: usize },
    /// A line is not JSON.
    #[error("line {line}: {source}")]
    Json {
        /// Which line, from 1.
        line: usize,
        source: serde_json::Error,
    },
    /// The array is not JSON.
    #[error("not an array of objects: {0}")]
    Array(serde_json::Error),
    /// An object has no addresses.
    #[error("object {index}: `{key}` is missing; give `source` and `destination` in every object")]
    NoAddressAt {
        /// Which object, from 1.
        index: usize,
        /// What is missing.
        key: &'static str,
    },
    /// A line has no addresses.
    #[error("line {line}: `{key}` is missing; give `source` and `destination` in every line")]
    NoAddress {
        /// Which line, from 1.
        line: usize,
        /// What is missing.
        key: &'static str,
    },
    /// No method.
    #[error("no partitioning is named; add a line `partition: natural` or give --partition")]
    NoMethod,
}

/// Options that cannot be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionError {
    /// --partition is no method.
    #[error("--partition: {0}")]
    Method(PartitionError),
    /// --network is not three numbers.
    #[error("--network `{text}`: give three numbers E,A,m, e.g. 100,1,8")]
    NetworkForm {
        /// As given.
        text: String,
    },
    /// --network has a number out of range.
    #[error("--network: {0}")]
    Network(NetworkError),
}

/// Whether an error of [`run`] is the input's fault: exit code 2 instead of 1.
#[must_use]
pub(crate) fn is_invalid_input(error: &anyhow::Error) -> bool {
    error.is::<InputError>() || error.is::<OptionError>()
}

/// Runs the command.
///
/// # Errors
/// An error for which [`is_invalid_input`] holds, or what went wrong while printing.
pub(crate) fn run(args: &LocalityArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let network = args.network.as_deref().map(network).transpose()?;
    if let (Some(programs), Some(network)) = (args.experiment, &network) {
        let found = experiment::run(network, programs, args.loops, args.seed);
        return output::experiment(&found, args.json, out);
    }
    if let Some(loops) = args.thresholds {
        return output::thresholds(&Thresholds::of(loops), args.json, out);
    }
    let Some(path) = &args.file else { return Ok(()) };
    let given = args
        .partition
        .as_deref()
        .map(Method::from_str)
        .transpose()
        .map_err(OptionError::Method)?;
    let Requests { document, captured } = requests(path, args.format)?;
    // What is captured has no line that could name a method.
    let natural = captured.is_some().then_some(Method::Natural);
    let Some(method) = given.or(document.method).or(natural) else {
        return Err(InputError::model(path, RequestError::NoMethod).into());
    };
    let partitioning = Partitioning::by(method, &document).map_err(|error| InputError::model(path, error))?;
    let costs = network.map(|network| Costs::of(&network, &document, &partitioning));
    let natural = match method {
        Method::Natural => partitioning.clone(),
        _ => Partitioning::by(Method::Natural, &document).map_err(|error| InputError::model(path, error))?,
    };
    let decision = Decision::of(&natural.partitions, document.sequence.paths() as u64);
    let answer = Answer::of(
        &document,
        method,
        &partitioning,
        decision,
        captured,
        costs,
        args.working_sets,
    );
    if args.json {
        serde_json::to_writer(&mut *out, &answer)?;
        writeln!(out)?;
    } else {
        answer.text(out)?;
    }
    Ok(())
}

fn network(text: &str) -> Result<Network, OptionError> {
    let form = || OptionError::NetworkForm {
        text: text.to_owned(),
    };
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [load, cycle, paths] = fields[..] else {
        return Err(form());
    };
    let number = |text: &str| text.parse::<f64>().map_err(|_| form());
    let paths = paths.parse().map_err(|_| form())?;
    Network::new(number(load)?, number(cycle)?, paths).map_err(OptionError::Network)
}

/// The requests of a file.
struct Requests {
    document: Document,
    /// For captured traffic: what was passed over.
    captured: Option<Skipped>,
}

fn requests(path: &Path, format: Format) -> Result<Requests, InputError> {
    let read = |source| InputError::Read {
        file: path.display().to_string(),
        source,
    };
    let mut input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(read)?)
    };
    let mut start = Vec::new();
    input.by_ref().take(4).read_to_end(&mut start).map_err(read)?;
    let is_capture = capture::is_capture(&start);
    let mut whole = BufReader::with_capacity(1 << 20, std::io::Cursor::new(start).chain(input));
    if format == Format::Capture || (format == Format::Auto && is_capture) {
        return captured(whole).map_err(|error| InputError::model(path, error));
    }
    let mut bytes = Vec::new();
    whole.read_to_end(&mut bytes).map_err(read)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let offset = error.utf8_error().valid_up_to();
            return Err(InputError::model(path, RequestError::NotText { offset }));
        }
    };
    if format == Format::JsonLines || (format == Format::Auto && text.trim_start().starts_with(['{', '['])) {
        return json_lines(&text).map_err(|error| InputError::model(path, error));
    }
    let document = parse(&text).map_err(|error| InputError::model(path, error))?;
    Ok(Requests {
        document,
        captured: None,
    })
}

fn captured(input: impl Read) -> Result<Requests, CaptureError> {
    let mut interner: Interner<(IpAddr, IpAddr)> = Interner::default();
    let mut requests = Vec::new();
    let skipped = capture::read(input, |from, to| requests.push(interner.index(&(from, to))))?;
    Ok(Requests {
        document: document(requests, interner),
        captured: Some(skipped),
    })
}

fn json_lines(text: &str) -> Result<Requests, RequestError> {
    let mut pairs = Pairs::default();
    if text.trim_start().starts_with('[') {
        let values: Vec<Value> = serde_json::from_str(text).map_err(RequestError::Array)?;
        for (value, index) in values.iter().zip(1..) {
            pairs
                .add(value)
                .map_err(|key| RequestError::NoAddressAt { index, key })?;
        }
        return Ok(pairs.requests());
    }
    for (text, line) in text.lines().zip(1..) {
        if text.trim().is_empty() {
            continue;
        }
        let value = serde_json::from_str(text).map_err(|source| RequestError::Json { line, source })?;
        pairs
            .add(&value)
            .map_err(|key| RequestError::NoAddress { line, key })?;
    }
    Ok(pairs.requests())
}

/// Requests from objects.
#[derive(Default)]
struct Pairs {
    interner: Interner<(String, String)>,
    requests: Vec<u32>,
}

impl Pairs {
    /// Adds an object's request; the key that it lacks.
    fn add(&mut self, value: &Value) -> Result<(), &'static str> {
        let address = |key: &'static str, short: &str| match value.get(key).or_else(|| value.get(short)) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            _ => Err(key),
        };
        let pair = (address("source", "src")?, address("destination", "dst")?);
        self.requests.push(self.interner.index(&pair));
        Ok(())
    }

    fn requests(self) -> Requests {
        Requests {
            document: document(self.requests, self.interner),
            captured: Some(Skipped::default()),
        }
    }
}

/// A sequence of (source, destination) pairs.
fn document<T: Clone + Display + Eq + Hash>(requests: Vec<u32>, interner: Interner<(T, T)>) -> Document {
    let labels = interner
        .into_labels()
        .iter()
        .map(|(from, to)| format!("{from}>{to}"))
        .collect();
    Document {
        sequence: Sequence::new(requests, labels),
        ..Document::default()
    }
}
