//! RED (Floyd and Jacobson 1993, as `sch_red` of Linux has it): packets are dropped or marked at random as they come, by a moving
//! average of the queue.
//!
//! Model: the queue that a packet finds is the time that it will wait. The average moves with each packet by a weight of 2^-W; a
//! queue that was idle counts as if small packets had come one after another. Between the thresholds one packet of so many is chosen
//! that drops are even: one draw for each, compared with the probability times the packets since the last (method 2).

use super::{Head, LAW_ECN, Law, Verdict, pie::PROBABILITY_BITS};
use crate::fate::{Purpose, draw};

/// Bits behind the point of [`Red::average`].
pub const FRACTION: u32 = 20;
/// The longest wait that counts, above every horizon: 68 s.
pub const LONGEST: u64 = (1 << 42) - 1;
/// The largest W.
pub const MOST_WEIGHT: u32 = 16;
/// So many packets count as passed since the last that was dropped.
const MOST_COUNT: u64 = 1 << 20;

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
    pub count: u64,
    /// The draw, of 2^52.
    pub random: u64,
    /// When the last packet came, ticks: idle time before it has counted.
    pub last: u64,
    /// Zero.
    pub reserved: u64,
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
        let scaled = wide((average - min) * red.count, law.probability);
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
