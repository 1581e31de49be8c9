//! The same bodies, all forces added up.

use super::{Barnes, Mass, Vector, advance, square};
use crate::split_c::Part;

/// Root mean square of the forces' errors, over that of the forces. A cell that counts as one body is 1 % or less off.
const MEAN: f64 = 0.05;
/// The largest error of one force, over the root mean square of the forces.
const LARGEST: f64 = 0.5;
/// The largest error of a place, over its distance from the middle plus 1.
const PLACE: f64 = 0.01;

/// What is wrong with forces and places of neighboring bodies.
pub(super) fn compare(barnes: &Barnes, part: &Part) -> Result<(), String> {
    let mut bodies: Vec<(Mass, Vector)> = (0..barnes.bodies).map(|index| barnes.body(index)).collect();
    let mut forces = Vec::new();
    for _ in 0..barnes.steps {
        let on = |(place, _): &(Mass, Vector)| {
            let mut force = [0.0; 3];
            for (body, _) in &bodies {
                body.pull(place.place, &mut force);
            }
            force
        };
        forces = bodies.iter().map(on).collect();
        for ((body, velocity), force) in bodies.iter_mut().zip(&forces) {
            advance(body, velocity, *force);
        }
    }
    let usual = (forces.iter().copied().map(square).sum::<f64>() / forces.len().max(1) as f64).sqrt();
    let mut errors = 0.0;
    let (found, _) = part.values.as_chunks::<6>();
    for (found, index) in found.iter().zip(part.first / 6..) {
        let [x, y, z, a, b, c] = found.map(f64::from_bits);
        let (force, place) = ([x, y, z], [a, b, c]);
        let (Some(direct), Some((body, _))) = (forces.get(index), bodies.get(index)) else {
            return Err(format!("body {index} of only {}", bodies.len()));
        };
        let away = |one: Vector, other: Vector| square([0, 1, 2].map(|axis| one[axis] - other[axis]));
        let error = away(force, *direct);
        errors += error;
        // What is no number is no small one.
        let is_small = |value: f64, limit: f64| value <= limit;
        if !is_small(error.sqrt(), LARGEST * usual) {
            return Err(format!(
                "the force on body {index} is {force:?}; the direct sum is {direct:?}"
            ));
        }
        if !is_small(
            away(place, body.place).sqrt(),
            PLACE * (1.0 + square(body.place).sqrt()),
        ) {
            return Err(format!(
                "body {index} is at {place:?}; by direct sums at {:?}",
                body.place
            ));
        }
    }
    let mean = (errors / found.len().max(1) as f64).sqrt() / usual;
    if mean > MEAN {
        return Err(format!(
            "its forces are {:.1} % off the direct sums; at most {:.0} % are allowed (a smaller --opening is more exact)",
            100.0 * mean,
            100.0 * MEAN
        ));
    }
    Ok(())
}
