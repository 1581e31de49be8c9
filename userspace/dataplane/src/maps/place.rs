//! Where a map lies: in the kernel, or, where the programs run natively, in memory of processes. Whoever reads or writes one does
//! not care.

use std::{borrow::Borrow, io, marker::PhantomData, mem::MaybeUninit, slice, sync::Arc};

use aya::{
    Pod,
    maps::{self, Map, MapData, MapError, PerCpuValues},
};
use perturb_machine::{
    maps::{Hashed, Kind, Records},
    region::{Placed, Region},
};

/// A map as it was found, before it has a type.
pub(super) enum Found {
    Kernel(MapData),
    Memory(Arc<Region>, Placed),
}

/// A map in memory.
struct Own<T> {
    /// Keeps the memory.
    _region: Arc<Region>,
    map: Placed,
    values: PhantomData<fn() -> T>,
}

impl<T> Own<T> {
    fn new(
        region: Arc<Region>,
        map: Placed,
        kinds: &[Kind],
        key: usize,
        value: usize,
    ) -> Result<Self, MapError> {
        let (own_key, own_value) = map.sizes();
        if !kinds.contains(&map.kind()) {
            return Err(MapError::InvalidMapType {
                map_type: map.kind() as u32,
            });
        }
        if own_key as usize != key {
            return Err(MapError::InvalidKeySize {
                size: key,
                expected: own_key as usize,
            });
        }
        if own_value as usize != value {
            return Err(MapError::InvalidValueSize {
                size: value,
                expected: own_value as usize,
            });
        }
        Ok(Self {
            _region: region,
            map,
            values: PhantomData,
        })
    }

    fn beyond(&self, index: u32) -> MapError {
        MapError::OutOfBounds {
            index,
            max_entries: self.map.entries(),
        }
    }
}

impl<T: Pod> Own<T> {
    fn read(&self, index: u32, copy: u32) -> Result<T, MapError> {
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: the value's bytes, which are initialized.
        let bytes = unsafe { slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<T>()) };
        if !self.map.read(index, copy, bytes) {
            return Err(self.beyond(index));
        }
        // SAFETY: any bytes are a `Pod`.
        Ok(unsafe { value.assume_init() })
    }

    fn write(&self, index: u32, copy: u32, value: &T) -> Result<(), MapError> {
        if self.map.write(index, copy, bytes(value)) {
            Ok(())
        } else {
            Err(self.beyond(index))
        }
    }
}

