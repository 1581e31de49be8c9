//! One table: no emulation, netem, plain fq, and perturb with each of its pacers, in turn on the same test bed.
//!
//! Emulators that this kernel lacks are left out. Delay is one-way; both directions are emulated.

use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use perturb_tests::{
    bed::Bed,
    comparison::{self, Extent, rows},
    emulation::Emulator,
    kernel::Kernel,
    product::Product,
};
use serde_json::{Value, json};

/// Compare emulators on this kernel
#[derive(Parser)]
struct Cli {
    /// Packets per delay
    #[arg(long, default_value_t = 500)]
    packets: usize,
    /// Seconds per throughput
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Measure each cell so many times, the emulators by turns, and give medians and quartiles
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only the rows whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Only these emulators
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    emulators: Vec<String>,
    /// Write the figures here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let product = Product::find_or_beside()?;
    let kernel = Kernel::probe(&Bed::new()?.left)?;
    let mut emulators = comparison::emulators(&kernel)?;
    if let Some(unknown) = cli
        .emulators
        .iter()
        .find(|asked| !emulators.iter().any(|known| known.name() == *asked))
    {
        let known: Vec<&str> = emulators.iter().copied().map(Emulator::name).collect();
        bail!(
            "--emulators: this kernel has no `{unknown}`, but {}",
            known.join(", ")
        );
    }
    if !cli.emulators.is_empty() {
        emulators.retain(|known| cli.emulators.iter().any(|asked| asked == known.name()));
    }
    println!("{}", description(&kernel));
    let mut line = format!("{:<64}", "");
    for emulator in &emulators {
        write!(line, "  {:>20}", emulator.name())?;
    }
    println!("{line}");
    let extent = Extent {
        packets: cli.packets,
        window: Duration::from_secs(cli.seconds),
    };
    let mut measured: Vec<Value> = Vec::new();
    for row in rows(extent).iter().filter(|row| row.name.contains(&cli.only)) {
        let mut line = format!("{:<64}", format!("{}, {}", row.name, row.unit));
        let mut cells = serde_json::Map::new();
        let figures = comparison::cells(&product, row, &emulators, cli.rounds.into());
        for (&emulator, figure) in emulators.iter().zip(figures) {
            let cell = match figure {
                Ok(Some(figure)) => {
                    cells.insert(emulator.name().into(), figure.json());
                    figure.to_string()
                }
                Ok(None) => "-".into(),
                Err(error) => {
                    eprintln!("{error:#}");
                    "failed".into()
                }
            };
            write!(line, "  {cell:>20}")?;
        }
        println!("{line}");
        measured.push(json!({ "figure": row.name, "unit": row.unit, "emulators": cells }));
    }
    if let Some(path) = cli.json {
        let names: Vec<&str> = emulators.iter().copied().map(Emulator::name).collect();
        let all = json!({ "machine": description(&kernel), "emulators": names, "rows": measured });
        fs::write(&path, serde_json::to_string_pretty(&all)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn description(kernel: &Kernel) -> String {
    format!(
        "Linux {}, {} processor(s), BPF {}",
        Kernel::release(),
        std::thread::available_parallelism().map_or(1, usize::from),
        if kernel.jit { "compiled" } else { "interpreted" }
    )
}
