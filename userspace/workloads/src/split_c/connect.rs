//! Connect: connected components of a grid of which only some edges are there.
//!
//! Each process joins what its rows hold, without messages. Then the edges to the next process' rows are pointed at the
//! representatives of what they join, and the components on both sides are merged: the larger representative is made to
//! point at the smaller one, by a swap where it lies. At last each process asks for the representatives of its own.
//! The label of a vertex is the smallest number in its component.
//! Unlike in the thesis, all processes merge at once, and not one pair of neighbors after another.

use std::collections::{BTreeSet, HashMap};

use super::{Blocks, Parallel, Part, SplitCError, draw};
use crate::mesh::{MeshError, Process};

/// The grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Connect {
    /// Vertices in a row, and rows.
    pub side: usize,
    /// Share of the edges that are there.
    pub connected: f64,
    /// Where the edges come from.
    pub seed: u64,
}

impl Connect {
    fn blocks(&self, size: usize) -> Blocks {
        let total = self.side;
        Blocks { total, size }
    }

    /// Neighbors of a vertex to the right and below.
    fn edges(&self, vertex: usize) -> impl Iterator<Item = usize> + use<> {
        let mut random = draw(self.seed, vertex);
        let (right, below) = (
            random.fraction() < self.connected,
            random.fraction() < self.connected,
        );
        let (side, row) = (self.side, vertex / self.side);
        let right = (right && vertex % side + 1 < side).then_some(vertex + 1);
        let below = (below && row + 1 < side).then_some(vertex + side);
        right.into_iter().chain(below)
    }

    /// The process with a vertex, and its place there.
    fn place(&self, blocks: Blocks, vertex: usize) -> (usize, usize) {
        let (owner, row) = blocks.place(vertex / self.side);
        (owner, row * self.side + vertex % self.side)
    }
}

/// Components of some neighboring vertices, by what a vertex points at; roots point at themselves.
struct Forest {
    first: usize,
    parents: Vec<usize>,
}

impl Forest {
    fn root(&mut self, mut vertex: usize) -> usize {
        loop {
            let parent = self.parents[vertex - self.first];
            if parent == vertex {
                return vertex;
            }
            let next = self.parents[parent - self.first];
            self.parents[vertex - self.first] = next;
            vertex = next;
        }
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.parents[one.max(other) - self.first] = one.min(other);
    }

    /// The components of the edges between vertices, and each one's root.
    fn of(grid: &Connect, vertices: std::ops::Range<usize>) -> Vec<usize> {
        let mut forest = Self {
            first: vertices.start,
            parents: vertices.clone().collect(),
        };
        for vertex in vertices.clone() {
            for other in grid.edges(vertex).filter(|other| vertices.contains(other)) {
                forest.join(vertex, other);
            }
        }
        vertices.map(|vertex| forest.root(vertex)).collect()
    }
}

impl Parallel for Connect {
    type Input = Blocks;

    fn name(&self) -> &'static str {
        "connect"
    }

    fn words(&self, size: usize) -> usize {
        self.blocks(size).most() * self.side
    }

    fn values(&self) -> u64 {
        (self.side * self.side) as u64
    }

    fn prepare(&self, process: &mut Process) -> Result<Blocks, SplitCError> {
        self.blocks(process.size()).enough(1, "rows")
    }

    fn compute(&self, process: &mut Process, &mut blocks: &mut Blocks) -> Result<Part, SplitCError> {
        let rows = blocks.range(process.rank());
        let own = rows.start * self.side..rows.end * self.side;
        let roots = Forest::of(self, own.clone());
        for (at, root) in roots.iter().enumerate() {
            process.store(at, *root as u64);
        }
        process.barrier()?;

        let parent = |process: &mut Process, vertex: usize| {
            let (owner, at) = self.place(blocks, vertex);
            process.read(owner, at).map(|parent| parent as usize)
        };
        let root = |process: &mut Process, mut vertex: usize| loop {
            match parent(process, vertex)? {
                itself if itself == vertex => return Ok::<_, MeshError>(vertex),
                next => vertex = next,
            }
        };
        let mut joined = BTreeSet::new();
        for vertex in own.end - self.side..own.end {
            for other in self.edges(vertex).filter(|other| !own.contains(other)) {
                joined.insert((roots[vertex - own.start], parent(process, other)?));
            }
        }
        for (one, other) in joined {
            loop {
                let (one, other) = (root(process, one)?, root(process, other)?);
                let (small, large) = (one.min(other), one.max(other));
                let (owner, at) = self.place(blocks, large);
                // Somebody else may have joined it meanwhile.
                if small == large || process.swap(owner, at, large as u64, small as u64)? {
                    break;
                }
            }
        }
        process.barrier()?;

        let mut labels = HashMap::new();
        for local in &roots {
            if !labels.contains_key(local) {
                labels.insert(*local, root(process, *local)? as u64);
            }
        }
        Ok(Part {
            first: own.start,
            values: roots.iter().map(|local| labels[local]).collect(),
        })
    }

    fn check(&self, _: usize, part: &Part) -> Result<(), String> {
        let labels = Forest::of(self, 0..self.side * self.side);
        let labels: Vec<u64> = labels.into_iter().map(|label| label as u64).collect();
        part.equals(&labels, |label| label)
    }
}
