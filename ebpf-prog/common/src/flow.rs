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
