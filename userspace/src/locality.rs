//! `perturb locality`: how local a program's communication is, what its working sets are, and what they
//! cost on a time-multiplexed network.

pub mod capture;
mod output;

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use perturb_models::locality::cost::{Network, NetworkError};
use perturb_models::locality::experiment;
use perturb_models::locality::sequence::Interner;
use perturb_models::locality::{
    Document, Method, NotationError, PartitionError, Partitioning, Sequence, parse,
};

use capture::{CaptureError, Skipped};
use output::{Answer, Costs};

/// Arguments of `perturb locality`.
#[derive(Args, Debug)]
pub struct LocalityArgs {
    /// Requests: loop notation or labels, a pcap or pcapng capture, or JSON lines with a source and a
    /// destination; `-` for standard input.
    #[arg(required_unless_present = "experiment")]
    pub file: Option<PathBuf>,
    /// What the file holds.
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    pub format: Format,
    /// single, natural, `paths M`, `grouped W`, given or optimal; instead of the file's own. Captures
    /// are cut naturally unless this says otherwise.
    #[arg(long, value_name = "METHOD")]
    pub partition: Option<String>,
    /// Name the paths of each working set.
    #[arg(long)]
    pub working_sets: bool,
    /// A time-multiplexed network's costs of loading (K), establishing a path (E) and a slot (A), and its
    /// number of slots m: what the partitionings cost on it.
    #[arg(long, value_name = "K,E,A,m")]
    pub network: Option<String>,
    /// Instead of a file: the correlation of L and cost over this many random programs.
    #[arg(long, value_name = "PROGRAMS", requires = "network", conflicts_with = "file")]
    pub experiment: Option<u32>,
    /// Seed of the experiment.
    #[arg(long, default_value_t = 1, requires = "experiment")]
    pub seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What a file of requests holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// By its first bytes.
    Auto,
    /// Labels and loops.
    Text,
    /// pcap or pcapng.
    Capture,
    /// One object per line with `source` (or `src`) and `destination` (or `dst`).
    JsonLines,
}

/// An input that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalityError {
    /// It cannot be read.
    #[error("{name}: {source}")]
    Read {
        /// Which file.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not UTF-8.
    #[error("{name}: not a text in UTF-8 at byte {offset}, nor a capture")]
    NotText {
        /// Which file.
        name: String,
        /// Where.
        offset: usize,
    },
    /// The notation is wrong.
    #[error("{name}: {source}")]
    Notation {
        /// Which file.
        name: String,
        /// Where and why.
        source: NotationError,
    },
    /// The capture is wrong.
    #[error("{name}: {source}")]
    Capture {
        /// Which file.
        name: String,
        /// Why.
        source: CaptureError,
    },
    /// A line is not JSON.
    #[error("{name}: line {line}: {source}")]
    Json {
        /// Which file.
        name: String,
        /// Which line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A line has no addresses.
    #[error("{name}: line {line}: `{key}` is missing; give `source` and `destination` in every line")]
    NoAddress {
        /// Which file.
        name: String,
        /// Which line, from 1.
        line: usize,
        /// What is missing.
        key: &'static str,
    },
    /// The method cannot be applied.
    #[error("{name}: {source}")]
    Partition {
        /// Which file.
        name: String,
        /// Why.
        source: PartitionError,
    },
    /// No method.
    #[error("{name}: no partitioning is named; add a line `partition: natural` or give --partition")]
    NoMethod {
        /// Which file.
        name: String,
    },
    /// --partition is no method.
    #[error("--partition: {0}")]
    Method(PartitionError),
    /// --network is not four numbers.
    #[error("--network `{text}`: give four numbers K,E,A,m, e.g. 100,10,1,8")]
    NetworkForm {
        /// As given.
        text: String,
    },
    /// --network has a number out of range.
    #[error("--network: {0}")]
    Network(NetworkError),
    /// An experiment in which nothing varies.
    #[error(
        "--experiment: nothing to correlate; give at least one program and a network whose K or E is above 0"
    )]
    Experiment,
}

