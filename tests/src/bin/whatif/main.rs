//! One table: what the what-if model predicts for a real MPI program placed otherwise, or on another network, beside
//! what it takes when it really runs there.
//!
//! The program (`tests/mpi/kernel.c`: compute/communicate rounds of known balance, and all-to-all) is traced once
//! per workload, with four ranks on two private hosts that have a processor each. Look-up tables of the networks
//! come from ping-pongs of the same MPI over them, as in the paper (Eom and Hollingsworth 2000, section 3.2). The
//! measured time is the median of several runs without tracing.
//!
//! Each prediction is made three times: by the paper's model; with one-way times of messages that cross each other, as
//! in all of these programs, what messages take of processors, the emulator's work for them included, from the same runs,
//! and where a host's link is slow, a server of that bandwidth instead of a table of that network; and with time slices
//! besides, as threads that share a processor find them here. No parameter comes from the rows.

mod cases;

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
use perturb_present::Table;
use perturb_tests::{product::Product, slice::slices};
use tempfile::TempDir;

use cases::{CASES, Network, Placement, Scope, Server, TRACED, Workload, network};

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
    /// Keep the input of each prediction, and the traces, in this folder
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// How long is looked whether others use the processors.
const PROBE: Duration = Duration::from_millis(500);

/// The paper's own bar for a prediction's error, in percent.
const BAR: f64 = 8.0;

const HEADER: [&str; 12] = [
    "program",
    "other",
    "ranks on h1 / h2",
    "network",
    "measured s",
    "others %",
    "paper's model s",
    "error %",
    "exchanges, overheads, links s",
    "error %",
    "and slices s",
    "error %",
];

/// Message sizes of the tables.
const SIZES: [&str; 6] = ["0", "1024", "4096", "8192", "16384", "32768"];

/// The experiment's files and programs.
struct Bench {
    product: Product,
    folder: PathBuf,
    /// Removes the folder, unless it is to be kept.
    _temporary: Option<TempDir>,
    kernel: PathBuf,
    rate: String,
    rounds: u32,
}

