//! `aya_ebpf::helpers`: what the kernel does for programs, done here.
//!
//! # Safety
//! A context must be that of a [`Frame`] on which a program runs, and pointers must have room for what is copied.
#![expect(
    clippy::missing_safety_doc,
    reason = "the same for all, and said above; the names and prototypes are the kernel's"
)]

use std::ffi::c_void;

use crate::{
    bindings::{__sk_buff, BPF_F_INGRESS, TC_ACT_REDIRECT},
    frame::{Frame, Way},
    seat,
};

const EINVAL: i64 = -22;
const EFAULT: i64 = -14;

/// What the helpers for the running program need to know and are not told.
///
/// # Safety
/// See the module.
#[inline(always)]
unsafe fn frame<'a>(skb: *mut __sk_buff) -> &'a mut Frame {
    // SAFETY: the caller's: a context is the first field of a frame.
    unsafe { &mut *skb.cast::<Frame>() }
}

/// CLOCK_MONOTONIC, ns, as far behind as the seat says.
#[inline(always)]
pub unsafe fn bpf_ktime_get_ns() -> u64 {
    seat::came()
}

/// A random number.
#[inline(always)]
pub unsafe fn bpf_get_prandom_u32() -> u32 {
    seat::random()
}

/// Sends the frame to a device, 0 for nowhere, once the program has ended. It is noted at the seat: the helper gets no context.
#[inline(always)]
pub unsafe fn bpf_redirect(device: u32, flags: u64) -> i64 {
    seat::redirect(Way {
        device,
        received: flags & u64::from(BPF_F_INGRESS) != 0,
    });
    TC_ACT_REDIRECT.into()
}

/// Sends a copy of the frame to a device. It is as the frame will be once the program has ended: the programs change nothing after.
pub unsafe fn bpf_clone_redirect(skb: *mut __sk_buff, device: u32, _flags: u64) -> i64 {
    // SAFETY: the caller's.
    let frame = unsafe { frame(skb) };
    if frame.clones != 0 && frame.cloned_to != device {
        return EINVAL;
    }
    frame.cloned_to = device;
    frame.clones += 1;
    0
}

/// Copies bytes out of the frame.
#[inline(always)]
pub unsafe fn bpf_skb_load_bytes(skb: *const c_void, offset: u32, to: *mut c_void, length: u32) -> i64 {
    // SAFETY: the caller's.
    let loaded = unsafe {
        let frame = &*skb.cast::<Frame>();
        frame.load(offset as usize, to.cast(), length as usize)
    };
    if loaded { 0 } else { EFAULT }
}

/// Copies bytes into the frame.
#[inline(always)]
pub unsafe fn bpf_skb_store_bytes(
    skb: *mut __sk_buff,
    offset: u32,
    from: *const c_void,
    length: u32,
    _flags: u64,
) -> i64 {
    // SAFETY: the caller's.
    let stored = unsafe { frame(skb).store(offset as usize, from.cast(), length as usize) };
    if stored { 0 } else { EFAULT }
}

/// Stamps the frame, of whatever protocol: nothing on its way takes a stamp off.
#[inline(always)]
pub unsafe fn bpf_skb_set_tstamp(skb: *mut __sk_buff, time: u64, kind: u32) -> i64 {
    // SAFETY: the caller's.
    unsafe {
        (*skb).tstamp = time;
        (*skb).tstamp_type = kind as u8;
    }
    0
}

/// Sets the hash.
#[inline(always)]
pub unsafe fn bpf_set_hash(skb: *mut __sk_buff, hash: u32) -> i64 {
    // SAFETY: the caller's.
    unsafe { (*skb).hash = hash };
    0
}

/// The hash. Only what carries a sender's cgroup asks for it.
pub unsafe fn bpf_get_hash_recalc(skb: *mut __sk_buff) -> u32 {
    // SAFETY: the caller's.
    unsafe { (*skb).hash }
}

/// Takes the hash off.
#[inline(always)]
pub unsafe fn bpf_set_hash_invalid(skb: *mut __sk_buff) {
    // SAFETY: the caller's.
    unsafe { (*skb).hash = 0 };
}

/// Whose packet it is: there is nobody but its receiver.
pub unsafe fn bpf_skb_change_type(_skb: *mut __sk_buff, _kind: u32) -> i64 {
    0
}

/// No frame says which cgroup sent it.
pub unsafe fn bpf_skb_ancestor_cgroup_id(_skb: *mut __sk_buff, _level: i32) -> u64 {
    0
}

/// Calls `step` at most so often, until it says 1; how often it did.
pub unsafe fn bpf_loop(rounds: u32, step: *mut c_void, context: *mut c_void, _flags: u64) -> i64 {
    // SAFETY: the caller's: a callback of this prototype.
    let step: unsafe extern "C" fn(u32, *mut c_void) -> i64 = unsafe { std::mem::transmute(step) };
    for round in 0..rounds {
        // SAFETY: the caller's.
        if unsafe { step(round, context) } != 0 {
            return i64::from(round) + 1;
        }
    }
    rounds.into()
}

/// Sets the CE mark of an IP packet that is ECN-capable (`INET_ECN_set_ce`): 1 if it has it then.
pub unsafe fn bpf_skb_ecn_set_ce(skb: *mut __sk_buff) -> i64 {
    const ETHERNET: usize = 14;
    // SAFETY: the caller's.
    let frame = unsafe { frame(skb) };
    let mut ethertype = u16::from_be(frame.skb.protocol as u16);
    let mut offset = ETHERNET;
    // `skb_protocol(skb, true)`, `vlan_get_protocol`: behind VLAN tags.
    while matches!(ethertype, 0x8100 | 0x88a8) {
        let mut next = [0; 2];
        // SAFETY: so many bytes.
        if !unsafe { frame.load(offset + 2, next.as_mut_ptr(), 2) } {
            return 0;
        }
        ethertype = u16::from_be_bytes(next);
        offset += 4;
    }
    let mut header = [0_u8; 20];
    // SAFETY: so many bytes.
    if !unsafe { frame.load(offset, header.as_mut_ptr(), header.len()) } {
        return 0;
    }
    let ecn = match ethertype {
        0x0800 => header[1] & 3,
        0x86dd => header[1] >> 4 & 3,
        _ => return 0,
    };
    let before = [header[0], header[1]];
    match (ecn, ethertype) {
        (0, _) => return 0,
        (3, _) => return 1,
        (_, 0x0800) => {
            header[1] |= 3;
            let sum = u16::from_be_bytes([header[10], header[11]]);
            let sum = updated(sum, before, [header[0], header[1]]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        _ => header[1] |= 0x30,
    }
    // SAFETY: so many bytes.
    unsafe { frame.store(offset, header.as_ptr(), header.len()) };
    1
}

/// A checksum once a word of what it is of has changed (RFC 1624).
fn updated(sum: u16, before: [u8; 2], after: [u8; 2]) -> u16 {
    let [before, after] = [before, after].map(u16::from_be_bytes);
    let mut sum = u32::from(!sum) + u32::from(!before) + u32::from(after);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}
