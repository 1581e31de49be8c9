//! The command line. Only this module prints results and decides exit codes.

mod asked;
mod changes;
pub(crate) mod ci;
mod emulate;
pub(crate) mod exit;
mod files;
mod inside;
mod machines;
mod pacing;
pub(crate) mod quantity;
mod run;
mod sandbox;
mod ssh;
mod status;
pub(crate) mod time;
pub(crate) mod words;

pub(crate) use files::Lacking;
pub(crate) use pacing::PacingArgs;
pub(crate) use sandbox::{beside, in_sandbox};
pub(crate) use status::{Activity, moment, totals};

use std::{io::Write as _, net::SocketAddr, panic, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use perturb_containers::Selector;
use perturb_emulator::{causes, lab::MAX_HOSTS, registry::Contained};
use perturb_machines::On;

use self::{
    exit::{DONE, FAILED, exit_code},
    time::within,
};
use crate::{
    calibrate, capture, locality, measure, netem, nfs, pattern, predict, report, reproduce, rto,
    say::Unwritable, split_c, sweep, tcp, top, trace, voice,
};

/// Options that contradict each other, where clap's attributes cannot say so.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Contradiction(pub(crate) &'static str);

const EXAMPLES: &str = "\
Examples:
  perturb run configs/simple.yaml -- ping -c 3 h2    two private hosts, gone afterwards
  perturb run --mpi my.yaml --hosts 8 -- ./solver    an MPI program, one rank per private host
  perturb check my.yaml                              is it valid, and what does it mean?
  sudo perturb apply my.yaml --iface eth0            until Ctrl-C; eth0 is left as it was found
  sudo perturb apply my.yaml --iface eth0 --detach   until `perturb clear`
  perturb status --json                              counters per class and server, drops by reason
  perturb status --watch 500ms                       what each server carries now, its backlog, its drops
  perturb top                                        the same on a whole screen, and knobs to turn

Units:
  Numbers carry units: 20ms, 5.8us, 100Mbit/s, 38MB/s, 64KiB, 0.1%. Latency is one-way, always.

Exit codes:
  0 done   1 failed (the message says what, where and what to do)
  2 usage or invalid input   3 this kernel lacks something (the message says what)
  130 a signal has ended `rto`, `tcp`, `calibrate` or the start of `apply --detach` before its end
  `run` and `on` exit with the code of their command.";

/// Run unmodified programs on a network whose LogGP parameters are knobs.
///
/// Latency L, host overhead o, gap per message g, gap per byte G, shared media, finite buffers and loss, applied to
/// an interface by eBPF programs, or between private hosts made for the purpose.
#[derive(Debug, Parser)]
#[command(name = "perturb", version, after_help = EXAMPLES, after_long_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Validate a profile; print it normalized, and what it means
    Check(Check),
    /// Emulate on interfaces until cleared, or for a time
    Apply(Apply),
    /// Undo what `apply` did, also after a crash; private hosts of `run` stay
    Clear(Clear),
    /// Keep what `apply --confirm` would undo
    Confirm(Confirm),
    /// What is applied, with counters
    Status(Status),
    /// Watch an emulation of `apply` or `run`, and change it by keys
    Top(top::TopArgs),
    /// An emulation's packets as a pcapng file, with what befell each
    Capture(capture::CaptureArgs),
    /// Run a command on private hosts joined by a profile
    Run(run::Run),
    /// Run a command on another private host, inside `run` or from outside
    ///
    /// On a host of another machine it has the current directory, if there is one of that name, and reads standard input, as ssh does;
    /// by ssh it has variables of its own. sshd's `MaxStartups` bounds how many begin there at once. It ends with `perturb on`.
    On(inside::On),
    /// Does every knob do what it says? Desired against observed, on private hosts
    Calibrate(calibrate::Calibrate),
    /// LogGP and PlogP parameters of a real path, written as a profile
    Measure(Box<measure::Measure>),
    /// NFS: a SPECsfs-like load, a server in memory, the response-time curve
    Nfs(nfs::Nfs),
    /// TCP between private hosts, all to all, and its time-outs, beside what PlogPT predicts
    Rto(rto::RtoArgs),
    /// Bulk TCP between two private hosts: its throughput and queueing delay over time
    Tcp(tcp::TcpArgs),
    /// Turn the knobs of the network under programs, and record what they do
    Sweep(sweep::SweepArgs),
    /// What a sweep says: sensitivity, tolerance, models, curves
    Report(report::ReportArgs),
    /// Programs of known communication, for sweeps
    Pattern(pattern::PatternArgs),
    /// The programs of Martin's thesis, with answers that are checked: sorts, EM3D, Barnes, …
    SplitC(split_c::SplitCArgs),
    /// What would a program do on another network? The models of five papers
    Predict(predict::PredictArgs),
    /// The papers' figures and tables, one by one: their numbers beside ours
    Reproduce(reproduce::ReproduceArgs),
    /// Locality of a sequence of requests, and its working sets
    Locality(locality::LocalityArgs),
    /// Record what a program computes and sends, for `predict whatif`
    Trace(trace::TraceArgs),
    /// A profile of what another tool is told
    Import(netem::ImportArgs),
    /// What to tell another tool, to have what a profile says
    Export(netem::ExportArgs),
    /// Print the JSON Schema of profiles, for editors
    Schema,
    /// Print a shell's completions
    #[command(hide = true)]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory.
        directory: PathBuf,
    },
    /// The first process of a private host
    #[command(hide = true)]
    Stage(inside::Stage),
    /// Inside `run`: mpirun's way to another private host, called as `ssh` would be
    #[command(hide = true)]
    Agent(inside::Agent),
    /// What `run --on --hosts` calls on each machine
    #[command(hide = true)]
    Lodge(inside::Lodge),
    /// What `--on` calls on each machine
    #[command(hide = true)]
    Machine,
}

