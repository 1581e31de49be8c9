//! `perturb apply`: a profile on interfaces of this namespace.

mod daemon;
mod silence;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use perturb_dataplane::{
    loader::Loader,
    maps::Maps,
    namespace::Namespace,
    netlink::{Link, Netlink},
    programs::Pacer,
    survey::Survey,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use self::silence::Silence;
use crate::{
    controller::{
        enter,
        setup::{Conduct, PacerChoice, Prepared, Target, pacer_name, set_up},
    },
    privileges,
    registry::{Record, Registry},
    report::LiveLine,
    signals::Hangup,
};

/// What was asked for.
pub struct Request {
    /// The profile.
    pub prepared: Prepared,
    /// Its file.
    pub file: PathBuf,
    /// Interfaces of this namespace.
    pub interfaces: Vec<String>,
    /// How it is conducted.
    pub conduct: Conduct,
    /// Return at once, leave the emulation.
    pub detach: bool,
    /// End after this time.
    pub duration: Option<Duration>,
    /// No live line.
    pub quiet: bool,
}

/// How it ended.
pub enum Outcome {
    /// An emulation that was there has the new profile now.
    Updated(Record),
    /// The emulation lives without this process.
    Detached(Record),
    /// The emulation has ended; this many packets were still held.
    Ended(u64),
}

/// Applies a profile.
pub async fn apply(request: Request) -> anyhow::Result<Outcome> {
    let registry = enter()?;
    let here = Namespace::current()?.inode()?;
    let applied: Vec<Record> = registry
        .records()?
        .into_iter()
        .filter(|record| {
            record
                .interfaces
                .iter()
                .any(|interface| interface.namespace == here && request.interfaces.contains(&interface.name))
        })
        .collect();
    match applied.as_slice() {
        [] => start(registry, request).await,
        [record] => update(&registry, record, &request).map(Outcome::Updated),
        several => {
            let ids: Vec<&str> = several.iter().map(|record| record.id.as_str()).collect();
            bail!(
                "the interfaces belong to {} emulations ({}); clear them first",
                several.len(),
                ids.join(", ")
            )
        }
    }
}

/// Changes the profile of a running emulation.
fn update(_registry: &Registry, record: &Record, request: &Request) -> anyhow::Result<Record> {
    let applied: Vec<&str> = record
        .interfaces
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    ensure!(
        applied.len() == request.interfaces.len()
            && request
                .interfaces
                .iter()
                .all(|name| applied.contains(&name.as_str())),
        "{} is applied to {}; name the same interfaces to change its profile, or clear it first",
        record.id,
        applied.join(", ")
    );
    if let PacerChoice::Only(pacer) = request.conduct.pacing.choice {
        ensure!(
            pacer_name(pacer) == record.pacer,
            "the pacer of a running emulation ({}) cannot be changed; clear it first",
            record.pacer
        );
    }
    let tables = &request.prepared.tables;
    let mut loader = Loader::resume(Maps::by_id(&record.maps)?, record.slots.clone())?;
    if record.pacer == pacer_name(Pacer::Fq) {
        let mut netlink = Netlink::open()?;
        for interface in &record.interfaces {
            if let Some(hold) = interface.devices.first()
                && let Some(link) = netlink.link(hold)?
            {
                perturb_dataplane::hold::set_fq(
                    &mut netlink,
                    link.index,
                    link.queues,
                    request.prepared.fq_options(),
                )?;
            }
        }
    }
    loader.load(tables)?;
    let mut record = record.clone();
    record.profile = request.prepared.profile.to_string();
    record.classes.clone_from(&tables.class_names);
    record.servers.clone_from(&tables.server_names);
    record.slots = loader.slots().clone();
    record.updates += 1;
    record.write()?;
    Ok(record)
}

async fn start(registry: Registry, request: Request) -> anyhow::Result<Outcome> {
    if request.detach {
        drop(registry);
        return daemon::start(&request).map(Outcome::Detached);
    }
    let targets = targets(&request.interfaces)?;
    // Handlers first: a signal during the set-up waits until the guards exist.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = Hangup::listen()?;
    let first = targets.first().context("no interface named")?;
    let id = format!("{}-{}", first.namespace.inode()?, first.link.index);
    privileges::keep_needed().context("giving up capabilities")?;
    let mut running = set_up(&registry, &id, &request.prepared, targets, request.conduct)?;
    let lease = request.conduct.lease;
    drop(registry);

    let logs = request
        .conduct
        .verbose
        .then(|| crate::report::follow_logs(running.emulation.programs()))
        .transpose()?;
    let mut line = LiveLine::new(request.quiet);
    let mut silence = Silence::begin(&running)?;
    let mut renewals = interval(lease.period());
    renewals.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let started = Instant::now();
    loop {
        let left = request
            .duration
            .map(|duration| duration.saturating_sub(started.elapsed()));
        if left == Some(Duration::ZERO) {
            break;
        }
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = hangup.recv() => break,
            () = tokio::time::sleep(left.unwrap_or(Duration::MAX)), if left.is_some() => break,
            _ = renewals.tick() => {
                lease.renew(running.emulation.loader())?;
                running.publish()?;
                line.show(&running)?;
                silence.look(&running)?;
            }
        }
    }
    line.finish();
    drop(logs);
    running.take_down().map(Outcome::Ended)
}

fn targets(names: &[String]) -> anyhow::Result<Vec<Target>> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    names
        .iter()
        .map(|name| {
            let Some(link) = links.iter().find(|link| link.name == *name) else {
                let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
                bail!(
                    "there is no interface {name} here; there are {}",
                    known.join(", ")
                );
            };
            ensure!(
                link.ethernet,
                "{name} has no Ethernet header; perturb emulates Ethernet-like interfaces (and lo) only: emulate the \
                 interface that it runs over instead"
            );
            refuse_taken(name, link, &links)?;
            survey(&mut netlink, link, &links)?;
            Ok(Target {
                namespace: Namespace::current()?,
                link: link.clone(),
                host: None,
                rank: 0,
                indices: [0; 4],
            })
        })
        .collect()
}

/// Refuses an interface that held packets cannot go back to; says what of its traffic is not emulated.
fn survey(netlink: &mut Netlink, link: &Link, links: &[Link]) -> anyhow::Result<()> {
    let found = Survey::of(netlink, link, links).with_context(|| format!("looking at {}", link.name))?;
    if let Some(obstacle) = found.obstacles.first() {
        bail!("{} cannot be emulated: {obstacle}", link.name);
    }
    for caveat in found.caveats {
        eprintln!("perturb: warning: {}: {caveat}", link.name);
    }
    Ok(())
}

/// perturb's devices must not be put under emulation themselves.
fn refuse_taken(name: &str, link: &Link, links: &[Link]) -> anyhow::Result<()> {
    ensure!(
        !link
            .alias
            .as_deref()
            .is_some_and(|alias| alias.starts_with("perturb ")),
        "{name} is one of perturb's own devices"
    );
    for prefix in ["pthold", "ptout", "ptsplit", "ptcut"] {
        let device = format!("{prefix}{}", link.index);
        ensure!(
            links.iter().all(|other| other.name != device),
            "an interface {device} exists, which is not perturb's; rename it: perturb needs the name"
        );
    }
    Ok(())
}
