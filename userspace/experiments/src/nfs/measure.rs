//! One curve: levels of load one after the other, each written as soon as it is measured.

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use perturb_emulator::status::{self, Bystander, Fault};
use perturb_present::{LiveLine, measured};
use perturb_profile::Knob;
use perturb_workloads::nfs::{
    Stop,
    client::{Export, Ports},
    curve::{self, CurveFile},
    load::{self, LoadError, Plan},
    record::{CutShort, Record},
    server::{Config, Server},
};
use serde::{Deserialize, Serialize, Serializer};

use super::{
    outcome::{is_whole, said},
    packets::Packets,
};

/// A search for saturation begins at this rate.
const FIRST_RATE: f64 = 200.0;
/// A search goes no further.
const LAST_RATE: f64 = 1e6;
/// The levels go this far beyond the saturation that a search has found.
const BEYOND: f64 = 1.05;
/// Warm-up and run of a step of a search.
const PROBE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// Port of a server on a private host.
const PRIVATE_PORT: u16 = 2049;

/// What to measure, and where to write it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Series {
    /// Name of the curve and of its file.
    pub(super) name: String,
    /// What is added to the network.
    #[serde(serialize_with = "added", skip_deserializing)]
    pub(super) network: Added,
    /// The network's profile, as it is written.
    pub(super) profile: Option<String>,
    /// The load; rate and server are set for each level.
    pub(super) plan: Plan,
    /// Which rates.
    pub(super) levels: Levels,
    /// Which server.
    pub(super) server: Where,
    /// Directory of the results.
    pub(super) out: PathBuf,
    /// Whether to go on with what is there.
    pub(super) resume: bool,
    /// What private hosts share, once there are any.
    pub(super) processors: Vec<usize>,
}

/// The knob that the emulated network turns, for the model and for fits over several curves; `None` if it turns none, or
/// more than one number can say.
pub(super) type Added = Option<(Knob, f64)>;

/// [`Added`] in results: `"nothing"`, or a key with its unit, for the bandwidth bit/s.
pub(super) fn added<S: Serializer>(added: &Added, serializer: S) -> Result<S::Ok, S::Error> {
    match added {
        None => serializer.serialize_str("nothing"),
        Some((Knob::Bandwidth, value)) => {
            serializer.collect_map([("bandwidth_bit_s", (8e6 / value).round())])
        }
        Some((knob, value)) => serializer.collect_map([(format!("{knob}_us"), value)]),
    }
}

/// The rates of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Levels {
    /// These.
    Rates(Vec<f64>),
    /// So many up to saturation, which is searched for.
    Auto(u32),
}

/// The server of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Where {
    /// The one of the plan.
    Elsewhere,
    /// Ours, in this process.
    Here(Config),
    /// Ours, on another private host.
    OnHost(Config),
}

/// A server of ours, until dropped.
enum Running {
    Elsewhere,
    Here {
        _server: Server,
        _runtime: tokio::runtime::Runtime,
    },
    OnHost(Child),
}

impl Series {
    /// Where its levels are written.
    pub(super) fn file(&self) -> PathBuf {
        self.out.join(format!("{}.jsonl", self.name))
    }

    /// Where it is written what the emulation did meanwhile that no profile asks for.
    fn faults_file(&self) -> PathBuf {
        self.out.join(format!("{}.faults.json", self.name))
    }

    /// What speaks against the levels that were measured so far; `None` if nobody could tell.
    pub(super) fn faults(&self) -> anyhow::Result<Option<Vec<Fault>>> {
        let path = self.faults_file();
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("reading {}", path.display()))?,
        };
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// What speaks against the levels that are there before anything is measured.
    fn earlier(&self) -> anyhow::Result<Option<Vec<Fault>>> {
        if !self.resume {
            return Ok(Some(Vec::new()));
        }
        let found = self.faults()?;
        if found.is_none() && CurveFile::open(&self.file(), true)?.levels().is_empty() {
            return Ok(Some(Vec::new()));
        }
        Ok(found)
    }

    /// Writes down what speaks against all levels.
    fn note(&self, all: Option<&[Fault]>) -> anyhow::Result<()> {
        let path = self.faults_file();
        fs::write(&path, serde_json::to_string(&all)?).with_context(|| format!("writing {}", path.display()))
    }

    /// What all levels share: a level that was measured with other settings belongs to another curve.
    fn settings(&self) -> anyhow::Result<serde_json::Value> {
        let mut load = serde_json::to_value(&self.plan).context("writing the load's settings")?;
        if let Some(load) = load.as_object_mut() {
            // The first differs between levels, the others change nothing that is measured.
            for free in ["rate", "histogram", "directory", "reuse"] {
                load.remove(free);
            }
        }
        Ok(serde_json::json!({ "load": load, "server": self.server, "profile": self.profile }))
    }
}

