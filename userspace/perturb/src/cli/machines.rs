//! `--on`: the same on many machines, led from here.

mod lead;
mod merged;
pub(super) mod spread;

use std::{
    ffi::OsString, fs::File, io::Write as _, os::unix::process::CommandExt as _, path::Path, process,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use nix::unistd::getpid;
use perturb_emulator::{
    conduct::PacerChoice,
    lab::mpi::{self, Machine},
    runtime,
    signals::end_with,
};
use perturb_machines::{Client, On, Order, Way, agent};

use self::{
    lead::{Changes, Errand, Led},
    merged::Merged,
};
use super::{
    Apply, Clear, DONE, FAILED, PacingArgs, Status, emulate,
    run::Run,
    time::{self, within},
};
use crate::apply::daemon::times;

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
/// A connection is not dead because a processor was busy.
const LEAST_PATIENCE: Duration = Duration::from_secs(3);

/// What private hosts take, and machines' interfaces do not.
const NOT_OF_RUN: [&str; 5] = ["hosts", "marks", "metrics", "socket_group", "as_root"];

/// Where `apply` is done instead of here.
#[derive(Args, Debug)]
pub(super) struct Machines {
    /// On these machines instead, as long as this command lives: n[01-32,40],login by ssh; `slurm`: those of this Slurm job, by srun
    ///
    /// The profile travels with its files. perturb of the same version is there, and each machine has servers of its own. All begin once
    /// all are reached. One that fails or ends undoes all. If a connection or either end dies, that machine's emulation ends by itself,
    /// when nothing was heard for --lease (10s).
    #[arg(long, value_name = "HOSTS", conflicts_with_all = NOT_OF_MACHINES)]
    pub(super) on: Option<On>,
    #[command(flatten)]
    way: Reach,
    /// With --on: machines that fail are named, and the others go on. Without it one that fails undoes all.
    #[arg(long, requires = "on")]
    keep_going: bool,
    #[command(flatten)]
    together: Together,
}

/// Where `run` has its emulation, or hosts, beside this machine.
#[derive(Args, Debug)]
pub(super) struct RunMachines {
    /// With --hosts, private hosts on these machines, too; with --iface, on their interfaces instead: n[01-32] by ssh; `slurm`: those of
    /// this Slurm job
    ///
    /// Private hosts on several machines have one network, of the profile's `topology`, which this machine emulates: VXLAN tunnels (UDP
    /// port 14789) lead to the others. What a tunnel takes is measured, and comes off latencies. Packets that get lost between
    /// machines are told at the end. A machine that is lost ends the command.
    ///
    /// With --iface the emulation is there for the time of the command, which runs here. With --mpi it has ranks on each machine. What
    /// was counted there is merged; what is invalid on one machine is invalid.
    #[arg(long, value_name = "HOSTS", conflicts_with = "sandbox", requires = "where")]
    pub(super) on: Option<On>,
    /// With --on: the interface there; several share the profile's servers.
    #[arg(long = "iface", value_name = "IF", requires = "on", conflicts_with_all = NOT_OF_RUN, group = "where")]
    pub(super) interfaces: Vec<String>,
    #[command(flatten)]
    pub(super) way: Reach,
    #[command(flatten)]
    together: Together,
}

/// How far apart timelines may be.
#[derive(Args, Clone, Copy, Debug)]
struct Together {
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
    /// With --on: where there is no perturb, or another version, this one is copied, to ~/.cache/perturb.
    #[arg(long, requires = "on")]
    push: bool,
}

impl Reach {
    fn way(&self, on: &On) -> Way {
        Way {
            client: match on {
                On::Named(_) => Client::Ssh(self.ssh()),
                On::Job => Client::Srun,
            },
            perturb: self.perturb_path.clone(),
            push: self.push,
        }
    }

    fn ssh(&self) -> Vec<String> {
        self.ssh.split_whitespace().map(str::to_owned).collect()
    }
}

/// What `perturb apply` is told on each machine.
fn words(
    pacing: PacingArgs,
    interfaces: &[String],
    lease: Option<Duration>,
    duration: Option<Duration>,
) -> Vec<String> {
    let mut words = ["apply", "--led", "--quiet"].map(str::to_owned).to_vec();
    if let PacerChoice::Only(pacer) = pacing.pacer {
        words.extend(["--pacer".into(), pacer.name().into()]);
    }
    words.extend(times([
        ("--spin", pacing.spin),
        ("--lease", lease),
        ("--for", duration),
    ]));
    words.extend(pacing.coarse.then(|| "--coarse".to_owned()));
    words.extend(interfaces.iter().map(|name| format!("--iface={name}")));
    words
}

/// What `apply` alone has.
fn more_words(args: &Apply) -> Vec<String> {
    let flags = [("--follow", args.follow), ("--verbose", args.verbose)].into_iter();
    let flags = flags
        .filter(|(_, is_given)| *is_given)
        .map(|(option, _)| option.to_owned());
    let metrics = args.metrics.map(|address| format!("--metrics={address}"));
    flags.chain(metrics).collect()
}

/// What it is told to change a profile that it emulates.
fn change(interfaces: &[String]) -> Vec<String> {
    let interfaces = interfaces.iter().map(|name| format!("--iface={name}"));
    ["apply".to_owned(), "--quiet".into()]
        .into_iter()
        .chain(interfaces)
        .collect()
}

/// Emulates on all of them until a signal comes, or one of them ends.
pub(super) fn apply(on: &On, args: &Apply) -> anyhow::Result<u8> {
    args.pacing.checked()?;
    let mut words = words(args.pacing, &args.interfaces, args.lease, args.duration);
    words.extend(more_words(args));
    let machines = &args.machines;
    let errand = Errand {
        hosts: on.hosts()?,
        way: machines.way.way(on),
        change: change(&args.interfaces),
        keep_going: machines.keep_going,
        together: machines.together.together,
        quiet: args.quiet,
        command: None,
    };
    let patience = args.lease.unwrap_or(PATIENCE);
    let (order, changes) = order(&args.profile, words, patience, args.duration)?;
    let done = runtime()?.block_on(errand.lead(&order, changes))?;
    Ok(if done.failed.is_empty() { DONE } else { FAILED })
}

/// What they are told, and whether the profile changes.
fn order(
    profile: &Path,
    words: Vec<String>,
    patience: Duration,
    duration: Option<Duration>,
) -> anyhow::Result<(Order, Option<Changes>)> {
    // What the profile names, hosts and interfaces, is looked up on each machine.
    let loaded = perturb_profile::load(profile).map_err(perturb_emulator::prepared::ProfileError::from)?;
    emulate::warn(&loaded.profile, &loaded.files);
    let packed = loaded.packed()?;
    let changes = Changes::of(&loaded, duration);
    let order = Order {
        words,
        profile: Some(match changes {
            Some(_) => packed.starting(lead::NEVER),
            None => packed,
        }),
        patience: patience.max(LEAST_PATIENCE),
    };
    Ok((order, changes))
}

/// Emulates on all of them while a command runs here.
pub(super) fn run(on: &On, args: Run) -> anyhow::Result<u8> {
    args.pacing.checked()?;
    let machines = &args.machines;
    let hosts = on.hosts()?;
    let command = if let Some(ranks) = args.mpi {
        let names: Vec<&str> = hosts.names().collect();
        let ssh = match on {
            On::Named(_) => Some(machines.way.ssh.clone()),
            On::Job => None,
        };
        let at = |name: &str| Machine::new(name.rsplit_once('@').map_or(name, |(_, host)| host));
        let all: Vec<Machine> = names.into_iter().map(at).collect();
        mpi::on_machines(&all, ranks, &machines.interfaces, ssh.as_deref(), args.command)?
    } else {
        args.command
    };
    // Opened now: whoever cannot write it should not measure.
    let open = |path: &Path| {
        let file = File::create(path);
        file.with_context(|| format!("cannot write {} for --report", path.display()))
    };
    let out = args.report.as_deref().map(open).transpose()?;
    let errand = Errand {
        way: machines.way.way(on),
        change: change(&machines.interfaces),
        keep_going: false,
        together: machines.together.together,
        quiet: true,
        command: Some(here(&command)?),
        hosts,
    };
    let mut words = words(args.pacing, &machines.interfaces, None, None);
    words.extend(args.verbose.then(|| "--verbose".to_owned()));
    let (order, changes) = order(&args.profile, words, PATIENCE, None)?;
    let done = runtime()?.block_on(errand.lead(&order, changes))?;
    let merged = Merged::of(done.printed, &done.failed)?;
    merged.warn();
    if let Some(mut out) = out {
        serde_json::to_writer_pretty(&mut out, &merged).context("printing the report")?;
        writeln!(out).context("writing the report")?;
    }
    if !done.failed.is_empty() {
        bail!("failed on {}, so do not trust the result", done.failed.join(", "));
    }
    Ok(done.ended.map_or(FAILED, perturb_sandbox::exit_code))
}

/// A command on this machine, which ends with this process.
fn here(words: &[OsString]) -> anyhow::Result<process::Command> {
    let (program, arguments) = words.split_first().context("no command")?;
    let mut command = process::Command::new(program);
    command.args(arguments);
    let parent = getpid();
    // SAFETY: it is async-signal-safe.
    unsafe { command.pre_exec(move || end_with(parent)) };
    Ok(command)
}

/// What is applied on all of them.
pub(super) fn status(on: &On, args: &Status) -> anyhow::Result<u8> {
    let words = ["status", "--json"].map(str::to_owned).to_vec();
    let led = runtime()?.block_on(Led::each(&on.hosts()?, &args.way.way(on), words, PATIENCE));
    let merged = Merged::of(led.printed, &led.failed)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&merged)?);
    } else {
        print!("{merged}");
    }
    if led.failed.is_empty() {
        return Ok(DONE);
    }
    bail!("failed on {}", led.failed.join(", "))
}

/// Does it on all of them.
pub(super) fn clear(on: &On, args: &Clear) -> anyhow::Result<u8> {
    let mut words = vec!["clear".to_owned()];
    words.extend(args.interface.iter().map(|name| format!("--iface={name}")));
    words.extend(args.containers.iter().map(|one| format!("--container={one}")));
    words.extend(args.projects.iter().map(|one| format!("--compose={one}")));
    words.extend(args.all.then(|| "--all".to_owned()));
    let led = runtime()?.block_on(Led::each(&on.hosts()?, &args.way.way(on), words, PATIENCE));
    if led.failed.is_empty() {
        return Ok(DONE);
    }
    bail!("failed on {}", led.failed.join(", "))
}

/// On each machine: does what is asked on standard input.
pub(super) fn serve() -> anyhow::Result<u8> {
    let parent = getpid();
    runtime()?.block_on(agent::serve(|words| {
        let mut command = process::Command::new("/proc/self/exe");
        command.args(words).process_group(0);
        // SAFETY: it is async-signal-safe.
        unsafe { command.pre_exec(move || end_with(parent)) };
        command
    }))?;
    Ok(DONE)
}
