//! The containers of this machine: which there are, whose networks they have, and word when that changes.
//!
//! ```text
//! selector (what the user names) ─► engine (Docker, Podman: HTTP over their sockets; CRI: `crictl`) ─► Container
//!                                     └► follow: all containers, again after each change, whatever happens to the engine
//! ```
//!
//! Of the engines' answers only a few fields are read, and those leniently: Podman's states and events are not all Docker's.
//!
//! What is absent: interfaces (perturb-emulator), and what is to happen to a container.

#![warn(missing_docs)]

mod cri;
mod docker;
mod engine;
mod selector;

use std::{collections::BTreeMap, net::IpAddr};

pub use engine::{Engine, EngineError, Lookup, News, engines, follow};
pub use selector::{Selector, SelectorError, choose, is_called};

/// A container, or a pod of Kubernetes: its containers share a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The engine's number for it.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it runs.
    pub state: State,
    /// Whose network it has.
    pub network: Network,
    /// The networks it is in.
    pub networks: Vec<Attachment>,
}

/// Whether a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its first process, in this machine's numbers.
    Running(u32),
    /// It does not: what the engine calls it, e.g. `exited`.
    Other(String),
}

/// Whose network a container has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Its own, or that of another container.
    Container,
    /// This machine's, by itself or as another container that has it.
    Host,
}

/// A network that a container is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The network's name.
    pub network: String,
    /// The container's addresses there.
    pub addresses: Vec<IpAddr>,
}

impl Container {
    /// Its first process, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self.state {
            State::Running(pid) => Some(pid),
            State::Other(_) => None,
        }
    }
}
