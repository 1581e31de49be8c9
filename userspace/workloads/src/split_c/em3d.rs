//! EM3D: electric and magnetic values on a bipartite graph, each changed by a linear function of its neighbors' in turn.
//!
//! Neighbors lie with the same process, or, the remote ones, with the process before or after. The *read* form reads each
//! remote value when it is needed, and waits for it. The *write* form keeps a copy of each remote value that a process
//! needs with that process; whoever changes a value writes it to its copies, without waiting.

use std::collections::BTreeSet;

use super::{Blocks, Parallel, Part, SplitCError, draw};
use crate::mesh::{MeshError, Process};

/// How values come to who needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// They are read.
    Read,
    /// They are written.
    Write,
}

/// The wave.
#[derive(Clone, Debug, PartialEq)]
pub struct Em3d {
    /// How many nodes, half of them electric.
    pub nodes: usize,
    /// Neighbors of a node.
    pub degree: usize,
    /// Share of remote neighbors.
    pub remote: f64,
    /// Steps in time.
    pub steps: usize,
    /// Which form.
    pub form: Form,
    /// Where graph and values come from.
    pub seed: u64,
}

/// The two kinds of nodes: a kind's neighbors are of the other one.
const KINDS: [usize; 2] = [0, 1];

/// A node's neighbors of the other kind, with their weights.
type Neighbors = Vec<(usize, f64)>;

/// What a process knows of the graph.
pub(super) struct Graph {
    blocks: Blocks,
    /// Neighbors of its own nodes, by kind.
    neighbors: [Vec<Neighbors>; 2],
    /// Remote neighbors of a kind that its own nodes have, in order: the places of their copies.
    copies: [Vec<usize>; 2],
    /// Its own nodes of a kind, with process and place of a copy.
    readers: [Vec<(usize, usize, usize)>; 2],
}

impl Em3d {
    fn blocks(&self, size: usize) -> Blocks {
        let total = self.nodes / 2;
        Blocks { total, size }
    }

    fn value(&self, kind: usize, node: usize) -> f64 {
        draw(self.seed, 2 * node + kind).fraction()
    }

    fn neighbors(&self, blocks: Blocks, kind: usize, node: usize) -> Neighbors {
        let mut random = draw(!self.seed, 2 * node + kind);
        let own = blocks.place(node).0;
        let one = |_| {
            let is_remote = random.fraction() < self.remote;
            let step = [1, blocks.size - 1][random.below(2) as usize];
            let owner = if is_remote {
                (own + step) % blocks.size
            } else {
                own
            };
            let range = blocks.range(owner);
            let neighbor = range.start + random.below(range.len() as u64) as usize;
            // So small that values stay finite whatever the number of steps here.
            (neighbor, random.fraction() / self.degree.max(1) as f64)
        };
        (0..self.degree).map(one).collect()
    }

    /// Remote neighbors of the other kind that a process' nodes of a kind have.
    fn remote(&self, blocks: Blocks, kind: usize, rank: usize) -> BTreeSet<usize> {
        let own = blocks.range(rank);
        let all = own.clone().flat_map(|node| self.neighbors(blocks, kind, node));
        all.map(|(neighbor, _)| neighbor)
            .filter(|neighbor| !own.contains(neighbor))
            .collect()
    }

    /// Words of copies of a kind, in each process.
    fn room(&self, size: usize) -> usize {
        let blocks = self.blocks(size);
        match self.form {
            Form::Read => 0,
            Form::Write => blocks.total.min(blocks.most() * self.degree),
        }
    }

    /// The place of the first copy of a kind.
    fn copies(&self, blocks: Blocks, kind: usize) -> usize {
        2 * blocks.most() + kind * self.room(blocks.size)
    }

    /// Writes all values of a kind to their copies.
    fn propagate(&self, process: &mut Process, graph: &Graph, kind: usize) -> Result<(), MeshError> {
        let own = kind * graph.blocks.most();
        for (node, reader, place) in &graph.readers[kind] {
            process.write(
                *reader,
                self.copies(graph.blocks, kind) + place,
                process.load(own + node),
            )?;
        }
        process.settle()
    }
}

/// A value less its neighbors'.
fn changed<E>(
    value: f64,
    neighbors: &Neighbors,
    mut of: impl FnMut(usize) -> Result<f64, E>,
) -> Result<f64, E> {
    neighbors.iter().try_fold(value, |value, (neighbor, weight)| {
        Ok(value - weight * of(*neighbor)?)
    })
}

