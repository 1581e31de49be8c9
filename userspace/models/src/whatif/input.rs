//! The YAML input: groups, network, bus, where the events are.
//!
//! ```yaml
//! groups: [[1, 2], [3]]                     # processes per processor; or {processes: [1, 2], speed: 2}
//! speeds: [1, 0.5]                          # optional, relative to the traced processor
//! network:
//!   local: [{size: 0B, time: 40us}, {size: 8KiB, time: 90us}]
//!   remote: [{size: 0B, time: 1.38ms}]
//!   overhead: {send: [{size: 0B, time: 20us}], receive: [{size: 0B, time: 10us}]}    # optional
//! bus:
//!   bandwidth: 10Mbit/s                     # absent or `infinite`: takes no time
//!   scope: shared                           # or host: each group sends through a server of its own
//!   collisions: {slot: 51.2us, attempts: 16, seed: 7}      # of a shared one
//! scheduler: {quantum: 1.4ms, tick: 4ms, wakeup: queue}     # optional; absent: quanta without length
//! events: four.jsonl                        # relative to this file; absent with --follow
//! ```

use perturb_quantity::{BytesPerSecond, Micros, QuantityError};
use serde::Deserialize;

use super::bus::{Bus, Buses, Collisions, Scope};
use super::placement::{Placement, PlacementError, ProcessName};
use super::round_robin::{Scheduler, Wakeup};
use super::table::{Point, Table, TableError};

/// The shortest quantum: no scheduler has one below what switching takes.
const LEAST_QUANTUM_US: f64 = 1.0;

/// The file as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    groups: Vec<GroupInput>,
    #[serde(default)]
    speeds: Option<Vec<f64>>,
    #[serde(default)]
    network: NetworkInput,
    #[serde(default)]
    bus: Option<BusInput>,
    #[serde(default)]
    scheduler: Option<SchedulerInput>,
    /// The event file, relative to the input.
    #[serde(default)]
    pub events: Option<String>,
}

#[derive(Clone, Debug)]
struct GroupInput {
    speed: Option<f64>,
    processes: Vec<ProcessName>,
}

impl<'de> Deserialize<'de> for GroupInput {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
        use serde::de::{MapAccess, SeqAccess, Visitor};
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Whole {
            processes: Vec<ProcessName>,
            #[serde(default)]
            speed: Option<f64>,
        }
        struct GroupVisitor;
        impl<'de> Visitor<'de> for GroupVisitor {
            type Value = GroupInput;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a list of processes such as `[1, 2]`, or `{processes: [1, 2], speed: 2}`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<GroupInput, A::Error> {
                let processes = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(GroupInput {
                    speed: None,
                    processes,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<GroupInput, A::Error> {
                let Whole { processes, speed } = Whole::deserialize(MapAccessDeserializer::new(map))?;
                Ok(GroupInput { speed, processes })
            }
        }
        deserializer.deserialize_any(GroupVisitor)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkInput {
    #[serde(default)]
    local: Option<Vec<Point>>,
    #[serde(default)]
    remote: Option<Vec<Point>>,
    #[serde(default)]
    overhead: Option<OverheadInput>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverheadInput {
    pub(super) send: Vec<Point>,
    pub(super) receive: Vec<Point>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BusInput {
    #[serde(default, deserialize_with = "bandwidth")]
    pub(super) bandwidth: Option<BytesPerSecond>,
    #[serde(default)]
    pub(super) scope: Scope,
    #[serde(default)]
    pub(super) collisions: Option<CollisionInput>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchedulerInput {
    quantum: Micros,
    #[serde(default = "no_tick")]
    tick: Micros,
    #[serde(default)]
    wakeup: Wakeup,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CollisionInput {
    #[serde(default = "ethernet_slot")]
    pub(super) slot: Micros,
    #[serde(default = "ethernet_attempts")]
    pub(super) attempts: u32,
    #[serde(default)]
    pub(super) seed: u64,
}

/// A rate, or `infinite`.
fn bandwidth<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<BytesPerSecond>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "infinite" {
        return Ok(None);
    }
    let parsed = text.parse().map(Some);
    parsed.map_err(|fault: QuantityError| {
        serde::de::Error::custom(format!("bus.bandwidth: `{text}` {fault}, or `infinite`"))
    })
}

/// Slices end anywhere.
fn no_tick() -> Micros {
    Micros(0.0)
}

/// 512 bit times at 10 Mbit/s (IEEE 802.3).
fn ethernet_slot() -> Micros {
    Micros(51.2)
}

/// `attemptLimit` of IEEE 802.3.
fn ethernet_attempts() -> u32 {
    16
}

/// What is wrong with the input beyond its form.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The groups.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A look-up table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A group with two speeds.
    #[error("group {group} (from 1) has a speed of its own and one in `speeds`; give one of them")]
    TwoSpeeds {
        /// Which group, from 1.
        group: usize,
    },
    /// Messages between groups are possible but have no time.
    #[error(
        "network.remote: missing, but there are {groups} groups; give the one-way times between processors"
    )]
    NoRemote {
        /// How many groups.
        groups: usize,
    },
    /// Messages inside a group are possible but have no time.
    #[error(
        "network.local: missing, but group {group} (from 1) has several processes; give the one-way times inside a processor"
    )]
    NoLocal {
        /// Which group, from 1.
        group: usize,
    },
    /// A bus of no bandwidth would never deliver.
    #[error("bus.bandwidth is 0; give a bandwidth above 0, or `infinite`")]
    NoBandwidth,
    /// A quantum of hardly any length: each slice is a step of the simulation.
    #[error(
        "scheduler.quantum: {0} us; allowed: 1us and up, as 4ms; without `scheduler`, processes share as if it had no length"
    )]
    NoQuantum(f64),
    /// A link with one sender.
    #[error(
        "bus.collisions: nobody collides on a link that one host alone sends through; leave out `scope: host`"
    )]
    NoContenders,
    /// No attempts.
    #[error("bus.collisions.attempts: 0; allowed: 1 and up, 16 in Ethernet")]
    NoAttempts,
}