/// Measures the levels that the file lacks, and notes what speaks against them. `host` is the file with these settings,
/// for a server on another private host. Whether nothing was wrong.
pub(super) fn measure(
    series: &Series,
    host: Option<&Path>,
    stop: &Stop,
    line: &LiveLine,
) -> anyhow::Result<bool> {
    let earlier = series.earlier()?;
    let bystander = Bystander::begin()?;
    let (checked, looked) = bystander.check(measure_levels(series, host, stop, line));
    // Also of those before an error.
    series.note(together(earlier, checked.faults).as_deref())?;
    let is_whole = checked.result?;
    looked.map(|()| is_whole)
}

/// What speaks against the levels of two measurements. That nothing does is known only if it is of both.
fn together(earlier: Option<Vec<Fault>>, found: Option<Vec<Fault>>) -> Option<Vec<Fault>> {
    let known = earlier.is_some() && found.is_some();
    let mut all = earlier.unwrap_or_default();
    status::merge(&mut all, found.unwrap_or_default());
    (known || !all.is_empty()).then_some(all)
}

fn measure_levels(
    series: &Series,
    host: Option<&Path>,
    stop: &Stop,
    line: &LiveLine,
) -> anyhow::Result<bool> {
    let mut file = CurveFile::open(&series.file(), series.resume)?;
    file.settle(&series.settings()?)?;
    let mut plan = series.plan.clone();
    let _running = start(series, &mut plan, host)?;
    let rates = match &series.levels {
        Levels::Rates(rates) => rates.clone(),
        Levels::Auto(count) => {
            let saturation = match file.saturation() {
                Some(known) => known,
                None => {
                    let Some(found) = search(&plan, series, stop, line)? else {
                        return Ok(false);
                    };
                    file.set_saturation(found)?;
                    found
                }
            };
            curve::steps(BEYOND * saturation, *count)
        }
    };
    let missing: Vec<f64> = rates.iter().copied().filter(|rate| !file.has(*rate)).collect();
    let (mut all_whole, begun) = (true, Instant::now());
    for (done, rate) in missing.iter().enumerate() {
        let left = match done {
            0 => (plan.warmup + plan.duration) * missing.len() as u32,
            _ => begun.elapsed() / done as u32 * (missing.len() - done) as u32,
        };
        let prefix = format!(
            "{} level {}/{}: {} op/s, {} min left  ",
            series.name,
            done + 1,
            missing.len(),
            measured(*rate),
            measured(left.as_secs_f64() / 60.0)
        );
        let plan = Plan {
            rate: *rate,
            histogram: true,
            ..plan.clone()
        };
        let Some((level, is_whole)) = measure_level(&plan, stop, line, &prefix)? else {
            return Ok(false);
        };
        all_whole &= is_whole;
        line.say(format_args!("{}: {}", series.name, brief(&level)));
        file.push(level)?;
    }
    Ok(all_whole)
}

fn brief(level: &Record) -> String {
    format!(
        "asked {} op/s, delivered {}, mean {} ms, 99 % below {} ms, {} errors",
        measured(level.requested_op_s),
        measured(level.delivered_op_s),
        measured(level.mean_ms),
        measured(level.p99_ms),
        level.errors
    )
}

