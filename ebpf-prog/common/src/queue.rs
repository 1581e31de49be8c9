//! Laws by which a server drops or marks packets before its buffer is full, as routers' queues do.
//!
//! Model: a law of one FIFO server judges each packet when its service begins, or, as [`pie`] and [`red`] do, when it comes. Departures are
//! known at arrival ([`crate::departure`]), and so is the sojourn, `start - arrival`; packets begin service in the order in which they
//! arrive. So [`judge`], folded over the arrivals, says of each packet what the law says of it in a queue that is played event by
//! event (`tests/queue`). A packet that is dropped occupies the server for no time.
//!
//! What lacks: at the start of a packet nobody knows what has come behind it. `RFC 8289` never drops while no more than one
//! packet is behind (`bytes() <= MAXPACKET`); here, while no more was ahead. And a packet that will be dropped takes no room of the
//! buffer.

use crate::{
    departure::Load,
    ticks::saturating_mul,
    units::{GapPerByte, Instant, Ticks},
};

pub mod pie;
pub mod red;

use pie::Pie;
use red::Red;

/// [`Law::kind`]: none but the buffer's.
pub const TAIL: u32 = 0;
/// [`Law::kind`]: marks above a sojourn, and nothing else (DCTCP; RFC 9331's immediate marking).
pub const STEP: u32 = 1;
/// [`Law::kind`]: CoDel (RFC 8289).
pub const CODEL: u32 = 2;
/// [`Law::kind`]: PIE (RFC 8033). This and those behind judge packets that come, by draws, and change while none does.
pub const PIE: u32 = 3;
/// [`Law::kind`]: RED (Floyd and Jacobson 1993).
pub const RED: u32 = 4;

/// [`Law::flags`]: ECN-capable packets are marked in place of being dropped.
pub const LAW_ECN: u32 = 1;
/// [`Law::flags`]: of ECN-capable packets only those of L4S (ECT(1)) are marked above the threshold.
pub const LAW_L4S: u32 = 2;
/// [`Law::flags`]: PIE lets nothing be dropped soon after another, and something before long (section 5.4).
pub const LAW_DERANDOMIZE: u32 = 4;
/// [`Law::flags`]: RED moves its max_p ([`red::update`]).
pub const LAW_ADAPTIVE: u32 = 8;

/// ECT(1), in the two low bits of an IP header's class.
pub const ECT_1: u32 = 1;
/// CE.
pub const CE: u32 = 3;

/// A law with its parameters, named as in its RFC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Law {
    /// [`TAIL`], [`STEP`], [`CODEL`], [`PIE`], [`RED`].
    pub kind: u32,
    /// `LAW_*`.
    pub flags: u32,
    /// CoDel's TARGET, above 0; PIE's QDELAY_REF, below 2^42 ticks; RED's min_th.
    pub target: Ticks,
    /// CoDel's INTERVAL, below 2^43 ticks; PIE's T_UPDATE, at least [`pie::LEAST_UPDATE`].
    pub interval: Ticks,
    /// CoDel and step mark ECN-capable packets above this sojourn; [`Ticks::MAX`] for never.
    pub threshold: Ticks,
    /// PIE's MAX_BURST; RED's max_th, at most [`red::LONGEST`] and above min_th.
    pub burst: Ticks,
    /// What a packet may find and pass: one (CoDel's MAXPACKET), or two of MEAN_PKTSIZE (PIE). RED's small packet, of which an
    /// idle queue's average is.
    pub small: Load,
    /// PIE's mark_ecnth, of [`pie::ONE`]: above it, ECN-capable packets are dropped, too. RED's max_p; the first, if it is adaptive.
    pub probability: u64,
    /// RED's W, at most [`red::MOST_WEIGHT`]: the average's weight is 2^-W.
    pub weight: u64,
}

impl Law {
    /// Tail drop.
    pub const TAIL: Self = Self {
        kind: TAIL,
        flags: 0,
        target: Ticks(0),
        interval: Ticks(0),
        threshold: Ticks::MAX,
        burst: Ticks(0),
        small: Load {
            bytes: 0,
            segments: 0,
        },
        probability: 0,
        weight: 0,
    };

    /// Whether it judges packets as they come, and changes while none does ([`update`]).
    #[inline(always)]
    #[must_use]
    pub const fn is_early(&self) -> bool {
        self.kind >= PIE
    }

    /// What [`Law::small`] takes at a server of this g and G.
    #[inline(always)]
    #[must_use]
    pub const fn small_takes(&self, gap: Ticks, per_byte: GapPerByte) -> Ticks {
        Ticks(saturating_mul(gap.0, self.small.segments)).plus(per_byte.transmit(self.small.bytes))
    }
}

/// Before a packet, a law makes up for at most so many of its changes: more than a queue as long as the largest horizon needs to
/// drain, and PIE's probability to become 0.
pub const MOST_UPDATES: u32 = 1 << 16;

