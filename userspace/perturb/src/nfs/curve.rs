//! `perturb nfs curve`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::Duration,
};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use perturb_emulator::{lab, prepared::Prepared};
use perturb_models::queueing::NfsInput;
use perturb_profile::{Knob, Name};
use perturb_quantity::OperationsPerSecond;
use perturb_workloads::nfs::{
    Stop,
    client::Export,
    curve::CurveFile,
    server::{Config, Distribution, Service},
};

use super::{
    DONE, FAILED, InvalidInput, emulated,
    interrupt::{EMULATING, stop_on_signal},
    measure::{self, Added, Levels, Series, Where},
    options::{LoadOptions, PortOptions, ServerOptions, read_yaml},
    overlay, reference,
    report::{Measured, Report},
};
use crate::cli::{PacingArgs, in_sandbox, quantity::rate};

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
    /// Draw a published table beside it: A.1, A.5, B.10, B.12 or B.14 of Martin 1999, or a CSV file with throughput_op_s,
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

/// A network to measure on.
struct Network {
    name: String,
    added: Added,
    /// The profile; without one, no emulation.
    profile: Option<Profile>,
}

enum Profile {
    File(PathBuf),
    Made(Box<perturb_profile::Profile>),
}

pub(super) fn run(args: &Curve) -> anyhow::Result<u8> {
    let networks = args.networks()?;
    args.load.check()?;
    let embedded = args.embedded_config();
    let scale = args.scale.unwrap_or(if args.server.is_some() {
        1.0
    } else {
        EMBEDDED_SCALE
    });
    let model = args.model(&embedded, scale)?;
    let reference = args.reference.as_deref().map(reference::read).transpose()?;
    fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    if args.sandbox {
        return in_sandbox([&args.out], false);
    }
    // Processes in other directories are told this path.
    let out = args
        .out
        .canonicalize()
        .with_context(|| format!("finding {}", args.out.display()))?;
    if let Some(reference) = &reference {
        let svg = reference.chart().to_svg().context("drawing the reference")?;
        fs::write(out.join("reference.svg"), svg).context("writing reference.svg")?;
    }
    let stop = Stop::default();
    stop_on_signal(stop.clone())?;
    let (mut code, mut failed) = (DONE, Ok(()));
    let mut measured = Vec::new();
    for network in networks {
        let series = args.series(&network, &embedded, scale, &out)?;
        let done = match &network.profile {
            None => measure::measure(&series, None, &stop),
            Some(profile) => profile
                .prepare(&out, &network.name)
                .map(|prepared| prepared.coarse_if(args.pacing.coarse))
                .and_then(|prepared| {
                    EMULATING.store(true, Ordering::Relaxed);
                    let done = emulated::measure_under(&series, prepared, args.pacing.into());
                    EMULATING.store(false, Ordering::Relaxed);
                    done
                }),
        };
        // What was measured is told all the same.
        match done {
            Ok(done) => code = code.max(done),
            Err(error) => failed = Err(error),
        }
        if failed.is_err() && !series.file().exists() {
            break;
        }
        let file = CurveFile::open(&series.file(), true)?;
        if !file.levels().is_empty() {
            measured.push(Measured::new(
                network.name,
                network.added,
                file.levels().to_vec(),
                model.as_ref(),
                series.faults()?,
            ));
        }
        // Written anew after each curve, so an interrupted measurement has a report too.
        Report::new(&measured, reference.as_ref()).write(&out, model.as_ref())?;
        if stop.is_set() || code != DONE || failed.is_err() {
            break;
        }
    }
    let report = Report::new(&measured, reference.as_ref());
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
        eprintln!("results in {}", out.display());
    }
    if measured.iter().any(Measured::is_faulty) {
        code = code.max(FAILED);
    }
    failed.map(|()| code)
}

impl Curve {
    fn networks(&self) -> Result<Vec<Network>, InvalidInput> {
        let networks = match &self.vary {
            Some(text) => vary(text)?,
            None if self.over.is_empty() => {
                vec![Network {
                    name: "curve".into(),
                    added: None,
                    profile: None,
                }]
            }
            None => self
                .over
                .iter()
                .map(|path| over(path))
                .collect::<Result<_, _>>()?,
        };
        if self.server.is_some() && networks.iter().any(|network| network.profile.is_some()) {
            return Err(InvalidInput::ServerElsewhere);
        }
        if let (Some(_), Some((knob @ (Knob::Gap | Knob::Bandwidth), _))) =
            (&self.model, networks.first().and_then(|network| network.added))
        {
            return Err(InvalidInput::NotModeled(knob));
        }
        let mut names = BTreeSet::new();
        match networks
            .iter()
            .find(|network| !names.insert(network.name.clone()))
        {
            Some(twice) => Err(InvalidInput::SameName(twice.name.clone())),
            None => Ok(networks),
        }
    }

    fn embedded_config(&self) -> Config {
        let mut config = self.embedded.config(measure::loopback());
        if config.service.is_instant() {
            config.service.cpu = Some(Service {
                mean: EMBEDDED_CPU,
                distribution: Distribution::Exponential,
            });
        }
        config
    }