/// A level, and whether nothing was wrong with it; `None` if the user stopped it.
fn measure_level(
    plan: &Plan,
    stop: &Stop,
    line: &LiveLine,
    prefix: &str,
) -> anyhow::Result<Option<(Record, bool)>> {
    let packets = Packets::default();
    let outcome = load::run(plan, stop, &|progress| {
        packets.look(progress);
        line.show(format_args!("{prefix}{}", said(progress)));
    });
    line.clear();
    let mut outcome = match outcome {
        Err(LoadError::Stopped) => return Ok(None),
        Err(_) if stop.is_set() => return Ok(None),
        other => other?,
    };
    outcome.record.packets_per_op = packets.per_call();
    let is_whole = is_whole(&outcome);
    match outcome.record.cut_short {
        None => Ok(Some((outcome.record, is_whole))),
        Some(CutShort::Stopped) => Ok(None),
        Some(CutShort::ServerGone) => bail!("the server stopped answering; what was measured before is kept"),
    }
}

/// Doubles the rate until it is not delivered any more; `None` if the user stopped it.
fn search(plan: &Plan, series: &Series, stop: &Stop, line: &LiveLine) -> anyhow::Result<Option<f64>> {
    let mut rate = FIRST_RATE;
    loop {
        let probe = Plan {
            rate,
            warmup: PROBE.0.min(plan.warmup),
            duration: PROBE.1.min(plan.duration),
            ..plan.clone()
        };
        let prefix = format!(
            "{}: looking for saturation at {} op/s  ",
            series.name,
            measured(rate)
        );
        let Some((level, _)) = measure_level(&probe, stop, line, &prefix)? else {
            return Ok(None);
        };
        line.say(format_args!(
            "{}: looking for saturation: {}",
            series.name,
            brief(&level)
        ));
        if curve::is_saturated(&level) {
            return Ok(Some(level.delivered_op_s));
        }
        rate *= 2.0;
        if rate > LAST_RATE {
            bail!("no saturation up to {LAST_RATE} op/s; give the rates with --rates, or service times");
        }
    }
}

fn start(series: &Series, plan: &mut Plan, host: Option<&Path>) -> anyhow::Result<Running> {
    match &series.server {
        Where::Elsewhere => Ok(Running::Elsewhere),
        Where::Here(config) => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .context("starting the runtime of the server")?;
            let server = runtime.block_on(Server::start(config))?;
            aim(plan, server.address(), config);
            Ok(Running::Here {
                _server: server,
                _runtime: runtime,
            })
        }
        Where::OnHost(config) => {
            let settings = host.context("a server on another host needs a file of settings")?;
            let program = std::env::current_exe().context("finding this executable")?;
            let mut child = Command::new(&program)
                .args(["on", "h2", "--"])
                .arg(&program)
                .args(["nfs", "part", "server"])
                .arg(settings)
                .stdout(Stdio::piped())
                .spawn()
                .context("starting the server on host h2")?;
            let stdout = child.stdout.take().context("the server's output")?;
            let running = Running::OnHost(child);
            let mut line = String::new();
            BufReader::new(stdout)
                .read_line(&mut line)
                .context("waiting for the server on host h2")?;
            if line.is_empty() {
                bail!("the server on host h2 did not start; its message is above");
            }
            aim(plan, config.listen, config);
            Ok(running)
        }
    }
}

/// Points the load at a server of ours.
fn aim(plan: &mut Plan, address: SocketAddr, config: &Config) {
    plan.export = Export {
        host: address.ip().to_string(),
        path: config.export.clone(),
    };
    plan.ports = Ports {
        nfs: Some(address.port()),
        mount: None,
    };
}

/// Where the server listens on the second private host.
pub(super) fn private_address() -> SocketAddr {
    let (address, _) = perturb_emulator::lab::addresses(2);
    SocketAddr::new(IpAddr::V4(address), PRIVATE_PORT)
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::OnHost(child) = self {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::together;
    use perturb_emulator::status::{Fault, Place};

    #[test]
    fn nothing_speaks_against_levels_only_if_that_is_known_of_all() {
        let clean = Some(Vec::new());
        let faulty = Some(vec![Fault {
            place: Place::Pacer,
            packets: 3,
        }]);
        assert_eq!(together(clean.clone(), clean.clone()), clean);
        for other in [clean.clone(), None] {
            assert_eq!(together(None, other.clone()), None);
            assert_eq!(together(other.clone(), None), None);
            assert_eq!(together(faulty.clone(), other.clone()), faulty);
            assert_eq!(together(other, faulty.clone()), faulty);
        }
    }
}
