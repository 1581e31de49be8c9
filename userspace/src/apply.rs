//! `perturb apply`: a profile on interfaces of this namespace.

mod course;
mod daemon;
mod enter;
mod service;
mod silence;
mod update;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use perturb_dataplane::{
    namespace::Namespace,
    netlink::{Link, Netlink},
    user::SpinBudget,
};
use perturb_emulator::{
    admission::admit,
    conduct::{Conduct, Lease, PacerChoice, Pacing},
    enter,
    prepared::Prepared,
    privileges,
    registry::{Record, Recorded, Registry},
    setup::{Target, set_up},
};

use self::course::Course;

/// The lease, if none is asked for.
const LEASE: Duration = Duration::from_secs(10);

/// What was asked for. `None` and `false`: nothing was said about it.
pub(crate) struct Request {
    /// The profile.
    pub(crate) prepared: Prepared,
    /// Its file.
    pub(crate) file: PathBuf,
    /// Interfaces of this namespace.
    pub(crate) interfaces: Vec<String>,
    /// Which pacer.
    pub(crate) pacer: PacerChoice,
    /// How long the user pacer polls.
    pub(crate) spin: Option<SpinBudget>,
    /// How long the programs go on without their controller.
    pub(crate) lease: Option<Duration>,
    /// End after this time.
    pub(crate) duration: Option<Duration>,
    /// Undo it unless it is confirmed within this time.
    pub(crate) confirm: Option<Duration>,
    /// Wait for an interface that goes, and go on when it comes back.
    pub(crate) follow: bool,
    /// Return at once, leave the emulation.
    pub(crate) detach: bool,
    /// This process is the one that was left.
    pub(crate) detached: bool,
    /// No live line.
    pub(crate) quiet: bool,
    /// Show the programs' own messages.
    pub(crate) verbose: bool,
}

impl Request {
    fn conduct(&self) -> Conduct {
        Conduct {
            pacing: Pacing {
                choice: self.pacer,
                spin: self.spin.unwrap_or_default(),
            },
            lease: Lease::For(self.lease.unwrap_or(LEASE)),
            verbose: self.verbose,
            follow: self.follow,
            duration: self.duration,
            confirm: self.confirm,
            detached: self.detached,
        }
    }
}

/// How it ended.
pub(crate) enum Outcome {
    /// An emulation that was there has the new profile now.
    Updated(Record),
    /// The emulation lives without this process.
    Detached(Record),
    /// The emulation has ended as it was to; this many packets were still held.
    Ended(u64),
}

/// Applies a profile.
pub(crate) async fn apply(request: Request) -> anyhow::Result<Outcome> {
    let registry = enter()?;
    let links = links(&request.interfaces)?;
    match applied(&registry, &links)?.as_slice() {
        [] => start(registry, request, &links).await,
        [record] => {
            service::refuse_to_end(record, &request)?;
            update::update(&registry, record, &request).map(Outcome::Updated)
        }
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

/// The emulations of interfaces. An interface that was deleted and made again is another one, whatever its name.
fn applied(registry: &Registry, links: &[Link]) -> anyhow::Result<Vec<Record>> {
    let here = Namespace::current()?.inode()?;
    let mut applied = Vec::new();
    let Recorded { records, unreadable } = registry.records()?;
    let ours = |name: &str, index| links.iter().any(|link| link.name == name || link.index == index);
    if let Some(theirs) = unreadable.into_iter().find(|record| record.may_have(here, ours)) {
        return Err(theirs.error.into());
    }
    for record in records {
        let interfaces = || {
            record
                .interfaces
                .iter()
                .filter(|interface| interface.namespace == here)
        };
        if interfaces().any(|old| links.iter().any(|link| link.index == old.index && !old.lost)) {
            applied.push(record);
            continue;
        }
        let again = |name: &str| links.iter().any(|link| link.name == name);
        if let Some(old) = interfaces().find(|old| again(&old.name)) {
            bail!(
                "{name} is not the interface that {id} emulates: that one is gone (it had index {index}); process {pid} \
                 {does}; `perturb clear --iface {name}` ends what it still does",
                name = old.name,
                id = record.id,
                index = old.index,
                pid = record.process.pid,
                does = if record.terms.follow {
                    "goes on with the new one within a second, so try again then, unless its messages say why it cannot"
                } else {
                    "has not noticed it yet"
                },
            );
        }
    }
    Ok(applied)
}

async fn start(registry: Registry, request: Request, links: &[Link]) -> anyhow::Result<Outcome> {
    if request.detach {
        drop(registry);
        return daemon::start(&request).map(Outcome::Detached);
    }
    let targets = targets(links)?;
    // Handlers first: a signal during the set-up waits until the guards exist.
    let course = Course::prepare(request.quiet, request.verbose)?;
    let first = targets.first().context("no interface named")?;
    let id = format!("{}-{}", first.namespace.inode()?, first.link.index);
    privileges::keep_needed().context("giving up capabilities")?;
    let running = set_up(&registry, &id, &request.prepared, targets, request.conduct())?;
    drop(registry);
    service::ready()?;
    if request.detached {
        service::log_to_journal()?;
    }
    course.run(running).await.map(Outcome::Ended)
}

/// The interfaces of these names.
fn links(names: &[String]) -> anyhow::Result<Vec<Link>> {
    let links = Netlink::open()?.links()?;
    names
        .iter()
        .map(|name| match links.iter().find(|link| link.name == *name) {
            Some(link) => Ok(link.clone()),
            None => {
                let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
                bail!(
                    "there is no interface {name} here; there are {}",
                    known.join(", ")
                );
            }
        })
        .collect()
}

fn targets(chosen: &[Link]) -> anyhow::Result<Vec<Target>> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    chosen
        .iter()
        .map(|link| {
            for caveat in admit(&mut netlink, link, &links)? {
                log::warn!("{}: {caveat}", link.name);
            }
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
