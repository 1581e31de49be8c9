//! `perturb nfs curve`.

use std::{fs, net::Ipv4Addr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use perturb_experiments::nfs::{self, Levels, Network, Reference, Request};
use perturb_models::queueing::{NfsInput, NfsServer};
use perturb_present::LiveLine;
use perturb_quantity::{OperationsPerSecond, Size};
use perturb_workloads::nfs::{
    Stop,
    client::{Export, Transport},
    server::{Config, Distribution, Service},
};

use super::{
    interrupt::stop_on_signal,
    options::{LoadOptions, PortOptions, ServerOptions, TRANSPORTS},
};
use crate::{
    cli::{
        Contradiction, PacingArgs, in_sandbox,
        quantity::{mtu, rate},
        words::one_of,
    },
    predict::read,
};

/// Scale of the data set on the embedded server, which keeps it in memory.
const EMBEDDED_SCALE: f64 = 0.01;
/// Processor time of the embedded server if none is given: it saturates at 2000 op/s.
const EMBEDDED_CPU: Duration = Duration::from_micros(500);

/// Arguments of `perturb nfs curve`.
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("networks").args(["over", "vary"]),
    mut_arg("pacer", |pacer| pacer.requires("networks")),
    mut_arg("coarse", |coarse| coarse.requires("networks")),
    mut_arg("spin", |spin| spin.requires("networks")),
    mut_arg("nfs_port", |port| port.requires("server")),
    mut_arg("mount_port", |port| port.requires("server")),
)]
#[command(after_help = "\
Without --server an embedded server is measured, with --cpu-service 500us if no service time is given.
Results go to a directory: NAME.jsonl (levels as they come), curve.csv, curve.json, curve.svg, curve.html,
with --vary also effect.svg, and with --reference also reference.svg.

Examples:
  perturb nfs curve --cpu-service 500us --arrivals open --model
  perturb nfs curve --server filer:/export --rates 200,400,600,800,1000
  sudo perturb nfs curve --vary latency=0us,150us,500us,1ms,4ms --resume
  sudo perturb nfs curve --vary overhead=0,25us,50us,100us --cpu-service 500us --burn")]
pub(super) struct Curve {
    /// Server and exported path; without it, the embedded server.
    #[arg(long, value_name = "HOST:/EXPORT", conflicts_with = "ServerOptions")]
    server: Option<Export>,
    #[command(flatten)]
    ports: PortOptions,
    #[command(flatten)]
    embedded: ServerOptions,
    #[command(flatten)]
    load: LoadOptions,
    /// What carries the calls; with several each curve is measured with each.
    #[arg(
        long,
        value_parser = one_of(TRANSPORTS),
        value_delimiter = ',',
        default_value = "tcp",
        value_name = "NAME,…"
    )]
    transport: Vec<Transport>,
    /// Rates of the levels, op/s.
    #[arg(long, value_delimiter = ',', value_parser = rate, value_name = "OPS,…", conflicts_with_all = ["auto", "levels"])]
    rates: Vec<OperationsPerSecond>,
    /// Find saturation, then measure levels up to it (the default without --rates).
    #[arg(long)]
    auto: bool,
    /// Levels up to saturation.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000), value_name = "N")]
    levels: u32,
    /// Factor of the data set, 10 MB for each op/s [default: 1; 0.01 for the embedded server].
    #[arg(long, value_name = "FACTOR")]
    scale: Option<f64>,
    /// Measure on private hosts under each of these profiles, and overlay the curves.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PROFILE,…",
        conflicts_with = "vary"
    )]
    over: Vec<PathBuf>,
    /// Measure on private hosts with latency, overhead, gap or bandwidth at each of these levels.
    #[arg(long, value_name = "KNOB=LEVEL,…")]
    vary: Option<String>,
    /// With --vary: the largest packet of the private hosts [default: 1500B].
    #[arg(long, value_parser = mtu, value_name = "SIZE", requires = "vary")]
    mtu: Option<Size>,
    #[command(flatten)]
    pacing: PacingArgs,
    /// Emulate in a user-mode Linux kernel, which needs no root.
    #[arg(long, requires = "networks")]
    sandbox: bool,
    /// Directory of the results.
    #[arg(long, default_value = "nfs-curve", value_name = "DIRECTORY")]
    out: PathBuf,
    /// Go on with the results in the directory.
    #[arg(long)]
    resume: bool,
    /// Overlay the queueing model: of a file as for `predict nfs`, or of the embedded server.
    #[arg(long, num_args = 0..=1, value_name = "FILE", conflicts_with = "over")]
    model: Option<Option<PathBuf>>,
    /// Draw a published table beside it: A.1, A.5 or B.10 to B.14 of Martin 1999, or a CSV file with throughput_op_s,
    /// response_ms and one varied setting.
    #[arg(long, value_name = "TABLE|FILE")]
    reference: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No live line.
    #[arg(long, short)]
    quiet: bool,
}

