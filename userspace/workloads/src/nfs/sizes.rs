//! Sizes of reads, writes and files, as SFS has them.
//!
//! Model: distributions in whole percent, dealt from a shuffled deck of 100 cards, so that every
//! hundred draws hold them exactly. A read or write is a group of RPCs: whole blocks of 8 KiB and a
//! fragment of 1 to 7 KiB.

use perturb_stats::SplitMix64;

/// The block of SFS.
pub(super) const BLOCK: u32 = 8192;
/// Share of writes that extend their file, in percent.
pub(super) const APPENDING_PERCENT: usize = 70;

/// Blocks of a read and whether a fragment follows, with percents.
const READS: [(usize, Group); 5] = [
    (85, whole(1)),
    (8, fragmented(2)),
    (4, fragmented(4)),
    (2, fragmented(8)),
    (1, fragmented(16)),
];

const WRITES: [(usize, Group); 6] = [
    (49, fragmented(0)),
    (36, fragmented(1)),
    (8, fragmented(2)),
    (4, fragmented(4)),
    (2, fragmented(8)),
    (1, fragmented(16)),
];

/// File sizes in KiB, with percents.
const FILES: [(usize, u64); 10] = [
    (33, 1),
    (21, 2),
    (13, 4),
    (10, 8),
    (8, 16),
    (5, 32),
    (4, 64),
    (3, 128),
    (2, 256),
    (1, 1024),
];

/// Files of a deck.
pub(super) const DECK_FILES: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) blocks: u32,
    pub(super) fragment: bool,
}

/// So many blocks.
const fn whole(blocks: u32) -> Group {
    Group {
        blocks,
        fragment: false,
    }
}

/// So many blocks and a fragment.
const fn fragmented(blocks: u32) -> Group {
    Group {
        blocks,
        fragment: true,
    }
}

/// A deck of 100 cards, shuffled anew whenever it is used up.
#[derive(Clone, Debug)]
pub(super) struct Deck<T> {
    cards: Vec<T>,
    next: usize,
}

impl<T: Copy> Deck<T> {
    fn new(percents: &[(usize, T)]) -> Self {
        let cards: Vec<T> = percents
            .iter()
            .flat_map(|(percent, card)| std::iter::repeat_n(*card, *percent))
            .collect();
        Self {
            next: cards.len(),
            cards,
        }
    }

    pub(super) fn deal(&mut self, random: &mut SplitMix64) -> T {
        if self.next == self.cards.len() {
            shuffle(&mut self.cards, random);
            self.next = 0;
        }
        self.next += 1;
        self.cards[self.next - 1]
    }
}

pub(super) fn reads() -> Deck<Group> {
    Deck::new(&READS)
}

pub(super) fn writes() -> Deck<Group> {
    Deck::new(&WRITES)
}

pub(super) fn appends() -> Deck<bool> {
    Deck::new(&[(APPENDING_PERCENT, true), (100 - APPENDING_PERCENT, false)])
}

/// File sizes in bytes.
pub(super) fn files() -> Deck<u64> {
    Deck::new(&FILES.map(|(percent, kib)| (percent, kib * 1024)))
}

/// Bytes of the files of a deck.
pub(super) fn deck_bytes() -> u64 {
    FILES
        .iter()
        .map(|(percent, kib)| *percent as u64 * kib * 1024)
        .sum()
}

impl Group {
    /// The sizes of its RPCs.
    pub(super) fn sizes(self, random: &mut SplitMix64) -> impl Iterator<Item = u32> {
        let fragment = self.fragment.then(|| 1024 * (1 + random.below(7) as u32));
        std::iter::repeat_n(BLOCK, self.blocks as usize).chain(fragment)
    }
}

/// Fisher and Yates' shuffle.
pub(super) fn shuffle<T>(items: &mut [T], random: &mut SplitMix64) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deck_has_a_hundred_cards() {
        assert_eq!(reads().cards.len(), 100);
        assert_eq!(writes().cards.len(), 100);
        assert_eq!(files().cards.len(), DECK_FILES);
        assert_eq!(deck_bytes(), 2671 * 1024);
    }

    #[test]
    fn a_hundred_draws_hold_the_distribution() {
        let mut random = SplitMix64::new(5);
        let mut deck = reads();
        let groups: Vec<Group> = (0..300).map(|_| deck.deal(&mut random)).collect();
        assert_eq!(groups.iter().filter(|group| group.blocks == 1).count(), 3 * 85);
        assert_eq!(groups.iter().filter(|group| group.blocks == 16).count(), 3);
        assert_ne!(groups[..100], groups[100..200], "shuffled anew");
    }

    #[test]
    fn fragments_are_whole_kib_below_a_block() {
        let mut random = SplitMix64::new(5);
        let mut seen = [0; 8];
        for _ in 0..7_000 {
            let sizes: Vec<u32> = Group {
                blocks: 2,
                fragment: true,
            }
            .sizes(&mut random)
            .collect();
            assert_eq!(sizes[..2], [BLOCK, BLOCK]);
            assert_eq!(sizes[2] % 1024, 0);
            seen[(sizes[2] / 1024) as usize] += 1;
        }
        assert_eq!(seen[0], 0);
        assert!(
            seen[1..].iter().all(|count| (800..1200).contains(count)),
            "{seen:?}"
        );
    }
}
