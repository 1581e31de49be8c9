//! `perturb status`: what is applied, for people and as JSON.

mod activity;
mod flows;
mod table;
mod totals;

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use perturb_emulator::{registry, runtime, status::Report, told::Told};
use perturb_present::clear_screen;

use self::table::Sheet;
pub(in crate::cli) use self::table::micros;
pub(crate) use self::{activity::Activity, table::moment, totals::totals};
use super::{Contradiction, DONE, Status, asked, machines};

/// Between two looks of `--watch`, if no time is given.
const LOOK: Duration = Duration::from_secs(1);

pub(super) fn run(args: &Status) -> anyhow::Result<u8> {
    if let Some(on) = &args.on {
        return machines::status(on, args);
    }
    if args.flows {
        match args.watch {
            Some(Some(_)) if args.json => {
                return Err(Contradiction(
                    "`status --flows --json --watch` prints each packet as it comes: give --watch no time",
                )
                .into());
            }
            Some(period) => runtime()?.block_on(flows::watch(period.unwrap_or(LOOK), args.json))?,
            None => flows::list(args.json, &mut std::io::stdout().lock())?,
        }
        return Ok(DONE);
    }
    if let Some(period) = args.watch {
        watch(args, period.unwrap_or(LOOK))?;
        return Ok(DONE);
    }
    let reports = reports(&mut Told::default())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
        return Ok(DONE);
    }
    if reports.is_empty() {
        println!("nothing is applied");
    }
    for report in reports {
        print!("{}", Sheet(&report));
    }
    Ok(DONE)
}

/// What is applied; what is not in force is told on standard error.
fn reports(told: &mut Told) -> anyhow::Result<Vec<Report>> {
    let recorded = registry::records().map_err(anyhow::Error::from);
    if let Some(clients) = asked::instead_of(&recorded) {
        return asked::reports(&clients, told);
    }
    let mut reports = Vec::new();
    for record in recorded?.or_warn(told) {
        match Report::of_or_tell(&record, told)? {
            Some(report) => reports.push(report),
            None if record.ready && record.has_owner()? => (),
            None => {
                let why = if record.has_owner()? {
                    format!("{} is being set up", record.id)
                } else {
                    format!(
                        "{} was left behind by process {}, which is gone; `perturb clear` removes what is left",
                        record.id, record.process.pid
                    )
                };
                if told.is_news(&why) {
                    eprintln!("{why}");
                }
            }
        }
    }
    Ok(reports)
}

/// Shows what the servers do, period by period, until this process is ended.
fn watch(args: &Status, period: Duration) -> anyhow::Result<()> {
    let mut told = Told::default();
    let (mut before, mut seen) = (reports(&mut told)?, Instant::now());
    let clear = if args.json {
        ""
    } else {
        clear_screen(&std::io::stdout())
    };
    loop {
        std::thread::sleep(period);
        told.look_again();
        let (mut now, time) = (reports(&mut told)?, seen.elapsed());
        seen = Instant::now();
        let mut text = String::new();
        for report in &mut now {
            if let Some(earlier) = before.iter().find(|earlier| earlier.id == report.id) {
                report.since(earlier, time);
                text += &Activity::between(earlier, report, time).to_string();
            }
        }
        let text = if args.json {
            serde_json::to_string(&now)?
        } else if now.is_empty() {
            "nothing is applied".into()
        } else {
            text
        };
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{clear}{}", text.trim_end()).and_then(|()| out.flush()) {
            // Whoever read it, e.g. `head`, has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            done => done?,
        }
        before = now;
    }
}
