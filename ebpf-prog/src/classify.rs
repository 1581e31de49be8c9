//! Which class a packet belongs to: the flow cache, and behind it the bit-vector classifier
//! (Lakshman and Stiliadis, SIGCOMM 1998). Each dimension's binary search yields the set of rules
//! that its value satisfies; the lowest rule in all sets is the first match. A packet of a known
//! flow costs a look at its bucket, however many classes there are.

use aya_ebpf::helpers::bpf_get_prandom_u32;
use perturb_common::{
    abi::{DIMENSIONS, Dimension, Event, MAX_BOUND_BITS, NONE, RULE_WORDS, RuleVector, Scope, rule_place},
    flow::{self, FlowEntry, WAYS},
    instance as places,
};

use crate::{
    account, flows, instance,
    maps::{
        BOUNDS, FLOW_HOME, FLOW_MASK, FLOWS, INSTANCE_MASK, INSTANCES, RULES, SECRET, SETTINGS, SPANS,
        VECTORS,
    },
    scratch::Scratch,
};

/// The class of the packet in `scratch`, or [`NONE`].
///
/// # Safety
/// `scratch` must be this CPU's.
#[inline(always)]
pub(crate) unsafe fn class(scratch: *mut Scratch, generation: u64) -> u32 {
    if FLOW_HOME.load() != NONE {
        return class_at_home(generation);
    }
    // SAFETY: the caller's, and the references end here.
    unsafe {
        let hash = hash(scratch, generation);
        look_up(
            scratch,
            hash,
            hash as u32 & FLOW_MASK.load() & !(WAYS - 1),
            generation,
        )
    }
}

/// [`class`] where the flow cache lies at instances. A global function, for the stack's sake.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn class_at_home(generation: u64) -> u32 {
    let Some(scratch) = Scratch::here() else {
        return NONE;
    };
    // SAFETY: this CPU's scratch, and the references end here.
    unsafe {
        let name = instance::named(&*scratch, Scope::Flow as u32, FLOW_HOME.load(), 0);
        (*scratch).name = name;
        let home = places::place(name, 0, INSTANCE_MASK.load());
        let hash = hash(scratch, generation);
        look_up(scratch, hash, home, generation)
    }
}

/// Hashes the key.
///
/// # Safety
/// `scratch` must be this CPU's.
#[inline(always)]
unsafe fn hash(scratch: *mut Scratch, generation: u64) -> u64 {
    // SAFETY: the caller's: one run at a time uses a CPU's scratch, and the reference ends here.
    unsafe {
        let hash = flow::hash(&(*scratch).key.words(), generation, |word| SECRET[word].load());
        (*scratch).hash = hash;
        hash
    }
}

/// What the flow cache says of the key with this hash; if it says nothing, the key is classified.
///
/// # Safety
/// `scratch` must be this CPU's.
#[inline(always)]
unsafe fn look_up(scratch: *mut Scratch, hash: u64, bucket: u32, generation: u64) -> u32 {
    for way in 0..WAYS {
        if let Some(class) = entry(bucket, way).and_then(|entry| entry.open(hash, generation)) {
            return class;
        }
    }
    // SAFETY: the caller's.
    unsafe { (*scratch).bucket = u64::from(bucket) };
    learn(generation)
}

/// A place of the flow cache.
#[inline(always)]
fn place(bucket: u32, way: u32) -> Option<*mut FlowEntry> {
    if FLOW_HOME.load() == NONE {
        return FLOWS.get_ptr_mut(bucket + way);
    }
    let (line, place) = flow::beside(bucket, way);
    let state = INSTANCES.get_ptr_mut(line)?;
    // SAFETY: a map value; an entry is one of its words.
    Some(unsafe { (&raw mut (*state).beside).cast::<FlowEntry>().add(place) })
}

/// What it says. One load: other CPUs write places as a whole.
#[inline(always)]
fn entry(bucket: u32, way: u32) -> Option<FlowEntry> {
    // SAFETY: a map value.
    place(bucket, way).map(|place| unsafe { place.read_volatile() })
}

