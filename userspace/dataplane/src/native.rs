//! The programs in this process: the same source as the kernel's (`perturb-native`), over tables that lie in a file which other
//! processes map.

use std::{fmt, fs::File, io, sync::Arc};

use perturb_common::flow::{SECRET_WORDS, Secret};
pub use perturb_machine::{
    frame::{Frame, Way},
    seat::Seat,
};
use perturb_machine::{maps::Shape, region::Region};
use perturb_native::{Constants, seat, shapes};
pub use perturb_native::{Program, Verdict, run};

use crate::{
    maps::{Maps, MapsError},
    programs::LoadError,
    room::Room,
};

/// The tables of an emulation, and what its programs are told before they run.
#[derive(Debug)]
pub struct Tables {
    region: Arc<Region>,
    constants: Constants,
    verbose: bool,
}

impl Tables {
    /// In an empty file, as large as `room` says, for so many threads.
    pub fn new(file: File, room: &Room, seats: u32, verbose: bool) -> Result<Self, LoadError> {
        let entries = room.entries();
        let resized = |shape: Shape| match entries.iter().find(|(name, _)| *name == shape.name) {
            Some(&(_, entries)) => Shape { entries, ..shape },
            None => shape,
        };
        let shapes: Vec<Shape> = shapes().map(resized).collect();
        let mut secret: Secret = [0; SECRET_WORDS];
        for word in &mut secret {
            *word = getrandom::u64().map_err(LoadError::Secret)?;
        }
        Ok(Self {
            region: Region::create(file, &shapes, seats)
                .map(Arc::new)
                .map_err(LoadError::Tables)?,
            constants: Constants {
                flow_mask: room.flows - 1,
                instance_mask: room.instances - 1,
                flow_home: room.home,
                secret,
            },
            verbose,
        })
    }

    /// The maps.
    pub fn maps(&self) -> Result<Maps, MapsError> {
        Maps::in_memory(&self.region)
    }

    /// The place of the thread with this number. Whoever sits there keeps these tables.
    #[must_use]
    pub fn seat(&self, number: u32) -> Seat {
        seat(&self.region, number, &self.constants, self.verbose.then_some(say))
    }
}

/// What the programs say, as those of the kernel do.
fn say(message: fmt::Arguments<'_>) {
    log::info!(target: "perturb", "{message}");
}

/// Memory for the tables that no file names.
pub fn unnamed() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(memfd_create("perturb", MemfdFlags::CLOEXEC)?.into())
}
