//! The maps with their types, from a loaded object or as another process finds them: by the kernel's numbers, or in a file.

mod place;

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::{self, ErrorKind},
    os::fd::AsFd as _,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use aya::{
    Pod,
    maps::{Map, MapData, MapError},
};
use perturb_common::abi::{
    ABI_VERSION, Attachment, Bound, CONTROL_LEASE, CONTROL_VERSION, Class, ClassCounters, Crossing, FlowKey,
    FlowNote, JitterTable, NEAR_INTERFACES, NthKey, Path, Request, RuleVector, ServerConfig, ServerCounters,
    ServerState, Settings, Sighting, Sojourns, Span,
};
use perturb_common::{
    collisions::{CollisionTable, Contention},
    grants::Granted,
    queue::Queue,
    timeline::{Course, Row},
};

use perturb_machine::region::Region;
pub use place::{Array, HashMap, PerCpuArray};
use place::{Found, Ring};
use serde::{Deserialize, Serialize};

use crate::programs::Programs;

/// A wire type as the value of a map.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Wire<T>(pub T);

// SAFETY: of bytemuck's types all bytes are initialized, and any bytes are valid for them; `Wire` is transparent.
unsafe impl<T: bytemuck::Pod> Pod for Wire<T> {}

/// A map that is not there or not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum MapsError {
    /// The object has no such map: programs and controller were built apart.
    #[error("the eBPF object has no map {0}")]
    Missing(&'static str),
    /// Another version made the emulation.
    #[error(
        "the emulation that runs has no map {0}: another version of perturb made it; ask that one, or end it with `perturb clear`"
    )]
    Other(&'static str),
    /// The programs in the kernel are another version's.
    #[error(
        "the emulation that runs has ABI version {found}, this perturb has {ABI_VERSION}: ask the perturb that made it, or end it with `perturb clear`"
    )]
    Version {
        /// What the maps say.
        found: u64,
    },
    /// The kernel's answer.
    #[error("map {name}: {source}")]
    Map {
        /// Which map.
        name: &'static str,
        source: MapError,
    },
    /// The owner is gone, and the number is another map's now.
    #[error("map {name} is gone: number {id} is another map's")]
    Replaced {
        /// Which map.
        name: &'static str,
        /// Its number.
        id: u32,
    },
    /// The file of a process that runs the programs itself.
    #[error("opening the emulation's tables {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        source: io::Error,
    },
}

