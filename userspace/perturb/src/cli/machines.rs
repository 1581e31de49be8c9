//! `--on`: the same on many machines, led from here.

use std::{collections::BTreeMap, os::unix::process::CommandExt as _, time::Duration};

use anyhow::{anyhow, bail};
use clap::Args;
use nix::unistd::getpid;
use perturb_emulator::{
    conduct::PacerChoice,
    runtime,
    signals::{Signals, end_with},
};
use perturb_machines::{Compared, Crew, Heard, Hosts, Order, Stage, Way, What, agent};

use perturb_profile::{Loaded, Start};
use tokio::time::sleep;

use super::{
    Apply, Clear, DONE, FAILED, emulate,
    time::{self, within},
};
use crate::{apply::daemon::times, voice};

/// What emulations on other machines do not take: they last as long as this command.
const NOT_OF_MACHINES: [&str; 10] = [
    "containers",
    "projects",
    "network",
    "confirm",
    "detach",
    "detached",
    "restart_timeline",
    "socket_group",
    "dry_run",
    "contained",
];
/// Without a sign of a machine, or of this one there, the emulation ends after this time unless --lease says another.
const PATIENCE: Duration = Duration::from_secs(10);
/// From when all machines emulate until timelines begin: they are told when, by a change of the profile.
const LEAD: Duration = Duration::from_secs(5);
/// Until then they wait for this, 2500-01-01, in ns since 1970.
const NEVER: u64 = 16_725_225_600_000_000_000;
/// A connection is not dead because a processor was busy.
const LEAST_PATIENCE: Duration = Duration::from_secs(3);

/// Where `apply` is done instead of here.
#[derive(Args, Debug)]
pub(super) struct Machines {
    /// On these machines instead, by ssh, as long as this command lives: n[01-32,40],login
    ///
    /// The profile travels with its files. perturb of the same version is there, and each machine has servers of its own. All begin once
    /// all are reached. One that fails or ends undoes all. If a connection or either end dies, that machine's emulation ends by itself,
    /// when nothing was heard for --lease (10s).
    #[arg(long, value_name = "HOSTS", conflicts_with_all = NOT_OF_MACHINES)]
    pub(super) on: Option<Hosts>,
    #[command(flatten)]
    way: Reach,
    /// With --on: machines that fail are named, and the others go on. Without it one that fails undoes all.
    #[arg(long, requires = "on")]
    keep_going: bool,
    /// With --on: timelines begin together within this time, and stay together, or not at all. Clocks are compared by round trips; one
    /// that nobody keeps is taken to drift by 100 ppm.
    #[arg(long, value_name = "TIME", default_value = "10ms", requires = "on", value_parser = within(time::APART))]
    together: Duration,
}

/// How they are reached.
#[derive(Args, Debug)]
pub(super) struct Reach {
    /// With --on: ssh with options of its own, e.g. 'ssh -F config'.
    #[arg(long, value_name = "CMD", default_value = "ssh", requires = "on")]
    ssh: String,
    /// With --on: what perturb is called there, e.g. 'sudo -n perturb'; the same version.
    #[arg(long, value_name = "CMD", default_value = "perturb", requires = "on")]
    perturb_path: String,
}

impl Reach {
    fn way(&self) -> Way {
        Way {
            ssh: self.ssh.split_whitespace().map(str::to_owned).collect(),
            perturb: self.perturb_path.clone(),
        }
    }
}

/// What `perturb apply` is told on each machine.
fn words(args: &Apply) -> Vec<String> {
    let mut words = ["apply", "--led", "--quiet"].map(str::to_owned).to_vec();
    if let PacerChoice::Only(pacer) = args.pacing.pacer {
        words.extend(["--pacer".into(), pacer.name().into()]);
    }
    words.extend(times([
        ("--spin", args.pacing.spin),
        ("--lease", args.lease),
        ("--for", args.duration),
    ]));
    for (option, is_given) in [
        ("--coarse", args.pacing.coarse),
        ("--follow", args.follow),
        ("--verbose", args.verbose),
    ] {
        words.extend(is_given.then(|| option.to_owned()));
    }
    let metrics = args.metrics.map(|address| format!("--metrics={address}"));
    words.extend(metrics);
    let interfaces = args.interfaces.iter();
    words.extend(interfaces.map(|name| format!("--iface={name}")));
    words
}

