//! Fates that depend on those of the packets before: correlated events, the four states of netem's `loss state`, jitter that
//! drifts, and packets that go ahead of others.
//!
//! * **Events** (loss, duplication, corruption, reordering) of probability p and correlation ρ are a chain of two states that
//!   moves with every packet: p(1-ρ) + ρ behind an event, p(1-ρ) else, and p for the first packet. So p is what happens, and the
//!   autocorrelation at a distance of k packets is ρ^k. netem mixes the last number with a new one (`get_crandom`); the mixture is not uniform, so
//!   that its rates are not those asked for.
//! * **Jitter** is a normal process of first order, z = ρ z' + √(1-ρ²) w with w normal, taken through its own distribution
//!   function Φ to a quantile of the jitter's. So every packet's jitter has the distribution asked for, whatever ρ. ρ is that of
//!   each packet, or e^(-t/τ) for packets t apart (Ornstein and Uhlenbeck).
//! * **Four states** as in Salsano, Ludovici, Ordine and Giannuzzi's model: 1 good, 3 lost in a burst, 2 good within a burst, 4 lost
//!   alone (`loss_4state`).

use crate::{
    fate::{Chance, GilbertElliott, Purpose},
    queue::root,
};

/// Index of loss in [`Ties::correlation`].
pub const LOSS: usize = 0;
/// Index of duplication.
pub const DUPLICATE: usize = 1;
/// Index of corruption.
pub const CORRUPT: usize = 2;
/// Index of reordering.
pub const REORDER: usize = 3;

/// [`Ties::kinds`]: the losses of [`Ties::states`].
pub const TIE_STATES: u32 = 1;
/// [`Ties::kinds`]: the losses of a [`GilbertElliott`].
pub const TIE_BURST: u32 = 2;
/// [`Ties::kinds`]: jitter drifts.
pub const TIE_DRIFT: u32 = 4;

/// Largest [`Ties::gap`].
pub const MAX_GAP: u32 = (1 << 13) - 1;

/// How fates hang together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Ties {
    /// ρ of events, by [`LOSS`] and the others.
    pub correlation: [Chance; 4],
    /// Packets that go ahead, without latency and jitter.
    pub reorder: Chance,
    /// At most every so many packets one goes ahead, counted from the last one that did; 1 for no limit.
    pub gap: u32,
    /// p13, p31, p32, p23, p14.
    pub states: [Chance; 5],
    /// `TIE_*`.
    pub kinds: u32,
    /// ρ of the jitter, in 2^-32.
    pub rho: u32,
    /// √(1-ρ²), in 2^-32.
    pub spread: u32,
    /// Index of the normal distribution's table in the whole JITTER map.
    pub normal: u32,
    /// Index of Φ's table ([`quantile`]) there.
    pub cumulative: u32,
    /// The jitter's time constant τ, ticks; 0 if ρ is a packet's.
    pub constant: u64,
}

impl Ties {
    /// None.
    pub const NONE: Self = Self {
        correlation: [Chance::NEVER; 4],
        reorder: Chance::NEVER,
        gap: 1,
        states: [Chance::NEVER; 5],
        kinds: 0,
        rho: 0,
        spread: 0,
        normal: 0,
        cumulative: 0,
        constant: 0,
    };
}

/// What a server remembers of the packets before. A word: two bits of the loss's state, four of events, thirteen that count packets
/// behind one that went ahead, one that is set once z counts, twenty of z in 2^-16, two that are set once events count, those of
/// reordering by themselves, and the low twenty-two of the time of z in 2^10 ticks. And that time's high bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory(pub u64, pub u32);

const EVENTS_AT: u32 = 2;
const COUNT_AT: u32 = 6;
const COUNT: u64 = MAX_GAP as u64;
const DRIFTS: u64 = 1 << 19;
const Z_AT: u32 = 20;
const Z_BITS: u32 = 20;
const HAPPENED: u64 = 1 << 40;
const REORDERED: u64 = 1 << 41;
const TIME_AT: u32 = 42;
const TIME_SHIFT: u32 = 10;

impl Memory {
    /// z in 2^-16.
    #[inline(always)]
    const fn z(self) -> i64 {
        ((self.0 << (64 - Z_AT - Z_BITS)) as i64) >> (64 - Z_BITS)
    }

    /// The time of z, in 2^10 ticks.
    #[inline(always)]
    const fn since(self) -> u64 {
        (self.1 as u64) << (64 - TIME_AT) | self.0 >> TIME_AT
    }
}

/// What becomes of a packet, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tied(pub u64);

impl Tied {
    /// It is lost, each by itself.
    pub const LOST: u64 = 1;
    /// It is lost in a burst.
    pub const LOST_IN_BURST: u64 = 2;
    /// It leaves twice.
    pub const DUPLICATED: u64 = 4;
    /// It is damaged.
    pub const CORRUPTED: u64 = 8;
    /// It goes ahead.
    pub const AHEAD: u64 = 16;

