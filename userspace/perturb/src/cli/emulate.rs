//! Commands that emulate.

use std::time::Duration;

use anyhow::ensure;
use perturb_containers::Selector;
use perturb_emulator::{
    clear,
    conduct::{Pacer, PacerChoice, SpinBudget},
    confirm,
    prepared::Prepared,
    registry::{Record, terms::Due},
    runtime,
};
use perturb_profile::{Files, Profile, Tcp};

use super::{Apply, Clear, Confirm, Contradiction, DONE, asked, machines, ssh};
use crate::apply::{
    self, Outcome,
    containers::{self, Choice},
};

pub(super) fn apply(args: Apply) -> anyhow::Result<u8> {
    if let Some(hosts) = &args.machines.on {
        return machines::apply(hosts, &args);
    }
    if let (Some(duration), Some(confirm)) = (args.duration, args.confirm)
        && duration <= confirm
    {
        return Err(
            Contradiction("--confirm must be shorter than --for: the emulation ends then anyway").into(),
        );
    }
    if args.pacing.checked()?.choice == PacerChoice::Only(Pacer::Switch) {
        let why =
            "--pacer switch is for private hosts (`perturb run`): it joins them itself; leave it out here";
        return Err(Contradiction(why).into());
    }
    let prepared = Prepared::load(&args.profile)?.coarse_if(args.pacing.coarse);
    if args.restart_timeline && !prepared.starts_by_itself() {
        return Err(Contradiction(
            "--restart-timeline is for a profile that changes from `start: apply` or `start: first-packet` on; this one does not: \
             leave it out",
        )
        .into());
    }
    let choice = choice(&args);
    let place = choice
        .as_ref()
        .map_or_else(|| args.interfaces.join(", "), Choice::name);
    // Whoever stays behind, emulates a container, or is led was warned of by whoever started it.
    if !args.detached && args.contained.is_none() {
        if !args.led {
            warn(&prepared.profile, &prepared.files);
        }
        let interfaces = choice.is_none().then_some(&args.interfaces);
        if let Some(warning) = interfaces.and_then(|interfaces| ssh::warning(&prepared, interfaces)) {
            eprintln!("perturb: warning: {warning}");
        }
        for key in of_private_hosts(&prepared.profile) {
            eprintln!("perturb: `{key}` is for private hosts (`perturb run`); it changes nothing on {place}");
        }
    }
    if args.dry_run {
        let places = match &choice {
            Some(choice) => runtime()?.block_on(containers::rehearse(choice))?,
            None => args.interfaces.clone(),
        };
        print!("{}", prepared.profile);
        if places.is_empty() {
            eprintln!(
                "would be applied to whatever runs of {place}; nothing does now{}",
                terms(&args)
            );
        } else {
            eprintln!("would be applied to {}{}", places.join(", "), terms(&args));
        }
        return Ok(DONE);
    }
    let request = apply::Request {
        prepared,
        file: args.profile,
        interfaces: args.interfaces.clone(),
        containers: choice,
        contained: args.contained,
        led: args.led,
        pacer: args.pacing.pacer,
        spin: args.pacing.spin.map(SpinBudget),
        lease: args.lease,
        duration: args.duration,
        confirm: args.confirm,
        follow: args.follow,
        detach: args.detach,
        restart_timeline: args.restart_timeline,
        metrics: args.metrics,
        socket_group: args.socket_group.clone(),
        detached: args.detached,
        quiet: args.quiet,
        verbose: args.verbose,
    };
    let is_silent = request.contained.is_some() || request.led;
    match runtime()?.block_on(apply::apply(request))? {
        Outcome::Updated(record) => {
            eprintln!(
                "changed the profile on {place}; process {} keeps the emulation up",
                record.process.pid
            );
            ask_to_confirm(&record);
        }
        Outcome::Detached(record) => {
            eprintln!("emulating on {place} until `perturb clear`");
            ask_to_confirm(&record);
        }
        Outcome::Following => eprintln!("emulating on {place} until `perturb clear`"),
        // Whoever follows the container, or leads this machine, says so.
        Outcome::Ended(0) if is_silent => {}
        Outcome::Ended(0) => eprintln!("cleared {place}"),
        Outcome::Ended(lost) => {
            eprintln!("cleared {place}; {lost} packets that were still held are lost");
        }
    }
    Ok(DONE)
}

/// The containers that are meant, if any are.
fn choice(args: &Apply) -> Option<Choice> {
    let selectors = selectors(&args.containers, &args.projects);
    (!selectors.is_empty()).then(|| Choice {
        selectors,
        network: args.network.clone(),
    })
}

