//! `perturb report`: what a sweep's runs say.
//!
//! ```text
//! directories ─load─► runs ─curve─► slowdown, slope, tolerance, shape ─┬─► JSON, terminal
//!                       └──models─► predictions of the same levels ────┴─► page, SVG, CSV
//! ```
//!
//! The report reads a sweep's records only: it needs neither the programs nor the machine.

mod answers;
mod collective;
mod communication;
mod compare;
mod curve;
mod effects;
mod findings;
#[cfg(test)]
mod fixture;
mod level;
mod load;
mod models;
mod output;
mod shape;
mod summary;
mod terminal;

use std::{io::Write, path::PathBuf};

use clap::Args;

use crate::cli::exit::DONE;

pub use load::InputError;

const EXAMPLES: &str = "\
Examples:
  perturb report s             a summary here; s/report has the page, its pictures, tables and JSON
  perturb report s --json      everything as one JSON object, and no files
  perturb report s other       do two sweeps agree?
  perturb report cluster       a directory with task-0, task-1, …: joined

Exit codes:
  0 done   1 failed   2 DIR holds no sweep, or sweeps that cannot be joined";

/// Arguments of `perturb report`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// A sweep's directory, or one of directories `task-…`; two are compared.
    #[arg(value_name = "DIR", required = true, num_args = 1..=2)]
    directories: Vec<PathBuf>,
    /// Print one JSON object, and write no files.
    #[arg(long)]
    json: bool,
    /// Where the page and its parts go [default: DIR/report].
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    out: Option<PathBuf>,
}

/// Runs the subcommand; its exit code.
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> anyhow::Result<u8> {
    let reports = args
        .directories
        .iter()
        .map(|directory| Ok(summary::Report::of(&load::load(directory)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    match reports.as_slice() {
        [first, second] => {
            let comparison = compare::Comparison::of(first, second);
            if args.json {
                serde_json::to_writer_pretty(&mut *out, &comparison)?;
                writeln!(out)?;
            } else {
                write!(out, "{comparison}")?;
                if let Some(directory) = &args.out {
                    output::write_comparison(&comparison, directory)?;
                }
            }
        }
        reports => {
            for (report, directory) in reports.iter().zip(&args.directories) {
                if args.json {
                    serde_json::to_writer_pretty(&mut *out, report)?;
                    writeln!(out)?;
                    continue;
                }
                let directory = args.out.clone().unwrap_or_else(|| directory.join("report"));
                output::write(report, &directory)?;
                write!(out, "{report}")?;
                eprintln!("the page is {}", directory.join("index.html").display());
            }
        }
    }
    Ok(DONE)
}
