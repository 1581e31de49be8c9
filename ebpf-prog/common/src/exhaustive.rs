//! One step of the recursion against exact arithmetic: at eight bits for all numbers, from the same source with its word
//! exchanged, and at 64 bits around the powers of two. What is shown at both widths: no input overflows (these are builds
//! that panic if one does), and the step is monotone: who comes later, finds a server busier, or brings more leaves no
//! earlier.

extern crate std;

use std::{boxed::Box, ops::RangeInclusive, vec};

use proptest::prelude::*;

#[path = "narrow.rs"]
mod narrow;

/// What a width is like.
#[derive(Clone, Copy)]
struct Width {
    bits: u32,
    tick_shift: u32,
    split: u32,
}

const NARROW: Width = Width {
    bits: 8,
    tick_shift: narrow::word::TICK_SHIFT,
    split: narrow::word::SPLIT,
};
const WIDE: Width = Width {
    bits: 64,
    tick_shift: crate::word::TICK_SHIFT,
    split: crate::word::SPLIT,
};

/// All that a step depends on.
#[derive(Clone, Copy, Debug)]
struct Step<T = u64> {
    gap: T,
    per_byte: T,
    latency: T,
    buffer: T,
    horizon: T,
    free: T,
    arrival: T,
    bytes: T,
    segments: T,
}

/// Which of a step's numbers is its arrival.
const ARRIVAL: usize = 6;

impl<T> From<[T; 9]> for Step<T> {
    fn from(numbers: [T; 9]) -> Self {
        let [
            gap,
            per_byte,
            latency,
            buffer,
            horizon,
            free,
            arrival,
            bytes,
            segments,
        ] = numbers;
        Self {
            gap,
            per_byte,
            latency,
            buffer,
            horizon,
            free,
            arrival,
            bytes,
            segments,
        }
    }
}

/// A served packet's backlog, the new `free`, and `next`; or why it is dropped.
type Came = Result<[u64; 3], &'static str>;

impl Width {
    fn most(self) -> u128 {
        (1 << self.bits) - 1
    }

    /// A number, or the largest that there is.
    fn fit(self, number: u128) -> u64 {
        number.min(self.most()) as u64
    }

    fn transmit(self, per_byte: u64, bytes: u64) -> u64 {
        if bytes >> (2 * self.split - self.tick_shift) != 0 {
            return self.fit(u128::MAX);
        }
        let per_byte = u128::from(per_byte).min(self.most() >> self.split);
        self.fit((per_byte * u128::from(bytes)) >> (self.split - self.tick_shift))
    }

    /// The recursion as the module's head writes it, in exact numbers.
    fn departure(self, step: Step) -> Came {
        let backlog = step.free.saturating_sub(step.arrival);
        let transmit = u128::from(self.transmit(step.per_byte, step.bytes));
        let buffer = u128::from(step.buffer);
        if buffer != self.most() && u128::from(backlog) + transmit > buffer {
            return Err("tail drop");
        }
        if backlog > step.horizon {
            return Err("beyond the horizon");
        }
        let gaps = u128::from(step.gap) * u128::from(step.segments);
        let free = u128::from(step.arrival.max(step.free)) + gaps + transmit;
        let next = free + u128::from(step.latency);
        Ok([u128::from(backlog), free, next].map(|number| self.fit(number)))
    }
}

/// A step as the source takes it, at a width.
macro_rules! at {
    ($step:expr, $word:ty, $path:ident) => {{
        use $path::{departure::*, ticks::*};
        let step: Step = $step;
        let server = Server {
            gap: Ticks(step.gap as $word),
            per_byte: GapPerByte(step.per_byte as $word),
            latency: Ticks(step.latency as $word),
            buffer: Ticks(step.buffer as $word),
            horizon: Ticks(step.horizon as $word),
        };
        let load = Load {
            bytes: step.bytes as $word,
            segments: step.segments as $word,
        };
        let (free, arrival) = (Instant(step.free as $word), Instant(step.arrival as $word));
        match departure(&server, free, arrival, load) {
            Outcome::Served(service) => {
                Ok([service.backlog.0, service.free.0, service.next.0].map(u64::from))
            }
            Outcome::TailDrop => Err("tail drop"),
            Outcome::BeyondHorizon => Err("beyond the horizon"),
            Outcome::Down | Outcome::Early => Err("down, or early"),
        }
    }};
}

fn narrow(step: Step) -> Came {
    at!(step, u8, narrow)
}

#[allow(clippy::useless_conversion, reason = "the other width needs it")]
fn wide(step: Step) -> Came {
    at!(step, u64, crate)
}

const ALL: RangeInclusive<u8> = 0..=u8::MAX;

/// A step without limits.
fn unlimited(free: u8, arrival: u8, gap: u8, latency: u8) -> Step {
    Step {
        gap: gap.into(),
        per_byte: 0,
        latency: latency.into(),
        buffer: u8::MAX.into(),
        horizon: u8::MAX.into(),
        free: free.into(),
        arrival: arrival.into(),
        bytes: 0,
        segments: 1,
    }
}

#[test]
fn products_are_exact_for_all_numbers() {
    for a in ALL {
        for b in ALL {
            assert_eq!(
                narrow::ticks::saturating_mul(a, b),
                a.saturating_mul(b),
                "{a} * {b}"
            );
            let transmitted = narrow::ticks::GapPerByte(a).transmit(b);
            assert_eq!(
                u64::from(transmitted.0),
                NARROW.transmit(a.into(), b.into()),
                "{a}, {b} bytes"
            );
        }
    }
}