/// A checked input, without its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Which process runs where.
    pub placement: Placement,
    /// Message times inside a group; absent where every group has one process.
    pub local: Option<Table>,
    /// Message times between groups; absent where there is one group.
    pub remote: Option<Table>,
    /// What messages between groups take of processors; nothing where absent.
    pub overhead: Option<Overhead>,
    /// The bus between the groups, if any.
    pub bus: Option<BusScenario>,
    /// How processors are shared; equally, with quanta without length, where absent.
    pub scheduler: Option<Scheduler>,
}

/// LogGP's o of a message between groups, by size: from its send on the sender's processor is occupied for the one,
/// and at the end of the message's one-way time the receiver's for the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Overhead {
    /// Of sending.
    pub send: Table,
    /// Of receiving.
    pub receive: Table,
}

/// The bus of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct BusScenario {
    /// In bytes per second; `None` is infinite.
    pub bandwidth: Option<f64>,
    /// Whether all share it, or each group has its own.
    pub scope: Scope,
    /// CSMA/CD, if wanted; of a shared one.
    pub collisions: Option<Collisions>,
}

impl BusScenario {
    /// An idle bus of this kind, or one for each group.
    #[must_use]
    pub fn idle(&self, groups: usize) -> Buses {
        Buses::new(
            &Bus::new(self.bandwidth, self.collisions.as_ref()),
            self.scope,
            groups,
        )
    }
}

impl Input {
    /// How many groups there are.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Keys that say something of the network between the groups, and whether they are there.
    pub(super) fn network_keys(&self) -> [(&'static str, bool); 3] {
        [
            ("network.remote", self.network.remote.is_some()),
            ("network.overhead", self.network.overhead.is_some()),
            ("bus", self.bus.is_some()),
        ]
    }

    /// Sets the times between the groups and what messages take of processors.
    pub(super) fn set_network(&mut self, remote: Vec<Point>, overhead: Option<OverheadInput>) {
        self.network.remote = Some(remote);
        self.network.overhead = overhead;
    }

    /// Sets the bus between the groups.
    pub(super) fn set_bus(&mut self, bus: Option<BusInput>) {
        self.bus = bus;
    }

    /// Checks the input.
    ///
    /// # Errors
    /// The first thing that is wrong, by key.
    pub fn scenario(self) -> Result<Scenario, ScenarioError> {
        let count = self.groups.len();
        if let Some(speeds) = self.speeds.as_ref().filter(|speeds| speeds.len() != count) {
            return Err(PlacementError::Speeds {
                speeds: speeds.len(),
                groups: count,
            }
            .into());
        }
        let sizes: Vec<usize> = self.groups.iter().map(|group| group.processes.len()).collect();
        let mut groups = Vec::with_capacity(count);
        for (index, group) in self.groups.into_iter().enumerate() {
            let listed = self.speeds.as_ref().map(|speeds| speeds[index]);
            if listed.is_some() && group.speed.is_some() {
                return Err(ScenarioError::TwoSpeeds { group: index + 1 });
            }
            groups.push((group.speed.or(listed).unwrap_or(1.0), group.processes));
        }
        let placement = Placement::new(groups)?;
        // A table that no message can need may be absent.
        let local = match (&self.network.local, sizes.iter().position(|size| *size > 1)) {
            (Some(points), _) => Some(Table::new("local", points)?),
            (None, Some(group)) => return Err(ScenarioError::NoLocal { group: group + 1 }),
            (None, None) => None,
        };
        let remote = match &self.network.remote {
            Some(points) => Some(Table::new("remote", points)?),
            None if count > 1 => return Err(ScenarioError::NoRemote { groups: count }),
            None => None,
        };
        let overhead = self
            .network
            .overhead
            .map(|overhead| {
                Ok::<_, TableError>(Overhead {
                    send: Table::new("overhead.send", &overhead.send)?,
                    receive: Table::new("overhead.receive", &overhead.receive)?,
                })
            })
            .transpose()?;
        let bus = self.bus.map(BusInput::scenario).transpose()?;
        let scheduler = self.scheduler.map(SchedulerInput::scenario).transpose()?;
        Ok(Scenario {
            placement,
            local,
            remote,
            overhead,
            bus,
            scheduler,
        })
    }
}

impl SchedulerInput {
    fn scenario(self) -> Result<Scheduler, ScenarioError> {
        if self.quantum.0 < LEAST_QUANTUM_US {
            return Err(ScenarioError::NoQuantum(self.quantum.0));
        }
        Ok(Scheduler {
            quantum: self.quantum.0,
            tick: self.tick.0,
            wakeup: self.wakeup,
        })
    }
}

impl BusInput {
    fn scenario(self) -> Result<BusScenario, ScenarioError> {
        if self.bandwidth == Some(BytesPerSecond(0.0)) {
            return Err(ScenarioError::NoBandwidth);
        }
        let collisions = match self.collisions {
            None => None,
            Some(CollisionInput { attempts: 0, .. }) => return Err(ScenarioError::NoAttempts),
            Some(CollisionInput { slot, attempts, seed }) => Some(Collisions::new(slot.0, attempts, seed)),
        };
        if self.scope == Scope::Host && collisions.is_some() {
            return Err(ScenarioError::NoContenders);
        }
        Ok(BusScenario {
            bandwidth: self.bandwidth.map(|rate| rate.0),
            scope: self.scope,
            collisions,
        })
    }
}
