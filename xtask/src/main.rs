//! Set-up, builds, tests, benches.
fn main() {}