/// In [`CoDel::mode`]: CoDel drops (`dropping_`).
pub const DROPPING: u32 = 1;
/// In [`CoDel::mode`]: the packet ahead was dropped in the dropping state, and the next drop is not scheduled yet.
const AGAIN: u32 = 2;
/// In [`CoDel::mode`]: the packet ahead was dropped on entry to the dropping state.
const ENTERED: u32 = 4;

/// What a law remembers: [`State::codel`], [`State::pie`], [`State::red`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct State {
    /// The [`Law::kind`] of the law; 0 if there was none yet.
    pub kind: u64,
    memory: Memory,
}

/// As the longest memory has it; 0 at first.
type Memory = [u64; 6];

impl State {
    /// Forgets what another law has left.
    #[inline(always)]
    pub fn begin(&mut self, law: &Law) {
        if self.kind != law.kind as u64 {
            for word in &mut self.memory {
                // SAFETY: a reference. Volatile: words that are cleared together become a call of `memset`, a byte at a time.
                unsafe { (&raw mut *word).write_volatile(0) };
            }
            self.kind = law.kind as u64;
        }
    }
}

/// What CoDel remembers, by its RFC's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct CoDel {
    /// `first_above_time_`, ticks; 0 for none.
    pub above: u64,
    /// `drop_next_`, ticks.
    pub next: u64,
    /// `count_`, at most [`MOST`].
    pub count: u32,
    /// `lastcount_`.
    pub last: u32,
    /// [`DROPPING`] and what is pending.
    pub mode: u32,
    /// Zero.
    pub reserved: u32,
    /// Zero.
    pub rest: [u64; 2],
}

/// Memories: as large as [`Memory`] and aligned as it, and any bits are one.
macro_rules! memories {
    ($($name:ident: $memory:ty, $law:literal;)*) => {
        impl State {
            $(
                #[doc = concat!("As ", $law, " has it.")]
                #[inline(always)]
                #[must_use]
                pub const fn $name(&mut self) -> &mut $memory {
                    const {
                        assert!(size_of::<$memory>() == size_of::<Memory>());
                        assert!(align_of::<$memory>() == align_of::<Memory>());
                    }
                    // SAFETY: the same bytes, all of which are of integers without padding.
                    unsafe { &mut *(&raw mut self.memory).cast() }
                }
            )*
        }
    };
}

memories! {
    codel: CoDel, "CoDel";
    pie: Pie, "PIE";
    red: Red, "RED";
}

/// A server's law at work; as large as a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Queue {
    /// 1 while a CPU has it ([`crate::steps::lock`]).
    pub lock: u64,
    /// What the law remembers.
    pub state: State,
}

/// What a law says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// It goes on.
    Pass = 0,
    /// It is marked in place of being dropped.
    Mark = 1,
    /// It is marked, for its sojourn is above the threshold.
    MarkAbove = 2,
    /// It is dropped.
    Drop = 3,
}

/// A packet that comes, and when its service begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// When its service begins.
    pub start: Instant,
    /// How long it has waited.
    pub sojourn: Ticks,
    /// How long the server was idle before.
    pub idle: Ticks,
    /// What [`Law::small`] takes at the server when the packet comes.
    pub small: Ticks,
    /// The two low bits of its IP header's class; 0 if it is not ECN-capable.
    pub ecn: u32,
    /// The server's, for draws.
    pub salt: u64,
}

/// What a law says of a packet; `state` is what it remembers, as [`catch_up`] has left it. `spacing` is [`spacing`], which the programs
/// have as a function.
#[inline(always)]
#[must_use]
pub fn judge(law: &Law, state: &mut State, head: Head, spacing: impl Fn(Ticks, u32) -> Ticks) -> Verdict {
    if law.is_early() {
        judge_early(law, state, head)
    } else {
        judge_start(law, state, head, spacing)
    }
}

/// [`judge`] of a law that is [`Law::is_early`].
#[inline(always)]
#[must_use]
pub fn judge_early(law: &Law, state: &mut State, head: Head) -> Verdict {
    if law.kind == RED {
        red::judge(law, state.red(), head)
    } else {
        pie::judge(law, state.pie(), head)
    }
}

/// Makes `state` one of the law, at a server that is free again at `free`, as it is `now`, when a packet comes; `small` is what
/// [`Law::small`] takes there, as long as it does not change.
#[inline(always)]
pub fn catch_up(law: &Law, state: &mut State, free: Instant, now: Instant, small: Ticks) {
    state.begin(law);
    if law.is_early() {
        for _ in 0..MOST_UPDATES {
            if !update(law, state, free, now, small) {
                break;
            }
        }
    }
}

/// The next of the changes that a law makes by itself until `now`, as [`catch_up`] has its arguments; whether there may be another.
/// Only of a law that is [`Law::is_early`].
#[inline(always)]
#[must_use]
pub fn update(law: &Law, state: &mut State, free: Instant, now: Instant, small: Ticks) -> bool {
    if law.kind == RED {
        red::update(law, state.red(), free, now, small)
    } else {
        pie::update(law, state.pie(), free, now, small)
    }
}

