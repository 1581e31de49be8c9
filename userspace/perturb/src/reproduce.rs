//! `perturb reproduce FIGURE`: a figure or table of the five papers by one command, the paper's numbers beside ours.
//!
//! [`figure`] is the registry's type; a module per paper has its entries. An entry's preset gives an [`outcome`], from which
//! [`verdict`] computes errors and verdict, and [`page`] makes the page, the picture and the JSON. No figure prints anything
//! itself.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context as _;
use clap::Args;
use nix::unistd::geteuid;
use perturb_experiments::sweep::check_programs;
use perturb_present::{LiveLine, Table, measured, span};
use perturb_quantity::closest;
use serde::Serialize;
use serde_json::Value;

use crate::cli::{self, exit};

mod eom;
mod experiment;
mod figure;
mod martin;
mod moritz_frank;
mod nomura;
mod npb;
mod outcome;
mod page;
mod salisbury;
mod verdict;

use experiment::Signals;
use figure::{Figure, Means, Needs, Paper, Setting};

/// Every figure and table that can be reproduced, by paper.
static FIGURES: [&[&[Figure]]; 5] = [
    &martin::FIGURES,
    &[nomura::FIGURES, nomura::MEASURED],
    &[eom::FIGURES, eom::LIVE],
    &[moritz_frank::FIGURES, moritz_frank::LIVE],
    &[salisbury::FIGURES],
];

/// All of them.
fn all() -> impl Iterator<Item = &'static Figure> + Clone {
    FIGURES.into_iter().flatten().copied().flatten()
}

/// Arguments of `perturb reproduce`.
#[derive(Args, Debug)]
pub(crate) struct ReproduceArgs {
    /// Figures and tables by name; `models`: all that need no root; `martin`, `nomura`, `eom`, `moritz-frank`, `salisbury`: a
    /// paper's. Without any, all are listed.
    figures: Vec<String>,
    /// In their short form, where they have one: it shows that the preset works, and how far it gets in a minute.
    #[arg(long, requires = "figures")]
    quick: bool,
    /// Directory of the pages.
    #[arg(long, value_name = "DIR", default_value = "reproduced", requires = "figures")]
    out: PathBuf,
    /// Draw nothing: print the verdicts of the figures whose results lie in a directory, with the machine of each. Markdown's
    /// links to their pages begin as DIR does: name it from where the text is to stand.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["figures", "quick", "out"])]
    results: Option<PathBuf>,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    /// Print Markdown.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// What is asked for cannot be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("there is no figure `{name}`; {nearest}")]
    Unknown { name: String, nearest: String },
    #[error("--quick: {0} has no short form; leave it out")]
    NotShorter(String),
    #[error("{}: holds no figure's result, as martin-table-3.3.json; name the --out of `perturb reproduce`", .0.display())]
    NoResults(PathBuf),
}

/// Emulation needs root.
#[derive(Debug, thiserror::Error)]
#[error("{figure}: its network is emulated")]
pub(crate) struct Denied {
    figure: &'static str,
    #[source]
    cause: std::io::Error,
}

/// A figure in the list.
#[derive(Serialize)]
struct Entry {
    figure: &'static str,
    paper: &'static str,
    shows: &'static str,
    means: Means,
    needs: Needs,
}

/// Exit code of an error that an experiment has brought.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    if error.is::<Refused>() {
        return Some(exit::INVALID);
    }
    let code = error.downcast_ref::<experiment::Failed>()?.code();
    code.filter(|code| [exit::LACKING, exit::INTERRUPTED].contains(code))
}

