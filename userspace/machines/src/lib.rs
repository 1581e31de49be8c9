//! perturb on many machines: how they are named, reached and led.
//!
//! ```text
//! crew ──► link ── ssh or srun, perturb machine ──► agent ──► perturb apply, in the foreground
//!  one       one per machine, all at once            there: what the link asks for
//! ```
//!
//! An agent's emulation lasts as long as its connection: it ends with the agent's standard input, and when nothing was heard for
//! as long as the order says. If the agent is killed, the kernel ends its command, and the emulation's lease is the last resort.
//! What is lacking: machines do not talk to each other. Networks that span them are their core's (`perturb run --on`).

#![warn(missing_docs)]

pub mod agent;
mod compared;
mod crew;
mod link;
mod names;
mod way;
mod words;

pub use compared::{Compared, Drift};
pub use crew::{Crew, Heard, Stage, What};
pub use link::Failure;
pub use names::{Hosts, NameError, On};
pub use way::{Client, Way};
pub use words::Order;
