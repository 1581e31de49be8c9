//! What befalls an emulation's packets, one by one: `perturb capture` reads it. The programs tell it until a time, which the
//! reader puts off; one that is killed puts off nothing.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use perturb_common::abi::{
    CLASS_WORDS, CONTROL_CLASSES, CONTROL_GENERATION, CONTROL_SIGHT, CONTROL_SNAP, Direction, MAX_SNAP, NONE,
    Sight,
};
pub use perturb_dataplane::maps::Seen;
use perturb_dataplane::maps::{Maps, Sightings};

use crate::registry::{self, Record};

/// How long the programs go on telling without a word from the reader.
const GRACE: Duration = Duration::from_secs(2);
/// How often the reader gives it.
const RENEWAL: Duration = Duration::from_millis(250);
/// How long a record may lag behind the tables in force.
const LAG: Duration = Duration::from_millis(500);

/// A class that an emulation does not have.
#[derive(Debug, thiserror::Error)]
#[error("{id} has no class {class}; its classes are {}", classes.join(", "))]
pub struct NoClass {
    id: String,
    class: String,
    classes: Vec<String>,
}

/// A packet, and what befell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighted {
    /// As the programs tell it.
    pub seen: Seen,
    /// Its class; nothing if it was released.
    pub class: Option<String>,
    /// The servers that it crossed.
    pub servers: Vec<String>,
}

/// Which classes' packets are told, and how much of each.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Classes by name; all if there is none.
    pub classes: BTreeSet<String>,
    /// Bytes of a packet, at most [`MAX_SNAP`].
    pub snap: u32,
}

/// The packets of one emulation.
pub struct Sights {
    record: Record,
    wanted: Wanted,
    maps: Maps,
    sightings: Sightings,
    /// The tables' names by half.
    names: [Names; 2],
    generation: u64,
    /// What was lost before, by direction.
    lost_before: [u64; 2],
    renewed: Instant,
    /// For how long nothing was told, because nobody put off the end.
    untold: Duration,
    _claim: registry::Lock,
}

#[derive(Clone, Debug, Default)]
struct Names {
    classes: Vec<String>,
    servers: Vec<String>,
}

impl Names {
    fn of(record: &Record) -> Self {
        Self {
            classes: record.in_force.classes.clone(),
            servers: record.in_force.servers.clone(),
        }
    }

    fn class(&self, class: u32) -> String {
        named(&self.classes, class)
    }
}

fn named(names: &[String], index: u32) -> String {
    names
        .get(index as usize)
        .cloned()
        .unwrap_or_else(|| index.to_string())
}

impl Sights {
    /// Has an emulation's programs tell.
    ///
    /// # Errors
    /// When another process captures, a class is not there, or its maps cannot be used.
    pub fn open(record: Record, wanted: Wanted) -> anyhow::Result<Self> {
        if let Some(class) = wanted
            .classes
            .iter()
            .find(|class| !record.in_force.classes.contains(class))
        {
            return Err(NoClass {
                id: record.id.clone(),
                class: class.clone(),
                classes: record.in_force.classes.clone(),
            }
            .into());
        }
        let Some(claim) = record.claim_sightings()? else {
            bail!(
                "another process captures the packets of {} already; end it first: a packet is told to one reader only",
                record.id
            );
        };
        let maps = Maps::by_id(&record.maps)?;
        let mut sightings = Sightings::by_id(&record.maps)?;
        // What an earlier reader left.
        while sightings.take().is_some() {}
        let names = Names::of(&record);
        let mut sights = Self {
            generation: generation(&maps)?,
            lost_before: unseen(&maps)?,
            names: [names.clone(), names],
            record,
            wanted,
            maps,
            sightings,
            renewed: Instant::now(),
            untold: Duration::ZERO,
            _claim: claim,
        };
        sights.set(CONTROL_SNAP, sights.wanted.snap.clamp(1, MAX_SNAP).into())?;
        sights.choose()?;
        sights.put_off(GRACE)?;
        Ok(sights)
    }

    /// What was told since the last call, in the order of its telling; `false` if the emulation has ended.
    ///
    /// # Errors
    /// When its maps cannot be used.
    pub fn take(&mut self, into: &mut Vec<Sighted>) -> anyhow::Result<bool> {
        let mut lives = true;
        let since = self.renewed.elapsed();
        if since >= RENEWAL {
            self.untold += since.saturating_sub(GRACE);
            self.put_off(GRACE)?;
            lives = self.record.has_owner()?;
        }
        self.follow()?;
        while let Some(seen) = self.sightings.take() {
            into.extend(self.named(seen));
        }
        Ok(lives)
    }