pub(crate) fn run(args: &ReproduceArgs) -> anyhow::Result<u8> {
    if let Some(directory) = &args.results {
        print(args, &results(directory)?, Some(directory))?;
        return Ok(exit::DONE);
    }
    if args.figures.is_empty() {
        list(args)?;
        return Ok(exit::DONE);
    }
    let figures = select(&args.figures)?;
    let shorter = |figure: &&Figure| figure.needs.quick_minutes.is_some();
    if args.quick && !figures.iter().any(shorter) {
        return Err(Refused::NotShorter(args.figures.join(", ")).into());
    }
    if let Some(figure) = figures.iter().find(|figure| figure.needs.root)
        && !geteuid().is_root()
    {
        return Err(Denied {
            figure: figure.name,
            cause: ErrorKind::PermissionDenied.into(),
        }
        .into());
    }
    if let Some(figure) = figures.iter().find(|figure| figure.needs.mpi) {
        let packages = "apt-get install openmpi-bin libopenmpi-dev (Open MPI, on Debian)";
        check_programs(&[("mpirun", packages), ("mpicc", packages)]).context(figure.name)?;
    }
    fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    let signals = if figures.iter().any(|figure| figure.needs.root) {
        Signals::listen()?
    } else {
        Signals::default()
    };
    let several = figures.len() > 1;
    let mut code = exit::DONE;
    let mut results = Vec::new();
    let line = LiveLine::stderr(false);
    for (place, &figure) in figures.iter().enumerate() {
        let quick = args.quick && shorter(&figure);
        if several && line.is_live() {
            let minutes = figures[place..].iter().map(|figure| {
                let quick = figure.needs.quick_minutes.filter(|_| args.quick);
                quick.unwrap_or(figure.needs.minutes)
            });
            let left = span(60.0 * minutes.sum::<f64>());
            let (number, of) = (place + 1, figures.len());
            line.say(format_args!(
                "figure {number} of {of}: {}, about {left} left",
                figure.name
            ));
        }
        let setting = Setting {
            quick,
            directory: args.out.join(figure.name),
            signals: signals.clone(),
        };
        match draw(figure, &setting, args) {
            Ok(result) => results.push(result),
            Err(_) if signals.came() => {}
            // The others may be hours of work.
            Err(error) if several => {
                eprintln!("perturb: {}", cli::message(&error));
                code = code.max(exit::exit_code(&error));
            }
            Err(error) => return Err(error),
        }
        if signals.came() {
            eprintln!("perturb: interrupted");
            code = exit::INTERRUPTED;
            break;
        }
    }
    if args.json || args.markdown {
        print(args, &results, None)?;
    } else if !results.is_empty() {
        println!("\nPages: {}", args.out.join("*.html").display());
    }
    Ok(code)
}

/// Draws one figure, and says what came of it as soon as that is known.
fn draw(figure: &'static Figure, setting: &Setting, args: &ReproduceArgs) -> anyhow::Result<Value> {
    let begun = Instant::now();
    let outcome = (figure.draw)(setting).context(figure.name)?;
    let result = page::Result::new(figure, &outcome, setting.quick, begun.elapsed().as_secs_f64());
    result.write(&args.out)?;
    for doubt in &outcome.doubts {
        eprintln!("perturb: warning: {}: {doubt}", figure.name);
    }
    if !args.json && !args.markdown {
        println!(
            "{}: {}; {}",
            result.name(),
            result.verdict.name(),
            result.errors.line()
        );
    }
    Ok(serde_json::to_value(&result)?)
}

fn print(args: &ReproduceArgs, results: &[Value], directory: Option<&Path>) -> anyhow::Result<()> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(results)?);
    } else if args.markdown {
        print!("{}", summary(results, directory, true).markdown());
    } else {
        print!("{}", summary(results, directory, false));
    }
    Ok(())
}

/// The results that lie in a directory, in the registry's order.
fn results(directory: &Path) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for figure in all() {
        let path = directory.join(format!("{}.json", figure.name));
        match fs::read(&path) {
            Ok(text) => found
                .push(serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))?),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }
    if found.is_empty() {
        return Err(Refused::NoResults(directory.into()).into());
    }
    Ok(found)
}

