//! Whose a [`Slot`] is: the places that keep what held packets cannot carry.
//!
//! Model: a slot's word is its owner, a departure and the number of packets (a packet and its duplicate) that will ask
//! for what it keeps. A cursor goes round; who claims takes the next place that is free. Where a place is taken, the cursor
//! leaps over 1, 2, 4, … places, for everybody: packets that came together and stay long lie together. What leaves asks by
//! its own departure: a slot that another packet has meanwhile answers no, and nobody gets what belongs to another.
//!
//! A packet that is dropped on its way (a full TAP) never asks. Its slot becomes free when its departure has passed by
//! [`GRACE`]; a packet that leaves later than that may find its slot taken, and is dropped. The slot of a super-packet that the
//! kernel may cut on its way into the hold device ([`CUT`]) becomes free then, too, however many parts have asked.
//!
//! [`Slot`]: crate::abi::Slot

use crate::{
    abi::SLOTS,
    shared::Word,
    units::{MonoNanos, Nanos},
};

/// How long after its departure a packet still finds its slot.
pub const GRACE: Nanos = Nanos(2_000_000_000);

/// The longest leap over places that are taken, and so the most free places that a leap misses behind them.
const LONGEST_LEAP: u64 = 1 << 12;
/// Places that are tried: the last one is the whole way round.
const TRIES: u32 = LONGEST_LEAP.trailing_zeros() + SLOTS / LONGEST_LEAP as u32;
/// Two packets share a slot at most, and each gives it back once: of three attempts one succeeds.
const RETRIES: u32 = 3;

/// log2 of the most packets that share a slot, of [`CUT`], and of one more.
const HOLDER_BITS: u32 = 3;
/// In the number of packets that share a slot: each may be cut into parts, and all of them will ask.
pub const CUT: u64 = 1 << 2;

/// The word of a slot; 0 if it is free.
///
/// ```text
/// bits 63..3  departure, ns of CLOCK_MONOTONIC (they last 73 years)
/// bit  2      [`CUT`]
/// bits 1..0   packets that will ask for it
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Owner(pub u64);

impl Owner {
    /// Nobody.
    pub const FREE: Self = Self(0);

    /// So many packets of this departure, 1 to 3; with [`CUT`] each may become many.
    #[inline(always)]
    #[must_use]
    pub const fn new(departure: MonoNanos, packets: u64) -> Self {
        Self(departure.0 << HOLDER_BITS | packets & ((1 << HOLDER_BITS) - 1))
    }

    /// When its packets leave.
    #[inline(always)]
    #[must_use]
    pub const fn departure(self) -> MonoNanos {
        MonoNanos(self.0 >> HOLDER_BITS)
    }

    /// Packets that will ask, and [`CUT`].
    #[inline(always)]
    #[must_use]
    pub const fn packets(self) -> u64 {
        self.0 & ((1 << HOLDER_BITS) - 1)
    }

    /// Whether a packet of this departure is among its owners.
    #[inline(always)]
    const fn is(self, departure: MonoNanos) -> bool {
        self.packets() != 0 && self.0 >> HOLDER_BITS == departure.0 << HOLDER_BITS >> HOLDER_BITS
    }

    /// Whether somebody else may have it.
    #[inline(always)]
    const fn vacant(self, now: MonoNanos) -> bool {
        self.packets() == 0 || self.departure().0.saturating_add(GRACE.0) < now.0
    }
}

/// Takes a slot for an owner; its index, or `None` if too many are taken.
#[inline(always)]
pub fn claim<W: Word>(
    cursor: &W,
    word: impl Fn(u32) -> Option<W>,
    owner: Owner,
    now: MonoNanos,
) -> Option<u32> {
    let mut leap = 1;
    for _ in 0..TRIES {
        let index = cursor.fetch_add(1) as u32 & (SLOTS - 1);
        let word = word(index)?;
        let seen = word.load();
        if Owner(seen).vacant(now) && word.compare_exchange(seen, owner.0) == seen {
            return Some(index);
        }
        cursor.fetch_add(leap);
        if leap < LONGEST_LEAP {
            leap *= 2;
        }
    }
    None
}

/// What a slot answers a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is another's, and so is what it keeps.
    Foreign,
    /// It is this packet's.
    Own,
    /// It is this packet's, which is one more part of a packet that was cut.
    Part,
}

/// Gives a slot back, for one packet of this departure. Read what it keeps before: the answer says whose that was.
#[inline(always)]
pub fn give_back<W: Word>(word: &W, departure: MonoNanos) -> Answer {
    for _ in 0..RETRIES {
        let seen = Owner(word.load());
        if !seen.is(departure) {
            return Answer::Foreign;
        }
        if seen.packets() == CUT {
            return Answer::Part;
        }
        let left = if seen.packets() == 1 {
            Owner::FREE
        } else {
            Owner(seen.0 - 1)
        };
        if word.compare_exchange(seen.0, left.0) == seen.0 {
            return Answer::Own;
        }
    }
    Answer::Foreign
}

/// What a packet of the fq pacer that is not IP carries in place of its mark: the slot, and the low bits of the departure,
/// which tell its owner from another.
#[inline(always)]
#[must_use]
pub const fn label(index: u32, departure: MonoNanos) -> u32 {
    (index & (SLOTS - 1)) | (departure.0 as u32) << SLOTS.trailing_zeros()
}