macro_rules! maps {
    ($($field:ident: $name:literal => $kind:ident < $($parameter:ty),+ >),+ $(,)?) => {
        /// The maps that the controller reads or writes.
        pub struct Maps {
            $(pub $field: $kind<$($parameter),+>),+
        }

        impl Maps {
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            fn open(mut get: impl FnMut(&'static str) -> Result<Found, MapsError>) -> Result<Self, MapsError> {
                Ok(Self {
                    $($field: $kind::try_from(get($name)?)
                        .map_err(|source| MapsError::Map { name: $name, source })?),+
                })
            }
        }
    };
}

maps! {
    control: "CONTROL" => Array<u64>,
    settings: "SETTINGS" => Array<Wire<Settings>>,
    attachments: "ATTACHMENTS" => HashMap<u32, Wire<Attachment>>,
    near: "NEAR" => Array<Wire<Attachment>>,
    servers: "SERVERS" => Array<Wire<ServerConfig>>,
    paths: "PATHS" => Array<Wire<Path>>,
    classes: "CLASSES" => Array<Wire<Class>>,
    jitter: "JITTER" => Array<Wire<JitterTable>>,
    collisions: "COLLISIONS" => Array<Wire<CollisionTable>>,
    contention: "CONTENTION" => Array<Wire<Contention>>,
    timelines: "TIMELINES" => Array<Wire<Course>>,
    segments: "SEGMENTS" => Array<Wire<Row>>,
    queues: "QUEUES" => Array<Wire<Queue>>,
    grants: "GRANTS" => Array<Wire<Granted>>,
    clocks: "CLOCKS" => Array<u64>,
    nth: "NTH" => HashMap<Wire<NthKey>, u32>,
    spans: "SPANS" => Array<Wire<Span>>,
    bounds: "BOUNDS" => Array<Wire<Bound>>,
    vectors: "VECTORS" => Array<Wire<RuleVector>>,
    rules: "RULES" => Array<u32>,
    states: "STATES" => Array<Wire<ServerState>>,
    instances: "INSTANCES" => Array<Wire<ServerState>>,
    flows: "FLOWS" => Array<u64>,
    ring: "RING" => Array<u64>,
    events: "EVENTS_SEEN" => PerCpuArray<u64>,
    class_counters: "CLASS_COUNTERS" => PerCpuArray<Wire<ClassCounters>>,
    server_counters: "SERVER_COUNTERS" => PerCpuArray<Wire<ServerCounters>>,
    lateness: "LATENESS" => PerCpuArray<u64>,
    sojourns: "SOJOURNS" => Array<Wire<Sojourns>>,
    lead: "LEAD" => Array<u64>,
    pacer_stats: "PACER_STATS" => Array<u64>,
    ordinals: "ORDINALS" => Array<u64>,
    held: "HELD" => Array<u64>,
    held_here: "HELD_HERE" => PerCpuArray<u64>,
    unseen: "UNSEEN" => PerCpuArray<u64>,
}

impl Maps {
    /// Tells the programs about an interface.
    pub fn attach(&mut self, interface: u32, attachment: Attachment) -> Result<(), MapError> {
        if interface < NEAR_INTERFACES {
            self.near.set(interface, Wire(attachment), 0)
        } else {
            self.attachments.insert(interface, Wire(attachment), 0)
        }
    }

    /// Lets the programs know an interface no more.
    pub fn forget(&mut self, interface: u32) -> Result<(), MapError> {
        if interface < NEAR_INTERFACES {
            let nothing = Attachment {
                target: 0,
                hold: 0,
                split: 0,
                rank: 0,
            };
            return self.near.set(interface, Wire(nothing), 0);
        }
        match self.attachments.remove(&interface) {
            Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Lets the programs emulate until `until`, CLOCK_MONOTONIC ns; `u64::MAX` for ever.
    pub fn set_lease(&mut self, until: u64) -> Result<(), MapError> {
        self.control.set(CONTROL_LEASE, until, 0)
    }

    /// Those of a loaded object.
    pub fn of(programs: &Programs) -> Result<Self, MapsError> {
        Self::open(|name| {
            let map = programs.raw_map(name).ok_or(MapsError::Missing(name))?;
            let data = data(map).ok_or(MapsError::Missing(name))?;
            let failed = |source| MapsError::Map { name, source };
            let fd = data
                .fd()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| failed(error.into()))?;
            MapData::from_fd(fd).map(Found::Kernel).map_err(failed)
        })
    }

    /// Those of programs that run natively.
    pub fn in_memory(region: &Arc<Region>) -> Result<Self, MapsError> {
        Self::open(|name| {
            let map = region.map(name).ok_or(MapsError::Missing(name))?;
            Ok(Found::Memory(Arc::clone(region), map))
        })
    }

    /// Those of an emulation that another process owns, as it recorded them. The kernel may have
    /// given a number to another map since its owner died; the name tells.
    pub fn by_id(ids: &MapIds) -> Result<Self, MapsError> {
        const CONTROL: &str = "CONTROL";
        let failed = |source| MapsError::Map {
            name: CONTROL,
            source,
        };
        let opened = ids.open()?;
        let control = Array::<u64>::try_from(opened.find(CONTROL)?).map_err(failed)?;
        match control.get(&CONTROL_VERSION, 0).map_err(failed)? {
            ABI_VERSION => Self::open(|name| opened.find(name)),
            found => Err(MapsError::Version { found }),
        }
    }

    /// The numbers of a loaded object's maps.
    pub fn ids(programs: &Programs) -> Result<MapIds, MapsError> {
        let id = |&name: &&'static str| {
            let data = programs
                .raw_map(name)
                .and_then(data)
                .ok_or(MapsError::Missing(name))?;
            let info = data.info().map_err(|source| MapsError::Map { name, source })?;
            Ok((name.to_string(), info.id()))
        };
        Self::NAMES
            .iter()
            .chain(&[NOTED, Requests::NAME, Sightings::NAME])
            .map(id)
            .collect::<Result<_, _>>()
            .map(MapIds::Kernel)
    }
}

const NOTED: &str = "NOTED";

/// What the programs of an emulation that another process owns have noted of flows.
pub fn noted(ids: &MapIds) -> Result<Vec<(FlowKey, FlowNote)>, MapsError> {
    let failed = |source| MapsError::Map { name: NOTED, source };
    let map = HashMap::<Wire<FlowKey>, Wire<FlowNote>>::try_from(ids.open()?.find(NOTED)?).map_err(failed)?;
    // A flow whose place another one takes meanwhile is missing.
    let all = map.all().into_iter().flatten();
    Ok(all.map(|(key, note)| (key.0, note.0)).collect())
}

/// The ring buffer of an emulation that another process owns.
fn ring(ids: &MapIds, name: &'static str) -> Result<Ring, MapsError> {
    Ring::try_from(ids.open()?.find(name)?).map_err(|source| MapsError::Map { name, source })
}

/// The log of requests. It has one reader at a time: what one takes, another does not see.
pub struct Requests(Ring);

impl Requests {
    const NAME: &'static str = "REQUESTS";

    /// That of an emulation that another process owns.
    pub fn by_id(ids: &MapIds) -> Result<Self, MapsError> {
        ring(ids, Self::NAME).map(Self)
    }

    /// Takes the next request, if there is one.
    pub fn take(&mut self) -> Option<Request> {
        // The programs write nothing else there.
        self.0
            .take(|item| Some(bytemuck::pod_read_unaligned(item.get(..size_of::<Request>())?)))?
    }
}

/// What befell packets, while somebody captures. It has one reader at a time.
pub struct Sightings(Ring);

/// A record of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What befell the packet.
    pub sighting: Sighting,
    /// The servers that it crossed.
    pub crossings: Vec<Crossing>,
    /// How it begins.
    pub bytes: Vec<u8>,
}

