//! The maps with their types, from a loaded object or from pins.

use std::{
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use aya::{
    Pod,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray},
    pin::PinError,
};
use perturb_common::abi::{
    Attachment, Bound, Class, ClassCounters, JitterTable, NthKey, Path as ServerPath, RuleVector,
    ServerConfig, ServerCounters, ServerState, Settings, Span,
};

use crate::programs::Programs;

/// A wire type as the value of a map.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Wire<T>(pub T);

// SAFETY: the wire types are repr(C), without padding, and any bytes the programs write are valid for them.
unsafe impl<T: Copy + 'static> Pod for Wire<T> {}

/// A map that is not there or not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum MapsError {
    /// The object has no such map: programs and controller were built apart.
    #[error("the eBPF object has no map {0}")]
    Missing(&'static str),
    /// The kernel's answer.
    #[error("map {name}: {source}")]
    Map {
        /// Which map.
        name: &'static str,
        /// Why.
        source: MapError,
    },
    /// It could not be pinned.
    #[error("pinning map {name} at {path}: {source}")]
    Pin {
        /// Which map.
        name: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: PinError,
    },
}

macro_rules! maps {
    ($($field:ident: $name:literal => $kind:ident < $($parameter:ty),+ >),+ $(,)?) => {
        /// The maps that the controller reads or writes.
        #[expect(missing_docs, reason = "named and described in ebpf-prog/src/maps.rs")]
        pub struct Maps {
            $(pub $field: $kind<MapData, $($parameter),+>),+
        }

        impl Maps {
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            fn open(mut get: impl FnMut(&'static str) -> Result<MapData, MapsError>) -> Result<Self, MapsError> {
                Ok(Self {
                    $($field: Map::from_map_data(get($name)?)
                        .and_then(|map| map.try_into())
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
    servers: "SERVERS" => Array<Wire<ServerConfig>>,
    paths: "PATHS" => Array<Wire<ServerPath>>,
    classes: "CLASSES" => Array<Wire<Class>>,
    jitter: "JITTER" => Array<Wire<JitterTable>>,
    nth: "NTH" => HashMap<Wire<NthKey>, u32>,
    spans: "SPANS" => Array<Wire<Span>>,
    bounds: "BOUNDS" => Array<Wire<Bound>>,
    vectors: "VECTORS" => Array<Wire<RuleVector>>,
    rules: "RULES" => Array<u32>,
    states: "STATES" => Array<Wire<ServerState>>,
    ring: "RING" => Array<u64>,
    events: "EVENTS_SEEN" => PerCpuArray<u64>,
    class_counters: "CLASS_COUNTERS" => PerCpuArray<Wire<ClassCounters>>,
    server_counters: "SERVER_COUNTERS" => PerCpuArray<Wire<ServerCounters>>,
    lateness: "LATENESS" => PerCpuArray<u64>,
    pacer_stats: "PACER_STATS" => Array<u64>,
}

impl Maps {
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
            MapData::from_fd(fd).map_err(failed)
        })
    }

    /// Those pinned in a directory.
    pub fn pinned(directory: &Path) -> Result<Self, MapsError> {
        Self::open(|name| {
            MapData::from_pin(directory.join(name)).map_err(|source| MapsError::Map { name, source })
        })
    }

    /// Pins the maps of a loaded object in a directory, so that other processes find them.
    pub fn pin(programs: &Programs, directory: &Path) -> Result<(), MapsError> {
        for &name in Self::NAMES {
            let map = programs.raw_map(name).ok_or(MapsError::Missing(name))?;
            let path = directory.join(name);
            map.pin(&path)
                .map_err(|source| MapsError::Pin { name, path, source })?;
        }
        Ok(())
    }
}

fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::LruHashMap(data) | Map::PerCpuArray(data) => Some(data),
        _ => None,
    }
}
