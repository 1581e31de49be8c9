//! LogGP's overhead o: processor time burnt on this host for each wire packet, in the context that
//! handles it (the sender's at egress, softirq at ingress), so that it is the host that is slow
//! and not the network.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_loop};
use perturb_common::{abi::MAX_OVERHEAD, units::Nanos};

use crate::maps::HAVE_JIT;

/// Rounds of the callback loop: each takes at least 10 ns, so they cover 84 ms, more than 64
/// segments at [`MAX_OVERHEAD`].
const ROUNDS: u32 = 1 << 23;
/// Rounds of the plain loop, which the verifier walks one by one, and how often it is begun again: an interpreter on a
/// fast processor takes 45 ns for a round, so they cover one packet at [`MAX_OVERHEAD`] twice over.
const INTERPRETED_ROUNDS: u32 = 1 << 12;
const INTERPRETED_TURNS: u32 = 12;

/// Burns `overhead` for each of `segments` wire packets.
#[inline(always)]
pub(crate) fn burn(overhead: u64, segments: u64) {
    if overhead == 0 {
        return;
    }
    let overhead = if overhead > MAX_OVERHEAD.0 {
        MAX_OVERHEAD
    } else {
        Nanos(overhead)
    };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let mut mark = now + overhead.0 * segments;
    if HAVE_JIT.load() != 0 {
        // SAFETY: the callback matches the helper's prototype and `mark` outlives the call.
        unsafe {
            bpf_loop(ROUNDS, past as *mut c_void, (&raw mut mark).cast(), 0);
        }
    } else {
        for _ in 0..INTERPRETED_TURNS {
            if poll(mark) != 0 {
                break;
            }
        }
    }
}

/// Polls the clock for a while: 1 once it has passed the mark. A global function, which takes numbers only: the verifier
/// walks its rounds once.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn poll(mark: u64) -> u32 {
    for _ in 0..INTERPRETED_ROUNDS {
        // SAFETY: the helper has no preconditions.
        if unsafe { bpf_ktime_get_ns() } >= mark {
            return 1;
        }
    }
    0
}

/// 1 (stop) once the clock has passed the mark.
unsafe extern "C" fn past(_round: u32, mark: *mut c_void) -> i64 {
    // SAFETY: `burn` passes a pointer to its mark; the helper has no preconditions.
    unsafe { i64::from(bpf_ktime_get_ns() >= *mark.cast::<u64>()) }
}
