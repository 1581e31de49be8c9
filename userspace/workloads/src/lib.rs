//! Traffic generators and servers. None of them knows whether emulation is on.

pub mod bulk;
pub mod collective;
pub mod incast;
mod mesh;
pub mod nfs;
pub mod pattern;
pub mod split_c;
mod timer;