    fn series(
        &self,
        network: &Network,
        embedded: &Config,
        scale: f64,
        out: &Path,
    ) -> Result<Series, InvalidInput> {
        let server = match (&self.server, &network.profile) {
            (Some(_), _) => Where::Elsewhere,
            (None, None) => Where::Here(embedded.clone()),
            (None, Some(_)) => Where::OnHost(Config {
                listen: measure::private_address(),
                ..embedded.clone()
            }),
        };
        let here = || Export {
            host: String::new(),
            path: embedded.export.clone(),
        };
        let export = self.server.clone().unwrap_or_else(here);
        let profile = match &network.profile {
            None => None,
            Some(Profile::Made(profile)) => Some(profile.to_string()),
            Some(Profile::File(path)) => {
                let unreadable = |reason| InvalidInput::Unreadable {
                    path: path.clone(),
                    reason,
                };
                Some(fs::read_to_string(path).map_err(unreadable)?)
            }
        };
        Ok(Series {
            name: network.name.clone(),
            network: network.added,
            profile,
            plan: self
                .load
                .plan(export, self.ports.ports(), OperationsPerSecond(1.0), scale)?,
            levels: if self.rates.is_empty() {
                Levels::Auto(self.levels)
            } else {
                Levels::Rates(self.rates.iter().map(|rate| rate.0).collect())
            },
            server,
            out: out.to_owned(),
            resume: self.resume,
            quiet: self.quiet,
        })
    }

    fn model(
        &self,
        embedded: &Config,
        scale: f64,
    ) -> Result<Option<perturb_models::queueing::NfsServer>, InvalidInput> {
        match &self.model {
            None => Ok(None),
            Some(Some(path)) => Ok(Some(read_yaml::<NfsInput>(path)?.server)),
            Some(None) if self.server.is_none() => overlay::of_embedded(embedded, scale)
                .map(Some)
                .ok_or(InvalidInput::NoModel),
            Some(None) => Err(InvalidInput::NoModel),
        }
    }
}

impl Profile {
    /// Ready to be put in force; one that was made is written beside the results.
    fn prepare(&self, out: &Path, name: &str) -> anyhow::Result<Prepared> {
        let hosts = lab::all_addresses(emulated::HOSTS);
        match self {
            Self::File(path) => Ok(Prepared::load_for(path, &hosts)?),
            Self::Made(profile) => {
                let path = out.join(format!("{name}.yaml"));
                fs::write(&path, profile.to_string())
                    .with_context(|| format!("writing {}", path.display()))?;
                Ok(Prepared::of((**profile).clone(), &hosts)?)
            }
        }
    }
}

fn over(path: &Path) -> Result<Network, InvalidInput> {
    let unreadable = |reason| InvalidInput::Unreadable {
        path: path.to_owned(),
        reason,
    };
    fs::metadata(path).map_err(unreadable)?;
    let name = path
        .file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    Ok(Network {
        name,
        added: None,
        profile: Some(Profile::File(path.to_owned())),
    })
}

/// One network for each level of a knob.
fn vary(text: &str) -> Result<Vec<Network>, InvalidInput> {
    let invalid = |reason| InvalidInput::Vary {
        text: text.to_owned(),
        reason,
    };
    let (knob, levels) = text
        .split_once('=')
        .ok_or_else(|| invalid("there is no `=`".into()))?;
    levels
        .split(',')
        .map(|level| network(knob.trim(), level.trim()).map_err(invalid))
        .collect()
}

fn network(knob: &str, level: &str) -> Result<Network, Box<dyn std::error::Error + Send + Sync>> {
    let knob: Knob = knob.parse()?;
    let level = if level == "0" && knob != Knob::Bandwidth {
        "0us"
    } else {
        level
    };
    let value = knob.parse(level)?;
    let name = format!("{knob}-{}", level.replace('/', ""));
    let plain = perturb_profile::Profile {
        name: Name::new(&name),
        seed: 1,
        ..perturb_profile::Profile::default()
    };
    Ok(Network {
        name,
        added: Some((knob, value)),
        profile: Some(Profile::Made(Box::new(plain.with(knob, value)?))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_become_profiles() {
        let networks = vary("latency=0,150us,4ms").unwrap();
        let names: Vec<&str> = networks.iter().map(|network| network.name.as_str()).collect();
        assert_eq!(names, ["latency-0us", "latency-150us", "latency-4ms"]);
        assert_eq!(networks[2].added, Some((Knob::Latency, 4000.0)));
        for text in [
            "latency=0,150us",
            "overhead=10us,80us",
            "gap=5us",
            "bandwidth=10Mbit/s",
        ] {
            for network in vary(text).unwrap() {
                let Some(Profile::Made(profile)) = network.profile else {
                    panic!("no profile")
                };
                assert_eq!(
                    perturb_profile::parse(&profile.to_string()),
                    Ok(*profile),
                    "{text}"
                );
            }
        }
        for (wrong, reason) in [
            ("latency", "there is no `=`"),
            ("speed=1us", "`speed` is not a knob"),
            ("latency=5", "unit"),
            ("latency=", ""),
            ("latency=200s", "out of range"),
            ("bandwidth=0", ""),
        ] {
            let refused = vary(wrong).err().unwrap().to_string();
            assert!(refused.contains(reason), "{wrong}: {refused}");
        }
    }
}
