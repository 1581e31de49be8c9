//! RED (Floyd and Jacobson 1993, as `sch_red` of Linux has it): packets are dropped or marked at random as they come, by a moving
//! average of the queue.
//!
//! Model: the queue that a packet finds is the time that it will wait. The average moves with each packet by a weight of 2^-W; a
//! queue that was idle counts as if small packets had come one after another. Between the thresholds one packet of so many is chosen
//! that drops are even: one draw for each, compared with the probability times the packets since the last (method 2).
//!
//! If it is adaptive (Floyd, Gummadi and Shenker 2001), max_p moves every half second of the clock, by the average of then: made up
//! for when the next packet comes ([`update`]). As in `sch_red`, a draw is compared with the max_p at which it was drawn.

use super::{Head, LAW_ADAPTIVE, LAW_ECN, Law, Verdict, pie::PROBABILITY_BITS};
use crate::{
    fate::{Purpose, draw},
    units::{Instant, Ticks},
};

/// Bits behind the point of [`Red::average`].
pub const FRACTION: u32 = 20;
/// The longest wait that counts, above every horizon: 68 s.
pub const LONGEST: u64 = (1 << 42) - 1;
/// The largest W.
pub const MOST_WEIGHT: u32 = 16;
/// So many packets count as passed since the last that was dropped.
const MOST_COUNT: u32 = 1 << 20;
/// From one change of max_p to the next.
pub const EVERY: Ticks = Ticks(32_000_000_000);
/// 1 % of 2^32: the largest step of max_p, and that below which it does not fall any more.
const PERCENT: u32 = 42_949_673;
/// That above which it does not grow any more.
const MOST_P: u32 = 50 * PERCENT;

/// What RED remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Red {
    /// Packets that it has judged: the number of the next one's draw.
    pub arrivals: u64,
    /// The average wait, 2^-20 ticks.
    pub average: u64,
    /// 1 more than the packets since the last one that was dropped or marked, or since the draw; 0 if none was drawn.
    pub count: u32,
    /// max_p as of the draw, of 2^32; 0 if it is not adaptive.
    pub drawn: u32,
    /// The draw, of 2^52.
    pub random: u64,
    /// When the last packet came, ticks: idle time before it has counted.
    pub last: u64,
    /// The half second, by the clock, in which max_p has moved last.
    pub adapted: u32,
    /// max_p, of 2^32; 0 if no packet has come yet, or if it is not adaptive.
    pub max_p: u32,
}

/// The next move of max_p of those until `now`, at a server that is free again at `free` and at which `small` is what
/// [`Law::small`] takes; whether there may be another.
#[inline(always)]
#[must_use]
pub fn update(law: &Law, red: &mut Red, free: Instant, now: Instant, small: Ticks) -> bool {
    if law.flags & LAW_ADAPTIVE == 0 {
        red.max_p = 0;
        return false;
    }
    let current = (now.0 / EVERY.0) as u32;
    if red.max_p == 0 {
        let initial = law.probability >> (PROBABILITY_BITS - 32);
        red.max_p = if initial > u32::MAX as u64 {
            u32::MAX
        } else {
            initial as u32
        };
        red.drawn = red.max_p;
        red.adapted = current;
        return false;
    }
    // No panic for what no law is.
    if red.adapted >= current || law.weight > MOST_WEIGHT as u64 || law.target.0 >= law.burst.0 {
        return false;
    }
    let next = red.adapted + 1;
    let at = next as u64 * EVERY.0;
    let average = average_at(red, at, free.0, small.0, law.weight as u32) >> FRACTION;
    let fifth = (law.burst.0 - law.target.0) / 5;
    if average > law.target.0 + 3 * fifth {
        if red.max_p <= MOST_P {
            let quarter = red.max_p / 4;
            red.max_p += if quarter < PERCENT { quarter } else { PERCENT };
        }
    } else if average < law.target.0 + 2 * fifth {
        if red.max_p < PERCENT {
            // The average only falls until a packet comes: nothing changes any more.
            red.adapted = current;
            return false;
        }
        red.max_p = red.max_p / 10 * 9;
    }
    red.adapted = next;
    true
}

/// The average at a time before the next packet, which leaves it as it is. A dropped packet leaves the server idle, but what was idle
/// before it has counted.
#[inline(always)]
const fn average_at(red: &Red, at: u64, free: u64, small: u64, weight: u32) -> u64 {
    if free >= at {
        return red.average;
    }
    let since = if free > red.last { free } else { red.last };
    faded(red.average, at.saturating_sub(since), small, weight)
}

