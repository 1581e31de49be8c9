//! The tree that all processes build together.

use std::collections::HashMap;

use super::{BODY, Blocks, Mass, square};
use crate::{
    mesh::{MeshError, Process},
    split_c::{
        SplitCError,
        space::{Cube, Vector},
    },
};

/// Words of a cell: its lock, its children, its center and mass.
pub(super) const CELL: usize = 1 + 8 + BODY;
/// Cells within cells, at most; places that differ only in what is smaller count as the same.
const DEEPEST: usize = 60;

/// Cells that one process may make for so many bodies.
pub(super) fn room(bodies: usize) -> usize {
    4 * bodies + 2 * DEEPEST
}

/// A child: nothing, a body, or a cell with its process and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Child {
    None,
    Body(usize),
    Cell(usize, usize),
}

const IS_BODY: u64 = 1 << 63;
const IS_CELL: u64 = 1 << 62;

impl Child {
    fn of_word(word: u64) -> Self {
        if word & IS_BODY != 0 {
            Self::Body((word & !IS_BODY) as usize)
        } else if word & IS_CELL != 0 {
            Self::Cell(((word & !IS_CELL) >> 32) as usize, word as u32 as usize)
        } else {
            Self::None
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Body(index) => IS_BODY | index as u64,
            Self::Cell(owner, number) => IS_CELL | (owner as u64) << 32 | number as u64,
        }
    }
}

/// The tree, as one process knows it.
pub(super) struct Tree {
    blocks: Blocks,
    cube: Cube,
    /// The first word of its cells.
    cells: usize,
    /// Depth of each of its own cells.
    depths: Vec<usize>,
    /// What it has read of others, for the forces: a cell's children and mass, or a body.
    read: HashMap<Child, Vec<u64>>,
}

const ROOT: Child = Child::Cell(0, 0);

impl Tree {
    /// An empty tree around all bodies, known to all.
    pub(super) fn new(process: &mut Process, blocks: Blocks, farthest: f64) -> Result<Self, SplitCError> {
        let cells = BODY * blocks.most();
        let mut tree = Self {
            blocks,
            cube: Cube {
                center: [0.0; 3],
                half: farthest * 1.001,
            },
            cells,
            depths: Vec::new(),
            read: HashMap::new(),
        };
        if process.rank() == 0 {
            tree.cell(process, 0)?;
        }
        process.barrier()?;
        Ok(tree)
    }

    /// A new cell of its own.
    fn cell(&mut self, process: &mut Process, depth: usize) -> Result<usize, SplitCError> {
        let number = self.depths.len();
        if depth >= DEEPEST || number >= room(self.blocks.most()) {
            return Err(SplitCError::Room);
        }
        let at = self.at(number);
        (at..at + CELL).for_each(|at| process.store(at, 0));
        self.depths.push(depth);
        Ok(number)
    }

    fn at(&self, number: usize) -> usize {
        self.cells + CELL * number
    }

    fn body(&self, process: &mut Process, index: usize) -> Result<Vec<u64>, MeshError> {
        let (owner, at) = self.blocks.place(index);
        process.read_words(owner, BODY * at, BODY)
    }

    /// Puts a body into the tree.
    pub(super) fn insert(
        &mut self,
        process: &mut Process,
        index: usize,
        place: Vector,
    ) -> Result<(), SplitCError> {
        let (mut cube, mut depth, mut cell) = (self.cube, 0, (0, 0));
        loop {
            let (owner, lock) = (cell.0, self.at(cell.1));
            let octant = cube.octant(place);
            let at = lock + 1 + octant;
            let mut child = Child::of_word(process.read(owner, at)?);
            if !matches!(child, Child::Cell(..)) {
                process.lock(owner, lock)?;
                // Somebody else may have been faster.
                child = Child::of_word(process.read(owner, at)?);
                let new = match child {
                    Child::None => Some(Child::Body(index)),
                    Child::Body(other) => {
                        let other_place = Mass::of_words(&self.body(process, other)?).place;
                        let pair = [(index, place), (other, other_place)];
                        Some(self.part(process, cube.within(octant), depth + 1, pair)?)
                    }
                    Child::Cell(..) => None,
                };
                if let Some(new) = new {
                    process.write(owner, at, new.word())?;
                }
                process.unlock(owner, lock)?;
                if new.is_some() {
                    return Ok(());
                }
            }
            if let Child::Cell(owner, number) = child {
                cell = (owner, number);
                cube = cube.within(octant);
                depth += 1;
            }
        }
    }

