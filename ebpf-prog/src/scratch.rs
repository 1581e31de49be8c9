//! Working memory of one run: the BPF stack holds 512 bytes over all frames. Per CPU, and programs
//! of this crate do not nest on a CPU: what `bpf_clone_redirect` runs inside them (`stamp`) does
//! not come here.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use perturb_common::{
    abi::{FlowKey, FragmentKey},
    departure::{Cost, Load},
    flow::KeyWords,
    ties::Memory,
    units::{Instant, MonoNanos},
};

use crate::{hold::Held, queue::Judged, timeline::Change};

#[map]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// The packet at hand.
#[repr(C)]
pub(crate) struct Scratch {
    /// Comes first: `packet` writes it as words.
    pub(crate) key: FlowKey,
    /// Of the key; [`crate::classify`] computes it.
    pub(crate) hash: u64,
    /// The name of its flow's instance where the flow cache lies at instances; [`crate::classify`] notes it.
    pub(crate) name: u64,
    /// The name of its instance at the server at hand.
    pub(crate) instance: u64,
    /// The first place of its flow's bucket, or its flow's home.
    pub(crate) bucket: u64,
    pub(crate) load: Load,
    pub(crate) job: Job,
    pub(crate) walk: Walk,
    /// Index of the server where the fold goes on, or [`perturb_common::abi::Tag::DELIVER`].
    pub(crate) reached: u32,
    /// Where the header lies that is read ([`forgotten`]).
    pub(crate) offset: u32,
    /// What it costs at the server at hand.
    pub(crate) cost: Cost,
    pub(crate) place: Place,
    pub(crate) change: Change,
    pub(crate) judged: Judged,
    /// What is remembered of the fates of a server's packets ([`crate::ties`]).
    pub(crate) memory: Memory,
    pub(crate) fragment: FragmentKey,
    pub(crate) held: Held,
    /// Number of its sender's cgroup, which it carried while it was held.
    pub(crate) cgroup: u64,
    /// How late it was released, ns.
    pub(crate) late: u64,
    pub(crate) sighted: Sighted,
}

/// A number by way of memory: the verifier then forgets what it was made of, and walks on once.
#[inline(always)]
pub(crate) fn forgotten(place: &mut u32, number: u32) -> u32 {
    let place = &raw mut *place;
    // SAFETY: a reference.
    unsafe {
        place.write_volatile(number);
        place.read_volatile()
    }
}

/// What `perturb capture` is to see ([`crate::sight`]).
#[repr(C)]
pub(crate) struct Sighted {
    /// Whether the packet at hand is recorded.
    pub(crate) on: u64,
    /// Servers that it has crossed on this leg.
    pub(crate) crossings: u64,
}

// SAFETY: each CPU has its own, and programs of this crate do not nest on a CPU.
unsafe impl Sync for Scratch {}

/// What is to be done with it.
#[repr(C)]
pub(crate) struct Job {
    /// The time by the clock.
    pub(crate) now: MonoNanos,
    /// When it arrives at the next server, ahead of the clock ([`crate::lead`]) or late.
    pub(crate) arrival: MonoNanos,
    /// The half of the tables that holds its path.
    pub(crate) half: u32,
    pub(crate) class: u32,
    /// Index of its path within the half.
    pub(crate) path: u32,
    /// Index of the next server on it.
    pub(crate) position: u32,
    /// Of the paths, as a tag says it.
    pub(crate) epoch: u32,
}

/// How the packet has fared so far on its path. What begins as zero has neighbours that do not: words that are cleared together
/// become a call of `memset`, a byte at a time.
#[repr(C)]
pub(crate) struct Walk {
    /// How long it waited at the server that it crossed last, ticks.
    pub(crate) wait: u64,
    /// Logical time of arrival at the next server.
    pub(crate) time: Instant,
    /// `Walk::*`.
    pub(crate) flags: u64,
    /// What it costs there: both copies of a duplicated packet.
    pub(crate) load: Load,
    /// Bytes on the wire of the server at hand, if that frames packets ([`crate::framing`]).
    pub(crate) wire: u64,
    /// 1, or 2 if it was duplicated.
    pub(crate) copies: u64,
    /// Where a bit is flipped (high half) and which (low half); 0 for none.
    pub(crate) damage: u64,
}

/// The packet's place in a buffer that is limited in packets ([`crate::buffer`]).
#[repr(C)]
pub(crate) struct Place {
    /// Which it is.
    pub(crate) turn: u64,
    /// When the packet has been transmitted that took it last, ticks.
    pub(crate) before: u64,
    /// When it leaves, ticks; 0 if it was dropped before.
    pub(crate) transmitted: u64,
    /// When it came, ticks, to a server whose packets leave in slots.
    pub(crate) arrived: u64,
}

impl Walk {
    /// Set the CE mark.
    pub(crate) const MARK: u64 = 1;
    /// It may overtake others.
    pub(crate) const REORDER: u64 = 2;
    /// Its ECN field is known ([`crate::packet::look`]).
    pub(crate) const LOOKED: u64 = 4;
    /// It lies here in the flags: the two low bits of the IP header's class, 0 of what is not IP.
    pub(crate) const ECN_SHIFT: u32 = 3;

    /// Its ECN field, if somebody has looked.
    #[inline(always)]
    pub(crate) const fn ecn(&self) -> u32 {
        (self.flags >> Self::ECN_SHIFT) as u32 & 3
    }
}

impl Scratch {
    /// This CPU's. A reference to it must not live across a call of a global function (`search`, `learn`,
    /// `visit`), which comes here too: whoever calls one keeps the pointer.
    #[inline(always)]
    pub(crate) fn here() -> Option<*mut Self> {
        SCRATCH.get_ptr_mut(0)
    }
}

/// Writes a key of six words, one by one: neighbours that are cleared together become a call of `memset`, which clears
/// a byte at a time.
///
/// # Safety
/// `key` must be valid for writes, and the words a valid `T`.
#[inline(always)]
pub(crate) unsafe fn write_words<T>(key: *mut T, words: KeyWords) {
    const { assert!(size_of::<T>() == size_of::<KeyWords>() && align_of::<T>() == align_of::<u64>()) };
    for (at, word) in words.into_iter().enumerate() {
        // SAFETY: the caller's; a `T` is as large as six words and aligned as they are.
        unsafe { key.cast::<u64>().add(at).write_volatile(word) };
    }
}