#[derive(Args, Debug)]
struct Check {
    /// The profile: a file, or the name of one that perturb brings along, such as mobile-lte.
    profile: PathBuf,
    /// Measure how many packets a second this machine carries as the core of `run --on --hosts COUNT`, beside what the profile lets so
    /// many hosts send; as root, for some seconds.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=i64::from(MAX_HOSTS)))]
    core: Option<u32>,
    /// Draw how it changes: bandwidth, latency, loss and buffers over time.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What an emulation of containers does not take: each ends and begins with its container.
const NOT_OF_CONTAINERS: [&str; 5] = ["interfaces", "follow", "confirm", "metrics", "restart_timeline"];

fn contained(text: &str) -> Result<Contained, serde_json::Error> {
    serde_json::from_str(text)
}

#[derive(Args, Debug)]
struct Apply {
    /// The profile: a file, or the name of one that perturb brings along, such as mobile-lte.
    profile: PathBuf,
    /// The interface; several share the profile's servers.
    #[arg(long = "iface", value_name = "IF", required_unless_present_any = ["containers", "projects"])]
    interfaces: Vec<String>,
    /// The container's interface instead, each time that it runs: NAME, label=KEY or label=KEY=VALUE, of Docker, Podman, or what
    /// crictl asks. Each container has servers of its own.
    #[arg(long = "container", value_name = "NAME", conflicts_with_all = NOT_OF_CONTAINERS)]
    containers: Vec<Selector>,
    /// The containers of a Compose project.
    #[arg(long = "compose", value_name = "PROJECT", conflicts_with_all = NOT_OF_CONTAINERS)]
    projects: Vec<String>,
    /// With --container and --compose: the interface in this network, not that of the default route.
    #[arg(long, value_name = "NETWORK", conflicts_with = "interfaces")]
    network: Option<String>,
    /// The container that has the interface.
    #[arg(long, hide = true, value_parser = contained)]
    contained: Option<Contained>,
    #[command(flatten)]
    machines: machines::Machines,
    /// `perturb machine` has started this process.
    #[arg(long, hide = true)]
    led: bool,
    #[command(flatten)]
    pacing: PacingArgs,
    /// End after this time, e.g. 30s.
    #[arg(long = "for", value_name = "TIME", value_parser = within(time::SPAN))]
    duration: Option<Duration>,
    /// If perturb dies or hangs, traffic passes untouched after this time; 10s if nothing is said.
    #[arg(long, value_name = "TIME", value_parser = within(time::LEASE))]
    lease: Option<Duration>,
    /// Undo it after this time unless Enter is pressed or `perturb confirm` is given; a changed profile then goes back to
    /// the one before.
    #[arg(long, value_name = "TIME", value_parser = within(time::SPAN))]
    confirm: Option<Duration>,
    /// If the interface goes, wait for one of its name, and go on there; otherwise that ends the emulation.
    #[arg(long)]
    follow: bool,
    /// Return at once; the emulation stays until `perturb clear`.
    #[arg(long)]
    detach: bool,
    /// The timeline of a profile that takes another's place begins anew; without this it goes on.
    #[arg(long)]
    restart_timeline: bool,
    /// This process is the one that stays.
    #[arg(long, hide = true, conflicts_with = "detach")]
    detached: bool,
    /// Answer http://ADDRESS/metrics with what is counted, for Prometheus, as long as the emulation lasts, e.g. 127.0.0.1:9464. Whoever
    /// reaches the address can read it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// This group's members, too, may ask and change the emulation over its socket, /run/perturb-group-GROUP/ID; otherwise only root may,
    /// over /run/perturb/ID/api.
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// No live line of counters.
    #[arg(long, short)]
    quiet: bool,
    /// Show the eBPF programs' own messages.
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Args, Debug)]
struct Clear {
    /// The emulation of this interface only.
    #[arg(long = "iface", value_name = "IF", conflicts_with = "all")]
    interface: Option<String>,
    /// Those of this container only, or what `apply` was given: label=KEY=VALUE; it is not followed any more.
    #[arg(long = "container", value_name = "NAME", conflicts_with_all = ["all", "interface"])]
    containers: Vec<Selector>,
    /// Those of this Compose project only.
    #[arg(long = "compose", value_name = "PROJECT", conflicts_with_all = ["all", "interface"])]
    projects: Vec<String>,
    /// What is given is done on these machines instead: n[01-32,40],login by ssh; `slurm`: those of this Slurm job.
    #[arg(long, value_name = "HOSTS")]
    on: Option<On>,
    #[command(flatten)]
    way: machines::Reach,
    /// Every emulation on this machine: the private hosts of every `run`, `sweep`, … end, too. Without an option, what
    /// `apply` did is undone, on all interfaces.
    #[arg(long)]
    all: bool,
}

