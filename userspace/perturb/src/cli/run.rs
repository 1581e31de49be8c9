//! `perturb run`.

use std::{
    ffi::OsString,
    fs::File,
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use perturb_emulator::{
    lab::{self, Lab, away::AwayError},
    own_namespace,
    prepared::{Prepared, ProfileError},
    privileges::Owner,
    registry::Record,
    runtime,
    status::Report,
};
use perturb_profile::{Marks, Whose};
use perturb_serve::{Controls, Listeners};

use super::{
    Contradiction, FAILED, PacingArgs,
    machines::{
        self,
        spread::{Counts, Spread},
    },
    sandbox::in_sandbox,
};
use crate::{marks, voice};

/// Unless it is said how many.
const DEFAULT_HOSTS: u32 = 2;

#[derive(Args, Debug)]
pub(super) struct Run {
    /// The profile: a file, or the name of one that perturb brings along, such as mobile-lte.
    pub(super) profile: PathBuf,
    /// How many hosts: h1, h2, …; the command runs on h1; 2 if nothing is said. With --on they are shared out evenly, or, as 2,3,3, so
    /// many are here and on each of those machines. For a number there, `machine` makes that machine itself a host, container=web+db
    /// running containers.
    #[arg(long, value_name = "COUNT", group = "where", conflicts_with = "together")]
    pub(super) hosts: Option<Counts>,
    #[command(flatten)]
    pub(super) machines: machines::RunMachines,
    #[command(flatten)]
    pub(super) pacing: PacingArgs,
    /// In a user-mode Linux kernel of its own, which has sch_fq and needs no root.
    #[arg(long)]
    pub(super) sandbox: bool,
    /// Run the command as an MPI program, one rank per host, or so many in all (Open MPI's mpirun, told about the hosts).
    #[arg(long, value_name = "RANKS", num_args = 0..=1, require_equals = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) mpi: Option<Option<u32>>,
    /// Say on standard error when steps of the timeline take effect; of each second ten at most.
    #[arg(long)]
    pub(super) marks: bool,
    /// Answer http://ADDRESS/metrics with what is counted, for Prometheus, while the command runs, e.g. 127.0.0.1:9464. Whoever
    /// reaches the address can read it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) metrics: Option<SocketAddr>,
    /// This group's members, too, may ask and change the emulation over its socket, /run/perturb-group-GROUP/ID; otherwise only root may,
    /// over /run/perturb/ID/api.
    #[arg(long, value_name = "GROUP")]
    pub(super) socket_group: Option<String>,
    /// When the command has ended, write there what was counted, as `status --json` has it, with `faults`: why not to trust the result.
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Show the eBPF programs' own messages.
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Run the command as root, even if sudo started this one. Without it the command belongs to the user who called sudo.
    /// Neither way is it shut in: private hosts are no security boundary.
    #[arg(long)]
    pub(super) as_root: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(super) command: Vec<OsString>,
}

/// Runs the subcommand; its exit code.
pub(super) fn run(args: Run) -> anyhow::Result<u8> {
    if let Some(on) = args.machines.on.clone().filter(|_| args.hosts.is_none()) {
        return machines::run(&on, args);
    }
    let pacing = args.pacing.checked()?;
    // Errors in the profile need no kernel.
    let mut loaded = perturb_profile::load_for(&args.profile, Whose::Everyone).map_err(ProfileError::from)?;
    let owner = if args.as_root { None } else { Owner::of_sudo()? };
    let (hosts, spread) = match (&args.hosts, &args.machines.on) {
        (Some(_), Some(_)) if owner.is_some() => {
            return Err(Contradiction(
                "hosts on other machines are root's: give --as-root to have root's command",
            )
            .into());
        }
        (Some(_), Some(_)) if !own_namespace::may_load_programs() => return Err(AwayError::Switch.into()),
        (Some(counts), Some(on)) => {
            let spread = Spread::plan(on, &args.machines.way, counts, &mut loaded)?;
            (counts.total(), Some(spread))
        }
        (counts, _) => (
            counts
                .as_ref()
                .map_or(Ok(DEFAULT_HOSTS), Counts::of_one_machine)?,
            None,
        ),
    };
    let addresses = lab::all_addresses(hosts);
    let prepared = Prepared::between(loaded.profile, loaded.files, &addresses)?.coarse_if(args.pacing.coarse);
    if args.marks && Marks::of(&prepared.profile).is_none() {
        let why = "--marks is for a profile whose `timeline` has steps; this one has none: leave it out";
        return Err(Contradiction(why).into());
    }
    if args.sandbox && (args.metrics.is_some() || args.socket_group.is_some() || args.report.is_some()) {
        let why = "nobody reaches --metrics, --socket-group and --report inside the sandbox's kernel: leave them or --sandbox out";
        return Err(Contradiction(why).into());
    }
    if args.sandbox {
        return in_sandbox(None::<&Path>, args.verbose);
    }
    own_namespace::ready(pacing.choice)?;
    let files = prepared.files.clone();
    let has_guests = args.hosts.as_ref().is_some_and(Counts::has_guests);
    let command = if let Some(ranks) = args.mpi {
        lab::mpi::command(hosts, ranks, has_guests, args.command)?
    } else {
        args.command
    };
    let mut listeners = Some(Listeners::open(args.metrics, args.socket_group.as_deref())?);
    let mut server = None;
    let mut begun = |record: &Record, handle, lab: &Lab| {
        let controls = Controls {
            handle,
            files: files.clone(),
            hosts: Some(addresses.clone()),
            trips: lab.trips(),
            coarse: args.pacing.coarse,
            events: voice::events(),
        };
        let serve = |listeners: Listeners| listeners.serve(record, controls);
        server = listeners.take().map(serve).transpose()?;
        Ok(())
    };
    // Opened now: later this process may not write everywhere.
    let open = |path: PathBuf| {
        let file = File::create(&path);
        let file = file.with_context(|| format!("cannot write {} for --report", path.display()))?;
        anyhow::Ok((file, path))
    };
    let mut out = args.report.map(open).transpose()?;
    let mut ended = |report: &Report| match &mut out {
        Some((file, path)) => {
            let text = serde_json::to_vec_pretty(report).context("printing the report")?;
            let written = file.write_all(&text);
            written.with_context(|| format!("writing {} for --report", path.display()))
        }
        None => Ok(()),
    };
    let mut witness = marks::witness(args.marks.then(|| prepared.profile.clone()));
    let request = lab::run::Request {
        prepared,
        hosts,
        pacing,
        verbose: args.verbose,
        owner,
        is_last: true,
        begun: &mut begun,
        witness: &mut witness,
        ended: &mut ended,
        command,
    };
    voice::begin();
    let ended = match &spread {
        Some(spread) => spread.lead(request)?,
        None => runtime()?.block_on(lab::run::run(request))?,
    };
    Ok(ended.map_or(FAILED, perturb_sandbox::exit_code))
}
