//! NPB-derived programs under Open MPI on private hosts, each of which has one processor of this machine, or a share of one.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use perturb_experiments::machine;
use perturb_stats::median;
use serde_json::Value;
use tempfile::TempDir;

use super::super::{
    figure::{Differs, Setting},
    npb,
    outcome::Outcome,
};
use super::shares::Shares;

/// The networks of section 3, a switch of 320 Mbit/s and a bus of 10 Mbit/s, ten times as fast; and the switch as it is there.
const NETWORKS: [(Network, &str); 3] = [
    (
        Network::Switch,
        "{ kind: star, link: { bandwidth: 3.2Gbit/s, latency: 5us } }",
    ),
    (
        Network::Ethernet,
        "{ kind: bus, link: { bandwidth: 100Mbit/s, latency: 5us } }",
    ),
    (
        Network::Printed,
        "{ kind: star, link: { bandwidth: 320Mbit/s, latency: 50us } }",
    ),
];

/// Hosts at least, where they can have shares of processors.
const LEAST: usize = 4;
/// Of all processors: the rest is the emulator's.
const SHARE: f64 = 0.8;

const OWN: Differs = Differs {
    what: "N processes on as many processors as this machine has",
    why: "each host has a processor of its own here; the paper has 16",
};
const SHARED: Differs = Differs {
    what: "four processes, and hosts with a share of a processor (a quota of 1 ms in each period, by cgroups)",
    why: "this machine has fewer than four processors; predictions take the share for the processors' speed",
};
const FEW: Differs = Differs {
    what: "N is 2: there is no N/(N/4), and half of the nodes are one host, whose messages do not cross the bus",
    why: "this machine has fewer than four processors, and no CPU quota could be set for a host: the command's warning says why",
};

/// A network between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// The paper's High Performance Switch.
    Switch,
    /// Its Ethernet.
    Ethernet,
    /// The switch at the paper's own rate.
    Printed,
}

impl Network {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Ethernet => "ethernet",
            Self::Printed => "switch-320",
        }
    }
}

/// A program of the paper's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// As the paper's tables have it.
    pub name: &'static str,
    /// NPB's class in the short form, and in the long one.
    classes: [&'static str; 2],
}

pub(super) const PROGRAMS: [Program; 4] = [
    Program {
        name: "ep",
        classes: ["S", "A"],
    },
    Program {
        name: "ft",
        classes: ["S", "A"],
    },
    Program {
        name: "is",
        classes: ["S", "A"],
    },
    Program {
        name: "mg",
        classes: ["S", "A"],
    },
];

/// Where the programs run.
pub(super) struct Lab<'s> {
    setting: &'s Setting,
    directory: PathBuf,
    /// Open MPI's own files, which it names by host and process: those of other private hosts may have the same.
    sessions: TempDir,
    /// N: as many processes as there are processors, a power of two, at most 8 (MG); at least 4, if hosts can have shares.
    pub processes: usize,
    /// Where there are fewer processors than processes.
    shares: Option<Shares>,
    /// Runs whose median is the time.
    runs: usize,
}

