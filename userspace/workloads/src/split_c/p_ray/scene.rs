//! Spheres in an oct-tree, and the rays that meet them.

use crate::split_c::{
    draw,
    space::{Cube, Vector},
};

/// Words of a cell: how many entries it has if it is a leaf, plus one; eight children or spheres; the next leaf with the
/// same place.
pub(super) const CELL: usize = 10;
/// Words of a sphere: center, radius, color, how much it reflects.
pub(super) const SPHERE: usize = 8;
/// Spheres in a leaf of one cell.
const LEAF: usize = 8;
/// Cells within cells, at most.
const DEEPEST: usize = 6;
/// Reflections of a ray, at most.
const REFLECTIONS: usize = 2;
/// Where a ray begins, beyond what it comes from.
const OFF: f64 = 1e-6;

/// Where cells and spheres are found.
pub(super) trait Things {
    type Error;
    fn cell(&mut self, number: usize) -> Result<[u64; CELL], Self::Error>;
    fn sphere(&mut self, number: usize) -> Result<[u64; SPHERE], Self::Error>;
}

/// All of them.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) cells: Vec<[u64; CELL]>,
    pub(super) spheres: Vec<[u64; SPHERE]>,
}

#[derive(Clone, Copy, Debug)]
struct Sphere {
    center: Vector,
    radius: f64,
    color: Vector,
    reflects: f64,
}

impl Sphere {
    fn of_words(words: [u64; SPHERE]) -> Self {
        let [x, y, z, radius, red, green, blue, reflects] = words.map(f64::from_bits);
        Self {
            center: [x, y, z],
            radius,
            color: [red, green, blue],
            reflects,
        }
    }

    /// How far along a ray it is met.
    fn met(&self, ray: &Ray) -> Option<f64> {
        let to = minus(self.center, ray.from);
        let along = dot(to, ray.direction);
        let left = self.radius * self.radius - (dot(to, to) - along * along);
        if left < 0.0 {
            return None;
        }
        [along - left.sqrt(), along + left.sqrt()]
            .into_iter()
            .find(|distance| *distance > OFF)
    }
}

/// All spheres are within.
const SPACE: Cube = Cube {
    center: [0.5; 3],
    half: 0.75,
};

impl Cube {
    fn touches(self, sphere: &Sphere) -> bool {
        let away = [0, 1, 2].map(|axis| {
            let distance = (sphere.center[axis] - self.center[axis]).abs();
            (distance - self.half).max(0.0)
        });
        dot(away, away) <= sphere.radius * sphere.radius
    }

    /// How far along a ray it begins, if it is met.
    fn met(self, ray: &Ray) -> Option<f64> {
        let (mut near, mut far) = (0.0_f64, f64::INFINITY);
        for axis in 0..3 {
            let to = self.center[axis] - ray.from[axis];
            let ends = [to - self.half, to + self.half].map(|end| end / ray.direction[axis]);
            near = near.max(ends[0].min(ends[1]));
            far = far.min(ends[0].max(ends[1]));
        }
        (near <= far).then_some(near)
    }
}

#[derive(Clone, Copy, Debug)]
struct Ray {
    from: Vector,
    direction: Vector,
}

fn dot(one: Vector, other: Vector) -> f64 {
    one[0] * other[0] + one[1] * other[1] + one[2] * other[2]
}

fn minus(one: Vector, other: Vector) -> Vector {
    [0, 1, 2].map(|axis| one[axis] - other[axis])
}

/// The sum of one and `times` the other.
fn plus(one: Vector, times: f64, other: Vector) -> Vector {
    [0, 1, 2].map(|axis| one[axis] + times * other[axis])
}

fn unit(vector: Vector) -> Vector {
    let length = dot(vector, vector).sqrt();
    vector.map(|value| value / length)
}

impl Scene {
    pub(super) fn new(spheres: usize, seed: u64) -> Self {
        let radius = 0.25 / (spheres.max(1) as f64).cbrt();
        let one = |index| {
            let mut random = draw(seed, index);
            let mut next = || random.fraction();
            let [x, y, z] = [next(), next(), next()];
            let radius = radius * (0.5 + next());
            let [red, green, blue] = [next(), next(), next()];
            [x, y, z, radius, red, green, blue, 0.6 * next()].map(f64::to_bits)
        };
        let mut scene = Self {
            cells: Vec::new(),
            spheres: (0..spheres).map(one).collect(),
        };
        scene.grow(SPACE, &(0..spheres).collect::<Vec<_>>(), 0);
        scene
    }

