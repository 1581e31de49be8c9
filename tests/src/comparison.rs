//! Emulators beside each other: the same networks, the same measurements, in turn on the same kind of bed.
//!
//! Model: a [`Row`] is a network and what is measured on it, a column an emulator; each cell has a bed of its own, so
//! that nothing is left of the one before. A row's cells are measured one after the other, so that a change of the
//! machine's mood falls on neighbors; in several rounds, what stands in the table is the median of the rounds. A cell
//! that an emulator cannot fill (netem has no gap) is absent. Delays are one-way, both directions are emulated.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, ensure};
use perturb_stats::Sample;
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
    /// Whether packets come as fast as they can be sent, which may be more than an emulator carries.
    floods: bool,
    measure: Box<Measure>,
}

/// Measures on a bed, whether something is emulated there or not.
type Measure = dyn Fn(&Bed, bool) -> Result<Figure>;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// One number.
    Number(f64),
    /// One number of several rounds: its quartiles.
    Rounds([f64; 3]),
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
            Self::Rounds([low, median, high]) => {
                write!(
                    f,
                    "{} ({} to {})",
                    Self::Number(*median),
                    Self::Number(*low),
                    Self::Number(*high)
                )
            }
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
            Self::Rounds([low, median, high]) => json!({ "value": median, "low": low, "high": high }),
            Self::Quantiles { p50, p99, max } => json!({ "p50": p50, "p99": p99, "max": max }),
        }
    }
}

impl Figure {
    /// What several rounds of the same cell say together: quartiles of a number; of quantiles, the median of each,
    /// and the greatest of all.
    pub fn of_rounds(rounds: &[Self]) -> Result<Self> {
        let [first, _, ..] = rounds else {
            return rounds.first().copied().context("nothing was measured");
        };
        let quartiles = |of: fn(&Self) -> f64| -> Result<[f64; 3]> {
            let sample = Sample::new(rounds.iter().map(of).collect())?;
            Ok([sample.quantile(0.25)?, sample.median(), sample.quantile(0.75)?])
        };
        Ok(match first {
            Self::Number(_) | Self::Rounds(_) => Self::Rounds(quartiles(Self::middle)?),
            Self::Quantiles { .. } => Self::Quantiles {
                p50: quartiles(Self::middle)?[1],
                p99: quartiles(Self::nearly_all)?[1],
                max: rounds.iter().map(Self::greatest).fold(f64::MIN, f64::max),
            },
        })
    }

    fn middle(&self) -> f64 {
        match *self {
            Self::Number(value) | Self::Rounds([_, value, _]) | Self::Quantiles { p50: value, .. } => value,
        }
    }

    fn nearly_all(&self) -> f64 {
        match *self {
            Self::Quantiles { p99, .. } => p99,
            Self::Number(_) | Self::Rounds(_) => self.middle(),
        }
    }

