//! Emulators beside each other: the same networks, the same measurements, in turn on the same kind of bed.
//!
//! Model: a [`Row`] is a network and what is measured on it, a column an emulator; each cell has a bed of its own, so
//! that nothing is left of the one before. A row's cells are measured one after the other, so that a change of the
//! machine's mood falls on neighbors. A cell that an emulator cannot fill (netem has no gap) is absent. Delays are
//! one-way, both directions are emulated.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    bed::Bed,
    emulation::{Emulation, Emulator, Link},
    kernel::Kernel,
    measure::{self, Quantiles},
    product::{Pacer, Product},
    streams::{self, Blast, Transfer},
};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Packets for each delay.
    pub packets: usize,
    /// Time of each throughput.
    pub window: Duration,
}

/// A network, and what is measured on it.
pub struct Row {
    /// What is measured.
    pub name: String,
    /// In which unit.
    pub unit: &'static str,
    /// Arguments of netem.
    netem: Option<String>,
    /// Keys of a profile.
    perturb: String,
    /// For the plain use of fq, which knows delays only.
    delay: Option<Duration>,
    measure: Box<Measure>,
}

/// Measures on a bed, whether something is emulated there or not.
type Measure = dyn Fn(&Bed, bool) -> Result<Figure>;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// One number.
    Number(f64),
    /// Of a sample.
    Quantiles {
        /// Median.
        p50: f64,
        /// 99 %.
        p99: f64,
        /// The greatest.
        max: f64,
    },
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) if value.abs() < 100.0 => write!(f, "{value:.2}"),
            Self::Number(value) => write!(f, "{value:.0}"),
            Self::Quantiles { p50, p99, .. } => write!(f, "{p50:.1} / {p99:.1}"),
        }
    }
}

impl Figure {
    /// For a file.
    #[must_use]
    pub fn json(self) -> Value {
        match self {
            Self::Number(value) => json!({ "value": value }),
            Self::Quantiles { p50, p99, max } => json!({ "p50": p50, "p99": p99, "max": max }),
        }
    }
}

impl From<Quantiles> for Figure {
    fn from(quantiles: Quantiles) -> Self {
        Self::Quantiles {
            p50: quantiles.p50.point,
            p99: quantiles.p99.point,
            max: quantiles.max,
        }
    }
}

const DELAY: Duration = Duration::from_millis(20);

/// All rows.
#[must_use]
pub fn rows(extent: Extent) -> Vec<Row> {
    let mut rows: Vec<Row> = [1, 10, 20, 100]
        .into_iter()
        .map(|milliseconds| delay(extent, milliseconds))
        .collect();
    rows.push(gap(extent));
    rows.extend([10, 100].map(|megabits| bandwidth(extent, megabits)));
    rows.extend([1, 8].map(|flows| tcp(extent, flows)));
    rows.extend([1, 8].map(|flows| udp(extent, flows)));
    rows.push(small(extent));
    rows
}

/// A row about a delay and nothing else.
fn delaying(name: String, unit: &'static str, delay: Duration, measure: Box<Measure>) -> Row {
    let milliseconds = delay.as_millis();
    Row {
        name,
        unit,
        netem: Some(format!("delay {milliseconds}ms")),
        perturb: format!("latency: {milliseconds}ms"),
        delay: Some(delay),
        measure,
    }
}

fn delay(extent: Extent, milliseconds: u64) -> Row {
    let latency = Duration::from_millis(milliseconds);
    let measure = move |bed: &Bed, on: bool| {
        let asked = if on { latency.as_secs_f64() * 1e6 } else { 0.0 };
        let delays = measure::delays(bed, extent.packets, latency)?;
        Ok(Quantiles::less(&delays, asked)?.into())
    };
    let name = format!("delay {milliseconds} ms: error, p50 / p99");
    delaying(name, "us", latency, Box::new(measure))
}