fn selectors(containers: &[Selector], projects: &[String]) -> Vec<Selector> {
    let projects = projects.iter().cloned().map(Selector::Compose);
    let mut selectors: Vec<Selector> = containers.iter().cloned().chain(projects).collect();
    selectors.sort_unstable();
    selectors.dedup();
    selectors
}

/// What the options say of an emulation, in words.
fn terms(args: &Apply) -> String {
    let time = |what: &str, time: Option<Duration>| time.map(|time| format!(", {what} {time:?}"));
    let word = |is_given: bool, what: &str| is_given.then(|| format!(", {what}"));
    let pacer = match args.pacing.pacer {
        PacerChoice::Auto => None,
        PacerChoice::Only(pacer) => Some(format!(", with the {} pacer", pacer.name())),
    };
    [
        time("for", args.duration),
        time("undone unless confirmed within", args.confirm),
        time("with a lease of", args.lease),
        pacer,
        time("polling for", args.pacing.spin),
        word(args.pacing.coarse, "coarse"),
        word(args.follow, "following the interface's name"),
        word(args.detach, "detached"),
        word(args.restart_timeline, "the timeline from its beginning"),
        args.metrics
            .map(|address| format!(", with metrics at http://{address}/metrics")),
        args.socket_group
            .as_ref()
            .map(|group| format!(", with a socket for group {group}")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The keys of a profile that say nothing about an interface.
fn of_private_hosts(profile: &Profile) -> impl Iterator<Item = &'static str> {
    let mtu = profile.mtu.map(|_| "mtu");
    let tcp = (profile.tcp != Tcp::default()).then_some("tcp");
    mtu.into_iter().chain(tcp)
}

pub(super) fn warn(profile: &Profile, files: &Files) {
    for warning in &perturb_profile::explain(profile, files).warnings {
        eprintln!("perturb: warning: {warning}");
    }
}

fn ask_to_confirm(record: &Record) {
    if let Some((left, Due::Confirm)) = record.terms.due() {
        eprintln!(
            "it is undone in {:.0} s unless you give `perturb confirm`",
            left.as_secs_f64()
        );
    }
}

pub(super) fn clear(args: Clear) -> anyhow::Result<u8> {
    if let Some(hosts) = &args.on {
        return machines::clear(hosts, &args);
    }
    let name = args.interface.clone();
    let selectors = selectors(&args.containers, &args.projects);
    let scope = match args.interface {
        Some(name) => clear::Scope::Interface(name),
        None if !selectors.is_empty() => {
            clear::Scope::Containers(selectors.iter().map(ToString::to_string).collect())
        }
        None if args.all => clear::Scope::All,
        None => clear::Scope::Applied,
    };
    let done = clear::clear(&scope);
    if let Some(clients) = asked::instead_of(&done) {
        return asked::clear(&clients, &scope);
    }
    let done = done?;
    perturb_serve::sweep();
    if done.cleared.is_empty() && done.unreadable.is_empty() && done.followers.is_empty() {
        eprintln!("nothing to clear");
    }
    for record in done.cleared {
        eprintln!("cleared {}", record.place());
    }
    for follower in done.followers {
        eprintln!("{} is followed no more", follower.follows.join(" and "));
    }
    for pid in done.elsewhere {
        eprintln!(
            "process {pid} emulates {name} in another network namespace: `nsenter -t {pid} -n perturb clear --iface {name}` \
             ends that",
            name = name.as_deref().unwrap_or_default()
        );
    }
    for record in done.spared {
        eprintln!(
            "left {} alone: private hosts of process {}; `perturb clear --all` ends them",
            record.place(),
            record.process.pid
        );
    }
    let rest: Vec<String> = done
        .unreadable
        .iter()
        .map(|record| record.error.to_string())
        .collect();
    ensure!(rest.is_empty(), "{}", rest.join("\n"));
    Ok(DONE)
}

pub(super) fn confirm(args: &Confirm) -> anyhow::Result<u8> {
    let interface = args.interface.as_deref();
    let confirmed = confirm::confirm(interface);
    if let Some(clients) = asked::instead_of(&confirmed) {
        return asked::confirm(&clients, interface);
    }
    let confirmed = confirmed?;
    if confirmed.is_empty() {
        eprintln!("nothing waits to be confirmed");
    }
    for record in confirmed {
        let names: Vec<&str> = record
            .interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
        eprintln!("confirmed what is applied to {}", names.join(", "));
    }
    Ok(DONE)
}
