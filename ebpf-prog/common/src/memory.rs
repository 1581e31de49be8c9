//! What packets take of the kernel's memory while sch_fq holds them.
//!
//! Model: the kernel's own figure is `skb->truesize`, which programs cannot read. It is estimated from what they see: length,
//! size of segments, direction. A packet is an `sk_buff` and a buffer, behind whose data `skb_shared_info` lies, from a cache of
//! sizes that are powers of two (`__alloc_skb`, `kmalloc_reserve`; small ones since Linux 6.3 from `skb_small_head_cache`).
//! The clone of a local sender's packet keeps that buffer alive, and no socket pays for it any more (`skb_clone`). A
//! super-packet that this host sends lies in pieces of pages (`skb_page_frag_refill`); of one that it has received each segment
//! may have half a page of its own (drivers), or an `sk_buff` (`skb_gro_receive_list`).
//! What lacks: drivers that give each frame more than half a page. What is held then takes up to twice the estimate.
//!
//! What is charged when a packet is held is computed again when it leaves, from the same figures.

use crate::shared::Word;

/// Memory is counted in units of so many bytes.
pub const UNIT: u64 = 1 << UNIT_BITS;
const UNIT_BITS: u32 = 6;

/// `struct sk_buff` (232 bytes, 256 in its cache), and a share of sch_fq's flows and of what caches leave unused.
const HEAD: u32 = 320;
/// `struct skb_shared_info` (320 bytes), and room for headers of lower layers (`LL_RESERVED_SPACE`, `NET_SKB_PAD`).
const AROUND: u32 = 320 + 64;
/// The smallest buffer is of 512 bytes, or a cell of `skb_small_head_cache`, whose size depends on the kernel's configuration: so
/// much at most.
const SMALLEST: u32 = 704;
/// A driver copies what is not longer into a small buffer.
const COPIED: u32 = 256;
/// Half a page, which drivers receive a frame into.
const HALF_PAGE: u32 = 2048;
/// Longer data lies in pieces of pages, whoever sends it (`SKB_MAX_ALLOC`).
const LONGEST_BUFFER: u32 = 16 * 1024;
/// The linear buffer of a packet whose data lies in pieces of pages.
const LINEAR: u32 = 1024;
const PAGE: u32 = 4096;

/// What a packet of this length takes, in units of [`UNIT`] bytes; `gso_size` is 0 unless it is a super-packet, `received` says
/// that this host has not sent it.
#[inline(always)]
#[must_use]
pub const fn of(len: u32, gso_size: u32, received: bool) -> u32 {
    (if gso_size != 0 {
        super_packet(len, gso_size, received)
    } else {
        HEAD + buffer(len, received)
    }) >> UNIT_BITS
}

#[inline(always)]
const fn buffer(len: u32, received: bool) -> u32 {
    let need = len + AROUND;
    if received && len > COPIED && need <= HALF_PAGE {
        HALF_PAGE
    } else if need <= 512 {
        SMALLEST
    } else if need <= 1024 {
        1024
    } else if need <= 2048 {
        2048
    } else if need <= 4096 {
        4096
    } else if need <= 8192 {
        8192
    } else if need <= LONGEST_BUFFER {
        LONGEST_BUFFER
    } else {
        LINEAR + PAGE + len
    }
}

#[inline(always)]
const fn super_packet(len: u32, gso_size: u32, received: bool) -> u32 {
    // A router's may lie in half pages, too, of which full frames fill two thirds.
    let sent = HEAD + LINEAR + len + len / 2 + len / 8;
    if received {
        let parts = (len / gso_size + 1) * (HEAD + HALF_PAGE);
        if parts > sent { parts } else { sent }
    } else {
        sent
    }
}

/// So many packets and so many [`UNIT`]s of memory, in one word.
///
/// ```text
/// bits 63..32  packets
/// bits 31..0   units, signed: between processors that charge and those that release there may be less than none
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(transparent)]
pub struct Held(pub u64);

impl Held {
    /// So many packets that take so many units together.
    #[inline(always)]
    #[must_use]
    pub const fn new(packets: u32, units: u32) -> Self {
        Self(((packets as u64) << 32).wrapping_add(units as u64))
    }

    /// Units of memory.
    #[inline(always)]
    #[must_use]
    pub const fn units(self) -> i32 {
        self.0 as i32
    }