/// Runs the command.
///
/// # Errors
/// [`LocalityError`] for an invalid input; otherwise what went wrong while printing.
pub fn run(args: &LocalityArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let network = args.network.as_deref().map(network).transpose()?;
    if let (Some(programs), Some(network)) = (args.experiment, &network) {
        let found = experiment::run(network, programs, args.seed).ok_or(LocalityError::Experiment)?;
        return output::experiment(&found, args.json, out);
    }
    let Some(path) = &args.file else { return Ok(()) };
    let given = args
        .partition
        .as_deref()
        .map(Method::from_str)
        .transpose()
        .map_err(LocalityError::Method)?;
    let name = path.display().to_string();
    let Requests { document, captured } = requests(path, &name, args.format)?;
    // What is captured has no line that could name a method.
    let natural = captured.is_some().then_some(Method::Natural);
    let Some(method) = given.or(document.method).or(natural) else {
        return Err(LocalityError::NoMethod { name }.into());
    };
    let partitioning =
        Partitioning::by(method, &document).map_err(|source| LocalityError::Partition { name, source })?;
    let costs = network.map(|network| Costs::of(&network, &document, &partitioning));
    let answer = Answer::of(
        &document,
        method,
        &partitioning,
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

fn network(text: &str) -> Result<Network, LocalityError> {
    let form = || LocalityError::NetworkForm {
        text: text.to_owned(),
    };
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [load, establish, slot, slots] = fields[..] else {
        return Err(form());
    };
    let number = |text: &str| text.parse::<f64>().map_err(|_| form());
    let slots = slots.parse().map_err(|_| form())?;
    Network::new(number(load)?, number(establish)?, number(slot)?, slots).map_err(LocalityError::Network)
}

/// The requests of a file.
struct Requests {
    document: Document,
    /// For captured traffic: what was passed over.
    captured: Option<Skipped>,
}

fn requests(path: &Path, name: &str, format: Format) -> Result<Requests, LocalityError> {
    let read = |source| LocalityError::Read {
        name: name.to_owned(),
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
    let whole = BufReader::with_capacity(1 << 20, std::io::Cursor::new(start).chain(input));
    if format == Format::Capture || (format == Format::Auto && is_capture) {
        return captured(whole, name);
    }
    let mut bytes = Vec::new();
    let mut whole = whole;
    whole.read_to_end(&mut bytes).map_err(read)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let offset = error.utf8_error().valid_up_to();
            return Err(LocalityError::NotText {
                name: name.to_owned(),
                offset,
            });
        }
    };
    if format == Format::JsonLines || (format == Format::Auto && text.trim_start().starts_with('{')) {
        return json_lines(&text, name);
    }
    match parse(&text) {
        Ok(document) => Ok(Requests {
            document,
            captured: None,
        }),
        Err(source) => Err(LocalityError::Notation {
            name: name.to_owned(),
            source,
        }),
    }
}

fn captured(input: impl Read, name: &str) -> Result<Requests, LocalityError> {
    let mut interner: Interner<(IpAddr, IpAddr)> = Interner::default();
    let mut requests = Vec::new();
    let skipped =
        capture::read(input, |from, to| requests.push(interner.index(&(from, to)))).map_err(|source| {
            LocalityError::Capture {
                name: name.to_owned(),
                source,
            }
        })?;
    let labels = interner
        .into_labels()
        .iter()
        .map(|(from, to)| format!("{from}>{to}"))
        .collect();
    let document = Document {
        sequence: Sequence::new(requests, labels),
        ..Document::default()
    };
    Ok(Requests {
        document,
        captured: Some(skipped),
    })
}

fn json_lines(text: &str, name: &str) -> Result<Requests, LocalityError> {
    let mut interner: Interner<(String, String)> = Interner::default();
    let mut requests = Vec::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let line_number = index + 1;
        let value: serde_json::Value = serde_json::from_str(line).map_err(|source| LocalityError::Json {
            name: name.to_owned(),
            line: line_number,
            source,
        })?;
        let address = |key: &'static str, short: &str| {
            let found = value.get(key).or_else(|| value.get(short));
            match found {
                Some(serde_json::Value::String(text)) => Ok(text.clone()),
                Some(serde_json::Value::Number(number)) => Ok(number.to_string()),
                _ => Err(LocalityError::NoAddress {
                    name: name.to_owned(),
                    line: line_number,
                    key,
                }),
            }
        };
        let pair = (address("source", "src")?, address("destination", "dst")?);
        requests.push(interner.index(&pair));
    }
    let labels = interner
        .into_labels()
        .iter()
        .map(|(from, to)| format!("{from}>{to}"))
        .collect();
    let document = Document {
        sequence: Sequence::new(requests, labels),
        ..Document::default()
    };
    Ok(Requests {
        document,
        captured: Some(Skipped::default()),
    })
}
