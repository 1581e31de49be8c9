//! The YAML profile: what network to put programs on.
//!
//! ```text
//! text --yaml--> tree with places --read*--> Profile --print--> normalized text (itself a profile)
//!                                               |----explain--> what it means, in numbers
//!                                               '----compile--> the tables that the eBPF programs read
//! ```
//!
//! A [`Profile`] is valid by construction: [`parse`] either returns one or reports every problem of the text at once,
//! each with its place, the offending text, what is allowed and what to do. All of it is pure; only
//! [`load`] reads files. What it lacks: it does not know the interfaces, the kernel or the pacer.

#![warn(missing_docs)]

mod cgroup;
mod compile;
mod delay;
mod diagnostic;
mod expand;
mod explain;
mod findings;
mod groups;
mod keys;
mod knob;
mod load;
mod matching;
mod model;
mod nearer;
pub mod netem;
mod own;
mod pack;
mod print;
mod read;
mod reader;
mod recording;
mod regions;
mod schema;
mod timeline;
mod topology;
mod yaml;

/// A YAML text as a tree with places, what takes it apart, and the problems found in it: for other files that are read
/// as a profile is.
pub mod document {
    pub use crate::findings::{Findings, KeyPath};
    pub use crate::reader::{At, Bounds, Fields, flag, name};
    pub use crate::yaml::{Kind, parse};
}

pub use cgroup::{Cgroup, Cgroups};
pub use compile::{CompileError, Files, compile, compile_network};
pub use diagnostic::{Contradiction, Diagnostic, Diagnostics, Problem, Refused};
pub use expand::{ExpandError, Network, expand, expand_prefixes, hosts_of, network};
pub use explain::{
    ChangeMeaning, ClassMeaning, Explanation, JitterMeaning, LinkMeaning, Overheads, PathMeaning, Spaced,
    Spread, Stretch, TopologyMeaning, Warning, bandwidths, explain, held, horizon, overheads, stretches,
};
pub use groups::{Group, Matrix};
pub use knob::{BeyondKnob, Knob, TurnError, UnknownKnob};
pub use load::{LoadError, Loaded, Whose, files, load, load_for};
pub use matching::{Dscp, EtherType, Family, HostName, Match, PortRange, Prefix, Protocol};
pub use model::{
    Acknowledgments, Between, Buffer, Class, Correlated, Distribution, Drift, EcnThreshold, Framing,
    GilbertElliott, Jitter, Limits, Loss, LossStates, Name, Overhead, Profile, Queue, Reorder, Scope,
    Segmentation, Server, ServerId, Slot, Treatment, Volume,
};
pub use nearer::{NearerError, nearer};
pub use pack::{Packed, Unpacked};
pub use perturb_quantity::{Duration, Probability, Rate, Size};
pub use read::profile::parse;
pub use recording::{Format, RecordingError};
pub use schema::{reference_markdown, schema};
pub use timeline::{
    Change, Down, End, Flap, Given, Marks, Random, Shape, Start, Step, Subject, Timeline, Trace,
};
pub use topology::{Collisions, Layout, MAX_HOSTS, Sharing, Tcp, Topology, Window};
