//! A curve on private hosts, between which this program measures as a command:
//!
//! ```text
//! curve ──► private hosts ──► h1: perturb nfs part client SETTINGS ──► NAME.jsonl
//!                               └► perturb on h2: perturb nfs part server SETTINGS
//! ```
//!
//! The settings are a file beside the results. It tells afterwards how a curve was measured.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail};
use perturb_emulator::{conduct::Pacing, lab::run, prepared::Prepared, runtime};
use perturb_present::LiveLine;
use perturb_sandbox::exit_code;
use perturb_workloads::nfs::{Stop, server::Config};

use super::{
    measure::{self, Series, Where},
    processors::{Side, keep_to_own, usable},
};

/// Client and server.
pub(super) const HOSTS: u32 = 2;

/// Measures a series on private hosts; the exit code of the process that measured.
pub(super) fn measure_under(
    series: &Series,
    prepared: Prepared,
    pacing: Pacing,
    quiet: bool,
) -> anyhow::Result<u8> {
    let series = &Series {
        processors: usable()?,
        ..series.clone()
    };
    let settings = series.out.join(format!("{}.settings.json", series.name));
    fs::write(&settings, serde_json::to_string_pretty(series)?)
        .with_context(|| format!("writing {}", settings.display()))?;
    let program = std::env::current_exe().context("finding this executable")?;
    let mut command = vec![program.into()];
    command.extend(["nfs", "part", "client"].map(Into::into));
    command.push(settings.into());
    command.extend(quiet.then(|| "--quiet".into()));
    let ended = runtime()?.block_on(run::run(run::Request {
        prepared,
        hosts: HOSTS,
        pacing,
        verbose: false,
        owner: None,
        // Further series may follow.
        is_last: false,
        begun: &mut |_, _, _| Ok(()),
        witness: &mut |_| (),
        ended: &mut |_| Ok(()),
        command,
    }))?;
    Ok(ended.map_or(1, exit_code))
}

/// One end of a curve, on a private host.
pub struct Part {
    series: Series,
    settings: PathBuf,
}

impl Part {
    /// Reads its settings, and keeps to its processors: to be called before threads are started.
    fn begin(settings: PathBuf, side: Side) -> anyhow::Result<Self> {
        let reading = || format!("reading {}", settings.display());
        let text = fs::read_to_string(&settings).with_context(reading)?;
        let series: Series = serde_json::from_str(&text).with_context(reading)?;
        // A service time that is burnt is the server's own.
        let burns = matches!(&series.server, Where::OnHost(config) if config.service.burn);
        if burns && !keep_to_own(side, &series.processors)? && side == Side::Client {
            log::warn!("both hosts share the one processor of this machine");
        }
        Ok(Self { series, settings })
    }

    /// The client's end, on h1.
    pub fn client(settings: PathBuf) -> anyhow::Result<Self> {
        Self::begin(settings, Side::Client)
    }

    /// What the server's end, on h2, serves.
    pub fn server(settings: PathBuf) -> anyhow::Result<Config> {
        let part = Self::begin(settings, Side::Server)?;
        match part.series.server {
            Where::OnHost(config) | Where::Here(config) => Ok(config),
            Where::Elsewhere => bail!("{} has no server of ours", part.settings.display()),
        }
    }

    /// Measures; whether nothing was wrong.
    pub fn measure(&self, stop: &Stop, line: &LiveLine) -> anyhow::Result<bool> {
        measure::measure(&self.series, Some(&self.settings), stop, line)
    }
}