/// The slot of a [`label`].
#[inline(always)]
#[must_use]
pub const fn labeled(label: u32) -> u32 {
    label & (SLOTS - 1)
}

/// The departure of the packet with this label, if its slot is its own.
#[inline(always)]
#[must_use]
pub const fn departure_of(label: u32, owner: Owner) -> Option<MonoNanos> {
    let departure = owner.departure();
    if owner.packets() != 0 && self::label(labeled(label), departure) == label {
        Some(departure)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::{vec, vec::Vec};

    use super::*;

    impl Word for &AtomicU64 {
        fn load(&self) -> u64 {
            AtomicU64::load(self, SeqCst)
        }

        fn compare_exchange(&self, old: u64, new: u64) -> u64 {
            match AtomicU64::compare_exchange(self, old, new, SeqCst, SeqCst) {
                Ok(seen) | Err(seen) => seen,
            }
        }

        fn fetch_add(&self, amount: u64) -> u64 {
            AtomicU64::fetch_add(self, amount, SeqCst)
        }
    }

    struct Table {
        cursor: AtomicU64,
        words: Vec<AtomicU64>,
    }

    impl Table {
        fn new() -> Self {
            Self {
                cursor: AtomicU64::new(0),
                words: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            }
        }

        fn claim(&self, departure: u64, packets: u64, now: u64) -> Option<u32> {
            let word = |index| self.words.get(index as usize);
            let owner = Owner::new(MonoNanos(departure), packets);
            claim(&&self.cursor, word, owner, MonoNanos(now))
        }

        fn give_back(&self, index: u32, departure: u64) -> bool {
            self.ask(index, departure) == Answer::Own
        }

        fn ask(&self, index: u32, departure: u64) -> Answer {
            give_back(&&self.words[index as usize], MonoNanos(departure))
        }
    }

    /// 200 000 packets stay, 1 000 000 others come and go beside them: each has a slot of its own.
    #[test]
    fn nobody_gets_a_slot_that_is_held() {
        let table = Table::new();
        let mut held = vec![false; SLOTS as usize];
        let far = 1 << 40;
        let long: Vec<u32> = (0..200_000).map(|_| table.claim(far, 1, 0).unwrap()).collect();
        for &index in &long {
            assert!(!std::mem::replace(&mut held[index as usize], true));
        }
        for round in 0..100 {
            let short: Vec<u32> = (0..10_000)
                .map(|_| table.claim(round, 1, round).unwrap())
                .collect();
            for index in short {
                assert!(!held[index as usize]);
                assert!(table.give_back(index, round));
            }
        }
        for index in long {
            assert!(table.give_back(index, far));
        }
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Table::new();
        let mut taken = 0;
        while table.claim(9, 1, 0).is_some() {
            taken += 1;
        }
        assert_eq!(taken, SLOTS);
        // What was never given back is free when its departure has passed by the grace.
        assert_eq!(table.claim(9, 1, 9 + GRACE.0), None);
        assert!(table.claim(9, 1, 10 + GRACE.0).is_some());
    }

    #[test]
    fn two_packets_share_a_slot() {
        let table = Table::new();
        let index = table.claim(7, 2, 0).unwrap();
        assert!(!table.give_back(index, 8));
        assert!(table.give_back(index, 7));
        assert!(table.give_back(index, 7));
        assert!(!table.give_back(index, 7));
    }

    /// Of each packet that shares a slot the first part is the packet; the slot stays until its time has passed.
    #[test]
    fn all_parts_of_a_packet_share_a_slot() {
        let table = Table::new();
        let index = table.claim(7, 2 | CUT, 0).unwrap();
        assert_eq!(table.ask(index, 8), Answer::Foreign);
        let answers: Vec<Answer> = (0..5).map(|_| table.ask(index, 7)).collect();
        assert_eq!(
            answers,
            [Answer::Own, Answer::Own, Answer::Part, Answer::Part, Answer::Part]
        );
        table.cursor.store(index.into(), SeqCst);
        assert_ne!(table.claim(9, 1, 7 + GRACE.0), Some(index));
        table.cursor.store(index.into(), SeqCst);
        assert_eq!(table.claim(9, 1, 8 + GRACE.0), Some(index));
    }

    /// A slot that was taken over answers its former owner no, and stays the new one's.
    #[test]
    fn a_late_packet_finds_its_slot_taken() {
        let table = Table::new();
        let index = table.claim(7, 1, 0).unwrap();
        table.cursor.store(index.into(), SeqCst);
        let now = 8 + GRACE.0;
        assert_eq!(table.claim(now, 1, now), Some(index));
        assert!(!table.give_back(index, 7));
        assert!(table.give_back(index, now));
    }

    #[test]
    fn a_label_names_slot_and_owner() {
        for (index, departure) in [
            (0, 0x1234_5678_9abc),
            (5, 77),
            (SLOTS - 1, u64::MAX >> HOLDER_BITS),
            (0, 1 << 20),
        ] {
            let departure = MonoNanos(departure);
            let owner = Owner::new(departure, 1);
            let name = label(index, departure);
            assert_eq!(labeled(name), index);
            assert_eq!(departure_of(name, owner), Some(departure));
            assert_eq!(departure_of(name, Owner::FREE), None);
            let other = Owner::new(MonoNanos(departure.0 ^ 1), 1);
            assert_eq!(departure_of(name, other), None);
        }
    }
}
