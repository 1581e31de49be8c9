//! One table: what the what-if model predicts for a real MPI program placed otherwise, or on another network, beside
//! what it takes when it really runs there.
//!
//! The program (`tests/mpi/kernel.c`: compute/communicate rounds of known balance, and all-to-all) is traced once
//! per workload, with four ranks on two private hosts that have a processor each. Look-up tables of the networks
//! come from ping-pongs of the same MPI over them, as in the paper (Eom and Hollingsworth 2000, section 3.2). The
//! measured time is the median of several runs without tracing.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use perturb_tests::product::Product;
use tempfile::TempDir;

/// Predictions for an MPI program against measurements
#[derive(Parser)]
struct Cli {
    /// Runs per measured time
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Rounds of computing and communicating per run
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Only the cases whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
}

/// A network between the two hosts.
struct Network {
    name: &'static str,
    profile: &'static str,
    /// Messages of all pass a server of this bandwidth (payload, bit/s); the table is that of another network.
    bus: Option<(f64, &'static str)>,
}

/// A bus carries 1448 bytes of payload in 1514 on the wire.
const PAYLOAD: f64 = 1448.0 / 1514.0;

const NETWORKS: [Network; 6] = [
    Network {
        name: "0.1 ms",
        profile: "latency: 100us",
        bus: None,
    },
    Network {
        name: "1 ms",
        profile: "latency: 1ms",
        bus: None,
    },
    Network {
        name: "5 ms",
        profile: "latency: 5ms",
        bus: None,
    },
    Network {
        name: "20 Mbit/s",
        profile: "latency: 100us\nbandwidth: 20Mbit/s\nbuffer: 1MiB",
        bus: None,
    },
    Network {
        name: "20 Mbit/s, Reno",
        profile: "latency: 100us\nbandwidth: 20Mbit/s\nbuffer: 1MiB\ntcp: { congestion_control: reno }",
        bus: None,
    },
    Network {
        name: "bus of 50 Mbit/s",
        profile: "servers: { bus: { bandwidth: 50Mbit/s, latency: 100us } }\n\
                  classes: [ { name: all, match: {}, egress: [bus], ingress: [bus] } ]",
        bus: Some((50e6 * PAYLOAD, "0.1 ms")),
    },
];

/// Which ranks stand on h1; the others on h2.
type Placement = [&'static [u32]; 2];

const BLOCKS: Placement = [&[0, 1], &[2, 3]];
const ROUND_ROBIN: Placement = [&[0, 2], &[1, 3]];
const ENDS: Placement = [&[0, 3], &[1, 2]];
const ONE_APART: Placement = [&[3], &[0, 1, 2]];
/// Two ranks, a processor each: what the model says of the network, without what it says of a shared processor.
const APART: Placement = [&[0], &[1]];

/// What the program does.
struct Workload {
    name: &'static str,
    pattern: &'static str,
    bytes: u32,
    /// Computing per round and rank, in µs.
    compute: &'static [u32],
    /// Where the ranks stand when the program is traced.
    traced: Placement,
}

const IMBALANCED: Workload = Workload {
    name: "ring, imbalanced",
    pattern: "ring",
    bytes: 4096,
    compute: &[1000, 2000, 3000, 4000],
    traced: BLOCKS,
};
const PAIRS: Workload = Workload {
    name: "pairs, balanced",
    pattern: "pairs",
    bytes: 16_384,
    compute: &[3000, 3000, 3000, 3000],
    traced: BLOCKS,
};
const ALL_TO_ALL: Workload = Workload {
    name: "all-to-all",
    pattern: "alltoall",
    bytes: 8192,
    compute: &[2000, 2000, 2000, 2000],
    traced: BLOCKS,
};
const SUM: Workload = Workload {
    name: "sum for everyone",
    pattern: "reduce",
    bytes: 1024,
    compute: &[2000, 2500, 2000, 2500],
    traced: BLOCKS,
};
const RING_APART: Workload = Workload {
    name: "ring, two ranks",
    pattern: "ring",
    bytes: 4096,
    compute: &[2000, 4000],
    traced: APART,
};
const PAIRS_APART: Workload = Workload {
    name: "pairs, two ranks",
    pattern: "pairs",
    bytes: 16_384,
    compute: &[6000, 6000],
    traced: APART,
};

/// A prediction to be checked; the trace is made at 0.1 ms.
struct Case {
    workload: &'static Workload,
    placement: Placement,
    network: &'static str,
    what: &'static str,
}

const fn case(
    workload: &'static Workload,
    placement: Placement,
    network: &'static str,
    what: &'static str,
) -> Case {
    Case {
        workload,
        placement,
        network,
        what,
    }
}

const TRACED: &str = "0.1 ms";

const CASES: [Case; 20] = [
    case(&IMBALANCED, BLOCKS, TRACED, "as traced"),
    case(&IMBALANCED, ROUND_ROBIN, TRACED, "placement"),
    case(&IMBALANCED, ENDS, TRACED, "placement"),
    case(&IMBALANCED, ONE_APART, TRACED, "placement"),
    case(&IMBALANCED, BLOCKS, "5 ms", "latency"),
    case(&IMBALANCED, BLOCKS, "20 Mbit/s", "bandwidth"),
    case(&PAIRS, BLOCKS, "1 ms", "latency"),
    case(&PAIRS, BLOCKS, "20 Mbit/s", "bandwidth"),
    case(&PAIRS, BLOCKS, "20 Mbit/s, Reno", "bandwidth"),
    case(&ALL_TO_ALL, BLOCKS, "5 ms", "latency"),
    case(&ALL_TO_ALL, ROUND_ROBIN, "1 ms", "both"),
    case(&ALL_TO_ALL, BLOCKS, "bus of 50 Mbit/s", "bus"),
    case(&SUM, BLOCKS, "1 ms", "latency"),
    case(&IMBALANCED, ENDS, "5 ms", "both"),
    case(&RING_APART, APART, TRACED, "as traced"),
    case(&RING_APART, APART, "1 ms", "latency"),
    case(&RING_APART, APART, "5 ms", "latency"),
    case(&PAIRS_APART, APART, "5 ms", "latency"),
    case(&PAIRS_APART, APART, "20 Mbit/s", "bandwidth"),
    case(&PAIRS_APART, APART, "20 Mbit/s, Reno", "bandwidth"),
];

/// How long is looked whether others use the processors, and the share of one from which measurements suffer.
const PROBE: Duration = Duration::from_millis(500);
const BUSY: f64 = 0.05;

/// Message sizes of the tables.
const SIZES: [&str; 6] = ["0", "1024", "4096", "8192", "16384", "32768"];

/// The experiment's files and programs.
struct Bench {
    product: Product,
    folder: TempDir,
    kernel: PathBuf,
    rate: String,
    rounds: u32,
}

impl Bench {
    fn new(rounds: u32) -> Result<Self> {
        let product = Product::find_or_beside()?;
        let folder = TempDir::with_prefix("perturb-whatif-")?;
        let kernel = folder.path().join("kernel");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi/kernel.c");
        let status = Command::new("mpicc")
            .arg("-O2")
            .arg("-o")
            .args([&kernel, &source])
            .status()
            .context("mpicc; `cargo xtask setup --with mpi` installs Open MPI")?;
        ensure!(status.success(), "mpicc failed");
        let agent = format!("#!/bin/sh\nexec '{}' agent \"$@\"\n", product.path.display());
        write_script(&folder.path().join("agent"), &agent)?;
        // Host hN has processor N - 1.
        write_script(
            &folder.path().join("pin"),
            "#!/bin/sh\nhost=$(hostname)\nexec taskset -c $((${host#h} - 1)) \"$@\"\n",
        )?;
        let output = Command::new("taskset")
            .args(["-c", "0"])
            .arg(&kernel)
            .arg("calibrate")
            .output()?;
        let rate = String::from_utf8(output.stdout)?.trim().to_owned();
        ensure!(rate.parse::<f64>().is_ok(), "the kernel did not calibrate");
        Ok(Self {
            product,
            folder,
            kernel,
            rate,
            rounds,
        })
    }

    /// Runs ranks of the kernel over a network; what they print.
    fn run(
        &self,
        network: &Network,
        placement: Placement,
        arguments: &[String],
        trace: Option<&Path>,
    ) -> Result<String> {
        let ranks: usize = placement.iter().map(|host| host.len()).sum();
        let mut hosts = String::new();
        for rank in 0..ranks as u32 {
            let host = placement
                .iter()
                .position(|host| host.contains(&rank))
                .context("a rank without host")?;
            writeln!(hosts, "h{}", host + 1)?;
        }
        let host_file = self.folder.path().join("hosts");
        fs::write(&host_file, hosts)?;
        let mut command = Command::new(&self.product.path);
        command.arg("run").arg(self.product.profile(network.profile)?);
        command.args(["--hosts", "2", "--"]);
        if let Some(path) = trace {
            command.arg(&self.product.path);
            command
                .args(["trace", "--layer", "mpi", "--out"])
                .arg(path)
                .arg("--");
        }
        command.args([
            "mpirun",
            "--allow-run-as-root",
            "--oversubscribe",
            "--map-by",
            "seq",
        ]);
        command
            .args(["--bind-to", "none", "-np", &ranks.to_string(), "--hostfile"])
            .arg(&host_file);
        for (key, value) in [
            ("pml", "ob1"),
            ("btl", "self,vader,tcp"),
            ("btl_tcp_if_include", "eth0"),
            ("oob_tcp_if_include", "eth0"),
            // Ranks share processors: one that waits yields.
            ("mpi_yield_when_idle", "1"),
            ("plm_rsh_no_tree_spawn", "1"),
        ] {
            command.args(["--mca", key, value]);
        }
        command
            .args(["--mca", "plm_rsh_agent"])
            .arg(self.folder.path().join("agent"));
        command
            .arg(self.folder.path().join("pin"))
            .arg(&self.kernel)
            .args(arguments);
        let output = command.stdin(Stdio::null()).output().context("running perturb")?;
        if !output.status.success() {
            bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn arguments(&self, workload: &Workload) -> Vec<String> {
        let mut arguments = vec![
            workload.pattern.to_owned(),
            self.rounds.to_string(),
            workload.bytes.to_string(),
            self.rate.clone(),
        ];
        arguments.extend(workload.compute.iter().map(ToString::to_string));
        arguments
    }

    /// The table of message times between two ranks, as the what-if model reads it.
    fn table(&self, network: &Network, placement: Placement) -> Result<String> {
        let mut arguments = vec!["pingpong".to_owned(), "40".to_owned()];
        arguments.extend(SIZES.iter().map(ToString::to_string));
        let printed = self.run(network, placement, &arguments, None)?;
        let mut table = String::from("[");
        for line in printed.lines() {
            let (size, time) = line.split_once(' ').context("a line of the ping-pong")?;
            write!(table, "{{size: {size}B, time: {time}us}}, ")?;
        }
        Ok(table + "]")
    }

    /// Predicted seconds.
    fn predict(&self, scenario: &str) -> Result<f64> {
        let path = self.folder.path().join("scenario.yaml");
        fs::write(&path, scenario)?;
        let output = Command::new(&self.product.path)
            .args(["predict", "whatif", "--json"])
            .arg(&path)
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        Ok(answer["program_time_us"].as_f64().context("no predicted time")? / 1e6)
    }
}

fn write_script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn network(name: &str) -> Result<&'static Network> {
    NETWORKS
        .iter()
        .find(|network| network.name == name)
        .with_context(|| format!("there is no network {name}"))
}

/// Values computed once each.
#[derive(Default)]
struct Memory(Vec<(String, String)>);

impl Memory {
    fn get(&mut self, key: &str, compute: impl FnOnce() -> Result<String>) -> Result<String> {
        if let Some((_, value)) = self.0.iter().find(|(known, _)| known == key) {
            return Ok(value.clone());
        }
        let value = compute()?;
        self.0.push((key.to_owned(), value.clone()));
        Ok(value)
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let bench = Bench::new(cli.rounds)?;
    let (mut tables, mut traces) = (Memory::default(), Memory::default());
    let mut rows = vec![
        [
            "program",
            "other",
            "ranks on h1 / h2",
            "network",
            "predicted s",
            "measured s",
            "error %",
        ]
        .map(String::from),
    ];
    for case in &CASES {
        let ranks = |host: &[u32]| host.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let placement = format!("{} / {}", ranks(case.placement[0]), ranks(case.placement[1]));
        let name = format!(
            "{} {} {placement} {}",
            case.workload.name, case.what, case.network
        );
        if !name.contains(&cli.only) {
            continue;
        }
        eprintln!("{name}");
        let network_there = network(case.network)?;
        let local = tables.get("local", || bench.table(network(TRACED)?, [&[0, 1], &[]]))?;
        let table_of = network_there.bus.map_or(case.network, |(_, table)| table);
        let remote = tables.get(table_of, || bench.table(network(table_of)?, [&[0], &[1]]))?;
        let trace = traces.get(case.workload.name, || {
            let path = bench
                .folder
                .path()
                .join(format!("{}.jsonl", case.workload.name.replace([' ', ','], "-")));
            bench.run(
                network(TRACED)?,
                case.workload.traced,
                &bench.arguments(case.workload),
                Some(&path),
            )?;
            Ok(path.display().to_string())
        })?;
        let bus = network_there.bus.map_or(String::new(), |(rate, _)| {
            format!("bus: {{bandwidth: {rate}bit/s}}\n")
        });
        let predicted = bench.predict(&format!(
            "groups: [[{}], [{}]]\nnetwork:\n  local: {local}\n  remote: {remote}\n{bus}events: {trace}\n",
            ranks(case.placement[0]),
            ranks(case.placement[1]),
        ))?;
        let stolen = perturb_clock::stolen_share(PROBE);
        if stolen > BUSY {
            eprintln!(
                "whatif: warning: others took {:.0} % of a processor just now; the model knows nothing of them, so do not \
                 believe this row",
                100.0 * stolen
            );
        }
        let mut times = Vec::new();
        for _ in 0..cli.runs {
            let printed = bench.run(
                network_there,
                case.placement,
                &bench.arguments(case.workload),
                None,
            )?;
            times.push(
                printed
                    .trim()
                    .parse::<f64>()
                    .with_context(|| format!("kernel printed {printed:?}"))?,
            );
        }
        times.sort_by(f64::total_cmp);
        let measured = times[times.len() / 2];
        rows.push([
            case.workload.name.to_owned(),
            case.what.to_owned(),
            placement,
            case.network.to_owned(),
            format!("{predicted:.4}"),
            format!("{measured:.4}"),
            format!("{:+.1}", 100.0 * (predicted - measured) / measured),
        ]);
    }
    print(&rows, cli.markdown);
    Ok(())
}

fn print(rows: &[[String; 7]], markdown: bool) {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for (index, row) in rows.iter().enumerate() {
        if markdown {
            println!("| {} |", row.join(" | "));
            if index == 0 {
                println!("|{}---:|---:|---:|", "---|".repeat(4));
            }
        } else {
            let cells: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(column, cell)| match column {
                    0..4 => format!("{cell:<0$}", width(column)),
                    _ => format!("{cell:>0$}", width(column)),
                })
                .collect();
            println!("{}", cells.join("  ").trim_end());
        }
    }
}
