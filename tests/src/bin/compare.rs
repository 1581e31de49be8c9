//! One table: no emulation, netem, and perturb with each of its pacers, in turn on the same test bed.
//!
//! Emulators that this kernel lacks are left out. Delay is one-way; both directions are emulated.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use perturb_tests::{
    bed::Bed,
    emulation::{Emulation, Emulator, Link},
    kernel::Kernel,
    measure::{self, Quantiles},
    product::{Pacer, Product},
    streams::{self, Transfer},
};

/// Compare emulators on this kernel
#[derive(Parser)]
struct Cli {
    /// Packets per delay
    #[arg(long, default_value_t = 500)]
    packets: usize,
    /// Seconds per throughput
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Only the rows whose names contain this
    #[arg(long, default_value = "")]
    only: String,
}

/// A row: a network, and what is measured on it.
struct Row {
    name: String,
    netem: Option<String>,
    perturb: String,
    measure: Box<Measure>,
}

/// Measures on a test bed, whether something is emulated there or not.
type Measure = dyn Fn(&Bed, bool) -> Result<String>;

fn rows(cli: &Cli) -> Vec<Row> {
    let mut rows = Vec::new();
    let packets = cli.packets;
    for milliseconds in [1, 10, 20, 100] {
        let latency = Duration::from_millis(milliseconds);
        rows.push(Row {
            name: format!("delay {milliseconds} ms: error, us, p50 / p99"),
            netem: Some(format!("delay {milliseconds}ms")),
            perturb: format!("latency: {milliseconds}ms"),
            measure: Box::new(move |bed, on| {
                let asked = if on { latency.as_secs_f64() * 1e6 } else { 0.0 };
                Ok(Quantiles::less(&measure::delays(bed, packets, latency)?, asked)?.to_string())
            }),
        });
    }
    rows.push(Row {
        name: "gap 500 us, bursts of 20: spacing, us, p50 / p99".into(),
        netem: None,
        perturb: "gap: 500us".into(),
        measure: Box::new(move |bed, _| {
            let trace = measure::bursts(bed, packets / 20, 20, Duration::from_micros(500))?;
            Ok(Quantiles::of(&trace.spacings_us(20)?)?.to_string())
        }),
    });
    let transfer = Transfer {
        window: Duration::from_secs(cli.seconds),
        ..Transfer::default()
    };
    for megabits in [10, 100] {
        let transfer = transfer.clone();
        rows.push(Row {
            name: format!("bandwidth {megabits} Mbit/s: TCP goodput, share of the arithmetic value"),
            netem: Some(format!("rate {megabits}mbit")),
            perturb: format!("bandwidth: {megabits}Mbit/s\nbuffer: 20ms"),
            measure: Box::new(move |bed, _| {
                let goodput = streams::goodput(&bed.left, &bed.right, &transfer)?;
                let share = goodput / streams::goodput_of(f64::from(megabits) * 1e6);
                Ok(format!("{:.2} %", share * 100.0))
            }),
        });
    }
    for flows in [1, 8] {
        let transfer = Transfer {
            flows,
            ..transfer.clone()
        };
        rows.push(Row {
            name: format!("delay 20 ms: TCP cubic, {flows} flow(s), Mbit/s"),
            netem: Some("delay 20ms".into()),
            perturb: "latency: 20ms".into(),
            measure: Box::new(move |bed, _| {
                Ok(format!(
                    "{:.0}",
                    streams::goodput(&bed.left, &bed.right, &transfer)? / 1e6
                ))
            }),
        });
    }
    let window = Duration::from_secs(1);
    rows.push(Row {
        name: "delay 20 ms: small packets without loss, 1/s".into(),
        netem: Some("delay 20ms".into()),
        perturb: "latency: 20ms".into(),
        measure: Box::new(move |bed, on| {
            let delay = if on {
                Duration::from_millis(20)
            } else {
                Duration::ZERO
            };
            Ok(format!("{:.0}", measure::sustained_rate(bed, delay, window)?))
        }),
    });
    rows
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let product = Product::find_or_beside()?;
    let kernel = Kernel::probe(&Bed::new()?.left)?;
    let usable = |emulator: &Emulator| match emulator {
        Emulator::Off => true,
        Emulator::Netem => kernel.netem,
        Emulator::Perturb(Pacer::Fq) => kernel.fq,
        Emulator::Perturb(Pacer::User) => kernel.tun,
    };
    let emulators: Vec<Emulator> = Emulator::ALL.into_iter().filter(usable).collect();
    ensure!(emulators.len() > 1, "this kernel has no emulator to compare");
    println!(
        "Linux {}, {} processor(s), {}",
        Kernel::release(),
        std::thread::available_parallelism().map_or(1, usize::from),
        if kernel.jit {
            "BPF compiled"
        } else {
            "BPF interpreted"
        }
    );
    let mut line = format!("{:<64}", "");
    for emulator in &emulators {
        write!(line, "  {:>18}", emulator.name())?;
    }
    println!("{line}");
    for row in rows(&cli).iter().filter(|row| row.name.contains(&cli.only)) {
        let mut line = format!("{:<64}", row.name);
        for &emulator in &emulators {
            let cell = cell(&product, row, emulator)
                .with_context(|| format!("{} with {}", row.name, emulator.name()))
                .unwrap_or_else(|error| {
                    eprintln!("{error:#}");
                    "failed".into()
                });
            write!(line, "  {cell:>18}")?;
        }
        println!("{line}");
    }
    Ok(())
}

fn cell(product: &Product, row: &Row, emulator: Emulator) -> Result<String> {
    if emulator == Emulator::Netem && row.netem.is_none() {
        return Ok("-".into());
    }
    let bed = Bed::new()?;
    let link = Link {
        netem: row.netem.as_deref().unwrap_or_default(),
        perturb: &row.perturb,
    };
    let emulation = Emulation::start(product, &bed, emulator, link)?;
    let cell = (row.measure)(&bed, emulator != Emulator::Off)?;
    emulation.stop()?;
    Ok(cell)
}