fn bytes<T: Pod>(value: &T) -> &[u8] {
    // SAFETY: a `Pod` may be read as bytes.
    unsafe { slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

fn value<T: Pod>(bytes: &[u8]) -> T {
    debug_assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: so many bytes, any of which are a `Pod`.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

/// Values by number.
pub struct Array<T: Pod>(ArrayPlace<T>);

enum ArrayPlace<T: Pod> {
    Kernel(maps::Array<MapData, T>),
    Memory(Own<T>),
}

impl<T: Pod> TryFrom<Found> for Array<T> {
    type Error = MapError;

    fn try_from(found: Found) -> Result<Self, MapError> {
        Ok(Self(match found {
            Found::Kernel(data) => ArrayPlace::Kernel(Map::from_map_data(data)?.try_into()?),
            Found::Memory(region, map) => {
                ArrayPlace::Memory(Own::new(region, map, &[Kind::Array], 0, size_of::<T>())?)
            }
        }))
    }
}

impl<T: Pod> Array<T> {
    /// How many values there are.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    #[must_use]
    pub fn len(&self) -> u32 {
        match &self.0 {
            ArrayPlace::Kernel(map) => map.len(),
            ArrayPlace::Memory(own) => own.map.entries(),
        }
    }

    /// A value.
    pub fn get(&self, index: &u32, flags: u64) -> Result<T, MapError> {
        match &self.0 {
            ArrayPlace::Kernel(map) => map.get(index, flags),
            ArrayPlace::Memory(own) => own.read(*index, 0),
        }
    }

    /// Sets a value.
    pub fn set(&mut self, index: u32, value: impl Borrow<T>, flags: u64) -> Result<(), MapError> {
        match &mut self.0 {
            ArrayPlace::Kernel(map) => map.set(index, value, flags),
            ArrayPlace::Memory(own) => own.write(index, 0, value.borrow()),
        }
    }
}

/// Values by number, of each processor, or of each thread that runs programs.
pub struct PerCpuArray<T: Pod>(PerCpuPlace<T>);

enum PerCpuPlace<T: Pod> {
    Kernel(maps::PerCpuArray<MapData, T>),
    Memory(Own<T>),
}

impl<T: Pod> TryFrom<Found> for PerCpuArray<T> {
    type Error = MapError;

    fn try_from(found: Found) -> Result<Self, MapError> {
        Ok(Self(match found {
            Found::Kernel(data) => PerCpuPlace::Kernel(Map::from_map_data(data)?.try_into()?),
            Found::Memory(region, map) => {
                PerCpuPlace::Memory(Own::new(region, map, &[Kind::PerCpuArray], 0, size_of::<T>())?)
            }
        }))
    }
}

impl<T: Pod> PerCpuArray<T> {
    /// The values of all.
    pub fn get(&self, index: &u32, flags: u64) -> Result<Vec<T>, MapError> {
        match &self.0 {
            PerCpuPlace::Kernel(map) => Ok(map.get(index, flags)?.to_vec()),
            PerCpuPlace::Memory(own) => (0..own.map.copies()).map(|copy| own.read(*index, copy)).collect(),
        }
    }

    /// Sets the values of all to the same.
    pub fn fill(&mut self, index: u32, value: T) -> Result<(), MapError> {
        match &mut self.0 {
            PerCpuPlace::Kernel(map) => {
                let all = vec![value; map.get(&index, 0)?.len()];
                map.set(index, PerCpuValues::try_from(all).map_err(MapError::IoError)?, 0)
            }
            PerCpuPlace::Memory(own) => {
                (0..own.map.copies()).try_for_each(|copy| own.write(index, copy, &value))
            }
        }
    }
}

/// Values by key.
pub struct HashMap<K: Pod, V: Pod>(HashPlace<K, V>);

enum HashPlace<K: Pod, V: Pod> {
    Kernel(maps::HashMap<MapData, K, V>),
    Memory(Own<(K, V)>),
}

impl<K: Pod, V: Pod> TryFrom<Found> for HashMap<K, V> {
    type Error = MapError;

    fn try_from(found: Found) -> Result<Self, MapError> {
        let kinds = [Kind::Hash, Kind::LruHash];
        Ok(Self(match found {
            Found::Kernel(data) => HashPlace::Kernel(Map::from_map_data(data)?.try_into()?),
            Found::Memory(region, map) => {
                HashPlace::Memory(Own::new(region, map, &kinds, size_of::<K>(), size_of::<V>())?)
            }
        }))
    }
}

impl<K: Pod, V: Pod> HashMap<K, V> {
    /// Gives a key a value.
    pub fn insert(&mut self, key: impl Borrow<K>, value: impl Borrow<V>, flags: u64) -> Result<(), MapError> {
        match &mut self.0 {
            HashPlace::Kernel(map) => map.insert(key, value, flags),
            HashPlace::Memory(own) => {
                let (key, value) = (bytes(key.borrow()), bytes(value.borrow()));
                // SAFETY: a key and a value of the table.
                let done = |table: Hashed| unsafe { table.insert(key.as_ptr(), value.as_ptr()) };
                if own.map.hashed().is_some_and(done) {
                    Ok(())
                } else {
                    Err(MapError::IoError(io::Error::from_raw_os_error(libc::E2BIG)))
                }
            }
        }
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &K) -> Result<(), MapError> {
        match &mut self.0 {
            HashPlace::Kernel(map) => map.remove(key),
            HashPlace::Memory(own) => {
                // SAFETY: a key of the table.
                let done = |table: Hashed| unsafe { table.remove(bytes(key).as_ptr()) };
                if own.map.hashed().is_some_and(done) {
                    Ok(())
                } else {
                    Err(MapError::KeyNotFound)
                }
            }
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &K, flags: u64) -> Result<V, MapError> {
        match &self.0 {
            HashPlace::Kernel(map) => map.get(key, flags),
            HashPlace::Memory(own) => {
                // SAFETY: a key of the table, and a value.
                let found = |table: Hashed| unsafe {
                    let value = table.find(bytes(key).as_ptr())?;
                    Some(value.cast::<V>().read_unaligned())
                };
                own.map.hashed().and_then(found).ok_or(MapError::KeyNotFound)
            }
        }
    }

    /// All keys and values; an error in place of one that changes meanwhile.
    #[must_use]
    pub fn all(&self) -> Vec<Result<(K, V), MapError>> {
        match &self.0 {
            HashPlace::Kernel(map) => map.iter().collect(),
            HashPlace::Memory(own) => {
                let mut all = Vec::new();
                if let Some(table) = own.map.hashed() {
                    table.each(|own_key, own_value| all.push(Ok((value(own_key), value(own_value)))));
                }
                all
            }
        }
    }
}

/// Records that programs write.
pub(super) struct Ring(RingPlace);

enum RingPlace {
    Kernel(maps::RingBuf<MapData>),
    Memory {
        /// Keeps the memory.
        _own: Own<()>,
        records: Records,
    },
}

impl TryFrom<Found> for Ring {
    type Error = MapError;

    fn try_from(found: Found) -> Result<Self, MapError> {
        Ok(Self(match found {
            Found::Kernel(data) => RingPlace::Kernel(Map::from_map_data(data)?.try_into()?),
            Found::Memory(region, map) => RingPlace::Memory {
                _own: Own::new(region, map, &[Kind::Ring], 0, 1)?,
                records: map.records().ok_or(MapError::ElementNotFound)?,
            },
        }))
    }
}

impl Ring {
    /// Takes the next record, if there is one.
    pub(super) fn take<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match &mut self.0 {
            RingPlace::Kernel(ring) => ring.next().map(|record| read(&record)),
            RingPlace::Memory { records, .. } => records.take().map(|record| read(&record)),
        }
    }
}

// SAFETY: the memory is the region's, which is kept beside; its words are shared between processes anyway.
unsafe impl Send for Ring {}
