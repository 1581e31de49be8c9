//! The flow cache: which class the packets of a flow belong to.
//!
//! A flow's key hashes to a bucket of [`WAYS`] places, one of which may hold the flow. Several CPUs read
//! and write places without locks, so a reader may see half of one entry and half of another. The
//! *seal* makes that harmless (as in Hyatt's lockless transposition tables, ICGA Journal 2002): it is
//! what the entry says, XOR the key's hash. A key that matches with a seal of another key opens to
//! random bits, and those are no valid generation but once in 2^48.
//!
//! What is lacking: an order of eviction. A full bucket gives up any of its places; the flow that lost
//! it is classified once more.

use crate::abi::{FlowKey, MAX_CLASSES, NONE};

/// Places in a bucket.
pub const WAYS: u32 = 4;
/// Words of a key.
pub const KEY_WORDS: usize = size_of::<FlowKey>() / 8;
/// A key as words.
pub type KeyWords = [u64; KEY_WORDS];

const GENERATION_BITS: u32 = 48;
const CLASS_NONE: u64 = 0xffff;
const _: () = assert!((MAX_CLASSES as u64) < CLASS_NONE && KEY_WORDS * 8 == size_of::<FlowKey>());

impl FlowKey {
    /// The key's bytes as words of the machine.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> KeyWords {
        // SAFETY: a key is made of that many bytes, without padding, and any are valid words.
        unsafe { (&raw const *self).cast::<KeyWords>().read_unaligned() }
    }
}

/// 64 bits that depend on all bits of the key: a multilinear sum (the products are independent, so
/// the processor overlaps them) and the finalizer of MurmurHash3.
#[inline(always)]
#[must_use]
pub const fn hash(key: &KeyWords) -> u64 {
    const FACTORS: KeyWords = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0xd134_2543_de82_ef95,
        0xff51_afd7_ed55_8ccd,
        0xc4ce_b9fe_1a85_ec53,
    ];
    let mut sum = FACTORS[0];
    let mut word = 0;
    while word < KEY_WORDS {
        // The shift brings the high bits, which a product does not pass down, into play.
        sum = sum.wrapping_add((key[word] ^ (key[word] >> 32)).wrapping_mul(FACTORS[word]));
        word += 1;
    }
    sum ^= sum >> 33;
    sum = sum.wrapping_mul(0xff51_afd7_ed55_8ccd);
    sum ^ (sum >> 33)
}

/// A place of the flow cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FlowEntry {
    /// Whose it is.
    pub key: KeyWords,
    /// Generation and class, sealed.
    pub seal: u64,
}

impl FlowEntry {
    /// A place that says which class a key has in a generation of the tables.
    #[inline(always)]
    #[must_use]
    pub const fn new(key: KeyWords, hash: u64, generation: u64, class: u32) -> Self {
        let class = if class == NONE { CLASS_NONE } else { class as u64 & 0xffff };
        Self {
            key,
            seal: ((generation << (64 - GENERATION_BITS)) | class) ^ hash,
        }
    }

    /// The class of a key, or [`NONE`]; nothing if the place is another key's, of another generation,
    /// or torn.
    #[inline(always)]
    #[must_use]
    pub const fn open(&self, key: &KeyWords, hash: u64, generation: u64) -> Option<u32> {
        let mut difference = 0;
        let mut word = 0;
        while word < KEY_WORDS {
            difference |= self.key[word] ^ key[word];
            word += 1;
        }
        let said = self.seal ^ hash;
        // One comparison for all of it: whether the place can be used.
        difference |= (said ^ (generation << (64 - GENERATION_BITS))) >> (64 - GENERATION_BITS);
        if difference != 0 {
            return None;
        }
        let class = said & 0xffff;
        Some(if class == CLASS_NONE { NONE } else { class as u32 })
    }

    /// Whether it says something about any key in this generation.
    #[inline(always)]
    #[must_use]
    pub const fn in_use(&self, generation: u64) -> bool {
        let key = self.key;
        self.open(&key, hash(&key), generation).is_some()
    }
}

/// Places for so many flows: twice as many, because four to a bucket fill unevenly.
#[must_use]
pub const fn places(flows: u32) -> u32 {
    let flows = if flows > 1 << 30 { 1 << 30 } else { flows };
    let places = (flows * 2).next_power_of_two();
    if places < WAYS { WAYS } else { places }
}
