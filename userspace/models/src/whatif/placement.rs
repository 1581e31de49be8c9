//! Which process runs on which processor.

use std::collections::HashMap;

/// A process as the input names it. `7` and `"7"` are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessName {
    /// A number.
    Number(u64),
    /// Anything else.
    Text(String),
}

impl From<&str> for ProcessName {
    fn from(text: &str) -> Self {
        let canonical =
            text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
        match text.parse() {
            Ok(number) if canonical => Self::Number(number),
            _ => Self::Text(text.to_owned()),
        }
    }
}

impl std::fmt::Display for ProcessName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}

impl serde::Serialize for ProcessName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> serde::Deserialize<'de> for ProcessName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = ProcessName;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a process: a number or a name")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<ProcessName, E> {
                Ok(ProcessName::Number(number))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<ProcessName, E> {
                u64::try_from(number)
                    .map(ProcessName::Number)
                    .map_err(|_| E::custom(format_args!("process {number}: must not be negative")))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ProcessName, E> {
                Ok(ProcessName::from(text))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Numbers below this are found without hashing.
const DIRECT: u64 = 1 << 16;

/// The groups, and every process's index, name and group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    names: Vec<ProcessName>,
    groups: Vec<u32>,
    speeds: Vec<f64>,
    direct: Vec<u32>,
    others: HashMap<ProcessName, u32>,
}

/// A placement that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlacementError {
    /// No process at all.
    #[error("groups: no process is placed; give a list of groups such as `[[1, 2], [3]]`")]
    Empty,
    /// A process in two groups.
    #[error("groups: process {process} is placed twice; a process runs on one processor")]
    Twice {
        /// Which.
        process: ProcessName,
    },
    /// A speed that is not positive.
    #[error(
        "groups: speed {speed} of group {group} (from 1): must be finite and above 0; 1 is the speed of the traced processor"
    )]
    Speed {
        /// Which group, from 1.
        group: usize,
        /// The speed.
        speed: f64,
    },
    /// Not one speed per group.
    #[error("speeds: {speeds} given for {groups} groups; give one per group")]
    Speeds {
        /// Speeds given.
        speeds: usize,
        /// Groups given.
        groups: usize,
    },
}

impl Placement {
    /// From groups, each a processor's relative speed and its processes. Processes are indexed in the
    /// order in which they stand there.
    ///
    /// # Errors
    /// When nothing is placed, a process is placed twice or a speed is not positive.
    pub fn new(groups: impl IntoIterator<Item = (f64, Vec<ProcessName>)>) -> Result<Self, PlacementError> {
        let mut placement = Self::default();
        for (group, (speed, processes)) in groups.into_iter().enumerate() {
            if !speed.is_finite() || speed <= 0.0 {
                return Err(PlacementError::Speed {
                    group: group + 1,
                    speed,
                });
            }
            placement.speeds.push(speed);
            for name in processes {
                if placement.index(&name).is_some() {
                    return Err(PlacementError::Twice { process: name });
                }
                placement.add(name, group as u32);
            }
        }
        if placement.names.is_empty() {
            return Err(PlacementError::Empty);
        }
        Ok(placement)
    }

    fn add(&mut self, name: ProcessName, group: u32) {
        let index = self.names.len() as u32;
        match name {
            ProcessName::Number(number) if number < DIRECT => {
                let slot = number as usize;
                if slot >= self.direct.len() {
                    self.direct.resize(slot + 1, u32::MAX);
                }
                self.direct[slot] = index;
            }
            _ => {
                self.others.insert(name.clone(), index);
            }
        }
        self.names.push(name);
        self.groups.push(group);
    }

    /// The same processes in other groups: `groups[i]` is the new group of process i.
    #[must_use]
    pub fn moved(&self, groups: Vec<u32>, speeds: Vec<f64>) -> Self {
        Self {
            groups,
            speeds,
            ..self.clone()
        }
    }

    /// The index of a process.
    #[must_use]
    pub fn index(&self, name: &ProcessName) -> Option<u32> {
        match name {
            ProcessName::Number(number) if *number < DIRECT => self.number(*number),
            _ => self.others.get(name).copied(),
        }
    }

    /// The index of a process named by a number.
    #[must_use]
    pub fn number(&self, number: u64) -> Option<u32> {
        if number < DIRECT {
            self.direct
                .get(number as usize)
                .copied()
                .filter(|index| *index != u32::MAX)
        } else {
            self.others.get(&ProcessName::Number(number)).copied()
        }
    }

    /// The name of a process.
    #[must_use]
    pub fn name(&self, process: u32) -> &ProcessName {
        &self.names[process as usize]
    }

    /// The group of a process.
    #[must_use]
    pub fn group(&self, process: u32) -> u32 {
        self.groups[process as usize]
    }

    /// The group of every process.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// The speeds of the processors, one per group.
    #[must_use]
    pub fn speeds(&self) -> &[f64] {
        &self.speeds
    }

    /// Number of processes.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.names.len()
    }
}