/// What it says of a packet that comes.
#[inline(always)]
#[must_use]
pub fn judge(law: &Law, red: &mut Red, head: Head) -> Verdict {
    let number = red.arrivals;
    red.arrivals = number.wrapping_add(1);
    let (min, max) = (law.target.0, law.burst.0);
    // No panic for what no law is.
    if law.weight > MOST_WEIGHT as u64 || min >= max || max > LONGEST {
        return Verdict::Pass;
    }
    let weight = law.weight as u32;
    let now = head.start.0.saturating_sub(head.sojourn.0);
    // A dropped packet leaves the server idle, but what was idle before it has counted.
    let counted = now.saturating_sub(red.last);
    let idle = if head.idle.0 < counted {
        head.idle.0
    } else {
        counted
    };
    if red.last < now {
        red.last = now;
    }
    red.average = if head.sojourn.0 == 0 {
        faded(red.average, idle, head.small.0, weight)
    } else {
        let wait = if head.sojourn.0 > LONGEST {
            LONGEST
        } else {
            head.sojourn.0
        };
        (red.average as i64 + (((wait << FRACTION) as i64 - red.average as i64) >> weight)) as u64
    };
    let average = red.average >> FRACTION;
    let marks = law.flags & LAW_ECN != 0 && head.ecn != 0;
    if average < min {
        red.count = 0;
        return Verdict::Pass;
    }
    if average >= max {
        red.count = 0;
        return if marks { Verdict::MarkAbove } else { Verdict::Drop };
    }
    if red.count != 0 {
        let max_p = if law.flags & LAW_ADAPTIVE != 0 {
            (red.drawn as u64) << (PROBABILITY_BITS - 32)
        } else {
            law.probability
        };
        let scaled = wide((average - min) * red.count as u64, max_p);
        let random = wide(red.random, max - min);
        if scaled.0 < random.0 || (scaled.0 == random.0 && scaled.1 < random.1) {
            if red.count < MOST_COUNT {
                red.count += 1;
            }
            return Verdict::Pass;
        }
    }
    let first = red.count == 0;
    red.count = 1;
    red.drawn = red.max_p;
    red.random = draw(head.salt, 0, number, Purpose::Queue) >> (64 - PROBABILITY_BITS);
    if first {
        Verdict::Pass
    } else if marks {
        Verdict::Mark
    } else {
        Verdict::Drop
    }
}

/// `average * (1 - 2^-weight)^(idle / small)`; what is left of a small packet counts in proportion, as in `sch_red`. At once where
/// packets take no time.
#[inline(always)]
const fn faded(average: u64, idle: u64, small: u64, weight: u32) -> u64 {
    if small == 0 {
        return 0;
    }
    let average = decayed(average, idle / small, weight);
    if small > LONGEST {
        return average;
    }
    // Twenty bits of the quotient, and twenty more.
    let rest = (idle % small) << 20;
    let part = ((rest / small) << 20) + ((rest % small) << 20) / small;
    average - (wide(average, part << 20).0 >> weight)
}

/// `average * (1 - 2^-weight)^steps`.
#[inline(always)]
const fn decayed(average: u64, steps: u64, weight: u32) -> u64 {
    // Below 1 of 2^62: e^-64.
    if steps >> (weight + 6) != 0 || weight == 0 {
        return if steps == 0 { average } else { 0 };
    }
    let (mut average, mut left) = (average, steps);
    let mut factor = (1 << 60) - (1 << (60 - weight));
    let mut turn = 0;
    while turn < MOST_WEIGHT + 6 && left != 0 {
        if left & 1 != 0 {
            average = wide(average, factor).0;
        }
        factor = wide(factor, factor).0;
        left >>= 1;
        turn += 1;
    }
    average
}

/// The product of two numbers below 2^62, in units of 2^60, and its rest. By parts of 30 bits: the BPF target has no 128-bit
/// multiplication, as which the compiler takes parts of 32.
#[inline(always)]
const fn wide(a: u64, b: u64) -> (u64, u64) {
    const PART: u64 = (1 << 30) - 1;
    let (a_high, a_low) = (a >> 30, a & PART);
    let (b_high, b_low) = (b >> 30, b & PART);
    let middle = a_high * b_low + a_low * b_high;
    let low = a_low * b_low + ((middle & PART) << 30);
    (
        a_high * b_high + (middle >> 30) + (low >> 60),
        low & ((1 << 60) - 1),
    )
}

#[cfg(test)]
mod tests {
    use super::wide;

    #[test]
    fn products_are_exact() {
        const MOST: u64 = (1 << 62) - 1;
        let mut word = 1u64;
        for _ in 0..10_000 {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) + 1;
            for (a, b) in [
                (word & MOST, word >> 3),
                (MOST, word & MOST),
                (word >> 32, MOST),
                (MOST, MOST),
            ] {
                let product = u128::from(a) * u128::from(b);
                assert_eq!(
                    wide(a, b),
                    ((product >> 60) as u64, product as u64 & ((1 << 60) - 1))
                );
            }
        }
    }
}
