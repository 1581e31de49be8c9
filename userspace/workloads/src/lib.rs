//! Traffic generators and servers. None of them knows whether emulation is on.

pub mod collective;
pub mod nfs;
pub mod pattern;
mod timer;
