//! The k-ary n-cube, exactly: its channels, dimension-ordered paths, and a discrete-event simulation of
//! messages on it.
//!
//! Every node has one channel per dimension and direction to its neighbor; a message crosses the channels
//! of its first dimension, then of the second, and so on. A channel is a FIFO server: the
//! [`perturb_common::departure`] recursion that the emulator runs per packet. A message is cut through:
//! its head goes on to the next channel one hop time after it got this one, while its tail still
//! occupies it for B cycles, one per byte.
//!
//! What it lacks: back-pressure. A blocked message waits in a buffer as large as needed and leaves the
//! channels behind it free, which is Agarwal's assumption too; a wormhole network holds them.

pub mod comparison;
pub mod simulation;

use crate::logpc::network::Wiring;

/// The nodes of a k-ary n-cube, numbered with the first dimension fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    shape: Vec<u32>,
    wiring: Wiring,
    nodes: u32,
}

/// A shape that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// No dimension, or one without nodes.
    #[error("shape {shape:?}: needs at least one dimension, and at least one node in each")]
    Empty {
        /// As given.
        shape: Vec<u32>,
    },
    /// Too many nodes.
    #[error("shape {shape:?}: more than {MAX_NODES} nodes; simulate a smaller one")]
    TooLarge {
        /// As given.
        shape: Vec<u32>,
    },
}

/// More nodes would need more memory than a model may take.
pub const MAX_NODES: u32 = 1 << 20;

/// One channel: from a node, in a dimension, up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The node it leaves.
    pub node: u32,
    /// The dimension.
    pub dimension: u32,
    /// Towards greater coordinates.
    pub up: bool,
}

impl Mesh {
    /// A mesh or torus.
    ///
    /// # Errors
    /// When a dimension is empty or the whole is too large.
    pub fn new(shape: &[u32], wiring: Wiring) -> Result<Self, MeshError> {
        if shape.is_empty() || shape.contains(&0) {
            return Err(MeshError::Empty {
                shape: shape.to_vec(),
            });
        }
        let nodes = shape
            .iter()
            .try_fold(1_u32, |nodes, radix| nodes.checked_mul(*radix));
        match nodes.filter(|nodes| *nodes <= MAX_NODES) {
            Some(nodes) => Ok(Self {
                shape: shape.to_vec(),
                wiring,
                nodes,
            }),
            None => Err(MeshError::TooLarge {
                shape: shape.to_vec(),
            }),
        }
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Nodes per dimension.
    #[must_use]
    pub fn shape(&self) -> &[u32] {
        &self.shape
    }

    /// How it is wired.
    #[must_use]
    pub fn wiring(&self) -> Wiring {
        self.wiring
    }

    /// A channel's place among 2 n nodes of them, whether the mesh has it or not.
    #[must_use]
    pub fn index(&self, channel: Channel) -> usize {
        (channel.node as usize * self.shape.len() + channel.dimension as usize) * 2 + usize::from(channel.up)
    }

    /// Places for channels, see [`Mesh::index`].
    #[must_use]
    pub fn places(&self) -> usize {
        self.nodes as usize * self.shape.len() * 2
    }

    /// Channels that exist: those at the rim of a mesh do not, nor those of a dimension of one node.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.shape
            .iter()
            .map(|&radix| {
                let lines = (self.nodes / radix) as usize;
                match self.wiring {
                    Wiring::Mesh => lines * 2 * (radix as usize - 1),
                    _ if radix == 1 => 0,
                    Wiring::Torus => lines * 2 * radix as usize,
                    Wiring::UnidirectionalTorus => lines * radix as usize,
                }
            })
            .sum()
    }

    /// The path of a message: dimension by dimension, the shorter way round on a torus. Two equally long
    /// ways are shared: from even coordinates up, from odd ones down.
    #[must_use]
    pub fn path(&self, from: u32, to: u32) -> Vec<Channel> {
        let mut path = Vec::new();
        let (mut node, mut stride) = (from, 1);
        for (dimension, &radix) in self.shape.iter().enumerate() {
            let (mut here, there) = (node / stride % radix, to / stride % radix);
            let ahead = (there + radix - here) % radix;
            let up = match self.wiring {
                Wiring::Mesh => there > here,
                Wiring::Torus if ahead * 2 == radix => here.is_multiple_of(2),
                Wiring::Torus => ahead * 2 < radix,
                Wiring::UnidirectionalTorus => true,
            };
            while here != there {
                path.push(Channel {
                    node,
                    dimension: dimension as u32,
                    up,
                });
                let next = if up {
                    (here + 1) % radix
                } else {
                    (here + radix - 1) % radix
                };
                node = node - here * stride + next * stride;
                here = next;
            }
            stride *= radix;
        }
        path
    }

    /// k_d for random destinations other than the sender.
    #[must_use]
    pub fn mean_distance_per_dimension(&self) -> f64 {
        let nodes = f64::from(self.nodes);
        let with_own = self.wiring.mean_distance_per_dimension(&self.shape);
        if self.nodes > 1 {
            with_own * nodes / (nodes - 1.0)
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_where_they_should() {
        for wiring in [Wiring::Mesh, Wiring::Torus, Wiring::UnidirectionalTorus] {
            let mesh = Mesh::new(&[4, 3, 2], wiring).unwrap();
            let mut hops = 0;
            for from in 0..mesh.nodes() {
                for to in 0..mesh.nodes() {
                    let path = mesh.path(from, to);
                    hops += path.len();
                    assert!(path.windows(2).all(|pair| pair[0].dimension <= pair[1].dimension));
                    assert_eq!(
                        path.first().map(|channel| channel.node),
                        (from != to).then_some(from)
                    );
                    assert!(path.iter().all(|channel| mesh.index(*channel) < mesh.places()));
                }
            }
            let pairs = f64::from(mesh.nodes() * (mesh.nodes() - 1));
            let mean = hops as f64 / pairs / 3.0;
            assert!(
                (mean - mesh.mean_distance_per_dimension()).abs() < 1e-12,
                "{wiring:?}"
            );
        }
    }

    #[test]
    fn channels_that_exist() {
        let count = |wiring| Mesh::new(&[4, 8], wiring).unwrap().channels();
        assert_eq!(count(Wiring::Mesh), 2 * (3 * 8 + 7 * 4));
        assert_eq!(count(Wiring::Torus), 2 * 2 * 32);
        assert_eq!(count(Wiring::UnidirectionalTorus), 2 * 32);
        assert_eq!(
            Mesh::new(&[], Wiring::Mesh),
            Err(MeshError::Empty { shape: vec![] })
        );
        assert_eq!(
            Mesh::new(&[2, 0], Wiring::Mesh),
            Err(MeshError::Empty { shape: vec![2, 0] })
        );
        assert!(matches!(
            Mesh::new(&[1 << 16, 1 << 16], Wiring::Mesh),
            Err(MeshError::TooLarge { .. })
        ));
    }
}
