//! Traffic generators and servers. None of them knows whether emulation is on.

pub mod bulk;
pub mod collective;
mod mesh;
pub mod nfs;
pub mod pattern;
pub mod split_c;
mod timer;
