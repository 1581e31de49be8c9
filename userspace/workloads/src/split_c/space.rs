//! Places, and the cubes of oct-trees.

/// A place, a velocity, a force.
pub(super) type Vector = [f64; 3];

/// A cube of space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cube {
    pub(super) center: Vector,
    pub(super) half: f64,
}

impl Cube {
    /// The octant with a place.
    pub(super) fn octant(self, place: Vector) -> usize {
        (0..3).fold(0, |octant, axis| {
            octant | usize::from(place[axis] >= self.center[axis]) << axis
        })
    }

    /// An octant.
    pub(super) fn within(self, octant: usize) -> Self {
        let half = self.half / 2.0;
        let center = [0, 1, 2].map(|axis| {
            let sign = if octant >> axis & 1 == 1 { half } else { -half };
            self.center[axis] + sign
        });
        Self { center, half }
    }
}
