//! A server that changes, byte by byte, and what the function says beside it.

use perturb_common::{
    departure::{Load, Outcome, Service},
    timeline::{End, Gate, Rate, Room, Segment, Timeline},
    units::Ticks,
};

/// Parts of a tick in which a byte's time is a whole number: G's unit.
const FINE: f64 = 16_384.0;
/// What roundings amount to: bytes, and ticks.
const WORK_ERROR: f64 = 4.0 / 65_536.0;
const TIME_ERROR: f64 = 2.0;
/// Segments that the simulation walks for a packet.
pub(crate) const MOST_STEPS: u32 = 100_000;

/// Walks the timeline from an instant on, since its start, in ticks.
struct Walk<'a> {
    timeline: &'a Timeline,
    /// Of the turn before which it stands.
    turn: f64,
    index: usize,
    now: f64,
}

impl<'a> Walk<'a> {
    fn new(timeline: &'a Timeline, now: f64) -> Self {
        let turn = match timeline.end {
            End::Loop(period) => (now / period.0 as f64).floor() * period.0 as f64,
            End::Hold => 0.0,
        };
        let mut walk = Self {
            timeline,
            turn,
            index: 0,
            now,
        };
        while walk.end() <= now {
            walk.step();
        }
        walk
    }

    fn segment(&self) -> &'a Segment {
        &self.timeline.segments[self.index]
    }

    fn end(&self) -> f64 {
        let own = match (self.timeline.segments.get(self.index + 1), self.timeline.end) {
            (Some(next), _) => next.at.0 as f64,
            (None, End::Loop(period)) => period.0 as f64,
            (None, End::Hold) => f64::INFINITY,
        };
        self.turn + own
    }

    fn step(&mut self) {
        let end = self.end();
        self.index += 1;
        if self.index == self.timeline.segments.len() {
            (self.index, self.turn) = (0, end);
        }
    }

    /// When so many bytes have been transmitted; `None` if it would take too long to find out.
    fn transmit(&mut self, bytes: f64) -> Option<f64> {
        let mut left = bytes;
        let mut idle = 0;
        let mut steps = 0;
        while left > 0.0 {
            // One byte, or what there is of it.
            let mut byte = left.min(1.0);
            left -= byte;
            while byte > 0.0 {
                let end = self.end();
                let time = match self.segment().rate {
                    Rate::Free => 0.0,
                    Rate::Stopped => f64::INFINITY,
                    Rate::PerByte(gap) => byte * gap.0 as f64 / FINE,
                };
                if self.now + time <= end && time.is_finite() {
                    (self.now, byte, idle) = (self.now + time, 0.0, 0);
                    break;
                }
                if end.is_infinite() || idle > 2 * self.timeline.segments.len() {
                    return Some(f64::INFINITY);
                }
                steps += 1;
                if steps > MOST_STEPS {
                    return None;
                }
                let done = byte * (end - self.now) / time;
                byte -= done;
                idle = if done > 0.0 { 0 } else { idle + 1 };
                self.now = end;
                self.step();
            }
        }
        Some(self.now)
    }

    /// Bytes transmitted until then.
    fn served(&mut self, until: f64) -> f64 {
        let mut bytes = 0.0;
        while self.now < until {
            let end = self.end().min(until);
            if let Rate::PerByte(gap) = self.segment().rate {
                bytes += (end - self.now) * FINE / gap.0 as f64;
            }
            self.now = end;
            if self.now == self.end() {
                self.step();
            }
        }
        bytes
    }
}

/// When so many bytes that begin then have been transmitted, ticks.
fn finish(timeline: &Timeline, begin: f64, bytes: f64) -> Option<f64> {
    Walk::new(timeline, begin).transmit(bytes)
}

fn in_force(timeline: &Timeline, now: f64) -> &Segment {
    Walk::new(timeline, now).segment()
}

/// How often it begins anew between two instants.
fn turns(timeline: &Timeline, from: f64, to: f64) -> f64 {
    match timeline.end {
        End::Loop(period) if to.is_finite() => (to - from) / period.0 as f64,
        _ => 0.0,
    }
}

/// What the function says of a packet must be what the simulation does. The server is free again at `free`; both by the
/// timeline's clock.
pub(crate) fn compare(
    timeline: &Timeline,
    horizon: Ticks,
    free: u64,
    arrival: u64,
    load: Load,
    outcome: Outcome,
) {
    let start = arrival.max(free);
    let wait = start - arrival;
    if turns(timeline, arrival as f64, start as f64) > MOST_STEPS.into() {
        return;
    }
    let room = in_force(timeline, arrival as f64).room;
    let begun = in_force(timeline, start as f64);
    let begin = (start + begun.gap.0 * load.segments) as f64;
    let bytes = load.bytes as f64;
    let Some(exact) = finish(timeline, begin, bytes) else {
        return;
    };
    // A turn's work is rounded.
    let error = WORK_ERROR + turns(timeline, begin, exact) / 65_536.0;
    let [Some(early), Some(late)] = [-error, error].map(|error| finish(timeline, begin, bytes + error))
    else {
        return;
    };
    let (early, late) = (early - TIME_ERROR, late + TIME_ERROR);
    // Positive if it is too much, by how much.
    let (excess, doubt) = match room {
        Room::Unlimited => (-1.0, 0.0),
        Room::Bytes(room) => {
            let ahead = Walk::new(timeline, arrival as f64).served(start as f64);
            (
                ahead + bytes - room as f64,
                error + turns(timeline, arrival as f64, start as f64) / 65_536.0,
            )
        }
        Room::Wait(room) => (
            exact - begin + wait as f64 - room.0 as f64,
            (late - early).max(4.0 * TIME_ERROR),
        ),
    };
    let spread = Walk::new(timeline, begin).end() < early;
    match outcome {
        Outcome::TailDrop => assert!(excess > -doubt || excess.is_nan(), "dropped with room: {excess}"),
        Outcome::Down => assert_eq!(begun.gate, Gate::Drop),
        Outcome::Early => unreachable!("a timeline has no law"),
        Outcome::BeyondHorizon => {
            assert!(
                wait > horizon.0 || late - arrival as f64 > horizon.0 as f64,
                "within the horizon: {wait} {late}"
            );
        }
        Outcome::Served(service) => {
            assert!(excess <= doubt, "admitted without room: {excess}");
            assert_eq!(begun.gate, Gate::Open);
            assert!(wait <= horizon.0, "beyond the horizon");
            let Service { backlog, free, next } = service;
            assert_eq!(backlog.0, wait);
            let end = free.0 as f64;
            if end.is_finite() && free.0 != u64::MAX {
                assert!(
                    (early..=late).contains(&end),
                    "at {end}, not in {early}..={late}; exactly {exact}"
                );
                assert!(
                    !spread || end - arrival as f64 <= horizon.0 as f64 + (late - early),
                    "beyond the horizon"
                );
                assert_eq!(next.since(free), in_force(timeline, end).latency);
            } else {
                assert!(exact.is_infinite(), "never, but {exact}");
            }
        }
    }
}