impl Sightings {
    const NAME: &'static str = "SIGHTINGS";

    /// Those of an emulation that another process owns.
    pub fn by_id(ids: &MapIds) -> Result<Self, MapsError> {
        ring(ids, Self::NAME).map(Self)
    }

    /// Takes the next record, if there is one.
    pub fn take(&mut self) -> Option<Seen> {
        self.0.take(seen)?
    }
}

/// A record of it, from the programs, which write nothing else there.
fn seen(item: &[u8]) -> Option<Seen> {
    let (head, rest) = item.split_at_checked(size_of::<Sighting>())?;
    let sighting: Sighting = bytemuck::pod_read_unaligned(head);
    let (crossings, bytes) = rest.split_at_checked(sighting.crossings as usize * size_of::<Crossing>())?;
    Some(Seen {
        sighting,
        crossings: crossings
            .chunks_exact(size_of::<Crossing>())
            .map(bytemuck::pod_read_unaligned)
            .collect(),
        bytes: bytes.into(),
    })
}

/// The map that another process recorded under this name.
fn by_id(ids: &BTreeMap<String, u32>, name: &'static str) -> Result<MapData, MapsError> {
    let id = *ids.get(name).ok_or(MapsError::Other(name))?;
    let failed = |source| MapsError::Map { name, source };
    let data = MapData::from_id(id).map_err(failed)?;
    if data.info().map_err(failed)?.name_as_str() != Some(name) {
        return Err(MapsError::Replaced { name, id });
    }
    Ok(data)
}

/// How other processes find the maps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MapIds {
    /// The kernel's numbers, by name.
    Kernel(BTreeMap<String, u32>),
    /// A file, where the programs run natively.
    Memory {
        /// Where it is.
        file: PathBuf,
    },
}

impl Default for MapIds {
    fn default() -> Self {
        Self::Kernel(BTreeMap::new())
    }
}

/// The maps of another process, ready to be looked at.
enum Opened<'a> {
    Kernel(&'a BTreeMap<String, u32>),
    Memory(Arc<Region>),
}

impl Opened<'_> {
    fn find(&self, name: &'static str) -> Result<Found, MapsError> {
        match self {
            Self::Kernel(ids) => by_id(ids, name).map(Found::Kernel),
            Self::Memory(region) => {
                let map = region.map(name).ok_or(MapsError::Other(name))?;
                Ok(Found::Memory(Arc::clone(region), map))
            }
        }
    }
}

impl MapIds {
    /// Whether the emulation notes flows and logs requests: not if an older perturb made it.
    #[must_use]
    pub fn has_flows(&self) -> bool {
        match self {
            Self::Kernel(ids) => [NOTED, Requests::NAME].iter().all(|name| ids.contains_key(*name)),
            Self::Memory { .. } => true,
        }
    }

    /// Whether a map of the kernel's is among them.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        matches!(self, Self::Kernel(ids) if ids.values().any(|&own| own == id))
    }

    fn open(&self) -> Result<Opened<'_>, MapsError> {
        match self {
            Self::Kernel(ids) => Ok(Opened::Kernel(ids)),
            Self::Memory { file } => open_region(file).map(Opened::Memory),
        }
    }
}

fn open_region(path: &FilePath) -> Result<Arc<Region>, MapsError> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let region = opened.and_then(Region::open);
    region.map(Arc::new).map_err(|source| MapsError::File {
        path: path.into(),
        source,
    })
}

pub(crate) fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}
