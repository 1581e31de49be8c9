//! perturb: run unmodified programs on a network whose LogGP parameters are knobs.
fn main() {}