impl Bench {
    fn new(rounds: u32, keep: Option<&Path>) -> Result<Self> {
        let product = Product::find_or_beside()?;
        let (folder, temporary) = match keep {
            Some(path) => {
                fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
                (fs::canonicalize(path)?, None)
            }
            None => {
                let folder = TempDir::with_prefix("perturb-whatif-")?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let kernel = folder.join("kernel");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi/kernel.c");
        let status = Command::new("mpicc")
            .arg("-O2")
            .arg("-o")
            .args([&kernel, &source])
            .status()
            .context("mpicc; `cargo xtask setup --with mpi` installs Open MPI")?;
        ensure!(status.success(), "mpicc failed");
        let agent = format!("#!/bin/sh\nexec '{}' agent \"$@\"\n", product.path.display());
        write_script(&folder.join("agent"), &agent)?;
        // Host hN has processor N - 1.
        write_script(
            &folder.join("pin"),
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
            _temporary: temporary,
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
        let host_file = self.folder.join("hosts");
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
            .arg(self.folder.join("agent"));
        command
            .arg(self.folder.join("pin"))
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

    /// Message times between two ranks, and what messages take of their processors.
    fn tables(&self, network: &Network, placement: Placement) -> Result<Tables> {
        let mut arguments = vec!["pingpong".to_owned(), "40".to_owned()];
        arguments.extend(SIZES.iter().map(ToString::to_string));
        let printed = self.run(network, placement, &arguments, None)?;
        let mut tables = Tables::default();
        for line in printed.lines() {
            let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>();
            let Ok(&[size, one_way, exchange, send, receive, others]) = numbers.as_deref() else {
                bail!("the ping-pong printed {line:?}");
            };
            // Others work for a message where it is sent, and where it is received: half of it each.
            for (table, time) in [
                (&mut tables.one_way, one_way),
                (&mut tables.exchange, exchange),
                (&mut tables.send, send + others / 2.0),
                (&mut tables.receive, receive + others / 2.0),
            ] {
                write!(table, "{{size: {size}B, time: {time:.3}us}}, ")?;
            }
        }
        Ok(tables)
    }

    /// Predicted seconds.
    fn predict(&self, name: &str, scenario: &str) -> Result<f64> {
        let path = self.folder.join(format!("{}.yaml", file_name(name)));
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

/// A name as part of a file's.
fn file_name(name: &str) -> String {
    name.replace([' ', ',', '/'], "-")
}

fn write_script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Points of look-up tables, as the what-if model reads them.
#[derive(Clone, Default)]
struct Tables {
    one_way: String,
    exchange: String,
    send: String,
    receive: String,
}

/// Values computed once each.
struct Memory<T>(Vec<(String, T)>);

impl<T: Clone> Memory<T> {
    fn get(&mut self, key: &str, compute: impl FnOnce() -> Result<T>) -> Result<T> {
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
    let bench = Bench::new(cli.rounds, cli.keep.as_deref())?;
    let slices = slices(0)?;
    let [quantum, tick] = [slices.quantum, slices.tick].map(|length| length.as_secs_f64() * 1e6);
    let (mut tables, mut traces) = (Memory(Vec::new()), Memory(Vec::new()));
    let mut rows = Table::new(4, &HEADER);
    let mut errors: Vec<[f64; 3]> = Vec::new();
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
        let local = tables.get("local", || bench.tables(network(TRACED)?, [&[0, 1], &[]]))?;
        // The paper's model knows a bus, and a host's link as a part of the table only.
        let server = network_there.server;
        let of = |server: Option<Server>| {
            server.map_or((case.network, String::new()), |Server { rate, table, scope }| {
                let scope = if scope == Scope::Host { "host" } else { "shared" };
                (
                    table,
                    format!("bus: {{bandwidth: {rate}bit/s, scope: {scope}}}\n"),
                )
            })
        };
        let (paper_table, paper_bus) = of(server.filter(|server| server.scope == Scope::Shared));
        let (table, bus) = of(server);
        let mut remote = |of: &'static str| tables.get(of, || bench.tables(network(of)?, [&[0], &[1]]));
        let (paper, there, remote) = (remote(paper_table)?, remote(case.network)?, remote(table)?);
        let trace = traces.get(case.workload.name, || {
            let path = bench
                .folder
                .join(format!("{}.jsonl", file_name(case.workload.name)));
            bench.run(
                network(TRACED)?,
                case.workload.traced,
                &bench.arguments(case.workload),
                Some(&path),
            )?;
            Ok(path.display().to_string())
        })?;
        let predict = |model: &str, times: &str, more: &str, bus: &str| {
            let scenario = format!(
                "groups: [[{}], [{}]]\nnetwork:\n  local: [{}]\n  remote: [{}]\n{more}{bus}events: {trace}\n",
                ranks(case.placement[0]),
                ranks(case.placement[1]),
                local.one_way,
                times,
            );
            bench.predict(&format!("{name} {model}"), &scenario)
        };
        let overhead = format!(
            "  overhead: {{send: [{}], receive: [{}]}}\n",
            there.send, there.receive
        );
        let scheduler = format!("scheduler: {{quantum: {quantum}us, tick: {tick}us}}\n");
        let predicted = [
            predict("paper", &paper.one_way, "", &paper_bus)?,
            predict("exchanges", &remote.exchange, &overhead, &bus)?,
            predict(
                "slices",
                &remote.exchange,
                &format!("{overhead}{scheduler}"),
                &bus,
            )?,
        ];
        let stolen = perturb_clock::stolen_share(PROBE);
        if stolen > perturb_clock::BUSY {
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
            let (seconds, others) = printed
                .trim()
                .split_once(' ')
                .with_context(|| format!("kernel printed {printed:?}"))?;
            times.push((seconds.parse::<f64>()?, others.parse::<f64>()?));
        }
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (measured, others) = times[times.len() / 2];
        let error = predicted.map(|predicted| 100.0 * (predicted - measured) / measured);
        let mut row = vec![
            case.workload.name.to_owned(),
            case.what.to_owned(),
            placement,
            case.network.to_owned(),
            format!("{measured:.4}"),
            format!("{:.0}", 100.0 * others),
        ];
        for (predicted, error) in predicted.iter().zip(error) {
            row.extend([format!("{predicted:.4}"), format!("{error:+.1}")]);
        }
        errors.push(error);
        rows.row(row);
    }
    let shown = if cli.markdown {
        rows.markdown()
    } else {
        rows.to_string()
    };
    print!("{shown}");
    let within = |model: usize| errors.iter().filter(|error| error[model].abs() <= BAR).count();
    println!(
        "\nOf {} rows, {} are within {BAR} % by the paper's model, {} with exchanges and overheads, {} with time slices \
         ({:.1} ms, ended by a tick of {:.1} ms) too.",
        errors.len(),
        within(0),
        within(1),
        within(2),
        quantum / 1e3,
        tick / 1e3,
    );
    Ok(())
}