/// The figures that the words mean, in their order, each once.
fn select(words: &[String]) -> Result<Vec<&'static Figure>, Refused> {
    let mut found: Vec<&Figure> = Vec::new();
    for word in words {
        let mut chosen: Vec<&Figure> = all()
            .filter(|figure| match word.as_str() {
                "models" => !figure.needs.root,
                word => figure.name == word || figure.paper.key() == word,
            })
            .collect();
        if chosen.is_empty() {
            return Err(Refused::Unknown {
                name: word.clone(),
                nearest: nearest(word),
            });
        }
        chosen.retain(|figure| !found.iter().any(|known| known.name == figure.name));
        found.extend(chosen);
    }
    Ok(found)
}

fn nearest(word: &str) -> String {
    let names = all().map(|figure| figure.name);
    let beginning = word.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let mut near: Vec<&str> = closest(word, names.clone()).into_iter().collect();
    near.extend(names.filter(|name| beginning.len() > 3 && name.starts_with(beginning)));
    near.dedup();
    if near.is_empty() {
        let papers: Vec<&str> = Paper::ALL.iter().map(|paper| paper.key()).collect();
        return format!("`perturb reproduce` lists them, of {}", papers.join(", "));
    }
    near.truncate(6);
    format!("did you mean {}?", near.join(", "))
}

fn list(args: &ReproduceArgs) -> anyhow::Result<()> {
    if args.json {
        let entries: Vec<Entry> = all()
            .map(|figure| Entry {
                figure: figure.name,
                paper: figure.paper.citation(),
                shows: figure.shows,
                means: figure.means,
                needs: figure.needs,
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(());
    }
    let mut table = Table::new(6, &["figure", "by", "needs", "takes", "--quick", "what it shows"]);
    for figure in all() {
        let needs = match (figure.needs.root, figure.needs.mpi) {
            (false, _) => "-",
            (true, false) => "root",
            (true, true) => "root, MPI",
        };
        let time = |minutes: f64| span((minutes * 60.0).max(1.0));
        table.row(vec![
            figure.name.into(),
            figure.means.name().into(),
            needs.into(),
            time(figure.needs.minutes),
            figure.needs.quick_minutes.map_or_else(|| "-".into(), time),
            figure.shows.into(),
        ]);
    }
    if args.markdown {
        print!("{}", table.markdown());
    } else {
        print!("{table}");
        println!("\nPapers: {}", Paper::ALL.map(Paper::citation).join("; "));
    }
    Ok(())
}

/// Results as the book has them: of what does not agree, with what differs. Those of a directory may be of several machines and
/// of short forms; Markdown leads to their pages.
fn summary(results: &[Value], directory: Option<&Path>, markdown: bool) -> Table {
    let mut header = vec!["figure", "verdict", "what differs", "worst number"];
    let mut left = header.len();
    if directory.is_some() {
        header.splice(1..1, ["paper", "ours from"]);
        header.push("machine");
        left += 3;
    }
    header.extend(["agree", "of", "mean error, %", "worst, %"]);
    let mut table = Table::new(left, &header);
    for result in results {
        let errors = &result["errors"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let count = |name: &str| errors[name].as_u64().unwrap_or_default().to_string();
        let percent = |name: &str| measured(errors[name].as_f64());
        let verdict = text(&result["verdict"]);
        let differs = if verdict == verdict::Verdict::Agrees.name() {
            String::new()
        } else {
            text(&result["differs"][0]["what"])
        };
        let short = if result["quick"] == true { " --quick" } else { "" };
        let name = text(&result["figure"]);
        let mut cells = vec![name.clone() + short, verdict, differs, text(&errors["worst"])];
        if let Some(directory) = directory {
            let page = directory.join(format!("{name}.html"));
            if markdown && page.is_file() {
                cells[0] = format!("[{}]({})", cells[0], page.display());
            }
            cells.splice(1..1, [text(&result["paper"]), text(&result["state"])]);
            let machine = &result["machine"];
            cells.push(format!(
                "{} x {}, {}, perturb {}",
                machine["processors"],
                machine["processor"].as_str().unwrap_or("unknown"),
                text(&machine["kernel"]),
                text(&machine["perturb"])
            ));
        }
        cells.extend([
            count("agreeing"),
            count("numbers"),
            percent("mean_error_percent"),
            percent("worst_error_percent"),
        ]);
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests;
