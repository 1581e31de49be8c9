//! How a network changes: what `timeline` and the `trace` of a server say, and when each step is in force.

pub(crate) mod effects;
pub(crate) mod instant;
pub(crate) mod lanes;
mod marks;

use perturb_quantity::{Duration, Probability, Rate};

pub use self::marks::Marks;
use crate::model::{Name, Overhead, ServerId, Volume};
use crate::recording::Format;

/// Changes of a network by the time since its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    /// What its times, and those of all traces, count from.
    pub start: Start,
    /// Begins anew whenever so much has passed.
    pub repeat: Option<Duration>,
    /// When the servers are again what their own keys say; without it the last values hold.
    pub end: Option<Duration>,
    /// The changes.
    pub steps: Vec<Step>,
}

/// What the times of a timeline count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// When the profile comes into force.
    #[default]
    Apply,
    /// The first packet that arrives at a server which changes.
    FirstPacket,
    /// An instant, ns since 1970-01-01 UTC.
    At(u64),
}

/// What follows the end of a trace.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, strum::AsRefStr, strum::EnumString, strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum End {
    /// The last values hold.
    #[default]
    Hold,
    /// It begins anew.
    Loop,
    /// What the server's own keys say.
    Clear,
}

/// A change, or several alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When it is first in force.
    pub at: Duration,
    /// How often it comes again.
    pub every: Option<Given<Duration>>,
    /// How many times at most.
    pub times: Option<u64>,
    /// How long it lasts; without it, until another step changes the same.
    pub lasts: Option<Duration>,
    /// How long it takes from the old value to the new, evenly.
    pub over: Duration,
    /// It lasts by turns.
    pub flap: Option<Flap>,
    /// What changes.
    pub subject: Subject,
    /// To what.
    pub change: Change,
}

/// Two states that take turns: the values that were, and those of the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flap {
    /// How long the step is not in force.
    pub up: Given<Duration>,
    /// How long it is.
    pub down: Given<Duration>,
}

/// What a step changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// These servers.
    Servers(Vec<ServerId>),
    /// Links of a topology by the names of their servers; none named: all.
    Links(Vec<Name>),
    /// All links of one height of a tree, from 1, the lowest.
    Level(usize),
    /// Hosts of different groups, by rank from 0: no packet goes from one to another.
    Partition(Vec<Vec<usize>>),
    /// The overhead of this host, or of each private one.
    Overhead,
}

/// The values of a step; what is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// g.
    pub gap: Option<Given<Duration>>,
    /// 1/G.
    pub bandwidth: Option<Given<Rate>>,
    /// L.
    pub latency: Option<Given<Duration>>,
    /// In bytes or time.
    pub buffer: Option<Volume>,
    /// Of each packet independently.
    pub loss: Option<Probability>,
    /// The scale; the distribution is the server's.
    pub jitter: Option<Duration>,
    /// o.
    pub overhead: Option<Overhead>,
    /// Whether nothing begins service.
    pub down: Option<Down>,
}

/// What becomes of packets while a server is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// They are dropped.
    Drop,
    /// They wait.
    Hold,
}

/// A value, or how values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given<Q> {
    /// This one.
    Fixed(Q),
    /// One by the profile's seed, the step and its turn.
    Random(Random<Q>),
}

/// How a value is drawn; what would be out of the key's range becomes the end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Random<Q> {
    /// The shape.
    pub shape: Shape,
    /// The mean.
    pub mean: Q,
    /// The width; of [`Shape::Exponential`], which has none, the mean.
    pub scale: Q,
}

/// The shape of a random value, as of a jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Shape {
    /// Evenly within ± scale.
    Uniform,
    /// The scale is the standard deviation; cut at ± 4.
    Normal,
    /// netem's, mean 0 before the mean is added.
    Pareto,
    /// netem's mix.
    ParetoNormal,
    /// Memoryless: the dwell times of a two-state channel (Gilbert 1960).
    Exponential,
}

/// A file that a server plays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Relative to the profile.
    pub file: String,
    /// How it is written.
    pub format: Format,
    /// What follows its end; without it, mahimahi's and endless models repeat, others hold.
    pub at_end: Option<End>,
    /// Where in the file it begins.
    pub offset: Duration,
    /// What its bandwidths are multiplied by.
    pub scale: Probability,
}

impl Timeline {
    /// Whether every step is of all of the profile's `servers` servers, or of the overhead.
    #[must_use]
    pub fn is_of_all(&self, servers: usize) -> bool {
        let ids: Vec<ServerId> = (0..servers).filter_map(ServerId::new).collect();
        self.steps.iter().all(|step| match &step.subject {
            Subject::Overhead => true,
            subject => ids.iter().all(|id| subject.has(*id)),
        })
    }

    /// The same for another number of servers that are alike: a step of servers is of all of them.
    #[must_use]
    pub fn of_all(mut self, servers: usize) -> Self {
        for step in &mut self.steps {
            if let Subject::Servers(ids) = &mut step.subject {
                *ids = (0..servers).filter_map(ServerId::new).collect();
            }
        }
        self
    }
}

impl Subject {
    /// Whether it is that server.
    pub(crate) fn has(&self, id: ServerId) -> bool {
        matches!(self, Self::Servers(ids) if ids.contains(&id))
    }
}

impl Change {
    /// Whether values are drawn.
    pub(crate) fn is_random(&self) -> bool {
        let drawn = |given: &Option<Given<Duration>>| matches!(given, Some(Given::Random(_)));
        drawn(&self.latency) || drawn(&self.gap) || matches!(self.bandwidth, Some(Given::Random(_)))
    }
}