/// More bytes or a slower server never take less time.
#[test]
fn transmission_is_monotone_for_all_numbers() {
    let transmit = |per_byte, bytes| narrow::ticks::GapPerByte(per_byte).transmit(bytes);
    for a in ALL {
        for b in 1..=u8::MAX {
            assert!(transmit(a, b) >= transmit(a, b - 1), "{a}, {b} bytes");
            assert!(transmit(b, a) >= transmit(b - 1, a), "{b}, {a} bytes");
        }
    }
}

/// All occupancies (a gap stands for any), arrivals and states. What follows is monotone in each of them if it is from each
/// number to the next.
#[test]
fn a_service_is_exact_and_monotone_for_all_numbers() {
    let mut shorter: Option<Box<[[u8; 256]]>> = None;
    for gap in ALL {
        let mut ends = vec![[0; 256]; 256].into_boxed_slice();
        for free in ALL {
            for arrival in ALL {
                let step = unlimited(free, arrival, gap, 0);
                let came = narrow(step);
                assert_eq!(came, NARROW.departure(step), "{step:?}");
                let Ok([_, end, _]) = came else {
                    panic!("dropped without a limit: {step:?}")
                };
                let (row, column) = (usize::from(free), usize::from(arrival));
                ends[row][column] = end as u8;
                let end = ends[row][column];
                assert!(end >= free && end >= arrival, "{step:?}");
                assert!(
                    column == 0 || end >= ends[row][column - 1],
                    "who comes later leaves earlier: {step:?}"
                );
                assert!(
                    row == 0 || end >= ends[row - 1][column],
                    "who waits longer leaves earlier: {step:?}"
                );
                let faster = shorter.as_ref().map_or(0, |ends| ends[row][column]);
                assert!(end >= faster, "who takes longer leaves earlier: {step:?}");
            }
        }
        shorter = Some(ends);
    }
}

/// All latencies behind all states.
#[test]
fn a_latency_is_exact_for_all_numbers() {
    for free in ALL {
        for latency in ALL {
            let step = unlimited(free, 0, 0, latency);
            assert_eq!(narrow(step), NARROW.departure(step), "{step:?}");
        }
    }
}

/// All backlogs, buffers and times of transmission that there are; a buffer that admits a packet has room for it, and a
/// larger one admits it, too.
#[test]
fn a_buffer_admits_what_fits_for_all_numbers() {
    let mut loads = vec![None; 256];
    for per_byte in ALL {
        for bytes in ALL {
            loads[NARROW.transmit(per_byte.into(), bytes.into()) as usize] = Some((per_byte, bytes));
        }
    }
    let loads: vec::Vec<(u8, u8)> = loads.into_iter().flatten().collect();
    assert!(loads.len() > 100, "only {} different times", loads.len());
    for (per_byte, bytes) in loads {
        for free in ALL {
            let mut admitted = false;
            for buffer in ALL {
                let step = Step {
                    per_byte: per_byte.into(),
                    buffer: buffer.into(),
                    bytes: bytes.into(),
                    ..unlimited(free, 0, 0, 0)
                };
                let came = narrow(step);
                assert_eq!(came, NARROW.departure(step), "{step:?}");
                assert!(came.is_ok() || !admitted, "a larger buffer admits less: {step:?}");
                admitted = came.is_ok();
            }
            assert!(admitted, "a buffer without limit has one");
        }
    }
}

/// All backlogs and horizons.
#[test]
fn a_horizon_bounds_the_wait_for_all_numbers() {
    for free in ALL {
        for horizon in ALL {
            let step = Step {
                horizon: horizon.into(),
                ..unlimited(free, 0, 0, 0)
            };
            assert_eq!(narrow(step), NARROW.departure(step), "{step:?}");
        }
    }
}

/// Everything at once, at the numbers where arithmetic turns.
#[test]
fn nothing_depends_on_the_rest() {
    const TURNS: [u64; 5] = [0, 1, 31, 128, 255];
    let mut numbers = [0; 9];
    for number in 0..TURNS.len().pow(9) {
        let mut rest = number;
        for input in &mut numbers {
            *input = TURNS[rest % TURNS.len()];
            rest /= TURNS.len();
        }
        let step = Step::from(numbers);
        assert_eq!(narrow(step), NARROW.departure(step), "{step:?}");
    }
}

/// Numbers around the powers of two, and any.
fn edge() -> impl Strategy<Value = u64> {
    let around = (0..64u32, -2..=2i64).prop_map(|(bit, off)| (1u64 << bit).wrapping_add_signed(off));
    prop_oneof![3 => around, 1 => any::<u64>(), 1 => (0..64u32, any::<u64>()).prop_map(|(shift, number)| number >> shift)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn at_64_bits_a_step_is_exact_and_monotone(numbers in prop::array::uniform9(edge()), more in 0..9usize, by in edge()) {
        let step = Step::from(numbers);
        let came = wide(step);
        prop_assert_eq!(came, WIDE.departure(step));
        let mut later = numbers;
        later[more] = later[more].saturating_add(by);
        let later = Step::from(later);
        let (Ok(before), Ok(after)) = (came, wide(later)) else { return Ok(()) };
        // The backlog falls as arrivals come later; nothing else does.
        prop_assert!(after[1] >= before[1] && after[2] >= before[2], "{:?} {:?}", step, later);
        prop_assert!(more == ARRIVAL || after[0] >= before[0], "{:?} {:?}", step, later);
    }
}