/// Measures; the exit code.
pub(super) fn run(args: &Curve) -> anyhow::Result<u8> {
    let mut request = args.request()?;
    request.check()?;
    fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    if args.sandbox {
        return in_sandbox([&args.out], false);
    }
    perturb_emulator::own_namespace::ready(args.pacing.checked()?.choice)?;
    // Processes in other directories are told this path.
    request.out = args
        .out
        .canonicalize()
        .with_context(|| format!("finding {}", args.out.display()))?;
    let stop = Stop::default();
    stop_on_signal(stop.clone(), request.emulates())?;
    let curves = nfs::measure(&request, &stop, &LiveLine::stderr(args.quiet))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&curves.report())?);
    } else {
        print!("{}", curves.report());
        eprintln!("results in {}", request.out.display());
    }
    curves.end()
}

impl Curve {
    fn request(&self) -> anyhow::Result<Request> {
        let networks = match &self.vary {
            Some(text) => Network::vary(text, self.mtu)?,
            None if self.over.is_empty() => vec![Network::none()],
            None => {
                let networks = self.over.iter().map(|profile| Network::of(profile));
                networks.collect::<Result<_, _>>()?
            }
        };
        let embedded = match &self.server {
            None => Some(self.embedded_config()),
            Some(_) if self.vary.is_some() || !self.over.is_empty() => {
                return Err(Contradiction(
                    "--over and --vary measure the embedded server on private hosts; for a server elsewhere, emulate on \
                     the interface (`perturb apply`) and measure without them",
                )
                .into());
            }
            Some(_) => None,
        };
        let scale = match (self.scale, &embedded) {
            (Some(scale), _) => scale,
            (None, Some(_)) => EMBEDDED_SCALE,
            (None, None) => 1.0,
        };
        let own = || Export {
            host: String::new(),
            path: self.embedded.export.clone(),
        };
        let export = self.server.clone().unwrap_or_else(own);
        let mut transports: Vec<Transport> = Vec::new();
        for &transport in &self.transport {
            if !transports.contains(&transport) {
                transports.push(transport);
            }
        }
        let rate = OperationsPerSecond(1.0);
        let plan = self
            .load
            .plan(export, self.ports.ports(), &transports, rate, scale)?;
        Ok(Request {
            networks,
            model: self.model(embedded.as_ref(), scale)?,
            embedded,
            plan,
            transports,
            levels: if self.rates.is_empty() {
                Levels::Auto(self.levels)
            } else {
                Levels::Rates(self.rates.iter().map(|rate| rate.0).collect())
            },
            reference: self.reference.as_deref().map(Reference::read).transpose()?,
            pacing: self.pacing.checked()?,
            coarse: self.pacing.coarse,
            out: self.out.clone(),
            resume: self.resume,
        })
    }

    fn embedded_config(&self) -> Config {
        let mut config = self.embedded.config((Ipv4Addr::LOCALHOST, 0).into());
        if config.service.is_instant() {
            config.service.cpu = Some(Service {
                mean: EMBEDDED_CPU,
                distribution: Distribution::Exponential,
            });
        }
        config
    }

    fn model(&self, embedded: Option<&Config>, scale: f64) -> anyhow::Result<Option<NfsServer>> {
        match &self.model {
            None => Ok(None),
            Some(Some(path)) => Ok(Some(read::<NfsInput>(path)?.server)),
            Some(None) => match embedded.and_then(|config| nfs::embedded_model(config, scale)) {
                None => Err(Contradiction(
                    "--model without a file takes its service times from the embedded server: give --cpu-service, or a file",
                )
                .into()),
                model => Ok(model),
            },
        }
    }
}
