//! Which time slices the kernel's scheduler hands out: measured, because the file that says it
//! (`/sys/kernel/debug/sched/base_slice_ns`) is not always there, or readable, and does not say when the clock ticks.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use nix::{
    sched::{sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use crate::processors::keep_to;

/// How long two threads want the processor.
const PROBE: Duration = Duration::from_secs(1);
/// A shorter pause is an interrupt's.
const INTERRUPT: Duration = Duration::from_micros(200);
/// Turns without which quantiles say nothing.
const FEWEST: usize = 20;

/// How a processor's time is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// A process that computes has the processor at least this long, if others want it.
    pub quantum: Duration,
    /// It makes way when the clock ticks.
    pub tick: Duration,
}

/// The time slices of a processor. Two threads that want all of it change at ticks, so their turns last a tick, or as
/// many as the quantum needs. If one of them yields at any time, the other's turns begin at any time, and the shortest
/// last a quantum.
///
/// # Errors
/// When the processor cannot be used or the threads hardly took turns.
pub fn slices(processor: usize) -> Result<Slices> {
    let tick = quantile(turns(processor, None)?, 0.5)?;
    let quantum = quantile(turns(processor, Some(tick))?, 0.05)?;
    Ok(Slices {
        quantum: quantum.min(tick),
        tick,
    })
}

/// How long the turns of a thread last beside another one, which with `yields` gives up its own after a time below that.
fn turns(processor: usize, yields: Option<Duration>) -> Result<Vec<Duration>> {
    thread::scope(|scope| {
        let other = scope.spawn(move || spin(processor, yields));
        let turns = spin(processor, None);
        match other.join() {
            Ok(found) => found?,
            Err(_) => bail!("a thread that measures time slices panicked"),
        };
        turns
    })
}

fn spin(processor: usize, yields: Option<Duration>) -> Result<Vec<Duration>> {
    // Of this thread alone; it ends with the measurement, or has its processors back below.
    let before = sched_getaffinity(Pid::from_raw(0))?;
    keep_to(processor)?;
    let start = Instant::now();
    let (mut last, mut begin, mut turns) = (start, start, Vec::new());
    // The golden ratio's multiples spread evenly.
    let share = |turn: usize| (turn as f64 * 0.618_033_988_749_895).fract();
    while last - start < PROBE {
        if yields.is_some_and(|most| last - begin > most.mul_f64(share(turns.len()))) {
            thread::yield_now();
        }
        let now = Instant::now();
        if now - last > INTERRUPT {
            turns.push(last - begin);
            begin = now;
        }
        last = now;
    }
    sched_setaffinity(Pid::from_raw(0), &before)?;
    Ok(turns)
}

fn quantile(mut turns: Vec<Duration>, share: f64) -> Result<Duration> {
    ensure!(
        turns.len() >= FEWEST,
        "a thread took {} turns in {PROBE:?} beside another one; time slices need {FEWEST} or more",
        turns.len()
    );
    turns.sort_unstable();
    Ok(turns[(turns.len() as f64 * share) as usize])
}