/// What it is told to change a profile that it emulates.
fn change(args: &Apply) -> Vec<String> {
    let interfaces = args.interfaces.iter().map(|name| format!("--iface={name}"));
    ["apply".to_owned(), "--quiet".into()]
        .into_iter()
        .chain(interfaces)
        .collect()
}

/// Emulates on all of them until a signal comes, or one of them ends.
pub(super) fn apply(hosts: &Hosts, args: &Apply) -> anyhow::Result<u8> {
    args.pacing.checked()?;
    // What the profile names, hosts and interfaces, is looked up on each machine.
    let loaded =
        perturb_profile::load(&args.profile).map_err(perturb_emulator::prepared::ProfileError::from)?;
    emulate::warn(&loaded.profile, &loaded.files);
    let packed = loaded.packed()?;
    let changes = Changes::of(&loaded, args.duration);
    let order = Order {
        words: words(args),
        profile: Some(match changes {
            Some(_) => packed.starting(NEVER),
            None => packed,
        }),
        patience: args.lease.unwrap_or(PATIENCE).max(LEAST_PATIENCE),
    };
    runtime()?.block_on(lead(hosts, args, &order, changes))
}

/// A profile that changes from when it is put in force.
#[derive(Clone, Copy)]
struct Changes {
    /// For how long; `None` is for ever.
    length: Option<Duration>,
}

impl Changes {
    fn of(loaded: &Loaded, duration: Option<Duration>) -> Option<Self> {
        let profile = &loaded.profile;
        let changes = perturb_profile::explain(profile, &loaded.files).changes;
        if profile.timeline.start != Start::Apply || changes.is_empty() && profile.timeline.steps.is_empty() {
            return None;
        }
        let repeats = profile.timeline.repeat.is_some() || changes.iter().any(|change| change.repeats);
        let lengths = changes.iter().map(|change| Duration::from(change.length));
        let steps = profile.timeline.steps.iter().map(|step| step.at.into());
        let own = lengths.chain(steps).max().filter(|_| !repeats);
        Some(Self {
            length: own.into_iter().chain(duration).min(),
        })
    }

    /// How far apart they are at most on machines with these clocks.
    fn apart(self, clocks: &BTreeMap<String, Compared>, together: Duration) -> anyhow::Result<Duration> {
        let mut most = Duration::ZERO;
        for (host, clock) in clocks {
            let Ok(apart) = clock.apart(self.length) else {
                bail!(
                    "{host}: nobody keeps its clock, as chrony does, so what repeats for ever drifts apart; end it with --for"
                );
            };
            if apart > together {
                bail!(
                    "{host}: its clock is known to {:?}, and its timelines would be {apart:?} from the others', more than --together {together:?}{}",
                    clock.error,
                    if clock.is_kept {
                        ""
                    } else {
                        ": nobody keeps it, as chrony does"
                    }
                );
            }
            most = most.max(apart);
        }
        Ok(most)
    }
}