#[derive(Args, Debug)]
struct Confirm {
    /// The emulation of this interface only.
    #[arg(long = "iface", value_name = "IF")]
    interface: Option<String>,
}

#[derive(Args, Debug)]
struct Status {
    /// Print a JSON array; with --watch, one line for each look.
    #[arg(long)]
    json: bool,
    /// The flows instead: all that were seen; with --watch those active since the last look, or with --json too every
    /// packet as one line, which `perturb locality` reads.
    #[arg(long)]
    flows: bool,
    /// Look again and again until Ctrl-C, e.g. every 500ms; without a time every second. Prints what each server did since
    /// the last look.
    #[arg(long, value_name = "TIME", value_parser = within(time::PERIOD), num_args = 0..=1)]
    watch: Option<Option<Duration>>,
    /// On these machines instead, and their sums: n[01-32,40],login by ssh; `slurm`: those of this Slurm job.
    #[arg(long, value_name = "HOSTS", conflicts_with_all = ["flows", "watch"])]
    on: Option<On>,
    #[command(flatten)]
    way: machines::Reach,
}

/// Runs the command line of this process.
#[must_use]
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    voice::listen();
    let done = match panic::catch_unwind(move || dispatch(cli.command)) {
        Ok(done) => done,
        Err(cause) => match cause.downcast::<Unwritable>() {
            Ok(unwritable) => Err(anyhow::Error::new(unwritable.0).context("writing standard output")),
            Err(cause) => panic::resume_unwind(cause),
        },
    };
    let code = match done {
        Ok(code) => ExitCode::from(code),
        // `| head` has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::from(FAILED),
        Err(error) => {
            eprintln!("perturb: {}", message(&error));
            if let Some(hint) = hint(&error) {
                eprintln!("  {hint}");
            }
            ExitCode::from(exit_code(&error))
        }
    };
    voice::settle();
    code
}

