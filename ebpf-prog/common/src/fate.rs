//! Loss, duplication, corruption and jitter: pseudo-random choices that are a pure function of the
//! profile's seed, the server, and the packet's index there. The same packets meet the same fate in
//! two runs, whatever CPU they are sent from.

/// A probability as a threshold on a 32-bit draw: 0 never, otherwise the event happens if the draw
/// is not above it; `u32::MAX` is always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(transparent)]
pub struct Chance(pub u32);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(u32::MAX);

    /// From parts per 10^9 (1_000_000_000 is certainty), rounded to the nearest threshold; what is
    /// neither 0 nor 1 stays so.
    #[must_use]
    pub const fn from_parts_per_billion(parts: u64) -> Self {
        if parts == 0 {
            return Self::NEVER;
        }
        if parts >= 1_000_000_000 {
            return Self::ALWAYS;
        }
        let threshold = ((parts << 32) + 500_000_000) / 1_000_000_000;
        Self(if threshold <= 1 { 1 } else { (threshold - 1) as u32 })
    }

    /// Whether the event happens for this draw.
    #[inline(always)]
    #[must_use]
    pub const fn hit(self, draw: u32) -> bool {
        self.0 != 0 && draw <= self.0
    }
}

/// What a draw decides; draws of one packet for different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// The time to a slot ([`crate::grants`]); of slots, not of packets.
    Slot = 0,
    /// Independent loss (high half) and the loss inside a Gilbert–Elliott state (low half).
    Loss = 1,
    /// The step of the chain of losses (high half), and whether a packet goes ahead (low half).
    Burst = 2,
    /// Added latency.
    Jitter = 3,
    /// Duplication (high half) and corruption (low half).
    Damage = 4,
    /// Which bit is corrupted.
    Bit = 5,
    /// Time lost to collisions (low half), and whether the frame is given up (high half).
    Collision = 6,
    /// What the law of a queue draws.
    Queue = 7,
}

/// 64 random bits for the `index`-th packet of the `ordinal`-th instance of the server that `salt`
/// names: the finalizer of SplitMix64 (Steele, Lea and Flood 2014) over a Weyl-like combination.
#[inline(always)]
#[must_use]
pub const fn draw(salt: u64, ordinal: u64, index: u64, purpose: Purpose) -> u64 {
    let mut z = salt
        .wrapping_add(ordinal.wrapping_mul(0xd134_2543_de82_ef95))
        .wrapping_add(
            index
                .wrapping_mul(8)
                .wrapping_add(purpose as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15),
        );
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The salt of a server: the profile's seed and a hash (FNV-1a) of the server's name, so that adding
/// a server changes no other's draws.
#[must_use]
pub fn salt(seed: u64, server: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in server {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    draw(hash, seed, 0, Purpose::Loss)
}

/// The Gilbert–Elliott loss model (Gilbert 1960, Elliott 1963), parameters as in netem's `gemodel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct GilbertElliott {
    /// p: from good to bad, per packet.
    pub to_bad: Chance,
    /// r: from bad to good, per packet.
    pub to_good: Chance,
    /// 1-h: loss in the bad state.
    pub bad_loss: Chance,
    /// 1-k: loss in the good state.
    pub good_loss: Chance,
}

impl GilbertElliott {
    /// The state (`true` is bad) after the packet's step: the chain moves first, then the packet's
    /// loss is decided in the new state. netem decides in the old one, so its losses are the same, a packet later.
    #[inline(always)]
    #[must_use]
    pub const fn step(&self, bad: bool, draw: u64) -> bool {
        let draw = (draw >> 32) as u32;
        if bad {
            !self.to_good.hit(draw)
        } else {
            self.to_bad.hit(draw)
        }
    }

    /// Whether a packet is lost in a state.
    #[inline(always)]
    #[must_use]
    pub const fn lost(&self, bad: bool, draw: u32) -> bool {
        if bad {
            self.bad_loss.hit(draw)
        } else {
            self.good_loss.hit(draw)
        }
    }
}

/// Entries of a jitter table, a power of two.
pub const JITTER_ENTRIES: usize = 4096;
/// The value in a jitter table that stands for one scale (netem's NETEM_DIST_SCALE).
pub const JITTER_UNIT: i64 = 8192;

/// Jitter in ticks for a table entry: `scale * entry / 8192`, toward zero; negative entries shorten the latency.
/// `scale` is at most 2^46 ticks (18 minutes), larger counts as that.
#[inline(always)]
#[must_use]
pub const fn jitter_ticks(scale: u64, entry: i16) -> i64 {
    let scale = if scale > 1 << 46 { 1 << 46 } else { scale as i64 };
    // The division of a negative number is not an instruction of BPF before v4, so shift the magnitude.
    let magnitude = ((scale * (entry as i64).abs()) as u64 >> 13) as i64;
    if entry < 0 { -magnitude } else { magnitude }
}
