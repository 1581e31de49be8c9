//! The flow cache: which class the packets of a flow belong to.
//!
//! A flow's key hashes to a bucket of [`WAYS`] places, one of which may hold the flow. A place is one
//! word, so that several CPUs can read and write it without locks, a bucket is half a cache line (the map
//! begins at a page), and 100 000 flows take 2 MB:
//!
//! ```text
//! bits 63..16  fingerprint of the key
//! bits 15..13  generation of the tables, modulo 8
//! bits 12..0   class
//! ```
//!
//! Where a profile has a server per flow, a flow's places lie at the home of its instance ([`crate::instance`]), two in each
//! line of a pair ([`beside`]): a packet of a known flow then finds class and state in one line.
//!
//! The fingerprint stands for the key: one in about 2^44 new flows is taken for another. Senders who choose their flows'
//! headers cannot choose which: the hash is keyed ([`hash`]). What is lacking: an
//! order of eviction. A full bucket gives up any of its places; the flow that lost it is classified
//! once more.

use crate::abi::{FlowKey, MAX_CLASSES, NONE};

/// Places in a bucket.
pub const WAYS: u32 = 4;
/// A key as words.
pub type KeyWords = [u64; size_of::<FlowKey>() / 8];

const CLASS_BITS: u32 = 13;
const CLASS_MASK: u64 = (1 << CLASS_BITS) - 1;
const FINGERPRINT: u64 = !0xffff;
const _: () = assert!((MAX_CLASSES as u64) < CLASS_MASK && size_of::<KeyWords>() == size_of::<FlowKey>());

impl FlowKey {
    /// The key's bytes as words of the machine.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> KeyWords {
        // SAFETY: a key is made of that many bytes, without padding, and aligned for words; any are valid words.
        unsafe { (&raw const *self).cast::<KeyWords>().read() }
    }
}

/// Words of a [`Secret`]: one to add, one for the generation, one for each half of a key's words.
pub const SECRET_WORDS: usize = 2 + 2 * (size_of::<FlowKey>() / 8);
/// What the hash of an emulation is keyed by: random words, chosen before the programs are attached.
pub type Secret = [u64; SECRET_WORDS];