    /// All of it is decided.
    const DECIDED: u64 = 32;

    /// With this entry of its jitter, the last that is decided.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, entry: usize) -> Self {
        Self(self.0 | Self::DECIDED | (entry as u64) << 16)
    }

    /// Whether it is, and the packet's fate not its own.
    #[inline(always)]
    #[must_use]
    pub const fn is_decided(self) -> bool {
        self.0 & Self::DECIDED != 0
    }

    /// The index of its jitter's entry.
    #[inline(always)]
    #[must_use]
    pub const fn entry(self) -> usize {
        (self.0 >> 16) as usize
    }
}

/// The chance of an event of correlation `rho` behind one that happened or not.
#[inline(always)]
#[must_use]
pub const fn behind(chance: Chance, rho: Chance, happened: bool) -> Chance {
    if rho.0 == 0 || chance.0 == 0 || chance.0 == u32::MAX {
        return chance;
    }
    // Never 0, which is never.
    let kept = ((chance.0 as u64 * (u32::MAX - rho.0) as u64) >> 32) as u32;
    let least = if kept == 0 { 1 } else { kept };
    Chance(if happened {
        least.saturating_add(rho.0)
    } else {
        least
    })
}

/// The state behind `state` of the four, numbered as 1, 3, 2, 4 are, from 0: the odd ones lose.
#[inline(always)]
fn next(states: &[Chance; 5], state: u64, draw: u32) -> u64 {
    let [p13, p31, p32, p23, p14] = *states;
    let either = |one: Chance, other: Chance| Chance(one.0.saturating_add(other.0));
    match state {
        0 if p14.hit(draw) => 3,
        0 if either(p14, p13).hit(draw) => 1,
        0 | 3 => 0,
        1 if p32.hit(draw) => 2,
        1 if either(p32, p31).hit(draw) => 0,
        1 => 1,
        _ if p23.hit(draw) => 1,
        _ => 2,
    }
}

/// What the packets of a server meet besides.
#[derive(Clone, Copy, Debug)]
pub struct Chances {
    /// Loss now, each by itself.
    pub loss: Chance,
    /// One more copy.
    pub duplicate: Chance,
    /// One bit flipped.
    pub corrupt: Chance,
    /// Loss in bursts.
    pub burst: GilbertElliott,
}

impl Ties {
    /// What becomes of a packet but for its jitter, and what is remembered then.
    #[inline(always)]
    #[must_use]
    pub fn decide(
        &self,
        memory: Memory,
        chances: &Chances,
        draws: impl Fn(Purpose) -> u64,
    ) -> (Tied, Memory) {
        let (loss, damage) = (draws(Purpose::Loss), draws(Purpose::Damage));
        let (mut tied, mut kept) = (0, memory.0);
        let state = memory.0 & 3;
        let mut state_now = state;
        if self.kinds & TIE_STATES != 0 {
            state_now = next(&self.states, state, (draws(Purpose::Burst) >> 32) as u32);
            if state_now & 1 != 0 {
                tied = Tied::LOST_IN_BURST;
            }
        } else if self.kinds & TIE_BURST != 0 {
            let bad = chances.burst.step(state == 1, draws(Purpose::Burst));
            state_now = bad as u64;
            if chances.burst.lost(bad, loss as u32) {
                tied = Tied::LOST_IN_BURST;
            }
        }
        kept = kept & !3 | state_now;
        let mut event = |which: usize, chance: Chance, draw: u32| {
            let bit = 1 << (EVENTS_AT + which as u32);
            let chance = if memory.0 & HAPPENED != 0 {
                behind(chance, self.correlation[which], kept & bit != 0)
            } else {
                chance
            };
            let hit = chance.hit(draw);
            kept = if hit { kept | bit } else { kept & !bit };
            hit
        };
        if event(LOSS, chances.loss, (loss >> 32) as u32) && tied == 0 {
            tied = Tied::LOST;
        }
        if event(DUPLICATE, chances.duplicate, (damage >> 32) as u32) {
            tied |= Tied::DUPLICATED;
        }
        if event(CORRUPT, chances.corrupt, damage as u32) {
            tied |= Tied::CORRUPTED;
        }
        kept |= HAPPENED;
        // What is lost does not count for the gap.
        if self.reorder.0 != 0 && tied & (Tied::LOST | Tied::LOST_IN_BURST) == 0 {
            let count = (kept >> COUNT_AT & COUNT) + 1;
            let due = count >= self.gap as u64;
            let bit = 1 << (EVENTS_AT + REORDER as u32);
            let chance = if kept & REORDERED != 0 {
                behind(self.reorder, self.correlation[REORDER], kept & bit != 0)
            } else {
                self.reorder
            };
            let ahead = due && chance.hit(draws(Purpose::Burst) as u32);
            if due {
                kept = REORDERED | if ahead { kept | bit } else { kept & !bit };
            }
            let count = if ahead { 0 } else { count.min(COUNT) };
            kept = kept & !(COUNT << COUNT_AT) | count << COUNT_AT;
            if ahead {
                tied |= Tied::AHEAD;
            }
        }
        (Tied(tied), Memory(kept, memory.1))
    }