impl<'s> Lab<'s> {
    /// What differs by this machine is said in `outcome`.
    pub(super) fn new(setting: &'s Setting, outcome: &mut Outcome) -> anyhow::Result<Self> {
        let directory = &setting.directory;
        fs::create_dir_all(directory)?;
        let directory = fs::canonicalize(directory).with_context(|| directory.display().to_string())?;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            anyhow::Ok(path)
        };
        npb::build(&directory, &[("pingpong.c", include_str!("pingpong.c"))])?;
        write("yield.c", include_str!("yield.c"))?;
        npb::compile(&directory, "yield.c", &["-shared", "-fPIC"])?;
        for (network, topology) in NETWORKS {
            let name = network.name();
            let text = format!("version: 1\nname: {name}\ntopology: {topology}\n");
            write(&format!("{name}.yaml"), &text)?;
        }
        let own = env::current_exe().context("finding this executable")?;
        let script = |name: &str, text: &str| {
            let path = write(name, text)?;
            Ok::<_, anyhow::Error>(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
        };
        script(
            "agent",
            &format!("#!/bin/sh\nexec '{}' agent \"$@\"\n", own.display()),
        )?;
        let processors = machine::processors();
        let shares = if processors < LEAST {
            match Shares::new(LEAST, processors, SHARE * processors as f64 / LEAST as f64) {
                Ok(shares) => Some(shares),
                Err(error) => {
                    log::warn!("without CPU quotas: {error:#}");
                    None
                }
            }
        } else {
            None
        };
        outcome.differs.push(if shares.is_some() {
            SHARED
        } else if processors < LEAST {
            FEW
        } else {
            OWN
        });
        ensure!(
            shares.is_some() || processors >= 2,
            "one processor, and no CPU quotas; each host needs a processor of its own, and there are two at least"
        );
        let processes = if shares.is_some() {
            LEAST
        } else {
            1 << processors.min(8).ilog2()
        };
        // Host hN has processor N - 1.
        let enter = shares.as_ref().map(Shares::enter).unwrap_or_default();
        let yields = directory.join("yield");
        script(
            "pin",
            &format!(
                "#!/bin/sh\nhost=$(hostname)\n{enter}export LD_PRELOAD=\"$LD_PRELOAD {}\"\n\
                 exec taskset -c $(((${{host#h}} - 1) % {processors})) \"$@\"\n",
                yields.display()
            ),
        )?;
        let sessions = TempDir::with_prefix("perturb-mpi-").context("making a directory for Open MPI")?;
        Ok(Self {
            setting,
            directory,
            sessions,
            processes,
            shares,
            runs: if setting.quick { 1 } else { 5 },
        })
    }

    /// A host's speed, beside a processor's.
    pub(super) fn speed(&self) -> f64 {
        self.shares.as_ref().map_or(1.0, |shares| shares.share)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Runs a command of the directory with so many processes on so many hosts, traced if a file is given; what it printed.
    fn run(
        &self,
        outcome: &mut Outcome,
        (network, processes, hosts): (Network, usize, usize),
        command: &[&str],
        trace: Option<&Path>,
    ) -> anyhow::Result<String> {
        let places = (0..processes).map(|rank| format!("h{}\n", rank * hosts / processes + 1));
        fs::write(self.path("hosts"), places.collect::<String>())?;
        let own = env::current_exe().context("finding this executable")?;
        let path = |name: &str| self.path(name).to_string_lossy().into_owned();
        let mut words: Vec<String> = vec!["run".into(), path(&format!("{}.yaml", network.name()))];
        words.extend(["--hosts".into(), hosts.max(2).to_string(), "--".into()]);
        if let Some(file) = trace {
            words.push(own.to_string_lossy().into_owned());
            words.extend(["trace", "--layer", "mpi", "--out"].map(str::to_owned));
            words.extend([file.to_string_lossy().into_owned(), "--".into()]);
        }
        words.extend(
            [
                "mpirun",
                "--allow-run-as-root",
                "--oversubscribe",
                "--map-by",
                "seq",
            ]
            .map(str::to_owned),
        );
        words.extend([
            "--bind-to".into(),
            "none".into(),
            "-np".into(),
            processes.to_string(),
        ]);
        words.extend(["--hostfile".into(), path("hosts")]);
        for (key, value) in [
            ("pml", "ob1"),
            ("btl", "self,vader,tcp"),
            ("btl_tcp_if_include", "eth0"),
            ("oob_tcp_if_include", "eth0"),
            // Ranks may share a processor: one that waits yields.
            ("mpi_yield_when_idle", "1"),
            // As `perturb run --mpi` has it: a rank that waits looks for messages at once.
            ("mpi_event_tick_rate", "20"),
            ("plm_rsh_no_tree_spawn", "1"),
        ] {
            words.extend(["--mca", key, value].map(str::to_owned));
        }
        let sessions = self.sessions.path().to_string_lossy().into_owned();
        words.extend(["--mca".into(), "orte_tmpdir_base".into(), sessions]);
        words.extend(["--mca".into(), "plm_rsh_agent".into(), path("agent"), path("pin")]);
        words.push(path(command[0]));
        words.extend(command[1..].iter().map(|word| (*word).to_owned()));
        self.setting.perturb(outcome, &words)
    }

    fn class(&self, program: Program) -> &'static str {
        program.classes[usize::from(!self.setting.quick)]
    }

