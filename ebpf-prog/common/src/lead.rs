//! How far departures are moved ahead, to make up for a timer that fires late.
//!
//! Model: from the time at which a packet is to leave the hold device to its being there passes what the kernel's timer,
//! its soft interrupt and a sleeping processor take: a random time with a floor, tens of microseconds on a virtual machine.
//! All packets share the floor, so it is taken off their times of *arrival*, before the path is folded: the network
//! is emulated that much ahead of the clock, and what happens inside of it stays as it is. [`Lead`] follows the floor:
//! down to it when a packet left less late, a thirty-second of the way up, within bounds, when it left later. So few packets
//! leave early, by about a microsecond, unless the floor gives way (a processor that was asleep is busy now, or so many
//! packets come that one's timer lets the next one go): then those that are held at that moment do, by the lead at most. The
//! bounds keep a packet that was held up by something else from counting as the timer's.
//! KVM advances the local APIC's timer for the same reason (`adjust_lapic_timer_advance`).
//!
//! Order: the lead rises by a sixteenth of the time that passes at most, in steps of 4 ns, so of two packets that come 64 ns
//! apart or more the first has the earlier moved arrival, and the recursion keeps their order as it does without a lead.
//! What is lacking: a lead for each interface. Traffic that keeps fq busy leaves no floor, and so no lead for any other.

use crate::units::{MonoNanos, Nanos};

/// The lead never exceeds this.
pub const MOST: Nanos = Nanos(200_000);
/// A packet counts that waits longer than this: what leaves at once is not late by a timer.
pub const WAIT: Nanos = Nanos(100_000);

/// log2 of the nanoseconds in a unit of [`Lead`]'s clock.
const CLOCK_SHIFT: u32 = 6;
/// A rise begins at the earliest so many units after the last one began (65 us).
const PAUSE: u32 = 1 << 10;
/// A clock that seems to be behind by less than this (67 ms), in units, was read before the word was written, and the lead
/// was as much less then as it can have risen since; by more, and the units have wrapped.
const BEHIND: u32 = 1 << 20;
/// A rise is at most this, ns,
const LEAST_RISE: u64 = 1_000;
/// and at most what fits its field.
const RISE_BITS: u32 = 14;
const FROM_BITS: u32 = 18;

/// The lead, and how it rises: one word, so that it is read and written at once.
///
/// ```text
/// bits 63..32  when it began to rise, in units of 64 ns of CLOCK_MONOTONIC (they wrap every 275 s)
/// bits 31..14  from what, ns
/// bits 13..0   by how much, ns
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lead(pub u64);

impl Lead {
    /// By how much arrivals at this time are moved ahead.
    #[inline(always)]
    #[must_use]
    pub const fn at(self, now: MonoNanos) -> Nanos {
        let (from, rise) = self.fields();
        let elapsed = self.elapsed(now);
        // A sixteenth of the units' nanoseconds.
        if elapsed > u32::MAX - BEHIND {
            let before = (elapsed.wrapping_neg() as u64) << (CLOCK_SHIFT - 4);
            return Nanos(from.saturating_sub(before));
        }
        let risen = (elapsed as u64) << (CLOCK_SHIFT - 4);
        Nanos(from + if risen < rise { risen } else { rise })
    }

    /// The lead after a packet left so long after its moved departure.
    #[inline(always)]
    #[must_use]
    pub const fn follow(self, late: Nanos, now: MonoNanos) -> Self {
        let lead = self.at(now).0;
        if late.0 < lead {
            return Self::new(now, late.0, 0);
        }
        let elapsed = self.elapsed(now);
        if elapsed < PAUSE || elapsed > u32::MAX - BEHIND || lead >= MOST.0 {
            return self;
        }
        let wanted = (late.0 - lead) >> 5;
        let most = LEAST_RISE + (lead >> 3);
        let rise = if wanted < most { wanted } else { most };
        let room = MOST.0 - lead;
        Self::new(now, lead, if rise < room { rise } else { room })
    }

