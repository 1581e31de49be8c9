//! What becomes of packets besides waiting: jitter, loss, copies, damage, and packets that go ahead.

use perturb_quantity::{Duration, Probability};

/// A random addition to the latency; the sum is never below zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jitter {
    /// Its shape.
    pub distribution: Distribution,
    /// Its width; see [`Distribution`].
    pub scale: Duration,
    /// Whether packets may overtake each other.
    pub reorder: bool,
    /// How a packet's depends on those before.
    pub drift: Option<Drift>,
}

/// How jitter drifts: a normal process of first order beneath it (`perturb_common::ties`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// Its correlation from a packet to the next.
    Packets(Probability),
    /// Its time constant.
    Time(Duration),
}

/// A probability, and the correlation of the events from a packet to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Correlated {
    /// What happens in the long run.
    pub probability: Probability,
    /// ρ: events k packets apart are correlated by ρ^k.
    pub correlation: Probability,
}

impl Correlated {
    /// Whether it never happens.
    #[must_use]
    pub fn is_never(self) -> bool {
        self.probability == Probability::ZERO
    }
}

impl From<Probability> for Correlated {
    fn from(probability: Probability) -> Self {
        Self {
            probability,
            correlation: Probability::ZERO,
        }
    }
}

/// Packets that go ahead of others: without latency and jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reorder {
    /// Which.
    pub chance: Correlated,
    /// At most every so many packets one goes ahead, counted from the last one that did.
    pub gap: u32,
}

/// The shape of a jitter, in units of its scale.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Evenly within ± scale.
    Uniform,
    /// Normal, the scale its standard deviation, cut at ± 4.
    Normal,
    /// netem's pareto: shape 3, shifted to mean 0.
    Pareto,
    /// netem's mix: a quarter normal, three quarters pareto.
    ParetoNormal,
    /// A table in iproute2's .dist format, 8192 for one scale; the path is relative to the profile.
    Table(String),
}

impl Distribution {
    /// The largest value: a table's entries are 16 bit with 8192 for one scale, so at most 4 scales.
    pub(crate) fn longest(&self, scale: Duration) -> Duration {
        match self {
            Self::Uniform => scale,
            _ => Duration::from_nanos(scale.nanos().saturating_mul(4)),
        }
    }
}

/// Which packets are lost at a server: those that any of the three selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loss {
    /// Each packet by itself, or with some correlation.
    pub random: Probability,
    /// Of the random losses.
    pub correlation: Probability,
    /// In bursts.
    pub burst: Option<GilbertElliott>,
    /// In bursts and alone, by a chain of four states; excludes `burst`.
    pub states: Option<LossStates>,
    /// The listed packets, counted from 1, ascending.
    pub nth: Vec<u64>,
    /// Of these, ECN-capable packets are marked and go on.
    pub ecn: bool,
}

/// Two states, good and bad; each packet first moves the chain, then is lost with its state's probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GilbertElliott {
    /// p: from good to bad.
    pub to_bad: Probability,
    /// r: from bad to good.
    pub to_good: Probability,
    /// 1-h: loss in the bad state.
    pub bad_loss: Probability,
    /// 1-k: loss in the good state.
    pub good_loss: Probability,
}

/// netem's `loss state`: 1 good, 3 lost in a burst, 2 good within a burst, 4 lost alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossStates {
    /// From 1 to 3.
    pub p13: Probability,
    /// From 3 to 1.
    pub p31: Probability,
    /// From 3 to 2.
    pub p32: Probability,
    /// From 2 to 3.
    pub p23: Probability,
    /// From 1 to 4, and back at once.
    pub p14: Probability,
}