    /// Cells of its own that have two bodies in different places.
    fn part(
        &mut self,
        process: &mut Process,
        cube: Cube,
        depth: usize,
        pair: [(usize, Vector); 2],
    ) -> Result<Child, SplitCError> {
        let number = self.cell(process, depth)?;
        let at = self.at(number) + 1;
        let [one, other] = pair.map(|(_, place)| cube.octant(place));
        if one == other {
            let child = self.part(process, cube.within(one), depth + 1, pair)?;
            process.store(at + one, child.word());
        } else {
            for (octant, (index, _)) in [one, other].into_iter().zip(pair) {
                process.store(at + octant, Child::Body(index).word());
            }
        }
        Ok(Child::Cell(process.rank(), number))
    }

    /// Computes centers and masses, from the deepest cells up.
    pub(super) fn weigh(&mut self, process: &mut Process) -> Result<(), SplitCError> {
        let deepest = self.depths.iter().max().copied().unwrap_or_default();
        let deepest = process.gather(deepest as u64)?.into_iter().max();
        for depth in (0..=deepest.unwrap_or_default() as usize).rev() {
            for number in 0..self.depths.len() {
                if self.depths[number] != depth {
                    continue;
                }
                let (mut center, mut mass) = ([0.0; 3], 0.0);
                for octant in 0..8 {
                    let child = Child::of_word(process.load(self.at(number) + 1 + octant));
                    let words = match child {
                        Child::None => continue,
                        Child::Body(index) => self.body(process, index)?,
                        Child::Cell(owner, number) => process.read_words(owner, self.at(number) + 9, BODY)?,
                    };
                    let child = Mass::of_words(&words);
                    mass += child.mass;
                    for (sum, value) in center.iter_mut().zip(child.place) {
                        *sum += child.mass * value;
                    }
                }
                let place = center.map(|sum| sum / mass);
                let words = Mass { place, mass }.words();
                process.write_words(process.rank(), self.at(number) + 9, &words)?;
            }
            process.barrier()?;
        }
        Ok(())
    }

    /// The force on a body.
    pub(super) fn force(
        &mut self,
        process: &mut Process,
        place: Vector,
        opening: f64,
    ) -> Result<Vector, MeshError> {
        let mut force = [0.0; 3];
        let mut open = vec![(ROOT, 2.0 * self.cube.half)];
        while let Some((child, width)) = open.pop() {
            let words = self.known(process, child)?;
            let of = Mass::of_words(&words[words.len() - BODY..]);
            let distance = square([0, 1, 2].map(|axis| of.place[axis] - place[axis]));
            let is_far = width * width < opening * opening * distance;
            if is_far || matches!(child, Child::Body(_)) {
                of.pull(place, &mut force);
            } else {
                let children = words[..8].iter().rev().map(|word| Child::of_word(*word));
                let some = children.filter(|child| *child != Child::None);
                open.extend(some.map(|child| (child, width / 2.0)));
            }
        }
        Ok(force)
    }

    /// A cell's children and mass, or a body.
    fn known(&mut self, process: &mut Process, child: Child) -> Result<&[u64], MeshError> {
        if !self.read.contains_key(&child) {
            let words = match child {
                Child::None => vec![0; BODY],
                Child::Body(index) => self.body(process, index)?,
                Child::Cell(owner, number) => process.read_words(owner, self.at(number) + 1, 8 + BODY)?,
            };
            self.read.insert(child, words);
        }
        Ok(self.read.get(&child).map_or(&[], Vec::as_slice))
    }
}
