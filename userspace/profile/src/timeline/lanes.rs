//! What a server is from one instant to the next: the values of its keys, each changed by steps that do not overlap.

use std::collections::{BTreeMap, BTreeSet};

use perturb_quantity::{Duration, Rate, Size};

use super::effects::{Conflict, Effect, Laid, Why};
use super::{Down, Step, Subject, Timeline};
use crate::keys;
use crate::model::{Name, Overhead, Profile, Server, ServerId, Volume};

/// Pieces of a ramp: of this length, ns, and so many at most.
const PIECE: u64 = 1_000_000;
const PIECES: u64 = 1000;

/// A key that changes, and the unit of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    /// bit/s; 0 stops the server, [`Column::UNLIMITED`] is no limit.
    Bandwidth,
    /// ns.
    Latency,
    /// ns per packet.
    Gap,
    /// Share in 10^-9.
    Loss,
    /// Scale in ns.
    Jitter,
    /// Bytes.
    BufferBytes,
    /// ns.
    BufferDelay,
    /// 0 up, 1 dropping, 2 holding.
    Down,
    /// ns per wire packet.
    Send,
    /// ns per wire packet.
    Receive,
}

impl Column {
    /// As a bandwidth or a buffer: no limit.
    pub(crate) const UNLIMITED: u64 = u64::MAX;

    /// The key that says it.
    fn key(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Latency => "latency",
            Self::Gap => "gap",
            Self::Loss => "loss",
            Self::Jitter => "jitter",
            Self::BufferBytes | Self::BufferDelay => "buffer",
            Self::Down => "down",
            Self::Send | Self::Receive => "overhead",
        }
    }

    /// Columns of which one takes the place of the other are one lane.
    fn lane(self) -> Self {
        match self {
            Self::BufferDelay => Self::BufferBytes,
            other => other,
        }
    }
}

/// What a server and its host's overhead are for a while, in the units of [`Column`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) bandwidth: u64,
    pub(crate) latency: u64,
    pub(crate) gap: u64,
    pub(crate) loss: u64,
    pub(crate) jitter: u64,
    pub(crate) buffer: Option<Volume>,
    pub(crate) down: Option<Down>,
    pub(crate) overhead: [u64; 2],
}

impl Values {
    pub(crate) fn of(server: &Server, overhead: &Overhead) -> Self {
        Self {
            bandwidth: server.bandwidth.map_or(Column::UNLIMITED, Rate::bits_per_second),
            latency: server.latency.nanos(),
            gap: server.gap.nanos(),
            loss: server.loss.random.billionths(),
            jitter: server.jitter.as_ref().map_or(0, |jitter| jitter.scale.nanos()),
            buffer: server.buffer.volume,
            down: None,
            overhead: [overhead.send.nanos(), overhead.receive.nanos()],
        }
    }

    pub(crate) fn set(&mut self, column: Column, value: u64) {
        match column {
            Column::Bandwidth => self.bandwidth = value,
            Column::Latency => self.latency = value,
            Column::Gap => self.gap = value,
            Column::Loss => self.loss = value,
            Column::Jitter => self.jitter = value,
            Column::BufferBytes if value == Column::UNLIMITED => self.buffer = None,
            Column::BufferBytes => self.buffer = Some(Volume::Bytes(Size::from_bytes(value))),
            Column::BufferDelay => self.buffer = Some(Volume::Delay(Duration::from_nanos(value))),
            Column::Down => {
                self.down = match value {
                    0 => None,
                    1 => Some(Down::Drop),
                    _ => Some(Down::Hold),
                }
            }
            Column::Send => self.overhead[0] = value,
            Column::Receive => self.overhead[1] = value,
        }
    }

    /// The value of a lane, and its unit.
    fn get(&self, lane: Column) -> (Column, u64) {
        let value = match lane {
            Column::Bandwidth => self.bandwidth,
            Column::Latency => self.latency,
            Column::Gap => self.gap,
            Column::Loss => self.loss,
            Column::Jitter => self.jitter,
            Column::BufferBytes | Column::BufferDelay => return room(self.buffer),
            Column::Down => self.down.map_or(0, number),
            Column::Send => self.overhead[0],
            Column::Receive => self.overhead[1],
        };
        (lane, value)
    }
}

