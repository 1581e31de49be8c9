//! The requests as they come: packets that enter an emulation, which the programs log while somebody reads.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use perturb_common::abi::{CONTROL_WATCH, Event, Request};
use perturb_dataplane::maps::{Maps, Requests};

use super::{Flow, Names, in_force};
use crate::{
    registry::{self, Record},
    told::Told,
};

/// How long the programs go on logging without a word from the reader.
const GRACE: Duration = Duration::from_secs(2);
/// How often the reader looks for emulations that began or ended.
const SEARCH: Duration = Duration::from_millis(250);

/// The logs of all emulations in force. Whoever reads them does so every few milliseconds: 26,214 requests fit.
#[derive(Default)]
pub struct Logs {
    logs: Vec<Log>,
    searched: Option<Instant>,
    told: Told,
}

impl Logs {
    /// What was logged since the last call, in the order of time.
    pub fn take(&mut self) -> Vec<(Request, Flow)> {
        let mut taken: Vec<(Request, Flow)> = Vec::new();
        for log in &mut self.logs {
            log.take(&mut taken);
        }
        // Of one log nearly sorted: a processor may be interrupted between its clock and the log.
        taken.sort_by_key(|(request, _)| request.time);
        taken
    }

    /// Has the programs go on logging, or, at the `end`, stop; looks now and then for emulations that began or ended.
    ///
    /// # Errors
    /// When another process reads, or an emulation's maps cannot be read.
    pub fn renew(&mut self, end: bool) -> anyhow::Result<()> {
        if end || self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH) {
            self.search(end)?;
            self.searched = Some(Instant::now());
        }
        Ok(())
    }

    /// Opens the logs of emulations that began, drops those that ended, and puts off the others' end.
    fn search(&mut self, end: bool) -> anyhow::Result<()> {
        self.told.look_again();
        let records = in_force(&mut self.told)?;
        self.logs
            .retain(|log| records.iter().any(|record| record.id == log.names.emulation));
        let mut opened = Vec::new();
        for record in &records {
            if !end && !self.logs.iter().any(|log| log.names.emulation == record.id) {
                self.logs.push(Log::open(record)?);
                opened.push(&*record.id);
            }
        }
        for log in &mut self.logs {
            log.renew(if end { Duration::ZERO } else { GRACE })?;
        }
        if !opened.is_empty() {
            log::info!("watching {}", opened.join(", "));
        }
        Ok(())
    }
}

/// The log of one emulation.
struct Log {
    names: Names,
    maps: Maps,
    requests: Requests,
    /// Requests that were not logged so far because nobody took them.
    unlogged: u64,
    _claim: registry::Lock,
}

impl Log {
    fn open(record: &Record) -> anyhow::Result<Self> {
        let Some(claim) = record.claim_requests()? else {
            bail!(
                "another process watches the flows of {} already; end it first: a request is given to one reader only",
                record.id
            );
        };
        let maps = Maps::by_id(&record.maps)?;
        let mut requests = Requests::by_id(&record.maps)?;
        // What an earlier reader left.
        while requests.take().is_some() {}
        Ok(Self {
            unlogged: unlogged(&maps)?,
            names: Names::of(record),
            maps,
            requests,
            _claim: claim,
        })
    }

    fn take(&mut self, into: &mut Vec<(Request, Flow)>) {
        while let Some(request) = self.requests.take() {
            if let Some(flow) = self.names.flow(&request.key, request.class) {
                into.push((request, flow));
            }
        }
    }

    /// Has the programs log for so long, and says what was lost.
    fn renew(&mut self, time: Duration) -> anyhow::Result<()> {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = if time == 0 { 0 } else { perturb_clock::now() + time };
        self.maps
            .control
            .set(CONTROL_WATCH, until, 0)
            .context("asking for the log of requests")?;
        let unlogged = unlogged(&self.maps)?;
        if unlogged > self.unlogged {
            log::warn!(
                "{} requests of {} are missing here: they came faster than they were read",
                unlogged - self.unlogged,
                self.names.emulation
            );
        }
        self.unlogged = unlogged;
        Ok(())
    }
}

fn unlogged(maps: &Maps) -> anyhow::Result<u64> {
    let counts = maps
        .events
        .get(&(Event::Unlogged as u32), 0)
        .context("reading what was not logged")?;
    Ok(counts.iter().sum())
}
