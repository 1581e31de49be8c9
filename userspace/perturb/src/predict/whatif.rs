//! `perturb predict whatif`: LBF/NF over a file, a pipe or a socket of events; live with `--follow`;
//! placements ranked with `--suggest`.

mod events;
mod output;
#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use perturb_models::whatif::input::Input;
use perturb_models::whatif::suggest::{SuggestError, Task, suggest};
use perturb_models::whatif::{LineReader, Predictor, Scenario};
use perturb_present::{LiveLine, Parts};

use super::input::{InputError, read};
use super::profile::{ProfileArg, Used, WithProfile};
use crate::cli::quantity::seconds;
use crate::say::json;
use events::{Events, Line};
use output::{Row, Suggestions, Summary, Trigger};

/// How often it is told how far a search is.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of `perturb predict whatif`.
#[derive(Args, Debug)]
pub(crate) struct WhatifArgs {
    /// The input, in YAML: groups, network, bus.
    pub file: PathBuf,
    /// The network between the groups.
    #[command(flatten)]
    pub network: ProfileArg,
    /// The events instead of the input's: a file or FIFO, a Unix socket's path, `tcp:HOST:PORT`, or `-`
    /// for standard input.
    #[arg(long, value_name = "SOURCE")]
    pub events: Option<String>,
    /// Read events as they are produced and print the predicted time as it grows, until every process
    /// has exited.
    #[arg(long, conflicts_with_all = ["rows", "suggest"])]
    pub follow: bool,
    /// With --follow: print at most this often, in seconds.
    #[arg(long, default_value = "1", requires = "follow", value_name = "SECONDS", value_parser = seconds)]
    pub every: Duration,
    /// Print the state after each step, as fig. 5 of the paper does.
    #[arg(long, conflicts_with = "suggest")]
    pub rows: bool,
    /// Rank placements of the processes on this many processors.
    #[arg(long, value_name = "PROCESSORS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub suggest: Option<u32>,
    /// With --suggest: relative speeds of the processors, e.g. 1,1,2.
    #[arg(long, value_delimiter = ',', requires = "suggest", value_name = "SPEEDS")]
    pub speeds: Option<Vec<f64>>,
    /// With --suggest: how many placements to print.
    #[arg(long, default_value_t = 10, requires = "suggest")]
    pub best: usize,
    /// With --suggest: events to simulate at most, over all placements.
    #[arg(long, default_value_t = 50_000_000, requires = "suggest")]
    pub budget: u64,
    /// With --suggest: seed of the search.
    #[arg(long, default_value_t = 1, requires = "suggest")]
    pub seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What the options and the input do not fit in.
#[derive(Debug, thiserror::Error)]
enum OptionError {
    /// No events named.
    #[error("`events` is missing; name the event file there or with --events")]
    NoEvents,
    /// Speeds and processors differ.
    #[error("--speeds: {speeds} given for {processors} processors; give one for each")]
    Speeds {
        /// How many speeds.
        speeds: usize,
        /// How many processors.
        processors: u32,
    },
}

/// A checked input and where its events are.
struct Loaded {
    scenario: Scenario,
    source: String,
    profile: Option<Used>,
}

fn load(args: &WhatifArgs) -> Result<Loaded, InputError> {
    let mut input: Input = read(&args.file)?;
    let profile = args.network.put(|profile| input.on_profile(profile))?;
    let source = match (&args.events, &input.events) {
        (Some(source), _) => source.clone(),
        (None, Some(events)) => {
            let folder = args.file.parent().unwrap_or(Path::new(""));
            folder.join(events).display().to_string()
        }
        (None, None) => return Err(InputError::model(&args.file, OptionError::NoEvents)),
    };
    let scenario = input
        .scenario()
        .map_err(|error| InputError::model(&args.file, error))?;
    Ok(Loaded {
        scenario,
        source,
        profile,
    })
}

pub(super) fn run(args: &WhatifArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let loaded = load(args)?;
    if let Some(processors) = args.suggest {
        return suggestions(args, loaded, processors, out);
    }
    let mut run = Run {
        args,
        predictor: Predictor::new(&loaded.scenario),
        reader: LineReader::new(),
        name: loaded.source.clone(),
        rows: Vec::new(),
        shown: Instant::now(),
        shown_events: 0,
        profile: loaded.profile,
    };
    let mut events = Events::open(&loaded.source, args.follow)?;
    if args.rows {
        run.row(Trigger::Start);
    }
    loop {
        match events.next()? {
            Line::Whole(line) => run.line(line)?,
            Line::Waiting if run.predictor.ended() => break,
            // Nothing new yet: what there is to show is shown, then the source is asked again.
            Line::Waiting => {
                run.show(out)?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Line::End => break,
        }
        if args.follow {
            run.show(out)?;
        }
    }
    run.finish(out)
}

/// A prediction under way.
struct Run<'a> {
    args: &'a WhatifArgs,
    predictor: Predictor,
    reader: LineReader,
    name: String,
    rows: Vec<Row>,
    shown: Instant,
    /// Events reported when it was shown last.
    shown_events: u64,
    profile: Option<Used>,
}

impl Run<'_> {
    /// What is wrong with the events.
    fn invalid(&self, error: impl Error + Send + Sync + 'static) -> InputError {
        InputError::model(Path::new(&self.name), error)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), InputError> {
        let event = match self.reader.read(line, self.predictor.placement()) {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            Err(error) => return Err(self.invalid(error)),
        };
        self.predictor.push(event).map_err(|error| self.invalid(error))?;
        if self.args.rows {
            self.row(Trigger::Arriving(event));
        }
        self.advance();
        // Found at once, not at the end of a stream that may have none.
        self.predictor
            .deadlock()
            .map_or(Ok(()), |error| Err(self.invalid(error)))
    }

