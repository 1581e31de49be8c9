//! Barnes: bodies that attract each other, their forces by an oct-tree (Barnes and Hut 1986).
//!
//! In each step all processes put their bodies into one tree, whose cells lie with the process that made them: a body
//! goes down from the root by reading children; where it finds a free place or another body, it locks that cell, looks
//! again, and puts itself there. A lock that is taken is asked for again at once: these are the failed attempts that
//! become more with the overhead. Then centers of mass are computed from the leaves up, one level after another, and
//! each process computes the forces on its bodies; it reads cells and bodies of others once, and keeps them.
//!
//! The bodies are Plummer's (Aarseth, Henon and Wielen 1974), so many are close together in the middle, and any process
//! has some of these. Forces are compared with the direct sums over all pairs.

mod check;
mod tree;

use self::tree::{CELL, Tree};
use super::{Blocks, Parallel, Part, SplitCError, draw, space::Vector};
use crate::mesh::{MeshError, Process};

/// The bodies.
#[derive(Clone, Debug, PartialEq)]
pub struct Barnes {
    pub bodies: usize,
    /// Steps in time.
    pub steps: usize,
    /// A cell whose width is less than so much of its distance counts as one body.
    pub opening: f64,
    /// Where the bodies come from.
    pub seed: u64,
}

/// Time between two steps.
const STEP: f64 = 0.025;
/// Closer bodies attract each other as if they had this distance.
const SOFTENING: f64 = 0.05;
/// Bodies of a process: the forces on fewer may, by chance, all be those that the tree approximates worst.
const LEAST: usize = 8;
/// Words of a body: place and mass.
const BODY: usize = 4;

/// What a body, or a cell, does to another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mass {
    place: Vector,
    mass: f64,
}

impl Mass {
    fn of_words(words: &[u64]) -> Self {
        let of = |at: usize| f64::from_bits(words.get(at).copied().unwrap_or_default());
        Self {
            place: [of(0), of(1), of(2)],
            mass: of(3),
        }
    }

    fn words(self) -> [u64; BODY] {
        let [x, y, z] = self.place.map(f64::to_bits);
        [x, y, z, self.mass.to_bits()]
    }

    /// Adds its force on a body of mass 1 at `place`.
    fn pull(self, place: Vector, force: &mut Vector) {
        let distance = [0, 1, 2].map(|axis| self.place[axis] - place[axis]);
        let square = square(distance) + SOFTENING * SOFTENING;
        let strength = self.mass / (square * square.sqrt());
        for axis in 0..3 {
            force[axis] += strength * distance[axis];
        }
    }
}

fn square(vector: Vector) -> f64 {
    vector.iter().map(|value| value * value).sum()
}

impl Barnes {
    fn blocks(&self, size: usize) -> Blocks {
        let total = self.bodies;
        Blocks { total, size }
    }

    /// A body and its velocity at the beginning.
    fn body(&self, index: usize) -> (Mass, Vector) {
        let mut random = draw(self.seed, index);
        let mut radius = f64::INFINITY;
        // The few that are far away would make the tree deep, and nothing else.
        while radius > 8.0 {
            radius = 1.0 / (random.fraction().max(1e-9).powf(-2.0 / 3.0) - 1.0).sqrt();
        }
        let mut direction = |length: f64| loop {
            let vector = [0; 3].map(|_| 2.0 * random.fraction() - 1.0);
            let square = square(vector);
            if square <= 1.0 && square > 1e-6 {
                return vector.map(|value| value * length / square.sqrt());
            }
        };
        let place = direction(radius);
        // Half of the velocity at which it would leave.
        let velocity = direction(0.5 * 2_f64.sqrt() * (1.0 + radius * radius).powf(-0.25));
        let mass = 1.0 / self.bodies as f64;
        (Mass { place, mass }, velocity)
    }
}

/// Moves a body for one step.
fn advance(body: &mut Mass, velocity: &mut Vector, force: Vector) {
    for axis in 0..3 {
        velocity[axis] += STEP * force[axis];
        body.place[axis] += STEP * velocity[axis];
    }
}

/// Bodies and velocities of a process.
type Bodies = Vec<(Mass, Vector)>;

/// Stores a process' bodies where the others find them.
fn publish(process: &mut Process, bodies: &Bodies) -> Result<(), MeshError> {
    bodies
        .iter()
        .enumerate()
        .try_for_each(|(at, (body, _))| process.write_words(process.rank(), BODY * at, &body.words()))
}

impl Parallel for Barnes {
    type Input = Bodies;

    fn name(&self) -> &'static str {
        "barnes"
    }

    fn words(&self, size: usize) -> usize {
        let most = self.blocks(size).most();
        BODY * most + CELL * tree::room(most)
    }

    fn values(&self) -> u64 {
        6 * self.bodies as u64
    }

    fn prepare(&self, process: &mut Process) -> Result<Bodies, SplitCError> {
        let blocks = self.blocks(process.size()).enough(LEAST, "bodies")?;
        let own = blocks.range(process.rank());
        let bodies: Bodies = own.map(|index| self.body(index)).collect();
        publish(process, &bodies)?;
        Ok(bodies)
    }

    fn compute(&self, process: &mut Process, bodies: &mut Bodies) -> Result<Part, SplitCError> {
        let blocks = self.blocks(process.size());
        let own = blocks.range(process.rank());
        let mut forces = vec![[0.0; 3]; bodies.len()];
        for _ in 0..self.steps {
            let places = bodies.iter().flat_map(|(body, _)| body.place);
            let farthest = places.map(f64::abs).fold(0.0, f64::max);
            // Bits of what is not negative have its order.
            let farthest = process.gather(farthest.to_bits())?.into_iter().max();
            let mut tree = Tree::new(process, blocks, f64::from_bits(farthest.unwrap_or_default()))?;
            for ((body, _), index) in bodies.iter().zip(own.clone()) {
                tree.insert(process, index, body.place)?;
            }
            process.settle()?;
            tree.weigh(process)?;
            for ((body, _), force) in bodies.iter().zip(&mut forces) {
                *force = tree.force(process, body.place, self.opening)?;
            }
            process.barrier()?;
            for ((body, velocity), force) in bodies.iter_mut().zip(&forces) {
                advance(body, velocity, *force);
            }
            publish(process, bodies)?;
            process.barrier()?;
        }
        let of = |((body, _), force): (&(Mass, Vector), &Vector)| [*force, body.place];
        let values = bodies.iter().zip(&forces).flat_map(of).flatten();
        Ok(Part {
            first: 6 * own.start,
            values: values.map(f64::to_bits).collect(),
        })
    }

    fn check(&self, _: usize, part: &Part) -> Result<(), String> {
        check::compare(self, part)
    }
}