    /// Makes the cells of a cube with these spheres; the first one's number.
    fn grow(&mut self, cube: Cube, within: &[usize], depth: usize) -> usize {
        let number = self.cells.len();
        self.cells.push([0; CELL]);
        if within.len() <= LEAF || depth == DEEPEST {
            let (here, rest) = within.split_at(within.len().min(LEAF));
            self.cells[number][0] = 1 + here.len() as u64;
            for (entry, sphere) in self.cells[number][1..].iter_mut().zip(here) {
                *entry = *sphere as u64;
            }
            if !rest.is_empty() {
                self.cells[number][CELL - 1] = self.grow(cube, rest, DEEPEST) as u64;
            }
            return number;
        }
        for octant in 0..8 {
            let cube = cube.within(octant);
            let touches = |sphere: &usize| cube.touches(&Sphere::of_words(self.spheres[*sphere]));
            let some: Vec<usize> = within.iter().copied().filter(touches).collect();
            if !some.is_empty() {
                self.cells[number][1 + octant] = self.grow(cube, &some, depth + 1) as u64;
            }
        }
        number
    }
}

/// The sphere that a ray meets first, and how far away.
fn first<T: Things>(things: &mut T, ray: &Ray) -> Result<Option<(f64, Sphere)>, T::Error> {
    let mut nearest: Option<(f64, Sphere)> = None;
    let mut open = vec![(0.0, 0, SPACE)];
    while let Some((begins, number, cube)) = open.pop() {
        if nearest.is_some_and(|(distance, _)| distance < begins) {
            continue;
        }
        let cell = things.cell(number)?;
        if cell[0] > 0 {
            for sphere in &cell[1..cell[0] as usize] {
                let sphere = Sphere::of_words(things.sphere(*sphere as usize)?);
                if let Some(distance) = sphere.met(ray)
                    && nearest.is_none_or(|(least, _)| distance < least)
                {
                    nearest = Some((distance, sphere));
                }
            }
            if cell[CELL - 1] > 0 {
                open.push((begins, cell[CELL - 1] as usize, cube));
            }
            continue;
        }
        let children = (0..8).filter(|octant| cell[1 + octant] > 0).filter_map(|octant| {
            let cube = cube.within(octant);
            Some((cube.met(ray)?, cell[1 + octant] as usize, cube))
        });
        let mut children: Vec<_> = children.collect();
        // The nearest is looked at first.
        children.sort_by(|one, other| other.0.total_cmp(&one.0));
        open.extend(children);
    }
    Ok(nearest)
}

/// The light that comes along a ray.
fn light<T: Things>(things: &mut T, ray: &Ray, reflections: usize) -> Result<Vector, T::Error> {
    let Some((distance, sphere)) = first(things, ray)? else {
        let height = 0.5 + 0.5 * ray.direction[1];
        return Ok([0.3 + 0.2 * height, 0.4 + 0.3 * height, 0.6 + 0.4 * height]);
    };
    let from = plus(ray.from, distance, ray.direction);
    let normal = unit(minus(from, sphere.center));
    let sun = unit([1.0, 2.0, -1.5]);
    let to_sun = Ray { from, direction: sun };
    let is_lit = dot(normal, sun) > 0.0 && first(things, &to_sun)?.is_none();
    let strength = 0.2 + if is_lit { 0.8 * dot(normal, sun) } else { 0.0 };
    let own = sphere.color.map(|value| value * strength);
    if reflections == 0 {
        return Ok(own);
    }
    let direction = unit(plus(ray.direction, -2.0 * dot(ray.direction, normal), normal));
    let reflected = light(things, &Ray { from, direction }, reflections - 1)?;
    Ok(plus(
        own.map(|value| value * (1.0 - sphere.reflects)),
        sphere.reflects,
        reflected,
    ))
}

/// The color of a pixel, 24 bits.
pub(super) fn pixel<T: Things>(things: &mut T, side: usize, pixel: usize) -> Result<u64, T::Error> {
    let [x, y] = [pixel % side, pixel / side].map(|at| (at as f64 + 0.5) / side as f64);
    let from = [0.5, 0.5, -1.5];
    let direction = unit(minus([x, 1.0 - y, 0.0], from));
    let color = light(things, &Ray { from, direction }, REFLECTIONS)?;
    Ok(color.iter().fold(0, |word, value| {
        word << 8 | (value.clamp(0.0, 1.0) * 255.0).round() as u64
    }))
}
