//! `perturb predict loggp`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use perturb_models::loggp::{LoggpInput, LoggpPrediction, Parameter, predict};
use perturb_present::{Table, computed};

use super::input::{InputError, read};
use super::profile::{ProfileArg, WithProfile};
use crate::say::json;
use perturb_trace::summarize;

/// Arguments of `perturb predict loggp`.
#[derive(Args, Debug)]
pub(crate) struct LoggpArgs {
    /// The input, in YAML: baseline, messages or mpi, vary.
    pub file: PathBuf,
    /// The baseline's network.
    #[command(flatten)]
    pub network: ProfileArg,
    /// Take the messages from a trace: events as JSON lines, as `predict whatif` reads them.
    #[arg(long, value_name = "EVENTS")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The messages are given twice.
#[derive(Debug, thiserror::Error)]
#[error("{file} has `messages`, and --trace is given; leave one of them out")]
pub(super) struct TwiceError {
    file: String,
}

pub(super) fn run(args: &LoggpArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut input: LoggpInput = read(&args.file)?;
    if let Some(trace) = &args.trace {
        if input.messages.is_some() {
            let file = args.file.display().to_string();
            return Err(TwiceError { file }.into());
        }
        input.messages = summarize(trace)?.messages();
    }
    let profile = args.network.put(|profile| input.on_profile(profile))?;
    let prediction = predict(&input).map_err(|error| InputError::model(&args.file, error))?;
    if args.json {
        let answer = &prediction;
        return json(out, &WithProfile { answer, profile });
    }
    let (knob, values) = varied(&prediction);
    let name = prediction.application.as_deref().unwrap_or("the program");
    writeln!(
        out,
        "{name}, {knob} varied; measured {} s",
        computed(input.baseline.run_time.0 / 1e6)
    )?;
    write!(out, "{}", runs(&prediction, knob, values))?;
    writeln!(
        out,
        "\nsensitivity, and the values at which the program is slower by 1, 2 and 5 %"
    )?;
    write!(out, "{}", sensitivities(&prediction))?;
    Ok(profile.map_or(Ok(()), |used| used.print(out))?)
}

fn varied(prediction: &LoggpPrediction) -> (Parameter, &[f64]) {
    let given = [
        (Parameter::OVERHEAD, &prediction.overhead_us),
        (Parameter::GAP, &prediction.gap_us),
        (Parameter::LATENCY, &prediction.latency_us),
        (Parameter::BANDWIDTH, &prediction.bandwidth_mb_s),
        (Parameter::FragmentOverhead, &prediction.fragment_overhead_us),
    ];
    given
        .into_iter()
        .find_map(|(knob, values)| Some((knob, values.as_deref()?)))
        .unwrap_or((Parameter::OVERHEAD, &[]))
}

fn runs(prediction: &LoggpPrediction, knob: Parameter, values: &[f64]) -> Table {
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
        let mut cells = vec![computed(value), computed(prediction.run_time_s[index])];
        cells.extend(
            prediction
                .uniform_s
                .as_ref()
                .map(|uniform| computed(uniform[index])),
        );
        cells.push(computed(prediction.slowdown[index]));
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
            computed(sensitivity.run_time_s_per_us),
            computed(sensitivity.slowdown_per_us),
        ];
        for index in 0..3 {
            let limit = sensitivity.tolerance.get(index);
            cells.push(computed(
                limit.and_then(|limit| limit.value_us.or(limit.value_mb_s)),
            ));
        }
        cells.push(sensitivity.knob.unit().to_owned());
        table.row(cells);
    }
    table
}
