//! `perturb predict loggp`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use perturb_models::loggp::{CommunicationSummary, Knob, LoggpInput, LoggpPrediction, Messages, predict};
use serde::Deserialize;

use super::input::{InputError, read};
use super::table::{Table, number, optional};

/// Arguments of `perturb predict loggp`.
#[derive(Args, Debug)]
pub struct LoggpArgs {
    /// The input, in YAML: baseline, messages or mpi, vary.
    pub file: PathBuf,
    /// Take the messages from a trace: events as JSON lines, as `predict whatif` reads them.
    #[arg(long, value_name = "EVENTS")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A trace that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TraceError {
    /// It cannot be read.
    #[error("{file}")]
    Read { file: String, source: std::io::Error },
    /// A line is no event.
    #[error("{file}, line {line}")]
    Line {
        file: String,
        line: usize,
        source: serde_json::Error,
    },
    /// A message of no possible size.
    #[error("{file}, line {line}: bytes is {bytes}; give 0 or more")]
    Bytes { file: String, line: usize, bytes: f64 },
    /// Nothing in it.
    #[error("{file} has no events; `predict loggp` needs those of a whole run")]
    Empty { file: String },
    /// The input has messages too.
    #[error("{file} has `messages`, and --trace is given; leave one of them out")]
    Twice { file: String },
}

/// What a summary needs of an event.
#[derive(Deserialize)]
struct TraceEvent {
    process: u64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    bytes: f64,
}

pub(super) fn run(args: &LoggpArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut input: LoggpInput = read(&args.file)?;
    if let Some(trace) = &args.trace {
        if input.messages.is_some() {
            return Err(TraceError::Twice {
                file: args.file.display().to_string(),
            }
            .into());
        }
        input.messages = Some(summarize(trace)?);
    }
    let prediction = predict(&input).map_err(|error| InputError::model(&args.file, error))?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &prediction)?;
        writeln!(out)?;
        return Ok(());
    }
    let (knob, values) = varied(&prediction);
    let name = prediction.application.as_deref().unwrap_or("the program");
    writeln!(
        out,
        "{name}, {knob} varied; measured {} s",
        number(input.baseline.run_time.0 / 1e6)
    )?;
    runs(&prediction, knob, values).print(out)?;
    writeln!(
        out,
        "\nsensitivity, and the values at which the program is slower by 1, 2 and 5 %"
    )?;
    sensitivities(&prediction).print(out)?;
    Ok(())
}

/// The messages of a traced run.
fn summarize(path: &Path) -> Result<Messages, TraceError> {
    let file = || path.display().to_string();
    let read = |source| TraceError::Read { file: file(), source };
    let mut summary = CommunicationSummary::default();
    for (line, text) in (1..).zip(BufReader::new(File::open(path).map_err(read)?).lines()) {
        let text = text.map_err(read)?;
        if text.trim().is_empty() {
            continue;
        }
        let event: TraceEvent = match serde_json::from_str(&text) {
            Ok(event) => event,
            Err(source) => {
                return Err(TraceError::Line {
                    file: file(),
                    line,
                    source,
                });
            }
        };
        if event.bytes < 0.0 {
            return Err(TraceError::Bytes {
                file: file(),
                line,
                bytes: event.bytes,
            });
        }
        summary.process(event.process);
        if event.kind == "send" {
            summary.sent(event.process, event.bytes);
        }
    }
    summary
        .messages()
        .ok_or_else(|| TraceError::Empty { file: file() })
}

fn varied(prediction: &LoggpPrediction) -> (Knob, &[f64]) {
    let given = [
        (Knob::Overhead, &prediction.overhead_us),
        (Knob::Gap, &prediction.gap_us),
        (Knob::Latency, &prediction.latency_us),
        (Knob::Bandwidth, &prediction.bandwidth_mb_s),
        (Knob::FragmentOverhead, &prediction.fragment_overhead_us),
    ];
    given
        .into_iter()
        .find_map(|(knob, values)| Some((knob, values.as_deref()?)))
        .unwrap_or((Knob::Overhead, &[]))
}

fn runs(prediction: &LoggpPrediction, knob: Knob, values: &[f64]) -> Table {
    let setting = format!("{knob}, {}", knob.unit());
    let mut header = vec![setting.as_str()];
    match (&prediction.burst_s, &prediction.uniform_s) {
        (Some(_), Some(_)) => header.extend(["burst, s", "uniform, s"]),
        (Some(_), None) => header.push("burst, s"),
        _ => header.push("run time, s"),
    }
    header.push("slowdown");
    let mut table = Table::new(0, &header);
    for (index, &value) in values.iter().enumerate() {
        let mut cells = vec![number(value), number(prediction.run_time_s[index])];
        cells.extend(
            prediction
                .uniform_s
                .as_ref()
                .map(|uniform| number(uniform[index])),
        );
        cells.push(number(prediction.slowdown[index]));
        table.row(cells);
    }
    table
}

fn sensitivities(prediction: &LoggpPrediction) -> Table {
    let mut table = Table::new(
        1,
        &["knob", "s per us", "slowdown per us", "1 %", "2 %", "5 %", "unit"],
    );
    for sensitivity in &prediction.sensitivities {
        let name = match sensitivity.model {
            Some(model) => format!("{}, {model}", sensitivity.knob),
            None => sensitivity.knob.to_string(),
        };
        // The line of the bandwidth is over G, in us per byte.
        let mut cells = vec![
            name,
            number(sensitivity.run_time_s_per_us),
            number(sensitivity.slowdown_per_us),
        ];
        for index in 0..3 {
            let limit = sensitivity.tolerance.get(index);
            cells.push(optional(
                limit.and_then(|limit| limit.value_us.or(limit.value_mb_s)),
            ));
        }
        cells.push(sensitivity.knob.unit().to_owned());
        table.row(cells);
    }
    table
}