    #[inline(always)]
    const fn new(now: MonoNanos, from: u64, rise: u64) -> Self {
        let since = now.0 >> CLOCK_SHIFT << 32;
        let most = (1 << RISE_BITS) - 1;
        Self(since | from << RISE_BITS | if rise < most { rise } else { most })
    }

    #[inline(always)]
    const fn fields(self) -> (u64, u64) {
        let from = (self.0 >> RISE_BITS) & ((1 << FROM_BITS) - 1);
        (from, self.0 & ((1 << RISE_BITS) - 1))
    }

    /// Since it began to rise, in units; just below 2^32 for a clock that is behind.
    #[inline(always)]
    const fn elapsed(self, now: MonoNanos) -> u32 {
        ((now.0 >> CLOCK_SHIFT) as u32).wrapping_sub((self.0 >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    /// Follows packets that leave `late(n)` ns after their unmoved departure, one each `interval` ns; by how much each
    /// was early (negative) or late in the end.
    fn errors(count: u64, interval: u64, late: impl Fn(u64) -> u64) -> Vec<i64> {
        let mut lead = Lead::default();
        (1..=count)
            .map(|packet| {
                let now = MonoNanos(packet * interval);
                // It was moved by the lead of some time ago, which is about that of now.
                let error = late(packet) as i64 - lead.at(now).0 as i64;
                lead = lead.follow(Nanos(late(packet)), now);
                error
            })
            .collect()
    }

    /// A floor of 30 us, and a spread of 16 us above it.
    fn spread(packet: u64) -> u64 {
        30_000 + (packet.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50)
    }

    #[test]
    fn finds_the_floor() {
        for interval in [100_000, 1_000_000, 100_000_000] {
            let settled = &errors(2_000, interval, spread)[200..];
            let early = settled.iter().filter(|error| **error < 0).count();
            assert!(early < settled.len() / 8, "{early} of {} early", settled.len());
            let mean = settled.iter().sum::<i64>() / settled.len() as i64;
            assert!((0..10_000).contains(&mean), "{mean} ns late on the average");
            assert!(settled.iter().all(|error| *error > -3_000));
        }
    }

    #[test]
    fn is_not_carried_away_by_packets_that_something_else_held_up() {
        let held_up = |packet| {
            if packet % 20 == 0 {
                3_000_000
            } else {
                spread(packet)
            }
        };
        let settled = &errors(2_000, 1_000_000, held_up)[200..];
        assert!(settled.iter().all(|error| *error > -8_000));
    }

    #[test]
    fn gives_up_at_once_what_is_too_much() {
        let now = MonoNanos(1 << 40);
        let lead = Lead::new(now, 100_000, 0).follow(Nanos(500), now);
        assert_eq!(lead.at(now), Nanos(500));
    }

    proptest! {
        /// Whatever is learned, and however time passes: within bounds, and an earlier arrival stays the earlier one, also
        /// if its clock was read before the lead that it meets was learned.
        #[test]
        fn keeps_order_and_bounds(samples in prop::collection::vec(
            (prop_oneof![0..300_000u64, 0..1u64 << 34], prop_oneof![0..300_000u64, any::<u64>()], 0..20_000u64),
            1..200,
        )) {
            let (mut lead, mut now, mut last) = (Lead::default(), 1u64 << 33, 0);
            for (passes, late, before) in samples {
                let arrivals = [now + passes / 2, (now + passes).max(before) - before.min(passes / 2)];
                now += passes;
                let learned = lead.follow(Nanos(late), MonoNanos(now));
                for (arrival, lead) in arrivals.into_iter().zip([lead, learned]) {
                    let ahead = lead.at(MonoNanos(arrival));
                    prop_assert!(ahead <= MOST);
                    let moved = arrival - ahead.0;
                    prop_assert!(moved + 4 >= last, "moved back by {} ns", last - moved);
                    last = moved;
                }
                last = last.max(now - learned.at(MonoNanos(now)).0);
                lead = learned;
            }
        }
    }
}