/// 64 bits that depend on all bits of the key, on the generation and on the secret, of which `secret(i)` is word i.
/// Who does not know the secret cannot choose keys that collide.
///
/// The sum is one of products that each take a word `w` and its upper half `h`, and two words of the secret:
/// `s0 + sum (s[i] + w) (s[i+1] + h)` modulo 2^64. (Multilinear-HM of Lemire and Kaser, "Strongly universal string
/// hashing is fast", 2014, has the lower half in place of `w`; to cut it out would cost two instructions more.) Take
/// two keys that differ in a word. If the upper halves differ, by `d`, the difference of the sums has the term `s[i] d`;
/// if only the lower ones do, by `d`, it has the term `s[i+1] d`; that word of the secret stands in no other term of it.
/// Since `d` is less than 2^32, it is an odd number times 2^t with t < 32: the difference is uniform over a residue class
/// of 2^t, modulo 2^64. `s0` makes the first sum uniform over all words, whatever the difference. So the upper halves
/// of the two sums are independent, and uniform over all pairs of halves:
///
/// * the lower half of the result, a permutation of the sum's upper half, is the same for two keys with probability
///   2^-32, and any n bits of it with probability 2^-n;
/// * the result, a permutation of the sum, is the same with probability 2^-33 at most for keys that are chosen, and
///   2^-64 for keys that do not depend on each other.
#[inline(always)]
#[must_use]
pub fn hash(key: &KeyWords, generation: u64, secret: impl Fn(usize) -> u64) -> u64 {
    let mut sum = secret(0).wrapping_add(secret(1).wrapping_mul(generation));
    let mut word = 0;
    while word < key.len() {
        let whole = secret(2 + 2 * word).wrapping_add(key[word]);
        let upper = secret(3 + 2 * word).wrapping_add(key[word] >> 32);
        sum = sum.wrapping_add(whole.wrapping_mul(upper));
        word += 1;
    }
    // Keys in steps make sums in steps: the upper half is mixed, up and down, so that they fill buckets and pages evenly.
    let upper = sum >> 32;
    let mixed = (upper ^ upper >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ u64::from(mixed as u32 >> 16) ^ sum << 32
}

/// What a place of the flow cache says; 0 says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct FlowEntry(pub u64);

impl FlowEntry {
    /// That the key with this hash has this class, or none, in this generation.
    #[inline(always)]
    #[must_use]
    pub const fn new(hash: u64, generation: u64, class: u32) -> Self {
        let class = if class == NONE {
            CLASS_MASK
        } else {
            class as u64 & CLASS_MASK
        };
        Self(hash & FINGERPRINT | (generation & 7) << CLASS_BITS | class)
    }

    /// The class of the key with this hash, or [`NONE`]; nothing if the place is another's.
    #[inline(always)]
    #[must_use]
    pub const fn open(self, hash: u64, generation: u64) -> Option<u32> {
        if (self.0 ^ Self::new(hash, generation, 0).0) >> CLASS_BITS != 0 {
            return None;
        }
        let class = self.0 & CLASS_MASK;
        Some(if class == CLASS_MASK { NONE } else { class as u32 })
    }

    /// Whether it may say something in this generation.
    #[inline(always)]
    #[must_use]
    pub const fn in_use(self, generation: u64) -> bool {
        self.0 != 0 && (self.0 >> CLASS_BITS) & 7 == generation & 7
    }
}

/// Where a way of a flow's bucket is among the instances, of which the flow's lies at `home`: in which line, and which of its
/// places.
#[inline(always)]
#[must_use]
pub const fn beside(home: u32, way: u32) -> (u32, usize) {
    (home ^ way >> 1, (way & 1) as usize)
}

/// Places for so many flows: twice as many, because buckets fill unevenly.
#[must_use]
pub const fn places(flows: u32) -> u32 {
    let flows = if flows > 1 << 30 { 1 << 30 } else { flows };
    let places = (flows * 2).next_power_of_two();
    if places < WAYS { WAYS } else { places }
}

#[cfg(test)]
pub(crate) mod tests {
    extern crate std;

    use std::{collections::BTreeSet, vec, vec::Vec};

    use proptest::prelude::*;

    use super::{CLASS_MASK, FlowEntry, KeyWords, SECRET_WORDS, Secret, WAYS, beside, hash, places};
    use crate::abi::{Direction, FlowKey, MAX_CLASSES, NONE};

    /// Words that look random: SplitMix64 of the seed.
    pub(crate) fn secret(seed: u64) -> Secret {
        core::array::from_fn(|word| {
            let mut mixed = seed.wrapping_add((word as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        })
    }

    fn keyed(key: &KeyWords, generation: u64, seed: u64) -> u64 {
        let secret = secret(seed);
        hash(key, generation, |word| secret[word])
    }

    fn any_class() -> impl Strategy<Value = u32> {
        prop_oneof![0..MAX_CLASSES, Just(NONE)]
    }

    proptest! {
        #[test]
        fn entry_says_what_was_noted(key: KeyWords, seed: u64, generation in 1u64.., class in any_class()) {
            let hash = keyed(&key, generation, seed);
            let entry = FlowEntry::new(hash, generation, class);
            prop_assert_eq!(entry.open(hash, generation), Some(class));
            prop_assert!(entry.in_use(generation));
        }

        #[test]
        fn entry_says_nothing_of_others(
            key: KeyWords, other: KeyWords, seed: u64,
            generation in 1u64.., later in 1u64.., class in any_class()
        ) {
            let entry = FlowEntry::new(keyed(&key, generation, seed), generation, class);
            prop_assert!(key == other || entry.open(keyed(&other, generation, seed), generation).is_none());
            let next = generation.wrapping_add(later);
            prop_assert!(entry.open(keyed(&key, next, seed), next).is_none());
        }

        /// A change of one bit is the hardest to see; which one, and of which word, must not matter.
        #[test]
        fn keys_that_differ_in_a_bit_differ_in_hash(key: KeyWords, word in 0..6usize, bit in 0..64u32, seed: u64) {
            let mut other = key;
            other[word] ^= 1 << bit;
            prop_assert_ne!(keyed(&key, 1, seed), keyed(&other, 1, seed));
        }
    }

    /// What the hash was before it was keyed: a sum that is linear in the words.
    fn linear(key: &KeyWords) -> u64 {
        let folded = key.map(|word| word ^ word >> 32);
        folded.iter().zip(FACTORS).fold(0, |sum, (word, factor)| {
            sum.wrapping_add(word.wrapping_mul(factor))
        })
    }

    const FACTORS: KeyWords = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0xd134_2543_de82_ef95,
        0xff51_afd7_ed55_8ccd,
        0xc4ce_b9fe_1a85_ec53,
    ];

    /// Flows of a sender who chooses interface identifiers at both ends so that the linear sum is the same for all.
    fn chosen(count: u64) -> impl Iterator<Item = KeyWords> {
        // The inverse of an odd number, modulo 2^64: each step doubles the bits that are right.
        let mut inverse = FACTORS[3];
        for _ in 0..6 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(FACTORS[3].wrapping_mul(inverse)));
        }
        let unfold = |word: u64| word ^ word >> 32;
        (0..count).map(move |step| {
            let against = step.wrapping_mul(FACTORS[1]).wrapping_mul(inverse).wrapping_neg();
            [0x20, unfold(step), 0x30, unfold(against), 0x6_86dd_0801_0035, 0]
        })
    }

    /// Flows that were made to collide before do not: 100,000 of them are as different as others. They
    /// fill the buckets evenly, and hardly any share the half that fq sees: 1.2 pairs are expected, ten are never seen.
    #[test]
    fn chosen_flows_do_not_collide() {
        let count = 100_000;
        let first = linear(&chosen(1).next().unwrap_or_default());
        assert!(
            chosen(count).all(|key| linear(&key) == first),
            "they collided before"
        );
        for seed in 0..8 {
            let mut hashes: Vec<u64> = chosen(count).map(|key| keyed(&key, 1, seed)).collect();
            let mut buckets = vec![0u32; (places(count as u32) / WAYS) as usize];
            let last = buckets.len() - 1;
            for hash in &hashes {
                buckets[*hash as usize & last] += 1;
            }
            let fullest = buckets.iter().max().copied().unwrap_or_default();
            assert!(fullest < 16, "{fullest} chosen flows in one bucket, seed {seed}");
            let mut halves: Vec<u32> = hashes.iter().map(|hash| *hash as u32).collect();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(
                hashes.len() as u64,
                count,
                "chosen flows with the same hash, seed {seed}"
            );
            halves.sort_unstable();
            halves.dedup();
            let shared = count - halves.len() as u64;
            assert!(
                shared < 10,
                "{shared} chosen flows share the lower half with others, seed {seed}"
            );
        }
    }

    /// The bound of the documentation, over secrets: two keys share eight bits of the lower half once in 256 secrets,
    /// also those that differ where the products' low bits say nothing.
    #[test]
    fn pairs_collide_as_often_as_the_bound_says() {
        let one: KeyWords = [0x20, 1, 0x30, 2, 0x6_86dd_0801_0035, 0];
        for (word, difference) in [(1, 1u64), (1, 1 << 31), (3, 1 << 63), (4, 0xffff), (5, 1 << 32)] {
            let mut other = one;
            other[word] ^= difference;
            let trials = 1 << 16;
            let shared = (0..trials)
                .filter(|&seed| (keyed(&one, 1, seed) ^ keyed(&other, 1, seed)) & 0xff == 0)
                .count() as u64;
            // 256 of 65,536 are expected, with a deviation of 16: six of them are never seen.
            assert!(
                shared.abs_diff(trials / 256) < 6 * 16,
                "{shared} of {trials}: word {word}, {difference:#x}"
            );
        }
    }

    #[test]
    fn secret_has_a_word_for_each_half() {
        assert_eq!(SECRET_WORDS, 14);
        let key = [u64::MAX; 6];
        for word in 0..SECRET_WORDS {
            let mut other = secret(7);
            let same = hash(&key, 3, |word| other[word]);
            other[word] ^= 1 << 40;
            assert_ne!(
                same,
                hash(&key, 3, |word| other[word]),
                "word {word} of the secret does not matter"
            );
        }
    }

    /// All ways lie in a pair of lines that a processor fetches together, the first two at home.
    #[test]
    fn ways_beside_instances_are_distinct() {
        for home in [0, 7, 4096] {
            let ways: Vec<(u32, usize)> = (0..WAYS).map(|way| beside(home, way)).collect();
            let distinct: BTreeSet<_> = ways.iter().collect();
            assert_eq!(distinct.len(), ways.len(), "{ways:?}");
            assert_eq!(ways[..2], [(home, 0), (home, 1)]);
            assert!(ways.iter().all(|&(line, _)| line / 2 == home / 2));
        }
    }

    #[test]
    fn empty_place_says_nothing() {
        let entry = FlowEntry::default();
        assert!((0..16).all(|generation| !entry.in_use(generation)));
        assert!(CLASS_MASK > u64::from(MAX_CLASSES));
    }

    #[test]
    fn words_are_the_bytes() {
        let key = FlowKey {
            source: core::array::from_fn(|at| at as u8),
            source_port: 0x1234,
            mark: 0x5678_9abc,
            direction: Direction::Ingress as u16,
            cgroup: 0x9abc,
            ..FlowKey::default()
        };
        let words = key.words();
        assert_eq!(words[0].to_ne_bytes(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((words[4] & 0xffff, words[5]), (0x1234, 0x9abc_0001_5678_9abc));
    }

    /// As many flows as the profile asks for: nearly all have a place, in an order that is the same in
    /// every run. With 1.5 flows per bucket of four on average (Poisson) 1.7 % find none.
    #[test]
    fn flows_find_room() {
        let flows = 100_000u32;
        let mut buckets = vec![0u32; (places(flows) / WAYS) as usize];
        let mut homeless = 0;
        for flow in 0..flows {
            // Clients of a subnet with consecutive ports: what real keys look like.
            let mut key = FlowKey {
                source: [
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0xff,
                    0xff,
                    10,
                    1,
                    0,
                    (flow / 1000) as u8,
                ],
                source_port: (32_768 + flow % 1000) as u16,
                ..FlowKey::default()
            };
            key.protocol = 6;
            let bucket = keyed(&key.words(), 1, 1) as u32 & (places(flows) - 1) & !(WAYS - 1);
            let count = &mut buckets[(bucket / WAYS) as usize];
            homeless += u32::from(*count == WAYS);
            *count = (*count + 1).min(WAYS);
        }
        assert!(
            homeless < flows / 40,
            "{homeless} of {flows} flows without a place"
        );
    }

    #[test]
    fn places_are_a_power_of_two() {
        for flows in [0, 1, 3, 1024, 100_000, 131_072, 4_194_304, u32::MAX] {
            assert!(places(flows).is_power_of_two() && places(flows) >= WAYS);
            assert!(flows > 1 << 30 || u64::from(places(flows)) >= 2 * u64::from(flows));
        }
    }
}