/// [`judge`] of the other laws.
#[inline(always)]
#[must_use]
pub fn judge_start(
    law: &Law,
    state: &mut State,
    head: Head,
    spacing: impl Fn(Ticks, u32) -> Ticks,
) -> Verdict {
    let verdict = if law.kind == CODEL {
        let later = |time: u64, count| Instant(time).after(spacing(law.interval, count)).0;
        codel(law, state.codel(), head, later)
    } else {
        Verdict::Pass
    };
    let counts = if law.flags & LAW_L4S != 0 {
        head.ecn == ECT_1 || head.ecn == CE
    } else {
        head.ecn != 0
    };
    if matches!(verdict, Verdict::Pass) && counts && head.sojourn.0 > law.threshold.0 {
        return Verdict::MarkAbove;
    }
    verdict
}

/// `CoDelQueue::deque` of RFC 8289, section 5, a packet at a time. What the RFC's function does behind a drop, to the packet that
/// follows, is left to when that one comes; a queue that was empty then looks to it as a wait of nothing. Marks as Linux does
/// (`codel_dequeue`): a marked packet is the one that leaves, so nothing is pending behind it.
#[inline(always)]
fn codel(law: &Law, state: &mut CoDel, head: Head, later: impl Fn(u64, u32) -> u64) -> Verdict {
    let start = head.start.0;
    let mut ok = false;
    if head.sojourn.0 < law.target.0 || head.sojourn.0 <= head.small.0 {
        state.above = 0;
    } else if state.above == 0 {
        state.above = head.start.after(law.interval).0;
    } else {
        ok = start >= state.above;
    }
    let marks = law.flags & LAW_ECN != 0 && head.ecn != 0;
    let pending = if head.sojourn.0 == 0 { 0 } else { state.mode };
    let dropping = state.mode & DROPPING != 0;
    if pending & ENTERED != 0 {
        state.mode = DROPPING;
        return Verdict::Pass;
    }
    if !ok {
        state.mode = 0;
        return Verdict::Pass;
    }
    state.mode = DROPPING;
    if dropping {
        if pending & AGAIN != 0 {
            state.next = later(state.next, state.count);
        }
        if start < state.next {
            return Verdict::Pass;
        }
        if state.count < MOST {
            state.count += 1;
        }
        if marks {
            state.next = later(state.next, state.count);
            return Verdict::Mark;
        }
        state.mode = DROPPING | AGAIN;
        return Verdict::Drop;
    }
    // The rate that held the queue last is where to begin, if that was not long ago.
    let more = state.count.saturating_sub(state.last);
    let lately = start.saturating_sub(state.next) < 16 * law.interval.0;
    state.count = if more > 1 && lately { more } else { 1 };
    state.next = later(start, state.count);
    state.last = state.count;
    if marks {
        return Verdict::Mark;
    }
    state.mode = DROPPING | ENTERED;
    Verdict::Drop
}

/// CoDel counts so far; its next drop then comes a thousandth of an interval later.
pub const MOST: u32 = (1 << 20) - 1;

/// Bits behind the point of a square root.
const FRACTION: u32 = 21;

/// interval / sqrt(count), of the RFC's `control_law`.
#[inline(always)]
#[must_use]
pub const fn spacing(interval: Ticks, count: u32) -> Ticks {
    let root = root((count as u64) << (2 * FRACTION));
    // No panic for 0, which no count is.
    if root == 0 {
        return interval;
    }
    Ticks((interval.0 << FRACTION) / root)
}

/// A step of Newton's method. No panic for 0, which no guess is.
#[inline(always)]
const fn nearer(square: u64, guess: u64) -> u64 {
    if guess == 0 {
        0
    } else {
        (guess + square / guess) >> 1
    }
}

/// The square root, rounded down, of what lies from 1 to below 2^62: Newton's method from above, whose error of at most the half
/// is below 10^-15 after five steps. No loop: the verifier would walk each turn. In programs it is a global function: the verifier
/// walks its ways once, and not once more for each way by which it is come to.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle), inline(never))]
#[cfg_attr(not(target_arch = "bpf"), inline(always))]
pub(crate) const extern "C" fn root(square: u64) -> u64 {
    let mut guess = 2;
    let mut rest = square;
    if rest >> 32 != 0 {
        rest >>= 32;
        guess <<= 16;
    }
    if rest >> 16 != 0 {
        rest >>= 16;
        guess <<= 8;
    }
    if rest >> 8 != 0 {
        rest >>= 8;
        guess <<= 4;
    }
    if rest >> 4 != 0 {
        rest >>= 4;
        guess <<= 2;
    }
    if rest >> 2 != 0 {
        guess <<= 1;
    }
    guess = nearer(square, guess);
    guess = nearer(square, guess);
    guess = nearer(square, guess);
    guess = nearer(square, guess);
    guess = nearer(square, guess);
    if guess * guess > square { guess - 1 } else { guess }
}

#[cfg(test)]
mod tests {
    use super::{MOST, root};

    #[test]
    fn roots_are_rounded_down() {
        for count in (1..=u64::from(MOST)).chain([1 << 19, 3, 9]) {
            for square in [count << 42, (count << 42) - 1, count, count * count] {
                assert_eq!(root(square), square.isqrt(), "{square}");
            }
        }
    }
}
