//! Ends of tunnels to hosts on other machines.

/// An end of a tunnel to a host on another machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct TunnelEnd {
    /// Packets that have gone in here.
    pub sent: u64,
    /// Packets that have come out here.
    pub received: u64,
    /// 1 once the other end is known to be there: it was before this one, or something has come from it.
    pub is_heard: u64,
}

/// Ends of tunnels that a machine can have.
pub const MAX_ENDS: u32 = 64;
