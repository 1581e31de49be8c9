//! When the steps of a timeline are in force: each one's turns, drawn where they are random.
//!
//! A timeline that repeats is laid out once. One that does not say so repeats if it has steps without end: after the
//! least common multiple of their intervals.

use std::cell::OnceCell;

use perturb_common::abi::JitterTable;
use perturb_common::fate::{self, JITTER_UNIT, Purpose};
use perturb_quantity::Duration;

use super::{Flap, Given, Random, Shape, Step, Timeline};
use crate::compile::shape;
use crate::keys;
use crate::model::Distribution;

/// Turns of all steps at most.
const MAX_EFFECTS: usize = 1_000_000;
/// The longest period that is found by itself, ns.
const MAX_PERIOD: u64 = 1_000_000 * 1_000_000_000;

/// A turn of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Which, from 0.
    pub(crate) turn: u64,
    /// ns since the start.
    pub(crate) begin: u64,
    /// When what was before holds again.
    pub(crate) end: Option<u64>,
}

/// Steps that cannot be laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The one to be changed, from 0.
    pub(crate) step: usize,
    pub(crate) why: Why,
}

/// Why they cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// Two change the same at a time.
    Overlaps { other: usize, key: &'static str },
    /// A ramp from or to no limit, or from bytes to time.
    NoRamp { key: &'static str },
    /// Beyond the repetition or the end.
    Beyond { limit: Duration, word: &'static str },
    /// Random steps without end.
    Endless,
    /// Steps with and without end.
    Mixed,
    /// Something set in the middle of an interval, and nothing at its beginning.
    NoBeginning { key: &'static str },
    /// Too many turns.
    TooMany,
    /// No common period.
    NoPeriod,
}

impl Why {
    /// In a sentence; `place` says where a step stands.
    pub(crate) fn said(&self, place: impl Fn(usize) -> String) -> String {
        match self {
            Self::Overlaps { other, key } => format!(
                "it changes `{key}` while the step on {} does, or at the same time",
                place(*other)
            ),
            Self::NoRamp { key } => {
                format!("no ramp leads from the `{key}` before it to this one: one has no limit, or another unit")
            }
            Self::Beyond { limit, word } => format!("it reaches beyond {limit}, when the timeline {word}"),
            Self::Endless => "it is random and without end".to_owned(),
            Self::Mixed => "steps that come again without end make the timeline repeat, and this one is at a time of its own, \
                            or reaches beyond its interval"
                .to_owned(),
            Self::NoBeginning { key } => {
                format!("it comes again without end, and no step says what `{key}` is when the interval begins")
            }
            Self::TooMany => format!("the timeline has more than {MAX_EFFECTS} changes"),
            Self::NoPeriod => "the intervals of the steps have no common multiple below 1000000s".to_owned(),
        }
    }

    /// What to do.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Overlaps { .. } => "let one end before the other begins, or make them one step",
            Self::NoRamp { .. } => "give the server such a value to begin with, or leave `over` out",
            Self::Beyond { .. } => "let it end before",
            Self::Endless => {
                "add `repeat` to the timeline, after which the same values come again, or `times`"
            }
            Self::Mixed => {
                "add `repeat` to the timeline, or `times` to the others; let each end within its interval"
            }
            Self::NoBeginning { .. } => "add a step at 0s, or `for`",
            Self::TooMany => "make the intervals longer, or `repeat` shorter",
            Self::NoPeriod => "add `repeat` to the timeline",
        }
    }
}

/// A timeline laid out in time.
#[derive(Debug)]
pub(crate) struct Laid<'t> {
    pub(crate) steps: Vec<(&'t Step, Vec<Effect>)>,
    /// When it begins anew, ns.
    pub(crate) period: Option<u64>,
    /// Whether the period was found, not given.
    pub(crate) found: bool,
    /// When it ends, ns.
    pub(crate) end: Option<u64>,
    pub(crate) draws: Draws,
}

impl<'t> Laid<'t> {
    pub(crate) fn new(timeline: &'t Timeline, seed: u64) -> Result<Self, Conflict> {
        let given = timeline.repeat.map(Duration::nanos);
        let end = timeline.end.map(Duration::nanos);
        let period = if given.is_some() || end.is_some() {
            given
        } else {
            common_period(timeline)?
        };
        let mut laid = Self {
            steps: Vec::with_capacity(timeline.steps.len()),
            period,
            found: period.is_some() && given.is_none(),
            end,
            draws: Draws::new(seed),
        };
        let mut room = MAX_EFFECTS;
        for (index, step) in timeline.steps.iter().enumerate() {
            let effects = laid
                .turns(index, step, &mut room)
                .map_err(|why| Conflict { step: index, why })?;
            laid.steps.push((step, effects));
        }
        Ok(laid)
    }

    fn turns(&self, index: usize, step: &Step, room: &mut usize) -> Result<Vec<Effect>, Why> {
        let limit = self.period.or(self.end).unwrap_or(u64::MAX);
        let beyond = Why::Beyond {
            limit: Duration::from_nanos(limit),
            word: if self.period.is_some() {
                "begins anew"
            } else {
                "ends"
            },
        };
        let mut effects = Vec::new();
        let mut begin = step.at.nanos();
        for turn in 0..step.times.unwrap_or(u64::MAX) {
            let (end, next) = match (&step.flap, &step.every) {
                (Some(Flap { up, down }), _) => {
                    begin = begin.saturating_add(self.draws.duration(up, index, turn, 0));
                    let end = begin.saturating_add(self.draws.duration(down, index, turn, 1));
                    (Some(end), Some(end))
                }
                (None, every) => {
                    let end = step.lasts.map(|lasts| begin.saturating_add(lasts.nanos()));
                    let interval = every
                        .as_ref()
                        .map(|every| self.draws.duration(every, index, turn, 0));
                    (end, interval.map(|interval| begin.saturating_add(interval)))
                }
            };
            let reached = begin.saturating_add(step.over.nanos());
            // Later turns, and dwell times, are cut there; what was written down is not.
            let written = turn == 0 && step.flap.is_none();
            if written && (begin >= limit || reached.max(end.unwrap_or(0)) > limit) {
                return Err(beyond);
            }
            if begin >= limit || reached > limit {
                break;
            }
            *room = room.checked_sub(1).ok_or(Why::TooMany)?;
            let end = end.map(|end| end.min(limit));
            effects.push(Effect { turn, begin, end });
            match next {
                Some(next) => begin = next,
                None => break,
            }
        }
        Ok(effects)
    }
}

/// After which time a timeline repeats whose steps have no end.
fn common_period(timeline: &Timeline) -> Result<Option<u64>, Conflict> {
    let endless = |step: &Step| step.times.is_none() && (step.every.is_some() || step.flap.is_some());
    if !timeline.steps.iter().any(endless) {
        return Ok(None);
    }
    let mut period = 1u64;
    for (index, step) in timeline.steps.iter().enumerate() {
        let refused = |why| Err(Conflict { step: index, why });
        let at = step.at.nanos();
        if !endless(step) {
            if at > 0 || step.lasts.is_some() || step.over > Duration::ZERO || step.times.is_some() {
                return refused(Why::Mixed);
            }
            continue;
        }
        let (interval, reached) = match (&step.flap, step.every) {
            _ if step.change.is_random() => return refused(Why::Endless),
            (
                Some(Flap {
                    up: Given::Fixed(up),
                    down: Given::Fixed(down),
                }),
                _,
            ) => {
                let interval = up.saturating_add(*down).nanos();
                (interval, at.saturating_add(interval))
            }
            (None, Some(Given::Fixed(every))) => {
                let lasts = step.lasts.unwrap_or_default().max(step.over).nanos();
                (every.nanos(), at.saturating_add(lasts.max(1)))
            }
            _ => return refused(Why::Endless),
        };
        if reached > interval {
            return refused(Why::Mixed);
        }
        period = (period / greatest_common_divisor(period, interval)).saturating_mul(interval);
        if period > MAX_PERIOD {
            return refused(Why::NoPeriod);
        }
    }
    Ok(Some(period))
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// What random steps draw.
#[derive(Debug)]
pub(crate) struct Draws {
    salt: u64,
    /// By shape, made when it is drawn from.
    tables: [OnceCell<Option<Box<JitterTable>>>; 4],
}

impl Draws {
    fn new(seed: u64) -> Self {
        Self {
            salt: fate::salt(seed, b"timeline"),
            tables: Default::default(),
        }
    }

    /// An interval or a dwell time, ns.
    fn duration(&self, given: &Given<Duration>, step: usize, turn: u64, purpose: u64) -> u64 {
        let value = self.number(given, Duration::nanos, (step, turn, purpose));
        value.clamp(keys::PERIOD.min.nanos(), keys::PERIOD.max.nanos())
    }

    /// A value of a step's turn, in smallest steps; draws for different purposes (below 8) are independent.
    pub(crate) fn number<Q: Copy>(
        &self,
        given: &Given<Q>,
        number: impl Fn(Q) -> u64,
        (step, turn, purpose): (usize, u64, u64),
    ) -> u64 {
        match *given {
            Given::Fixed(value) => number(value),
            Given::Random(Random { shape, mean, scale }) => {
                let index = turn.wrapping_mul(8).wrapping_add(purpose);
                let draw = fate::draw(self.salt, step as u64, index, Purpose::Jitter);
                self.drawn(shape, number(mean), number(scale), draw)
            }
        }
    }

    fn drawn(&self, form: Shape, mean: u64, scale: u64, draw: u64) -> u64 {
        let (place, distribution) = match form {
            Shape::Uniform => (0, Distribution::Uniform),
            Shape::Normal => (1, Distribution::Normal),
            Shape::Pareto => (2, Distribution::Pareto),
            Shape::ParetoNormal => (3, Distribution::ParetoNormal),
            Shape::Exponential => {
                /// 2^53: what a f64 tells apart.
                const UNIT: f64 = 9_007_199_254_740_992.0;
                let uniform = (draw >> 11) as f64 / UNIT;
                return (-(1.0 - uniform).ln() * mean as f64) as u64;
            }
        };
        let table = self.tables.get(place).map(|table| {
            table.get_or_init(|| shape(&distribution, &crate::Files::default()).ok().map(Box::new))
        });
        let entries = table
            .and_then(Option::as_ref)
            .map_or(&[][..], |table| &table.entries);
        let entry = (draw >> 32) as usize % entries.len().max(1);
        let entry = entries.get(entry).copied().unwrap_or(0);
        let added = i128::from(scale) * i128::from(entry) / i128::from(JITTER_UNIT);
        u64::try_from((i128::from(mean) + added).max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_interval_stays_in_its_range() {
        // One draw of six is below 0.
        let normal = |mean| {
            Given::Random(Random {
                shape: Shape::Normal,
                mean,
                scale: mean,
            })
        };
        let draws = Draws::new(1);
        for (end, mean) in [
            (keys::PERIOD.min, Duration::from_millis(1)),
            (keys::PERIOD.max, keys::PERIOD.max),
        ] {
            let drawn: Vec<u64> = (0..1000)
                .map(|turn| draws.duration(&normal(mean), 0, turn, 0))
                .collect();
            let range = keys::PERIOD.min.nanos()..=keys::PERIOD.max.nanos();
            assert!(drawn.iter().all(|value| range.contains(value)));
            assert!(drawn.contains(&end.nanos()));
        }
    }
}