/// Classifies the key in this CPU's scratch and notes its class in place of one that is out of date,
/// or of any. Once per flow, and a global function: see [`search`].
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn learn(generation: u64) -> u32 {
    let Some(scratch) = Scratch::here() else {
        return NONE;
    };
    let class = search((generation & 1) as u32);
    // SAFETY: this CPU's.
    let (hash, bucket) = unsafe { ((*scratch).hash, (*scratch).bucket as u32) };
    let mut vacant = WAYS;
    for way in 0..WAYS {
        if entry(bucket, way).is_some_and(|entry| !entry.in_use(generation)) {
            vacant = way;
            break;
        }
    }
    if vacant == WAYS {
        // SAFETY: the helper has no preconditions.
        vacant = unsafe { bpf_get_prandom_u32() } & (WAYS - 1);
    }
    if let Some(place) = place(bucket, vacant) {
        let entry = FlowEntry::new(hash, generation, class);
        // SAFETY: a map value, written with one store.
        unsafe { place.write_volatile(entry) };
    }
    if class != NONE {
        flows::note(class);
    }
    class
}

/// The first class that matches the key in this CPU's scratch, once per flow. A global function,
/// which takes numbers only: the verifier walks it once.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn search(half: u32) -> u32 {
    let Some(scratch) = Scratch::here() else {
        return NONE;
    };
    // SAFETY: this CPU's scratch; nothing that is called from here writes to it.
    let key = unsafe { &(*scratch).key };
    let direction = u32::from(key.direction) & 1;
    let Some(settings) = SETTINGS.get(half & 1) else {
        return NONE;
    };
    let words = settings.rule_words[direction as usize];
    let table = (half & 1) * 2 + direction;
    let (source, destination) = (address(&key.source), address(&key.destination));
    let small = |dimension, value| vector(table, dimension, (0, value));
    let vectors = (
        vector(table, Dimension::Source, source),
        vector(table, Dimension::Destination, destination),
        small(Dimension::SourcePort, u64::from(key.source_port)),
        small(Dimension::DestinationPort, u64::from(key.destination_port)),
        small(Dimension::Ethertype, u64::from(key.ethertype)),
        small(Dimension::Protocol, u64::from(key.protocol)),
        small(Dimension::Dscp, u64::from(key.dscp)),
        small(Dimension::Mark, u64::from(key.mark)),
        small(Dimension::Cgroup, u64::from(key.cgroup)),
    );
    let (Some(a), Some(b), Some(c), Some(d), Some(e), Some(f), Some(g), Some(h), Some(i)) = vectors else {
        account::count(Event::Inconsistent);
        return NONE;
    };
    for word in 0..RULE_WORDS {
        if word as u32 >= words {
            break;
        }
        let rules = a.words[word]
            & b.words[word]
            & c.words[word]
            & d.words[word]
            & e.words[word]
            & f.words[word]
            & g.words[word]
            & h.words[word]
            & i.words[word];
        if rules != 0 {
            let rule = word as u32 * 64 + lowest_bit(rules);
            return match RULES.get(rule_place(table, rule)) {
                Some(&class) => class,
                None => NONE,
            };
        }
    }
    NONE
}

/// The rules that a value satisfies.
#[inline(always)]
fn vector(table: u32, dimension: Dimension, (high, low): (u64, u64)) -> Option<&'static RuleVector> {
    let span = table * DIMENSIONS + dimension as u32;
    VECTORS.get(locate(span, high, low, table >> 1))
}

/// Index of the vector of the last boundary that is not above the value; `all` (every rule) for a
/// dimension that does not matter, [`NONE`] if the tables contradict themselves.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn locate(span: u32, high: u64, low: u64, all: u32) -> u32 {
    let Some(span) = SPANS.get(span) else { return NONE };
    if span.len == 0 {
        return all;
    }
    let (mut first, mut len) = (span.start, span.len);
    for _ in 0..=MAX_BOUND_BITS {
        if len <= 1 {
            break;
        }
        let half = len / 2;
        let Some(bound) = BOUNDS.get(first + half) else {
            return NONE;
        };
        if bound.high < high || (bound.high == high && bound.low <= low) {
            first += half;
            len -= half;
        } else {
            len = half;
        }
    }
    BOUNDS.get(first).map_or(NONE, |bound| bound.vector)
}

/// An address as the halves of a number.
#[inline(always)]
pub(crate) fn address(bytes: &[u8; 16]) -> (u64, u64) {
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
