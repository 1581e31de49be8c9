//! A curve on private hosts, between which this program measures as a command:
//!
//! ```text
//! curve ──► private hosts ──► h1: perturb nfs part client SETTINGS ──► NAME.jsonl
//!                               └► perturb on h2: perturb nfs part server SETTINGS
//! ```
//!
//! The settings are a file beside the results. It tells afterwards how a curve was measured.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use perturb_emulator::{conduct::Pacing, lab::run::Request, prepared::Prepared};
use perturb_workloads::nfs::Stop;

use super::{
    interrupt::stop_on_signal,
    measure::{self, Series, Where},
    processors::{Side, keep_to_own},
    serve,
};
use crate::cli::run_on_hosts;

/// Client and server.
pub(super) const HOSTS: u32 = 2;

/// Measures a series on private hosts; the exit code.
pub(super) fn measure_under(series: &Series, prepared: Prepared, pacing: Pacing) -> anyhow::Result<u8> {
    let settings = series.out.join(format!("{}.settings.json", series.name));
    fs::write(&settings, serde_json::to_string_pretty(series)?)
        .with_context(|| format!("writing {}", settings.display()))?;
    let program = std::env::current_exe().context("finding this executable")?;
    let part = ["nfs", "part", "client"].map(Into::into);
    run_on_hosts(Request {
        prepared,
        hosts: HOSTS,
        pacing,
        verbose: false,
        owner: None,
        // Further series may follow.
        is_last: false,
        command: [vec![program.into()], part.into(), vec![settings.into()]].concat(),
    })
}

/// The server's end, on h2.
pub(super) fn serve(settings: &Path) -> anyhow::Result<u8> {
    let series = read(settings)?;
    part_processors(&series, Side::Server)?;
    match series.server {
        Where::OnHost(config) | Where::Here(config) => serve::serve(&config, None, true),
        Where::Elsewhere => bail!("{} has no server of ours", settings.display()),
    }
}

/// The client's end, on h1.
pub(super) fn measure(settings: &Path) -> anyhow::Result<u8> {
    let series = read(settings)?;
    part_processors(&series, Side::Client)?;
    let stop = Stop::default();
    stop_on_signal(stop.clone())?;
    measure::measure(&series, Some(settings), &stop)
}

/// A service time that is burnt is the server's own.
fn part_processors(series: &Series, side: Side) -> anyhow::Result<()> {
    let burns = matches!(&series.server, Where::OnHost(config) if config.service.burn);
    if burns && !keep_to_own(side)? && side == Side::Client {
        eprintln!("perturb: warning: both hosts share the one processor of this machine");
    }
    Ok(())
}

fn read(settings: &Path) -> anyhow::Result<Series> {
    let text = fs::read_to_string(settings).with_context(|| format!("reading {}", settings.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading {}", settings.display()))
}
