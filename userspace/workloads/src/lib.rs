//! Traffic generators and servers. None of them knows whether emulation is on.

pub mod nfs;
mod timer;