    /// The program's own time in seconds, the median of several runs.
    pub(super) fn measured(
        &self,
        outcome: &mut Outcome,
        program: Program,
        network: Network,
        hosts: usize,
    ) -> anyhow::Result<f64> {
        let times = (0..self.runs).map(|_| self.time(outcome, program, network, hosts, None));
        let times = times.collect::<anyhow::Result<Vec<f64>>>()?;
        median(&times).context("no run")
    }

    /// The same of one run, traced if a file is given.
    fn time(
        &self,
        outcome: &mut Outcome,
        program: Program,
        network: Network,
        hosts: usize,
        trace: Option<&Path>,
    ) -> anyhow::Result<f64> {
        let name = format!("npb-{}", program.name);
        let printed = self.run(
            outcome,
            (network, self.processes, hosts),
            &[&name, self.class(program)],
            trace,
        )?;
        let line = printed.lines().find(|line| line.starts_with('{'));
        let result: Value = serde_json::from_str(line.context("the program's result")?)?;
        ensure!(result["verified"] != false, "{name}: the result is wrong");
        result["run_time_s"].as_f64().context("run_time_s")
    }

    /// Traces so many runs: the last trace's file, and the median of their times.
    pub(super) fn traced(
        &self,
        outcome: &mut Outcome,
        program: Program,
        network: Network,
        hosts: usize,
        runs: usize,
    ) -> anyhow::Result<(PathBuf, f64)> {
        let file = self.path(&format!("{}-{}-{hosts}.jsonl", program.name, network.name()));
        let times = (0..runs).map(|_| self.time(outcome, program, network, hosts, Some(&file)));
        let times = times.collect::<anyhow::Result<Vec<f64>>>()?;
        Ok((file, median(&times).context("no run")?))
    }

    /// Runs that a time is the median of.
    pub(super) const fn runs(&self) -> usize {
        self.runs
    }

    /// The look-up table between two hosts over a network: half of the round-trip times, as in section 2.2.
    pub(super) fn table(&self, outcome: &mut Outcome, network: Network) -> anyhow::Result<String> {
        let printed = self.run(outcome, (network, 2, 2), &["pingpong"], None)?;
        let points = printed.lines().map(|line| {
            let (bytes, time) = line.split_once(' ').context("the ping-pong's output")?;
            Ok(format!("{{size: {bytes}B, time: {time}us}}"))
        });
        let points = points.collect::<anyhow::Result<Vec<String>>>()?;
        ensure!(!points.is_empty(), "the ping-pong printed nothing");
        Ok(points.join(", "))
    }

    /// The predicted time of a trace with a processor for each process, in seconds.
    pub(super) fn predicted(&self, outcome: &mut Outcome, trace: &Path, table: &str) -> anyhow::Result<f64> {
        let groups: Vec<String> = (0..self.processes).map(|rank| format!("[{rank}]")).collect();
        let scenario = format!(
            "groups: [{}]\nspeeds: {:?}\nnetwork:\n  local: [{table}]\n  remote: [{table}]\nevents: {}\n",
            groups.join(", "),
            vec![self.speed(); self.processes],
            trace.display()
        );
        let path = trace.with_extension("yaml");
        fs::write(&path, scenario).with_context(|| format!("writing {}", path.display()))?;
        let path = path.to_string_lossy().into_owned();
        let found = self
            .setting
            .json(outcome, &["predict", "whatif", "--json", &path])?;
        let time = found["program_time_us"].as_f64().context("program_time_us")?;
        Ok(time / 1e6)
    }
}
