//! `perturb report`.

use std::{io::Write, path::PathBuf};

use clap::Args;
use perturb_experiments::sweep::report::{Comparison, Report, Rule};

use crate::{
    cli::{Contradiction, ci::CiArgs, exit::DONE},
    say::json,
    sweep,
};

const EXAMPLES: &str = "\
Examples:
  perturb report s             a summary here; s/report has the page, its pictures, tables and JSON
  perturb report s --json      everything as one JSON object, and no files
  perturb report s other       do two sweeps agree?
  perturb report cluster       a directory with task-0, task-1, …: joined
  perturb report s --assert 'median < 1.1x' --junit rules.xml    is any level 10 % slower?

Exit codes:
  0 done   1 failed, or a rule is broken   2 DIR holds no sweep, or sweeps that cannot be joined";

/// Arguments of `perturb report`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("junit", |junit| junit.requires("rules")))]
#[command(mut_arg("ci", |ci| ci.requires("rules")))]
pub(crate) struct ReportArgs {
    /// A sweep's directory, or one of directories `task-…`; two are compared.
    #[arg(value_name = "DIR", required = true, num_args = 1..=2)]
    directories: Vec<PathBuf>,
    /// Print one JSON object, and write no files.
    #[arg(long)]
    json: bool,
    /// Where the page and its parts go [default: DIR/report].
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    out: Option<PathBuf>,
    /// Judge one sweep by a rule, as `perturb sweep --assert` does, and write no page.
    #[arg(long = "assert", value_name = "RULE", conflicts_with_all = ["json", "out"])]
    rules: Vec<Rule>,
    #[command(flatten)]
    ci: CiArgs,
}

/// Runs the subcommand; its exit code.
pub(crate) fn run(args: &ReportArgs, out: &mut dyn Write) -> anyhow::Result<u8> {
    if !args.rules.is_empty() {
        let [directory] = args.directories.as_slice() else {
            return Err(Contradiction("--assert is about one sweep: give one directory").into());
        };
        return sweep::judge(directory, &args.rules, &args.ci);
    }
    let reports = args
        .directories
        .iter()
        .map(|directory| Report::of_directory(directory));
    let reports = reports.collect::<Result<Vec<_>, _>>()?;
    match reports.as_slice() {
        [first, second] => {
            let comparison = Comparison::of(first, second);
            if args.json {
                json(out, &comparison)?;
            } else {
                write!(out, "{comparison}")?;
                if let Some(directory) = &args.out {
                    comparison.write(directory)?;
                }
            }
        }
        reports => {
            for (report, directory) in reports.iter().zip(&args.directories) {
                if args.json {
                    json(out, report)?;
                    continue;
                }
                let directory = args.out.clone().unwrap_or_else(|| directory.join("report"));
                report.write(&directory)?;
                write!(out, "{report}")?;
                eprintln!("the page is {}", directory.join("index.html").display());
            }
        }
    }
    Ok(DONE)
}
