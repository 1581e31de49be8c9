//! The flow cache: which class the packets of a flow belong to.
//!
//! A flow's key hashes to a bucket of [`WAYS`] places, one of which may hold the flow. A place is one
//! word, so that several CPUs can read and write it without locks, a bucket is half a cache line, and
//! 100 000 flows take 2 MB:
//!
//! ```text
//! bits 63..16  fingerprint of the key
//! bits 15..13  generation of the tables, modulo 8
//! bits 12..0   class
//! ```
//!
//! The fingerprint stands for the key: one in about 2^44 new flows is taken for another. What is lacking: an
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

/// 64 bits that depend on all bits of the key and on the generation: a multilinear sum (the products
/// are independent, so the processor overlaps them) and the finalizer of MurmurHash3. Keys of one
/// generation that differ in one word never collide.
#[inline(always)]
#[must_use]
pub const fn hash(key: &KeyWords, generation: u64) -> u64 {
    const FACTORS: KeyWords = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0xd134_2543_de82_ef95,
        0xff51_afd7_ed55_8ccd,
        0xc4ce_b9fe_1a85_ec53,
    ];
    let mut sum = generation.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mut word = 0;
    while word < key.len() {
        // A product passes nothing down: the shift brings the high half into the low one.
        sum = sum.wrapping_add((key[word] ^ (key[word] >> 32)).wrapping_mul(FACTORS[word]));
        word += 1;
    }
    sum ^= sum >> 33;
    sum = sum.wrapping_mul(0xff51_afd7_ed55_8ccd);
    sum ^ (sum >> 33)
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

/// Places for so many flows: twice as many, because buckets fill unevenly.
#[must_use]
pub const fn places(flows: u32) -> u32 {
    let flows = if flows > 1 << 30 { 1 << 30 } else { flows };
    let places = (flows * 2).next_power_of_two();
    if places < WAYS { WAYS } else { places }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use proptest::prelude::*;

    use super::{CLASS_MASK, FlowEntry, KeyWords, WAYS, hash, places};
    use crate::abi::{Direction, FlowKey, MAX_CLASSES, NONE};

    fn any_class() -> impl Strategy<Value = u32> {
        prop_oneof![0..MAX_CLASSES, Just(NONE)]
    }

    proptest! {
        #[test]
        fn entry_says_what_was_noted(key: KeyWords, generation in 1u64.., class in any_class()) {
            let hash = hash(&key, generation);
            let entry = FlowEntry::new(hash, generation, class);
            prop_assert_eq!(entry.open(hash, generation), Some(class));
            prop_assert!(entry.in_use(generation));
        }

        #[test]
        fn entry_says_nothing_of_others(
            key: KeyWords, other: KeyWords, generation in 1u64.., later in 1u64.., class in any_class()
        ) {
            let entry = FlowEntry::new(hash(&key, generation), generation, class);
            prop_assert!(key == other || entry.open(hash(&other, generation), generation).is_none());
            let next = generation.wrapping_add(later);
            prop_assert!(entry.open(hash(&key, next), next).is_none());
        }

        #[test]
        fn keys_that_differ_in_a_word_differ_in_hash(key: KeyWords, word in 0..6usize, value: u64) {
            let mut other = key;
            other[word] = value;
            prop_assert_eq!(key == other, hash(&key, 1) == hash(&other, 1));
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
            direction: Direction::Ingress as u32,
            ..FlowKey::default()
        };
        let words = key.words();
        assert_eq!(words[0].to_ne_bytes(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((words[4] & 0xffff, words[5]), (0x1234, 0x1_5678_9abc));
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
            let bucket = hash(&key.words(), 1) as u32 & (places(flows) - 1) & !(WAYS - 1);
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
