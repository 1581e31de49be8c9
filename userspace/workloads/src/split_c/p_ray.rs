//! P-Ray: spheres drawn by following rays of light back from the eye.
//!
//! The spheres lie in an oct-tree. Cells and spheres are dealt out to the processes, one after another; each process
//! draws a part of the pixels and reads what its rays meet, through a cache of fixed size that forgets what was not used
//! for longest. Cells and spheres that many rays meet make their owners busy.
//! Unlike in the thesis, every process makes the whole tree first, before the time is taken, and keeps only its share.

mod scene;

use std::{convert::Infallible, num::NonZeroUsize};

use lru::LruCache;

use self::scene::{CELL, SPHERE, Scene, Things};
use super::{Blocks, Parallel, Part, SplitCError};
use crate::mesh::{MeshError, Process};

/// The picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PRay {
    /// Pixels in a row, and rows.
    pub side: usize,
    /// How many spheres.
    pub spheres: usize,
    /// Cells and spheres of others that a process keeps.
    pub cache: NonZeroUsize,
    /// Where the spheres come from.
    pub seed: u64,
}

impl PRay {
    fn blocks(&self, size: usize) -> Blocks {
        let total = self.side * self.side;
        Blocks { total, size }
    }
}

/// Which thing: a cell's or a sphere's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Cell(usize),
    Sphere(usize),
}

/// What is with other processes, too.
struct Dealt<'a> {
    process: &'a mut Process,
    /// The place of the first sphere in each process.
    spheres: usize,
    cache: LruCache<Thing, Vec<u64>>,
}

impl Dealt<'_> {
    fn words<const N: usize>(&mut self, thing: Thing) -> Result<[u64; N], MeshError> {
        let (number, first) = match thing {
            Thing::Cell(number) => (number, 0),
            Thing::Sphere(number) => (number, self.spheres),
        };
        let size = self.process.size();
        let (owner, at) = (number % size, first + number / size * N);
        let array = |words: &[u64]| words.first_chunk().copied().unwrap_or([0; N]);
        if owner == self.process.rank() {
            return Ok(array(&self.process.loads(at, N)));
        }
        if let Some(words) = self.cache.get(&thing) {
            return Ok(array(words));
        }
        let words = self.process.read_words(owner, at, N)?;
        let result = array(&words);
        self.cache.put(thing, words);
        Ok(result)
    }
}

impl Things for Dealt<'_> {
    type Error = MeshError;

    fn cell(&mut self, number: usize) -> Result<[u64; CELL], MeshError> {
        self.words(Thing::Cell(number))
    }

    fn sphere(&mut self, number: usize) -> Result<[u64; SPHERE], MeshError> {
        self.words(Thing::Sphere(number))
    }
}

/// What is all here.
impl Things for &Scene {
    type Error = Infallible;

    fn cell(&mut self, number: usize) -> Result<[u64; CELL], Infallible> {
        Ok(self.cells[number])
    }

    fn sphere(&mut self, number: usize) -> Result<[u64; SPHERE], Infallible> {
        Ok(self.spheres[number])
    }
}

impl Parallel for PRay {
    /// The place of the first sphere in each process.
    type Input = usize;

    fn name(&self) -> &'static str {
        "p-ray"
    }

    fn words(&self, size: usize) -> usize {
        let scene = Scene::new(self.spheres, self.seed);
        scene.cells.len().div_ceil(size) * CELL + scene.spheres.len().div_ceil(size) * SPHERE
    }

    fn values(&self) -> u64 {
        (self.side * self.side) as u64
    }

    fn prepare(&self, process: &mut Process) -> Result<usize, SplitCError> {
        self.blocks(process.size()).enough(1, "pixels")?;
        let scene = Scene::new(self.spheres, self.seed);
        let (rank, size) = (process.rank(), process.size());
        let first = scene.cells.len().div_ceil(size) * CELL;
        for (at, cell) in scene.cells.iter().skip(rank).step_by(size).enumerate() {
            process.write_words(rank, at * CELL, cell)?;
        }
        for (at, sphere) in scene.spheres.iter().skip(rank).step_by(size).enumerate() {
            process.write_words(rank, first + at * SPHERE, sphere)?;
        }
        Ok(first)
    }

    fn compute(&self, process: &mut Process, &mut spheres: &mut usize) -> Result<Part, SplitCError> {
        let own = self.blocks(process.size()).range(process.rank());
        let mut dealt = Dealt {
            process,
            spheres,
            cache: LruCache::new(self.cache),
        };
        let pixels = own
            .clone()
            .map(|pixel| scene::pixel(&mut dealt, self.side, pixel));
        Ok(Part {
            first: own.start,
            values: pixels.collect::<Result<_, _>>()?,
        })
    }

    fn check(&self, _: usize, part: &Part) -> Result<(), String> {
        let scene = Scene::new(self.spheres, self.seed);
        let mut pixels = vec![0; self.side * self.side];
        for pixel in part.first..(part.first + part.values.len()).min(pixels.len()) {
            pixels[pixel] = scene::pixel(&mut &scene, self.side, pixel)
                .unwrap_or_else(|never: Infallible| match never {});
        }
        part.equals(&pixels, |color| format!("#{color:06x}"))
    }
}