fn gap(extent: Extent) -> Row {
    Row {
        name: "gap 500 us, bursts of 20: spacing, p50 / p99".into(),
        unit: "us",
        netem: None,
        perturb: "gap: 500us".into(),
        delay: None,
        measure: Box::new(move |bed, _| {
            let trace = measure::bursts(bed, extent.packets.div_ceil(20), 20, Duration::from_micros(500))?;
            Ok(Quantiles::of(&trace.spacings_us(20)?)?.into())
        }),
    }
}

fn transfer(extent: Extent, flows: usize) -> Transfer {
    Transfer {
        flows,
        window: extent.window,
        ..Transfer::default()
    }
}

fn bandwidth(extent: Extent, megabits: u32) -> Row {
    let arithmetic = streams::goodput_of(f64::from(megabits));
    Row {
        name: format!("bandwidth {megabits} Mbit/s: TCP goodput ({arithmetic:.2} by arithmetic)"),
        unit: "Mbit/s",
        netem: Some(format!("rate {megabits}mbit")),
        perturb: format!("bandwidth: {megabits}Mbit/s\nbuffer: 20ms"),
        delay: None,
        measure: Box::new(move |bed, _| {
            let goodput = streams::goodput(&bed.left, &bed.right, &transfer(extent, 1))?;
            Ok(Figure::Number(goodput / 1e6))
        }),
    }
}

fn tcp(extent: Extent, flows: usize) -> Row {
    let measure = move |bed: &Bed, _: bool| {
        let goodput = streams::goodput(&bed.left, &bed.right, &transfer(extent, flows))?;
        Ok(Figure::Number(goodput / 1e6))
    };
    let name = format!("delay 20 ms: TCP cubic, {flows} flow(s)");
    delaying(name, "Mbit/s", DELAY, Box::new(measure))
}

fn udp(extent: Extent, flows: usize) -> Row {
    let measure = move |bed: &Bed, _: bool| {
        let blast = Blast {
            flows,
            window: extent.window,
            ..Blast::default()
        };
        Ok(Figure::Number(
            streams::received(&bed.left, &bed.right, &blast)? / 1e6,
        ))
    };
    let name = format!("delay 20 ms: UDP received, {flows} flow(s)");
    delaying(name, "Mbit/s", DELAY, Box::new(measure))
}

fn small(extent: Extent) -> Row {
    let window = extent.window.min(Duration::from_millis(500));
    let measure = move |bed: &Bed, on: bool| {
        let delay = if on { DELAY } else { Duration::ZERO };
        Ok(Figure::Number(measure::sustained_rate(bed, delay, window)?))
    };
    let name = "delay 20 ms: small packets without loss".to_owned();
    delaying(name, "1/s", DELAY, Box::new(measure))
}

/// The emulators that this kernel has.
pub fn emulators(kernel: &Kernel) -> Result<Vec<Emulator>> {
    let usable = |emulator: &Emulator| match emulator {
        Emulator::Off => true,
        Emulator::Netem => kernel.netem,
        Emulator::Edt | Emulator::Perturb(Pacer::Fq) => kernel.fq,
        Emulator::Perturb(Pacer::User) => kernel.tun,
    };
    let emulators: Vec<Emulator> = Emulator::ALL.into_iter().filter(usable).collect();
    ensure!(emulators.len() > 1, "this kernel has no emulator to compare");
    Ok(emulators)
}

/// Measures a cell; `None` if the emulator cannot emulate the row's network.
pub fn cell(product: &Product, row: &Row, emulator: Emulator) -> Result<Option<Figure>> {
    let link = Link {
        netem: row.netem.as_deref().unwrap_or_default(),
        perturb: &row.perturb,
        delay: row.delay,
    };
    let able = match emulator {
        Emulator::Netem => row.netem.is_some(),
        Emulator::Edt => row.delay.is_some(),
        Emulator::Off | Emulator::Perturb(_) => true,
    };
    if !able {
        return Ok(None);
    }
    let measured = || -> Result<Figure> {
        let bed = Bed::new()?;
        let emulation = Emulation::start(product, &bed, emulator, link)?;
        let figure = (row.measure)(&bed, emulator != Emulator::Off)?;
        emulation.stop()?;
        Ok(figure)
    };
    measured()
        .map(Some)
        .with_context(|| format!("{} with {}", row.name, emulator.name()))
}