impl Parallel for Em3d {
    type Input = Graph;

    fn name(&self) -> &'static str {
        match self.form {
            Form::Read => "em3d-read",
            Form::Write => "em3d-write",
        }
    }

    fn words(&self, size: usize) -> usize {
        2 * self.blocks(size).most() + 2 * self.room(size)
    }

    fn values(&self) -> u64 {
        2 * (self.nodes / 2) as u64
    }

    fn prepare(&self, process: &mut Process) -> Result<Graph, SplitCError> {
        let blocks = self.blocks(process.size()).enough(1, "nodes of a kind")?;
        let own = blocks.range(process.rank());
        for kind in KINDS {
            for (at, node) in own.clone().enumerate() {
                process.store(kind * blocks.most() + at, self.value(kind, node).to_bits());
            }
        }
        let neighbors = KINDS.map(|kind| {
            let nodes = own.clone().map(|node| self.neighbors(blocks, kind, node));
            nodes.collect()
        });
        let copies = KINDS.map(|kind| match self.form {
            Form::Read => Vec::new(),
            Form::Write => self
                .remote(blocks, 1 - kind, process.rank())
                .into_iter()
                .collect(),
        });
        let readers = KINDS.map(|kind| {
            let mut readers = Vec::new();
            if self.form == Form::Write {
                for peer in process.others() {
                    let theirs = self.remote(blocks, 1 - kind, peer).into_iter().enumerate();
                    let mine = theirs.filter(|(_, node)| own.contains(node));
                    readers.extend(mine.map(|(place, node)| (node - own.start, peer, place)));
                }
            }
            readers
        });
        Ok(Graph {
            blocks,
            neighbors,
            copies,
            readers,
        })
    }

    fn compute(&self, process: &mut Process, graph: &mut Graph) -> Result<Part, SplitCError> {
        let blocks = graph.blocks;
        let own = blocks.range(process.rank());
        if self.form == Form::Write {
            self.propagate(process, graph, 1)?;
        }
        for _ in 0..self.steps {
            for kind in KINDS {
                let (here, there) = (kind * blocks.most(), (1 - kind) * blocks.most());
                let copies = self.copies(blocks, 1 - kind);
                for (at, neighbors) in graph.neighbors[kind].iter().enumerate() {
                    let value = changed(f64::from_bits(process.load(here + at)), neighbors, |neighbor| {
                        let (owner, place) = blocks.place(neighbor);
                        let bits = if owner == process.rank() {
                            process.load(there + place)
                        } else if let Ok(copy) = graph.copies[1 - kind].binary_search(&neighbor) {
                            process.load(copies + copy)
                        } else {
                            process.read(owner, there + place)?
                        };
                        Ok::<_, MeshError>(f64::from_bits(bits))
                    })?;
                    process.store(here + at, value.to_bits());
                }
                match self.form {
                    Form::Read => process.barrier()?,
                    Form::Write => self.propagate(process, graph, kind)?,
                }
            }
        }
        let values = (0..own.len()).flat_map(|at| KINDS.map(|kind| process.load(kind * blocks.most() + at)));
        Ok(Part {
            first: 2 * own.start,
            values: values.collect(),
        })
    }

    fn check(&self, size: usize, part: &Part) -> Result<(), String> {
        let blocks = self.blocks(size);
        let nodes = 0..blocks.total;
        let mut values = KINDS.map(|kind| {
            let values = nodes.clone().map(|node| self.value(kind, node));
            values.collect::<Vec<_>>()
        });
        let neighbors = KINDS.map(|kind| {
            let nodes = nodes.clone().map(|node| self.neighbors(blocks, kind, node));
            nodes.collect::<Vec<_>>()
        });
        for _ in 0..self.steps {
            for kind in KINDS {
                for node in nodes.clone() {
                    let of = |neighbor: usize| Ok(values[1 - kind][neighbor]);
                    values[kind][node] = changed(values[kind][node], &neighbors[kind][node], of)
                        .unwrap_or_else(|never: std::convert::Infallible| match never {});
                }
            }
        }
        // The same operations in the same order give the same bits.
        let all = nodes.flat_map(|node| KINDS.map(|kind| values[kind][node].to_bits()));
        part.equals(&all.collect::<Vec<_>>(), f64::from_bits)
    }
}