fn room(buffer: Option<Volume>) -> (Column, u64) {
    match buffer {
        None => (Column::BufferBytes, Column::UNLIMITED),
        Some(Volume::Bytes(size)) => (Column::BufferBytes, size.bytes()),
        Some(Volume::Delay(delay)) => (Column::BufferDelay, delay.nanos()),
    }
}

fn number(down: Down) -> u64 {
    match down {
        Down::Drop => 1,
        Down::Hold => 2,
    }
}

/// From an instant on, ns, a column has a value.
type Piece = (u64, (Column, u64));

/// A turn of a step for one key.
struct Turn {
    step: usize,
    effect: Effect,
    over: u64,
    to: (Column, u64),
}

impl Laid<'_> {
    /// What something is from each instant on, ns; the first is 0. `base` is what it is without steps.
    pub(crate) fn states(
        &self,
        base: Values,
        applies: impl Fn(&Subject) -> bool,
    ) -> Result<Vec<(u64, Values)>, Conflict> {
        let mut lanes: BTreeMap<Column, Vec<Turn>> = BTreeMap::new();
        for (index, (step, effects)) in self.steps.iter().enumerate() {
            if !applies(&step.subject) {
                continue;
            }
            for &effect in effects {
                for to in self.changed(index, step, effect.turn) {
                    lanes.entry(to.0.lane()).or_default().push(Turn {
                        step: index,
                        effect,
                        over: step.over.nanos(),
                        to,
                    });
                }
            }
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for (lane, mut turns) in lanes {
            turns.sort_by_key(|turn| turn.effect.begin);
            pieces.extend(self.lane(base.get(lane), &turns)?);
        }
        pieces.sort_by_key(|&(at, _)| at);
        let mut states = vec![(0, base)];
        let mut values = base;
        for (at, (column, value)) in pieces {
            values.set(column, value);
            put(&mut states, at, values);
        }
        if let Some(end) = self.end {
            put(&mut states, end, base);
        }
        states.dedup_by(|next, before| next.1 == before.1);
        Ok(states)
    }

    /// What a step changes at a turn.
    pub(super) fn changed(&self, index: usize, step: &Step, turn: u64) -> Vec<(Column, u64)> {
        let change = &step.change;
        let time = |given, purpose, bounds: keys::Bounds<Duration>| {
            let value = self.draws.number(given, Duration::nanos, (index, turn, purpose));
            value.clamp(bounds.min.nanos(), bounds.max.nanos())
        };
        let mut changed = Vec::new();
        if let Some(given) = &change.bandwidth {
            let value = self.draws.number(given, Rate::bits_per_second, (index, turn, 2));
            let keys::Bounds { min, max } = keys::BANDWIDTH;
            let value = value.clamp(min.bits_per_second(), max.bits_per_second());
            changed.push((Column::Bandwidth, value));
        }
        if let Some(given) = &change.latency {
            changed.push((Column::Latency, time(given, 3, keys::LATENCY)));
        }
        if let Some(given) = &change.gap {
            changed.push((Column::Gap, time(given, 4, keys::GAP)));
        }
        changed.extend(change.loss.map(|loss| (Column::Loss, loss.billionths())));
        changed.extend(change.jitter.map(|scale| (Column::Jitter, scale.nanos())));
        changed.extend(change.buffer.map(|buffer| room(Some(buffer))));
        changed.extend(change.down.map(|down| (Column::Down, number(down))));
        if let Some(overhead) = change.overhead {
            changed.push((Column::Send, overhead.send.nanos()));
            changed.push((Column::Receive, overhead.receive.nanos()));
        }
        changed
    }

    /// The values of one key by time.
    fn lane(&self, base: (Column, u64), turns: &[Turn]) -> Result<Vec<Piece>, Conflict> {
        let mut pieces: Vec<Piece> = Vec::new();
        // What holds when nothing that passes does; until when something does; the turn before.
        let (mut held, mut busy, mut last) = (base, 0, None::<&Turn>);
        for turn in turns {
            let &Turn {
                step,
                effect: Effect { begin, end, .. },
                over,
                to,
            } = turn;
            let refused = |why| Err(Conflict { step, why });
            let key = to.0.key();
            if let Some(before) = last
                && (begin < busy || begin == before.effect.begin)
            {
                if before.step != step {
                    let (other, step) = (before.step.min(step), before.step.max(step));
                    let why = Why::Overlaps { other, key };
                    return Err(Conflict { step, why });
                }
                // It comes again before it has ended.
                while pieces.last().is_some_and(|&(at, _)| at >= begin) {
                    pieces.pop();
                }
            }
            if self.found && end.is_none() && begin > 0 && last.is_none() {
                return refused(Why::NoBeginning { key });
            }
            if over > 0 {
                if held.0 != to.0 || [held.1, to.1].contains(&Column::UNLIMITED) {
                    return refused(Why::NoRamp { key });
                }
                pieces.extend(ramp(begin, over, held.1, to.1).map(|(at, value)| (at, (to.0, value))));
            }
            busy = begin.saturating_add(over);
            pieces.push((busy, to));
            match end {
                Some(end) => {
                    pieces.push((end, held));
                    busy = end;
                }
                None => held = to,
            }
            last = Some(turn);
        }
        // What begins anew is what the server's keys say, or its first steps.
        if let Some(period) = self.period {
            pieces.retain(|&(at, _)| at < period);
        }
        Ok(pieces)
    }
}

