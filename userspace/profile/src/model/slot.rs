//! Slots in which packets leave.

use perturb_quantity::{Duration, Size};

use super::Distribution;

/// Slots in which a server's packets leave: see `perturb_common::grants`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The time to the next one.
    pub between: Between,
    /// Packets that leave in one, at most.
    pub packets: Option<u32>,
    /// Bytes with which one is over.
    pub bytes: Option<Size>,
}

/// The time from one slot to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Between {
    /// Evenly from the one to the other.
    Range(Duration, Duration),
    /// By a distribution.
    Drawn {
        /// Its shape.
        distribution: Distribution,
        /// Its middle.
        delay: Duration,
        /// Its scale.
        scale: Duration,
    },
}

impl Slot {
    /// The distribution, if there is anything to draw.
    pub(crate) fn distribution(&self) -> Option<&Distribution> {
        match &self.between {
            Between::Range(min, max) => (min < max).then_some(&Distribution::Uniform),
            Between::Drawn { distribution, .. } => Some(distribution),
        }
    }

    /// The middle of the time to the next one, and the scale of what is drawn, in halves of a nanosecond.
    pub(crate) fn middle(&self) -> (u64, u64) {
        match &self.between {
            Between::Range(min, max) => (min.nanos() + max.nanos(), max.nanos() - min.nanos()),
            Between::Drawn { delay, scale, .. } => (2 * delay.nanos(), 2 * scale.nanos()),
        }
    }

    /// The mean time to the next one, but for a table whose mean is not zero.
    pub(crate) fn mean(&self) -> Duration {
        Duration::from_nanos(self.middle().0 / 2)
    }

    /// The longest.
    pub(crate) fn longest(&self) -> Duration {
        match &self.between {
            Between::Range(_, max) => *max,
            Between::Drawn {
                distribution,
                delay,
                scale,
            } => delay.saturating_add(distribution.longest(*scale)),
        }
    }

    /// How many frames of that size leave in one; `None`: any number.
    pub(crate) fn frames(&self, frame: Size) -> Option<u64> {
        let by_bytes = self
            .bytes
            .map(|bytes| bytes.bytes().div_ceil(frame.bytes().max(1)));
        match (self.packets.map(u64::from), by_bytes) {
            (Some(packets), Some(bytes)) => Some(packets.min(bytes)),
            (one, other) => one.or(other),
        }
    }
}