/// Whether standard output was closed by its reader.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let kind = cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind)
            .or_else(|| cause.downcast_ref::<serde_json::Error>()?.io_error_kind());
        kind == Some(std::io::ErrorKind::BrokenPipe)
    })
}

/// An error and its causes, those left out that the message before already quotes.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let mut message = causes.next().unwrap_or_default();
    for cause in causes {
        if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

fn dispatch(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Check(args) => files::check(&args),
        Command::Apply(args) => emulate::apply(args),
        Command::Clear(args) => emulate::clear(args),
        Command::Confirm(args) => emulate::confirm(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Run(args) => run::run(args),
        Command::On(args) => inside::on(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Measure(args) => measure::run(&args),
        Command::Nfs(args) => nfs::run(args),
        Command::Rto(args) => rto::run(&args),
        Command::Tcp(args) => tcp::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Report(args) => report::run(&args, &mut std::io::stdout().lock()),
        Command::Pattern(args) => pattern::run(&args),
        Command::SplitC(args) => split_c::run(&args),
        Command::Predict(args) => predict::run(&args, &mut std::io::stdout().lock()).map(|()| DONE),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Locality(args) => locality::run(&args, &mut std::io::stdout().lock()).map(|()| DONE),
        Command::Trace(args) => trace::run(&args, &mut std::io::stdout().lock()),
        Command::Import(args) => netem::run_import(&args),
        Command::Export(args) => netem::run_export(&args),
        Command::Schema => files::schema(),
        Command::Completions { shell } => {
            // It panics where it cannot write.
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "perturb", &mut text);
            std::io::stdout().write_all(&text)?;
            Ok(DONE)
        }
        Command::Man { directory } => {
            clap_mangen::generate_to(Cli::command(), directory)?;
            Ok(DONE)
        }
        Command::Stage(args) => inside::stage(args),
        Command::Agent(args) => inside::agent(&args),
        Command::Lodge(args) => inside::lodge(&args),
        Command::Machine => machines::serve(),
    }
}

/// What to do about an error, where its message does not say.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    if causes::lacks_fq(error) {
        return Some(
            "ways out: `--pacer user` works on any kernel; `modprobe sch_fq` if it is a module; \
             `perturb run --sandbox` brings a kernel that has it",
        );
    }
    if error.is::<reproduce::Denied>() {
        return Some("run it as root; `perturb reproduce models` draws those that need none");
    }
    if causes::lacks_hosts(error) {
        return None;
    }
    let denied = causes::is_denied(error);
    if denied && !nix::unistd::geteuid().is_root() {
        return Some("perturb needs root for this; `perturb run --pacer switch` does not");
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::EXAMPLES;

    #[test]
    fn profiles_of_the_examples_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let named = EXAMPLES
            .split_whitespace()
            .filter(|word| word.starts_with("configs/"));
        let missing: Vec<&str> = named.clone().filter(|name| !root.join(name).is_file()).collect();
        assert!(named.count() > 0 && missing.is_empty(), "{missing:?}");
    }
}