    fn greatest(&self) -> f64 {
        match *self {
            Self::Quantiles { max, .. } => max,
            Self::Number(_) | Self::Rounds(_) => self.middle(),
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
    rows.extend([1, 8].map(|flows| tcp(extent, flows, "cubic", Buffers::Kernels)));
    rows.extend([1, 8].map(|flows| tcp(extent, flows, "cubic", Buffers::Large)));
    // cubic leaves slow start when round trips grow (HyStart), as they do where 20 MB in one burst saturate a processor;
    // reno does not.
    rows.push(tcp(extent, 1, "reno", Buffers::Large));
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
        floods: false,
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
        floods: false,
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
        floods: false,
        measure: Box::new(move |bed, _| {
            let goodput = streams::goodput(&bed.left, &bed.right, &transfer(extent, 1))?;
            Ok(Figure::Number(goodput / 1e6))
        }),
    }
}

/// How much a TCP connection may have under way.
#[derive(Clone, Copy)]
enum Buffers {
    /// As on every bed: as much as the processors can move.
    Large,
    /// What the kernel lets it have by default.
    Kernels,
}

fn tcp(extent: Extent, flows: usize, congestion_control: &'static str, buffers: Buffers) -> Row {
    let measure = move |bed: &Bed, _: bool| {
        if matches!(buffers, Buffers::Kernels) {
            bed.default_tcp_buffers()?;
        }
        let asked = Transfer {
            congestion_control,
            ..transfer(extent, flows)
        };
        let goodput = streams::goodput(&bed.left, &bed.right, &asked)?;
        Ok(Figure::Number(goodput / 1e6))
    };
    let limit = match buffers {
        Buffers::Large => "64 MB buffers",
        Buffers::Kernels => "default buffers",
    };
    let name = format!("delay 20 ms: TCP {congestion_control}, {flows} flow(s), {limit}");
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
    let name = format!("delay 20 ms: received of a UDP flood, {flows} flow(s)");
    Row {
        floods: true,
        ..delaying(name, "Mbit/s", DELAY, Box::new(measure))
    }
}

fn small(extent: Extent) -> Row {
    let window = extent.window.min(Duration::from_millis(500));
    let measure = move |bed: &Bed, on: bool| {
        let delay = if on { DELAY } else { Duration::ZERO };
        Ok(Figure::Number(measure::sustained_rate(bed, 1, delay, window)?))
    };
    let name = "delay 20 ms: small packets without loss".to_owned();
    Row {
        // The search goes on until some are lost.
        floods: true,
        ..delaying(name, "1/s", DELAY, Box::new(measure))
    }
}

/// The emulators that this kernel has.
pub fn emulators(kernel: &Kernel) -> Result<Vec<Emulator>> {
    let usable = |emulator: &Emulator| match emulator {
        Emulator::Off => true,
        Emulator::Netem => kernel.netem,
        Emulator::Edt | Emulator::Perturb(Pacer::Fq) => kernel.fq,
        Emulator::Perturb(Pacer::User | Pacer::Switch) => kernel.tun,
    };
    let emulators: Vec<Emulator> = Emulator::ALL.into_iter().filter(usable).collect();
    ensure!(emulators.len() > 1, "this kernel has no emulator to compare");
    Ok(emulators)
}

/// Measures a row's cells `rounds` times, by turns; `None` where the emulator cannot emulate the row's network.
pub fn cells(
    product: &Product,
    row: &Row,
    emulators: &[Emulator],
    rounds: usize,
) -> Vec<Result<Option<Figure>>> {
    let mut measured: Vec<Result<Vec<Figure>>> = emulators.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..rounds {
        for (&emulator, cell) in emulators.iter().zip(&mut measured) {
            let Ok(figures) = cell else { continue };
            match once(product, row, emulator) {
                Ok(figure) => figures.extend(figure),
                Err(error) => *cell = Err(error),
            }
        }
    }
    let together = |cell: Result<Vec<Figure>>| {
        let figures = cell?;
        (!figures.is_empty())
            .then(|| Figure::of_rounds(&figures))
            .transpose()
    };
    measured.into_iter().map(together).collect()
}

/// Measures a cell once.
fn once(product: &Product, row: &Row, emulator: Emulator) -> Result<Option<Figure>> {
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
        if row.floods {
            let refused = emulation.stop_flooded()?;
            if refused > 0 {
                eprintln!(
                    "{} with {}: more came than the pacer carries; it had no room for {refused} packets, and counted them",
                    row.name,
                    emulator.name()
                );
            }
        } else {
            emulation.stop()?;
        }
        Ok(figure)
    };
    measured()
        .map(Some)
        .with_context(|| format!("{} with {}", row.name, emulator.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_summed_up_by_their_medians() {
        let numbers = [1.0, 9.0, 2.0, 3.0, 4.0].map(Figure::Number);
        assert_eq!(
            Figure::of_rounds(&numbers).unwrap(),
            Figure::Rounds([2.0, 3.0, 4.0])
        );
        assert_eq!(Figure::of_rounds(&numbers[..1]).unwrap(), numbers[0]);
        assert!(Figure::of_rounds(&[]).is_err());
        let quantiles = [(1.0, 5.0, 7.0), (3.0, 9.0, 8.0), (2.0, 6.0, 90.0)]
            .map(|(p50, p99, max)| Figure::Quantiles { p50, p99, max });
        let together = Figure::Quantiles {
            p50: 2.0,
            p99: 6.0,
            max: 90.0,
        };
        assert_eq!(Figure::of_rounds(&quantiles).unwrap(), together);
    }
}
