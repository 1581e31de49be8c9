//! Which class a packet belongs to: the flow cache, and behind it the bit-vector classifier
//! (Lakshman and Stiliadis, SIGCOMM 1998). Each dimension's binary search yields the set of rules
//! that its value satisfies; the lowest rule in all sets is the first match. A packet of a known
//! flow costs one hash lookup, however many classes there are.

use aya_ebpf::programs::TcContext;
use perturb_common::abi::{
    Bound, DIMENSIONS, Dimension, Event, FlowEntry, FlowKey, MAX_BOUND_BITS, MAX_RULES, NONE, RULE_WORDS,
    RuleVector, Settings,
};

use crate::{
    account,
    maps::{BOUNDS, FLOWS, RULES, SPANS, VECTORS},
};

/// The class of a packet, or [`NONE`].
#[inline(always)]
pub(crate) fn class(ctx: &TcContext, key: &FlowKey, generation: u64, settings: &Settings) -> u32 {
    // SAFETY: an entry that is evicted and filled anew while it is read belongs to another flow; the
    // generation and class are read at once, and a wrong class would last one packet.
    if let Some(entry) = unsafe { FLOWS.get(key) }
        && entry.generation == generation
    {
        return entry.class;
    }
    let class = search(ctx, key, generation, settings);
    // A cache that cannot take the entry costs time, not correctness.
    let _ = FLOWS.insert(
        key,
        &FlowEntry {
            generation,
            class,
            reserved: 0,
        },
        0,
    );
    class
}

/// A subprogram of its own: it runs once per flow and needs stack.
#[inline(never)]
fn search(ctx: &TcContext, key: &FlowKey, generation: u64, settings: &Settings) -> u32 {
    let half = (generation & 1) as u32;
    let direction = key.direction & 1;
    let table = half * 2 + direction;
    let words = settings.rule_words[direction as usize];

    // One vector per dimension that matters; the null ones match every rule.
    let mut vectors: [Option<&RuleVector>; DIMENSIONS as usize] = [None; DIMENSIONS as usize];
    macro_rules! dimension {
        ($dimension:expr, $value:expr) => {
            match lookup(table, $dimension, $value) {
                Ok(vector) => vectors[$dimension as usize] = vector,
                Err(Inconsistent) => {
                    account::event(ctx, Event::Inconsistent);
                    return NONE;
                }
            }
        };
    }
    dimension!(Dimension::Source, address(&key.source));
    dimension!(Dimension::Destination, address(&key.destination));
    dimension!(Dimension::SourcePort, (0, u64::from(key.source_port)));
    dimension!(Dimension::DestinationPort, (0, u64::from(key.destination_port)));
    dimension!(Dimension::Ethertype, (0, u64::from(key.ethertype)));
    dimension!(Dimension::Protocol, (0, u64::from(key.protocol)));
    dimension!(Dimension::Dscp, (0, u64::from(key.dscp)));
    dimension!(Dimension::Mark, (0, u64::from(key.mark)));

    for word in 0..RULE_WORDS {
        if word as u32 >= words {
            break;
        }
        let mut rules = u64::MAX;
        for vector in vectors.into_iter().flatten() {
            rules &= vector.words[word];
        }
        if rules != 0 {
            let rule = word as u32 * 64 + lowest_bit(rules);
            return match RULES.get(table * MAX_RULES + rule) {
                Some(&class) => class,
                None => NONE,
            };
        }
    }
    NONE
}

struct Inconsistent;

/// The rules that a value satisfies; `None` if the dimension does not matter.
#[inline(always)]
fn lookup(
    table: u32,
    dimension: Dimension,
    value: (u64, u64),
) -> Result<Option<&'static RuleVector>, Inconsistent> {
    let span = SPANS
        .get(table * DIMENSIONS + dimension as u32)
        .ok_or(Inconsistent)?;
    if span.len == 0 {
        return Ok(None);
    }
    // The last boundary that is not above the value; the first boundary is 0.
    let (mut low, mut len) = (span.start, span.len);
    for _ in 0..=MAX_BOUND_BITS {
        if len <= 1 {
            break;
        }
        let half = len / 2;
        let bound: &Bound = BOUNDS.get(low + half).ok_or(Inconsistent)?;
        if bound.high < value.0 || (bound.high == value.0 && bound.low <= value.1) {
            low += half;
            len -= half;
        } else {
            len = half;
        }
    }
    let bound: &Bound = BOUNDS.get(low).ok_or(Inconsistent)?;
    VECTORS.get(bound.vector).map(Some).ok_or(Inconsistent)
}

#[inline(always)]
fn address(bytes: &[u8; 16]) -> (u64, u64) {
    // SAFETY: 16 bytes hold two words; the key is 8-byte aligned on the stack, and unaligned reads are asked for.
    let [high, low] = unsafe { bytes.as_ptr().cast::<[u64; 2]>().read_unaligned() };
    (u64::from_be(high), u64::from_be(low))
}

/// Index of the lowest set bit of a word that is not 0.
#[inline(always)]
fn lowest_bit(word: u64) -> u32 {
    let mut word = word;
    let mut bit = 0;
    if word & 0xffff_ffff == 0 {
        bit += 32;
        word >>= 32;
    }
    if word & 0xffff == 0 {
        bit += 16;
        word >>= 16;
    }
    if word & 0xff == 0 {
        bit += 8;
        word >>= 8;
    }
    if word & 0xf == 0 {
        bit += 4;
        word >>= 4;
    }
    if word & 3 == 0 {
        bit += 2;
        word >>= 2;
    }
    if word & 1 == 0 {
        bit += 1;
    }
    bit
}
