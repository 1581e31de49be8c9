//! `aya_ebpf::programs`: contexts.

use crate::bindings::__sk_buff;

/// A packet, as programs have it.
pub struct SkBuff {
    pub skb: *mut __sk_buff,
}

/// The context of a classifier.
pub struct TcContext {
    pub skb: SkBuff,
}

impl TcContext {
    /// Of a packet.
    #[inline(always)]
    pub const fn new(skb: *mut __sk_buff) -> Self {
        Self { skb: SkBuff { skb } }
    }

    /// Where its first bytes begin.
    #[inline(always)]
    pub fn data(&self) -> usize {
        // SAFETY: the context of a running program.
        unsafe { (*self.skb.skb).data }
    }

    /// Where they end.
    #[inline(always)]
    pub fn data_end(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.skb.skb).data_end }
    }
}

/// The context of a socket filter.
pub struct SkBuffContext {
    pub skb: SkBuff,
}