async fn lead(hosts: &Hosts, args: &Apply, order: &Order, changes: Option<Changes>) -> anyhow::Result<u8> {
    let mut signals = Signals::listen()?;
    voice::begin();
    let mut led = Led {
        crew: Crew::call(hosts, &args.machines.way.way(), order),
        failed: Vec::new(),
        clocks: BTreeMap::new(),
    };
    let keep_going = args.machines.keep_going;
    let (mut begun, mut apart, mut start, mut refused) = (false, Duration::ZERO, 0, None);
    for stage in [Stage::Reached, Stage::Up, Stage::Timed, Stage::Gone] {
        if stage == Stage::Timed && changes.is_none() {
            continue;
        }
        tokio::select! {
            () = led.until(stage, keep_going) => {}
            _ = signals.next() => break,
        }
        if !keep_going && !led.failed.is_empty() {
            break;
        }
        match (stage, changes) {
            (Stage::Reached, _) => {
                let within = changes.map(|changes| changes.apart(&led.clocks, args.machines.together));
                match within.transpose() {
                    Ok(within) => apart = within.unwrap_or_default(),
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
                led.crew.begin();
            }
            (Stage::Up, Some(_)) => {
                start = perturb_clock::wall() + LEAD.as_nanos() as u64;
                let order = Order {
                    words: change(args),
                    ..order.clone()
                };
                led.crew.time(order, start);
            }
            (Stage::Up | Stage::Timed, _) => {
                begun = true;
                let left = start.saturating_sub(perturb_clock::wall());
                if changes.is_some() && left == 0 {
                    refused = Some(anyhow!(
                        "timelines would not begin together: to tell all machines when took longer than {} s",
                        LEAD.as_secs()
                    ));
                    break;
                }
                if !led
                    .stay(Duration::from_nanos(left), &mut signals, keep_going)
                    .await
                {
                    break;
                }
                let names: Vec<&str> = led.crew.at(stage).collect();
                if !names.is_empty() && !args.quiet {
                    if changes.is_some() {
                        log::info!("timelines have begun together, within {apart:?}");
                    }
                    log::info!("emulating on {}; Ctrl-C ends it", names.join(", "));
                }
            }
            _ => {}
        }
    }
    led.crew.end();
    led.until(Stage::Gone, true).await;
    let ended = if begun {
        "the emulation has ended on all machines"
    } else {
        "nothing is applied on any machine"
    };
    if let Some(error) = refused {
        bail!("{error}; {ended}");
    }
    if led.failed.is_empty() {
        log::info!("cleared on all {} machines", hosts.names().count());
        return Ok(DONE);
    }
    let names = led.failed.join(", ");
    if keep_going {
        log::warn!("failed on {names}");
        return Ok(FAILED);
    }
    bail!("failed on {names}: {ended}")
}

/// A crew, and those of it that have failed.
struct Led {
    crew: Crew,
    failed: Vec<String>,
    clocks: BTreeMap<String, Compared>,
}

impl Led {
    /// Hears them for so long; whether all is as it was.
    async fn stay(&mut self, time: Duration, signals: &mut Signals, keep_going: bool) -> bool {
        tokio::select! {
            () = self.until(Stage::Gone, keep_going) => {}
            _ = signals.next() => return false,
            () = sleep(time) => {}
        }
        keep_going || self.crew.at(Stage::Gone).next().is_none()
    }

    /// Hears them until all are as far, or, unless it is to go on then, one has failed or ended. It says what they say.
    async fn until(&mut self, stage: Stage, keep_going: bool) {
        while !self.crew.are(stage) {
            let Some(Heard { host, what }) = self.crew.next().await else {
                return;
            };
            match what {
                What::Reached(clock) => drop(self.clocks.insert(host, clock)),
                What::Up | What::Timed => {}
                What::Said(line) => {
                    let line = line.trim_start_matches("perturb: ");
                    match line.strip_prefix("warning: ") {
                        Some(line) => log::warn!("{host}: {line}"),
                        None => log::info!("{host}: {line}"),
                    }
                }
                What::Gone(done) => {
                    if let Err(failure) = done {
                        log::error!("{host}: {failure}");
                        self.failed.push(host);
                    }
                    if !keep_going {
                        return;
                    }
                }
            }
        }
    }
}

/// Does it on all of them.
pub(super) fn clear(hosts: &Hosts, args: &Clear) -> anyhow::Result<u8> {
    let mut words = vec!["clear".to_owned()];
    words.extend(args.interface.iter().map(|name| format!("--iface={name}")));
    words.extend(args.containers.iter().map(|one| format!("--container={one}")));
    words.extend(args.projects.iter().map(|one| format!("--compose={one}")));
    words.extend(args.all.then(|| "--all".to_owned()));
    let order = Order {
        words,
        profile: None,
        patience: PATIENCE,
    };
    let failed = runtime()?.block_on(async {
        let mut led = Led {
            crew: Crew::call(hosts, &args.way.way(), &order),
            failed: Vec::new(),
            clocks: BTreeMap::new(),
        };
        led.crew.begin();
        led.until(Stage::Gone, true).await;
        led.failed
    });
    if failed.is_empty() {
        return Ok(DONE);
    }
    bail!("failed on {}", failed.join(", "))
}

/// On each machine: does what is asked on standard input.
pub(super) fn serve() -> anyhow::Result<u8> {
    let parent = getpid();
    runtime()?.block_on(agent::serve(|words| {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.args(words).process_group(0);
        // SAFETY: it is async-signal-safe.
        unsafe { command.pre_exec(move || end_with(parent)) };
        command
    }))?;
    Ok(DONE)
}