/// Pieces of constant value with the integral of the straight line.
fn ramp(begin: u64, over: u64, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let count = (over / PIECE).clamp(1, PIECES);
    let part = move |piece: u64| (u128::from(over) * u128::from(piece) / u128::from(count)) as u64;
    (0..count).map(move |piece| {
        let (first, last) = (part(piece), part(piece + 1));
        let middle = i128::from(first) + i128::from(last);
        let rise = (i128::from(to) - i128::from(from)) * middle / (2 * i128::from(over));
        let value = u64::try_from((i128::from(from) + rise).max(0)).unwrap_or(u64::MAX);
        (begin + first, value)
    })
}

/// From `at` on it is `values`.
fn put(states: &mut Vec<(u64, Values)>, at: u64, values: Values) {
    match states.last_mut() {
        Some(last) if last.0 == at => last.1 = values,
        _ => states.push((at, values)),
    }
}

/// Whether the steps of `timeline` fit each other, as far as that can be said without the hosts of a topology.
pub(crate) fn check(profile: &Profile, timeline: &Timeline) -> Result<(), Conflict> {
    let laid = Laid::new(timeline, profile.seed)?;
    let none = Overhead::default();
    let subjects = || timeline.steps.iter().map(|step| &step.subject);
    let servers: BTreeSet<ServerId> = subjects()
        .filter_map(|subject| match subject {
            Subject::Servers(ids) => Some(ids),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    for id in servers {
        if let Some((_, server)) = profile.server(id) {
            laid.states(Values::of(server, &none), |subject| subject.has(id))?;
        }
    }
    let names: BTreeSet<&Name> = subjects()
        .filter_map(|subject| match subject {
            Subject::Links(names) => Some(names),
            _ => None,
        })
        .flatten()
        .collect();
    let links = profile
        .topology
        .iter()
        .flat_map(|topology| topology.layout.links());
    for (number, link) in (1..).zip(links) {
        for name in names.iter().map(|&name| Some(name)).chain([None]) {
            laid.states(Values::of(link, &none), |subject| match subject {
                Subject::Links(names) => names.is_empty() || name.is_some_and(|name| names.contains(name)),
                Subject::Level(level) => name.is_none() && *level == number,
                _ => false,
            })?;
        }
    }
    let host = Values::of(&Server::default(), &profile.overhead);
    laid.states(host, |subject| *subject == Subject::Overhead)?;
    Ok(())
}
