//! Emulated networks for tests: private hosts, joined by a profile of perturb.
//!
//! ```no_run
//! use perturb_fixtures::{Error, Network};
//!
//! fn it_survives_a_handover() -> Result<(), Error> {
//!     Network::of("mobile-lte").hosts(3).within(|net| {
//!         net.host("h1")?.run("ping -c 3 h2")?;
//!         net.set_at("up", [("latency", "80ms")])?;
//!         let mut server = net.host("h2")?.command("my-server").spawn().unwrap();
//!         // …
//!         server.kill().unwrap();
//!         Ok(())
//!     })
//! }
//! ```
//!
//! In the end the test fails if no packet crossed the network, or if packets met what no profile asks for. The network ends with its
//! process, also if that is killed. Several networks may be there at once; they know nothing of each other.

mod builder;
mod error;
mod host;
mod network;
mod running;

pub use builder::Builder;
pub use error::Error;
pub use host::Host;
pub use network::Network;