    /// No more is told from now on; [`take`](Self::take) what was.
    ///
    /// # Errors
    /// When its maps cannot be used.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.put_off(Duration::ZERO)
    }

    /// What is missing by direction, because it was not taken in time.
    ///
    /// # Errors
    /// When its maps cannot be used.
    pub fn lost(&self) -> anyhow::Result<[u64; 2]> {
        let now = unseen(&self.maps)?;
        Ok([0, 1].map(|direction| now[direction] - self.lost_before[direction]))
    }

    /// For how long the programs told nothing, and counted nothing as lost, because this process did not run.
    #[must_use]
    pub const fn untold(&self) -> Duration {
        self.untold
    }

    /// The emulation.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }

    fn set(&mut self, index: u32, word: u64) -> anyhow::Result<()> {
        self.maps
            .control
            .set(index, word, 0)
            .context("asking for packets")
    }

    fn put_off(&mut self, time: Duration) -> anyhow::Result<()> {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = if time == 0 { 0 } else { perturb_clock::now() + time };
        self.renewed = Instant::now();
        self.set(CONTROL_SIGHT, until)
    }

    /// Tells the programs which classes are wanted.
    fn choose(&mut self) -> anyhow::Result<()> {
        let mut words = [0u64; CLASS_WORDS as usize];
        for (name, class) in self.record.in_force.classes.iter().zip(0..) {
            if self.is_wanted(name)
                && let Some(word) = words.get_mut(class / 64)
            {
                *word |= 1 << (class % 64);
            }
        }
        for (word, index) in words.into_iter().zip(CONTROL_CLASSES..) {
            self.set(index, word)?;
        }
        Ok(())
    }

    fn is_wanted(&self, class: &str) -> bool {
        self.wanted.classes.is_empty() || self.wanted.classes.contains(class)
    }

    /// Learns the names of other tables that came into force.
    fn follow(&mut self) -> anyhow::Result<()> {
        let generation = generation(&self.maps)?;
        if generation == self.generation {
            return Ok(());
        }
        // The tables come before the record, whose names may be the same as before.
        let asked = Instant::now();
        while let Some(record) = self.record.again()? {
            if record.in_force != self.record.in_force {
                self.record = record;
                self.choose()?;
                break;
            }
            if asked.elapsed() >= LAG {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.generation = generation;
        self.names[(generation & 1) as usize] = Names::of(&self.record);
        Ok(())
    }

    /// What its numbers stand for; nothing if it is not wanted.
    fn named(&self, seen: Seen) -> Option<Sighted> {
        let names = &self.names[(seen.sighting.half & 1) as usize];
        let class = (seen.sighting.class != NONE).then(|| names.class(seen.sighting.class));
        if class.as_deref().is_some_and(|class| !self.is_wanted(class)) {
            return None;
        }
        let servers = seen.crossings.iter();
        Some(Sighted {
            class,
            servers: servers
                .map(|crossing| named(&names.servers, crossing.server))
                .collect(),
            seen,
        })
    }
}

impl Drop for Sights {
    fn drop(&mut self) {
        // Otherwise it ends by itself.
        let _ = self.stop();
    }
}

impl Sighted {
    /// What befell it.
    #[must_use]
    pub const fn what(&self) -> Option<Sight> {
        match self.seen.sighting.what {
            0 => Some(Sight::Folded),
            1 => Some(Sight::Released),
            2 => Some(Sight::Refused),
            _ => None,
        }
    }

    /// Which way it goes.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        if self.seen.sighting.direction & 1 == 0 {
            Direction::Egress
        } else {
            Direction::Ingress
        }
    }
}

fn generation(maps: &Maps) -> anyhow::Result<u64> {
    maps.control
        .get(&CONTROL_GENERATION, 0)
        .context("reading the generation")
}

fn unseen(maps: &Maps) -> anyhow::Result<[u64; 2]> {
    let of = |direction: u32| {
        let counts = maps.unseen.get(&direction, 0).context("reading what was lost")?;
        Ok::<u64, anyhow::Error>(counts.iter().sum())
    };
    Ok([of(0)?, of(1)?])
}
