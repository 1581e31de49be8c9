//! Slots in which a server's packets leave, as links have them whose medium is granted: Wi-Fi, LTE, DOCSIS. netem's `slot`.
//!
//! Model: what has been served waits until a slot opens. A slot lets go, all at once, of what is ready when it opens, in order,
//! until it has let go of so many packets or bytes; the packet that uses up the bytes still leaves. Then the next slot opens, a
//! while later that is drawn. Who is ready behind the opening of the last slot asks for a new one, a drawn while from then.
//!
//! Packets are ready in the order in which the server serves them, and none that comes later changes when one ahead leaves. So
//! [`Grants::leaves`], folded over them, says of each what a queue says that is played event by event (`tests/grants`).

use crate::{
    abi::NONE,
    departure::Load,
    fate::{JITTER_ENTRIES, Purpose, draw, jitter_ticks},
    units::{Instant, Ticks},
};

/// How a server's slots follow each other, and what one lets go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Grants {
    /// From one slot to the next, without what is drawn.
    pub delay: Ticks,
    /// Ticks that one scale of the table stands for.
    pub scale: u64,
    /// At most, in one slot; `u64::MAX` for any number.
    pub packets: u64,
    /// The same in bytes.
    pub bytes: u64,
    /// Index of the table of what is drawn in the whole JITTER map (half included), or [`NONE`].
    pub table: u32,
    /// Zero.
    pub reserved: u32,
}

impl Grants {
    /// None.
    pub const NONE: Self = Self {
        delay: Ticks(0),
        scale: 0,
        packets: u64::MAX,
        bytes: u64::MAX,
        table: NONE,
        reserved: 0,
    };

    /// When a packet leaves that is ready then; `drawn` says how long the slot of this number is waited for, counted from 0. Its
    /// time, and whether it is within `latest`: one that would leave later gives up, and its slot is the next one's.
    #[inline(always)]
    #[must_use]
    pub fn leaves(
        &self,
        state: &mut State,
        ready: Instant,
        load: Load,
        latest: Instant,
        drawn: impl Fn(u64) -> Ticks,
    ) -> (Instant, bool) {
        if state.opens < ready.0 {
            self.open(state, ready, &drawn);
        }
        let leaves = Instant(state.opens);
        if leaves.0 > latest.0 {
            return (leaves, false);
        }
        if state.packets > load.segments && state.bytes > load.bytes {
            state.packets -= load.segments;
            state.bytes -= load.bytes;
        } else {
            self.open(state, leaves, &drawn);
        }
        (leaves, true)
    }

    /// How long the slot of this number is waited for, at the server that `salt` names; `entry` is one of its table's. Less than
    /// nothing counts as nothing.
    #[inline(always)]
    #[must_use]
    pub fn drawn(&self, salt: u64, number: u64, entry: impl FnOnce(usize) -> i16) -> Ticks {
        if self.table == NONE {
            return self.delay;
        }
        let place = draw(salt, 0, number, Purpose::Slot) as usize & (JITTER_ENTRIES - 1);
        let ticks = jitter_ticks(self.scale, entry(place));
        if ticks < 0 {
            Ticks(self.delay.0.saturating_sub(ticks.unsigned_abs()))
        } else {
            self.delay.plus(Ticks(ticks as u64))
        }
    }

    /// The next slot, asked for at `now`.
    #[inline(always)]
    fn open(&self, state: &mut State, now: Instant, drawn: impl Fn(u64) -> Ticks) {
        state.opens = now.after(drawn(state.drawn)).0;
        state.drawn += 1;
        state.packets = self.packets;
        state.bytes = self.bytes;
    }
}

/// Where a server is in its slots. A server begins with all zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct State {
    /// When the last slot opened, or the next one will: ticks of CLOCK_MONOTONIC.
    pub opens: u64,
    /// Packets that it still lets go of.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Slots so far.
    pub drawn: u64,
}

/// A server's slots at work; as large as a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Granted {
    /// 1 while a CPU has it ([`crate::steps::lock`]).
    pub lock: u64,
    /// What that CPU changes.
    pub state: State,
    /// Zero.
    pub rest: [u64; 3],
}
