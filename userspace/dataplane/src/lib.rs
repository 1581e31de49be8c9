//! The kernel as the controller sees it: network namespaces, devices and qdiscs (netlink), programs
//! and maps (aya), the hold devices. Nothing above this crate names any of these.
//!
//! Every attachment and device is a guard: dropping it restores what was before.

pub mod attach;
pub mod counters;
pub mod emulation;
pub mod ethtool;
pub mod hold;
pub mod jit;
pub mod loader;
pub mod loopback;
pub mod losses;
pub mod machine;
pub mod maps;
pub mod moment;
pub mod namespace;
pub mod native;
pub mod netlink;
pub mod programs;
pub mod room;
pub mod steering;
pub mod survey;
pub mod switch;
pub mod tunnels;
pub mod user;
pub mod vitals;
pub mod watch;
