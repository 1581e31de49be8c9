//! `apply --container`, `--compose`: an emulation in each container that is meant, now and as long as this process lives.
//!
//! ```text
//! engines ──► News ──► Fleet: which containers are to be emulated ──► Member: `perturb apply`, in the container's namespace
//!                        ▲                                              │
//!                        └───────────── begun, said, ended ◄────────────┘
//! ```
//!
//! A process per container: each has a namespace, a record, a lease and an API of its own, as if it were begun by hand there
//! (`nsenter`). They end with this one, however it ends (PR_SET_PDEATHSIG, and their leases).

mod fleet;
mod member;
mod process;

use std::time::Duration;

use anyhow::{Context as _, bail};
use perturb_containers::{Container, Engine, EngineError, Lookup, News, Selector, choose, engines, follow};
use perturb_emulator::{
    container::interface_of,
    registry::{
        Registry,
        followers::{Following, followers},
        records,
    },
    signals::Signals,
};
use tokio::{
    sync::mpsc::{channel, unbounded_channel},
    time::sleep,
};

use self::fleet::Fleet;
use super::{Outcome, Request, daemon, service};
use crate::voice;

/// News of engines that wait to be looked at.
const WAITING: usize = 16;

/// Which containers.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// What is said of them.
    pub(crate) selectors: Vec<Selector>,
    /// The network whose interface is meant.
    pub(crate) network: Option<String>,
}

impl Choice {
    /// For people.
    pub(crate) fn name(&self) -> String {
        self.words().join(", ")
    }

    /// As `apply` takes it.
    pub(super) fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        for selector in &self.selectors {
            let (option, word) = match selector {
                Selector::Compose(project) => ("--compose", project.clone()),
                other => ("--container", other.to_string()),
            };
            options.extend([option.to_owned(), word]);
        }
        if let Some(network) = &self.network {
            options.extend(["--network".to_owned(), network.clone()]);
        }
        options
    }

    /// As records have them.
    fn words(&self) -> Vec<String> {
        self.selectors.iter().map(ToString::to_string).collect()
    }
}

/// Why a container could not be emulated when it was to begin: what its process said, and its exit code.
#[derive(Debug, thiserror::Error)]
#[error("the container {name}: {said}")]
pub(crate) struct Failed {
    name: String,
    said: String,
    /// [`crate::cli::exit`].
    pub(crate) code: u8,
}

/// Applies a profile to containers.
pub(super) async fn apply(request: Request, choice: &Choice) -> anyhow::Result<Outcome> {
    let registry = perturb_emulator::enter()?;
    let (engines, all) = look(choice).await?;
    let chosen = choose(&choice.selectors, &all)?;
    refuse_again(choice, &chosen)?;
    if request.detach {
        drop(registry);
        return daemon::start(&request, |pid| {
            let mut followers = followers()?.into_iter();
            Ok(followers.find(|follower| follower.process.pid == pid && follower.ready))
        })
        .map(|_| Outcome::Following);
    }
    keep(registry, request, choice, engines).await.map(Outcome::Ended)
}

/// What would be emulated, for people.
pub(crate) async fn rehearse(choice: &Choice) -> anyhow::Result<Vec<String>> {
    let (_, all) = look(choice).await?;
    let place = |container: &&Container| {
        let pid = container.pid().context("it does not run")?;
        let networks = attached(container);
        let inside = interface_of(pid, &networks, choice.network.as_deref())
            .with_context(|| format!("the container {}", container.name))?;
        Ok(format!("{}:{}", container.name, inside.interface))
    };
    choose(&choice.selectors, &all)?.iter().map(place).collect()
}

fn attached(container: &Container) -> Vec<(String, Vec<std::net::IpAddr>)> {
    let networks = container.networks.iter();
    networks
        .map(|attached| (attached.network.clone(), attached.addresses.clone()))
        .collect()
}

/// The engines that answer, and what they have.
async fn look(choice: &Choice) -> anyhow::Result<(Vec<Engine>, Vec<Container>)> {
    let lookup = Lookup(choice.selectors.clone());
    let (mut answering, mut all, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for engine in engines()? {
        match engine.containers(&lookup).await {
            Ok(containers) => {
                all.extend(containers);
                answering.push(engine);
            }
            Err(error) if error.is_denied() => {
                return Err(error).with_context(|| format!("asking {engine}"));
            }
            Err(error) => failures.push(format!("{engine}: {error}")),
        }
    }
    if answering.is_empty() {
        return Err(EngineError::NoneAnswers(failures.join("; ")).into());
    }
    for failure in failures {
        log::warn!("{failure}; its containers are left alone");
    }
    Ok((answering, all))
}

/// A container has one emulation, and what is followed has one follower.
fn refuse_again(choice: &Choice, chosen: &[&Container]) -> anyhow::Result<()> {
    let words = choice.words();
    for follower in followers()? {
        if let Some(word) = follower.follows.iter().find(|word| words.contains(word)) {
            bail!(
                "process {} follows {word} already; `perturb clear {}` ends that",
                follower.process.pid,
                as_option(word)
            );
        }
    }
    for record in records()?.records {
        let mut contained = record
            .interfaces
            .iter()
            .filter_map(|interface| interface.container.as_ref());
        if let Some(container) = contained.find(|has| chosen.iter().any(|container| container.id == has.id)) {
            bail!(
                "process {} emulates the container {} already; `perturb clear --container {}` ends that",
                record.process.pid,
                container.name,
                container.name
            );
        }
    }
    Ok(())
}

/// How a selector is given to a command.
fn as_option(word: &str) -> String {
    match word.strip_prefix("compose=") {
        Some(project) => format!("--compose {project}"),
        None => format!("--container {word}"),
    }
}

/// Emulates until something ends it.
async fn keep(
    registry: Registry,
    request: Request,
    choice: &Choice,
    engines: Vec<Engine>,
) -> anyhow::Result<u64> {
    let mut signals = Signals::listen()?;
    let following = Following::begin(&registry, choice.words())?;
    drop(registry);
    if !request.detached {
        voice::begin();
    }
    let (tell, mut news) = channel(WAITING);
    let lookup = Lookup(choice.selectors.clone());
    for engine in &engines {
        tokio::spawn(follow(engine.clone(), lookup.clone(), tell.clone()));
    }
    drop(tell);
    let (report, mut reports) = unbounded_channel();
    let mut fleet = Fleet::new(&request, choice, engines.len(), report, following);
    let length = request.duration.unwrap_or(Duration::MAX);
    let over = sleep(length);
    tokio::pin!(over);
    let end = loop {
        let wake = fleet.wakes_in();
        let done = tokio::select! {
            _ = signals.next() => break Ok(()),
            () = &mut over, if request.duration.is_some() => break Ok(()),
            Some(news) = news.recv() => match news {
                News::Containers(engine, containers) => fleet.sees(engine, containers),
                News::Lost(engine, error, pause) => {
                    fleet.misses(&engine, &error, pause);
                    Ok(())
                }
            },
            Some(report) = reports.recv() => fleet.hears(report),
            () = sleep(wake.unwrap_or_default()), if wake.is_some() => fleet.reconcile(),
        };
        if let Err(error) = done {
            break Err(error);
        }
        if fleet.is_settled() {
            fleet.begin()?;
            service::ready()?;
            if request.detached {
                service::log_to_journal()?;
                voice::begin();
            }
        }
        if fleet.is_over() {
            log::info!("nothing is left to follow");
            break Ok(());
        }
    };
    fleet.end(&mut reports).await;
    voice::settle();
    end.map(|()| 0)
}