    /// Packets.
    #[inline(always)]
    #[must_use]
    pub const fn packets(self) -> i32 {
        (self.0.wrapping_sub(self.units() as i64 as u64) >> 32) as i32
    }

    /// These and others.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0.wrapping_add(others.0))
    }

    /// These without others.
    #[inline(always)]
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0.wrapping_sub(others.0))
    }

    /// What so many of these packets take on average; none are more than there are.
    #[must_use]
    pub const fn share(self, packets: u64) -> Self {
        let (all, units) = (self.packets(), self.units());
        if all <= 0 || units < 0 {
            return Self(0);
        }
        let (all, units) = (all as u64, units as u64);
        let packets = if packets > all { all } else { packets };
        Self::new(packets as u32, (units * packets / all) as u32)
    }
}

/// A processor tells the others of what it holds more, or less, when it is so much, units: 16 KiB.
pub const BATCH: i32 = 256;

/// Notes at `here`, a processor's own word, that it holds `more`, and tells at `all`, everybody's, when it is much.
#[inline(always)]
pub fn note<W: Word>(all: &W, here: Held, more: Held) -> Held {
    let here = here.and(more);
    if here.units() >= BATCH || here.units() <= -BATCH {
        all.fetch_add(here.0);
        return Held(0);
    }
    here
}

/// Whether `limit` bytes admit more than what is held.
#[inline(always)]
#[must_use]
pub const fn admits(held: Held, more: Held, limit: u64) -> bool {
    let units = held.units() as i64 + more.units() as i64;
    units <= (limit >> UNIT_BITS) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `truesize` as the kernel has it for a linear packet: `SKB_TRUESIZE` of a buffer of its cache.
    fn truesize(buffer: u32) -> u32 {
        256 + buffer
    }

    #[test]
    fn linear_packets_take_their_cells() {
        // Length, and the buffer that the kernel takes for it: Linux 6.1, and since 6.3.
        for (len, old, new) in [
            (60, 512, 640),
            (250, 1024, 640),
            (600, 1024, 1024),
            (1514, 2048, 2048),
            (9014, 16_384, 16_384),
        ] {
            for received in [false, true] {
                let charged = of(len, 0, received) * UNIT as u32;
                let (least, most) = (truesize(old.min(new)), truesize(old.max(new)));
                assert!(charged >= most, "{len}: {charged} of {most}");
                // A driver's half page may be more than what a packet from a veth takes.
                if !received {
                    assert!(charged <= least * 2, "{len}: {charged} of {least}");
                }
            }
        }
    }

    #[test]
    fn super_packets_take_pages() {
        let len = 45 * 1448 + 66;
        let sent = of(len, 1448, false) * UNIT as u32;
        assert!(sent > truesize(1024 + len) && sent < 2 * truesize(1024 + len));
        // Of a received one each segment has half a page, or a packet's memory.
        for size in [536, 1448] {
            let charged = of(len, size, true) * UNIT as u32;
            assert!(charged >= (len / size) * truesize(2048), "{size}: {charged}");
        }
    }

    #[test]
    fn nothing_overflows() {
        for len in [0, 14, 65_535, 1 << 19] {
            for size in [0, 1, 8, 65_535] {
                for received in [false, true] {
                    assert!(of(len, size, received) < 1 << 25, "{len} {size}");
                }
            }
        }
    }

    #[test]
    fn longer_packets_take_no_less() {
        for received in [false, true] {
            for size in [0, 536] {
                let sizes = (1..70_000).map(|len| of(len, size, received));
                assert!(sizes.is_sorted());
            }
        }
    }

    #[test]
    fn sums_may_be_negative_in_between() {
        let one = Held::new(1, 36);
        let less = Held(0).without(one).without(one);
        assert_eq!((less.packets(), less.units()), (-2, -72));
        let sum = less.and(one).and(one).and(one);
        assert_eq!((sum.packets(), sum.units()), (1, 36));
        assert!(admits(less, one, 0));
        assert!(admits(one, one, 72 * UNIT) && !admits(one, one, 71 * UNIT));
    }

    #[test]
    fn a_share_is_the_average() {
        let held = Held::new(10, 1000);
        assert_eq!(held.share(3), Held::new(3, 300));
        assert_eq!(held.share(1 << 40), held);
        assert_eq!(Held(0).share(5), Held(0));
        assert_eq!(Held(0).without(held).share(5), Held(0));
    }
}
