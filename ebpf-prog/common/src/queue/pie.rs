//! PIE (RFC 8033): packets are dropped or marked at random as they come, by a probability that a controller of the queueing delay
//! moves every T_UPDATE.
//!
//! Model: between two arrivals the server only drains, so the work at each update is known, `free - time`; the updates since the
//! last packet are made up for when the next one comes ([`update`]), and nothing has to wake up for them. The updates lie T_UPDATE
//! apart, from the first packet on. The queueing delay at an update is that work less half a full packet: what is in service, the
//! RFC's `queue_` holds no more, and of it half is left in the mean.
//!
//! Of the RFC's optional parts there are ECN, the cap of 2 % on a step, and derandomization if asked for; not the rate's estimate,
//! which is known, nor the switching on above a third of the buffer.

use super::{Head, LAW_DERANDOMIZE, LAW_ECN, Law, Verdict};
use crate::{
    fate::{Purpose, draw},
    units::{Instant, Ticks},
};

/// log2 of the units in which a probability of 1 is counted.
pub const PROBABILITY_BITS: u32 = 52;
/// A probability of 1.
pub const ONE: u64 = 1 << PROBABILITY_BITS;
/// alpha, 0.125 Hz, in 2^-72 per tick.
const ALPHA: u64 = 9_223_372_037;
/// beta, 1.25 Hz, in 2^-72 per tick.
const BETA: u64 = 92_233_720_369;
/// The longest queueing delay that counts, above every horizon: 68 s.
const LONGEST: u64 = (1 << 42) - 1;
/// The shortest T_UPDATE, by [`super::MOST_UPDATES`].
pub const LEAST_UPDATE: Ticks = Ticks(64_000_000);

/// What PIE remembers, by its RFC's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Pie {
    /// Packets that it has judged: the number of the next one's draw.
    pub arrivals: u64,
    /// When it updated last, ticks; 0 if no packet has come yet.
    pub updated: u64,
    /// `drop_prob_`, of [`ONE`].
    pub drop_prob: u64,
    /// `accu_prob_`, of [`ONE`].
    pub accu_prob: u64,
    /// `qdelay_old_`, ticks.
    pub qdelay_old: u64,
    /// `burst_allowance_`, ticks.
    pub burst_allowance: u64,
}

/// The next update of those until `now`, at a server that is free again at `free`, and takes `small` for [`Law::small`]; whether there
/// may be another.
#[inline(always)]
#[must_use]
pub fn update(law: &Law, pie: &mut Pie, free: Instant, now: Instant, small: Ticks) -> bool {
    if pie.updated == 0 {
        pie.updated = now.0;
        pie.burst_allowance = law.burst.0;
        return false;
    }
    let at = Instant(pie.updated).after(law.interval);
    // No panic for a T_UPDATE of 0, which none is.
    if at.0 > now.0 || law.interval.0 == 0 {
        return false;
    }
    // Of two packets half of one.
    let mut qdelay = free.since(at).0.saturating_sub(small.0 / 4);
    if qdelay == 0 && pie.qdelay_old == 0 && pie.drop_prob == 0 {
        // Nothing else changes any more.
        let past = now.since(Instant(pie.updated)).0 / law.interval.0 * law.interval.0;
        pie.updated += past;
        pie.burst_allowance = pie.burst_allowance.saturating_sub(past);
        return false;
    }
    if qdelay > LONGEST {
        qdelay = LONGEST;
    }
    let mut p = times(ALPHA, qdelay, law.target.0) + times(BETA, qdelay, pie.qdelay_old);
    p >>= shift(pie.drop_prob);
    if pie.drop_prob >= ONE / 10 && p > (ONE / 50) as i64 {
        p = (ONE / 50) as i64;
    }
    let mut drop_prob = pie.drop_prob as i64 + p;
    if qdelay == 0 && pie.qdelay_old == 0 {
        // 1 - 1/64, which the RFC calls sufficient for 0.98.
        drop_prob -= drop_prob >> 6;
    }
    pie.drop_prob = if drop_prob < 0 {
        0
    } else if drop_prob > ONE as i64 {
        ONE
    } else {
        drop_prob as u64
    };
    pie.qdelay_old = qdelay;
    pie.burst_allowance = pie.burst_allowance.saturating_sub(law.interval.0);
    pie.updated = at.0;
    true
}

/// What it says of a packet that comes; all updates until then have been made.
#[inline(always)]
#[must_use]
pub fn judge(law: &Law, pie: &mut Pie, head: Head) -> Verdict {
    let number = pie.arrivals;
    pie.arrivals = number.wrapping_add(1);
    let low = |delay: u64| delay < law.target.0 - delay.min(law.target.0);
    let was_low = low(pie.qdelay_old);
    if pie.drop_prob == 0 && was_low && low(head.sojourn.0) {
        pie.burst_allowance = law.burst.0;
    }
    if pie.burst_allowance > 0 || (was_low && pie.drop_prob < ONE / 5) || head.sojourn.0 <= head.small.0 {
        return Verdict::Pass;
    }
    if law.flags & LAW_DERANDOMIZE != 0 {
        if pie.drop_prob == 0 {
            pie.accu_prob = 0;
        }
        pie.accu_prob += pie.drop_prob;
        if pie.accu_prob < ONE / 100 * 85 {
            return Verdict::Pass;
        }
    }
    let random = draw(head.salt, 0, number, Purpose::Queue) >> (64 - PROBABILITY_BITS);
    if random >= pie.drop_prob && pie.accu_prob < ONE / 2 * 17 {
        return Verdict::Pass;
    }
    pie.accu_prob = 0;
    if law.flags & LAW_ECN != 0 && head.ecn != 0 && pie.drop_prob <= law.probability {
        return Verdict::Mark;
    }
    Verdict::Drop
}

/// A gain in 2^-72 per tick times a difference of two delays of at most [`LONGEST`]; of [`ONE`].
#[inline(always)]
const fn times(gain: u64, delay: u64, from: u64) -> i64 {
    let by = delay.abs_diff(from);
    let product = (gain * (by >> 20) + ((gain * (by & ((1 << 20) - 1))) >> 20)) as i64;
    if delay < from { -product } else { product }
}

/// log2 of what a step is divided by while the probability is this: section 4.2's table.
#[inline(always)]
const fn shift(drop_prob: u64) -> u32 {
    if drop_prob < ONE / 1_000_000 {
        11
    } else if drop_prob < ONE / 100_000 {
        9
    } else if drop_prob < ONE / 10_000 {
        7
    } else if drop_prob < ONE / 1000 {
        5
    } else if drop_prob < ONE / 100 {
        3
    } else if drop_prob < ONE / 10 {
        1
    } else {
        0
    }
}
