//! A compiled profile: what the controller loads into the maps, before it is decided which half it
//! goes to. All indices are relative to the half; the loader adds the offsets.

extern crate alloc;

use alloc::{string::String, vec::Vec};

use crate::{
    abi::{
        Bound, Class, DIMENSIONS, JitterTable, NONE, NthKey, Path, RuleVector, ServerConfig, Settings, Span,
    },
    collisions::CollisionTable,
    timeline::{Overhead, Timeline},
    units::Ticks,
};

/// The tables of one profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Overheads and flags; `rule_words` as in the classifier.
    pub settings: Settings,
    /// Servers in the profile's order. `slot` and `ring_start` are left 0: the loader assigns them by
    /// name, so that a server keeps its state when the profile changes.
    pub servers: Vec<ServerConfig>,
    /// Their names.
    pub server_names: Vec<String>,
    /// Distinct paths, and the lists of a network.
    pub paths: Vec<Path>,
    /// Boundaries between the addresses of a network's hosts: see [`crate::abi::hosts_span`].
    pub hosts: Vec<Bound>,
    /// Boundaries between the ids of the cgroups that classes name: see [`crate::abi::cgroups_span`].
    pub cgroups: Vec<Bound>,
    /// Classes in the profile's order.
    pub classes: Vec<Class>,
    /// Their names.
    pub class_names: Vec<String>,
    /// Jitter distributions, referred to by [`ServerConfig::jitter_table`].
    pub jitter: Vec<JitterTable>,
    /// Tables of collisions, referred to by [`ServerConfig::collision_table`].
    pub collisions: Vec<CollisionTable>,
    /// Distinct timelines of servers, referred to by [`ServerConfig::timeline`].
    pub timelines: Vec<Timeline>,
    /// How the host's overheads change, if they do.
    pub overheads: Option<Timeline<Overhead>>,
    /// Listed losses; `server` is an index into `servers`.
    pub nth: Vec<NthKey>,
    /// The classifier, by [`crate::abi::Direction`].
    pub classifier: [Classifier; 2],
    /// The longest that a packet may be held: horizon of the pacer.
    pub horizon: Ticks,
    /// Memory that held packets may take, bytes; 0 for no limit.
    pub held: u64,
    /// Flows and instances to remember.
    pub flows: u32,
}

/// The bit-vector classifier of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Classifier {
    /// Boundaries by dimension: into `bounds`.
    pub spans: [Span; DIMENSIONS as usize],
    /// Boundaries, ascending within a dimension, the first one 0; `vector` is an index into `vectors`.
    pub bounds: Vec<Bound>,
    /// Distinct rule vectors. (The loader puts the vector of all rules before those of both directions.)
    pub vectors: Vec<RuleVector>,
    /// The class of each rule, in order of precedence.
    pub rules: Vec<u32>,
}

impl Classifier {
    /// What the programs do: the class of the first rule that all dimensions admit, or [`NONE`].
    /// `values` are (high, low) halves by [`crate::abi::Dimension`].
    #[must_use]
    pub fn classify(&self, values: [(u64, u64); DIMENSIONS as usize]) -> u32 {
        let vectors = self.spans.iter().zip(values).map(|(span, value)| {
            let bounds = &self.bounds[span.start as usize..(span.start + span.len) as usize];
            let above = bounds.partition_point(|bound| (bound.high, bound.low) <= value);
            above
                .checked_sub(1)
                .map(|last| &self.vectors[bounds[last].vector as usize])
        });
        let vectors: Vec<_> = vectors.collect();
        for (rule, &class) in self.rules.iter().enumerate() {
            let admits = |vector: &&RuleVector| vector.words[rule / 64] >> (rule % 64) & 1 != 0;
            if vectors.iter().flatten().all(admits) {
                return class;
            }
        }
        NONE
    }
}
