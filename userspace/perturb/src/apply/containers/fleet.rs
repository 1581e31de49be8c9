//! All containers that are followed. What engines say is compared with what is emulated; whatever happens, the next comparison
//! makes good.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitStatus,
    time::{Duration, Instant},
};

use perturb_containers::{Container, Engine, EngineError, Network, Selector};
use perturb_emulator::{
    container::{Inside, interface_of},
    registry::{Contained, followers::Following},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::timeout,
};

use super::{
    Choice, Failed, attached,
    member::{Member, Place, State},
    process::{Heard, Process, What},
};
use crate::{
    apply::Request,
    cli::{exit::FAILED, message},
};

/// Time for all processes to end.
const PATIENCE: Duration = Duration::from_secs(7);

/// All containers that are followed.
pub(super) struct Fleet<'a> {
    request: &'a Request,
    choice: &'a Choice,
    /// How many engines are to be heard of before all is known.
    engines: usize,
    seen: Vec<(Engine, Vec<Container>)>,
    silent: BTreeSet<String>,
    members: BTreeMap<String, Member>,
    /// Names of containers that another command has cleared.
    cleared: BTreeSet<String>,
    /// What was said once, and is not news.
    told: BTreeSet<String>,
    tell: UnboundedSender<Heard>,
    following: Following,
    serial: u64,
    has_begun: bool,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(
        request: &'a Request,
        choice: &'a Choice,
        engines: usize,
        tell: UnboundedSender<Heard>,
        following: Following,
    ) -> Self {
        Self {
            request,
            choice,
            engines,
            seen: Vec::new(),
            silent: BTreeSet::new(),
            members: BTreeMap::new(),
            cleared: BTreeSet::new(),
            told: BTreeSet::new(),
            tell,
            following,
            serial: 0,
            has_begun: false,
        }
    }

    /// An engine has these containers now.
    pub(super) fn sees(&mut self, engine: Engine, containers: Vec<Container>) -> anyhow::Result<()> {
        if self.silent.remove(&engine.to_string()) {
            log::info!("{engine} answers again");
        }
        self.seen.retain(|(other, _)| *other != engine);
        self.seen.push((engine, containers));
        self.reconcile()
    }

    /// An engine does not answer. What is emulated goes on: containers outlive some engines.
    pub(super) fn misses(&mut self, engine: &Engine, error: &EngineError, pause: Duration) {
        if self.silent.insert(engine.to_string()) {
            log::warn!(
                "{engine} does not answer: {error}; what is emulated goes on, and it is asked again in {:.1} s, and later",
                pause.as_secs_f64()
            );
        }
    }

    /// What was heard of a process.
    pub(super) fn hears(&mut self, heard: Heard) -> anyhow::Result<()> {
        let Some(member) = self.members.get_mut(&heard.id) else {
            return Ok(());
        };
        if member
            .process()
            .is_none_or(|process| process.serial != heard.serial)
        {
            return Ok(());
        }
        match heard.what {
            What::Said(line) => {
                say(&member.name, &line);
                Ok(())
            }
            What::Up => {
                self.is_up(&heard.id);
                Ok(())
            }
            What::Ended(status, last) => {
                let id = heard.id;
                self.has_ended(&id, status.ok(), last)?;
                self.reconcile()
            }
        }
    }

    fn is_up(&mut self, id: &str) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let state = std::mem::replace(&mut member.state, State::Waits(Instant::now(), String::new()));
        member.state = match state {
            State::Begins(process, place) => {
                if self.has_begun {
                    log::info!(
                        "{} runs: emulating on its {}{}",
                        member.name,
                        place.interface,
                        left_alone(&place.others)
                    );
                }
                State::Up(process, place)
            }
            other => other,
        };
        member.failures = 0;
    }

    fn has_ended(
        &mut self,
        id: &str,
        status: Option<ExitStatus>,
        last: Option<String>,
    ) -> anyhow::Result<()> {
        let Some(mut member) = self.members.remove(id) else {
            return Ok(());
        };
        if let State::Ends(_) = member.state {
            // It may have lost packets.
            if let Some(last) = last {
                say(&member.name, &last);
            }
            return Ok(());
        }
        let success = status.is_some_and(|status| status.success());
        if success && matches!(member.state, State::Up(..)) {
            log::info!(
                "{} was cleared by another command: it is left alone from now on",
                member.name
            );
            self.cleared.insert(member.name);
            return Ok(());
        }
        let said = last.map_or_else(
            || {
                format!(
                    "its process ended ({})",
                    status.map_or("unknown".into(), |status| status.to_string())
                )
            },
            |last| last.trim_start_matches("perturb: ").to_owned(),
        );
        self.must_begin(&member.name, &said, status.and_then(|status| status.code()))?;
        member.fails(said);
        self.members.insert(id.into(), member);
        Ok(())
    }

    /// At the beginning a failure ends it all: it may be the profile's or the machine's.
    fn must_begin(&self, name: &str, said: &str, code: Option<i32>) -> anyhow::Result<()> {
        if self.has_begun {
            return Ok(());
        }
        let code = code
            .and_then(|code| u8::try_from(code).ok())
            .filter(|&code| code != 0);
        Err(Failed {
            name: name.into(),
            said: said.into(),
            code: code.unwrap_or(FAILED),
        }
        .into())
    }

    /// Compares what runs with what is emulated.
    pub(super) fn reconcile(&mut self) -> anyhow::Result<()> {
        let wanted = self.wanted();
        for (id, member) in &mut self.members {
            let runs_on = wanted
                .iter()
                .any(|container| container.id == *id && container.pid() == Some(member.pid));
            if !runs_on && !matches!(member.state, State::Ends(_)) {
                log::info!("{} has stopped, and its emulation with it", member.name);
                member.stop();
            }
        }
        // Who has nothing to take down is done.
        self.members.retain(|id, member| {
            let runs_on = || {
                wanted
                    .iter()
                    .any(|container| container.id == *id && container.pid() == Some(member.pid))
            };
            !matches!(member.state, State::Waits(..)) || runs_on()
        });
        for container in wanted {
            let due = match self.members.get(&container.id).map(|member| &member.state) {
                None => true,
                Some(State::Waits(when, said)) if *when <= Instant::now() => {
                    let news = format!("{}: {said}", container.name);
                    if self.told.insert(news.clone()) {
                        log::warn!("{news}; it is tried again as long as the container runs");
                    }
                    true
                }
                Some(_) => false,
            };
            if due {
                self.start(&container)?;
            }
        }
        Ok(())
    }

    /// The containers that are to be emulated.
    fn wanted(&mut self) -> Vec<Container> {
        let mut wanted: Vec<Container> = Vec::new();
        for container in self.seen.iter().flat_map(|(_, containers)| containers) {
            let is_meant = self
                .choice
                .selectors
                .iter()
                .any(|selector| selector.matches(container));
            if !is_meant
                || container.pid().is_none_or(|pid| pid == 0)
                || self.cleared.contains(&container.name)
            {
                continue;
            }
            if container.network == Network::Host {
                if self.told.insert(format!("{} host", container.id)) {
                    log::info!(
                        "{} uses this machine's own network and is left alone; `perturb apply --iface` emulates that",
                        container.name
                    );
                }
                continue;
            }
            wanted.push(container.clone());
        }
        wanted
    }

    fn start(&mut self, container: &Container) -> anyhow::Result<()> {
        let pid = container.pid().unwrap_or_default();
        let mut member = self.members.remove(&container.id).unwrap_or(Member {
            name: container.name.clone(),
            pid,
            state: State::Waits(Instant::now(), String::new()),
            failures: 0,
        });
        let inside = interface_of(pid, &attached(container), self.choice.network.as_deref());
        let started = inside.and_then(|inside| {
            if let Some(other) = self.owner_of(inside.inode) {
                anyhow::bail!("it shares the network of {other}, which is emulated");
            }
            self.serial += 1;
            let process = Process::start(
                self.request,
                &self.contained(container),
                &inside,
                self.serial,
                self.tell.clone(),
            )?;
            let Inside {
                inode,
                interface,
                others,
                ..
            } = inside;
            Ok(State::Begins(
                process,
                Place {
                    inode,
                    interface,
                    others,
                },
            ))
        });
        match started {
            Ok(state) => member.state = state,
            Err(error) => {
                let said = message(&error);
                // Two containers with one network are no mistake.
                if !said.starts_with("it shares") {
                    self.must_begin(&member.name, &said, None)?;
                }
                member.fails(said);
            }
        }
        self.members.insert(container.id.clone(), member);
        Ok(())
    }

    /// The container whose emulation has this namespace.
    fn owner_of(&self, inode: u64) -> Option<&str> {
        let mut members = self.members.values();
        members
            .find(|member| member.place().is_some_and(|place| place.inode == inode))
            .map(|member| member.name.as_str())
    }

    fn contained(&self, container: &Container) -> Contained {
        let chosen_by = self
            .choice
            .selectors
            .iter()
            .filter(|selector| selector.matches(container));
        Contained {
            name: container.name.clone(),
            id: container.id.clone(),
            chosen_by: chosen_by.map(ToString::to_string).collect(),
        }
    }

    /// Until something is to be tried again.
    pub(super) fn wakes_in(&self) -> Option<Duration> {
        let times = self.members.values().filter_map(|member| match member.state {
            State::Waits(when, _) => Some(when.saturating_duration_since(Instant::now())),
            _ => None,
        });
        times.min()
    }

    /// Whether all that ran at the beginning is emulated, for the first time.
    pub(super) fn is_settled(&self) -> bool {
        let is_done = |member: &Member| !matches!(member.state, State::Begins(..) | State::Ends(_));
        !self.has_begun && self.seen.len() == self.engines && self.members.values().all(is_done)
    }

    /// Says so.
    pub(super) fn begin(&mut self) -> anyhow::Result<()> {
        self.has_begun = true;
        self.following.ready()?;
        let places: Vec<String> = self
            .members
            .values()
            .filter_map(|member| {
                let place = member.place()?;
                Some(format!(
                    "{}:{}{}",
                    member.name,
                    place.interface,
                    left_alone(&place.others)
                ))
            })
            .collect();
        let open: Vec<String> = self
            .choice
            .selectors
            .iter()
            .filter(|selector| selector.is_open())
            .map(ToString::to_string)
            .collect();
        if places.is_empty() {
            log::info!(
                "no container of {} runs yet; perturb waits for one",
                self.choice.name()
            );
        } else if !self.request.quiet {
            log::info!(
                "emulating on {}; Ctrl-C or `perturb clear` ends it",
                places.join(", ")
            );
        }
        if !self.request.quiet && (places.len() > 1 || !open.is_empty()) {
            log::info!("each container has servers of its own: none is shared between containers");
        }
        Ok(())
    }

    /// Whether nothing can come any more: all that was named was cleared.
    pub(super) fn is_over(&self) -> bool {
        self.has_begun
            && self.choice.selectors.iter().all(|selector| match selector {
                Selector::Name(name) => self.is_cleared(name),
                Selector::Label(..) | Selector::Compose(_) => false,
            })
    }

    fn is_cleared(&self, word: &str) -> bool {
        let named = Selector::Name(word.into());
        let mut all = self.seen.iter().flat_map(|(_, containers)| containers);
        self.cleared.contains(word)
            || all.any(|container| named.matches(container) && self.cleared.contains(&container.name))
    }

    /// Ends all emulations.
    pub(super) async fn end(&mut self, reports: &mut UnboundedReceiver<Heard>) {
        for member in self.members.values_mut() {
            member.stop();
        }
        self.members.retain(|_, member| member.process().is_some());
        let all = async {
            while !self.members.is_empty() {
                let Some(Heard { id, what, .. }) = reports.recv().await else {
                    return;
                };
                match what {
                    What::Up => {}
                    What::Said(line) => {
                        if let Some(member) = self.members.get(&id) {
                            say(&member.name, &line);
                        }
                    }
                    What::Ended(_, last) => {
                        if let (Some(member), Some(last)) = (self.members.remove(&id), last) {
                            say(&member.name, &last);
                        }
                    }
                }
            }
        };
        if timeout(PATIENCE, all).await.is_err() {
            log::warn!("some processes do not end; `perturb clear` removes what they leave");
        }
    }
}

fn left_alone(others: &[String]) -> String {
    if others.is_empty() {
        String::new()
    } else {
        format!(" (not on {}: --network chooses)", others.join(", "))
    }
}

/// Passes a message of a container's process on.
fn say(name: &str, line: &str) {
    let line = line.trim_start_matches("perturb: ");
    match line.strip_prefix("warning: ") {
        Some(line) => log::warn!("{name}: {line}"),
        None => log::info!("{name}: {line}"),
    }
}