    /// What is remembered once the jitter has drifted to a packet whose service ends at these ticks. `normal` is an entry of the
    /// normal distribution's table, drawn for the packet, and `dither` 32 random bits: rounding would take away slow drifts.
    #[inline(always)]
    #[must_use]
    pub fn drift(&self, memory: Memory, served: u64, normal: i16, dither: u32) -> Memory {
        let fresh = (normal as i64) << 3;
        let now = served >> TIME_SHIFT;
        let (mut rho, mut spread) = (self.rho, self.spread);
        if self.constant != 0 {
            // Behind a reordering server, and where processors race, packets come here in another order than they are served in: the
            // earlier one finds the z of the later.
            let elapsed = now.saturating_sub(memory.since()) << TIME_SHIFT;
            // So little is not forgotten exactly, but with what follows.
            if elapsed <= self.constant >> 20 && memory.0 & DRIFTS != 0 {
                return memory;
            }
            rho = decay(elapsed, self.constant);
            spread = rest(rho);
        }
        let mut z = fresh;
        if memory.0 & DRIFTS != 0 {
            z = (memory.z() * rho as i64 + fresh * spread as i64 + dither as i64) >> 32;
        }
        const MOST: i64 = (1 << (Z_BITS - 1)) - 1;
        let z = z.clamp(-MOST, MOST) as u64 & ((1 << Z_BITS) - 1);
        let others = memory.0 & ((DRIFTS - 1) | HAPPENED | REORDERED) | DRIFTS;
        Memory(
            others | z << Z_AT | now << TIME_AT,
            (now >> (64 - TIME_AT)) as u32,
        )
    }
}

/// Index of the jitter's entry for the z that is remembered: Φ(z), by Φ's table, whose entry i is (2^16 - 1) Φ(i/512 - 4) - 2^15.
#[inline(always)]
#[must_use]
pub fn quantile(memory: Memory, cumulative: impl Fn(usize) -> i16) -> usize {
    const WIDTH: i64 = 1 << 7;
    /// The last entry's place: there nothing of the one behind counts.
    const MOST: i64 = 4095 * WIDTH;
    let place = (memory.z() + 4 * (1 << 16)).clamp(0, MOST);
    let (index, part) = ((place >> 7) as usize, place & (WIDTH - 1));
    let low = cumulative(index & 4095) as i64 * (WIDTH - part);
    let sum = low + cumulative((index + 1) & 4095) as i64 * part;
    (((sum >> 7) + (1 << 15)) >> 4) as usize & 4095
}

/// e^(-elapsed/constant) in 2^-32; constant is below 2^42 ticks.
#[inline(always)]
#[must_use]
pub const fn decay(elapsed: u64, constant: u64) -> u32 {
    /// ln 2 in 2^-29.
    const LN_2: u64 = 372_130_559;
    const ONE: u64 = 1 << 32;
    if elapsed == 0 || constant == 0 {
        return u32::MAX;
    }
    let whole = elapsed / constant;
    if whole > 22 {
        return 0;
    }
    // In 2^-29; of long times to 2^-21.
    let x = if elapsed < 1 << 34 {
        (elapsed << 29) / constant
    } else {
        (whole << 29) + ((((elapsed % constant) << 21) / constant) << 8)
    };
    let halvings = x / LN_2;
    if halvings > 31 {
        return 0;
    }
    let x = (x - halvings * LN_2) << 3;
    let mut e = ONE - x / 7;
    e = ONE - ((x * e) >> 32) / 6;
    e = ONE - ((x * e) >> 32) / 5;
    e = ONE - ((x * e) >> 32) / 4;
    e = ONE - ((x * e) >> 32) / 3;
    e = ONE - ((x * e) >> 32) / 2;
    e = ONE - ((x * e) >> 32);
    let e = if e > u32::MAX as u64 { u32::MAX as u64 } else { e };
    (e >> halvings) as u32
}

/// √(1-ρ²), both in 2^-32.
#[inline(always)]
#[must_use]
pub const fn rest(rho: u32) -> u32 {
    if rho == 0 {
        return u32::MAX;
    }
    let rho = rho as u64;
    let square = ((1u64 << 32) - rho) * ((1u64 << 32) + rho);
    let half = root(square >> 2);
    (half << 1) as u32
}