    fn advance(&mut self) {
        while let Some(report) = self.predictor.advance() {
            if self.args.rows {
                self.row(Trigger::Reported(report.event));
            }
        }
    }

    fn row(&mut self, trigger: Trigger) {
        self.rows
            .push(Row::of(self.rows.len() + 1, trigger, &self.predictor));
    }

    /// Shows the prediction so far, if the interval is over and there is anything new.
    fn show(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let events = self.predictor.counters().reported;
        if events == self.shown_events || self.shown.elapsed() < self.args.every {
            return Ok(());
        }
        (self.shown, self.shown_events) = (Instant::now(), events);
        let summary = Summary::of(&self.predictor, Some(false));
        if self.args.json {
            serde_json::to_writer(&mut *out, &summary)?;
            writeln!(out)?;
        } else {
            summary.line(out)?;
        }
        out.flush()?;
        Ok(())
    }

    fn finish(mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.predictor.end_of_events();
        self.advance();
        self.predictor.finish().map_err(|error| self.invalid(error))?;
        let mut summary = Summary::of(&self.predictor, self.args.follow.then_some(true));
        if self.args.json {
            summary.rows = self.args.rows.then_some(self.rows);
            let answer = WithProfile {
                answer: summary,
                profile: self.profile,
            };
            if self.args.follow {
                serde_json::to_writer(&mut *out, &answer)?;
            } else {
                serde_json::to_writer_pretty(&mut *out, &answer)?;
            }
            writeln!(out)?;
        } else {
            for row in &self.rows {
                row.text(out)?;
            }
            summary.text(&self.predictor, out)?;
            if let Some(used) = &self.profile {
                used.print(out)?;
            }
        }
        Ok(())
    }
}

fn suggestions(
    args: &WhatifArgs,
    loaded: Loaded,
    processors: u32,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let speeds = args
        .speeds
        .clone()
        .unwrap_or_else(|| vec![1.0; processors as usize]);
    if speeds.len() != processors as usize {
        let speeds = speeds.len();
        return Err(InputError::model(&args.file, OptionError::Speeds { speeds, processors }).into());
    }
    let source = Path::new(&loaded.source);
    let mut reader = LineReader::new();
    let mut all = Vec::new();
    let mut events = Events::open(&loaded.source, false)?;
    while let Line::Whole(line) = events.next()? {
        let event = reader.read(line, &loaded.scenario.placement);
        all.extend(event.map_err(|error| InputError::model(source, error))?);
    }
    let task = Task {
        speeds,
        budget: args.budget,
        best: args.best,
        seed: args.seed,
    };
    let parts = OnceCell::new();
    let shown = Cell::new(Instant::now());
    let told = |tried: u64, of: u64| {
        let parts = parts.get_or_init(|| Parts::new(LiveLine::stderr(false), of as usize));
        if shown.get().elapsed() >= LOOK {
            shown.set(Instant::now());
            parts.begin(tried as usize, "placements");
        }
    };
    let found = suggest(&loaded.scenario, &all, &task, &told);
    drop(parts);
    let found = match found {
        Ok(found) => found,
        Err(SuggestError::Prediction(error)) => return Err(InputError::model(source, error).into()),
        Err(error) => return Err(InputError::model(&args.file, error).into()),
    };
    let answer = Suggestions::of(&found, &loaded.scenario.placement, processors);
    let profile = loaded.profile;
    if args.json {
        return json(out, &WithProfile { answer, profile });
    }
    answer.text(out)?;
    Ok(profile.map_or(Ok(()), |used| used.print(out))?)
}
